"""From one grid of voxels to another: orientation, crop, pad, resampling, and back. TorchIO does the work.

Arrays are (H, W, D) or (H, W, D, C) in the order of the NIfTI file; an affine (4, 4) takes voxel indices to millimetres
in RAS+. TorchIO: Perez-Garcia et al. 2021, Computer Methods and Programs in Biomedicine 208:106236.
"""

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import nibabel
import numpy as np

from meddpm.config import PreparationConfig

if TYPE_CHECKING:
    import torchio

# Grids whose voxels lie this near to each other, in voxels, are the same: headers round their affines.
TOLERANCE = 1e-3
# Edges of voxels that differ by no more than this share are the same.
SPACING_TOLERANCE = 1e-4
# The fewest voxels along an axis that the smoothing before a reduction takes.
SMOOTHED_LENGTH = 4


@dataclass(frozen=True)
class Grid:
    """Where voxels lie: `shape` is (H, W, D), `affine` (4, 4) takes their indices to millimetres in RAS+."""

    shape: tuple[int, int, int]
    affine: np.ndarray


def orient(array: np.ndarray, affine: np.ndarray, codes: str) -> tuple[np.ndarray, np.ndarray]:
    """`array` with its axes flipped and permuted so that they run to `codes` as nearly as they can, and its affine.

    No voxel is interpolated: each keeps its value and its place in space.
    """
    import torchio

    turned = torchio.ToOrientation(codes)(_image(array, affine))
    return _array(turned, array), turned.affine


def target_grid(
    shape: tuple[int, int, int], affine: np.ndarray, how: PreparationConfig, size: tuple[int, int, int] | None
) -> Grid:
    """The grid of `size` (H, W, D) that `how.fit` takes a volume of `shape` and `affine` to; `size` None: its own.

    Its axes run as those of the volume. "crop_or_pad" is TorchIO's CropOrPad: about the centre, an odd number of voxels
    to cut or fill having its larger part at the start of the axis (MONAI has it at the end, one voxel off); with
    `how.spacing_mm` the voxels of the volume are thought of as having those edges first. "stretch" divides the box that
    the volume fills into `size` voxels. "contain" has cubic voxels, the smallest with which `size` holds the whole
    volume, in the middle. Along an axis whose voxels keep their edges the shift is of whole voxels.
    """
    if size is None:
        return Grid(tuple(shape), affine)
    edges = nibabel.affines.voxel_sizes(affine)
    if how.fit == "stretch":
        ratio = np.divide(shape, size)
        return Grid(tuple(size), _finer(affine, ratio, (ratio - 1) / 2))
    if how.fit == "contain":
        wanted = np.full(3, (shape * edges / size).max())
    else:
        wanted = edges if how.spacing_mm is None else np.asarray(how.spacing_mm, float)
    ratio = wanted / edges
    ratio[np.abs(ratio - 1) < SPACING_TOLERANCE] = 1
    # The whole volume in voxels of the wanted edges, before anything is cut or filled.
    between = np.ceil(shape / ratio - TOLERANCE).astype(int)
    first = np.array([_first(old, new) for old, new in zip(between, size, strict=True)])
    return Grid(tuple(size), _finer(affine, ratio, (np.array(shape) - 1) / 2 + (first - (between - 1) / 2) * ratio))


def is_aligned(shape: tuple[int, int, int], affine: np.ndarray, grid: Grid) -> bool:
    """Whether a volume whose axes run as those of `grid` has the same voxels: nothing is interpolated then."""
    return _first_voxel(shape, affine, grid) is not None


def onto(array: np.ndarray, affine: np.ndarray, grid: Grid, fill: float) -> np.ndarray:
    """`array` (H, W, D[, C]) on `grid`, in its own type; `fill` where it has nothing.

    Where the voxels of both are the same each keeps its value, bit for bit; else there is one resampling, float32:
    linear, smoothed first where voxels grow (Cardoso et al. 2015, MICCAI), never outside the range of `array`.
    """
    turned, its_affine = orient(array, affine, "".join(nibabel.aff2axcodes(grid.affine)))
    first = _first_voxel(turned.shape[:3], its_affine, grid)
    if first is not None:
        return _cropped_and_padded(turned, first, grid.shape, fill)
    # Turned alike, so that what is smoothed along an axis is what shrinks along it.
    if array.ndim == 4:
        channels = [_resample(turned[..., channel], its_affine, grid, fill) for channel in range(array.shape[3])]
        return np.stack(channels, axis=-1)
    return _resample(turned, its_affine, grid, fill)


def label_onto(label: np.ndarray, affine: np.ndarray, grid: Grid) -> np.ndarray:
    """A label map (H, W, D) on `grid`, in its own type; 0 where it has nothing.

    Where voxels are resampled each takes the label with the largest share of it, the smaller one of two that are even:
    each label is resampled as an image of its own. Taking the nearest voxel would break thin structures up.
    """
    if is_aligned(label.shape, affine, grid):
        return onto(label, affine, grid, 0)
    result = np.zeros(grid.shape, label.dtype)
    largest = onto((label == 0).astype(np.float32), affine, grid, 1)
    for value in np.unique(label[label > 0]):
        share = onto((label == value).astype(np.float32), affine, grid, 0)
        wins = share > largest
        result[wins], largest[wins] = value, share[wins]
    return result


