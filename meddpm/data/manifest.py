"""The table of a dataset's cases: results/data/<dataset>/cases.tsv."""

import csv
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

import nibabel
import numpy as np

from meddpm.config import UserError
from meddpm.data.volumes import Case, read_image, read_label
from meddpm.files import replacing, sha256

FILE_NAME = "cases.tsv"
ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class CaseRow:
    """One case in the table.

    `image` and `label` are paths relative to the table; `image`, its digest and its range are empty or None where
    there is a label map alone. `shape` is (H, W, D), `spacing_mm` the voxel's edges along those axes, `orientation`
    the directions they run to (RAS: right, anterior, superior). `label_volumes_ml` has each label but 0.
    """

    id: str
    image: str
    label: str
    image_sha256: str
    label_sha256: str
    shape: tuple[int, int, int]
    spacing_mm: tuple[float, float, float]
    orientation: str
    intensity_range: tuple[float, float] | None
    label_volumes_ml: dict[int, float]
    notes: str = ""


def describe(case: Case, image: Path | None, label: Path, folder: Path, notes: str = "") -> CaseRow:
    """The row of `case`, whose files `image` and `label` are written already; the table will lie in `folder`."""
    voxel_ml = abs(np.linalg.det(case.affine[:3, :3])) / 1000
    values, counts = np.unique(case.label[case.label > 0], return_counts=True)
    intensity = None if case.image is None else (round(float(case.image.min()), 6), round(float(case.image.max()), 6))
    return CaseRow(
        id=case.id,
        image="" if image is None else Path(os.path.relpath(image, folder)).as_posix(),
        label=Path(os.path.relpath(label, folder)).as_posix(),
        image_sha256="" if image is None else sha256(image),
        label_sha256=sha256(label),
        shape=tuple(case.label.shape),
        spacing_mm=tuple(round(float(edge), 6) for edge in nibabel.affines.voxel_sizes(case.affine)),
        orientation="".join(nibabel.aff2axcodes(case.affine)),
        intensity_range=intensity,
        label_volumes_ml={int(v): round(float(n * voxel_ml), 3) for v, n in zip(values, counts, strict=True)},
        notes=notes,
    )


def write(path: Path | str, rows: Iterable[CaseRow]) -> None:
    """Write the table as tab-separated values, one row a case, atomically. Volumes stand as `1=75.1 2=1151.2`."""
    with replacing(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, [field.name for field in fields(CaseRow)], delimiter="\t", lineterminator="\n")
        writer.writeheader()
        for row in rows:
            volumes = " ".join(f"{label}={volume}" for label, volume in row.label_volumes_ml.items())
            writer.writerow(
                {
                    **vars(row),
                    "shape": _join(row.shape),
                    "spacing_mm": _join(row.spacing_mm),
                    "intensity_range": " ".join(map(str, row.intensity_range or ())),
                    "label_volumes_ml": volumes,
                }
            )


def read(path: Path | str) -> list[CaseRow]:
    """Read the table. Raises UserError where it is missing, lacks a column, or has a value that does not parse."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such table of cases; prepare the dataset first.")
    with open(path, newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream, delimiter="\t")
        missing = [field.name for field in fields(CaseRow) if field.name not in (reader.fieldnames or [])]
        if missing:
            raise UserError(f"{path}: lacks the columns {', '.join(missing)}; prepare the dataset again.")
        rows = [_parse(path, number, texts) for number, texts in enumerate(reader, 2)]
    if len({row.id for row in rows}) < len(rows):
        raise UserError(f"{path}: an id stands twice; each case needs an id of its own.")
    return rows


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
        raise UserError(f"{tsv}: the files of {row.id} are not {_join(row.shape)} voxels; prepare the dataset again.")
    return Case(row.id, image, label, affine)


def _checked(path: Path, digest: str) -> Path:
    if not path.is_file():
        raise UserError(f"{path}: no such file, though {FILE_NAME} names it; prepare the dataset again.")
    if sha256(path) != digest:
        raise UserError(f"{path}: has changed since {FILE_NAME} was written; prepare the dataset again.")
    return path


def _parse(path: Path, number: int, texts: dict[str, str]) -> CaseRow:
    try:
        if None in texts.values():
            raise ValueError("too few values")
        if not ID_PATTERN.fullmatch(texts["id"]):
            raise ValueError(f"id {texts['id']!r} is not letters, digits, dots, dashes and underscores")
        low_high = tuple(float(text) for text in texts["intensity_range"].split())
        volumes = [pair.split("=") for pair in texts["label_volumes_ml"].split()]
        shape = tuple(int(text) for text in texts["shape"].split("x"))
        spacing = tuple(float(text) for text in texts["spacing_mm"].split("x"))
        if len(shape) != 3 or len(spacing) != 3 or len(low_high) not in (0, 2):
            raise ValueError("shape and spacing_mm have 3 numbers, intensity_range 2 or none")
        parsed = {
            "shape": shape,
            "spacing_mm": spacing,
            "intensity_range": low_high or None,
            "label_volumes_ml": {int(label): float(volume) for label, volume in volumes},
        }
        return CaseRow(**{field.name: parsed.get(field.name, texts[field.name]) for field in fields(CaseRow)})
    except ValueError as error:
        raise UserError(f"{path}, line {number}: cannot be read ({error}); prepare the dataset again.") from error


def _join(numbers: Iterable[float]) -> str:
    """As 48x48x48."""
    return "x".join(str(number) for number in numbers)
