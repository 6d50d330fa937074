"""From the files of a case to its arrays on one grid, with all that can be judged before anything is resampled."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from meddpm.config import PreparationConfig, UserError
from meddpm.data import grids, manifest, volumes
from meddpm.data.conditions import LARGEST_SOURCE, remap
from meddpm.data.layouts import CaseFiles
from meddpm.data.layouts.names import below
from meddpm.data.nifti import by, corners_apart

# How far a label may be from an integer, as scaling and float32 leave it.
INTEGER_TOLERANCE = 1e-3
# How far the corners of two grids may lie apart, in edges of a voxel: above the first a warning, above the second none.
NOTABLE_SHIFT, LARGEST_SHIFT = 0.1, 0.25
# How many labels a message names.
NAMED_LABELS = 5


@dataclass(frozen=True)
class Examined:
    """A case as its files hold it, turned to the orientation of its preparation.

    `images` is float32 (H, W, D, C) in the units of the files, finite, the channels as `names` says; None where there
    is a label map alone. `label` is uint8 (H, W, D), remapped, and not empty unless a label is to be derived. `affine`
    (4, 4) of both takes voxel indices to millimetres in RAS+. `original` has the columns files and original_* of
    `meddpm.data.manifest.CaseRow`. `changes` says what was done, `warnings` what a person should look at.
    """

    id: str
    images: np.ndarray | None
    names: tuple[str, ...]
    label: np.ndarray
    affine: np.ndarray
    original: dict[str, Any]
    changes: list[str]
    warnings: list[str]


@dataclass(frozen=True)
class _Placed:
    """Where the voxels of a file lie once they are turned; `name` is what warnings call it."""

    path: Path
    name: str
    shape: tuple[int, ...]
    affine: np.ndarray


def examine(files: CaseFiles, root: Path, how: PreparationConfig, labels: Sequence[int]) -> Examined:
    """Read the files of a case, which lie below `root`, and bring them to one grid.

    `labels` are those of the models that use the dataset, for a preparation that names none; empty: any will do.
    Raises UserError, a line for each fault, where names already show faults; else at the first of: a file that cannot
    be read, labels that are not whole numbers from 0 to 65535, an image that is not finite or constant, shapes or
    places that differ between files turned alike, a label map with nothing in it or with labels nobody knows.
    """
    if files.faults:
        raise UserError("\n".join(files.faults))
    if files.label is None:
        raise UserError(f"{files.id}: has no label map; put it beside the images or leave the case out.")
    changes, warnings = [], []
    turned_from = {}

    def read(name: str, path: Path) -> volumes.Volume:
        volume = volumes.load(path)
        changes.extend(f"{name}: {change}" for change in volume.changes)
        warnings.extend(f"{below(path, root)}: {warning}" for warning in volume.warnings)
        turned_from[name] = manifest.orientation(volume.affine)
        return volume

    volume = read("label", files.label)
    values = _whole_numbers(files.label, volume.array)
    original_affine = volume.affine
    values, affine = grids.orient(values, original_affine, how.orientation)
    label_placed = _Placed(files.label, below(files.label, root), values.shape, affine)
    original = {
        "files": files.names(root),
        "original_shape": tuple(volume.array.shape),
        "original_spacing_mm": manifest.spacing(original_affine),
        "original_orientation": turned_from["label"],
        "original_affine": tuple(float(number) for number in original_affine[:3].ravel()),
        "original_intensity_ranges": {},
        "original_label_volumes_ml": manifest.label_volumes(values, affine),
    }
    del volume

    images = np.empty((*values.shape, len(files.images)), np.float32) if files.images else None
    for channel, (name, path) in enumerate(files.images.items()):
        volume = read(name, path)
        image = volumes.finite(path, volume.array)
        original["original_intensity_ranges"][name] = _range(path, image)
        image, image_affine = grids.orient(image, volume.affine, how.orientation)
        placed = _Placed(path, below(path, root), image.shape, image_affine)
        warnings.extend(_misplaced(placed, label_placed))
        images[..., channel] = image

    changes.extend(_turns(turned_from, how.orientation))
    values, done = _known(files.label, values, original["original_label_volumes_ml"], how, labels)
    return Examined(files.id, images, tuple(files.images), values, affine, original, changes + done, warnings)


def _whole_numbers(path: Path, array: np.ndarray) -> np.ndarray:
    """The labels of a file as int32."""
    if array.dtype.kind == "f":
        unusable = int(array.size - np.isfinite(array).sum())
        if unusable:
            raise UserError(
                f"{path}: {unusable} voxels of this label map are NaN or infinite; set them to a label or 0."
            )
        rounded = np.rint(array)
        between = np.abs(array - rounded) > INTEGER_TOLERANCE
        if between.any():
            raise UserError(
                f"{path}: {int(between.sum())} labels are fractions, such as {array[between][0]:.4g}; resample label "
                "maps by nearest neighbour, and check that this is not the image."
            )
        array = rounded
    low, high = array.min(), array.max()
    if low < 0 or high > LARGEST_SOURCE:
        raise UserError(
            f"{path}: goes from {low:g} to {high:g}, and labels are whole numbers from 0 to {LARGEST_SOURCE}; "
            "check that it is not the image."
        )
    return array.astype(np.int32)


def _range(path: Path, image: np.ndarray) -> tuple[float, float]:
    low, high = float(image.min()), float(image.max())
    if low == high:
        raise UserError(f"{path}: every voxel is {low:g}, which is no image; replace the file or leave the case out.")
    return low, high


def _misplaced(image: _Placed, label: _Placed) -> list[str]:
    """Refuse an image that does not lie voxel on voxel with the label map, turned alike; warn where it hardly does."""
    if image.shape != label.shape:
        raise UserError(
            f"{image.path}: has {by(image.shape)} voxels, and {label.path} {by(label.shape)}, both turned alike; "
            "resample one onto the other (a label map by nearest neighbour)."
        )
    apart_mm, edge_mm = corners_apart(image.affine, label.affine, label.shape), min(manifest.spacing(label.affine))
    if apart_mm > LARGEST_SHIFT * edge_mm:
        raise UserError(
            f"{image.path}: by its affine it lies up to {apart_mm:.3g} mm away from {label.path}; resample one onto "
            "the other, or copy the header if only the header is wrong."
        )
    if apart_mm > NOTABLE_SHIFT * edge_mm:
        return [f"{image.name}: by its affine it lies up to {apart_mm:.2g} mm away from {label.name}"]
    return []


def _turns(turned_from: dict[str, str], codes: str) -> list[str]:
    """What was reoriented: one sentence where all files lay alike, else one for each that was turned."""
    if len(set(turned_from.values())) == 1:
        turned_from = {"": turned_from["label"]}
    return [f"{name} reoriented from {old} to {codes}".strip() for name, old in turned_from.items() if old != codes]


def _known(
    path: Path, values: np.ndarray, volumes_ml: dict[int, float], how: PreparationConfig, labels: Sequence[int]
) -> tuple[np.ndarray, list[str]]:
    """The labels of a model, uint8, and what was done; `volumes_ml` are the volumes of the labels of the file."""
    if not volumes_ml:
        raise UserError(f"{path}: every voxel is 0, so no label is there; replace the file or leave the case out.")
    usable = how.source_labels if how.source_labels is not None else tuple(labels)
    unknown = [label for label in volumes_ml if label not in {*usable, *how.remap}] if usable else []
    changes = []
    if unknown:
        named = _named(unknown, volumes_ml)
        if how.unknown_labels != "background":
            idle = how.remap and not set(how.remap) & set(volumes_ml)
            listed = ", ".join(map(str, how.remap))
            hint = f" (it has none of {listed} that remap names: are its sides swapped?)" if idle else ""
            raise UserError(
                f"{path}: holds {named}, and known are {', '.join(map(str, sorted({*usable, *how.remap} - {0})))}; "
                f"say what becomes of them with remap in the row of the dataset in config.yaml{hint}, or drop them "
                "with unknown_labels: background."
            )
        changes.append(f"{named} set to background")
    table = how.remap | dict.fromkeys(unknown, 0)
    try:
        mapped = remap(values, table)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    moved = [label for label in volumes_ml if label in how.remap and how.remap[label] != label]
    changes.extend(f"label {label} became {how.remap[label]}" for label in moved)
    if not mapped.any() and how.derive == "none":
        raise UserError(f"{path}: no label is left after remap and unknown_labels; look at these keys in config.yaml.")
    return mapped, changes


def _named(labels: list[int], volumes_ml: dict[int, float]) -> str:
    """Labels and their volumes in words, the first few by name."""
    named = ", ".join(f"{label} ({volumes_ml[label]:g} mL)" for label in labels[:NAMED_LABELS])
    more = f" and {len(labels) - NAMED_LABELS} more" if len(labels) > NAMED_LABELS else ""
    return f"{'label' if len(labels) == 1 else 'labels'} {named}{more}"
