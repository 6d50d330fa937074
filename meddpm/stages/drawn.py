"""The samples that cells have drawn, as the sample stage left them: <gpu>/<variant>/<solver>/samples.csv."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from meddpm import tables
from meddpm.config import UserError
from meddpm.data import volumes
from meddpm.files import sha256
from meddpm.quality.pairing import Cell, Seeds
from meddpm.status import OK
from meddpm.tables import Row

COLUMNS = {"case", "seed", "file", "sha256", "status", "reason"}


@dataclass(frozen=True)
class Drawn:
    """The samples of one cell: its samples.csv as rows by (case, seed), each with the place of its volume.

    `environment` is the key of the environment that they were drawn in, and None where the cell did not run.
    """

    cell: Cell
    path: Path
    rows: dict[tuple[str, str], Row]
    environment: str | None

    @property
    def missing(self) -> Row | None:
        """Status and reason of a cell that did not run; None if it did."""
        rows = (row for row in self.rows.values() if row["status"] != OK)
        return next(({"status": row["status"], "reason": row["reason"]} for row in rows), None)

    @property
    def cases(self) -> list[str]:
        """The cases that the cell was drawn for, in their order."""
        return list(dict.fromkeys(case for case, _ in self.rows))

    @property
    def seeds(self) -> list[str]:
        """The seeds that each case was drawn with, in their order."""
        return list(dict.fromkeys(seed for _, seed in self.rows))

    def of_case(self, case: str) -> Seeds:
        """The volumes (C, D, W, H) of one case by seed. Raises UserError if one is not the one that was drawn."""
        return {seed: _tensor(row) for (found, seed), row in self.rows.items() if found == case}


def read(path: Path | str) -> Drawn:
    """Read the samples.csv of a cell. Raises UserError where it is none, or lists no volume."""
    path = Path(path)
    try:
        with open(path, newline="", encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream))
    except (FileNotFoundError, UnicodeDecodeError):
        rows = [{}]
    if any(not row.keys() >= COLUMNS or None in row.values() or Path(row["file"]).name != row["file"] for row in rows):
        raise UserError(f"{path}: is no list of samples as the sample stage writes it; draw them again")
    if not rows:
        raise UserError(f"{path}: lists no volume; draw them again")
    environment = tables.read("environment", path.with_name("environment.csv"))
    return Drawn(
        cell=Cell(*path.parts[-4:-1]),
        path=path,
        rows={(row["case"], row["seed"]): {**row, "file": path.with_name(row["file"] or "-")} for row in rows},
        environment=environment[0]["environment"] if environment else None,
    )


def require_same(one: Drawn, other: Drawn) -> None:
    """Raise UserError where two cells that ran do not list the same cases and seeds."""
    if one.rows.keys() != other.rows.keys():
        raise UserError(f"{one.path} and {other.path} do not list the same volumes; draw them again")


def _tensor(row: Row) -> np.ndarray:
    if not row["file"].is_file() or sha256(row["file"]) != row["sha256"]:
        raise UserError(f"{row['file']}: is gone or has changed since samples.csv was written; draw it again")
    return volumes.to_tensor_axes(volumes.read_image(row["file"])[0])
