"""Datasets of files: from the names that a layout finds to cases, each judged and prepared by itself."""

import functools
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from meddpm.config import DatasetConfig, FilesConfig, PreparationConfig, UserError, to_mapping
from meddpm.data import layouts, preparations
from meddpm.data.layouts import CaseFiles
from meddpm.data.tasks import Made, Task, Tasks
from meddpm.files import sha256


def find(settings: FilesConfig) -> layouts.Found:
    """The files of each case that the dataset takes. Raises UserError where there is no dataset."""
    found = layouts.find(Path(settings.path).expanduser(), settings.layout, settings.images)
    return layouts.Found(found.layout, found.root, found.cases[: settings.cases], found.warnings)


def paths(cases: list[CaseFiles]) -> list[Path]:
    """The files of `cases` that are there, each once; a volume in two files (.hdr and .img) is both."""
    from meddpm.data import volumes

    named = [path for case in cases for path in (case.label, *case.images.values()) if path]
    each = [path for one in named for path in volumes.companions(one) if os.path.isfile(path)]
    return list(dict.fromkeys(each))


def source_files(settings: DatasetConfig) -> list[str]:
    """The files that a dataset is made from. Empty where none is found: to say why is for who prepares it."""
    if not isinstance(settings, FilesConfig):
        return []
    try:
        return [str(path) for path in paths(find(settings).cases)]
    except UserError:
        return []


def tasks(settings: FilesConfig, size: tuple[int, int, int] | None, labels: Sequence[int]) -> Tasks:
    """The cases, prepared at `size` (H, W, D), None: on their own grids; `labels` are those of the models.

    Raises UserError where there is no dataset.
    """
    found = find(settings)
    preset, how = preparations.preset_of(settings, found.layout), preparations.preparation(settings, found.layout)
    note = f"files laid out as {found.layout}, prepared as {preset}"
    of_files = [_FileCase(files, found.root, preset, how, size, tuple(labels), note) for files in found.cases]
    cases = [Task(each.files.id, each.decided_by, each.make) for each in of_files]
    return Tasks(cases, found.layout, str(found.root), found.warnings)


@dataclass(frozen=True)
class _FileCase:
    files: CaseFiles
    root: Path
    preset: str
    how: PreparationConfig
    size: tuple[int, int, int] | None
    labels: tuple[int, ...]
    note: str

    def decided_by(self) -> str:
        case = [self.files.id, self.files.faults, self.sha256]
        return json.dumps([case, self.preset, to_mapping(self.how), self.size, self.labels, self.note])

    def make(self) -> Made:
        from meddpm.data import cases, examine

        found = examine.examine(self.files, self.root, self.how, self.labels)
        built = cases.build(found, self.how, self.size, self.preset in preparations.WHOLE_HEAD)
        columns = {
            **found.original,
            "files_sha256": self.sha256,
            "changes": (*found.changes, *built.changes),
            "warnings": (*found.warnings, *built.warnings),
            "notes": self.note,
        }
        return Made(built.case, columns)

    @functools.cached_property
    def sha256(self) -> dict[str, str]:
        """SHA-256 of each file by its path below the root; empty where it may not be read, which `make` refuses."""
        return {
            Path(os.path.relpath(path, self.root)).as_posix(): sha256(path) if os.access(path, os.R_OK) else ""
            for path in paths([self.files])
        }
