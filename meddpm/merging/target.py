"""The folder that a merge writes: whole or not there, and never in the place of anything else."""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from meddpm.config import UserError
from meddpm.files import sha256, write_json
from meddpm.log import REFUSED
from meddpm.words import one_line

# What was joined, and the digest of every other file in the folder.
RECORD = "merged.json"
ANOTHER = "name another folder"


def shown(path: Path) -> str:
    """A path for the terminal, as it was given."""
    return one_line(str(path), 1000)


def check(out: Path, places: Sequence[Path], own: Sequence[Path] = ()) -> None:
    """Raise UserError where `out` cannot be written: it holds one of `places`, lies in one of `own`, or is not its own.

    What no merge wrote is not replaced.
    """
    real = Path(os.path.realpath(out))
    for place in places:
        if Path(os.path.realpath(place)).is_relative_to(real):
            raise UserError(f"--out: {shown(out)} is, or holds, the folder {shown(place)} that is joined; {ANOTHER}")
    for place in own:
        if real.is_relative_to(os.path.realpath(place)):
            raise UserError(f"--out: {shown(out)} lies in the folder {shown(place)} that is joined; {ANOTHER}")
    if not os.path.lexists(real):
        return
    if not real.is_dir():
        raise UserError(f"--out: {shown(out)} is a file; {ANOTHER}")
    if not any(real.iterdir()):
        return
    try:
        written = json.loads((real / RECORD).read_text(encoding="utf-8"))["files"]
        known = dict(written)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise UserError(f"--out: {shown(out)} is not empty, and no merge wrote it; {ANOTHER}") from None
    for path in _files(real):
        name = path.relative_to(real).as_posix()
        if name != RECORD and (name not in known or path.is_symlink() or not path.is_file()):
            raise UserError(f"--out: {shown(path)} is not of the merge that wrote {shown(out)}; move it, or {ANOTHER}")
        if name != RECORD and sha256(path) != known[name]:
            raise UserError(f"--out: {shown(path)} was changed since a merge wrote it; {ANOTHER}")


def _files(folder: Path) -> list[Path]:
    """All files and links below a folder."""
    found = []
    for base, folders, names in os.walk(folder):
        links = [name for name in folders if (Path(base) / name).is_symlink()]
        found += [Path(base) / name for name in [*names, *links]]
    return sorted(found)


@contextmanager
def written(out: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `out`, which takes its place where the block succeeds."""
    real = Path(os.path.realpath(out))
    temporary, before = (real.with_name(f".{os.getpid()}.{name}{real.name}") for name in ("", "before."))
    # A process of the same number that was killed may have left one.
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        try:
            temporary.mkdir(parents=True)
        except OSError as error:
            # /proc and the like say that what is to be made is not there.
            if error.errno in REFUSED:
                error.filename = str(out)  # not the temporary name
                raise
            raise UserError(f"--out: {shown(out)}: no folder can be made there; {ANOTHER}") from None
        yield temporary
        if real.exists():
            shutil.rmtree(before, ignore_errors=True)
            os.replace(real, before)
        try:
            os.replace(temporary, real)
        except OSError:
            if before.exists():
                os.replace(before, real)
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        if real.exists():
            shutil.rmtree(before, ignore_errors=True)


def record(folder: Path, what: dict[str, Any]) -> None:
    """Write merged.json: `what` was joined, and what is in `folder`."""
    files = {path.relative_to(folder).as_posix(): sha256(path) for path in _files(folder)}
    write_json(folder / RECORD, {**what, "files": files})
