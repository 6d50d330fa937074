"""Volumes in and out: files of many layouts and the default dataset, label maps to conditions, the case table."""

from pathlib import Path
from typing import TYPE_CHECKING

from meddpm.config import DatasetConfig, FilesConfig

if TYPE_CHECKING:
    from meddpm.data.manifest import CaseRow
    from meddpm.data.volumes import Case

# The labels that the maps of a source may have before any remap.
SOURCES = {"icbm152": (1, 2, 3, 4)}
# Which of them are tissues, from the darkest in the images of the source to the brightest.
TISSUES = {"icbm152": {"csf": 1, "grey": 2, "white": 3}}


def tissues(settings: DatasetConfig) -> list[tuple[str, int]]:
    """Name and label of each tissue in the dataset's maps, the darkest first; none where the maps do not tell them."""
    if isinstance(settings, FilesConfig):
        return []
    found = [(name, settings.remap.get(label, label)) for name, label in TISSUES[settings.source].items()]
    remapped = [settings.remap.get(0, 0), *labels(settings)]
    return found if all(remapped.count(label) == 1 for _, label in found) else []


def labels(settings: DatasetConfig) -> list[int] | None:
    """The labels that the dataset's maps may hold beside 0, after its remap; None where only its files tell."""
    if isinstance(settings, FilesConfig):
        return None
    there = SOURCES[settings.source] if settings.lesion_every else SOURCES[settings.source][:-1]
    return [settings.remap.get(label, label) for label in there]


def load_case(tsv: Path | str, row: "CaseRow") -> "Case":
    """The case of one row of the table `tsv`, as `meddpm.data.manifest.load_case`."""
    from meddpm.data import manifest

    return manifest.load_case(tsv, row)
