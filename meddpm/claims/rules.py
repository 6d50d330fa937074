"""claims.yaml, read and checked: each fault is a line that says where, what, and what would be right."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from meddpm import tables
from meddpm.config import UserError
from meddpm.validation import closest

FILE = Path(__file__).with_name("claims.yaml")
ALL, ANY, EACH = "all", "any", "each"
VALUE, RATIO, REDUCTION, CHANGE, DIFFERENCE = "value", "ratio", "reduction", "change", "difference"
AT_LEAST, AT_MOST, ABOVE, BELOW, ABOUT = "at least", "at most", "above", "below", "about"
PHASES = ("sample", "train")

NUMBER = (int, float)
PART = {"what": str, "table": str, "metric": str, "is": str, "bound": NUMBER}
MAY = {"variant": str, "against": str, "as": str, "within_pct": NUMBER, "unit": str, "optional": bool}
OF_TABLE = {
    "timing": {},
    "counters": {"scope": str, "per": str},
    "kernels": {"where": dict, "out_of": dict},
    "quality": {"region": str, "column": str},
}
CLAIM = {"name": str, "source": str, "statement": str, "phases": list}
CLAIM_MAY = {
    "pairs": list,
    "in_phases": str,
    "needs_every_phase": bool,
    "devices": dict,
    "not_with_weights": dict,
    ALL: list,
    ANY: list,
}
OF_A_KERNEL = ("category", "precision", "detail")
TYPES = {str: "a text", NUMBER: "a number", bool: "true or false", dict: "a mapping", list: "a list"}


@dataclass(frozen=True)
class Part:
    """One figure and its bound; the keys are those of claims.yaml, `how` is its `as`, `comparison` its `is`."""

    what: str
    table: str
    metric: str
    comparison: str
    bound: float
    variant: str | None = None
    against: str | None = None
    how: str = VALUE
    within_pct: float = 0.0
    unit: str | None = None
    optional: bool = False
    scope: str = "total"
    per: str | None = None
    where: Mapping[str, Any] = field(default_factory=dict)
    out_of: Mapping[str, Any] | None = None
    region: str = "whole"
    column: str = "value"

    def holds(self, value: float) -> bool:
        """Whether a figure keeps within the bound."""
        slack = abs(self.bound) * (self.within_pct / 100 + 1e-9)
        if self.comparison == ABOUT:
            return abs(value - self.bound) <= slack
        if self.comparison == AT_LEAST:
            return value >= self.bound - slack
        if self.comparison == AT_MOST:
            return value <= self.bound + slack
        widened = abs(self.bound) * self.within_pct / 100
        return value > self.bound - widened if self.comparison == ABOVE else value < self.bound + widened


@dataclass(frozen=True)
class Group:
    """Parts of which all, or any, must hold; `what` is empty for the rule of a claim."""

    must: str
    parts: tuple["Part | Group", ...]
    what: str = ""

    def leaves(self) -> list[Part]:
        """The parts, those of groups among them."""
        return [leaf for part in self.parts for leaf in (part.leaves() if isinstance(part, Group) else [part])]


@dataclass(frozen=True)
class Pair:
    """Two variants that are compared."""

    variant: str
    against: str


@dataclass(frozen=True)
class Devices:
    """The devices that a claim is of: a regular expression on the name, and words for it."""

    pattern: str
    words: str


@dataclass(frozen=True)
class Claim:
    """One claim and its rule; the keys are those of claims.yaml. `pairs` is empty where the parts name variants."""

    name: str
    source: str
    statement: str
    phases: tuple[str, ...]
    rule: Group
    pairs: tuple[Pair, ...] = ()
    in_phases: str = EACH
    needs_every_phase: bool = False
    devices: Devices | None = None
    not_with_weights: Mapping[str, str] = field(default_factory=dict)


def load(path: Path = FILE) -> tuple[Claim, ...]:
    """The claims of a file. Raises UserError where it is not as the words at its top say."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        where = "" if line is None else f" (line {line + 1})"
        raise UserError(f"{path}: is no YAML{where}; right would be a key claims with a list") from None
    if not isinstance(content, dict) or set(content) != {"claims"} or not isinstance(content["claims"], list):
        raise UserError(f"{path}: right would be the key claims alone, with a list of claims")
    found: list[Claim] = []
    for number, entry in enumerate(content["claims"], 1):
        named = isinstance(entry, dict) and isinstance(entry.get("name"), str)
        claim = _Reader(f"{path}: claim {entry['name'] if named else number}").claim(entry)
        if any(claim.name == other.name for other in found):
            raise UserError(f"{path}: claim {claim.name} is there twice; give one of them another name")
        found.append(claim)
    return tuple(found)


def matches(wanted: Any, value: str | None) -> bool:
    """Whether a value of a kernel is a wanted one: a text with * for any letters, or a list of such."""
    patterns = wanted if isinstance(wanted, list) else [wanted]
    return value is not None and any(fnmatchcase(value, pattern) for pattern in patterns)


