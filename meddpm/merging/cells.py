"""Which folder's rows are taken, cell by cell, and where folders contradict each other."""

import math
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple

from meddpm.merging.parts import CELL, NCU, Part, cell, in_words, row_of_cell
from meddpm.profiling.counters import TOTAL
from meddpm.report import numbers
from meddpm.report.rows import STEADY
from meddpm.status import OK
from meddpm.tables import Row
from meddpm.words import one_line

# By how much the figures of two runs that agree may differ: by this part of the larger, as on a machine that the page
# calls steady; those of pictures, which come from the same noise, by these amounts.
RELATIVE = STEADY
# The quotient of two figures, each of which may differ by that.
OF_TWO = {"speedup"}
ABSOLUTE = {"value": 1e-3, "psnr_db": 0.5}
# In what two runs of a row must agree; which totals of counters, of those that both have.
# Claims rest on them. Memory, energy, the idle share and launch gaps differ from run to run by more, and are not here.
OF_A_ROW = {
    "timing": ("device_name", "shape", "batch", "evaluations", "step_ms_median", "fp32_step_ms_median", "speedup"),
    "quality": ("value", "n"),
}
OF_COUNTERS = (
    *("kernel time a step", "operator time a step", "kernels a step", "operators a step"),
    *("kernel time", "SM active cycles", "SM elapsed cycles", "executed instructions"),
    *("tensor-pipe use", "tensor-pipe use of elapsed time", "IPC", "DRAM read", "DRAM written"),
)
# Differ from job to job on one machine: the key of an environment is made without them.
OF_THE_MOMENT = {"clocks", "temperature"}
# Versions that times depend on.
SOFTWARE = ("torch", "cuda", "cudnn", "driver")
# What a name stands for, as far as the timing table tells: its column, those of rows that may be compared, what is one
# for them.
MEANING = [
    ("model", ("model",), "shape"),
    ("solver", ("model", "solver"), "evaluations"),
    ("gpu", ("model", "gpu", "phase"), "device_name"),
]
# Of a figure that says what a name stands for, the column of the name.
NAMED_BY = {figure: name for name, _, figure in MEANING}

# Rows by the number of their part.
OfParts = dict[int, list[Row]]


class Difference(NamedTuple):
    """By how much a figure differs in two parts, 1 being what is tolerated; its name; where; its two values."""

    apart: float
    name: str
    where: str
    values: tuple[Any, Any]


class Contradiction(NamedTuple):
    """What differs, where, and what the user can do."""

    what: str
    mend: str


@dataclass
class Joined:
    """For each table the rows taken of each part; what agrees and what else is to be said; what cannot be joined."""

    rows: dict[str, list[list[Row]]] = field(default_factory=dict)
    agreed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    contradictions: list[Contradiction] = field(default_factory=list)


def join(parts: Sequence[Part], preferred: Sequence[int]) -> Joined:
    """Choose the rows of every table. `preferred` are parts, by number, whose figures are taken where some differ."""
    joined = Joined()
    # Counters before priorities, which are taken with them.
    for table in CELL:
        if not any(table in part.tables for part in parts):
            continue
        chosen = _environments(parts, joined) if table == "environment" else _of_cells(table, parts, preferred, joined)
        taken = {id(row) for row in chosen}
        joined.rows[table] = [[row for row in part.tables.get(table, []) if id(row) in taken] for part in parts]
    _check_meaning(parts, joined)
    _look_for_environments(parts, joined)
    return joined


def _of_cells(table: str, parts: Sequence[Part], preferred: Sequence[int], joined: Joined) -> list[Row]:
    """The rows that are taken of a table, cell by cell."""
    rows_of_parts = [(number, part.tables.get(table, [])) for number, part in enumerate(parts)]
    counted = {}
    if table == "priorities":
        of_parts = enumerate(joined.rows.get("counters", []))
        counted = {cell("counters", row): number for number, rows in of_parts for row in rows}
    chosen: list[Row] = []
    agreed: dict[tuple[Any, ...], Difference] = {}
    for key, found in _grouped(rows_of_parts, lambda row: cell(table, row)).items():
        if (*key, NCU) in counted:
            chosen += found.get(counted[*key, NCU], [])
            continue
        rows, difference = _of_a_cell(table, key, found, parts, preferred, joined)
        chosen += rows
        if difference:
            agreed[key] = difference
    if agreed:
        most = max(agreed.values(), key=lambda each: each.apart)
        said = f"; {most.name} of {most.where} differs most, by {_amount(most)}" if most.apart else ""
        cells = numbers.count(len(agreed), "cell")
        joined.agreed.append(f"{table}: several folders agree on {cells}, and the first is taken{said}")
    return chosen


