"""Make the cases of a dataset and the table of them, or judge them without writing anything."""

import functools
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from meddpm.config import DatasetConfig, FilesConfig, UserError
from meddpm.data import from_files, icbm152, manifest, volumes
from meddpm.data.manifest import CaseRow
from meddpm.data.tasks import Task, Tasks
from meddpm.files import sha256, write_json
from meddpm.log import logger, progress
from meddpm.provenance import text_digest

Size = tuple[int, int, int]
# Refusals that a message lists; all of them are in the log.
LISTED = 20


def prepare(
    settings: DatasetConfig,
    size: Size,
    target_dir: Path | str,
    labels: Sequence[int] = (),
    workers: int = 1,
    code: str = "",
) -> Path:
    """Make the dataset at `size` (H, W, D) in `target_dir`; return the path of its table, cases.tsv.

    `labels` are those that its models are shown. Each case leaves <id>_image.nii.gz (float32 in [-1, 1]), unless it has
    a label map alone, <id>_label.nii.gz (uint8), and <id>_case.json with its row and the digest of all that decided it,
    `code` too: a case that is there already is not made again. The table comes last, and one of an earlier run goes
    first: where there is a table, its cases are whole. `workers` cases are made at once, which changes no value.

    A case that cannot be used is a row with its reason. Raises UserError where there is no dataset, a setting is out of
    range, a case cannot be used and `settings.on_bad_case` is stop, or none can be used.
    """
    folder = Path(target_dir)
    table = folder / manifest.FILE_NAME
    table.unlink(missing_ok=True)
    found = _tasks(settings, size, labels)
    for warning in found.warnings:
        logger.warning("%s", warning)
    rows = _each(functools.partial(_prepared, folder=folder, code=code), found, workers)
    _require_usable(rows, found.root, settings)
    manifest.write(table, rows)
    return table


def check(
    settings: FilesConfig, size: Size | None, labels: Sequence[int] = (), workers: int = 1
) -> tuple[Tasks, list[CaseRow]]:
    """What `prepare` would find, nothing written: the cases and their rows, without what only written files have.

    `size` None leaves each case on its own grid. Raises UserError where there is no dataset.
    """
    found = _tasks(settings, size, labels)
    return found, _each(_judged, found, workers)


def _tasks(settings: DatasetConfig, size: Size | None, labels: Sequence[int]) -> Tasks:
    if isinstance(settings, FilesConfig):
        return from_files.tasks(settings, size, labels)
    return icbm152.tasks(settings, size)


def _each(row_of: Callable[[Task], CaseRow], found: Tasks, workers: int) -> list[CaseRow]:
    """The row of each case, `workers` at once. A case that cannot be used is a row with its reason."""

    def row(task: Task) -> CaseRow:
        try:
            made = row_of(task)
        except UserError as error:
            reason = " ".join(str(error).splitlines())  # a line for each fault of the names of its files
            logger.warning("%s refused: %s", task.id, reason)
            return CaseRow(task.id, status=manifest.REFUSED, reason=reason)
        for warning in made.warnings:
            logger.warning("%s: %s", task.id, warning)
        return made

    with ThreadPoolExecutor(max_workers=max(1, workers)) as pool:
        return list(progress(pool.map(row, found.cases), len(found.cases), "cases"))


def _prepared(task: Task, folder: Path, code: str) -> CaseRow:
    """The row of one case whose files are in `folder`, made now or by an earlier run."""
    record = folder / f"{task.id}_case.json"
    digest = text_digest(code + task.decided_by())
    kept = _kept(record, digest, folder)
    if kept:
        return kept
    made = task.make()
    case = made.case
    image = None if case.image is None else folder / f"{case.id}_image.nii.gz"
    label = folder / f"{case.id}_label.nii.gz"
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
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _judged(task: Task) -> CaseRow:
    """The row of one case, whose files are not written."""
    made = task.make()
    return CaseRow(made.case.id, **made.columns, **manifest.measured(made.case))


def _require_usable(rows: list[CaseRow], root: str, settings: DatasetConfig) -> None:
    refused = [row for row in rows if row.status != manifest.OK]
    skips = isinstance(settings, FilesConfig) and settings.on_bad_case == "skip"
    if not refused or (skips and len(refused) < len(rows)):
        return
    some = "; mend them, or leave them out by on_bad_case: skip" if len(refused) < len(rows) else ""
    lines = [f"{root}: {len(refused)} of {len(rows)} cases cannot be used{some}", *(row.reason for row in refused)]
    more = [f"... and {len(refused) - LISTED} more, in the log"] if len(refused) > LISTED else []
    raise UserError("\n".join(lines[: LISTED + 1] + more))
