"""How far a volume is what its label map and the true image of its case say, with yardsticks to read that by."""

import functools
from collections.abc import Iterable

import numpy as np

from meddpm.config import EvaluateConfig
from meddpm.quality import BLACK, LABEL_MAP, TRUE_IMAGE
from meddpm.quality.metrics import BACKGROUND, MASK, NOT_FINITE, WHOLE, Measurement, similarity
from meddpm.quality.tissues import Recovered, in_order, recover

NO_BACKGROUND = "the label map has no background"
OTHER_CHANNELS = "the volume and the true image hold different numbers of images"
RECOVERS_NONE = "the true image recovers none"


class Truth:
    """What is known of one case.

    `image` is float32 (C, D, W, H) in [-1, 1], or None where the case has none; `label` is (D, W, H), 0 outside the
    body. `tissues` gives the label of each tissue, the darkest first; empty where the map does not tell them apart.
    """

    def __init__(
        self, image: np.ndarray | None, label: np.ndarray, tissues: dict[str, int], settings: EvaluateConfig
    ) -> None:
        self.image, self.label, self.tissues, self.settings = image, label, tissues, settings

    @property
    def mask(self) -> np.ndarray:
        """True inside the body: (D, W, H)."""
        return self.label > 0

    @functools.cached_property
    def recovered(self) -> Recovered:
        """The tissues recovered from the true image: what a perfect volume would reach."""
        return recover(self.image, self.label, self.tissues)

    @functools.cached_property
    def yardsticks(self) -> list[Measurement]:
        """The figures of the case itself, none where it has no true image.

        - ssim_of_label_means: SSIM to the true image of `label_means`, a picture that needs no model.
        - dice_<tissue>_of_true_image: Dice of the tissues recovered from the true image.
        """
        if self.image is None:
            return []
        painted = label_means(self.image, self.label)
        likeness = similarity(painted, self.image, self.mask, self.settings, "ssim_of_label_means")
        dice = [
            Measurement(f"dice_{name}_of_true_image", MASK, self.recovered.dice.get(name), self.recovered.note)
            for name in self.tissues
        ]
        return [*_against(TRUE_IMAGE, likeness), *_against(LABEL_MAP, dice)]

    def figures(self, volume: np.ndarray) -> list[Measurement]:
        """The figures of one `volume` (C, D, W, H) in [-1, 1] drawn for the case.

        - ssim, to the true image.
        - dice_<tissue>, as `meddpm.quality.tissues.recover`, and dice_<tissue>_over_true_image, its ratio to that of
          the true image.
        - tissue_order: 1 where the mean intensities of the tissues rise in their order, else 0.
        - background_mean: the mean intensity outside the body, and background_offset_max, how far it is from -1, the
          black of an image; of several volumes the worst.
        """
        return [*self._likeness(volume), *self._tissue_figures(volume), *self._background(volume)]

    def _likeness(self, volume: np.ndarray) -> list[Measurement]:
        if self.image is None:
            return []
        if len(volume) != len(self.image):
            return [Measurement("ssim", region, None, OTHER_CHANNELS, TRUE_IMAGE) for region in (WHOLE, MASK)]
        return _against(TRUE_IMAGE, similarity(volume, self.image, self.mask, self.settings))

    def _tissue_figures(self, volume: np.ndarray) -> list[Measurement]:
        if not self.tissues:
            return []
        own = recover(volume, self.label, self.tissues)
        found = [Measurement(f"dice_{name}", MASK, own.dice.get(name), own.note) for name in self.tissues]
        if self.image is not None:
            found += [self._ratio(name, own) for name in self.tissues]
        ordered, note = in_order(volume, self.label, self.tissues)
        found.append(Measurement("tissue_order", MASK, None if ordered is None else float(ordered), note))
        return _against(LABEL_MAP, found)

    def _ratio(self, name: str, own: Recovered) -> Measurement:
        metric = f"dice_{name}_over_true_image"
        if own.note:
            return Measurement(metric, MASK, None, own.note)
        if not self.recovered.dice.get(name):
            return Measurement(metric, MASK, None, RECOVERS_NONE)
        return Measurement(metric, MASK, own.dice[name] / self.recovered.dice[name])

    def _background(self, volume: np.ndarray) -> list[Measurement]:
        outside = volume[:, ~self.mask]
        note = NOT_FINITE if not np.isfinite(volume).all() else None if outside.size else NO_BACKGROUND
        mean = None if note else float(outside.mean(dtype=np.float64))
        offset = None if mean is None else abs(mean + 1)
        return [
            Measurement("background_mean", BACKGROUND, mean, note, BLACK),
            Measurement("background_offset_max", BACKGROUND, offset, note, BLACK, worst=True),
        ]


def label_means(image: np.ndarray, label: np.ndarray) -> np.ndarray:
    """`image` (C, D, W, H) with each label of the map (D, W, H), the background too, painted in its mean intensity."""
    painted = np.empty_like(image)
    for value in np.unique(label):
        where = label == value
        painted[:, where] = image[:, where].mean(axis=1, dtype=np.float64, keepdims=True)
    return painted


def _against(reference: str, measurements: Iterable[Measurement]) -> list[Measurement]:
    return [measurement._replace(reference=reference) for measurement in measurements]
