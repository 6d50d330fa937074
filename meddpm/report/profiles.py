"""The words and cells of the page that tell where the time goes, and of the paper's claims: text, escaped later."""

import re
from collections.abc import Callable
from typing import Any

from meddpm.profiling import counters as counters_of_ncu
from meddpm.profiling import roofline
from meddpm.report import numbers, style
from meddpm.report.rows import unique
from meddpm.status import OK
from meddpm.tables import Row

IN_WORDS = {"sample": "sampling", "train": "training"}
VERDICTS = ("reproduced", "not reproduced", "not tested")
TOP = 5
ADVICE = 220
KERNEL = 90
LEAST_IDLE = 0.005
LEAST = 0.005  # share of the time of a category that the roofline shows
# Units of the table of counters, each as so many of another.
SHOWN_IN = {"byte": ("GB", 1e9), "ns": ("ms", 1e6)}
UTILISATION = re.compile(r"FLOP utilisation of the (.+) ceiling")
KERNELS, IDLE, SPAN = "kernels a step", "idle share", "step time under the profiler"
PROFILED = "under the profiler"
PROFILED_BATCH = 1  # see meddpm.stages.measured_step
# Columns of the table of figures: heading, and metrics in percent that add up. PyTorch converts layouts by copies,
# cuDNN by kernels that are named for it.
SHARES = (
    ("Layout conversions and copies", ("share of layout conversions", "share of copies and casts")),
    ("Convolution time on tensor cores", ("tensor-core share of convolution time",)),
)


def claim_groups(claims: list[Row]) -> list[dict[str, Any]]:
    """The claims by model and GPU, in the order of the table, with a count of the verdicts."""
    grouped: dict[tuple[str, str], list[Row]] = {}
    for row in claims:
        grouped.setdefault((row["model"], row["gpu"]), []).append(row)
    found = []
    for (model, gpu), rows in grouped.items():
        counts = [(sum(row["verdict"] == verdict for row in rows), verdict) for verdict in VERDICTS]
        cells = [{**row, "lines": (row["measured"] or "").split(". ") if row["measured"] else []} for row in rows]
        counted = numbers.listed([f"{count} {verdict}" for count, verdict in counts if count])
        tested = any(row["verdict"] != VERDICTS[-1] for row in rows)
        found.append({"model": model, "gpu": gpu, "counts": counted, "rows": cells, "tested": tested})
    return found


def figure_rows(counters: list[Row], timing: list[Row]) -> list[dict[str, Any]]:
    """The key figures of each cell on a GPU, a row a variant and phase; empty where no cell has one of them.

    A figure is (heading, value, what stands below). A profiler makes launches take longer, and a network of short
    kernels idle: where the cell was timed, idle share and FLOP utilisation are those of the timed step. A cell without
    figures is a row with its status and reason.
    """
    steps = {
        _cell(row): row["step_ms_median"] for row in timing if row["status"] == OK and row["batch"] == PROFILED_BATCH
    }
    found = []
    for (model, gpu, variant, phase), rows in _by_cell(counters).items():
        total = _figures(rows).get("total", {})
        utilised = {match[1]: total[name] for name in total if (match := UTILISATION.fullmatch(name))}
        has_some = bool(utilised) or KERNELS in total or IDLE in total
        lost = next((row for row in rows if row["status"] != OK), None)
        if not has_some and lost is None:
            continue  # operators of a CPU
        step = steps.get((model, gpu, variant, phase))
        longer = total[SPAN] / step if step and SPAN in total else None
        found.append(
            {
                "where": _where(model, gpu, phase),
                "variant": variant,
                "figures": [
                    ("Kernels a step", _count(total.get(KERNELS)), ""),
                    ("GPU idle", *_idle(total.get(IDLE), longer)),
                    *((heading, numbers.percent(_part(_sum(total, metrics))), "") for heading, metrics in SHARES),
                    ("FLOP utilisation", *_utilisation(utilised, longer)),
                ],
                "ran": has_some,
                "status": OK if has_some or lost is None else lost["status"],
                "reason": None if has_some or lost is None else lost["reason"],
            }
        )
    return found if any(row["ran"] for row in found) else []


def _idle(percent: float | None, longer: float | None) -> tuple[str, str]:
    """The idle share of a step, and the one under a profiler, where a step takes `longer` times as long."""
    profiled = numbers.percent(_part(percent))
    if percent is None or longer is None:
        return profiled, "" if percent is None else PROFILED
    idle = 1 - (1 - percent / 100) * longer
    # The kernels of two runs differ by so much: less says nothing.
    return numbers.percent(idle) if idle >= LEAST_IDLE else f"< {numbers.percent(LEAST_IDLE)}", f"{profiled} {PROFILED}"


def _utilisation(of_ceilings: dict[str, float], longer: float | None) -> tuple[str, str]:
    if not of_ceilings:
        return numbers.NOT_MEASURED, ""
    ceiling, percent = next(iter(of_ceilings.items()))
    below = f"of the {ceiling} ceiling"
    if longer is None:
        return numbers.percent(_part(percent)), f"{below}, {PROFILED}"
    return numbers.percent(_part(percent * longer)), below


def counter_groups(counters: list[Row]) -> list[dict[str, Any]]:
    """What Nsight Compute counted in a step, in total, a table a model, GPU and phase: variants side by side.

    Variants and figures that were not counted have no column and no row.
    """
    tables: dict[str, dict[str, dict[str, float]]] = {}
    for (model, gpu, variant, phase), rows in _by_cell(counters).items():
        total = _figures(rows).get("total", {})
        if any(counter.name in total for counter in counters_of_ncu.counters()):
            tables.setdefault(_where(model, gpu, phase), {})[variant] = total
    return [
        {"where": where, "variants": list(totals), "groups": _by_group(list(totals.values()))}
        for where, totals in tables.items()
    ]


