"""Reading a regular file: a pipe in its place would make the reader wait, and a device never ends."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

# Bytes of a file that are read at most: no record or table is as long, only a log may be.
MOST = 64_000_000


def opened(path: Path | str) -> BinaryIO:
    """The regular file at `path`, or the one that a link there leads to, open for reading. Raises OSError."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return open(path, "rb")


def content(path: Path | str) -> bytes:
    """What is in the regular file at `path`; of a longer one than `MOST` bytes the last ones. Raises OSError."""
    with opened(path) as stream:
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - MOST))
        return stream.read(MOST)


def text(path: Path | str) -> str:
    """The `content` as text, whatever it is. Raises OSError."""
    return content(path).decode(errors="replace")
