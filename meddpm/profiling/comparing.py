"""What changed from one trace to another: in all, by category, by family of kernels, and kernel by kernel."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from meddpm.profiling.names import family
from meddpm.profiling.taxonomy import classify
from meddpm.profiling.trace import Kernel, Trace

# Of the kernels that both traces have, the share that was launched so many times as often, and how many they are, from
# which on it looks like another number of steps.
MOST, ENOUGH = 0.8, 3
# Kernel times add up to more than the time in which the GPU was busy, by more than rounding.
OVERLAP = 1.01


@dataclass(frozen=True)
class Sum:
    """Kernels added up: how many there are (by name and launch shape), their calls, their time."""

    kernels: int = 0
    calls: int = 0
    time_ms: float = 0.0


@dataclass(frozen=True)
class Change:
    """What both traces have under one name; None on the side that has none of it.

    `category` is that of the kernels; `launch` is the launch shape where it is of one kernel.
    """

    name: str
    category: str
    before: Sum | None
    after: Sum | None
    launch: str | None = None

    @property
    def saved_ms(self) -> float:
        """Time that the second trace takes less; negative where it takes more."""
        return (self.before or Sum()).time_ms - (self.after or Sum()).time_ms


@dataclass(frozen=True)
class Figure:
    """One figure of both traces; None where a trace does not tell it."""

    name: str
    before: float | None
    after: float | None


@dataclass(frozen=True)
class Comparison:
    """Changes from one trace to another, the most time saved first, and words on how far the two can be compared."""

    figures: tuple[Figure, ...]
    categories: tuple[Change, ...]
    families: tuple[Change, ...]
    kernels: tuple[Change, ...]
    warnings: tuple[str, ...]


def total(trace: Trace) -> Sum:
    """All kernels of a trace."""
    return _added(trace.kernels)


def by_category(trace: Trace) -> dict[str, Sum]:
    """The kernels of each category, the most time first; together they are `total`."""
    found = _grouped(trace, lambda kernel: classify(kernel.name).category)
    return dict(sorted(found.items(), key=lambda part: -part[1].time_ms))


def overlap(trace: Trace) -> str | None:
    """Words where kernels ran at once, so that their times add up to more than the time that passed; else None."""
    busy, time = trace.occupied, total(trace).time_ms
    if busy is None or not busy.busy_ms or time <= OVERLAP * busy.busy_ms:
        return None
    words = f"kernel times add up to {time / busy.busy_ms:.2f} times the busy time"
    if time > busy.span_ms:
        words = f"kernel times add up to more than the time that passed ({time:,.3f} against {busy.span_ms:,.3f} ms)"
    return f"{words}: kernels ran at once, on several streams or GPUs"


def compare(before: Trace, after: Trace) -> Comparison:
    """The changes from `before` to `after`.

    Categories and families (`names.family`, within one category) meet whatever they compute in; kernels are the same
    where name and launch shape are.
    """

    def category(kernel: Kernel) -> tuple[str, str]:
        found = classify(kernel.name).category
        return found, found

    def kind(kernel: Kernel) -> tuple[str, str]:
        return classify(kernel.name).category, family(kernel.name)

    def one(kernel: Kernel) -> tuple[str, str, str | None]:
        return classify(kernel.name).category, kernel.name, kernel.launch

    kernels = _changes(before, after, one)
    return Comparison(
        tuple(_figures(before, after)),
        _changes(before, after, category),
        _changes(before, after, kind),
        kernels,
        tuple(_warnings(before, after, kernels)),
    )


def _added(kernels: Iterable[Kernel]) -> Sum:
    parts = list(kernels)
    return Sum(len(parts), sum(part.calls for part in parts), sum(part.time_ms for part in parts))


def _grouped(trace: Trace, key: Callable[[Kernel], Any]) -> dict[Any, Sum]:
    parts: dict[Any, list[Kernel]] = {}
    for kernel in trace.kernels:
        parts.setdefault(key(kernel), []).append(kernel)
    return {name: _added(kernels) for name, kernels in parts.items()}


def _changes(before: Trace, after: Trace, key: Callable[[Kernel], tuple[Any, ...]]) -> tuple[Change, ...]:
    """The sums of both traces by category, name and, where it has a third part, launch shape."""
    old, new = _grouped(before, key), _grouped(after, key)
    found = []
    for names in dict.fromkeys([*old, *new]):
        category, name, *launch = names
        found.append(Change(name, category, old.get(names), new.get(names), *launch))
    return tuple(sorted(found, key=lambda change: -change.saved_ms))


def _figures(before: Trace, after: Trace) -> Iterable[Figure]:
    what = "kernel" if before.on_gpu and after.on_gpu else "operator" if not before.on_gpu | after.on_gpu else "work"
    old, new = total(before), total(after)
    yield Figure(f"{what} time, ms", old.time_ms, new.time_ms)
    yield Figure("launches" if what == "kernel" else "calls", old.calls, new.calls)
    busy = before.occupied, after.occupied
    if any(busy):
        yield Figure("GPU busy, ms", *(each.busy_ms if each else None for each in busy))
        yield Figure("GPU idle, ms", *(each.span_ms - each.busy_ms if each else None for each in busy))
        yield Figure("first start to last end, ms", *(each.span_ms if each else None for each in busy))


def _warnings(before: Trace, after: Trace, kernels: tuple[Change, ...]) -> Iterable[str]:
    """What stands in the way of a comparison."""
    if before.on_gpu != after.on_gpu:
        yield "one file has kernels of a GPU, the other operators of a CPU: the times are not of the same thing"
    elif before.profiler != after.profiler:
        words = "the files are of two profilers, which time in their own ways and may spell names otherwise"
        if "ncu" in (before.profiler, after.profiler):
            words += "; Nsight Compute runs launches one by one, by default at a fixed clock"
        yield f"{words}: compare two files of one profiler"
    if before.device and after.device and before.device != after.device:
        yield f"the files are of two kinds of GPU: {before.device}, then {after.device}"
    times = _as_often(kernels)
    if times:
        yield (
            f"most kernels that both files have were launched {times} times as often in the second: "
            "it may hold another number of steps"
        )


def _as_often(kernels: tuple[Change, ...]) -> Fraction | None:
    """How many times as often the second trace launched what both have, where that is one number and not 1."""
    ratios = Counter(
        Fraction(change.after.calls, change.before.calls)
        for change in kernels
        if change.before and change.after and change.before.calls
    )
    ((ratio, count),) = ratios.most_common(1) or [(Fraction(1), 0)]
    many = count >= ENOUGH and count >= MOST * ratios.total()
    return ratio if many and ratio not in (0, 1) else None