def _grouped(
    rows_of_parts: Iterable[tuple[int, list[Row]]], key: Callable[[Row], tuple[Any, ...]]
) -> dict[tuple[Any, ...], OfParts]:
    """The rows by their key, and for each by their part, in the order of the parts."""
    groups: dict[tuple[Any, ...], OfParts] = {}
    for number, rows in rows_of_parts:
        for row in rows:
            groups.setdefault(key(row), {}).setdefault(number, []).append(row)
    return groups


def _ran(found: OfParts) -> OfParts:
    """The parts in which one of the rows, at least, is ok."""
    return {number: rows for number, rows in found.items() if any(row["status"] == OK for row in rows)}


def _of_a_cell(
    table: str, key: tuple[Any, ...], found: OfParts, parts: Sequence[Part], preferred: Sequence[int], joined: Joined
) -> tuple[list[Row], Difference | None]:
    """The rows that are taken of those that the parts have for one cell; by how much those that agree differ."""
    ran = _ran(found)
    if not ran:
        return found[max(found)], None
    # A cell that did not run has one row or few in place of all.
    joined.notes += _mended(f"{table} of {in_words(key)}", found, ran, parts)
    taken: list[Row] = []
    agreed: list[Difference] = []
    for which, of_parts in _grouped(ran.items(), lambda row: row_of_cell(table, row)).items():
        ok = _ran(of_parts)
        where = ", ".join(in_words(names) for names in (key, which) if names)
        here = f"{table} of {where}"
        if not ok:
            taken += of_parts[max(of_parts)]
            continue
        joined.notes += _mended(here, of_parts, ok, parts)
        figures = {number: _figures(table, rows) for number, rows in ok.items()}
        # Each with each, so that the order of the folders does not decide whether they agree.
        differences = {pair: _difference(where, *(figures[number] for number in pair)) for pair in combinations(ok, 2)}
        pair = next((pair for pair, difference in differences.items() if difference.apart > 1), None)
        if pair is None:
            taken += next(iter(ok.values()))
            agreed += differences.values()
            continue
        one, two = (parts[number].name for number in pair)
        instead = next((number for number in preferred if number in ran), None)
        if instead is not None:
            # The whole cell: the other rows of the others are of the figures that are not taken.
            joined.notes.append(f"{here}: {one} and {two} differ; {parts[instead].name} is taken, as --prefer says")
            return ran[instead], None
        difference = differences[pair]
        values = _short(*difference.values)
        what = f"{here}: {difference.name} is {values[0]} in {one} and {values[1]} in {two}"
        mend = f"leave one of the folders out, or take the figures of one with --prefer {shlex.quote(one)}"
        if difference.name in NAMED_BY:
            mend = _another_name(NAMED_BY[difference.name])
        joined.contradictions.append(Contradiction(what, mend))
    return taken, max(agreed, key=lambda each: each.apart, default=None)


def _mended(where: str, found: OfParts, ran: OfParts, parts: Sequence[Part]) -> list[str]:
    """A line for each part in which a cell did not run that did in another."""
    by = parts[min(ran)].name
    return [
        f"{where}: {rows[0]['status']} in {parts[number].name}, taken from {by}"
        for number, rows in found.items()
        if number not in ran
    ]


def _another_name(column: str) -> str:
    """The mend where a name of a column stands for two things."""
    return f"leave one of the folders out, or give it another name in the column {column} of its tables"


def _difference(where: str, one: dict[str, Any], two: dict[str, Any]) -> Difference:
    """The figure of a cell or row that differs most in two runs, by the figures of both."""
    # Two that share none are no runs of one thing.
    names = [name for name in one if name in two] or [*one, *two]
    pairs = [(name, (one.get(name), two.get(name))) for name in names]
    found = [Difference(_apart(name, *values), name, where, values) for name, values in pairs]
    return max(found, key=lambda each: each.apart, default=Difference(0.0, "", where, (None, None)))


def _figures(table: str, rows: list[Row]) -> dict[str, Any]:
    """The figures in which two runs must agree, by name."""
    ok = [row for row in rows if row["status"] == OK]
    if table == "kernels":
        return {f"the sum of {name}": sum((float(row[name] or 0) for row in ok), 0.0) for name in ("time_ms", "calls")}
    if table == "counters":
        totals = {row["metric"]: row["value"] for row in ok if row["scope"] == TOTAL}
        return {name: totals[name] for name in OF_COUNTERS if name in totals}
    figures = {name: ok[0][name] for name in OF_A_ROW.get(table, ())}
    if table == "quality" and ok[0]["metric"] == "psnr_db":
        figures["psnr_db"] = figures.pop("value")
    return figures


