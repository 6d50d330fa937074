"""The verdict on each claim for each model and GPU: rows of the table of claims."""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meddpm.claims import evidence, wording
from meddpm.claims.evidence import Cell, Compared, NotThere, Tables
from meddpm.claims.rules import ALL, ANY, Claim, Group, Pair, Part
from meddpm.report import numbers
from meddpm.report.rows import unique
from meddpm.status import OK, UNAVAILABLE
from meddpm.tables import Row

REPRODUCED, NOT_REPRODUCED, NOT_TESTED = "reproduced", "not reproduced", "not tested"


@dataclass(frozen=True)
class Read:
    """A part or a group as it was found in one case: None where the figures do not decide it.

    `counts` is false for a part that may be passed over, and was.
    """

    holds: bool | None
    words: str
    rows: tuple[tuple[str, Row], ...] = ()
    missing: tuple[NotThere, ...] = ()
    counts: bool = True


@dataclass(frozen=True)
class Case:
    """The rule of a claim for one pair of variants and one phase."""

    pair: Pair | None
    phase: str
    read: Read


def rows(claims: Iterable[Claim], tables: Tables, config: Mapping[str, Any]) -> list[Row]:
    """A row of the table of claims for each model and GPU of the study, and of the timing table, and each claim.

    `tables` are the rows of timing, kernels, counters, quality and environment; `config` is the merged configuration.
    """
    chosen = list(claims)
    return [
        {"model": model, "gpu": gpu, **verdict(claim, tables, config, model, gpu)}
        for model, gpu in _places(tables, config)
        for claim in chosen
    ]


def verdict(claim: Claim, tables: Tables, config: Mapping[str, Any], model: str, gpu: str) -> Row:
    """The columns of one row after model and GPU."""
    cases = list(_cases(claim, tables, model, gpu))
    decided = [case for case in cases if case.read.holds is not None]
    hold = any if claim.in_phases == ANY else all
    answers = {}
    for pair in claim.pairs or (None,):
        of_pair = [case.read.holds for case in decided if case.pair == pair]
        answers[pair] = hold(of_pair) if of_pair else None
    missing = [each for case in cases for each in case.read.missing]
    seen = [each for case in cases for each in case.read.rows]
    causes = wording.causes(missing)
    status, reason = OK, causes
    lost = missing[0].status if missing else UNAVAILABLE
    hindrance = _hindrance(claim, tables, config, model, gpu)
    open_phases = {case.phase for case in cases} - {case.phase for case in decided}

    if hindrance:
        word, (status, reason) = NOT_TESTED, hindrance
    elif not decided:
        word, status = NOT_TESTED, lost
    elif all(answers.values()):
        word = REPRODUCED
    elif False not in answers.values():
        word, status = NOT_TESTED, lost
        names = numbers.listed([f"{pair.variant} against {pair.against}" for pair in answers if answers[pair] is None])
        reason = f"each pair must hold, and {names} was not measured: {causes}"
    elif claim.needs_every_phase and open_phases:
        word, status = NOT_TESTED, lost
        names = numbers.listed([wording.IN_WORDS[phase] for phase in claim.phases if phase in open_phases])
        reason = f"the rule may hold in {names}, which was not measured: {causes}"
    else:
        word = NOT_REPRODUCED
    if word != NOT_TESTED and causes:
        reason = f"not measured: {causes}"
    return {
        "claim": claim.name,
        "source": claim.source,
        "statement": claim.statement,
        "measured": wording.measured(claim, cases) if seen else None,
        "threshold": wording.threshold(claim),
        "verdict": word,
        "evidence": wording.evidence(seen) or None,
        "environment": next((row["environment"] for _, row in seen if row["environment"]), None),
        "status": status,
        "reason": reason or None,
    }


def _places(tables: Tables, config: Mapping[str, Any]) -> list[tuple[str, str]]:
    study = config.get("study") or {}
    planned = itertools.product(study.get("models") or (), study.get("gpus") or ())
    return unique([*planned, *((row["model"], row["gpu"]) for row in tables["timing"])])


def _hindrance(claim: Claim, tables: Tables, config: Mapping[str, Any], model: str, gpu: str) -> tuple[str, str] | None:
    """Status and reason where the claim is not of this device, or these weights cannot test it."""
    weights = ((config.get("models") or {}).get(model) or {}).get("weights")
    if weights in claim.not_with_weights:
        return OK, claim.not_with_weights[weights]
    if claim.devices is None:
        return None
    name = evidence.device_name(tables, model, gpu)
    if name is None:
        cell = [row for row in tables["timing"] if (row["model"], row["gpu"]) == (model, gpu)]
        lost = next((row for row in cell if row["status"] != OK), None)
        why = f" ({lost['status']}: {lost['reason']})" if lost else ""
        status = lost["status"] if lost else UNAVAILABLE
        return status, f"the claim is of {claim.devices.words}, and the name of this device is not known{why}"
    if not re.search(claim.devices.pattern, name):
        return OK, f"the claim is of {claim.devices.words}; this is {name}"
    return None


def _cases(claim: Claim, tables: Tables, model: str, gpu: str) -> Iterator[Case]:
    for pair, phase in itertools.product(claim.pairs or (None,), claim.phases):
        cell = Cell(model, gpu, pair.variant if pair else "", phase)
        yield Case(pair, phase, _group(claim.rule, tables, cell, pair, len(claim.rule.leaves()) > 1))


def _group(group: Group, tables: Tables, cell: Cell, pair: Pair | None, several: bool) -> Read:
    reads = [(_group if isinstance(part, Group) else _part)(part, tables, cell, pair, several) for part in group.parts]
    words = "; ".join(read.words for read in reads)
    holds = _all(reads) if group.must == ALL else _any(reads)
    return Read(
        holds,
        f"{group.what} ({words})" if group.what else words,
        tuple(each for read in reads for each in read.rows),
        tuple(each for read in reads for each in read.missing),
    )


def _all(reads: Sequence[Read]) -> bool | None:
    answers = [read.holds for read in reads if read.counts]
    return False if False in answers else None if None in answers or not answers else True


def _any(reads: Sequence[Read]) -> bool | None:
    answers = [read.holds for read in reads if read.counts]
    return True if True in answers else None if None in answers or not answers else False


def _part(part: Part, tables: Tables, cell: Cell, pair: Pair | None, several: bool) -> Read:
    """One part."""
    cell = cell._replace(variant=part.variant or cell.variant)
    against = part.against or (pair.against if pair else None)
    try:
        found = evidence.compared(part, tables, cell, against)
    except NotThere as missing:
        if part.optional:
            return Read(None, f"{part.what}: not measured ({missing.cause})", counts=False)
        return Read(None, f"{part.what}: not measured", missing=(missing,))
    holds, unclear = _holds(part, found), ()
    if holds is None:
        said = f"the names of {wording.quantity(found.figure.unknown, part.unit)} more do not tell"
        unclear = (NotThere(cell, UNAVAILABLE, f"{part.what}: {said}"),)
    return Read(holds, wording.figure(part, found, holds, several), found.figure.rows, unclear)


def _holds(part: Part, found: Compared) -> bool | None:
    """None where it depends on kernels whose names do not tell."""
    least, most = found.figure.value, found.figure.value + found.figure.unknown
    answers = {part.holds(value) for value in (least, most, min(max(least, part.bound), most))}
    return None if len(answers) > 1 else answers.pop()
