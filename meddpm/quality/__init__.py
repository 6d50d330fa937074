"""Does the picture stay the same, and is it a good one: figures of volumes and statistics over them."""

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from meddpm.config import EvaluateConfig
from meddpm.status import FAILED, OK
from meddpm.tables import Row

if TYPE_CHECKING:
    from meddpm.quality.metrics import Measurement

# What a row is compared with, as the table has it.
TRUE_IMAGE = "true image"
LABEL_MAP = "label map"
BLACK = "black, -1"
ANOTHER_SEED = "another seed, same mask"
SAME_NOISE = ", same noise"
SAME_NOISE_AND_MASK = ", same noise and mask"


def same_noise(variant: str) -> str:
    """The reference of what was drawn by another `variant` with the same solver."""
    return variant + SAME_NOISE


def same_noise_and_mask(solver: str) -> str:
    """The reference of what was drawn with another `solver` by the same variant."""
    return solver + SAME_NOISE_AND_MASK


def quality_rows(measurements: Iterable["Measurement"], settings: EvaluateConfig) -> list[Row]:
    """Rows {reference, metric, region, value, ci_low, ci_high, n, status, reason} of the figures of some volumes.

    A row has the figures that share reference, metric and region; rows come in the order of the first of each.
    `value` is the mean over the `n` volumes that have the figure, with its bootstrap interval; the interval is empty
    for one volume. Where the figure asks for the worst case, `value` is the largest, with no interval. `reason` counts
    the volumes that have no figure and says why (the PSNR of equal volumes). The status is "failed" where a volume
    holds values that are not finite: a mean over the others would hide it, so the value is empty.
    """
    from meddpm.quality.metrics import NOT_FINITE

    measured: dict[tuple[str, str, str], list[Measurement]] = defaultdict(list)
    for measurement in measurements:
        measured[measurement.reference, measurement.metric, measurement.region].append(measurement)

    rows = []
    for (reference, metric, region), found in measured.items():
        failed = any(measurement.note == NOT_FINITE for measurement in found)
        values = [] if failed else [entry.value for entry in found if entry.value is not None]
        summarised = _largest(values) if found[0].worst else _mean_and_interval(values, settings)
        rows.append(
            {
                "reference": reference,
                "metric": metric,
                "region": region,
                **summarised,
                "status": FAILED if failed else OK,
                "reason": _reason(found),
            }
        )
    return rows


def _mean_and_interval(values: list[float], settings: EvaluateConfig) -> Row:
    from meddpm.quality.statistics import bootstrap_interval

    low, high = bootstrap_interval(values, settings.bootstrap, settings.confidence)
    mean = sum(values) / len(values) if values else None
    return {"value": mean, "ci_low": low, "ci_high": high, "n": len(values)}


def _largest(values: list[float]) -> Row:
    return {"value": max(values, default=None), "ci_low": None, "ci_high": None, "n": len(values)}


def _reason(measurements: list["Measurement"]) -> str | None:
    """What is to be said about volumes without a figure, each note with the number of volumes."""
    notes = [measurement.note for measurement in measurements if measurement.note]
    counted = [f"{notes.count(note)} of {len(measurements)} volumes: {note}" for note in dict.fromkeys(notes)]
    return "; ".join(counted) or None
