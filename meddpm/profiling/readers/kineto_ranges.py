"""Kernel time below the ranges that a program marked with record_function, from what a trace of torch.profiler has."""

from array import array
from typing import Any

from meddpm.profiling.trace import MarkedRange

# A process and a thread, or a device and a stream.
Place = tuple[Any, Any]
# Kernels and microseconds.
Total = tuple[int, float]
BACKWARD = "{} (backward)"


class Launches:
    """Calls on the CPU that start work of the GPU: the number that both share, where and when (microseconds)."""

    def __init__(self) -> None:
        self.correlation, self.place, self.start = array("q"), array("i"), array("d")
        self.places: dict[Place, int] = {}

    def add(self, correlation: int, place: Place, start: float) -> None:
        """One call."""
        self.correlation.append(correlation)
        self.place.append(self.places.setdefault(place, len(self.places)))
        self.start.append(start)


class Work(Launches):
    """Kernels, copies and fills: as their launches (a correlation of 0 is none), and how long they took."""

    def __init__(self) -> None:
        super().__init__()
        self.duration = array("d")

    def add(self, correlation: int, place: Place, start: float, duration: float = 0.0) -> None:
        """One kernel."""
        super().add(correlation, place, start)
        self.duration.append(duration)


class Ranges:
    """Marked ranges: starts and ends in microseconds, by place and name."""

    def __init__(self) -> None:
        self.spans: dict[tuple[Place, str], tuple[array, array]] = {}

    def add(self, place: Place, name: str, start: float, end: float) -> None:
        """One range."""
        if (place, name) not in self.spans:
            self.spans[place, name] = array("d"), array("d")
        starts, ends = self.spans[place, name]
        starts.append(start)
        ends.append(end)


class Gradients:
    """Operators of the forward pass, and those of autograd that give their gradients: both have one sequence number.

    That number stands in the place of the correlation. The forward pass's count is the thread's own, and goes up as an
    operator leaves a node for autograd: of several operators of one number, the last made the node.
    """

    def __init__(self) -> None:
        self.forward, self.backward = Launches(), Work()

    def ranges(self, of: Ranges) -> Ranges:
        """Ranges of the backward pass, named by the range in `of` that the operator of the forward pass was in."""
        import numpy

        found = Ranges()
        if not self.forward.places or not self.backward.places:
            return found
        number, place, start = self._made_a_node()
        threads = list(self.backward.places)
        for (where, name), spans in of.spans.items():
            if where not in self.forward.places:
                continue
            begins, until = _merged(*map(numpy.asarray, spans))
            index = numpy.searchsorted(begins, start, side="right") - 1
            within = (place == self.forward.places[where]) & (index >= 0) & (start < until[numpy.maximum(index, 0)])
            for each in numpy.flatnonzero(numpy.isin(self.backward.correlation, number[within])):
                begin = self.backward.start[each]
                end = begin + self.backward.duration[each]
                found.add(threads[self.backward.place[each]], BACKWARD.format(name), begin, end)
        return found

    def _made_a_node(self) -> tuple[Any, Any, Any]:
        """Numbers, places and starts of the last forward operator of each number that only one thread has."""
        import numpy

        both = (self.forward.correlation, self.forward.place, self.forward.start)
        number, place, start = map(numpy.asarray, both)
        order = numpy.lexsort((start, number))
        number, place, start = number[order], place[order], start[order]
        same = number[1:] == number[:-1]
        shared = number[1:][same & (place[1:] != place[:-1])]
        last = numpy.append(~same, True) & ~numpy.isin(number, shared)
        return number[last], place[last], start[last]


