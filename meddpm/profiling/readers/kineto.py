"""Reads a Chrome trace of torch.profiler (Kineto): kernels, how busy the GPU was, and the ranges that were marked.

Complete events ("ph": "X") count, with `ts` and `dur` in microseconds; pairs of begin and end ("B", "E") are not read.
A 2 GB file takes far less memory than that: of each event a few numbers stay.
"""

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from meddpm.config import UserError
from meddpm.profiling.readers import chrome_trace, kineto_ranges
from meddpm.profiling.trace import Kernel, Occupied, Trace, occupied
from meddpm.words import counted, one_line

# What an event is, by its category in lower case. PyTorch before 1.11 wrote Kernel, Memcpy, Memset, Operator, Runtime.
GPU, OPERATOR, LAUNCH, RANGE, GPU_RANGE = "gpu", "operator", "launch", "range", "gpu range"
KINDS = {
    **dict.fromkeys(("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"), GPU),
    **dict.fromkeys(("cpu_op", "operator"), OPERATOR),
    "user_annotation": RANGE,
    "gpu_user_annotation": GPU_RANGE,
}
LAUNCHERS = ("runtime", "driver")  # cuda_runtime, cuda_driver, xpu_runtime ...
# PyTorch's exporter before Kineto has no categories, but these processes.
PROCESSES = {"CUDA functions": GPU, "CPU functions": OPERATOR}
PROFILER_RANGES = ("ProfilerStep#", "PyTorch Profiler", "profiler::")

# Microseconds, of a duration and from zero. An end before the start, written without its sign as old writers did, looks
# longer than this.
LONGEST = 2.0**63 / 1000

Event = dict[str, Any]


def read(path: Path | str) -> Trace:
    """What a trace file, .json or .json.gz, holds.

    Where it has GPU events, `kernels` are kernels by launch shape, copies and fills, over all devices; else CPU
    operators with their self time: their time without that of the operators they call. The profiler's own ranges are
    left out.

    Raises UserError where the file cannot be read, is truncated, or holds neither GPU events nor operators.
    """
    path = Path(path)
    found = chrome_trace.read(path, _Found)
    notes = found.notes()
    if found.kernels:
        gpus = found.gpus()
        (process, device), busiest = found.busiest(gpus)
        if len(gpus) > 1:
            of = f" of process {process}" if sum(own == device for _, own in gpus) > 1 else ""
            which = one_line(f"{device}{of}")
            notes.append(f"kernels of {len(gpus)} devices are summed; how busy the GPU was is that of device {which}")
        processes = {process for process, _ in found.launches.places}
        if len(processes) > 1 and found.ranges.spans:
            notes.append(
                f"launches of {len(processes)} processes: of a number that two of them have no kernel is known"
            )
        return Trace(
            "torch",
            _longest_first(found.kernels),
            on_gpu=True,
            occupied=busiest,
            ranges=kineto_ranges.marked(found.launches, found.work, found.ranges, found.gpu_ranges, found.gradients),
            device=found.device_name(device),
            notes=tuple(notes),
        )
    operators: dict[tuple[str, None], list[float]] = {}
    for name, time in found.operators.self_times():
        if not name.startswith(PROFILER_RANGES):
            _count(operators, (name, None), time)
    if not operators:
        why = "".join(f"; {note}" for note in notes)
        raise UserError(f"{path}: the trace has no events of kernels or operators{why}; profile again")
    if found.launched:
        notes.append("the trace has launches of kernels but no kernels: another profiler may have held the GPU")
    return Trace("torch", _longest_first(operators), on_gpu=False, notes=tuple(notes))


def self_times(operators: Iterable[Event]) -> list[tuple[str, float]]:
    """(name, self time in microseconds) of each CPU operator: its duration less that of its direct children.

    Ranges on one thread nest; a range that begins while another is open is its child. Old traces have whole
    microseconds, so that a child may end after its parent: what sticks out is not the parent's to give.
    """
    found = _Operators()
    for event in operators:
        found.add((event.get("pid"), event.get("tid")), event["name"], float(event["ts"]), float(event["dur"]))
    return list(found.self_times())


