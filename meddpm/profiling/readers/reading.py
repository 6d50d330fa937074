"""Reads a file of any of the profilers; which one it is of, its content tells and not its name."""

import re
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from meddpm.config import UserError
from meddpm.log import logger
from meddpm.profiling.readers import chrome_trace, kineto, ncu_files, nsys_file
from meddpm.profiling.trace import Trace
from meddpm.words import printable

RIGHT = "a trace of torch.profiler (.json), an export of nsys (.sqlite), or a report (.ncu-rep) or CSV of ncu"
HEAD = 1 << 16
# Seconds between two signs of life, and what takes no such time.
EVERY_S = 5.0

SQLITE = b"SQLite format 3\0"
UTF16 = (b"\xff\xfe", b"\xfe\xff")
# Formats in which files are packed, beside gzip, by how they begin.
PACKED = {
    b"PK\x03\x04": "ZIP",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"\x1f\x8b": "gzip (twice)",
}
# The first letters of a Chrome trace; a program under ncu may print a bracket too. Space is looked at once,
# however much of it there is.
JSON = re.compile(rb"\{\s*+[\"}]|\[\s*+[{\]]|[\[{]?+\s*+\Z")
WIDE_JSON = re.compile(rb"(?:\xff\xfe)?[{\[]\0|(?:\xfe\xff)?\0[{\[]")
OF_NCU = re.compile(rb"^[ \t\r\v\f]*+(?:==(?:PROF|WARNING|ERROR)==|\"ID\"[,;\t])", re.MULTILINE)
MAYBE_NCU = re.compile(rb"Kernel Name|^[ \t\r\v\f]*+(?:==|Section: )", re.MULTILINE)
TABLE_OF_OURS = re.compile(rb"(?:file|model,gpu,variant,phase),profiler,kernel,category,")


def read(path: Path | str) -> Trace:
    """What a file of torch.profiler, Nsight Compute or Nsight Systems holds; it may be gzipped.

    While a large file is read, the log says so every few seconds.

    Raises UserError where the file cannot be read, or is none of these.
    """
    try:
        return _read(Path(path))
    except UserError as error:
        # A name of a file may hold anything.
        raise UserError(printable(str(error))) from None


def _read(path: Path) -> Trace:
    with ncu_files.reading(path):
        if path.is_dir():
            raise UserError(f"{path}: a folder; name a file in it: {RIGHT}")
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UserError(f"{path}: no regular file, and it is read more than once; write it to a file first")
        with ncu_files.opened(path) as stream:
            head = _head(stream)
    if not head:
        raise UserError(f"{path}: the file is empty; right would be {RIGHT}")
    with _signs_of_life(path, status.st_size):
        return _reader(path, head)(path)


def _head(stream: IO[bytes]) -> bytes:
    """How the content begins, without space before it."""
    head = stream.read(HEAD).removeprefix(chrome_trace.BOM).lstrip()
    while len(head) < HEAD and (more := stream.read(HEAD)):
        head = (head + more).lstrip()
    return head


def _reader(path: Path, head: bytes) -> Callable[[Path], Trace]:
    """The function that reads a file which begins with `head`."""
    if head.startswith(SQLITE):
        return nsys_file.read
    if head.startswith(ncu_files.REPORT_START):
        return ncu_files.read
    if path.name.lower().removesuffix(".gz").endswith(nsys_file.REPORTS):
        return nsys_file.read  # which says how to export it
    for start, name in PACKED.items():
        if head.startswith(start):
            raise UserError(f"{path}: packed as {name}; unpack it, or pack it with gzip, which is read")
    if TABLE_OF_OURS.match(head):
        raise UserError(f"{path}: a kernel table already; name the file it was made from: {RIGHT}")
    if (JSON.match(head) and not OF_NCU.search(head)) or WIDE_JSON.match(head):
        return kineto.read  # which says what to do about UTF-16
    wide = head.startswith(UTF16)
    seen_whole = len(head) < HEAD
    if not wide and (b"\0" in head or (seen_whole and not MAYBE_NCU.search(head))):
        raise UserError(f"{path}: no file of a profiler that is known; right would be {RIGHT}")
    return ncu_files.read


@contextmanager
def _signs_of_life(path: Path, size: int) -> Iterator[None]:
    """Say every few seconds that the file is still being read: the readers do not know how far they are."""
    done = threading.Event()
    begin = time.monotonic()
    megabytes = f"{size / 1e6:,.0f}" if size >= 1e8 else f"{size / 1e6:.3g}"

    def say() -> None:
        while not done.wait(EVERY_S):
            logger.info("reading %s (%s MB), %.0f s", printable(str(path)), megabytes, time.monotonic() - begin)

    thread = threading.Thread(target=say, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
