"""Volumes as a radiologist hangs them: turned upright by their affine, cut into three planes, in grey values."""

from dataclasses import dataclass
from pathlib import Path

import nibabel
import numpy as np
from matplotlib.colors import ListedColormap, to_hex

from meddpm.data import volumes
from meddpm.report import style

PLANES = ("sagittal", "coronal", "axial")
LABEL_COLOURS = ListedColormap(["#000000", *style.PALETTE])


@dataclass(frozen=True)
class Volume:
    """A volume in RAS+ order: (right, front, up), the sizes of its voxels in mm, and how many images its file holds."""

    array: np.ndarray
    spacing: tuple[float, float, float]
    images: int


def read_upright(path: Path) -> Volume:
    """Read a volume and turn it to RAS+ by its affine; of several images in one file the first is taken.

    Raises UserError where the file is missing or is no volume.
    """
    return turn(*volumes.read(path))


def turn(array: np.ndarray, affine: np.ndarray, image: int = 0) -> Volume:
    """Turn an array (H, W, D), or image number `image` of one (H, W, D, C), to RAS+ by its affine."""
    images = array.shape[3] if array.ndim == 4 else 1
    array = array[..., image] if array.ndim == 4 else array
    to_ras = nibabel.orientations.io_orientation(affine)
    turned = affine @ nibabel.orientations.inv_ornt_aff(to_ras, array.shape)
    spacing = tuple(float(size) for size in nibabel.affines.voxel_sizes(turned))
    return Volume(nibabel.orientations.apply_orientation(array, to_ras), spacing, images)


def cut(volume: Volume, at: tuple[int, int, int]) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """The planes through voxel `at`, and height over width of a pixel of each.

    The first row of each picture is the top: superior in the sagittal and coronal planes, anterior in the axial one.
    The face looks right in the sagittal plane; in the others the left of the picture is the left of the head.
    """
    right, front, up = at
    dx, dy, dz = volume.spacing
    planes = {
        "sagittal": volume.array[right, :, :].T[::-1],
        "coronal": volume.array[:, front, :].T[::-1],
        "axial": volume.array[:, :, up].T[::-1],
    }
    return planes, {"sagittal": dz / dy, "coronal": dz / dx, "axial": dy / dx}


def centre(label: np.ndarray) -> tuple[int, int, int]:
    """Where to cut: each plane where the rarest label, a lesion if there is one, is largest; else in the middle.

    Not in its middle, which can lie between lesions; of planes where it is equally large in the middle one.
    """
    values, counts = np.unique(label[label > 0], return_counts=True)
    if not values.size:
        return tuple(side // 2 for side in label.shape)
    rarest = label == values[counts.argmin()]
    areas = [rarest.sum(axis=other) for other in ((1, 2), (0, 2), (0, 1))]
    largest = [np.flatnonzero(area == area.max()) for area in areas]
    return tuple(int(planes[len(planes) // 2]) for planes in largest)


def grey(plane: np.ndarray) -> np.ndarray:
    """A plane as grey values 0 to 255: -1 is black and 1 is white, as in the model's range; not finite is black."""
    return np.rint(255 * (np.nan_to_num(np.clip(plane, -1, 1), nan=-1) + 1) / 2).astype(np.uint8)


def label_colour(label: int) -> str:
    """The colour of a label as #RRGGBB; labels beyond the last colour share it."""
    return to_hex(LABEL_COLOURS(min(label, LABEL_COLOURS.N - 1))).upper()
