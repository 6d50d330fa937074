"""Volumes in and out: NIfTI, label maps to conditions, Med-DDPM's preparation, the default dataset, the case table."""

import functools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from meddpm.config import ConfigError, DatasetConfig
from meddpm.log import progress

if TYPE_CHECKING:
    from meddpm.data.manifest import CaseRow
    from meddpm.data.volumes import Case

# The sources of cases, and the labels that their maps may have before any remap.
SOURCES = {"icbm152": (1, 2, 3, 4)}
# Which of them are tissues, from the darkest in the images of the source to the brightest.
TISSUES = {"icbm152": {"csf": 1, "grey": 2, "white": 3}}


def prepare(settings: DatasetConfig, size: tuple[int, int, int], target_dir: Path | str, workers: int = 1) -> Path:
    """Make the dataset at `size` (H, W, D) in `target_dir`; return the path of its table, cases.tsv.

    Each case leaves <id>_image.nii.gz (float32 in [-1, 1]) and <id>_label.nii.gz (uint8). The table comes last, and
    one of an earlier run goes first: where there is a table, its cases are whole. `workers` cases are made at once,
    which changes no value. Raises ConfigError where a setting is out of range.
    """
    from meddpm.data import icbm152, manifest

    if settings.source not in SOURCES:
        raise ConfigError(f"source: {settings.source!r} is not known; use one of {', '.join(SOURCES)}.")
    if settings.cases < 1:
        raise ConfigError(f"cases: {settings.cases} is too few; use 1 or more.")
    folder = Path(target_dir)
    table = folder / manifest.FILE_NAME
    table.unlink(missing_ok=True)
    icbm152.load_template()
    make = functools.partial(_make_case, settings, size, folder)
    with ThreadPoolExecutor(max_workers=max(1, workers)) as pool:
        rows = list(progress(pool.map(make, range(settings.cases)), settings.cases, "cases"))
    manifest.write(table, rows)
    return table


def tissues(settings: DatasetConfig) -> list[tuple[str, int]]:
    """Name and label of each tissue in the dataset's maps, the darkest first; none where the remap mixes labels up."""
    found = [(name, settings.remap.get(label, label)) for name, label in TISSUES[settings.source].items()]
    remapped = [settings.remap.get(0, 0), *labels(settings)]
    return found if all(remapped.count(label) == 1 for _, label in found) else []


def labels(settings: DatasetConfig) -> list[int]:
    """The labels that the dataset's maps may hold beside 0, after its remap: one for each of the source."""
    there = SOURCES[settings.source] if settings.lesion_every else SOURCES[settings.source][:-1]
    return [settings.remap.get(label, label) for label in there]


def load_case(tsv: Path | str, row: "CaseRow") -> "Case":
    """The case of one row of the table `tsv`, as `meddpm.data.manifest.load_case`."""
    from meddpm.data import manifest

    return manifest.load_case(tsv, row)


def _make_case(settings: DatasetConfig, size: tuple[int, int, int], folder: Path, index: int) -> "CaseRow":
    from meddpm.data import icbm152, manifest, volumes

    case = icbm152.build(settings, index, size)
    image, label = folder / f"{case.id}_image.nii.gz", folder / f"{case.id}_label.nii.gz"
    note, short = icbm152.notes(settings, index)
    volumes.write(image, case.image, case.affine, short)
    volumes.write(label, case.label, case.affine, short)
    return manifest.describe(case, image, label, folder, f"{note}. {icbm152.CITATION}")