def back(
    array: np.ndarray, affine: np.ndarray, shape: tuple[int, int, int], target_affine: np.ndarray, fill: float = -1
) -> np.ndarray:
    """An `array` (H, W, D[, C]) on a prepared grid, written on the grid of the file that it was prepared from.

    `shape` and `target_affine` are the file's, in its own orientation. As `onto`: bit for bit where nothing but
    flips, permutations and whole voxels lie between, else one linear resampling; `fill` outside of what was prepared.
    """
    return onto(array, affine, Grid(tuple(shape), target_affine), fill)


def kept(shape: tuple[int, int, int], affine: np.ndarray, grid: Grid) -> tuple[slice, ...]:
    """The voxels of a volume whose centres lie in the box of `grid`, whose axes run as those of the volume."""
    matrix = np.linalg.inv(grid.affine) @ affine
    slices = []
    for axis, (old, new) in enumerate(zip(shape, grid.shape, strict=True)):
        step, start = matrix[axis, axis], matrix[axis, 3]
        low = np.ceil((-0.5 - start) / step - TOLERANCE)
        high = np.floor((new - 0.5 - start) / step + TOLERANCE)
        slices.append(slice(int(max(low, 0)), int(min(high, old - 1)) + 1))
    return tuple(slices)


def _first(old: int, new: int) -> int:
    """Index, on the old axis, of the first voxel of the new one; negative where the axis grows."""
    return (old - new + 1) // 2 if old >= new else -((new - old + 1) // 2)


def _finer(affine: np.ndarray, ratio: np.ndarray, start: np.ndarray) -> np.ndarray:
    """The affine of voxels `ratio` (3,) times as long, the first of which lies at the index `start` (3,)."""
    step = np.eye(4)
    step[:3, :3], step[:3, 3] = np.diag(ratio), start
    return affine @ step


def _first_voxel(shape: tuple[int, ...], affine: np.ndarray, grid: Grid) -> np.ndarray | None:
    """The index (3,) on `grid` of the first voxel of a volume that has the same voxels, axis by axis; else None."""
    matrix = np.linalg.inv(grid.affine) @ affine
    shift = np.rint(matrix[:3, 3])
    corners = np.array([[*corner, 1] for corner in product(*[(0, length - 1) for length in shape])])
    away = corners @ matrix.T - corners
    return shift.astype(int) if np.abs(away[:, :3] - shift).max() <= TOLERANCE else None


def _cropped_and_padded(array: np.ndarray, first: np.ndarray, shape: tuple[int, int, int], fill: float) -> np.ndarray:
    """`array` with its first voxel at the index `first` of a new one of `shape`."""
    import torchio

    old = np.array(array.shape[:3])
    last = np.subtract(shape, first + old)
    if (first >= shape).any() or (last >= shape).any():  # nothing of it is there
        return np.full((*shape, *array.shape[3:]), fill, array.dtype)
    ends = np.stack([first, last], axis=1).ravel().astype(int)
    image = torchio.Crop(tuple(np.maximum(-ends, 0).tolist()))(_image(array, np.eye(4)))
    image = torchio.Pad(tuple(np.maximum(ends, 0).tolist()), padding_mode=fill)(image)
    return _array(image, array)


def _resample(array: np.ndarray, affine: np.ndarray, grid: Grid, fill: float) -> np.ndarray:
    """`array` (H, W, D) at the voxels of `grid`, float32."""
    import torchio

    grows = nibabel.affines.voxel_sizes(grid.affine) > nibabel.affines.voxel_sizes(affine) * (1 + SPACING_TOLERANCE)
    smooth = bool(grows.any()) and min(array.shape) >= SMOOTHED_LENGTH
    # Outside of the volume TorchIO writes 0.
    values = array.astype(np.float32) - np.float32(fill)
    resampled = torchio.Resample(target=(grid.shape, grid.affine), antialias=smooth)(_image(values, affine))
    # The smoothing overshoots by a trace, which a mean cannot.
    low, high = min(values.min(), 0), max(values.max(), 0)
    return np.clip(_array(resampled, array), low, high) + np.float32(fill)


def _image(array: np.ndarray, affine: np.ndarray) -> "torchio.ScalarImage":
    import torch
    import torchio

    channels_first = array[None] if array.ndim == 3 else np.moveaxis(array, -1, 0)
    return torchio.ScalarImage(tensor=torch.from_numpy(np.ascontiguousarray(channels_first)), affine=affine)


def _array(image: "torchio.ScalarImage", like: np.ndarray) -> np.ndarray:
    """The array of `image`, with as many axes as `like`."""
    data = image.data.numpy()
    return np.ascontiguousarray(data[0] if like.ndim == 3 else np.moveaxis(data, 0, -1))