def _by_group(totals: list[dict[str, float]]) -> dict[str, list[dict[str, Any]]]:
    """The rows of a table of counters, by the group that counters.yaml gives each figure."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for counter in counters_of_ncu.counters():
        unit, size = SHOWN_IN.get(counter.unit, (counter.unit, 1))
        values = [total.get(counter.name) for total in totals]
        if any(value is not None for value in values):
            cells = [numbers.amount(None if value is None else value / size) for value in values]
            groups.setdefault(counter.group, []).append({"what": counter.name, "unit": unit, "cells": cells})
    return groups


def roof_groups(counters: list[Row]) -> list[dict[str, Any]]:
    """How near the kernels of each cell that was counted come to the ceilings: in total and by category, by time."""
    limits = roofline.limits(counters)
    found = []
    for (model, gpu, variant, phase), rows in _by_cell(counters).items():
        scopes = _figures(rows)
        shown = [scope for scope in scopes if scope == "total" or scope.startswith("category:")]
        places = [roofline.placed(scope, scopes[scope], limits.get(gpu, {})) for scope in shown]
        there = sorted((place for place in places if place), key=lambda place: (place.scope != "total", -place.time_ns))
        if there and there[0].scope == "total":
            cells = [_roof_row(place, there[0].time_ns) for place in there]
            found.append({"where": _where(model, gpu, phase), "variant": variant, "rows": list(filter(None, cells))})
    return found


def _roof_row(place: roofline.Placed, total_ns: float) -> dict[str, Any] | None:
    """The cells of one scope; None where it has too little of the time to matter."""
    if place.time_ns < LEAST * total_ns:
        return None
    return {
        "what": "all kernels" if place.scope == "total" else place.scope.removeprefix("category:"),
        "cells": [
            ("Share of the time", numbers.percent(place.time_ns / total_ns)),
            ("FLOP a byte", numbers.number(place.intensity)),
            ("TFLOP/s", numbers.number(place.rate / roofline.TERA)),
            ("DRAM, TB/s", numbers.number(place.traffic / roofline.TERA)),
            ("Of the arithmetic ceiling", numbers.percent(place.compute)),
            ("Of the copy ceiling", numbers.percent(place.memory)),
        ],
        "bound": place.bound,
    }


def priority_groups(priorities: list[Row]) -> list[dict[str, Any]]:
    """What to fix first, the first few of each variant and phase."""
    found = []
    for (model, gpu, variant, phase), rows in _by_cell(priorities).items():
        ranked = sorted((row for row in rows if row["status"] == OK), key=lambda row: row["rank"] or 0)
        cells = [
            {
                **row,
                "short": style.shortened(row["kernel"], KERNEL),
                "share": numbers.percent(row["share"]),
                "score": numbers.percent(_part(row["score_pct"])),
                "advice": one_sentence(row["advice"] or ""),
            }
            for row in ranked[:TOP]
        ]
        if cells:
            more = len(ranked) - len(cells)
            found.append({"where": _where(model, gpu, phase), "variant": variant, "rows": cells, "more": more})
    return found


def not_counted(priorities: list[Row]) -> list[str]:
    """The cells that have no advice, by the reason: a text each."""
    return _by_cause(priorities, lambda row: f"{row['variant']} {IN_WORDS[row['phase']]}")


def not_profiled(kernels: list[Row]) -> list[str]:
    """The cells of one model, GPU and phase that have no kernels, by profiler and reason: a text each."""
    profilers = unique(row["profiler"] for row in kernels)
    return [
        text
        for profiler in profilers
        for text in _by_cause(
            [row for row in kernels if row["profiler"] == profiler], lambda row: row["variant"], f" by {profiler}"
        )
    ]


def _by_cause(rows: list[Row], name: Callable[[Row], str], how: str = "") -> list[str]:
    causes: dict[str, list[str]] = {}
    for row in rows:
        if row["status"] != OK:
            cause = f"{row['status']}: {row['reason']}" if row["reason"] else row["status"]
            causes.setdefault(cause, []).append(name(row))
    return [f"{numbers.listed(unique(cells))}{how} ({cause})" for cause, cells in causes.items()]


def one_sentence(advice: str) -> str:
    """The first sentence, cut after a number of letters; a point within a number or a name ends none."""
    text = " ".join(advice.split())
    return style.shortened(re.split(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)\s+(?=[A-Z@])", text, maxsplit=1)[0], ADVICE)


def _where(model: str, gpu: str, phase: str) -> str:
    return f"{model} on {gpu}, {IN_WORDS[phase]}"


def _figures(rows: list[Row]) -> dict[str, dict[str, float]]:
    """What was measured of a cell, by scope and metric."""
    scopes: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["status"] == OK and not numbers.missing(row["value"]):
            scopes.setdefault(row["scope"], {})[row["metric"]] = row["value"]
    return scopes


def _cell(row: Row) -> tuple[str, str, str, str]:
    return row["model"], row["gpu"], row["variant"], row["phase"]


def _by_cell(rows: list[Row]) -> dict[tuple[str, str, str, str], list[Row]]:
    cells: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        cells.setdefault(_cell(row), []).append(row)
    return cells


def _sum(figures: dict[str, float], names: tuple[str, ...]) -> float | None:
    return sum(figures[name] for name in names) if all(name in figures for name in names) else None


def _part(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _count(value: float | None) -> str:
    return numbers.NOT_MEASURED if value is None else f"{value:,.0f}"
