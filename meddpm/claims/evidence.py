"""The figures that a claim rests on, found in the published tables; and why one is not there."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from meddpm.claims.rules import ABOVE, AT_LEAST, CHANGE, DIFFERENCE, RATIO, REDUCTION, VALUE, Part, matches
from meddpm.report import numbers, rows
from meddpm.status import OK, UNAVAILABLE, UNSUPPORTED
from meddpm.tables import Row

Tables = Mapping[str, list[Row]]
# The first that saw both variants is believed: all see the same kernels.
PROFILERS = ("torch", "nsys", "ncu")
ON_A_CPU = "a CPU has operators, and no kernels of a GPU"


class Cell(NamedTuple):
    """What was measured together."""

    model: str
    gpu: str
    variant: str
    phase: str


@dataclass(frozen=True)
class Figure:
    """A figure and the rows that it comes from.

    `note` says more of it, as the operator that it is of. `unknown` is what may belong to it: kernels whose name does
    not tell.
    """

    value: float
    rows: tuple[tuple[str, Row], ...]
    note: str = ""
    unknown: float = 0.0


@dataclass(frozen=True)
class Compared:
    """The figure that is held against the bound, and those of both variants where two were compared."""

    figure: Figure
    before: float | None = None
    after: float | None = None


class NotThere(Exception):
    """A figure that is not there: the cell, and status and cause as a row of the claims has them."""

    def __init__(self, cell: Cell, status: str, cause: str) -> None:
        super().__init__(cause)
        self.cell, self.status, self.cause = cell, status, cause


def compared(part: Part, tables: Tables, cell: Cell, against: str | None) -> Compared:
    """The figure of `part` for `cell`, where it asks for it with that of the variant `against`. Raises NotThere."""
    if part.how == VALUE:
        return Compared(_figure(part, tables, cell))
    other = cell._replace(variant=against)
    profiler = _common_profiler(tables, cell, other) if part.table == "kernels" else None
    if part.table == "counters" and part.scope.endswith("*"):
        return _most(part, tables, cell, other)
    return _of_two(part, _figure(part, tables, other, profiler), _figure(part, tables, cell, profiler), cell)


def device_name(tables: Tables, model: str, gpu: str) -> str | None:
    """The name of a device as its driver gives it: of where it was timed, or else of where anything ran."""
    both = [*tables["timing"], *tables["environment"]]
    names = (row["device_name"] for row in both if (row["model"], row["gpu"]) == (model, gpu))
    return next(filter(None, names), None)


def rows_of(table: Iterable[Row], cell: Cell) -> list[Row]:
    """The rows of a cell."""
    model, gpu, variant, phase = cell
    # Written out: a study has tens of thousands of rows, and a hundred figures are looked for.
    return [
        row
        for row in table
        if row.get("variant", variant) == variant
        and row.get("phase", phase) == phase
        and row["model"] == model
        and row["gpu"] == gpu
    ]


def _of_two(part: Part, before: Figure, after: Figure, cell: Cell) -> Compared:
    """`after` is of the variant, `before` of what it is compared with."""
    bottom = {RATIO: before.value, CHANGE: before.value, REDUCTION: after.value}.get(part.how, 1.0)
    if not bottom:
        raise NotThere(cell, UNAVAILABLE, f"{part.metric} is 0: there is no {part.how}")
    value = {
        RATIO: lambda: after.value / before.value,
        REDUCTION: lambda: before.value / after.value,
        CHANGE: lambda: 100 * (after.value / before.value - 1),
        DIFFERENCE: lambda: after.value - before.value,
    }[part.how]()
    note = "; ".join(rows.unique(note for note in (before.note, after.note) if note))
    return Compared(Figure(value, (*before.rows, *after.rows), note), before.value, after.value)


def _figure(part: Part, tables: Tables, cell: Cell, profiler: str | None = None) -> Figure:
    own = rows_of(tables[part.table], cell)
    if part.table == "kernels":
        return _of_kernels(part, own, cell, profiler)
    reader: Callable[[Part, list[Row], Cell], Figure] = {
        "timing": _of_timing,
        "counters": _of_counters,
        "quality": _of_quality,
    }[part.table]
    return reader(part, own, cell)


def _of_timing(part: Part, own: list[Row], cell: Cell) -> Figure:
    """The rows of a variant's solvers share one step."""
    for row in own:
        if row["status"] == OK and not numbers.missing(row[part.metric]):
            return Figure(row[part.metric], (("timing", row),))
    raise _not_there("timing", own, cell, part.metric)


def _of_counters(part: Part, own: list[Row], cell: Cell) -> Figure:
    top = _counter(own, part.scope, part.metric, cell)
    if part.per is None:
        return Figure(top["value"], (("counters", top),))
    bottom = _counter(own, part.scope, part.per, cell)
    if not bottom["value"]:
        raise NotThere(cell, UNAVAILABLE, f"{part.per} is 0")
    return Figure(top["value"] / bottom["value"], (("counters", top), ("counters", bottom)))


def _counter(own: list[Row], scope: str, metric: str, cell: Cell) -> Row:
    for row in own:
        if (row["scope"], row["metric"], row["status"]) == (scope, metric, OK) and not numbers.missing(row["value"]):
            return row
    raise _not_there("counters", own, cell, metric if scope == "total" else f"{metric} of {scope}")


