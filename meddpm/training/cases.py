"""The cases that a training draws from: all of them in memory, or read from disk ahead of the batches that show them.

What a batch holds is the same either way.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

import numpy as np
import torch

from meddpm.config import ModelConfig
from meddpm.log import logger, progress

Read = Callable[[int], tuple[np.ndarray, np.ndarray]]
"""Image (C, D, W, H) float32 in [-1, 1] and label map (D, W, H) uint8 of the case with a number from 0.

Several threads call it at once. What it raises ends the training where the case is needed.
"""

# While it is read, a case takes a few times the memory that it has in the end.
MOST_READERS = 8


class Cases(ABC):
    """Cases by their numbers, from 0. A context manager: `close` ends what it does in the background."""

    ahead = 0
    """How many of the cases that come after a batch are worth telling `take`."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of cases."""

    @abstractmethod
    def take(self, chosen: Sequence[int], coming: Sequence[int] = ()) -> tuple[torch.Tensor, torch.Tensor]:
        """Images (B, C, D, W, H) float32 and label maps (B, D, W, H) uint8 of the `chosen` cases, on the CPU.

        `coming` are those that will be chosen next, the first ones first. Raises what reading a chosen case raised.
        """

    @abstractmethod
    def close(self) -> None:
        """Read no more."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class InMemory(Cases):
    """All cases as two tensors: `images` (N, C, D, W, H) float32 and `labels` (N, D, W, H) uint8."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.images)

    def take(self, chosen: Sequence[int], coming: Sequence[int] = ()) -> tuple[torch.Tensor, torch.Tensor]:
        """As `Cases.take`."""
        return self.images[list(chosen)], self.labels[list(chosen)]

    def close(self) -> None:
        """As `Cases.close`: all is read."""


class OnDisk(Cases):
    """Cases that `read` brings when they are needed, by `readers` threads ahead of that.

    At most `capacity` of the `count` cases are in memory, those being read among them; the one whose use is longest ago
    makes room, unless it is needed next. The copies in a batch come on top.
    """

    def __init__(self, read: Read, count: int, config: ModelConfig, capacity: int, readers: int) -> None:
        self.read, self.count, self.config, self.capacity = read, count, config, capacity
        self.ahead = min(2 * readers, capacity)
        self.held: dict[int, Future[tuple[np.ndarray, np.ndarray]]] = {}  # in the order of their last use
        self.pool = ThreadPoolExecutor(readers)

    def __len__(self) -> int:
        return self.count

    def take(self, chosen: Sequence[int], coming: Sequence[int] = ()) -> tuple[torch.Tensor, torch.Tensor]:
        """As `Cases.take`."""
        images = torch.empty((len(chosen), *self.config.shape))
        labels = torch.empty((len(chosen), *self.config.shape[1:]), dtype=torch.uint8)
        wanted = [*chosen, *coming]
        for place, number in enumerate(chosen):
            self._begin(wanted[place:])
            self._copy(number, images[place], labels[place])
        self._begin(coming)
        return images, labels

    def close(self) -> None:
        """As `Cases.close`; waits for what is being read."""
        self.pool.shutdown(cancel_futures=True)

    def _begin(self, wanted: Sequence[int]) -> None:
        """Begin to read the first of the `wanted` cases, as many different ones as there is room for."""
        next_ones = list(dict.fromkeys(wanted))[: self.capacity]
        for number in next_ones:
            if number in self.held:
                continue
            if len(self.held) >= self.capacity:
                self.held.pop(next(other for other in self.held if other not in next_ones)).cancel()
            self.held[number] = self.pool.submit(self.read, number)

    def _copy(self, number: int, image: torch.Tensor, label: torch.Tensor) -> None:
        """Copy a case that is being read, or was, to where it stands in the batch."""
        case = self.held.pop(number)
        self.held[number] = case  # the last one used
        image_read, label_read = case.result()
        image.copy_(torch.from_numpy(image_read))
        label.copy_(torch.from_numpy(label_read))


def gather(
    read: Read,
    count: int,
    config: ModelConfig,
    budget: int,
    threads: int,
    between: Callable[[int], None] = lambda done: None,
) -> Cases:
    """`count` cases for a model of `config`: in memory where `budget` bytes hold them all, else read when needed.

    On disk, `budget` bounds what is held of them, one case at least. At most `threads` threads read. `between` is
    called with the number of cases that are in memory before each of those that are read at the start; it may raise.
    """
    voxels = math.prod(config.size)
    size = voxels * (4 * config.image_channels + 1)  # float32 and uint8
    readers = max(1, min(threads, MOST_READERS, count))
    text = f"{count} cases of {size / 1e6:.1f} MB"
    if count * size <= budget:
        logger.info("%s: held in memory, where they may take %.1f GB", text, budget / 1e9)
        return _read_all(read, count, config, readers, between)
    capacity = max(1, budget // size)
    logger.info(
        "%s: read from disk when they are needed, %d at a time; the memory, %.1f GB, holds %d",
        text, min(readers, capacity), budget / 1e9, capacity,
    )  # fmt: skip
    return OnDisk(read, count, config, capacity, min(readers, capacity))


def _read_all(read: Read, count: int, config: ModelConfig, readers: int, between: Callable[[int], None]) -> InMemory:
    images = np.empty((count, *config.shape), np.float32)
    labels = np.empty((count, *config.shape[1:]), np.uint8)

    def fill(number: int) -> None:
        images[number], labels[number] = read(number)

    with ThreadPoolExecutor(readers) as pool:
        between(0)
        # Where one cannot be read or `between` raises, `map` calls off what is not begun.
        for done, _ in enumerate(progress(pool.map(fill, range(count)), count, "cases"), 1):
            if done < count:
                between(done)
    return InMemory(torch.from_numpy(images), torch.from_numpy(labels))
