"""Reads a Chrome trace of torch.profiler (Kineto) into rows of the kernel table.

Format: Trace Event Format, complete events ("ph": "X"), `ts` and `dur` in microseconds.
"""

import gzip
import json
import zlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from meddpm.config import UserError
from meddpm.profiling.taxonomy import classify
from meddpm.tables import Row

# Event categories, in lower case. PyTorch before 1.11 wrote Kernel, Memcpy, Memset and Operator.
GPU_EVENTS = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"})
CPU_EVENTS = frozenset({"cpu_op", "operator"})
PROFILER_RANGES = ("ProfilerStep#", "PyTorch Profiler", "profiler::")

Event = dict[str, Any]


def kernel_rows(trace: Path | str) -> list[Row]:
    """Rows {kernel, category, precision, launch, calls, time_ms, share} of one trace, longest time first.

    Where the trace has GPU events, a row is a kernel and launch configuration, a copy or a fill, over all devices;
    `launch` is "(x,y,z)x(x,y,z)", grid and block, and None for copies and fills. Else a row is a CPU operator with its
    self time: its time without that of the operators it calls. The profiler's own ranges are left out. `share` is the
    part of the time of all rows, 0 to 1; None where no time passed.

    `trace` is a .json or .json.gz file. Raises UserError where it cannot be read or holds no events.
    """
    events = [event for event in _load(Path(trace)) if _is_complete(event)]
    gpu = [event for event in events if _category(event) in GPU_EVENTS]
    if gpu:
        timed = [(event["name"], _launch(event), float(event["dur"])) for event in gpu]
    else:
        operators = [event for event in events if _category(event) in CPU_EVENTS]
        timed = [(name, None, time) for name, time in self_times(operators) if not name.startswith(PROFILER_RANGES)]
    if not timed:
        raise UserError(f"{trace}: the trace has no events of kernels or operators; profile again")

    times: dict[tuple[str, str | None], list[float]] = defaultdict(list)
    for name, launch, time in timed:
        times[name, launch].append(time)
    total = sum(time for _, _, time in timed)
    rows = []
    for (name, launch), durations in times.items():
        category, precision = classify(name)
        time = sum(durations)
        rows.append(
            {
                "kernel": name,
                "category": category,
                "precision": precision,
                "launch": launch,
                "calls": len(durations),
                "time_ms": time / 1000,
                "share": time / total if total else None,
            }
        )
    return sorted(rows, key=lambda row: -row["time_ms"])


def self_times(operators: Iterable[Event]) -> list[tuple[str, float]]:
    """(name, self time in microseconds) of each CPU operator: its duration less that of its direct children.

    Ranges on one thread nest; a range that begins while another is open is its child. Old traces have whole
    microseconds, so that a child may end after its parent: what sticks out is not the parent's to give.
    """
    threads: dict[tuple[Any, Any], list[Event]] = defaultdict(list)
    for event in operators:
        threads[event.get("pid"), event.get("tid")].append(event)

    result = []
    for events in threads.values():
        # Of two that begin together, the longer is the parent.
        events.sort(key=lambda event: (event["ts"], -event["dur"]))
        own = [float(event["dur"]) for event in events]
        open_ranges: list[tuple[int, float]] = []
        for index, event in enumerate(events):
            start, end = event["ts"], event["ts"] + event["dur"]
            while open_ranges and open_ranges[-1][1] <= start:
                open_ranges.pop()
            if open_ranges:
                parent, parent_end = open_ranges[-1]
                own[parent] -= min(end, parent_end) - start
            open_ranges.append((index, end))
        # Rounding of the time stamps may leave a hair less than nothing.
        result += [(event["name"], max(time, 0.0)) for event, time in zip(events, own, strict=True)]
    return result


def _load(trace: Path) -> list[Any]:
    """The events of a trace file, whatever they are."""
    try:
        content = trace.read_bytes()
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
    except EOFError:
        raise UserError(f"{trace}: the trace is truncated; profile again") from None
    except (OSError, zlib.error) as error:
        raise UserError(f"{trace}: the trace cannot be read: {error}") from None
    content = content.strip()
    if not content:
        raise UserError(f"{trace}: the trace is empty; profile again")
    if not content.startswith((b"{", b"[")):
        raise UserError(f"{trace}: the file is no JSON; name a Chrome trace of torch.profiler (.json or .json.gz)")
    try:
        # Not strict: names of kernels and of ranges may hold control characters.
        document = json.loads(content, strict=False)
    except ValueError as error:
        closed = content.endswith((b"}", b"]"))
        what = f"the trace is no valid JSON ({error})" if closed else "the trace is truncated"
        raise UserError(f"{trace}: {what}; profile again") from None
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list) or not events:
        raise UserError(f"{trace}: the file has no traceEvents; name a Chrome trace of torch.profiler")
    return events


def _is_complete(event: Any) -> bool:
    """Whether this is a range with a name, a start and a duration."""
    return (
        isinstance(event, dict)
        and event.get("ph") == "X"
        and isinstance(event.get("name"), str)
        and all(isinstance(event.get(key), int | float) for key in ("ts", "dur"))
    )


def _category(event: Event) -> str:
    return str(event.get("cat", "")).lower()


def _launch(event: Event) -> str | None:
    """Grid and block of a kernel as "(x,y,z)x(x,y,z)"; None where the trace does not say."""
    arguments = event.get("args")
    if not isinstance(arguments, dict):
        return None
    grid, block = arguments.get("grid"), arguments.get("block")
    if not (isinstance(grid, list) and isinstance(block, list)):
        return None
    return "x".join("(" + ",".join(str(size) for size in sizes) + ")" for sizes in (grid, block))
