"""Make the cases of a dataset and the table of them, or judge them without writing anything."""

import functools
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from meddpm.config import DatasetConfig, FilesConfig, UserError
from meddpm.data import from_files, icbm152, manifest, volumes
from meddpm.data.layouts.names import shown
from meddpm.data.manifest import CaseRow
from meddpm.data.tasks import Goal, Task, Tasks
from meddpm.files import remove_abandoned, sha256, write_json
from meddpm.log import logger, progress
from meddpm.provenance import text_digest

# Refusals that a message lists.
LISTED = 20
REFUSED_FILE = "refused.tsv"
# What follows the id in the names of the files of a case.
IMAGE, LABEL, RECORD = "_image.nii.gz", "_label.nii.gz", "_case.json"


def prepare(settings: DatasetConfig, goal: Goal, target_dir: Path | str, workers: int = 1, code: str = "") -> Path:
    """Make the dataset for `goal` in `target_dir`; return the path of its table, cases.tsv.

    Each case leaves <id>_image.nii.gz (float32 in [-1, 1]), unless it has a label map alone, <id>_label.nii.gz (uint8),
    and <id>_case.json with its row and the digest of all that decided it, `code` too: a case that is there already is
    not made again. The table comes last, and one of an earlier run goes first: where there is a table, its cases are
    whole. `workers` cases are made at once, which changes no value.

    A case that cannot be used is a row with its reason. Raises UserError where there is no dataset, a setting is out of
    range, a case cannot be used and `settings.on_bad_case` is stop, or none can be used; then the rows of all cases are
    in refused.tsv.
    """
    folder = Path(target_dir)
    table, refused = folder / manifest.FILE_NAME, folder / REFUSED_FILE
    for earlier in (table, refused):
        earlier.unlink(missing_ok=True)
    remove_abandoned(folder)
    found = _tasks(settings, goal)
    rows = _each(functools.partial(_prepared, folder=folder, code=code), found, workers)
    warnings = [*found.warnings, *_missing_labels(rows, goal)]
    for warning in warnings:
        logger.warning("%s", warning)
    fault = _unusable(rows, found.path, settings)
    if fault:
        manifest.write(refused, rows)
        raise UserError(f"{fault}\nAll cases: {refused}")
    _remove_others(folder, rows)
    write_json(folder / manifest.DATASET_FILE, {"layout": found.layout, "warnings": warnings})
    manifest.write(table, rows)
    return table


def check(settings: FilesConfig, goal: Goal, workers: int = 1) -> tuple[Tasks, list[CaseRow]]:
    """What `prepare` would find, nothing written: the cases and their rows, without what only written files have.

    Raises UserError where there is no dataset, or not one for the models of `goal`.
    """
    found = _tasks(settings, goal)
    rows = _each(_judged, found, workers)
    return replace(found, warnings=[*found.warnings, *_missing_labels(rows, goal)]), rows


def _tasks(settings: DatasetConfig, goal: Goal) -> Tasks:
    if isinstance(settings, FilesConfig):
        return from_files.tasks(settings, goal)
    return icbm152.tasks(settings, goal.size)


def _each(row_of: Callable[[Task], CaseRow], found: Tasks, workers: int) -> list[CaseRow]:
    """The row of each case, `workers` at once. A case that cannot be used is a row with its reason."""

    def row(task: Task) -> CaseRow:
        try:
            with _memory(task):
                made = row_of(task)
        except NoMemory:
            raise  # the case may be a good one
        except UserError as error:
            reason = shown(" ".join(str(error).splitlines()))  # a line for each fault of the names of its files
            logger.warning("%s refused: %s", task.id, reason)
            return CaseRow(task.id, status=manifest.REFUSED, reason=reason, files=task.files)
        for warning in made.warnings:
            logger.warning("%s: %s", task.id, warning)
        return made

    with ThreadPoolExecutor(max_workers=max(1, workers)) as pool:
        return list(progress(pool.map(row, found.cases), len(found.cases), "cases"))


