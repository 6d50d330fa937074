"""Timing: both sides in turn, warm-up apart, medians and percentiles, memory, energy."""

import contextlib
import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from meddpm import bench
from meddpm.config import BenchConfig

CPU = torch.device("cpu")


def recording(name: str, calls: list[str], seconds: float = 0.0) -> bench.Side:
    """A side that writes down when it is entered, run and left."""

    @contextlib.contextmanager
    def active() -> Iterator[None]:
        calls.append(f"{name} on")
        yield
        calls.append(f"{name} off")

    def step() -> None:
        calls.append(name)
        time.sleep(seconds)

    return bench.Side(step, active)


def test_the_sides_alternate_and_warm_up_is_apart() -> None:
    calls: list[str] = []
    settings = BenchConfig(warmup=2, repeats=3, rounds=2)
    before, after = bench.compare(recording("a", calls), recording("b", calls), CPU, settings)
    first = ["a on", *["a"] * 5, "a off", "b on", *["b"] * 5, "b off"]
    later = ["a on", *["a"] * 4, "a off", "b on", *["b"] * 4, "b off"]
    assert calls == first + later
    assert len(before.step_ms) == len(after.step_ms) == 6


def test_the_times_are_those_of_each_side() -> None:
    settings = BenchConfig(warmup=1, repeats=3, rounds=1)
    before, after = bench.compare(recording("a", [], 0.03), recording("b", [], 0.01), CPU, settings)
    assert 30 <= before.percentile(50) < 60
    assert 10 <= after.percentile(50) < 30


def test_percentiles_are_interpolated() -> None:
    timing = bench.Timing(step_ms=[4.0, 1.0, 3.0, 2.0])
    assert timing.percentile(50) == 2.5
    assert timing.percentile(0) == 1.0
    assert timing.percentile(95) == pytest.approx(3.85)


def test_energy_of_a_short_window_is_not_given() -> None:
    assert bench.Timing(step_ms=[1.0] * 4, energy_j=8.0, seconds=0.5).energy_j_per_step is None
    assert bench.Timing(step_ms=[500.0] * 4, energy_j=8.0, seconds=2.0).energy_j_per_step == 2.0
    assert bench.Timing(step_ms=[500.0] * 4, energy_j=None, seconds=2.0).energy_j_per_step is None


def test_the_peak_of_a_cpu_is_seen_and_begins_anew() -> None:
    bench.reset_peak_memory(CPU)
    low = bench.peak_memory_gib(CPU)
    held = np.ones(2**28 // 8)  # 0.25 GiB
    assert bench.peak_memory_gib(CPU) - low == pytest.approx(0.25, abs=0.05)
    del held
    bench.reset_peak_memory(CPU)
    assert bench.peak_memory_gib(CPU) - low < 0.1
