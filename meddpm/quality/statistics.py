"""Uncertainty of a mean over volumes."""

import warnings
from collections.abc import Sequence

import numpy as np
import scipy.stats


def bootstrap_interval(
    values: Sequence[float], resamples: int, confidence: float, seed: int = 0
) -> tuple[float | None, float | None]:
    """Bootstrap interval (low, high) of the mean of `values`, bias-corrected and accelerated (BCa).

    Efron 1987, "Better Bootstrap Confidence Intervals", by scipy.stats.bootstrap. The same values and seed give the
    same interval. One value or none says nothing about the spread: (None, None). Values that are all equal give the
    interval of no width. Raises ValueError where a value is not finite.
    """
    sample = np.asarray(values, dtype=np.float64)
    if not np.isfinite(sample).all():
        raise ValueError("the bootstrap needs finite values")
    if sample.size < 2:
        return None, None
    if sample.min() == sample.max():
        return float(sample[0]), float(sample[0])

    def interval(method: str) -> tuple[float, float]:
        with warnings.catch_warnings(), np.errstate(invalid="ignore"):
            warnings.simplefilter("ignore", scipy.stats.DegenerateDataWarning)
            result = scipy.stats.bootstrap(
                (sample,),
                np.mean,
                n_resamples=resamples,
                confidence_level=confidence,
                method=method,
                rng=np.random.default_rng(seed),
            )
        return float(result.confidence_interval.low), float(result.confidence_interval.high)

    low, high = interval("BCa")
    # BCa has no answer where no resample lies on one side of the mean; the percentiles always have one.
    return (low, high) if np.isfinite([low, high]).all() else interval("percentile")
