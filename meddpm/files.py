"""Files that are whole or not there: written under a temporary name beside the target, then renamed."""

import csv
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replacing(target: Path | str) -> Iterator[Path]:
    """Yield a temporary path beside `target`, with the same suffixes; rename it to `target` if the block succeeds.

    The suffixes are kept because writers (nibabel, matplotlib) choose the format by them. A killed process leaves
    a file whose name begins with a dot, which nothing reads.
    """
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{os.getpid()}.{target.name}")
    try:
        yield temporary
        # Some writers (safetensors) make files that only their owner may read.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        # Some systems say only here that the disk is full, and a crash of the machine must not leave an empty file.
        with open(temporary, "rb") as stream:
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except OSError as error:
        if error.errno is not None and error.filename is None:  # a full disk says only that it is full
            error.filename = str(target)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def remove_abandoned(folder: Path) -> None:
    """Remove what `replacing` left in `folder` when its process was killed; files of living processes stay."""
    for path in folder.glob(".*.*"):
        process = path.name.split(".")[1]
        if process.isdigit() and path.is_file() and not _lives(int(process)):
            path.unlink(missing_ok=True)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OverflowError, PermissionError):  # no number of a process, or one of another user
        pass
    return True


def write_text(target: Path | str, text: str) -> None:
    """Write `text` as UTF-8, atomically."""
    with replacing(target) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(target: Path | str, value: Any) -> None:
    """Write `value` as indented JSON, atomically."""
    write_text(target, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_csv(target: Path | str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write `rows` under `columns` as CSV, atomically; a value that a row lacks is empty, one too many raises."""
    with replacing(target) as temporary, open(temporary, "w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def sha256(path: Path | str) -> str:
    """SHA-256 of a file, as hexadecimal digits."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