class _Reader:
    """Reads what stands at one place of the file, and says of each fault where it is."""

    def __init__(self, where: str) -> None:
        self.where = where

    def fault(self, words: str) -> UserError:
        return UserError(f"{self.where}: {words}")

    def keys(self, entry: Any, must: Mapping[str, Any], may: Mapping[str, Any]) -> dict[str, Any]:
        """`entry` where its keys and their types are right."""
        if not isinstance(entry, dict):
            raise self.fault(f"is no mapping; right would be the keys {', '.join(must)}")
        for key in must:
            if key not in entry:
                raise self.fault(f"the key {key} is missing")
        known = {**must, **may}
        for key, value in entry.items():
            if key not in known:
                raise self.fault(f"unknown key {key}; {closest(str(key), list(known))}")
            kind = known[key]
            if not isinstance(value, kind) or (kind is NUMBER and isinstance(value, bool)) or value in ("", []):
                raise self.fault(f"{key} is {value!r}; right would be {TYPES[kind]}")
        return entry

    def one_of(self, key: str, value: Any, known: tuple[str, ...]) -> None:
        if value not in known:
            raise self.fault(f"{key} is {value!r}; {closest(str(value), list(known))}")

    def claim(self, entry: Any) -> Claim:
        self.keys(entry, CLAIM, CLAIM_MAY)
        for phase in entry["phases"]:
            self.one_of("phases", phase, PHASES)
        self.one_of("in_phases", entry.get("in_phases", EACH), (EACH, ANY))
        if entry.get("needs_every_phase") and entry.get("in_phases") != ANY:
            raise self.fault("needs_every_phase is of use with in_phases: any alone; leave it out")
        pairs = []
        for pair in entry.get("pairs", []):
            _Reader(f"{self.where}, pairs").keys(pair, {"variant": str, "against": str}, {})
            pairs.append(Pair(**pair))
        devices = None
        if "devices" in entry:
            _Reader(f"{self.where}, devices").keys(entry["devices"], {"pattern": str, "words": str}, {})
            devices = Devices(**entry["devices"])
            try:
                re.compile(devices.pattern)
            except re.error as error:
                raise self.fault(f"devices.pattern is no regular expression ({error})") from None
        weights = entry.get("not_with_weights", {})
        if not all(isinstance(text, str) for pair in weights.items() for text in pair):
            raise self.fault("not_with_weights is no mapping of texts; right would be {random: why}")
        rule = self.group(entry, bool(pairs))
        return Claim(
            entry["name"],
            entry["source"],
            entry["statement"],
            tuple(entry["phases"]),
            rule,
            tuple(pairs),
            entry.get("in_phases", EACH),
            entry.get("needs_every_phase", False),
            devices,
            weights,
        )

    def group(self, entry: dict[str, Any], paired: bool) -> Group:
        given = [must for must in (ALL, ANY) if must in entry]
        if len(given) != 1:
            raise self.fault("right would be one of the keys all and any, with a list of parts")
        (must,) = given
        parts = (
            _Reader(f"{self.where}, part {number}").part_or_group(each, paired)
            for number, each in enumerate(entry[must], 1)
        )
        return Group(must, tuple(parts), entry.get("what", ""))

    def part_or_group(self, entry: Any, paired: bool) -> Part | Group:
        if isinstance(entry, dict) and (ALL in entry or ANY in entry):
            return self.group(self.keys(entry, {"what": str}, {ALL: list, ANY: list}), paired)
        return self.part(entry, paired)

    def part(self, entry: Any, paired: bool) -> Part:
        table = entry.get("table") if isinstance(entry, dict) else None
        if table is not None:
            self.one_of("table", table, tuple(OF_TABLE))
        self.keys(entry, PART, {**MAY, **OF_TABLE.get(table, {})})
        known = dict(entry)
        part = Part(comparison=known.pop("is"), how=known.pop("as", VALUE), **known)
        self.one_of("is", part.comparison, (AT_LEAST, AT_MOST, ABOVE, BELOW, ABOUT))
        self.one_of("as", part.how, (VALUE, RATIO, REDUCTION, CHANGE, DIFFERENCE))
        if part.within_pct < 0 or (part.comparison == ABOUT and not part.within_pct):
            raise self.fault("within_pct is missing or negative; right would be a number of percent, as 20")
        if not paired and part.variant is None:
            raise self.fault("the key variant is missing, and the claim has no pairs")
        if not paired and part.against is None and part.how != VALUE:
            raise self.fault("the key against is missing, and the claim has no pairs")
        if table in ("timing", "quality"):
            columns = tables.schema(table)["properties"]
            figures = tuple(name for name, column in columns.items() if "number" in column.get("type", ()))
            key, column = ("metric", part.metric) if table == "timing" else ("column", part.column)
            self.one_of(key, column, figures)
        if table == "quality":
            self.one_of("region", part.region, tuple(tables.schema(table)["properties"]["region"]["enum"]))
        if table == "kernels":
            self.kernels(part)
        return part

    def kernels(self, part: Part) -> None:
        self.one_of("metric", part.metric, ("launches", "time"))
        for key, chosen in (("where", part.where), ("out_of", part.out_of or {})):
            for name, wanted in chosen.items():
                self.one_of(key, name, OF_A_KERNEL)
                texts = wanted if isinstance(wanted, list) else [wanted]
                if not texts or not all(isinstance(text, str) for text in texts):
                    raise self.fault(f"{key}.{name} is {wanted!r}; right would be a text or a list of texts")
