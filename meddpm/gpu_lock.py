"""A lock for each GPU of a machine, so that no two jobs share one. Floor 0.

The lock is flock's on an open file: the kernel lets go of it when the process ends, however it ends. The file stays
and means nothing; the text in it is only for the message to those who wait.
"""

import errno
import fcntl
import hashlib
import os
import shlex
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from meddpm.config import UserError
from meddpm.log import logger
from meddpm.words import one_line

LONGEST_WORD = 200  # bytes of what a file says of its holder
_open_files: set[int] = set()  # of this process


def shared_folder() -> Path:
    """Where the locks of this machine are: /tmp even where TMPDIR names another, which may be one user's alone."""
    return (Path("/tmp") if Path("/tmp").is_dir() else Path(tempfile.gettempdir())) / "meddpm-gpus"


@contextmanager
def held(
    ids: Sequence[str],
    folder: Path | None = None,
    between: Callable[[], None] = lambda: None,
    poll_s: float = 0.5,
    report_s: float = 30.0,
) -> Iterator[int]:
    """Yield the index of one of `ids`; no other process holds that one within the block.

    Waits while all are taken, looks again every `poll_s` seconds after a call of `between`, which may raise to end the
    waiting, and logs every `report_s` seconds who holds them. `folder` is None or the one of the locks. A child does
    not inherit the lock. Raises UserError where the folder or a file in it cannot be used.
    """
    folder = folder or shared_folder()
    try:
        _make(folder)
        index, file = _wait([folder / _file_name(each) for each in ids], ids, between, poll_s, report_s)
    except OSError as error:
        raise _unusable(error, folder) from None
    try:
        yield index
    finally:
        _let_go(file)


def _wait(
    paths: Sequence[Path], ids: Sequence[str], between: Callable[[], None], poll_s: float, report_s: float
) -> tuple[int, int]:
    """The index of the first path whose lock is free, and its file, locked."""
    start = time.monotonic()
    reported: float | None = None
    while True:
        for index, path in enumerate(paths):
            file = _locked(path)
            if file is not None:
                _say(file, _self())
                return index, file
        now = time.monotonic()
        if reported is None or now - reported >= report_s:
            reported = now
            holders = "; ".join(f"{each}: {_holder(path)}" for each, path in zip(ids, paths, strict=True))
            logger.info("waiting for a GPU for %.0f s, all are taken (%s)", now - start, holders)
        between()
        time.sleep(poll_s)


def _locked(path: Path) -> int | None:
    """The file `path`, open and locked; None if another process holds its lock."""
    file = _open(path)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A file that was removed meanwhile, as old ones in /tmp are, is not the one that the next process locks.
        if _is_at(file, path):
            return file
    except BlockingIOError:
        pass
    except BaseException:
        _close(file)
        raise
    _close(file)
    return None


def _open(path: Path) -> int:
    """Open the file of a lock, made if it is not there; no link is followed, and no pipe waits for its other end."""
    flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        # Without O_CREAT: in a sticky folder the kernel may refuse it for another user's file (fs.protected_regular).
        file = os.open(path, os.O_RDWR | flags)
    except PermissionError:
        file = os.open(path, os.O_RDONLY | flags)  # enough for a lock
    except FileNotFoundError:
        try:
            with _no_umask():
                file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | flags, 0o666)
        except FileExistsError:  # another process made it meanwhile
            return _open(path)
    _open_files.add(file)
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:  # a second name: someone's file, not to be written over
        _close(file)
        raise OSError(errno.EEXIST, "something else than a lock is there", str(path))
    return file


def _close(file: int) -> None:
    _open_files.discard(file)
    os.close(file)


def _let_go(file: int) -> None:
    """Free the lock, unless this is a forked child: the lock is its parent's."""
    if file in _open_files:
        _say(file, "")
        fcntl.flock(file, fcntl.LOCK_UN)
        _close(file)


def _close_all() -> None:
    """In a forked child: it shares its parent's open files, and would keep the locks of a parent that was killed."""
    for file in list(_open_files):
        _close(file)


os.register_at_fork(after_in_child=_close_all)


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.lstat(path))
    except FileNotFoundError:
        return False


def _make(folder: Path) -> None:
    """Make the folder, where everyone may make files and none may remove another's."""
    with suppress(FileExistsError), _no_umask():
        folder.mkdir(mode=0o1777)
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


@contextmanager
def _no_umask() -> Iterator[None]:
    """What is made in the block has its mode from the start: another user may come at any moment."""
    umask = os.umask(0)
    try:
        yield
    finally:
        os.umask(umask)


def _file_name(gpu: str) -> str:
    return hashlib.sha256(gpu.encode()).hexdigest()[:32] + ".lock"


def _self() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}: {shlex.join(sys.orig_argv)}"


def _say(file: int, text: str) -> None:
    """Leave word of the holder; one that may only read the file, or has no room in it, leaves none."""
    with suppress(OSError):
        os.ftruncate(file, 0)
        os.pwrite(file, text.encode(errors="replace")[:LONGEST_WORD], 0)


def _holder(path: Path) -> str:
    """What the holder of a lock says of itself, one printable line: any user may have written it."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            text = os.pread(file, LONGEST_WORD, 0).decode(errors="replace")
        finally:
            os.close(file)
    except OSError:
        text = ""
    return one_line(text) or "a process that left no word"


def _unusable(error: OSError, folder: Path) -> UserError:
    return UserError(
        f"{error.filename or folder}: {error.strerror or error}: no GPU can be locked; right would be a folder "
        f"{folder} in which all users may make files (mode 1777), or none, which is made then"
    )
