"""Logging for a stage: one file a job, each line with its time, progress among the lines."""

import errno
import logging
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn, TypeVar

from meddpm.config import UserError

Item = TypeVar("Item")

# What a full disk, a read-only or failing one, missing permissions, a folder in a file's place and a name that is too
# long say: the user's to mend.
REFUSED = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    *(errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP),
    *(errno.EIO, errno.ESTALE, errno.ETIMEDOUT),
}

TERMINATED = "stopped by SIGTERM (time limit, preemption or cancel)"
INTERRUPTED = "stopped by SIGINT (Ctrl-C)"

# The first line of a job's log, as `_started` writes it, and the last one. `meddpm.runs.job_log` reads them again.
STARTED = re.compile(r"started on (\S+), process (\d+)(?:, SLURM job (\d+))?")
DONE, FAILED = "done", "ended with an error"

logger = logging.getLogger("meddpm")


def setup(path: Path | str | None = None) -> None:
    """Send the library's log, and warnings, to `path` (or to standard error)."""
    if path:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        handler: logging.Handler = logging.FileHandler(path, mode="w", encoding="utf-8")
    else:
        handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logger.setLevel(logging.INFO)
    logging.captureWarnings(True)
    logging.raiseExceptions = False  # a full disk must not print a traceback for each line of the log


@contextmanager
def job(path: Path | str) -> Iterator[None]:
    """The block of a workflow script: its log goes to `path`, a fault that the user can mend ends it in one line.

    The first line says where the job runs. The last one is "done", or "ended with an error" after the reason: only a
    job that was killed, or whose disk is full, leaves neither. Snakemake removes the log of the try before.
    """
    setup(path)
    logger.info("%s", _started())
    with _terminable():
        try:
            with _told():
                yield
        except BaseException:
            logger.error(FAILED)
            raise
    logger.info(DONE)


def refusal(error: OSError, place: Path | str = "results") -> str:
    """What a user reads of an error of `REFUSED`; `place` is named where the error names no file."""
    mend = "give it a shorter name" if error.errno == errno.ENAMETOOLONG else "make room or mend the permissions"
    return f"{error.filename or place}: {error.strerror or error}; {mend}"


def _started() -> str:
    """The first line of a log: where this process runs."""
    number = os.environ.get("SLURM_JOB_ID", "")
    cluster = f", SLURM job {number}" if number.isascii() and number.isdigit() else ""
    return f"started on {socket.gethostname()}, process {os.getpid()}{cluster}"


@contextmanager
def _told() -> Iterator[None]:
    """Log why the block ended before its end, and end the process with that line where the user can mend it."""
    try:
        yield
    except UserError as error:
        logger.error("%s", error)
        sys.exit(str(error))
    except OSError as error:
        if error.errno not in REFUSED:
            logger.exception("the system refused")
            raise
        text = refusal(error)
        logger.error("%s", text)
        sys.exit(text)
    except Exception:
        logger.exception("a fault of the program")
        raise
    except KeyboardInterrupt:
        logger.error(INTERRUPTED)
        sys.exit(INTERRUPTED)
    except SystemExit as end:
        if isinstance(end.code, str):
            logger.error("%s", end.code)
        raise


@contextmanager
def _terminable() -> Iterator[None]:
    """Within the block SIGTERM ends the process as an error does: files half written are removed, the log has its end.

    Otherwise the system ends it without a word. A handler that is there already stays, and SIGTERM ignored is ignored.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(TERMINATED)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def show_progress() -> Iterator[None]:
    """Send the progress in the block to standard error, and nothing else: for a command that prints its own result."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(lambda record: record.levelno == logging.INFO)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def progress(items: Iterable[Item], total: int, what: str, every_s: float = 5.0) -> Iterator[Item]:
    """Yield `items`, logging a bar, the count and the time left every `every_s` seconds and at the end."""
    start = last = time.monotonic()
    for done, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        if now - last >= every_s or done == total:
            last = now
            filled = round(20 * done / total)
            left = (now - start) / done * (total - done)
            logger.info("%s [%s] %d/%d, %.0f s left", what, "#" * filled + "." * (20 - filled), done, total, left)
