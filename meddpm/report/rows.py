"""The tables' rows as the page and the terminal need them: grouped, joined, and the answer that they give."""

import re
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from meddpm.config import BASELINE
from meddpm.quality import same_noise
from meddpm.report.numbers import missing
from meddpm.status import OK
from meddpm.tables import Row

Value = TypeVar("Value")
# The background is the same in every picture, so an index over the whole volume flatters.
REGIONS = ("mask", "whole", "background")
# fp32 medians of a machine left to itself agree within a few per cent.
STEADY = 0.1


@dataclass(frozen=True)
class Group:
    """The timing rows of one model, GPU and phase: what may be compared with each other."""

    model: str
    gpu: str
    phase: str
    rows: list[Row]

    @property
    def device_name(self) -> str | None:
        """The device's own name, from the first row that ran."""
        return next((row["device_name"] for row in self.rows if row["device_name"]), None)

    @property
    def measured(self) -> list[Row]:
        """The rows with a time."""
        return [row for row in self.rows if row["status"] == OK and not missing(row["step_ms_median"])]

    @property
    def solvers(self) -> list[str]:
        """The solvers of the group, in the order of the table."""
        return unique(row["solver"] for row in self.rows if row["solver"])


@dataclass(frozen=True)
class Spread:
    """The fp32 medians of one group, one from each timing job: the noise floor of its speed-ups."""

    jobs: int
    low_ms: float
    median_ms: float
    high_ms: float

    @property
    def relative(self) -> float:
        """(high - low) / median."""
        return (self.high_ms - self.low_ms) / self.median_ms


@dataclass(frozen=True)
class Answer:
    """The fastest variant of a group, and what it is worth. `row` is None where no variant but fp32 has a time."""

    group: Group
    row: Row | None
    speedup_low: float | None
    speedup_high: float | None
    spread: Spread | None
    ssim: Row | None
    quickest_volume: Row | None

    @property
    def faster(self) -> bool:
        """Whether even the slow end of its steps beats fp32 by more than the fp32 medians of the jobs differ."""
        noise = self.spread.relative if self.spread else 0.0
        return self.speedup_low is not None and self.speedup_low > 1 + noise


def unique(values: Iterable[Value]) -> list[Value]:
    """The values in their order, each once."""
    return list(dict.fromkeys(values))


def groups(timing: list[Row]) -> list[Group]:
    """The timing rows by model, GPU and phase, in the order of the table."""
    keyed: dict[tuple[str, str, str], list[Row]] = {}
    for row in timing:
        keyed.setdefault((row["model"], row["gpu"], row["phase"]), []).append(row)
    return [Group(*key, rows) for key, rows in keyed.items()]


def spread(group: Group) -> Spread | None:
    """The spread of the fp32 medians over the group's jobs; None if no job timed fp32.

    A job times one variant for all solvers, so its rows share one fp32 median: it counts once.
    """
    jobs = {(row["variant"], row["fp32_step_ms_median"]) for row in group.measured}
    medians = [median for _, median in jobs if not missing(median)]
    if not medians:
        return None
    return Spread(len(medians), min(medians), statistics.median(medians), max(medians))


def speedup_range(row: Row) -> tuple[float | None, float | None]:
    """The speed-up at the 95th and at the 5th percentile of the variant's steps."""
    if any(missing(row[name]) or row[name] <= 0 for name in ("fp32_step_ms_median", "step_ms_p05", "step_ms_p95")):
        return None, None
    return row["fp32_step_ms_median"] / row["step_ms_p95"], row["fp32_step_ms_median"] / row["step_ms_p05"]


def metric_key(metric: str) -> str:
    """The metric's name in lower case, without the smaller window of an SSIM that was taken in a small volume."""
    return re.sub(r"_window\d+$", "", metric.lower())


def compares_with_fp32(row: Row) -> bool:
    """Whether a quality row compares with fp32 from the same noise, not with a yardstick (another seed, the truth)."""
    return row["reference"] in (BASELINE, same_noise(BASELINE))


def find(quality: list[Row], metric: str, row: Row, compares: Callable[[Row], bool]) -> Row | None:
    """The quality row of `metric` for the cell of `row`, among those whose reference `compares` takes.

    Inside the mask if there is one, else over the whole volume, else outside the mask.
    """
    cell = ("model", "gpu", "variant", "solver")
    found = {
        candidate["region"]: candidate
        for candidate in quality
        if metric_key(candidate["metric"]) == metric
        and compares(candidate)
        and candidate["status"] == OK
        and not missing(candidate["value"])
        and all(candidate[key] == row[key] for key in cell)
    }
    return next((found[region] for region in REGIONS if region in found), None)


def against_fp32(quality: list[Row], metric: str, row: Row) -> Row | None:
    """The quality row of `metric` for a timing row's cell against fp32: inside the mask if there is one, else whole."""
    return find(quality, metric, row, compares_with_fp32)


def same_step(row: Row, other: Row | None) -> bool:
    """Whether two rows of a group are one measurement: those of a variant's solvers share the time of a step."""
    return other is not None and all(row[key] == other[key] for key in ("variant", "status", "step_ms_median"))


def answer(group: Group, quality: list[Row]) -> Answer:
    """The fastest variant of `group` whose status is ok, fp32 apart.

    By its speed-up, whose two sides were timed in one process, not by its time, which other jobs took beside others.
    """
    rivals = [row for row in group.measured if row["variant"] != BASELINE and not missing(row["speedup"])]
    fastest = max(rivals, key=lambda row: row["speedup"], default=None)
    low, high = speedup_range(fastest) if fastest else (None, None)
    volumes = [row for row in group.measured if not missing(row["volume_s"])]
    return Answer(
        group=group,
        row=fastest,
        speedup_low=low,
        speedup_high=high,
        spread=spread(group),
        ssim=against_fp32(quality, "ssim", fastest) if fastest else None,
        quickest_volume=min(volumes, key=lambda row: row["volume_s"], default=None),
    )
