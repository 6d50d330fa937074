"""Small pictures of one prepared case, as data: URIs of WebP: its images, contours to lay over them, and its labels.

Each pane is a square of `PANE` pixels that is shown at half that size or smaller; all panes of a case have one scale.
"""

import base64
import io
from dataclasses import dataclass

import numpy as np
from matplotlib.colors import to_rgb
from PIL import Image
from scipy.ndimage import minimum_filter

from meddpm.data.volumes import Case
from meddpm.report.upright import PLANES, Volume, centre, cut, grey, label_colour, turn

PANE = 224
# Grey values stand this. Thin lines in colour do not: contours are a picture of their own, kept exactly.
QUALITY = 80
LINE = 2  # pixels
_COLOURS = np.array([to_rgb("black"), *(to_rgb(label_colour(label)) for label in range(1, 256))])
# Colours of labels 0 to 255, (256, 3), 0 to 255.
PAINTS = np.rint(255 * _COLOURS).astype(np.uint8)


@dataclass(frozen=True)
class CasePictures:
    """Pictures of a case as data: URIs, each a strip of panes beside each other.

    `slices` has the three planes of the first image, `further` the axial plane of each further image; `lines` and
    `further_lines` are transparent but for the contours to lie over them. `labels` has the three planes of the label
    map in flat colours. What the case has not is empty: all but `labels` where it is a label map alone. `count` is the
    number of its images.
    """

    labels: str
    slices: str = ""
    lines: str = ""
    further: str = ""
    further_lines: str = ""
    count: int = 0


def draw(case: Case) -> CasePictures:
    """Draw a case, each plane where its rarest label is largest."""
    label = turn(case.label, case.affine)
    at = centre(label.array)
    order = commonest_first(case.label)
    panes = fitted(cut(label, at)[0], _extent_mm(label), Image.Resampling.NEAREST)
    labels = _encoded(np.hstack([PAINTS[panes[name]] for name in PLANES]), exact=True)
    if case.image is None:
        return CasePictures(labels)
    lines = {name: _transparent(contours(pane, order)) for name, pane in panes.items()}
    count = case.image.shape[3] if case.image.ndim == 4 else 1
    first, *others = (_greys(turn(case.image, case.affine, number), at) for number in range(count))
    return CasePictures(
        labels,
        _encoded(np.hstack([first[name] for name in PLANES])),
        _encoded(np.hstack([lines[name] for name in PLANES]), exact=True),
        _encoded(np.hstack([image["axial"] for image in others])) if others else "",
        _encoded(np.hstack([lines["axial"] for _ in others]), exact=True) if others else "",
        count,
    )


def fitted(
    planes: dict[str, np.ndarray], extent_mm: tuple[float, float, float], resampling: Image.Resampling
) -> dict[str, np.ndarray]:
    """Planes of uint8, each in the middle of a black square (PANE, PANE).

    `extent_mm` is that of the volume, to the right, front and up: the longest edge fills a pane, and pixels are square
    whatever the voxels are.
    """
    right, front, up = extent_mm
    sides_mm = {"sagittal": (front, up), "coronal": (right, up), "axial": (right, front)}
    scale = PANE / max(extent_mm)
    found = {}
    for name, plane in planes.items():
        width, height = (max(1, round(scale * side)) for side in sides_mm[name])
        picture = Image.fromarray(np.ascontiguousarray(plane)).resize((width, height), resampling)
        left, top = (PANE - width) // 2, (PANE - height) // 2
        pane = np.zeros((PANE, PANE), np.uint8)
        pane[top : top + height, left : left + width] = np.asarray(picture)
        found[name] = pane
    return found


def commonest_first(label: np.ndarray) -> list[int]:
    """The labels of a map but 0, the largest first."""
    values, counts = np.unique(label[label > 0], return_counts=True)
    return [int(value) for value in values[np.argsort(-counts, kind="stable")]]


def contours(plane: np.ndarray, order: list[int]) -> np.ndarray:
    """The contours of the labels of a plane, `LINE` pixels wide: the label there, 0 elsewhere.

    A border belongs to the rarer of its two labels, as `order` has them from the commonest on, and lies inside it: the
    rim of a lesion has one colour, that of the lesion.
    """
    ranks = np.zeros(256, np.uint8)
    ranks[order] = np.arange(1, len(order) + 1)
    ranked = ranks[plane]
    return np.where(minimum_filter(ranked, size=1 + 2 * LINE, mode="nearest") < ranked, plane, 0)


def _extent_mm(volume: Volume) -> tuple[float, float, float]:
    right, front, up = (side * edge for side, edge in zip(volume.array.shape, volume.spacing, strict=True))
    return right, front, up


def _greys(volume: Volume, at: tuple[int, int, int]) -> dict[str, np.ndarray]:
    """The planes of an image in [-1, 1] as `fitted` gives them."""
    planes = {name: grey(plane) for name, plane in cut(volume, at)[0].items()}
    return fitted(planes, _extent_mm(volume), Image.Resampling.BICUBIC)


def _transparent(lines: np.ndarray) -> np.ndarray:
    """Contours in the colours of their labels, with an opacity: (rows, columns, 4)."""
    return np.dstack([PAINTS[lines], np.where(lines > 0, 255, 0).astype(np.uint8)])


def _encoded(picture: np.ndarray, exact: bool = False) -> str:
    """A picture (rows, columns[, channels]) of uint8 as a data: URI; `exact`: every pixel as it is."""
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, "WEBP", lossless=exact, quality=QUALITY, method=4)
    return "data:image/webp;base64," + base64.b64encode(stream.getvalue()).decode("ascii")
