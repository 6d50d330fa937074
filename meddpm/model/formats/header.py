"""What a file of weights is, by its first bytes, and the header of a safetensors file, read with plain Python.

Imports no torch: the workflow reads a header before it plans anything. Nothing in a file is executed.
"""

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meddpm.config import UserError

SAFETENSORS, TORCH_ZIP, TORCH_LEGACY = "safetensors", "torch.save", "torch.save of before 2020"

Shapes = dict[str, tuple[int, ...]]

HEADER_LIMIT = 10_000_000
"""Bytes. The largest network here has a header of 40 kB."""

BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E5M2FNUZ": 8, "F8_E4M3FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64,
    "C64": 64,
}  # fmt: skip
"""Types of safetensors, and the bits of one number."""

MOST_AXES = 16
"""Of a tensor. The weights here have five; the product of thousands of numbers would take for ever."""

# A number that torch.save once wrote first, as pickle writes it.
_TORCH_MAGIC = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."

# What is fetched by mistake in the place of weights: how it begins, and what to do.
_OTHERS = (
    (b"<", "a web page, not weights; download the file itself"),
    (b"version https://git-lfs", "a Git LFS pointer, not the weights; run git lfs pull"),
    (b"\x1f\x8b", "compressed with gzip; unpack it first"),
)


class Unreadable(UserError):
    """A safetensors file whose header is no good: `why`, in words for a message of one's own."""

    def __init__(self, path: Path | str, why: str) -> None:
        super().__init__(f"{path}: not a readable safetensors file ({why}); fetch or train the weights again")
        self.why = why


@dataclass(frozen=True)
class Header:
    """The header of a safetensors file: its texts, and each tensor's shape and type."""

    metadata: dict[str, str]
    shapes: Shapes
    types: dict[str, str]


def kind(path: Path | str) -> str:
    """SAFETENSORS, TORCH_ZIP or TORCH_LEGACY, by the content of the file and never by its name.

    Raises UserError if there is no such file or it is none of these.
    """
    # The methods of Path would raise where a folder may not be entered or a name is too long; _read has words for that.
    if os.path.isdir(path):
        raise UserError(f"{path}: is a folder; give the file of the weights in it")
    if os.path.exists(path) and not os.path.isfile(path):
        raise UserError(f"{path}: is a pipe or a device, not a file; give the file of the weights")
    start = _read(path, 64)
    if not start:
        raise UserError(f"{path}: is empty; fetch or train the weights again")
    if start[8:9] == b"{":
        return SAFETENSORS
    if start.startswith(b"PK"):
        return TORCH_ZIP
    if start.startswith(b"\x80"):
        if _TORCH_MAGIC in start:
            return TORCH_LEGACY
        raise UserError(f"{path}: is a pickle, which can hold code and is not run; write it with torch.save")
    for beginning, words in _OTHERS:
        if start.lstrip().startswith(beginning):
            raise UserError(f"{path}: is {words}")
    raise UserError(f"{path}: is no file of weights; give a safetensors file or one that torch.save wrote")


def read(path: Path | str) -> Header:
    """The header of a safetensors file. Raises Unreadable, a UserError, if it is damaged, or too large to be one."""
    start = _read(path, 8)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or length > HEADER_LIMIT:
        raise Unreadable(path, f"its header would have {length} bytes, and {HEADER_LIMIT} are the most")
    text = _read(path, 8 + length)[8:]
    if len(text) < length:
        raise Unreadable(path, "it ends within its header")
    try:
        table = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError):
        raise Unreadable(path, "its header is no JSON") from None
    if not isinstance(table, dict):
        raise Unreadable(path, "its header is no JSON object")
    metadata = table.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise Unreadable(path, "its metadata are no texts")
    if not all(_is_tensor(row) for row in table.values()):
        raise Unreadable(path, "its header does not list tensors")
    held = Path(path).stat().st_size - 8 - length
    needed = max((row["data_offsets"][1] for row in table.values()), default=0)
    if held != needed:
        raise Unreadable(path, f"{held} bytes of tensors are there, and its header lists {needed}")
    return Header(
        metadata,
        {key: tuple(row["shape"]) for key, row in table.items()},
        {key: row["dtype"] for key, row in table.items()},
    )


def _is_tensor(row: Any) -> bool:
    """Whether one row of the table is complete, and as long as its shape and type ask."""
    if not isinstance(row, dict) or not isinstance(row.get("dtype"), str) or row["dtype"] not in BITS:
        return False
    shape, offsets = row.get("shape"), row.get("data_offsets")
    for numbers in (shape, offsets):
        if not isinstance(numbers, list) or len(numbers) > MOST_AXES:
            return False
        if not all(type(value) is int and 0 <= value < 2**63 for value in numbers):
            return False
    return len(offsets) == 2 and offsets[1] - offsets[0] == math.prod(shape) * BITS[row["dtype"]] // 8


def _read(path: Path | str, count: int) -> bytes:
    """The first `count` bytes of a file, fewer where it is shorter."""
    try:
        with open(path, "rb") as stream:
            return stream.read(count)
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file; check the path of the weights") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); mend that first") from None
