"""Datasets of files: from the names that a layout finds to cases, each judged and prepared by itself."""

import functools
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

from meddpm.config import DatasetConfig, FilesConfig, PreparationConfig, UserError, to_mapping
from meddpm.data import layouts, opening, preparations
from meddpm.data.layouts import CaseFiles
from meddpm.data.layouts.names import below, shown
from meddpm.data.tasks import Goal, Made, Task, Tasks
from meddpm.files import sha256
from meddpm.provenance import text_digest
from meddpm.words import counted


def find(settings: FilesConfig) -> layouts.Found:
    """The files of each case that the dataset takes. Raises UserError where there is no dataset."""
    found = layouts.find(place(settings), settings.layout, settings.images)
    return layouts.Found(found.layout, found.root, found.cases[: settings.cases], found.warnings)


def place(settings: FilesConfig) -> Path:
    """Where the dataset is. Raises UserError where its path begins with the home of nobody."""
    try:
        return Path(settings.path).expanduser()
    except RuntimeError:
        raise UserError(f"{settings.path}: there is no such user; write the path without ~") from None


def paths(cases: list[CaseFiles]) -> list[Path]:
    """The files of `cases` that are there, each once; a volume in two files (.hdr and .img) is both."""
    named = [path for case in cases for path in case.paths.values()]
    each = [path for one in named for path in opening.companions(one) if os.path.isfile(path)]
    return list(dict.fromkeys(each))


def fingerprint(settings: DatasetConfig) -> str:
    """Digest of the files of a dataset, by name, size and time: another one where one is new, gone or changed.

    Empty where there are none: to say why is for who prepares the dataset.
    """
    if not isinstance(settings, FilesConfig):
        return ""
    try:
        found = find(settings)
    except UserError:
        return ""
    what = [(case.id, case.faults, [(name, _shown(path)) for name, path in case.paths.items()]) for case in found.cases]
    states = [(_shown(path), _state(path)) for path in paths(found.cases)]
    return text_digest(json.dumps([what, states, found.warnings]))


def _shown(path: Path) -> str:
    return os.fsencode(path).hex()  # a name on disk need not be text


def _state(path: Path) -> tuple[int, int, bool]:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns, os.access(path, os.R_OK)


def tasks(settings: FilesConfig, goal: Goal) -> Tasks:
    """The cases, to be prepared for `goal`. Raises UserError where there is no dataset, or not one for its models."""
    found = find(settings)
    require_images(settings, found, goal)
    preset, how = preparations.preset_of(settings, found.layout), preparations.preparation(settings, found.layout)
    note = f"files laid out as {found.layout}, prepared as {preset}"
    goal = replace(goal, whole_head=goal.whole_head or preset in preparations.WHOLE_HEAD)
    of_files = [_FileCase(files, found.root, how, goal, note) for files in found.cases]
    cases = [Task(each.files.id, each.decided_by, each.make, each.files.names(each.root)) for each in of_files]
    return Tasks(cases, found.layout, settings.path, found.warnings)


def require_images(settings: FilesConfig, found: layouts.Found, goal: Goal) -> None:
    """Raise UserError where the cases have another number of images than the models of `goal` draw."""
    names = max((list(case.images) for case in found.cases if not case.faults), key=len, default=[])
    if not names or goal.images in (None, len(names)):
        return
    if len(names) > goal.images:
        mend = f"name those to take under `images:` of the dataset, as [{', '.join(names[: goal.images])}]"
    else:
        mend = "take another model, or a dataset that has as many"
    raise UserError(
        f"{settings.path}: cases have {counted(len(names), 'image')} ({', '.join(names)}), and the model draws "
        f"{goal.images}; {mend}"
    )


@dataclass(frozen=True)
class _FileCase:
    files: CaseFiles
    root: Path
    how: PreparationConfig
    goal: Goal
    note: str

    def decided_by(self) -> str:
        case = [self.files.id, self.files.faults, self.files.names(self.root), self.sha256]
        return json.dumps([case, to_mapping(self.how), to_mapping(self.goal), self.note])

    def make(self) -> Made:
        from meddpm.data import cases, examine

        found = examine.examine(self.files, self.root, self.how, self.goal.labels)
        built = cases.build(found, self.how, self.goal)
        columns = {
            **found.original,
            "files_sha256": self.sha256,
            "changes": tuple(map(shown, (*found.changes, *built.changes))),
            "warnings": tuple(map(shown, (*found.warnings, *built.warnings))),
            "notes": self.note,
        }
        return Made(built.case, columns)

    @functools.cached_property
    def sha256(self) -> dict[str, str]:
        """SHA-256 of each file by its path below the root; empty where it may not be read, which `make` refuses."""
        digests = {}
        for path in paths([self.files]):
            with opening.faults(path):
                digests[below(path, self.root)] = sha256(path) if os.access(path, os.R_OK) else ""
        return digests
