"""The kernel tables of files of profilers as one CSV: the columns of the table kernels that belong to no study."""

import csv
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from meddpm import tables
from meddpm.config import UserError
from meddpm.files import write_csv
from meddpm.log import refusal
from meddpm.profiling import trace
from meddpm.profiling.trace import Trace
from meddpm.words import one_line, printable

OF_A_STUDY = {"model", "gpu", "variant", "phase", "profiler", "environment", "status", "reason"}


def columns() -> list[str]:
    """The columns: the file and its profiler first."""
    return ["file", "profiler", *(name for name in tables.columns("kernels") if name not in OF_A_STUDY)]


def check(path: Path) -> None:
    """Raise UserError where a table cannot be written to `path`, or would replace what is no such table."""
    with _on_disk(path):
        folder_there, there = path.parent.is_dir(), path.is_symlink() or path.exists()
    if not folder_there:
        raise UserError(f"--out: {printable(str(path))} is in no folder that is there; make it, or name another file")
    if there:
        header: list[str] = []
        try:
            if path.is_file():
                with open(path, newline="", encoding="utf-8") as stream:
                    header = next(csv.reader(stream), [])
        except (OSError, ValueError, csv.Error):
            pass
        if header != columns():
            raise UserError(f"--out: {printable(str(path))} is there and no table of this command; name another file")


def write(path: Path, found: Iterable[tuple[Path, Trace]]) -> None:
    """Write the kernels of all files, those of each file the longest first, atomically.

    Raises UserError where `check` does or the system refuses.
    """
    check(path)
    rows = (
        {"file": printable(str(file)), "profiler": seen.profiler, **row, "kernel": printable(row["kernel"])}
        for file, seen in found
        for row in trace.rows(seen)
    )
    with _on_disk(path):
        write_csv(path, columns(), rows)


@contextmanager
def _on_disk(path: Path) -> Iterator[None]:
    """What the system says of `path` in the block is a line, whatever it is: nothing but that file is touched there."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"--out: {printable(str(path))}: no file can be made there; name another file") from None
    except OSError as error:
        # Not the name of a temporary file beside it.
        error.filename = None
        raise UserError(f"--out: {one_line(refusal(error, path), 1000)}") from None
