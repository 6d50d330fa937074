"""Compare every variant's samples with fp32's: same noise, same mask."""

import csv
from pathlib import Path

import numpy as np

from meddpm import quality, tables
from meddpm.config import EvaluateConfig, UserError
from meddpm.data import manifest, volumes
from meddpm.files import sha256
from meddpm.stages.job import Job
from meddpm.status import OK
from meddpm.tables import Row


def run(settings: str, samples: list[Path], cases: Path | str, target: Path | str) -> None:
    """Write the quality table of one model from the samples.csv of its cells, <gpu>/<variant>/<solver>/samples.csv.

    The reference is the baseline of the same GPU and solver. A cell without samples is a row with its reason.
    """
    job = Job.parse("evaluate", settings)
    how, baseline = job.get("evaluate", EvaluateConfig), job.values["baseline"]
    labels = {row.id: manifest.load_case(cases, row).label for row in manifest.read(cases)}
    drawn = {_cell(path): _read(path) for path in samples}
    environments = {_cell(path): _environment(path) for path in samples}
    rows: list[Row] = []
    for (gpu, variant, solver), volumes_of in drawn.items():
        if variant == baseline:
            continue
        row = {
            **job.cell("model"),
            "gpu": gpu,
            "variant": variant,
            "solver": solver,
            "reference": f"{baseline}, same noise",
        }
        missing = _not_there(volumes_of) or _not_there(drawn[gpu, baseline, solver])
        if missing:
            rows.append({**row, "metric": "ssim", "region": "whole", **missing})
            continue
        if not volumes_of or volumes_of.keys() != drawn[gpu, baseline, solver].keys():
            where = f"results/samples/{job.values['model']}/{gpu}"
            raise UserError(f"{where}: {variant} and {baseline} do not list the same volumes; draw them again")
        pairs = (
            (
                _tensor(volumes_of[key]),
                _tensor(drawn[gpu, baseline, solver][key]),
                volumes.to_tensor_axes(labels[key[0]])[0] > 0,
            )
            for key in volumes_of
        )
        row["environment"] = environments[gpu, variant, solver]
        rows += [{**row, "status": OK, **measured} for measured in quality.quality_rows(pairs, how)]
    tables.write("quality", rows, target)


def _cell(path: Path | str) -> tuple[str, str, str]:
    gpu, variant, solver = Path(path).parts[-4:-1]
    return gpu, variant, solver


def _environment(samples: Path | str) -> str | None:
    """Key of the environment that a cell's samples were drawn in; None where it did not run."""
    rows = tables.read("environment", Path(samples).with_name("environment.csv"))
    return rows[0]["environment"] if rows else None


def _read(path: Path | str) -> dict[tuple[str, str], Row]:
    """The rows of a samples.csv by (case, seed), each with the place of its volume beside the table."""
    with open(path, newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    if any(None in row.values() or Path(row["file"]).name != row["file"] for row in rows):
        raise UserError(f"{path}: is no list of samples as the sample stage writes it; draw them again")
    return {(row["case"], row["seed"]): {**row, "file": Path(path).with_name(row["file"] or "-")} for row in rows}


def _not_there(rows: dict[tuple[str, str], Row]) -> Row | None:
    return next(
        ({"status": row["status"], "reason": row["reason"]} for row in rows.values() if row["status"] != OK), None
    )


def _tensor(row: Row) -> np.ndarray:
    """The volume of a row of samples.csv as (C, D, W, H). Raises UserError if it is not the one that was drawn."""
    if sha256(row["file"]) != row["sha256"]:
        raise UserError(f"{row['file']}: has changed since samples.csv was written; draw it again")
    return volumes.to_tensor_axes(volumes.read_image(row["file"])[0])