def marked(
    launches: Launches, work: Work, ranges: Ranges, gpu_ranges: Ranges, gradients: Gradients
) -> tuple[MarkedRange, ...]:
    """The ranges by name, in the order of their first start; time is that of the kernels that each of them launched.

    `ranges` are those of CPU threads: a kernel is in those that were open on the thread that launched it, at that
    time. `gpu_ranges`, on streams, stand for them where a kernel's launch is not known, and where no thread has a
    range of that name: a kernel is in those in which it started. Where ranges of one name nest, a kernel counts once.
    Kernels of the backward pass are in a range of its own, "NAME (backward)", by the operator whose gradient they give.
    """
    import numpy

    first: dict[str, float] = {}
    calls: dict[str, int] = {}
    for (_, name), (starts, _) in ranges.spans.items():
        first[name] = min(min(starts), first.get(name, starts[0]))
        calls[name] = calls.get(name, 0) + len(starts)
    both: Ranges = Ranges()
    alone: Ranges = Ranges()
    for (place, name), spans in gpu_ranges.spans.items():
        (both if name in calls else alone).spans[place, name] = spans
    for (_, name), (starts, _) in alone.spans.items():
        first[name] = min(min(starts), first.get(name, starts[0]))
        # One call is a range on each stream that it used.
        calls[name] = max(calls.get(name, 0), len(starts))
    if not calls:
        return ()

    backward = gradients.ranges(ranges)
    for (_, name), (starts, _) in backward.spans.items():
        first[name] = min(min(starts), first.get(name, starts[0]))
    # As often as the range itself, of however many operators.
    calls |= {BACKWARD.format(name): count for name, count in calls.items() if BACKWARD.format(name) in first}

    start, duration, place = (numpy.asarray(part) for part in (work.start, work.duration, work.place))
    known, launch = _launches_of(launches, work)
    launched = numpy.asarray(launches.place)[launch], numpy.asarray(launches.start)[launch], duration[known]
    totals = dict.fromkeys(calls, (0, 0.0))
    for found in (
        _totals(ranges, launches.places, *launched),
        _totals(backward, launches.places, *launched),
        _totals(both, work.places, place[~known], start[~known], duration[~known]),
        _totals(alone, work.places, place, start, duration),
    ):
        for name, (kernels, time) in found.items():
            totals[name] = totals[name][0] + kernels, totals[name][1] + time
    names = sorted(calls, key=lambda name: first[name])
    return tuple(MarkedRange(name, calls[name], totals[name][0], totals[name][1] / 1000) for name in names)


def _launches_of(launches: Launches, work: Work) -> tuple[Any, Any]:
    """Which kernels have a launch (a mask), and the index of the launch of each of those.

    Processes count their launches each for itself: in a trace that was merged of several, a number that two of them
    have does not tell which launched a kernel, and counts as none.
    """
    import numpy

    wanted, offered = numpy.asarray(work.correlation), numpy.asarray(launches.correlation)
    if not len(offered):
        return numpy.zeros(len(wanted), dtype=bool), numpy.zeros(0, dtype=int)
    order = numpy.argsort(offered, kind="stable")
    offered = offered[order]
    found = numpy.searchsorted(offered, wanted)
    numpy.minimum(found, len(offered) - 1, out=found)
    known = offered[found] == wanted
    number: dict[Any, int] = {}
    process_of = numpy.array([number.setdefault(process, len(number)) for process, _ in launches.places])
    if len(number) > 1:
        process = process_of[numpy.asarray(launches.place)[order]]
        changes = (offered[1:] == offered[:-1]) & (process[1:] != process[:-1])
        known &= ~numpy.isin(wanted, offered[1:][changes])
    return known, order[found[known]]


def _totals(ranges: Ranges, places: dict[Place, int], place: Any, time: Any, duration: Any) -> dict[str, Total]:
    """Number and time of the kernels whose `place` and `time` are within the ranges, by name of the range."""
    import numpy

    if not ranges.spans:
        return {}
    order = numpy.lexsort((time, place))
    place, time = place[order], time[order]
    # Number and time of any stretch of them are differences of two sums.
    sums = numpy.zeros(len(order) + 1)
    numpy.cumsum(duration[order], out=sums[1:])
    del order
    totals: dict[str, Total] = {}
    for (where, name), (starts, ends) in ranges.spans.items():
        if where not in places:
            continue
        low, high = numpy.searchsorted(place, [places[where], places[where] + 1])
        edges = _merged(numpy.asarray(starts), numpy.asarray(ends))
        begin, end = (low + numpy.searchsorted(time[low:high], edge) for edge in edges)
        kernels, total = totals.get(name, (0, 0.0))
        totals[name] = kernels + int((end - begin).sum()), total + float((sums[end] - sums[begin]).sum())
    return totals


def _merged(starts: Any, ends: Any) -> tuple[Any, Any]:
    """The ranges without what an earlier one of them covers."""
    import numpy

    order = numpy.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    reached = numpy.maximum.accumulate(ends)
    starts[1:] = numpy.maximum(starts[1:], reached[:-1])
    return starts, numpy.maximum(starts, ends)
