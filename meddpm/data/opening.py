"""The files that a volume lies in, and what stands in the way of opening them: one line for each fault."""

import gzip
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from meddpm.config import UserError
from meddpm.data.layouts.names import shown

_PAIR = {".hdr": ".img", ".img": ".hdr"}


def companions(path: Path | str) -> list[Path]:
    """The files that `path` stands for and that exist: itself, or header and image of a pair, in this order."""
    path = Path(path)
    names = _pair(path) or [[path]]
    found = [next((name for name in candidates if os.path.exists(name)), None) for candidates in names]
    return [name for name in found if name is not None]


def files(path: Path) -> tuple[Path, Path]:
    """Header and image of the volume at `path`, the same for a single file; both are there and can be opened."""
    _require_file(path)
    names = _pair(path)
    if names is None:
        return path, path
    found = companions(path)
    if len(found) < 2:
        missing = next(each for each in names if each != [path])[0]
        what = "image" if path == names[0][0] else "header"
        # A link that points nowhere is not there for `companions`; it has its own words.
        if missing.is_symlink():
            _require_file(missing)
        raise UserError(f"{path}: is one file of a pair without its {what}; put {missing.name} beside it.")
    for each in found:
        _require_file(each)
    return found[0], found[1]


@contextmanager
def faults(path: Path) -> Iterator[None]:
    """What the system and zlib say about a file that cannot be read, as one line."""
    try:
        yield
    except PermissionError as error:
        raise UserError(f"{path}: no permission to read it; change its mode or that of its folder.") from error
    except EOFError as error:
        raise UserError(f"{path}: its compressed data end too early; copy it again or replace the file.") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        reason = str(error).rstrip(".")
        raise UserError(f"{path}: its compressed data are damaged ({reason}); replace the file.") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error}); check the path and its disk.") from error
    except MemoryError as error:
        raise UserError(f"{path}: does not fit into memory; make room, or take a smaller volume.") from error


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, unpacked where its name ends in .gz."""
    with open(path, "rb") as plain:
        if path.suffix.lower() != ".gz":
            yield plain
            return
        with gzip.GzipFile(fileobj=plain) as stream:
            yield stream


def _pair(path: Path) -> list[list[Path]] | None:
    """Where `path` is of a pair: the names that the header may have, and those of the image, the likeliest first."""
    compressed = path.suffix if path.suffix.lower() == ".gz" else ""
    inner = path.name.removesuffix(compressed)
    stem, extension = os.path.splitext(inner)
    if extension.lower() not in _PAIR:
        return None
    other = _PAIR[extension.lower()]
    other = stem + (other.upper() if extension.isupper() else other)
    names = [[path], [path.with_name(other + ending) for ending in (compressed, "" if compressed else ".gz")]]
    return names if extension.lower() == ".hdr" else names[::-1]


def _require_file(path: Path) -> None:
    with faults(path):
        try:
            status = path.stat()
        except ValueError as error:  # A name that no system takes.
            raise UserError(f"{path}: cannot be read ({error}); check the path.") from error
        except FileNotFoundError:
            if path.is_symlink():
                target = os.readlink(path)
                raise UserError(
                    f"{path}: is a link to {shown(target)}, which is not there; fetch that file or mend the link."
                ) from None
            raise UserError(f"{path}: no such file; check the path.") from None
        if stat.S_ISDIR(status.st_mode):
            raise UserError(f"{path}: is a folder, not a volume; name the file in it.")
        # A pipe would wait for ever.
        if not stat.S_ISREG(status.st_mode):
            raise UserError(f"{path}: is a pipe, a socket or a device, not a file; name a file.")
        if status.st_size == 0:
            raise UserError(f"{path}: is empty (0 bytes); copy it again or replace the file.")
        with open(path, "rb"):
            pass
