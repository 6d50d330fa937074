"""The words of a row of the table of claims: what was measured, the rule, the rows that it rests on."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from meddpm.claims.evidence import Compared, NotThere
from meddpm.claims.rules import ABOUT, ALL, CHANGE, DIFFERENCE, EACH, RATIO, REDUCTION, Claim, Group, Part
from meddpm.report import numbers
from meddpm.report.rows import unique
from meddpm.tables import Row

if TYPE_CHECKING:
    from meddpm.claims.verdicts import Case

IN_WORDS = {"sample": "sampling", "train": "training"}
TIMES, PERCENT, POINTS, INDEX = "times", "%", "points", "index"


def quantity(value: float, unit: str | None) -> str:
    """A figure with its unit and sensible digits."""
    return numbers.similarity(value) if unit == INDEX else _with_unit(numbers.amount(value), unit)


def _with_unit(shown: str, unit: str | None) -> str:
    if unit == TIMES:
        return f"{shown}\N{MULTIPLICATION SIGN}"
    return f"{shown}{numbers.SPACE}{unit}" if unit and unit != INDEX else shown


def figure(part: Part, found: Compared, holds: bool | None, several: bool) -> str:
    """A figure that was measured; with `several` parts in a rule, whether this one holds."""
    sign = "+" if part.how in (CHANGE, DIFFERENCE) and found.figure.value > 0 else ""
    shown = sign + quantity(found.figure.value, _unit(part))
    beside = []
    if found.before is not None and found.after is not None:
        unit = PERCENT if part.unit == POINTS else part.unit
        beside.append(f"{quantity(found.before, unit)} to {quantity(found.after, unit)}")
    if found.figure.note:
        beside.append(found.figure.note)
    if found.figure.unknown:
        beside.append(f"the names of {quantity(found.figure.unknown, part.unit)} do not tell")
    words = f"{part.what} {shown}" + (f" ({', '.join(beside)})" if beside else "")
    if not several:
        return words
    return f"{words}: {'open' if holds is None else 'holds' if holds else 'does not hold'}"


def measured(claim: Claim, cases: Sequence["Case"]) -> str:
    """What was measured, case by case."""
    told = []
    for case in cases:
        where = [f"{case.pair.variant} against {case.pair.against}"] if case.pair and len(claim.pairs) > 1 else []
        where.append(IN_WORDS[case.phase])
        told.append(f"{', '.join(where)}: {case.read.words if case.read.rows else 'not measured'}")
    return ". ".join(told)


def threshold(claim: Claim) -> str:
    """The rule in words."""
    words = _group(claim.rule)
    if len(claim.phases) > 1:
        words += ", in each phase that was measured" if claim.in_phases == EACH else ", in one phase at least"
    else:
        words += f", in {IN_WORDS[claim.phases[0]]}"
    if claim.pairs:
        words += f"; {numbers.listed([f'{pair.variant} against {pair.against}' for pair in claim.pairs])}"
    if claim.devices:
        words += f"; on {claim.devices.words}"
    if claim.not_with_weights:
        words += f"; not with weights that are {numbers.listed(list(claim.not_with_weights))}"
    return words


def causes(missing: Iterable[NotThere]) -> str:
    """Why figures are missing, each cause once with the cells that it is of."""
    cells: dict[str, list[str]] = {}
    for each in missing:
        cells.setdefault(each.cause, []).append(f"{each.cell.variant} {IN_WORDS[each.cell.phase]}")
    return "; ".join(f"{cause} ({', '.join(unique(found))})" for cause, found in cells.items())


def evidence(seen: Iterable[tuple[str, Row]]) -> str:
    """The tables and rows: "timing.csv: tf32/sample/ddpm, tf32/train"; figures of the same rows together."""
    cells: dict[tuple[str, str], list[str]] = {}
    for table, row in seen:
        figure = {"timing": "", "kernels": f"by {row.get('profiler')}"}.get(table) or row.get("metric", "")
        if table == "counters" and row["scope"] != "total":
            figure += f" of {row['scope']}"
        keys = (row.get(key) for key in ("variant", "phase", "solver"))
        cells.setdefault((table, figure), []).append("/".join(filter(None, keys)))
    figures: dict[tuple[str, str], list[str]] = {}
    for (table, figure), found in cells.items():
        figures.setdefault((table, ", ".join(unique(found))), []).append(figure)
    told = []
    for (table, where), names in figures.items():
        named = f" ({', '.join(filter(None, names))})" if any(names) else ""
        told.append(f"{table}.csv{named}: {where}")
    return "; ".join(told)


def _group(group: Group) -> str:
    link = "; and " if group.must == ALL else "; or "
    words = link.join(
        f"{part.what} ({_group(part)})" if isinstance(part, Group) else _bound(part) for part in group.parts
    )
    return words


def _bound(part: Part) -> str:
    bound = _with_unit(f"{part.bound:g}", _unit(part))
    within = f"{part.within_pct:g}{numbers.SPACE}%"
    if part.comparison == ABOUT:
        words = f"{part.what} within {within} of {bound}"
    else:
        words = f"{part.what} {part.comparison} {bound}" + (f" within {within}" if part.within_pct else "")
    return f"{words}, if it was measured" if part.optional else words


def _unit(part: Part) -> str | None:
    """The unit of the figure that has the bound; `part.unit` may be that of the two that it compares."""
    return {RATIO: TIMES, REDUCTION: TIMES, CHANGE: PERCENT}.get(part.how, part.unit)
