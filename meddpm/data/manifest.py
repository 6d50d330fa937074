"""The table of a dataset's cases: results/data/<dataset>/cases.tsv."""

import csv
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import nibabel
import numpy as np

from meddpm.config import UserError
from meddpm.data.layouts.names import ID_PATTERN
from meddpm.data.nifti import by
from meddpm.data.volumes import Case, read_image, read_label
from meddpm.files import replacing, sha256
from meddpm.status import OK

FILE_NAME = "cases.tsv"
# Beside the table: what is to be said of the dataset as a whole.
DATASET_FILE = "dataset.json"
REFUSED = "refused"
# Files beside the table are no outputs to Snakemake, which would think that nothing is to be done.
AGAIN = "prepare the dataset again (snakemake --forcerun prepare)"
STATUSES = (OK, REFUSED)


@dataclass(frozen=True)
class CaseRow:
    """One case in the table; where a value is not known or there is none it is empty or None.

    `status` is ok, or refused with its `reason`; then nothing was prepared. `image` and `label` are what was prepared,
    paths relative to the table; `shape` is its (H, W, D), `spacing_mm` the voxel's edges along those axes,
    `orientation` the directions they run to (RAS: right, anterior, superior). `label_volumes_ml` has each label but 0.

    `files` are what the case was made from, by what they are ("label" or the name of an image), relative to the folder
    of the dataset; `files_sha256` has the digest of each by its path. The columns original_* speak of these files:
    `original_affine` is the affine (4, 4), row by row without the last, of the label map in its file,
    `original_intensity_ranges` has each image. `changes` says what was done to the case, `warnings` what a person
    should look at.
    """

    id: str
    status: str = OK
    reason: str = ""
    image: str = ""
    label: str = ""
    image_sha256: str = ""
    label_sha256: str = ""
    shape: tuple[int, int, int] | None = None
    spacing_mm: tuple[float, float, float] | None = None
    orientation: str = ""
    intensity_range: tuple[float, float] | None = None
    label_volumes_ml: dict[int, float] = field(default_factory=dict)
    notes: str = ""
    files: dict[str, str] = field(default_factory=dict)
    files_sha256: dict[str, str] = field(default_factory=dict)
    original_shape: tuple[int, int, int] | None = None
    original_spacing_mm: tuple[float, float, float] | None = None
    original_orientation: str = ""
    original_affine: tuple[float, ...] | None = None
    original_intensity_ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    original_label_volumes_ml: dict[int, float] = field(default_factory=dict)
    changes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def describe(case: Case, image: Path | None, label: Path, folder: Path, **more: Any) -> CaseRow:
    """The row of `case`, whose files `image` and `label` are written already; the table will lie in `folder`.

    `more` are columns that the prepared case does not tell.
    """
    return CaseRow(
        id=case.id,
        image="" if image is None else Path(os.path.relpath(image, folder)).as_posix(),
        label=Path(os.path.relpath(label, folder)).as_posix(),
        image_sha256="" if image is None else sha256(image),
        label_sha256=sha256(label),
        **measured(case),
        **more,
    )


def measured(case: Case) -> dict[str, Any]:
    """The columns that the arrays and the affine of a prepared `case` tell."""
    intensity = None if case.image is None else (round(float(case.image.min()), 6), round(float(case.image.max()), 6))
    return {
        "shape": tuple(case.label.shape),
        "spacing_mm": spacing(case.affine),
        "orientation": orientation(case.affine),
        "intensity_range": intensity,
        "label_volumes_ml": label_volumes(case.label, case.affine),
    }


def spacing(affine: np.ndarray) -> tuple[float, float, float]:
    """Edges of a voxel in mm along the axes of an array with this affine."""
    return tuple(round(float(edge), 6) for edge in nibabel.affines.voxel_sizes(affine))


def orientation(affine: np.ndarray) -> str:
    """The directions that the axes of an array with this affine run to, as RAS: right, anterior, superior."""
    return "".join(nibabel.aff2axcodes(affine))


def label_volumes(label: np.ndarray, affine: np.ndarray) -> dict[int, float]:
    """Volume in mL of each label but 0 of a map (H, W, D)."""
    voxel_ml = abs(np.linalg.det(affine[:3, :3])) / 1000
    values, counts = np.unique(label[label > 0], return_counts=True)
    return {int(v): round(float(n * voxel_ml), 3) for v, n in zip(values, counts, strict=True)}


def write(path: Path | str, rows: Iterable[CaseRow]) -> None:
    """Write the table as tab-separated values, one row a case, atomically. Volumes stand as `1=75.1; 2=1151.2`."""
    with replacing(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(_COLUMNS), delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(to_texts, rows))


def to_texts(row: CaseRow) -> dict[str, str]:
    """The row as it stands in the table."""
    return {name: _to_text(getattr(row, name)) for name in _COLUMNS}


