"""Timing: fp32 and a variant in turn in one process, warm-up apart, medians with their spread.

A step is a function without arguments. On a GPU it is timed with CUDA events, on a CPU with perf_counter. The two sides
alternate in rounds, so that a clock that drifts or a machine that grows warm touches both alike.
"""

import itertools
import resource
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from meddpm.config import BenchConfig
from meddpm.log import logger
from meddpm.provenance import Nvml

GIB = 2**30
# NVML updates its energy counter every 20 to 100 ms: a shorter window says little.
SHORTEST_ENERGY_WINDOW_S = 1.0


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a step, and the block that its flags are on in (entered once a round, not a step)."""

    step: Callable[[], None]
    active: Callable[[], AbstractContextManager[object]]


@dataclass
class Timing:
    """What was measured of one side: milliseconds of each step, peak memory in GiB, energy and its window."""

    step_ms: list[float] = field(default_factory=list)
    peak_memory_gib: float = 0.0
    energy_j: float | None = None
    seconds: float = 0.0

    def percentile(self, percent: float) -> float:
        """Linearly interpolated percentile of the steps, ms; 50 is the median."""
        return float(np.percentile(self.step_ms, percent))

    @property
    def energy_j_per_step(self) -> float | None:
        """Joules a step; None where there is no counter or the window was too short for it."""
        if self.energy_j is None or self.seconds < SHORTEST_ENERGY_WINDOW_S:
            return None
        return self.energy_j / len(self.step_ms)


def compare(
    baseline: Side, variant: Side, device: torch.device, settings: BenchConfig, resident_gib: float = 0.0
) -> tuple[Timing, Timing]:
    """Time two sides in turn: settings.rounds rounds of settings.repeats steps each, after settings.warmup steps.

    Every round begins with warm-up, settings.warmup steps in the first and one later, since the other side has just
    used the caches. `resident_gib` is device memory that the baseline holds while the variant runs; it is taken off
    the variant's peak.
    """
    before, after = Timing(), Timing()
    for number in range(settings.rounds):
        for side, timing, held_gib in ((baseline, before, 0.0), (variant, after, resident_gib)):
            with side.active():
                for _ in range(settings.warmup if number == 0 else 1):
                    side.step()
                _round(side.step, timing, device, settings.repeats, held_gib)
        medians = before.percentile(50), after.percentile(50)
        logger.info("round %d of %d: fp32 %.2f ms, variant %.2f ms a step", number + 1, settings.rounds, *medians)
    return before, after


def _round(step: Callable[[], None], timing: Timing, device: torch.device, repeats: int, held_gib: float) -> None:
    synchronize(device)
    reset_peak_memory(device)
    with Nvml(device.type) as nvml:
        energy = nvml.energy_j()
        start = time.perf_counter()
        timing.step_ms += _cuda_times(step, repeats) if device.type == "cuda" else _cpu_times(step, repeats)
        timing.seconds += time.perf_counter() - start
        if energy is not None:
            timing.energy_j = (timing.energy_j or 0.0) + nvml.energy_j() - energy
    timing.peak_memory_gib = max(timing.peak_memory_gib, peak_memory_gib(device) - held_gib)


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _cuda_times(step: Callable[[], None], repeats: int) -> list[float]:
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    events[0].record()
    for event in events[1:]:
        step()
        event.record()
    torch.cuda.synchronize()
    return [before.elapsed_time(after) for before, after in itertools.pairwise(events)]


def _cpu_times(step: Callable[[], None], repeats: int) -> list[float]:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        step()
        times.append((time.perf_counter() - start) * 1000)
    return times


def reset_peak_memory(device: torch.device) -> None:
    """Begin a new peak. On Linux the kernel lets a process reset its own high-water mark."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:  # not Linux, or not allowed: the peak is that of the whole process
        return


def peak_memory_gib(device: torch.device) -> float:
    """Peak since the last reset: allocated on the device (CUDA), or resident size of the process (CPU), GiB."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / GIB
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / GIB
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB


def resident_gib(device: torch.device) -> float:
    """Memory allocated on the device now, GiB; 0 on a CPU, where the process is one."""
    return torch.cuda.memory_allocated(device) / GIB if device.type == "cuda" else 0.0
