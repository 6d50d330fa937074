"""Where the cases of a training lie: in memory or on disk, with the same batches, and no more of them than fit."""

import dataclasses
import functools
import logging
import threading
import time
import weakref
from collections.abc import Callable

import numpy as np
import pytest
import torch

from meddpm import variants
from meddpm.config import TrainConfig, VariantConfig
from meddpm.model import build_model
from meddpm.training.batches import Batches
from meddpm.training.cases import MOST_READERS, Cases, InMemory, OnDisk, Read, gather
from meddpm.training.loop import Run, State, Stopped, train
from tests.unit.training_fixture import CPU, FULL, TINY, copied, dataset, timeless
from tests.unit.weights_fixture import equal

COUNT = 12
SIZE = 8**3 * 5  # bytes of a case of TINY: a float32 image, a uint8 label map


class Disk:
    """Reads the cases of `dataset`; counts what was read and how many arrays were alive at most."""

    def __init__(self, count: int = COUNT) -> None:
        self.images, self.labels = dataset(count)
        self.numbers: list[int] = []
        self.alive = self.most = 0
        self.lock = threading.RLock()

    def __call__(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        image, label = self.images[number].numpy().copy(), self.labels[number].numpy().copy()
        with self.lock:
            self.numbers.append(number)
            self.alive += 1
            self.most = max(self.most, self.alive)
        weakref.finalize(image, self.forget)
        return image, label

    def forget(self) -> None:
        with self.lock:
            self.alive -= 1

    def until(self, done: Callable[["Disk"], bool]) -> None:
        """Wait for what is read in the background."""
        deadline = time.monotonic() + 30
        while not done(self):
            assert time.monotonic() < deadline, self.numbers
            time.sleep(0.001)


def on_disk(read: Read, capacity: int, readers: int = 2, count: int = COUNT) -> OnDisk:
    return OnDisk(read, count, TINY, capacity, readers)


def batches_of(cases: Cases, settings: TrainConfig) -> Batches:
    with variants.applied(VariantConfig(), CPU, training=True) as applied:
        return Batches(cases, TINY, settings, applied)


def shown(batches: Batches) -> list[int]:
    """The numbers of the cases of the next batch."""
    images = batches()[0]
    return [number for image in images for number, other in enumerate(dataset(COUNT)[0]) if torch.equal(image, other)]


# --- the same batches ---


@pytest.mark.parametrize(
    ("capacity", "readers", "batch"),
    [(1, 1, 1), (1, 3, 4), (2, 2, 1), (3, 2, 3), (3, 2, 7), (5, 3, 2), (COUNT - 1, 2, 2), (2 * COUNT, 4, 5)],
)
def test_batches_from_disk_are_those_from_memory(capacity: int, readers: int, batch: int) -> None:
    disk, settings = Disk(), TrainConfig(batch=batch, seed=4)
    with on_disk(disk, capacity, readers) as cases:
        one, other = batches_of(InMemory(*dataset(COUNT)), settings), batches_of(cases, settings)
        for _ in range(40):
            expected, found = one(), other()
            assert all(map(torch.equal, expected, found))
            assert [each.stride() for each in expected] == [each.stride() for each in found]
            assert all(map(torch.equal, one.state().values(), other.state().values())), "looking ahead draws nothing"


def trained_on(cases: Cases, settings: TrainConfig, saved: State | None = None, at: int = 0) -> tuple[Run, State]:
    """A run that went on from `saved` and was stopped at step `at`, or ended; and its last state."""
    torch.manual_seed(settings.seed)
    states: list[State] = []
    with variants.applied(VariantConfig(), CPU, training=True) as applied:
        run = Run(build_model(TINY), TINY, settings, applied, Batches(cases, TINY, settings, applied))
        if saved:
            run.restore(saved)
        try:
            train(run, lambda number, state: states.append(copied(state)), stop=lambda: run.number == at)
        except Stopped:
            assert run.number == at
    return run, states[-1]


SHORT = dataclasses.replace(FULL, steps=12)


@functools.cache
def unbroken() -> State:
    return timeless(trained_on(InMemory(*dataset(COUNT)), SHORT)[1])


@pytest.mark.parametrize("kinds", ["disk disk", "memory disk", "disk memory"])
def test_a_training_goes_on_to_the_bit_wherever_its_cases_lie(kinds: str) -> None:
    state = None
    for kind, at in zip(kinds.split(), (5, 0), strict=True):
        with on_disk(Disk(), 3) if kind == "disk" else InMemory(*dataset(COUNT)) as cases:
            state = trained_on(cases, SHORT, state, at)[1]
        assert state["step"] == (at or SHORT.steps)
    assert equal(timeless(state), unbroken())


# --- no more than fit ---


@pytest.mark.parametrize(("capacity", "batch"), [(1, 1), (1, 3), (4, 1), (4, 3), (4, 9)])
def test_no_more_cases_are_in_memory_than_there_is_room_for(capacity: int, batch: int) -> None:
    disk, readers, held = Disk(60), 3, []
    with gather(disk, 60, TINY, capacity * SIZE, readers) as cases:
        batches = batches_of(cases, TrainConfig(batch=batch))
        for _ in range(100):
            batches()
            held.append(len(cases.held))
    assert max(held) == capacity
    assert disk.most <= capacity + readers, "a thread may still hold what it has handed over"
    assert len(disk.numbers) > 60, "what made room is read again"


def test_what_fits_is_read_once() -> None:
    disk = Disk()
    with on_disk(disk, COUNT) as cases:
        batches = batches_of(cases, TrainConfig(batch=3))
        for _ in range(60):
            batches()
    assert sorted(disk.numbers) == list(range(COUNT))


def test_the_case_whose_use_is_longest_ago_makes_room() -> None:
    disk = Disk()
    with on_disk(disk, 3, readers=1) as cases:
        for number in (0, 1, 2, 0, 3):  # 3 takes the place of 1
            cases.take([number])
        assert list(cases.held) == [2, 0, 3]
        cases.take([2, 0, 3])
        assert disk.numbers == [0, 1, 2, 3]


def test_a_case_that_is_needed_next_makes_no_room() -> None:
    disk = Disk()
    with on_disk(disk, 3, readers=1) as cases:
        cases.take([0])
        cases.take([1])
        cases.take([2], coming=[0, 5])  # 1 goes for 5, though the use of 0 is longer ago
        assert set(cases.held) == {0, 2, 5}
        cases.take([0, 5])
        assert disk.numbers == [0, 1, 2, 5]


# --- ahead ---


@pytest.mark.parametrize(("capacity", "batch", "ahead"), [(1, 1, 1), (8, 1, 4), (8, 3, 2), (8, 6, 1)])
def test_the_cases_of_the_next_batches_are_read_before_they_are_asked_for(
    capacity: int, batch: int, ahead: int
) -> None:
    disk, settings = Disk(), TrainConfig(batch=batch, seed=2)
    with on_disk(disk, capacity, readers=2) as cases:
        batches, later = batches_of(cases, settings), batches_of(InMemory(*dataset(COUNT)), settings)
        for _ in range(10):
            batches()
            later.restore(batches.state())
            coming = {number for _ in range(ahead) for number in shown(later)}
            disk.until(lambda disk, coming=coming: coming <= set(disk.numbers))


def test_several_threads_read_at_once() -> None:
    """Each waits for the other one: a single thread would wait in vain."""
    disk, pair = Disk(), threading.Barrier(2, timeout=30)

    def read(number: int) -> tuple[np.ndarray, np.ndarray]:
        pair.wait()
        return disk(number)

    with on_disk(read, 4, readers=2) as cases:
        cases.take([0], coming=[1])
        cases.take([1])
    assert len(gather(read, COUNT, TINY, COUNT * SIZE, 2)) == COUNT


def test_a_case_that_cannot_be_read_fails_where_it_is_needed() -> None:
    disk = Disk()

    def read(number: int) -> tuple[np.ndarray, np.ndarray]:
        if number == 3:
            raise ValueError("case 3 is gone")
        return disk(number)

    with on_disk(read, 4) as cases:
        for number in (0, 1, 2):
            image, _ = cases.take([number], coming=[3, 4])
            assert torch.equal(image[0], disk.images[number])
        with pytest.raises(ValueError, match="case 3 is gone"):
            cases.take([3], coming=[4])


def test_what_is_not_begun_when_it_ends_is_not_read() -> None:
    going, begun = threading.Event(), threading.Event()
    disk = Disk()

    def read(number: int) -> tuple[np.ndarray, np.ndarray]:
        if number:
            begun.set()
            going.wait(30)
        return disk(number)

    with on_disk(read, COUNT, readers=1) as cases:
        cases.take([0], coming=range(1, COUNT))
        begun.wait(30)
        threading.Timer(0.05, going.set).start()
    assert disk.numbers == [0, 1]


# --- the choice ---


def test_cases_that_fit_are_held_in_memory_and_others_are_read_when_needed(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="meddpm"):
        whole = gather(Disk(), COUNT, TINY, COUNT * SIZE, 2)
    assert isinstance(whole, InMemory)
    assert all(map(torch.equal, (whole.images, whole.labels), dataset(COUNT)))
    (line,) = [record.getMessage() for record in caplog.records if "held in memory" in record.getMessage()]
    assert line.startswith("12 cases of 0.0 MB: held in memory")

    caplog.clear()
    disk = Disk()
    with caplog.at_level(logging.INFO, logger="meddpm"), gather(disk, COUNT, TINY, COUNT * SIZE - 1, 2) as parts:
        assert isinstance(parts, OnDisk)
        assert (parts.capacity, len(parts)) == (COUNT - 1, COUNT)
    assert disk.numbers == [], "nothing is read before it is needed"
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("12 cases of 0.0 MB: read from disk when they are needed, 2 at a time")
    assert line.endswith("holds 11")


def test_the_size_of_a_case_counts_its_images_and_its_labels() -> None:
    four = dataclasses.replace(TINY, image_channels=4)
    with gather(Disk(), COUNT, four, 10 * 8**3 * 17, 2) as cases:
        assert isinstance(cases, OnDisk)
        assert cases.capacity == 10


@pytest.mark.parametrize(("threads", "readers"), [(0, 1), (1, 1), (3, 3), (128, MOST_READERS)])
def test_a_few_threads_read_and_never_none(threads: int, readers: int) -> None:
    with gather(Disk(), COUNT, TINY, (COUNT - 1) * SIZE, threads) as cases:
        assert isinstance(cases, OnDisk)
        assert cases.ahead == min(2 * readers, COUNT - 1)


def test_no_memory_at_all_holds_one_case() -> None:
    with gather(Disk(), COUNT, TINY, 0, 2) as cases:
        assert isinstance(cases, OnDisk)
        assert cases.capacity == 1


def test_reading_all_of_them_can_be_stopped_between_two() -> None:
    disk, asked = Disk(200), []

    def between(done: int) -> None:
        asked.append(done)
        if done == 2:
            raise Stopped

    def read(number: int) -> tuple[np.ndarray, np.ndarray]:
        time.sleep(0.002)
        return disk(number)

    with pytest.raises(Stopped):
        gather(read, 200, TINY, 200 * SIZE, 2, between)
    assert asked == [0, 1, 2]
    assert len(disk.numbers) < 100


def test_a_case_that_cannot_be_read_ends_the_reading_of_all() -> None:
    disk = Disk(200)

    def read(number: int) -> tuple[np.ndarray, np.ndarray]:
        time.sleep(0.002)
        if number == 5:
            raise ValueError("case 5 is gone")
        return disk(number)

    with pytest.raises(ValueError, match="case 5 is gone"):
        gather(read, 200, TINY, 200 * SIZE, 2)
    assert len(disk.numbers) < 100
