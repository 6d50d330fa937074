"""Counters of many kernels as one figure: per kernel, per category and in total, with the right weights.

What is counted, and how it is put together, is data: counters.yaml beside this file.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import yaml

from meddpm.profiling.readers.ncu_files import Launch
from meddpm.profiling.taxonomy import classify
from meddpm.tables import Row

TIME = "gpu__time_duration.sum"
TOTAL = "total"


@dataclass(frozen=True)
class Counter:
    """One figure: made of `metric`, by the way `how` (sum, ratio, mean), over or by the metric `of`, times `scale`."""

    group: str
    name: str
    unit: str
    how: str
    metric: str
    of: str | None = None
    scale: float = 1.0


@dataclass(frozen=True)
class Counted:
    """A launch that was profiled, how many like it there are, and the operator of PyTorch that launched it.

    `operator` has a number that tells its argument shapes apart: "aten.convolution.default 12". The same one in two
    variants is the same work, whatever their kernels are called. `weight`, 1 or more, takes in what was not profiled:
    the time of all calls of that operator, whatever their shapes, over that of the calls which were.
    """

    launch: Launch
    calls: int = 1
    operator: str | None = None
    weight: float = 1.0

    @property
    def stands_for(self) -> float:
        """The number by which its counters are multiplied."""
        return self.calls * self.weight


@cache
def counters() -> tuple[Counter, ...]:
    """The figures of counters.yaml, in their order."""
    return tuple(_counter(entry) for entry in _file()["counters"])


@cache
def sections() -> tuple[str, ...]:
    """The sections of Nsight Compute whose rules are asked for."""
    return tuple(_file()["sections"])


def metrics() -> list[str]:
    """The metrics of Nsight Compute that the figures are made of, each once."""
    wanted = (text for counter in counters() for text in (counter.metric, counter.of) if text)
    return list(dict.fromkeys(name for text in wanted for name in _terms(text)))


def rows(launches: Sequence[Counted]) -> list[Row]:
    """Rows {scope, metric, value, unit} of the counters table: in total, per category, per kernel, per operator.

    The scope is "total", "category:NAME", "kernel:NAME" or "operator:NAME", by their time, longest first. A figure
    whose metric no launch has is left out. An operator's figures are its own: `weight` is not in them; neither is it
    in "launches".
    """
    found = _of(TOTAL, launches)
    for kind, name_of in (
        ("category", lambda each: classify(each.launch.kernel).category),
        ("kernel", lambda each: each.launch.kernel),
        ("operator", lambda each: each.operator),
    ):
        counted = [replace(each, weight=1.0) for each in launches] if kind == "operator" else launches
        for name, part in _by_time(counted, name_of):
            found += _of(f"{kind}:{name}", part)
    return found


def value(counter: Counter, launches: Iterable[Counted]) -> float | None:
    """One figure of some launches; None where none of them has its metrics."""
    top, bottom = 0.0, 0.0
    any_has = False
    for each in launches:
        measured = _read(each.launch.metrics, counter.metric)
        weight = _read(each.launch.metrics, counter.of) if counter.of else 1.0
        if measured is None or weight is None:
            continue
        any_has = True
        top += each.stands_for * measured * (weight if counter.how == "mean" else 1.0)
        bottom += each.stands_for * weight
    if not any_has:
        return None
    if counter.how == "sum":
        return top * counter.scale
    return top / bottom * counter.scale if bottom else None


def _of(scope: str, launches: Sequence[Counted]) -> list[Row]:
    calls = {"scope": scope, "metric": "launches", "value": sum(each.calls for each in launches), "unit": "launch"}
    figures = [
        {"scope": scope, "metric": counter.name, "value": figure, "unit": counter.unit}
        for counter in counters()
        if (figure := value(counter, launches)) is not None
    ]
    return [calls, *figures]


def _by_time(launches: Sequence[Counted], name_of: Callable[[Counted], str | None]) -> list[tuple[str, list[Counted]]]:
    parts: dict[str, list[Counted]] = defaultdict(list)
    for each in launches:
        if (name := name_of(each)) is not None:
            parts[name].append(each)
    return sorted(parts.items(), key=lambda part: -time_ns(part[1]))


def time_ns(launches: Iterable[Counted]) -> float:
    """The time of all launches that `launches` stand for."""
    return sum(each.stands_for * each.launch.metrics.get(TIME, 0.0) for each in launches)


def _read(metrics: Mapping[str, float], text: str) -> float | None:
    """A metric, or the sum of those of "a + b" that are there."""
    there = [metrics[name] for name in _terms(text) if name in metrics]
    return sum(there) if there else None


def _terms(text: str) -> list[str]:
    return [name.strip() for name in text.split("+")]


def _counter(entry: dict[str, object]) -> Counter:
    known = {key: entry[key] for key in ("group", "name", "unit")} | {"scale": float(entry.get("scale", 1.0))}
    if "sum" in entry:
        return Counter(how="sum", metric=entry["sum"], **known)
    if "ratio" in entry:
        top, bottom = entry["ratio"]
        return Counter(how="ratio", metric=top, of=bottom, **known)
    return Counter(how="mean", metric=entry["mean"], of=entry["by"], **known)


@cache
def _file() -> dict[str, list]:
    path = Path(__file__).with_name("counters.yaml")
    return yaml.safe_load(path.read_text(encoding="utf-8"))
