"""What a profiler saw, whatever the format of its file: kernels with their times, and how busy the GPU was."""

from collections.abc import Sequence
from dataclasses import dataclass

from meddpm.profiling.taxonomy import classify
from meddpm.tables import Row


@dataclass(frozen=True)
class Kernel:
    """The launches of one kernel in one launch shape.

    `launch` is "(x,y,z)x(x,y,z)", grid and block; None for copies, fills and CPU operators. `time_ms` is the sum over
    all `calls`.
    """

    name: str
    launch: str | None
    calls: int
    time_ms: float


@dataclass(frozen=True)
class Occupied:
    """How busy the GPU was between the first start and the last end of its work; of several, the one with most work.

    `busy_ms` counts time in which several kernels ran at once only once. `gaps` is the number of times at which nothing
    ran between two kernels, `gap_ms_median` and `gap_ms_longest` of them (0 where there is none).
    """

    span_ms: float
    busy_ms: float
    gaps: int
    gap_ms_median: float
    gap_ms_longest: float


@dataclass(frozen=True)
class MarkedRange:
    """Kernel time below a range that the program marked, as "down 0/block 1"; ranges nest, and a time is in each."""

    name: str
    calls: int
    kernels: int
    time_ms: float


@dataclass(frozen=True)
class Trace:
    """One file of a profiler.

    `profiler` is "torch", "ncu" or "nsys"; `kernels` has the longest first. `on_gpu` is false where the file has no
    GPU work and `kernels` are CPU operators with their self times. `occupied` is None where the file does not tell
    when a kernel ran. `device` is the GPU's name as the file has it. `notes` are words for the reader: what was left
    out, or looks odd.
    """

    profiler: str
    kernels: tuple[Kernel, ...]
    on_gpu: bool
    occupied: Occupied | None = None
    ranges: tuple[MarkedRange, ...] = ()
    device: str | None = None
    notes: tuple[str, ...] = ()


def occupied(starts: Sequence[float], ends: Sequence[float]) -> Occupied | None:
    """How busy one device was, from starts and ends of its work in ms, in any order; None where there is none.

    Of millions of launches arrays of numpy take least memory; they stay as they are.
    """
    import numpy

    if not len(starts):
        return None
    starts, ends = numpy.asarray(starts, dtype=float), numpy.asarray(ends, dtype=float)
    order = numpy.argsort(starts)
    starts, ends = starts[order], ends[order]
    del order
    # The latest end so far; what ends before it adds nothing.
    reached = numpy.maximum.accumulate(ends, out=ends)
    span = reached[-1] - starts[0]
    idle = starts[1:] - reached[:-1]
    gaps = idle[idle > 0]
    del idle
    numpy.maximum(starts[1:], reached[:-1], out=starts[1:])
    busy = numpy.subtract(reached, starts, out=starts).sum()
    longest = gaps.max() if len(gaps) else 0.0
    median = numpy.median(gaps, overwrite_input=True) if len(gaps) else 0.0
    return Occupied(float(span), float(busy), len(gaps), float(median), float(longest))


def rows(trace: Trace) -> list[Row]:
    """Rows {kernel, category, precision, detail, launch, calls, time_ms, share} of the kernel table, longest first.

    `share` is the part of the time of all rows, 0 to 1; None where no time passed.
    """
    total = sum(kernel.time_ms for kernel in trace.kernels)
    found = []
    for kernel in trace.kernels:
        kind = classify(kernel.name)
        found.append(
            {
                "kernel": kernel.name,
                "category": kind.category,
                "precision": kind.precision,
                "detail": kind.detail,
                "launch": kernel.launch,
                "calls": kernel.calls,
                "time_ms": kernel.time_ms,
                "share": kernel.time_ms / total if total else None,
            }
        )
    return found
