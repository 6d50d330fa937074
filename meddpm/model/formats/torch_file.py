"""Files of torch.save: read without running anything in them, and written whole or not at all."""

import io
import pickle
import re
import warnings
import zipfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import torch

from meddpm.config import UserError
from meddpm.files import replacing
from meddpm.model.formats.header import TORCH_ZIP
from meddpm.model.formats.keys import shown
from meddpm.status import first_line

DEEPEST = 20
"""Levels of dictionaries and lists in a file. A checkpoint with its optimiser has four."""

MOST_VALUES = 1_000_000
"""Tensors, plain values, dictionaries and lists in a file. A list counts as often as others refer to it."""

_CODE = re.compile(r"(?:GLOBAL|unrecognized function|`add_safe_globals`,? but got) (<[^>]*>|\S+)")


def read(path: Path | str, kind: str) -> Any:
    """The content of a file of torch.save, its tensors on the CPU in the types that they have in the file.

    `kind` is what meddpm.model.formats.header.kind says. The tensors of a newer file are mapped into memory, so that
    only those are read that are used. Raises UserError if the file is damaged, is no checkpoint, or holds more than
    plain values.
    """
    path = Path(path)
    if kind == TORCH_ZIP:
        _check_zip(path)
    try:
        with warnings.catch_warnings():  # about what is refused below
            warnings.simplefilter("ignore")
            content = _load(path, kind)
    except pickle.UnpicklingError as error:
        raise _refused(path, str(error)) from None
    # What a damaged or hostile file makes of the unpickler can be any error; none of them is a fault of the program.
    except Exception as error:
        raise _damaged(path, first_line(error)) from None
    _check_tensors(path, content)
    return content


def _load(path: Path, kind: str) -> Any:
    # torch.load goes by the name where it ends in .safetensors, and maps only what it opens by its name, in UTF-8.
    if kind == TORCH_ZIP and path.suffix != ".safetensors" and _is_utf8(str(path)):
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    with open(path, "rb") as stream:
        return torch.load(stream, map_location="cpu", weights_only=True)


def write(path: Path, content: Any) -> None:
    """Write `content` with torch.save, atomically. Raises OSError, with the system's own reason."""
    # torch.save to a file hides that reason (a full disk) behind an error of its own, and its name goes into the file.
    held = io.BytesIO()
    torch.save(content, held)
    with replacing(path) as temporary, open(temporary, "wb") as stream:
        stream.write(held.getbuffer())


def leaves(content: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every value in nested dictionaries, lists and tuples, with the keys that lead to it.

    Raises ValueError if they are nested deeper, or are more, than in any checkpoint: a dictionary can hold itself, and
    a list the same list ten times.
    """
    visited = count(1)

    def walk(value: Any, where: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
        if len(where) > DEEPEST:
            raise ValueError(f"it is nested more than {DEEPEST} levels deep")
        if next(visited) > MOST_VALUES:
            raise ValueError(f"it holds more than {MOST_VALUES} values")
        if isinstance(value, dict):
            for key, item in value.items():
                yield from walk(item, (*where, key))
        elif isinstance(value, list | tuple):
            for index, item in enumerate(value):
                yield from walk(item, (*where, index))
        else:
            yield where, value

    return walk(content, ())


def _is_utf8(text: str) -> bool:
    """Whether a name is text: Python shows the bytes of one that is not as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_zip(path: Path) -> None:
    """A zip of torch.save has a record data.pkl, and nothing in it is compressed."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        raise _damaged(path, "the list at its end is missing") from None
    names = [member.filename for member in members]
    if not any(name.endswith("/data.pkl") for name in names):
        inside = f" ({', '.join(map(shown, names[:2]))}{', ...' if len(names) > 2 else ''})" if names else ""
        raise UserError(f"{path}: is a zip of other things{inside}; if weights are among them, unpack it")
    if any(name.endswith("/constants.pkl") for name in names):
        raise UserError(f"{path}: holds code (a TorchScript program), which is not run; save its state_dict() instead")
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise UserError(f"{path}: is a zip that was packed anew, not the file of torch.save; fetch the weights again")


def _check_tensors(path: Path, content: Any) -> None:
    """Every tensor is a plain one that holds its own numbers: a few bytes can claim to be terabytes."""
    size = path.stat().st_size
    try:
        for where, value in leaves(content):
            if isinstance(value, torch.Tensor) and not _is_plain(value, size):
                name = shown(".".join(map(str, where)))
                raise UserError(f"{path}: {name} is no plain tensor (sparse, nested, quantised or without its numbers)")
    except ValueError as error:
        raise UserError(f"{path}: is no checkpoint: {error}") from None


def _is_plain(tensor: torch.Tensor, size: int) -> bool:
    if tensor.is_nested or tensor.is_quantized:
        return False
    strided = tensor.layout == torch.strided and tensor.device.type == "cpu"
    return strided and type(tensor).__module__.startswith("torch") and tensor.numel() * tensor.element_size() <= size


def _refused(path: Path, message: str) -> UserError:
    """What the unpickler would not do, in one line: it either met code or no pickle at all."""
    code = _CODE.search(message)
    if code:
        what = shown(code[1])
        return UserError(
            f"{path}: holds code ({what}), which is not run; ask for one of tensors and plain numbers alone"
        )
    # torch puts its advice before and after what it found, in lines of their own.
    lines = [line for line in message.splitlines() if line.strip()]
    return _damaged(path, next((line for line in lines[1:] if not line.startswith(("Please", "Check"))), lines[0]))


def _damaged(path: Path, why: str) -> UserError:
    return UserError(f"{path}: is damaged, cut off or no file of weights ({shown(why)}); fetch it again")