def _apart(name: str, one: Any, two: Any) -> float:
    """How far two figures are apart, 1 being what is tolerated: no difference of texts, whole numbers, empty ones."""
    if one == two:
        return 0.0
    if not (isinstance(one, float) and isinstance(two, float)):
        return math.inf
    return abs(one - two) / ABSOLUTE.get(name, _relative(name) * max(abs(one), abs(two)))


def _relative(name: str) -> float:
    return 2 * RELATIVE if name in OF_TWO else RELATIVE


def _amount(difference: Difference) -> str:
    absolute = ABSOLUTE.get(difference.name)
    scale, unit = (100 * _relative(difference.name), " %") if absolute is None else (absolute, "")
    return f"{difference.apart * scale:.2g}{unit}"


def _short(*values: Any) -> list[str]:
    """Values for the terminal, numbers with as many digits as tell them apart."""
    rounded = [f"{value:.4g}" if isinstance(value, float) else str(value) for value in values]
    texts = rounded if len(set(rounded)) == len(set(values)) else list(map(str, values))
    return ["empty" if value in (None, "") else one_line(text, 60) for text, value in zip(texts, values, strict=True)]


def _environments(parts: Sequence[Part], joined: Joined) -> list[Row]:
    """The first row of each model, GPU and environment; all rows of an environment must say the same."""
    taken: dict[tuple[Any, ...], Row] = {}
    described: dict[str, tuple[Row, Part]] = {}
    for part in parts:
        for row in part.tables.get("environment", []):
            taken.setdefault(cell("environment", row), row)
            first, where = described.setdefault(row["environment"], (row, part))
            fixed = [name for name in row if name not in {"model", "gpu", *OF_THE_MOMENT}]
            differing = next((name for name in fixed if row[name] != first[name]), None)
            if differing:
                one, two = _short(first[differing], row[differing])
                what = f"environment {in_words([row['environment']])}: {differing} is {one} in {where.name}"
                mend = "its key is made from these values, so one of the tables was changed: leave that folder out"
                joined.contradictions.append(Contradiction(f"{what} and {two} in {part.name}", mend))
    joined.notes += _of_other_software(parts)
    return list(taken.values())


def _of_other_software(parts: Sequence[Part]) -> list[str]:
    """A line for each version that two parts have in no environment in common, of one GPU."""
    found = []
    for name in SOFTWARE:
        known: dict[str, list[tuple[Part, set[str]]]] = {}
        for part in parts:
            here: dict[str, set[str]] = {}
            for row in part.tables.get("environment", []):
                if row[name]:
                    here.setdefault(row["gpu"], set()).add(str(row[name]))
            for gpu, versions in here.items():
                others = known.setdefault(gpu, [])
                other = next((each for each in others if each[1].isdisjoint(versions)), None)
                others.append((part, versions))
                if other:
                    one, two = (one_line(", ".join(sorted(each)), 60) for each in (other[1], versions))
                    found.append(f"{one_line(gpu)}: {name} is {one} in {other[0].name} and {two} in {part.name}")
    return found


def _check_meaning(parts: Sequence[Part], joined: Joined) -> None:
    """A name of which two parts have rows stands for one thing in both."""
    for name, columns, column in MEANING:
        known: dict[tuple[Any, ...], list[tuple[Part, set[Any]]]] = {}
        for part, rows in zip(parts, joined.rows.get("timing", []), strict=False):
            here: dict[tuple[Any, ...], set[Any]] = {}
            for row in rows:
                key = tuple(row[each] for each in columns)
                if row["status"] == OK and row[column] is not None and None not in key:
                    here.setdefault(key, set()).add(row[column])
            for key, values in here.items():
                others = known.setdefault(key, [])
                other = next((each for each in others if each[1].isdisjoint(values)), None)
                others.append((part, values))
                if other:
                    one, two = _short(min(other[1]), min(values))
                    what = f"timing of {in_words(key)}: {column} is {one} in {other[0].name} and {two} in {part.name}"
                    joined.contradictions.append(Contradiction(what, _another_name(name)))


def _look_for_environments(parts: Sequence[Part], joined: Joined) -> None:
    """Say where rows name an environment that no table of environments has."""
    known = {row["environment"] for rows in joined.rows.get("environment", []) for row in rows}
    for table, of_parts in joined.rows.items():
        for part, rows in zip(parts, of_parts, strict=True):
            lost = sum(bool(row["environment"]) and row["environment"] not in known for row in rows)
            if lost:
                joined.notes.append(
                    f"{table}: {lost} of the rows of {part.name} name an environment that no environment.csv has"
                )