class _Operators:
    """CPU operators: a number for the name, start and duration of each, by thread."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.threads: dict[Any, tuple[array, array, array]] = {}

    def add(self, thread: Any, name: str, start: float, duration: float) -> None:
        """One operator; times in microseconds."""
        if thread not in self.threads:
            self.threads[thread] = array("i"), array("d"), array("d")
        names, starts, durations = self.threads[thread]
        names.append(self.names.setdefault(name, len(self.names)))
        starts.append(start)
        durations.append(duration)

    def self_times(self) -> Iterator[tuple[str, float]]:
        """As the function of that name says."""
        words = list(self.names)
        for names, starts, durations in self.threads.values():
            for name, time in zip(names, _own(starts, durations), strict=True):
                # Rounding of the time stamps may leave a hair less than nothing.
                yield words[name], max(time, 0.0)


def _own(starts: Sequence[float], durations: Sequence[float]) -> Sequence[float]:
    """The durations of nested ranges of one thread, each without those of its direct children."""
    import numpy

    own = array("d", durations)
    open_ranges: list[tuple[int, float]] = []
    # Of two that begin together, the longer is the parent.
    for index in numpy.lexsort((-numpy.asarray(durations), numpy.asarray(starts))):
        start, end = starts[index], starts[index] + durations[index]
        while open_ranges and open_ranges[-1][1] <= start:
            open_ranges.pop()
        if open_ranges:
            parent, parent_end = open_ranges[-1]
            own[parent] -= min(end, parent_end) - start
        open_ranges.append((index, end))
    return own


class _Found:
    """What is kept of the events of a file."""

    def __init__(self) -> None:
        self.devices: list[Any] = []
        self.unclosed = False
        self.kernels: dict[tuple[str, str | None], list[float]] = {}
        self.operators = _Operators()
        self.launches, self.work = kineto_ranges.Launches(), kineto_ranges.Work()
        self.ranges, self.gpu_ranges = kineto_ranges.Ranges(), kineto_ranges.Ranges()
        self.gradients = kineto_ranges.Gradients()
        # Process and device of the work, by number in the order of their first event: a trace that was merged of
        # several processes may have GPUs that each knew as the first. None is a device that the event does not name.
        self.devices_seen: dict[tuple[Any, Any], int] = {}
        self.work_device = array("i")
        self.pairs = self.untimed = 0
        self.launched = False

    def add(self, event: Any) -> None:
        """Keep what counts of one event."""
        if not isinstance(event, dict):
            return
        if event.get("ph") != "X":
            self.pairs += event.get("ph") in ("B", "E")
            return
        name, kind = event.get("name"), _kind(event)
        if kind is None or not isinstance(name, str):
            return
        start, duration = _number(event.get("ts")), _number(event.get("dur"))
        if start is None or duration is None or not (abs(start) < LONGEST and 0 <= duration < LONGEST):
            self.untimed += 1
            return
        place = _plain(event.get("pid")), _plain(event.get("tid"))
        if kind == OPERATOR:
            if not self.kernels:  # they count only where there is no GPU work
                self.operators.add(place, name, start, duration)
            self._sequence(event.get("args"), place, start, duration)
            return
        if kind in (RANGE, GPU_RANGE):
            if not name.startswith(PROFILER_RANGES):
                (self.ranges if kind == RANGE else self.gpu_ranges).add(place, name, start, start + duration)
            return
        arguments = event.get("args")
        if not isinstance(arguments, dict):
            arguments = {}
        correlation = _whole(arguments.get("correlation"))
        if kind == LAUNCH:
            self.launched = self.launched or "launch" in name.lower()
            if correlation:
                self.launches.add(correlation, place, start)
            return
        if not self.kernels:
            self.operators = _Operators()
        _count(self.kernels, (name, _launch(arguments)), duration)
        self.work.add(correlation, place, start, duration)
        device = arguments.get("device")
        key = place[0], None if device is None else _plain(device)
        self.work_device.append(self.devices_seen.setdefault(key, len(self.devices_seen)))

    def _sequence(self, arguments: Any, place: tuple[Any, Any], start: float, duration: float) -> None:
        """Keep what joins an operator of the forward pass and those that give its gradient: their sequence number."""
        number = _number(arguments.get("Sequence number")) if isinstance(arguments, dict) else None
        if number is None or not 0 <= number < LONGEST:
            return
        # Of an operator of the forward pass the thread that it is the gradient of is none, 0.
        if _whole(arguments.get("Fwd thread id")):
            self.gradients.backward.add(int(number), place, start, duration)
        else:
            self.gradients.forward.add(int(number), place, start)

    def gpus(self) -> dict[tuple[Any, Any], list[int]]:
        """The numbers of each GPU, by process and device."""
        found = {key: [number] for key, number in self.devices_seen.items() if key[1] is not None}
        own: dict[Any, list[Any]] = {}
        for process, device in found:
            own.setdefault(process, []).append(device)
        for (process, device), number in self.devices_seen.items():
            if device is None:
                # Work that names no device is of the one of its process; without it, the process is the device.
                known = own.get(process, [])
                found.setdefault((process, known[0] if len(known) == 1 else process), []).append(number)
        return found

    def busiest(self, gpus: dict[tuple[Any, Any], list[int]]) -> tuple[tuple[Any, Any], Occupied | None]:
        """The GPU that was busy longest, as (process, device), and how busy it was."""
        import numpy

        best: tuple[tuple[Any, Any], Occupied | None] = (None, None), None
        starts = numpy.array(self.work.start)
        # From whole nanoseconds since the first start, lest rounding of long time stamps makes gaps. In place, as there
        # may be millions.
        starts -= numpy.floor(starts.min())
        starts *= 1000
        numpy.rint(starts, out=starts)
        ends = numpy.array(self.work.duration)
        ends *= 1000
        numpy.rint(ends, out=ends)
        ends += starts
        starts /= 1e6
        ends /= 1e6
        order, edges = slice(None), [0, len(starts)]
        if len(gpus) > 1:
            gpu_of = numpy.zeros(len(self.devices_seen), dtype=numpy.int32)
            for place, numbers in enumerate(gpus.values()):
                gpu_of[numbers] = place
            gpu_of = gpu_of[numpy.asarray(self.work_device)]
            order = numpy.argsort(gpu_of, kind="stable")
            edges = numpy.searchsorted(gpu_of[order], numpy.arange(len(gpus) + 1))
        starts, ends = starts[order], ends[order]
        for key, low, high in zip(gpus, edges[:-1], edges[1:], strict=True):
            found = occupied(starts[low:high], ends[low:high])
            if found and (best[1] is None or found.busy_ms > best[1].busy_ms):
                best = key, found
        return best

    def device_name(self, device: Any) -> str | None:
        """The name of a device, or that of all of them where they have but one."""
        known = [entry for entry in self.devices if isinstance(entry, dict) and isinstance(entry.get("name"), str)]
        own = [entry["name"] for entry in known if str(entry.get("id")) == str(device)]
        names = set(own) or {entry["name"] for entry in known}
        return names.pop() if len(names) == 1 else None

    def notes(self) -> list[str]:
        """What was left out of the file."""
        notes = []
        if self.unclosed:
            notes.append("the list of events has no closing bracket: events may be missing")
        if self.pairs:
            notes.append(_left_out(self.pairs, "in pairs of begin and end (B, E)"))
        if self.untimed:
            notes.append(_left_out(self.untimed, "without a start or a duration"))
        return notes


def _left_out(number: int, which: str) -> str:
    return f"{counted(number, 'event')} {which} {'is' if number == 1 else 'are'} left out"


def _count(times: dict[Any, list[float]], key: Any, time: float) -> None:
    """One call more of a kernel."""
    entry = times.get(key)
    if entry is None:
        times[key] = [1, time]
    else:
        entry[0] += 1
        entry[1] += time


def _longest_first(times: dict[tuple[str, Any], list[float]]) -> tuple[Kernel, ...]:
    kernels = [Kernel(name, launch, int(calls), time / 1000) for (name, launch), (calls, time) in times.items()]
    return tuple(sorted(kernels, key=lambda kernel: -kernel.time_ms))


def _kind(event: Event) -> str | None:
    category = event.get("cat")
    if isinstance(category, str) and category:
        return _kind_of_category(category)
    process, name, arguments = event.get("pid"), event.get("name"), event.get("args")
    if isinstance(process, str) and process in PROCESSES:
        return PROCESSES[process]
    if isinstance(arguments, dict) and ("grid" in arguments or {"stream", "bytes"} <= arguments.keys()):
        return GPU
    return OPERATOR if isinstance(name, str) and name.startswith("aten::") else None


@cache
def _kind_of_category(categories: str) -> str | None:
    """The kind of an event by its category; the format allows several, with commas between."""
    for category in categories.lower().split(","):
        if category.strip() in KINDS:
            return KINDS[category.strip()]
        if category.strip().endswith(LAUNCHERS):
            return LAUNCH
    return None


def _number(value: Any) -> float | None:
    """A finite number, which some writers quote."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _whole(value: Any) -> int:
    """A whole number that fits 64 bits; 0 where it is none."""
    number = _number(value)
    return int(number) if number is not None and abs(number) < 2.0**63 else 0


def _plain(value: Any) -> Any:
    """A number or text for a process, thread or device, whatever the file has there."""
    return value if isinstance(value, int | str) else str(value)


def _launch(arguments: Event) -> str | None:
    """Grid and block of a kernel as "(x,y,z)x(x,y,z)"; None where the trace does not say."""
    grid, block = arguments.get("grid"), arguments.get("block")
    if not (isinstance(grid, list) and isinstance(block, list)):
        return None
    return "x".join("(" + ",".join(str(size) for size in sizes) + ")" for sizes in (grid, block))
