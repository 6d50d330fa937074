"""Intensities of an image to [-1, 1]."""

import numpy as np

from meddpm.config import PreparationConfig, UserError

# How far outside [-1, 1] an image may be that is there already: rounding, no more.
TOLERANCE = 1e-3


def scale(image: np.ndarray, how: PreparationConfig, name: str = "the image") -> np.ndarray:
    """`image` (H, W, D) as `how.intensity` says: float32 in [-1, 1].

    - "minmax": the minimum becomes -1 and the maximum 1.
    - "percentile": so do the two `how.percentiles`; what lies beyond is cut.
    - "med_ddpm_per_slice": "minmax" for each slice [:, :, k] by itself, a constant slice becoming -1. An oddity of the
      published whole-head model (Dorjsembe et al. 2023, arXiv 2305.18453) that makes slices brighter or darker than
      their neighbours; its weights have learnt it.
    - "as_is": left as it is, but for what rounding put outside.

    Raises UserError, which begins with `name`, where the image is constant, where both percentiles are one value, and
    where "as_is" is not in [-1, 1].
    """
    low, high = float(image.min()), float(image.max())
    if low == high:
        raise UserError(
            f"{name}: is {low:g} everywhere in what is kept of it; look at `floor` and `fit`, or leave the case out."
        )
    match how.intensity:
        case "as_is":
            if low < -1 - TOLERANCE or high > 1 + TOLERANCE:
                raise UserError(
                    f"{name}: runs from {low:g} to {high:g}, outside [-1, 1]; set `intensity: minmax` to scale it."
                )
            return np.clip(image, -1, 1).astype(np.float32)
        case "percentile":
            low, high = _percentiles(image, how.percentiles, name)
            return _between(image, low, high)
        case "med_ddpm_per_slice":
            return _between(image, image.min(axis=(0, 1)), image.max(axis=(0, 1)))
    return _between(image, low, high)


def range_of(image: np.ndarray, how: PreparationConfig) -> tuple[float, float]:
    """The values of `image` (H, W, D) that `scale` takes to -1 and 1, of all slices together."""
    if how.intensity == "percentile":
        low, high = np.percentile(image, how.percentiles)
        return float(low), float(high)
    return float(image.min()), float(image.max())


def _percentiles(image: np.ndarray, percentiles: tuple[float, float], name: str) -> tuple[float, float]:
    first, last = percentiles
    if not 0 <= first < last <= 100:
        raise UserError(f"percentiles: {first:g} and {last:g} are not two numbers from 0 to 100, the lower one first.")
    low, high = np.percentile(image, percentiles)
    if low == high:
        raise UserError(
            f"{name}: percentiles {first:g} and {last:g} are both {low:g}, as so much of it is background; "
            "raise the upper one or set `intensity: minmax`."
        )
    return float(low), float(high)


def _between(image: np.ndarray, low: float | np.ndarray, high: float | np.ndarray) -> np.ndarray:
    """`image` with `low` at -1 and `high` at 1, the rest cut; -1 where they are equal. Worked out in float64."""
    extent = np.subtract(high, low, dtype=np.float64)
    values = image.astype(np.float64)
    np.clip(values, low, high, out=values)
    values -= low
    values /= np.where(extent > 0, extent, 1)
    return (2 * values - 1).astype(np.float32)
