"""Do the tissues of a label map stand out in a volume: recovered from intensity alone, and in the right order."""

import itertools
from typing import NamedTuple

import numpy as np
from skimage.filters import threshold_multiotsu

from meddpm.quality.metrics import NOT_FINITE

BINS = 256

SEVERAL_IMAGES = "the volume holds several images: tissues are looked for in one"
NOT_ALL_TISSUES = "the label map lacks a tissue"
NO_CLASSES = "multi-Otsu finds too few classes of intensity"


class Recovered(NamedTuple):
    """Dice of each tissue by name. Empty where there is none, and then `note` says why."""

    dice: dict[str, float]
    note: str | None = None


def recover(volume: np.ndarray, label: np.ndarray, tissues: dict[str, int]) -> Recovered:
    """Recover the tissues of `volume` from its intensities, and compare them with the label map by Dice.

    `volume` is (1, D, W, H), `label` (D, W, H), `tissues` the label of each tissue, the darkest tissue first. The
    intensities of the voxels that have one of these labels are split into as many classes by multi-Otsu (Liao et al.
    2001, "A Fast Algorithm for Multilevel Thresholding", by scikit-image), which rise in the order of `tissues`. Other
    voxels, of the background or of a lesion, stand on neither side.
    """
    note = _why_not(volume, label, tissues)
    if note:
        return Recovered({}, note)
    inside = np.isin(label, list(tissues.values()))
    intensities, labels = volume[0][inside].astype(np.float64), label[inside]
    classes = _classes(intensities, len(tissues))
    if classes is None:
        return Recovered({}, NO_CLASSES)
    pairs = enumerate(tissues.items())
    return Recovered({name: _dice(classes == rank, labels == value) for rank, (name, value) in pairs})


def in_order(volume: np.ndarray, label: np.ndarray, tissues: dict[str, int]) -> tuple[bool | None, str | None]:
    """Whether the mean intensities of the `tissues` rise in their order, or None and why it cannot be told.

    Takes what `recover` takes.
    """
    note = _why_not(volume, label, tissues)
    if note:
        return None, note
    means = [volume[0][label == value].mean(dtype=np.float64) for value in tissues.values()]
    return all(darker < brighter for darker, brighter in itertools.pairwise(means)), None


def _why_not(volume: np.ndarray, label: np.ndarray, tissues: dict[str, int]) -> str | None:
    if len(volume) != 1:
        return SEVERAL_IMAGES
    if not np.isfinite(volume).all():
        return NOT_FINITE
    return None if np.isin(list(tissues.values()), label).all() else NOT_ALL_TISSUES


def _classes(intensities: np.ndarray, classes: int) -> np.ndarray | None:
    """The class of each intensity, 0 the darkest; None where they have fewer values than `classes`."""
    try:
        thresholds = threshold_multiotsu(intensities, classes, nbins=BINS)
    except ValueError:
        return None
    # scikit-image names the middle of the last bin of a class; the class ends where that bin ends.
    return np.digitize(intensities, thresholds + np.ptp(intensities) / BINS / 2)


def _dice(one: np.ndarray, other: np.ndarray) -> float:
    """Dice 1945: twice the common voxels over the sum of both; `other` has some."""
    return float(2 * np.sum(one & other) / (np.sum(one) + np.sum(other)))
