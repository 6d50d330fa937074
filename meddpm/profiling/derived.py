"""What follows from a trace: how idle the GPU was, how many kernels a step has, how near it came to its ceilings."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from meddpm.profiling import ceilings, proof, trace
from meddpm.profiling.counters import TOTAL
from meddpm.profiling.trace import Trace
from meddpm.tables import Row

TENSOR_CORES = ("tf32", "bf16", "fp16", "fp8")
PERCENT = 100


def record(seen: Trace) -> dict[str, Any]:
    """What a trace holds beside its kernels, for a file of its own."""
    ranges = [
        {"range": each.name, "calls": each.calls, "kernels": each.kernels, "time_ms": each.time_ms}
        for each in seen.ranges
    ]
    return {"device": seen.device, "notes": list(seen.notes), "ranges": ranges}


def rows(seen: Trace, steps: int, operations: int, limits: Mapping[str, float]) -> list[Row]:
    """Rows {scope, metric, value, unit} of the counters table from a trace of `steps` steps.

    `operations` are the floating-point operations of one step, `limits` the ceilings of the device (`ceilings.measure`;
    empty where none were measured). A figure that the trace cannot give is left out. The scope is "total",
    "category:NAME" (share and time) or "range:NAME" (a range that was marked in the network).

    The trace is of a profiled run: shares, counts and kernel times hold, the time of the whole step is a little longer
    than that of a timed one, so that idle share and FLOP utilisation are those of the profiled run.
    """
    kernels = trace.rows(seen)
    what = "kernel" if seen.on_gpu else "operator"
    time_ms = sum(row["time_ms"] for row in kernels)
    found = [
        _row(f"{what}s a step", sum(row["calls"] for row in kernels) / steps, what),
        _row(f"{what} time a step", time_ms / steps, "ms"),
        _row("FLOP a step", operations, "FLOP"),
    ]
    by_category: dict[str, float] = defaultdict(float)
    for row in kernels:
        by_category[row["category"]] += row["time_ms"]
    for name, time in sorted(by_category.items(), key=lambda part: -part[1]):
        scope = f"category:{name}"
        found.append(_row(f"{what} time a step", time / steps, "ms", scope))
        if time_ms:
            found.append(_row(f"share of {what} time", PERCENT * time / time_ms, "%", scope))
    for each in seen.ranges:
        found.append(_row(f"{what} time a step", each.time_ms / steps, "ms", f"range:{each.name}"))
    if not seen.on_gpu:
        return found

    found.append(_row("share of layout conversions", PERCENT * _part(by_category, ("layout conversion",)), "%"))
    found.append(_row("share of copies and casts", PERCENT * _part(by_category, ("copy and cast",)), "%"))
    precisions = _convolution_precisions(kernels)
    convolving = sum(precisions.values())
    if convolving:
        on_tensor_cores = sum(precisions.get(name, 0.0) for name in TENSOR_CORES)
        found.append(_row("tensor-core share of convolution time", PERCENT * on_tensor_cores / convolving, "%"))
    busy = seen.occupied
    if busy and busy.span_ms:
        found += [
            _row("step time under the profiler", busy.span_ms / steps, "ms"),
            _row("idle share", PERCENT * (1 - busy.busy_ms / busy.span_ms), "%"),
            _row("launch gaps a step", busy.gaps / steps, "gap"),
            _row("median launch gap", busy.gap_ms_median * 1000, "us"),
            _row("longest launch gap", busy.gap_ms_longest * 1000, "us"),
        ]
        rate = operations * steps / (busy.span_ms / 1000)
        found.append(_row("achieved", rate / 1e12, "TFLOP/s"))
        most = max(precisions, key=lambda name: precisions[name], default=None)
        if most in limits:
            found.append(_row(f"FLOP utilisation of the {most} ceiling", PERCENT * rate / limits[most], "%"))
    for name, limit in limits.items():
        unit, scale = ("TB/s", 1e12) if name == ceilings.COPY else ("TFLOP/s", 1e12)
        found.append(_row(f"ceiling, {name}", limit / scale, unit))
    return found


def _row(metric: str, value: float, unit: str, scope: str = TOTAL) -> Row:
    return {"scope": scope, "metric": metric, "value": value, "unit": unit}


def _part(times: Mapping[str, float], names: tuple[str, ...]) -> float:
    total = sum(times.values())
    return sum(times.get(name, 0.0) for name in names) / total if total else 0.0


def _convolution_precisions(kernels: list[Row]) -> dict[str, float]:
    """The time of convolution kernels by precision; those whose name does not tell under ""."""
    times: dict[str, float] = defaultdict(float)
    for row in kernels:
        if row["category"] in proof.CONVOLUTIONS:
            times[row["precision"] or ""] += row["time_ms"]
    return times
