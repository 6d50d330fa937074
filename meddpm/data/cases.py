"""From what the files of a case hold to what a model is shown: floor, derived label, fit to a size, intensities."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import nibabel
import numpy as np

from meddpm.config import PreparationConfig, UserError
from meddpm.data import derive, grids, intensity, manifest
from meddpm.data.nifti import by
from meddpm.data.tasks import Goal
from meddpm.data.volumes import Case

if TYPE_CHECKING:
    from meddpm.data.examine import Examined

# What is usual, in litres: a whole head, scalp and skull included, has 3.8 in the published masks.
LITRES = {"head": (2.0, 7.0), "brain": (0.7, 2.2)}
# Edges of voxels below which a head would not fit into memory.
FINEST_MM = 0.1
# The share of a label that may be cut away without a word, and that which may be lost in larger voxels.
UNSAID_SHARE, UNSAID_LOSS = 0.001, 0.5
# The value of a background that is as good as black, and the share of the faces that shows that there is a background.
BLACK, BACKGROUND_SHARE = -0.95, 0.5
# The label of the published whole-head masks that is the head.
HEAD_LABEL = 1
DERIVED = {"brain": "rest of the brain", "head": "head"}


@dataclass(frozen=True)
class Built:
    """A prepared case, what was done to it, and what a person should look at; a sentence each."""

    case: Case
    changes: list[str]
    warnings: list[str]


def build(examined: "Examined", how: PreparationConfig, goal: Goal) -> Built:
    """The case for the models of `goal`, prepared as `how` says, in this order:

    `how.floor`, `how.derive`, `how.required_label`, `how.fit`, `how.intensity`. The published recipe of raw BraTS
    (Dorjsembe et al. 2023, arXiv 2305.18453) crops and scales first and derives the brain last, which gives the same
    where the crop has the background in it.

    Raises UserError where the required label is missing, nothing can be derived, no label is left in the fit or none
    that a model is shown, or the intensities cannot be scaled.
    """
    changes: list[str] = []
    warnings: list[str] = []
    images = _floored(examined, how, changes)
    label = _derived(examined, images, how, changes, warnings)
    _require_label(examined, label, how, goal.whole_head)
    warnings += _not_shown(examined, label, goal)
    if goal.whole_head:
        warnings += _odd_head(label == HEAD_LABEL, examined.affine)
    grid = grids.target_grid(label.shape, examined.affine, how, goal.size)
    required = _required(how, goal.whole_head)
    fitted = _fitted_label(examined, label, grid, required, warnings)
    changes += _fit_words(label.shape, examined.affine, grid)
    fitted_images = [_fitted_image(examined, image, grid, how) for image in images]
    channels = [
        intensity.scale(image, how, _file(examined, name))
        for name, image in zip(examined.names, fitted_images, strict=True)
    ]
    changes += _scale_words(examined, fitted_images, how)
    warnings += _bright_backgrounds(examined, fitted_images, channels)
    image = None if not channels else channels[0] if len(channels) == 1 else np.stack(channels, axis=-1)
    return Built(Case(examined.id, image, fitted, grid.affine), changes, warnings)


def _file(examined: "Examined", name: str) -> str:
    """The file that is the `name` of a case, for messages."""
    return examined.original.get("files", {}).get(name, f"{name} of {examined.id}")


def _floored(examined: "Examined", how: PreparationConfig, changes: list[str]) -> list[np.ndarray]:
    """The images, (H, W, D) each."""
    if examined.images is None:
        return []
    images = [examined.images[..., index] for index in range(len(examined.names))]
    if how.floor is None:
        return images
    raised = []
    for index, name in enumerate(examined.names):
        below = int((images[index] < how.floor).sum())
        if below:
            images[index] = np.maximum(images[index], np.float32(how.floor))
            raised.append(f"{name} {below}")
    if raised:
        which = "negative intensities" if how.floor == 0 else f"intensities below {how.floor:g}"
        changes.append(f"{which} set to {how.floor:g}, voxels: {', '.join(raised)}")
    return images


def _derived(
    examined: "Examined", images: list[np.ndarray], how: PreparationConfig, changes: list[str], warnings: list[str]
) -> np.ndarray:
    """The label map with the derived label in it."""
    label, value = examined.label, how.derived_label
    if how.derive == "none":
        return label
    what = f"label {value} ({DERIVED[how.derive]})"
    if (label == value).any():
        warnings.append(
            f"label {value} is in the map already: `derive: {how.derive}` draws nothing. If it is something else, name "
            f"another `derived_label`, or rename it (remap: {{{value}: 0}} drops it)"
        )
        return label
    if not images:
        raise UserError(
            f"{_file(examined, 'label')}: has no {what}, and the case has no image to derive it from; "
            "add an image or label it in the map."
        )
    name = examined.names[0]
    edges = manifest.spacing(examined.affine)
    if how.derive == "head" and min(edges) < FINEST_MM:
        raise UserError(
            f"{_file(examined, name)}: voxels of {_mm(examined.affine)} are too fine for a head; mend the header, or "
            "set `derive: none` and label it in the map."
        )
    mask = derive.brain(images[0]) if how.derive == "brain" else derive.head(images[0], edges)
    derive.require_plausible(mask, how.derive, _file(examined, name))
    litres = _millilitres(mask, examined.affine) / 1000
    low, high = LITRES[how.derive]
    if not low <= litres <= high:
        warnings.append(
            f"{litres:.2g} L were taken for {how.derive} in {name}, where {low:g} to {high:g} L are usual: look at it"
        )
    label = np.where(mask & (label == 0), np.uint8(value), label)
    changes.append(f"{what} derived from {name}: {_ml(_millilitres(label == value, examined.affine))}")
    return label


def _require_label(examined: "Examined", label: np.ndarray, how: PreparationConfig, whole_head: bool) -> None:
    file = _file(examined, "label")
    if not label.any():
        raise UserError(f"{file}: every voxel is 0; label something or leave the case out.")
    value = _required(how, whole_head)
    if value is None or (label == value).any():
        return
    kind = "head" if whole_head else "brain"
    draw = f"set `derive: {kind}` and `derived_label: {value}` to draw it from the first image"
    drawn = how.derive != "none" and how.derived_label == value
    mend = "label it in the map" if drawn else draw
    raise UserError(f"{file}: has no label {value} ({kind}); rename a label with `remap`, or {mend}.")


def _required(how: PreparationConfig, whole_head: bool) -> int | None:
    """The label that a case must have; None: any."""
    return HEAD_LABEL if whole_head and how.required_label is None else how.required_label


def _not_shown(examined: "Examined", label: np.ndarray, goal: Goal) -> list[str]:
    """What the models do not see of a map; refused where they would see nothing."""
    if not goal.labels:
        return []
    there = [int(value) for value in np.unique(label[label > 0])]
    shown = ", ".join(map(str, goal.labels))
    if not set(there) & set(goal.labels):
        raise UserError(
            f"{_file(examined, 'label')}: has labels {', '.join(map(str, there))}, and the model is shown {shown}: "
            "nothing would be left; rename labels with `remap`."
        )
    unseen = [(value, f"the model, which is shown {shown}") for value in there if value not in goal.labels]
    unseen += [(value, "one of the models, which is not shown it") for value in there if value in goal.partly]
    return [
        f"label {value} ({_ml(_millilitres(label == value, examined.affine))}) is background to {whom}"
        for value, whom in unseen
    ]


def _odd_head(head: np.ndarray, affine: np.ndarray) -> list[str]:
    litres = _millilitres(head, affine) / 1000
    low, high = LITRES["head"]
    if low <= litres <= high:
        return []
    size = "more than a head" if litres > high else "the size of a brain, not of a head"
    size = "no head" if litres < LITRES["brain"][0] else size
    held = f"{litres:.1f} L" if litres >= LITRES["brain"][0] else _ml(1000 * litres)
    return [
        f"label {HEAD_LABEL} holds {held}: {size} (about 3.8 L). To published whole-head weights it is the whole head, "
        "scalp and skull included, and they make nonsense of other masks"
    ]


def _fitted_label(
    examined: "Examined", label: np.ndarray, grid: grids.Grid, required: int | None, warnings: list[str]
) -> np.ndarray:
    """The label map on `grid`; what the fit takes from it becomes a warning, or the end where it takes all."""
    affine = examined.affine
    before = np.bincount(label.ravel(), minlength=256)
    inside = np.bincount(label[grids.kept(label.shape, affine, grid)].ravel(), minlength=256)
    fitted = grids.label_onto(label, affine, grid)
    after = np.bincount(fitted.ravel(), minlength=256)
    needed = np.arange(1, 256) if required is None else required
    if not after[needed].any():
        what = "no label is left" if required is None else f"label {required} is not left"
        raise UserError(
            f"{_file(examined, 'label')}: {what} in the {by(grid.shape)} voxels of the model; "
            "set another `fit` or leave the case out."
        )
    voxel_ml, fitted_ml = (abs(np.linalg.det(each[:3, :3])) / 1000 for each in (affine, grid.affine))
    for value in np.flatnonzero(before[1:]) + 1:
        cut = int(before[value] - inside[value])
        share = cut / before[value]
        if share > UNSAID_SHARE:
            warnings.append(
                f"the fit cuts away {_ml(cut * voxel_ml)} ({share:.1%}) of label {value}: `fit: contain` keeps all, "
                "larger `spacing_mm` more"
            )
        kept_ml, left_ml = inside[value] * voxel_ml, after[value] * fitted_ml
        if inside[value] and not after[value]:
            warnings.append(f"label {value} ({_ml(kept_ml)}) vanishes in voxels of {_mm(grid.affine)}")
        elif left_ml < UNSAID_LOSS * kept_ml:
            lost = f"{_ml(left_ml)} of its {_ml(kept_ml)}"
            warnings.append(f"label {value} keeps {lost} in voxels of {_mm(grid.affine)}")
    return fitted


def _fit_words(shape: tuple[int, ...], affine: np.ndarray, grid: grids.Grid) -> list[str]:
    """What the fit did, none where it did nothing."""
    if not grids.is_aligned(shape, affine, grid):
        return [f"resampled from {by(shape)} voxels of {_mm(affine)} to {by(grid.shape)} of {_mm(grid.affine)}"]
    cropped = any(new < old for old, new in zip(shape, grid.shape, strict=True))
    padded = any(new > old for old, new in zip(shape, grid.shape, strict=True))
    words = " and ".join(word for word, done in (("cropped", cropped), ("padded", padded)) if done)
    return [f"{words} from {by(shape)} to {by(grid.shape)}"] if words else []


def _fitted_image(examined: "Examined", image: np.ndarray, grid: grids.Grid, how: PreparationConfig) -> np.ndarray:
    """One image on `grid`. Outside of the volume it goes on as its background."""
    fill = -1.0 if how.intensity == "as_is" else derive.background(image)
    return grids.onto(image, examined.affine, grid, fill)


def _scale_words(examined: "Examined", fitted: list[np.ndarray], how: PreparationConfig) -> list[str]:
    """From which intensities the images were scaled."""
    if how.intensity == "as_is" or not fitted:
        return []
    ranges = [intensity.range_of(image, how) for image in fitted]
    words = [f"{name} from {low:g}..{high:g}" for name, (low, high) in zip(examined.names, ranges, strict=True)]
    return [f"scaled to [-1, 1] by {how.intensity}: {', '.join(words)}"]


def _bright_backgrounds(examined: "Examined", fitted: list[np.ndarray], scaled: list[np.ndarray]) -> list[str]:
    """A warning for each image whose background does not become black, because something is darker."""
    found = []
    for name, before, after in zip(examined.names, fitted, scaled, strict=True):
        value = derive.background(before)
        where = before == value
        if derive.faces(where).mean() > BACKGROUND_SHARE and after[where].mean() > BLACK:
            found.append(
                f"the background of {name}, {value:g}, is not its darkest value and becomes {after[where].mean():.2g}, "
                f"not -1: `floor: {value:g}` mends it"
            )
    return found


def _ml(volume: float) -> str:
    return f"{volume:.0f} mL" if volume >= 100 else f"{volume:.3g} mL"


def _millilitres(mask: np.ndarray, affine: np.ndarray) -> float:
    return float(mask.sum() * abs(np.linalg.det(affine[:3, :3])) / 1000)


def _mm(affine: np.ndarray) -> str:
    """The edges of voxels, as 1x1x1.25 mm."""
    return "x".join(f"{edge:.3g}" for edge in nibabel.affines.voxel_sizes(affine)) + " mm"
