"""One run at a time in a folder: the lock of Snakemake is on files, and lets two runs with other targets in."""

import errno
import fcntl
import os
import socket
from pathlib import Path

from meddpm.config import UserError
from meddpm.runs.plan import RECORDS
from meddpm.words import one_line

FILE = RECORDS / "lock"
# What a file system without locks says.
NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS}


def take(folder: Path | str) -> int:
    """Take the lock of the run in `folder`; the file, open, which holds it until this process ends, however it does.

    A child that is given the file (`pass_fds`) holds it too. Raises UserError where another run has it.
    """
    path = Path(folder) / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        said = _holder(file)
        os.close(file)
        raise UserError(
            f"{path.parent}: another run works in this folder ({said}); wait for its end, or start in another folder "
            "with --directory"
        ) from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    os.ftruncate(file, 0)
    os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
    return file


def holder(folder: Path | str) -> str | None:
    """Who holds the lock of the run in `folder`, a printable line; None where nobody does, or it cannot be told."""
    try:
        file = os.open(Path(folder) / FILE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(file)
    except OSError:
        return None
    finally:
        os.close(file)
    return None


def _holder(file: int) -> str:
    return one_line(os.pread(file, 200, 0).decode(errors="replace"))
