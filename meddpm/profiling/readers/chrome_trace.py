"""Streams the events of a Chrome trace file, .json or .json.gz, so that memory does not grow with the file.

Format: Trace Event Format, an object with the list `traceEvents` at any place among its keys, or that list alone.
"""

import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

import ijson

from meddpm.config import UserError
from meddpm.words import one_line

HEAD = 1 << 16
CHUNK = 1 << 18
# Characters that a string may have where the text is mended; more of them is no trace, but a lost quotation mark.
LONGEST_STRING = 1 << 24
SPACE = b" \t\r\n"
BOM = b"\xef\xbb\xbf"

_json = ijson.get_backend("yajl2_c")

# What strict JSON forbids and writers of traces have written. Strings come first, so that nothing is mended in them
# but what is forbidden there; `tail` is what the next chunk may go on with.
_TOKEN = re.compile(
    r"""
      "(?:[^"\\]++|\\.)*+"
    | (?P<tail> "(?:[^"\\]++|\\.)*+\\?\Z | [-+.\#\w()]++\Z | ,\s*+\Z )
    | (?P<no_number> -?(?:nan|inf|1\.\#)[\w()]*+ )
    | (?P<long> (?<![\w.])\d{19,}+(?![.e]) )
    | (?P<comma> ,(?=\s*+[\]}]) )
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL | re.ASCII,
)
_IN_STRING = re.compile(r"""[\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})?""")


class Sink(Protocol):
    """Takes what a trace file holds: its elements of `deviceProperties`, and each of the events by `add`.

    `unclosed` is set where the list of events stands alone and lacks its closing bracket, which the format allows.
    """

    devices: list[Any]
    unclosed: bool

    def add(self, event: Any) -> None:
        """One element of the list of events, whatever it is."""


Taker = TypeVar("Taker", bound=Sink)


class _TruncatedError(Exception):
    """The file ends before its JSON does."""


def read(path: Path, sink: Callable[[], Taker]) -> Taker:
    """A sink that has taken all of the file.

    Text that is no strict JSON (control characters, invalid UTF-8 or escapes in strings, NaN and Infinity, numbers
    beyond 64 bits, a comma too many) is read again from the beginning, mended, into another sink: numbers that are
    none become null.

    Raises UserError where the file cannot be read, is empty, truncated or no JSON, or has no events.
    """
    try:
        is_list = _is_list(path)
        try:
            return _parsed(path, is_list, sink(), mend=False)
        except _TruncatedError:
            if not is_list:  # a list may lack its closing bracket, which is mended
                raise
        except ijson.JSONError:
            pass
        return _parsed(path, is_list, sink(), mend=True)
    except (_TruncatedError, EOFError):
        raise UserError(f"{path}: the trace is truncated; profile again") from None
    except (OSError, zlib.error) as error:
        raise UserError(f"{path}: the trace cannot be read: {error}") from None
    except ijson.JSONError as error:
        reason = one_line(str(error).partition("\n")[0])
        raise UserError(f"{path}: the trace is no valid JSON ({reason}); profile again") from None


def _open(path: Path) -> BinaryIO:
    with open(path, "rb") as stream:
        compressed = stream.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if compressed else open(path, "rb")


def _is_list(path: Path) -> bool:
    """Whether the file is a list, by its first character."""
    with _open(path) as stream:
        start = stream.read(HEAD).removeprefix(BOM).lstrip(SPACE)
    if not start:
        raise UserError(f"{path}: the trace is empty; profile again")
    if not start.startswith((b"{", b"[")):
        raise UserError(f"{path}: the file is no JSON; name a Chrome trace of torch.profiler (.json or .json.gz)")
    return start.startswith(b"[")


def _parsed(path: Path, is_list: bool, sink: Taker, mend: bool) -> Taker:
    events = ijson.sendable_list()
    parser = _json.items_coro(events, "item" if is_list else "traceEvents.item", use_float=True)
    devices = ijson.sendable_list()
    # Writers put the devices at any place too; this parser goes as soon as it has them.
    device_parser = _json.items_coro(devices, "deviceProperties.item", use_float=True)
    found = False
    with _open(path) as stream:
        for chunk in _mended(stream, is_list, sink) if mend else iter(lambda: stream.read(CHUNK), b""):
            try:
                parser.send(chunk)
            except ijson.JSONError:
                if sink.unclosed:  # the end is within an event
                    raise _TruncatedError from None
                raise
            found = found or bool(events)
            for event in events:
                sink.add(event)
            events.clear()
            if device_parser is None:
                continue
            device_parser.send(chunk)
            if sink.devices and not devices:
                device_parser = None
            sink.devices += devices
            devices.clear()
        try:
            parser.close()
        except ijson.JSONError:
            raise _TruncatedError from None
    if not found:
        raise UserError(f"{path}: the file has no traceEvents; name a Chrome trace of torch.profiler")
    return sink


def _mended(stream: BinaryIO, is_list: bool, sink: Sink) -> Iterator[bytes]:
    """The text of `stream` as JSON that a strict parser takes; what is damaged otherwise stays so."""
    tail, last = "", ""

    def mended(match: re.Match[str]) -> str:
        nonlocal tail
        if match["tail"]:
            tail = match[0]
            return ""
        if match["no_number"]:
            return "null"
        if match["long"]:
            return match[0] + ".0"
        if match["comma"]:
            return ""
        plain = "\\" not in match[0] and match[0].isprintable()
        return match[0] if plain else _IN_STRING.sub(_escaped, match[0])

    with io.TextIOWrapper(stream, "utf-8-sig", errors="replace", newline="") as text:
        while chunk := text.read(CHUNK):
            chunk, tail = tail + chunk, ""
            piece = _TOKEN.sub(mended, chunk)
            if len(tail) > LONGEST_STRING:
                raise ijson.JSONError("a string that does not end")
            if piece:
                last = piece.rstrip()[-1:] or last
                yield piece.encode()
    if is_list and last == "}" and not tail.strip(", \t\r\n"):
        # Where the list is closed in truth, or cut within an event, the parser refuses this bracket.
        sink.unclosed = True
        tail = "]"
    if tail:
        yield tail.encode()


def _escaped(match: re.Match[str]) -> str:
    """A forbidden character or backslash of a string as JSON wants it; what JSON allows as it is."""
    if len(match[0]) > 1:
        return match[0]
    return f"\\u{ord(match[0]):04x}" if match[0] != "\\" else "\\\\"