def from_texts(texts: Mapping[str, str | None]) -> CaseRow:
    """The row of what `to_texts` made. Raises ValueError where a value does not parse or one is missing."""
    if None in texts.values():
        raise ValueError("too few values")
    row = CaseRow(**{name: parse(texts[name]) for name, parse in _COLUMNS.items()})
    if row.status not in STATUSES:
        raise ValueError(f"status {row.status!r} is not {' or '.join(STATUSES)}")
    if row.status == OK and not ID_PATTERN.fullmatch(row.id):
        raise ValueError(f"id {row.id!r} is not letters, digits, dots, dashes and underscores")
    if row.status == OK and not (row.shape and row.spacing_mm):
        raise ValueError("a case that can be used has a shape and a spacing")
    return row


def read_all(path: Path | str) -> list[CaseRow]:
    """Read the table, refused cases too.

    Raises UserError where it is missing, lacks a column, or has a value that does not parse.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such table of cases; prepare the dataset first.")
    with open(path, newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream, delimiter="\t")
        missing = [name for name in _COLUMNS if name not in (reader.fieldnames or [])]
        if missing:
            raise UserError(f"{path}: lacks the columns {', '.join(missing)}; prepare the dataset again.")
        rows = []
        for number, texts in enumerate(reader, 2):
            try:
                rows.append(from_texts(texts))
            except ValueError as error:
                raise UserError(
                    f"{path}, line {number}: cannot be read ({error}); prepare the dataset again."
                ) from error
    if len({row.id for row in rows}) < len(rows):
        raise UserError(f"{path}: an id stands twice; each case needs an id of its own.")
    return rows


def read(path: Path | str) -> list[CaseRow]:
    """The cases of the table that can be used, as `read_all`."""
    return [row for row in read_all(path) if row.status == OK]


def warnings(path: Path | str) -> list[str]:
    """Warnings about the dataset of the table `path` as a whole."""
    dataset = Path(path).with_name(DATASET_FILE)
    return list(json.loads(dataset.read_text(encoding="utf-8"))["warnings"]) if dataset.is_file() else []


def load_case(tsv: Path | str, row: CaseRow) -> Case:
    """Read the files of one row of the table `tsv`.

    Raises UserError where a file is missing or is not the one the table was written for, or where the image and the
    label map have different shapes or affines.
    """
    folder = Path(tsv).parent
    label, affine = read_label(_checked(folder / row.label, row.label_sha256))
    image = None
    if row.image:
        image, image_affine = read_image(_checked(folder / row.image, row.image_sha256))
        if not np.allclose(affine, image_affine, atol=1e-3):
            raise UserError(
                f"{tsv}: image and label map of {row.id} lie in different places; their affines must agree."
            )
    if label.shape != row.shape or (image is not None and image.shape[:3] != row.shape):
        raise UserError(f"{tsv}: the files of {row.id} are not {by(row.shape)} voxels; {AGAIN}.")
    return Case(row.id, image, label, affine)


def _checked(path: Path, digest: str) -> Path:
    if not path.is_file():
        raise UserError(f"{path}: no such file, though {FILE_NAME} names it; {AGAIN}.")
    if sha256(path) != digest:
        raise UserError(f"{path}: has changed since {FILE_NAME} was written; {AGAIN}.")
    return path


def _to_text(value: Any) -> str:
    """A value of a row as it stands in the table. A semicolon parts the items: one inside an item becomes a comma."""
    match value:
        case None:
            return ""
        case dict():
            return "; ".join(_item(f"{name}={_to_text(item)}") for name, item in value.items())
        case tuple() if value and isinstance(value[0], str):
            return "; ".join(map(_item, value))
        case tuple():
            return " ".join(map(str, value))
    return str(value)


def _item(text: str) -> str:
    return text.replace(";", ",")


def _numbers(kind: type, count: int) -> Callable[[str], tuple | None]:
    def parse(text: str) -> tuple | None:
        values = tuple(kind(part) for part in text.split())
        if len(values) not in (0, count):
            raise ValueError(f"{text!r} is not {count} numbers")
        return values or None

    return parse


def _mapping(key: type, value: Callable[[str], Any]) -> Callable[[str], dict]:
    def parse(text: str) -> dict:
        pairs = [part.split("=", 1) for part in text.split("; ") if part]
        return {key(name): value(item) for name, item in pairs}

    return parse


def _digests(text: str) -> dict[str, str]:
    """By path, which may have an equals sign in it."""
    return dict(part.rsplit("=", 1) for part in text.split("; ") if part)


def _texts(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split("; ") if part)


_THREE_INTEGERS, _THREE = _numbers(int, 3), _numbers(float, 3)
_RANGE, _VOLUMES, _NAMED = _numbers(float, 2), _mapping(int, float), _mapping(str, str)
_READ = {
    "shape": _THREE_INTEGERS,
    "spacing_mm": _THREE,
    "intensity_range": _RANGE,
    "label_volumes_ml": _VOLUMES,
    "files": _NAMED,
    "files_sha256": _digests,
    "original_shape": _THREE_INTEGERS,
    "original_spacing_mm": _THREE,
    "original_affine": _numbers(float, 12),
    "original_intensity_ranges": _mapping(str, _RANGE),
    "original_label_volumes_ml": _VOLUMES,
    "changes": _texts,
    "warnings": _texts,
}
# Each column of the table, and what makes a value of its text.
_COLUMNS = {each.name: _READ.get(each.name, str) for each in fields(CaseRow)}