def _most(part: Part, tables: Tables, cell: Cell, other: Cell) -> Compared:
    """Of the scopes that both variants have, the one with the largest figure."""
    both = []
    for each in (other, cell):
        own = rows_of(tables["counters"], each)
        wanted = [row for row in own if matches(part.scope, row["scope"]) and row["metric"] == part.metric]
        found = {row["scope"]: row for row in wanted if row["status"] == OK and not numbers.missing(row["value"])}
        if not found:
            raise _not_there("counters", own, each, f"{part.metric} of {part.scope}")
        both.append(found)
    best: Compared | None = None
    for scope in both[0].keys() & both[1].keys():
        before, after = (found[scope] for found in both)
        if before["value"] <= 0 or after["value"] <= 0:
            continue
        name = scope.partition(":")[2] or scope
        figures = [Figure(row["value"], (("counters", row),), name) for row in (before, after)]
        each = _of_two(part, *figures, cell)
        # Of equal ones the first by name, so that the bytes repeat.
        if best is None or (-each.figure.value, name) < (-best.figure.value, best.figure.note):
            best = each
    if best is None:
        cause = f"counters.csv has no {part.metric} of {part.scope} that {other.variant} has too"
        raise NotThere(cell, UNAVAILABLE, cause)
    return best


def _profilers(own: list[Row]) -> list[str]:
    return [name for name in PROFILERS if any(row["profiler"] == name and row["status"] == OK for row in own)]


def _common_profiler(tables: Tables, cell: Cell, other: Cell) -> str | None:
    """The profiler that saw both. None where one of them was not profiled, which is told when it is read."""
    first, second = (_profilers(rows_of(tables["kernels"], each)) for each in (cell, other))
    both = [name for name in first if name in second]
    if first and second and not both:
        raise NotThere(cell, UNAVAILABLE, f"it was profiled by {first[0]}, and {other.variant} by {second[0]}")
    return both[0] if both else None


def _of_kernels(part: Part, own: list[Row], cell: Cell, profiler: str | None) -> Figure:
    profiler = profiler or next(iter(_profilers(own)), None)
    seen = [row for row in own if row["profiler"] == profiler and row["status"] == OK]
    if not seen:
        raise _not_there("kernels", own, cell, "kernels")
    if not any(row["launch"] for row in seen):
        raise NotThere(cell, UNSUPPORTED, ON_A_CPU)
    column = "calls" if part.metric == "launches" else "time_ms"
    taken = [row for row in seen if _is(row, part.where)]
    # What is wanted, but for the precision or the detail, which the name does not tell.
    telling = {key: wanted for key, wanted in part.where.items() if key in ("precision", "detail")}
    rest = {key: wanted for key, wanted in part.where.items() if key not in telling}
    silent = [row for row in seen if _is(row, rest) and any(row.get(key) is None for key in telling)]
    value, unknown = (sum(row[column] or 0 for row in chosen) for chosen in (taken, silent))
    if part.out_of is not None:
        whole = sum(row[column] or 0 for row in seen if _is(row, part.out_of))
        if not whole:
            raise NotThere(cell, UNAVAILABLE, "kernels.csv has no such kernel")
        value, unknown = 100 * value / whole, 100 * unknown / whole
    shown = max(taken or seen, key=lambda row: row[column] or 0)
    return Figure(value, (("kernels", shown),), unknown=unknown)


def _is(row: Row, wanted: Mapping[str, object]) -> bool:
    return all(matches(value, row.get(key)) for key, value in wanted.items())


def _of_quality(part: Part, own: list[Row], cell: Cell) -> Figure:
    """The worst of the variant's solvers."""
    own = [row for row in own if rows.compares_with_fp32(row)]
    asked = [row for row in own if rows.metric_key(row["metric"]) == part.metric and row["region"] == part.region]
    there = [row for row in asked if row["status"] == OK and not numbers.missing(row[part.column])]
    # A cell that failed has one row, whatever the metric.
    lost = [row for row in own if row["status"] != OK]
    if not there or lost:
        empty = next((row for row in asked if row["status"] == OK), None)
        if empty is not None and not lost:
            why = empty["reason"] or (
                f"one volume has no interval (the figure is {numbers.number(empty['value'], 5)})"
                if empty["n"] == 1 and part.column != VALUE
                else f"its {part.column} is empty"
            )
            raise NotThere(cell, UNAVAILABLE, f"{part.metric}: {why}")
        raise _not_there("quality", own, cell, part.metric)
    worst = (min if part.comparison in (AT_LEAST, ABOVE) else max)(there, key=lambda row: row[part.column])
    volumes = "" if worst["n"] is None else numbers.count(worst["n"], "volume")
    note = ", ".join(filter(None, (worst["solver"], volumes)))
    return Figure(worst[part.column], (("quality", worst),), note)


def _not_there(table: str, own: list[Row], cell: Cell, what: str) -> NotThere:
    """Why the rows of a cell have no `what`: what those that did not run say, else that there is none."""
    lost = [row for row in own if row["status"] != OK]
    if lost:
        causes = rows.unique(f"{row['status']}: {row['reason'] or 'no reason was given'}" for row in lost)
        return NotThere(cell, lost[0]["status"], "; ".join(causes))
    if table == "counters" and any(row["metric"] == "operators a step" for row in own):
        return NotThere(cell, UNSUPPORTED, ON_A_CPU)
    return NotThere(cell, UNAVAILABLE, f"{table}.csv has no {what if own else 'row'}")
