"""Streams the events of a Chrome trace file, .json or .json.gz, so that memory does not grow with the file.

Format: Trace Event Format, an object with the list `traceEvents` at any place among its keys, or that list alone.
"""

import gzip
import io
import math
import re
import shlex
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
# Levels of lists and objects in one another. ijson takes memory by the square of them; a trace has about five.
DEEPEST = 100
NO_MARKS = bytes(set(range(256)) - set(b'"[]{}'))
SPACE = b" \t\r\n"
BOM = b"\xef\xbb\xbf"
UTF16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be", b"{\0": "utf-16-le", b"[\0": "utf-16-le"}
UTF16 |= {b"\0{": "utf-16-be", b"\0[": "utf-16-be"}

_json = ijson.get_backend("yajl2_c")

# What strict JSON forbids and writers of traces have written. Strings come first, so that nothing is mended in them
# but what is forbidden there; `tail` is what the next chunk may go on with.
_STRICT = r"(?:-?(?:0|[1-9]\d{0,17}+)(?:\.\d++)?+(?:e[-+]?\d\d?)?+|(?-i:true|false|null))"
_TOKEN = re.compile(
    r"""
      "(?:[^"\\]++|\\.)*+"
    | (?P<tail> "(?:[^"\\]++|\\.)*+\\?\Z | [-+.\#\w()]++\Z | ,\s*+\Z )
    | (?P<word> (?<![-+.\#\w()]) (?!{STRICT}(?![-+.\#\w()])) [-+.\#\w()]++ )
    | (?P<comma> ,(?=\s*+[\]}]) )
    """.replace("{STRICT}", _STRICT),
    re.VERBOSE | re.IGNORECASE | re.DOTALL | re.ASCII,
)
_NO_NUMBER = re.compile(r"[-+]?(?:nan|inf|\d+\.\#)[\w()]*|none|undefined", re.IGNORECASE | re.ASCII)
_HEX = re.compile(r"[-+]?0x[0-9a-f]+", re.IGNORECASE)
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


class _DeepError(ijson.JSONError):
    """Lists and objects are nested deeper than any trace has them."""


class _Depth:
    """How deep JSON text is nested, told chunk by chunk before a parser gets it."""

    def __init__(self) -> None:
        import numpy

        self.numpy = numpy
        self.steps = numpy.zeros(256, numpy.int32)
        self.steps[list(b"[{")], self.steps[list(b"]}")] = 1, -1
        self.depth, self.in_string, self.tail = 0, False, b""

    def check(self, chunk: bytes) -> None:
        """Raises _DeepError where the text is nested too deep."""
        if self.tail or b"\\" in chunk:
            # What is escaped is no quotation mark. A backslash at the end is that of the next chunk.
            chunk = (self.tail + chunk).replace(b"\\\\", b"")
            self.tail = b"\\" if chunk.endswith(b"\\") else b""
            chunk = chunk.removesuffix(b"\\").replace(b'\\"', b"")
        marks = self.numpy.frombuffer(chunk.translate(None, NO_MARKS), self.numpy.uint8)
        if not len(marks):
            return
        inside = self.numpy.bitwise_xor.accumulate(marks == ord('"')) ^ self.in_string
        depth = self.depth + self.numpy.cumsum(self.numpy.where(inside, 0, self.steps[marks]))
        if depth.max() > DEEPEST:
            raise _DeepError
        self.depth, self.in_string = int(depth[-1]), bool(inside[-1])


def read(path: Path, sink: Callable[[], Taker]) -> Taker:
    """A sink that has taken all of the file.

    Text that is no strict JSON (control characters, invalid UTF-8 or escapes in strings, NaN and Infinity, numbers
    beyond 64 bits or as other languages write them, True, None, a comma too many) is read again from the beginning,
    mended, into another sink: numbers that are none become null.

    Raises UserError where the file cannot be read, is empty, truncated or no JSON, is nested deeper than any trace, or
    has no events.
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
        reason: object = error
        # The first bytes are those of gzip (see _open), so that this is about what follows a whole gzip file.
        if isinstance(error, gzip.BadGzipFile) and str(error).startswith("Not a gzipped file"):
            right = f"gzip -dc {shlex.quote(path.name)} | gzip > NEW.json.gz"
            reason = f"bytes that are no gzip follow its compressed data; right would be without them: {right}"
        raise UserError(f"{path}: the trace cannot be read: {reason}") from None
    except _DeepError:
        raise UserError(f"{path}: values are nested more than {DEEPEST} deep, as in no trace; profile again") from None
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
    wide = UTF16.get(start[:2])
    if wide and start.decode(wide, "ignore").lstrip("\ufeff \t\r\n").startswith(("{", "[")):
        right = f"iconv -f UTF-16 -t UTF-8 {shlex.quote(path.name)} > NEW.json"
        raise UserError(f"{path}: JSON in UTF-16; right would be UTF-8: {right}")
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
    found, depth = False, _Depth()
    with _open(path) as stream:
        for chunk in _mended(stream, is_list, sink) if mend else iter(lambda: stream.read(CHUNK), b""):
            depth.check(chunk)
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
        raise UserError(
            f"{path}: the file has no events (traceEvents is missing or empty); name a Chrome trace of torch.profiler"
        )
    return sink


def _mended(stream: BinaryIO, is_list: bool, sink: Sink) -> Iterator[bytes]:
    """The text of `stream` as JSON that a strict parser takes; what is damaged otherwise stays so."""
    tail, last = "", ""

    def mended(match: re.Match[str]) -> str:
        nonlocal tail
        if match["tail"]:
            tail = match[0]
            return ""
        if match["word"]:
            return _value(match[0])
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


def _value(word: str) -> str:
    """A bare word that is no strict JSON as a value that is; as it is where it means nothing."""
    if word.lower() in ("true", "false", "null"):
        return word.lower()
    if _NO_NUMBER.fullmatch(word):
        return "null"
    try:
        number = int(word, 16) if _HEX.fullmatch(word) else int(word) if len(word) < 19 else float(word)
    except ValueError:
        try:
            number = float(word)
        except ValueError:
            return word
    try:
        number = number if abs(number) < 10**18 else float(number)
    except OverflowError:
        return "null"
    return repr(number) if math.isfinite(number) else "null"


def _escaped(match: re.Match[str]) -> str:
    """A forbidden character or backslash of a string as JSON wants it; what JSON allows as it is."""
    if len(match[0]) > 1:
        return match[0]
    return f"\\u{ord(match[0]):04x}" if match[0] != "\\" else "\\\\"