class NoMemory(UserError):
    """A case does not fit into memory here and now, whatever `on_bad_case` says."""


@contextmanager
def _memory(task: Task) -> Iterator[None]:
    """Too little memory for a case as one line."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        # torch and SimpleITK have no errors of their own for this.
        words = str(error)
        if isinstance(error, RuntimeError) and "allocate memory" not in words and "bad_alloc" not in words:
            raise
        raise NoMemory(
            f"{task.id}: does not fit into memory; make room, prepare fewer at once (--cores), or take smaller volumes"
        ) from error


def _prepared(task: Task, folder: Path, code: str) -> CaseRow:
    """The row of one case whose files are in `folder`, made now or by an earlier run."""
    record = folder / f"{task.id}{RECORD}"
    digest = text_digest(code + task.decided_by())
    kept = _kept(record, digest, folder)
    if kept:
        return kept
    made = task.make()
    case = made.case
    image = None if case.image is None else folder / f"{case.id}{IMAGE}"
    label = folder / f"{case.id}{LABEL}"
    if image:
        volumes.write(image, case.image, case.affine, made.description)
    volumes.write(label, case.label, case.affine, made.description)
    row = manifest.describe(case, image, label, folder, **made.columns)
    write_json(record, {"decided_by": digest, "row": manifest.to_texts(row)})
    return row


def _kept(record: Path, digest: str, folder: Path) -> CaseRow | None:
    """The row of an earlier run, if the same decided it and its files are as it left them; else None."""
    try:
        values = json.loads(record.read_text(encoding="utf-8"))
        row = manifest.from_texts(values["row"])
        files = [(row.image, row.image_sha256), (row.label, row.label_sha256)]
        whole = all(sha256(folder / name) == written for name, written in files if name)
        return row if whole and values["decided_by"] == digest else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _judged(task: Task) -> CaseRow:
    """The row of one case, whose files are not written."""
    made = task.make()
    return CaseRow(made.case.id, **made.columns, **manifest.measured(made.case))


def _remove_others(folder: Path, rows: list[CaseRow]) -> None:
    """Remove what earlier runs left of cases that are in the dataset no more, or cannot be used now."""
    names = {row.id for row in rows if row.status == manifest.OK}
    for record in folder.glob(f"*{RECORD}"):
        try:
            row = manifest.from_texts(json.loads(record.read_text(encoding="utf-8"))["row"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # none that was written here
        if row.id not in names and record.name == f"{row.id}{RECORD}":
            for name in filter(None, (row.image, row.label)):
                (folder / Path(name).name).unlink(missing_ok=True)
            record.unlink()


def _missing_labels(rows: list[CaseRow], goal: Goal) -> list[str]:
    """A warning where a label that the models are shown is in no case."""
    usable = [row for row in rows if row.status == manifest.OK]
    there = {label for row in usable for label in row.label_volumes_ml}
    missing = [str(label) for label in goal.labels if label not in there]
    if not missing or not usable:
        return []
    which = f"label {missing[0]}" if len(missing) == 1 else f"labels {', '.join(missing)}"
    return [
        f"no case has the {which} that the model is shown: if some should, look at `remap`, `derived_label` and `fit`"
    ]


def _unusable(rows: list[CaseRow], path: str, settings: DatasetConfig) -> str | None:
    """Why the dataset cannot be used: a line, and one for each of the first cases that were refused."""
    refused = [row for row in rows if row.status != manifest.OK]
    skips = isinstance(settings, FilesConfig) and settings.on_bad_case == "skip"
    if not refused or (skips and len(refused) < len(rows)):
        return None
    some = "; mend them, or leave them out by on_bad_case: skip" if len(refused) < len(rows) else ""
    lines = [f"{path}: {len(refused)} of {len(rows)} cases cannot be used{some}", *(row.reason for row in refused)]
    more = [f"... and {len(refused) - LISTED} more"] if len(refused) > LISTED else []
    return "\n".join(lines[: LISTED + 1] + more)
