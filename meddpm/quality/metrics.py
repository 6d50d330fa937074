"""How far a volume is from another one."""

from typing import NamedTuple

import numpy as np
from skimage.metrics import structural_similarity

from meddpm.config import ConfigError, EvaluateConfig, UserError

DATA_RANGE = 2.0
WHOLE, MASK, BACKGROUND = "whole", "mask", "background"

IDENTICAL = "identical: the PSNR is infinite"
NOT_FINITE = "the volume has values that are not finite"
EMPTY_MASK = "the mask is empty"
ZERO_REFERENCE = "the reference is zero"


class Measurement(NamedTuple):
    """One figure of one volume. `value` is None where there is none, and then `note` says why.

    `reference` names what the volume was held against. `worst`: of several volumes the largest value counts, not the
    mean.
    """

    metric: str
    region: str
    value: float | None
    note: str | None = None
    reference: str = ""
    worst: bool = False


def ssim_window(shape: tuple[int, ...], wanted: int) -> int:
    """The window for volumes of `shape` (voxels): `wanted`, or the largest odd number that fits a smaller side.

    Raises ConfigError where `wanted` is even or below 3, and UserError where a side is below 3 voxels.
    """
    if wanted < 3 or wanted % 2 == 0:
        raise ConfigError(f"evaluate.ssim_window is {wanted}: it must be an odd number of voxels, 3 or more")
    side = min(shape)
    if side < 3:
        raise UserError(f"SSIM needs 3 voxels along each axis: the volume has {shape}")
    return min(wanted, side if side % 2 else side - 1)


def ssim_map(volume: np.ndarray, reference: np.ndarray, window: int) -> tuple[float, np.ndarray]:
    """Structural similarity in 3D of two arrays (C, D, W, H) in [-1, 1]: mean and map (D, W, H), channels averaged.

    Wang et al. 2004, "Image Quality Assessment: From Error Visibility to Structural Similarity", with a cubic window
    of `window` voxels, by scikit-image. Its mean leaves out the margin where windows reach over the edge; the map has
    it, with the volume mirrored there.
    """
    pairs = zip(volume.astype(np.float64), reference.astype(np.float64), strict=True)
    channels = [structural_similarity(a, b, win_size=window, data_range=DATA_RANGE, full=True) for a, b in pairs]
    return float(np.mean([mean for mean, _ in channels])), np.mean([values for _, values in channels], axis=0)


def similarity(
    volume: np.ndarray, reference: np.ndarray, mask: np.ndarray, settings: EvaluateConfig, name: str = "ssim"
) -> list[Measurement]:
    """SSIM of `volume` with `reference` over the whole volume, and then inside the mask.

    `volume` and `reference` are float32 (C, D, W, H) in [-1, 1]; `mask` is (D, W, H), true or non-zero inside. The
    figure (1 is equal) is the mean over channels; inside the mask, the mean of the SSIM map there. Called `name`, or
    <name>_window<N> where the volume is smaller than the window of the settings and N voxels are used instead.

    A volume with values that are not finite has no figure, an empty mask none inside it; the note says so.
    Raises ValueError where the shapes do not agree, and what `ssim_window` raises.
    """
    if volume.ndim != 4 or volume.shape != reference.shape or mask.shape != volume.shape[1:]:
        raise ValueError(f"shapes do not agree: volume {volume.shape}, reference {reference.shape}, mask {mask.shape}")
    if not np.isfinite(reference).all():
        raise ValueError("the reference has values that are not finite")
    window = ssim_window(mask.shape, settings.ssim_window)
    metric = name if window == settings.ssim_window else f"{name}_window{window}"
    if not np.isfinite(volume).all():
        return [Measurement(metric, region, None, NOT_FINITE) for region in (WHOLE, MASK)]
    mean, values = ssim_map(volume, reference, window)
    inside = values[mask != 0]
    masked = (float(inside.mean()), None) if inside.size else (None, EMPTY_MASK)
    return [Measurement(metric, WHOLE, mean), Measurement(metric, MASK, *masked)]


def compare(volume: np.ndarray, reference: np.ndarray, mask: np.ndarray, settings: EvaluateConfig) -> list[Measurement]:
    """Measure `volume` against `reference`, over the whole volume and inside the mask; all as `similarity` takes them.

    - ssim: as `similarity` gives it.
    - psnr_db: 10 log10(range^2 / mean squared error), range 2, over the voxels of all channels. Equal volumes have
      no finite PSNR: the value is None, with a note, in place of an infinity.
    - relative_error: ||volume - reference|| / ||reference||, Euclidean norms over the voxels of all channels.
    - max_abs_difference: the largest difference of a voxel.

    What has no SSIM has none of the others. Raises what `similarity` raises.
    """
    whole, masked = similarity(volume, reference, mask, settings)
    inside = mask != 0
    return [
        whole,
        *_differences(volume, reference, WHOLE, whole.note),
        masked,
        *_differences(volume[:, inside], reference[:, inside], MASK, masked.note),
    ]


def _differences(volume: np.ndarray, reference: np.ndarray, region: str, note: str | None) -> list[Measurement]:
    """The figures that do not look at the neighbourhood, of arrays of any shape; none where a `note` says why."""
    if note:
        names = ("psnr_db", "relative_error", "max_abs_difference")
        return [Measurement(name, region, None, note) for name in names]
    difference = volume.astype(np.float64) - reference.astype(np.float64)
    mean_squared_error = float(np.mean(difference**2))
    norm = float(np.linalg.norm(reference.astype(np.float64)))
    if mean_squared_error > 0:
        psnr = Measurement("psnr_db", region, float(10 * np.log10(DATA_RANGE**2 / mean_squared_error)))
    else:
        psnr = Measurement("psnr_db", region, None, IDENTICAL)
    if norm > 0:
        relative = Measurement("relative_error", region, float(np.linalg.norm(difference)) / norm)
    else:
        relative = Measurement("relative_error", region, None, ZERO_REFERENCE)
    return [psnr, relative, Measurement("max_abs_difference", region, float(np.abs(difference).max()))]
