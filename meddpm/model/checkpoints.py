"""Checkpoints of a training under way: a folder of step-<number>.pt files, the newest few of them kept."""

import re
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch

from meddpm.files import remove_abandoned
from meddpm.log import logger
from meddpm.model.formats import torch_file
from meddpm.status import first_line

NAME = re.compile(r"step-(\d{9})\.pt")


class Checkpoints:
    """The checkpoints in `folder`, of which the newest `keep` stay.

    A checkpoint is a dictionary of tensors and plain values, as torch.save writes it. It is read with
    weights_only=True, so nothing in it is executed.
    """

    def __init__(self, folder: Path | str, keep: int) -> None:
        self.folder = Path(folder)
        self.keep = keep
        self.last: Path | None = None
        """The last checkpoint that was written or read: whole, for certain."""

    def save(self, number: int, state: dict[str, Any]) -> Path:
        """Write the state after step `number`; older ones beyond `keep` go once it is whole. Raises OSError."""
        path = self._path(number)
        torch_file.write(path, state)
        for old in self._steps(number)[: -self.keep]:
            self._path(old).unlink(missing_ok=True)
        self.last = path
        return path

    def newest(self, limit: int, entries: Collection[str] = ()) -> dict[str, Any] | None:
        """The state of the newest checkpoint up to step `limit` that can be read, on the CPU; None without one.

        A state has the `entries`, and finite weights in `model` and `ema` where these are among them. Half-written
        files of runs that were killed are removed.
        """
        remove_abandoned(self.folder)
        for number in reversed(self._steps(limit)):
            path = self._path(number)
            try:
                _check_sums(path)
                state = torch.load(path, map_location="cpu", weights_only=True)
                _check_state(state, entries)
            except MemoryError:
                raise
            # What a damaged file makes of the unpickler can be any error; none of them is a fault of the program.
            except Exception as error:
                logger.warning("%s cannot be read (%s): trying the one before", path, first_line(error))
            else:
                self.last = path
                return state
        return None

    def _path(self, number: int) -> Path:
        return self.folder / f"step-{number:09d}.pt"

    def _steps(self, limit: int | None = None) -> list[int]:
        """The steps of the checkpoints there are, rising, up to `limit`."""
        matches = [NAME.fullmatch(path.name) for path in self.folder.glob("step-*.pt") if path.is_file()]
        steps = sorted(int(match[1]) for match in matches if match)
        return [step for step in steps if limit is None or step <= limit]


def _check_state(state: Any, entries: Collection[str]) -> None:
    missing = [name for name in entries if not isinstance(state, dict) or name not in state]
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}")
    for name in ("model", "ema"):
        if name in entries and not all(torch.isfinite(tensor).all() for tensor in state[name].values()):
            raise ValueError(f"the weights of {name} are not finite")


def _check_sums(path: Path) -> None:
    """Raise an error if a part of the file is not what was written: torch.load does not look at the checksums."""
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
    if damaged:
        raise ValueError(f"{damaged} is damaged")
