"""Does the picture stay the same: metrics of volumes and statistics over them."""

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from meddpm.config import EvaluateConfig
from meddpm.status import FAILED, OK
from meddpm.tables import Row

if TYPE_CHECKING:
    import numpy as np

    from meddpm.quality.metrics import Measurement


def quality_rows(
    pairs: Iterable[tuple["np.ndarray", "np.ndarray", "np.ndarray"]], settings: EvaluateConfig
) -> list[Row]:
    """Rows {metric, region, value, ci_low, ci_high, n, status, reason} over all `pairs`, in the order of `compare`.

    Each pair is (volume, reference, mask) as `meddpm.quality.metrics.compare` takes them; they are read one at a time.
    `value` is the mean over the `n` volumes that have the figure, with its bootstrap interval; the interval is empty
    for one volume. `reason` counts the volumes that have no figure and says why (the PSNR of equal volumes). The
    status is "failed" where a volume holds values that are not finite: a mean over the others would hide it, so the
    value is empty.
    """
    from meddpm.quality.metrics import NOT_FINITE, compare

    measured: dict[tuple[str, str], list[Measurement]] = defaultdict(list)
    for volume, reference, mask in pairs:
        for measurement in compare(volume, reference, mask, settings):
            measured[measurement.metric, measurement.region].append(measurement)

    rows = []
    for (metric, region), measurements in measured.items():
        failed = any(measurement.note == NOT_FINITE for measurement in measurements)
        values = [] if failed else [entry.value for entry in measurements if entry.value is not None]
        rows.append(
            {
                "metric": metric,
                "region": region,
                **_mean_and_interval(values, settings),
                "status": FAILED if failed else OK,
                "reason": _reason(measurements),
            }
        )
    return rows


def _mean_and_interval(values: list[float], settings: EvaluateConfig) -> Row:
    from meddpm.quality.statistics import bootstrap_interval

    low, high = bootstrap_interval(values, settings.bootstrap, settings.confidence)
    mean = sum(values) / len(values) if values else None
    return {"value": mean, "ci_low": low, "ci_high": high, "n": len(values)}


def _reason(measurements: list["Measurement"]) -> str | None:
    """What is to be said about volumes without a figure, each note with the number of volumes."""
    notes = [measurement.note for measurement in measurements if measurement.note]
    counted = [f"{notes.count(note)} of {len(measurements)} volumes: {note}" for note in dict.fromkeys(notes)]
    return "; ".join(counted) or None
