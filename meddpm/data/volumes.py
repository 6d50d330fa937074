"""Volumes on disk and in memory: NIfTI in and out, and the order of the axes.

On disk and in a `Case` the axes are those of the NIfTI array, (H, W, D). Med-DDPM's tensors are channels first with
the spatial axes reversed, (C, D, W, H); only `to_tensor_axes` and `from_tensor_axes` go between the two.
"""

import gzip
from dataclasses import dataclass
from pathlib import Path

import nibabel
import numpy as np

from meddpm.config import UserError
from meddpm.data import nifti
from meddpm.files import replacing


@dataclass(frozen=True)
class Case:
    """One subject.

    `image` is float32, (H, W, D) or (H, W, D, C), in [-1, 1], or None where there is a label map alone. `label` is
    uint8, (H, W, D). `affine` (4, 4) takes voxel indices to millimetres in RAS+.
    """

    id: str
    image: np.ndarray | None
    label: np.ndarray
    affine: np.ndarray


@dataclass(frozen=True)
class Volume:
    """One file as it is: `array` (H, W, D) of real numbers, scaled as its header says, in the order of the file.

    `affine` (4, 4) takes voxel indices to millimetres in RAS+. `changes` says what was done to it, `warnings` what a
    person should look at, without the name of the file.
    """

    array: np.ndarray
    affine: np.ndarray
    changes: list[str]
    warnings: list[str]


def load(path: Path | str) -> Volume:
    """Read a volume that came from anywhere: NIfTI-1 or NIfTI-2, single or pair, gzipped or not, or an Analyze pair.

    Integers stay as they are where the header scales nothing; the byte order is this machine's. Raises UserError where
    the file is missing, damaged, no volume, or of anything but three axes of real numbers; one volume of a fourth axis
    is taken out.
    """
    header = nifti.read_header(path)
    array = nifti.read_voxels(header)
    changes = []
    if header.file_shape != header.shape:
        changes.append(f"{len(header.file_shape)}D with one volume: squeezed")
    return Volume(array, header.affine, changes, header.warnings)


def read(path: Path | str) -> tuple[np.ndarray, np.ndarray]:
    """Read a volume: (array, affine).

    The array is (H, W, D) or (H, W, D, C), its values scaled as the header says, in this machine's byte order; axes
    of length 1 after the third are dropped. The affine is (4, 4), voxel indices to millimetres, RAS+. Raises
    UserError where the file is missing, damaged, not a volume, or not three or four axes of real numbers.
    """
    header = nifti.read_header(path, axes=(3, 4))
    return nifti.read_voxels(header), header.affine


def read_image(path: Path | str) -> tuple[np.ndarray, np.ndarray]:
    """Read an image as float32: (array, affine). Raises UserError as `read` does, and where a value is not finite."""
    array, affine = read(path)
    return finite(path, array), affine


def finite(path: Path | str, array: np.ndarray) -> np.ndarray:
    """The intensities of the file `path` as float32. Raises UserError where one is not finite, or too large for it."""
    with np.errstate(over="ignore"):
        image = array.astype(np.float32, copy=False)
    unusable = int(image.size - np.isfinite(image).sum())
    if unusable:
        raise UserError(f"{path}: {unusable} voxels are NaN or infinite; replace them with numbers.")
    return image


def read_label(path: Path | str) -> tuple[np.ndarray, np.ndarray]:
    """Read a label map (H, W, D) as uint8: (array, affine).

    Raises UserError as `read` does, and where there is a fourth axis or a value that is not an integer in 0..255.
    """
    array, affine = read(path)
    if array.ndim != 3:
        raise UserError(f"{path}: has shape {array.shape}; a label map has 3 axes.")
    if not (np.isfinite(array).all() and array.min() >= 0 and array.max() <= 255 and (array == np.rint(array)).all()):
        raise UserError(f"{path}: a label map holds integers from 0 to 255 only; is this the image?")
    return array.astype(np.uint8), affine


def write(path: Path | str, array: np.ndarray, affine: np.ndarray, description: str = "") -> None:
    """Write `array` (H, W, D[, C]) as NIfTI-1 in millimetres, atomically, in its own type.

    A name in .gz is compressed with no time in its header: the same array gives the same bytes. `description` goes
    into the header, which keeps its first 79 bytes.
    """
    image = nibabel.Nifti1Image(array, affine)
    image.header.set_xyzt_units("mm")
    image.header["descrip"] = description.encode()[:79]
    content = image.to_bytes()
    if Path(path).suffix == ".gz":
        content = gzip.compress(content, compresslevel=6, mtime=0)
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def to_tensor_axes(array: np.ndarray) -> np.ndarray:
    """(H, W, D) to (1, D, W, H), and (H, W, D, C) to (C, D, W, H): Med-DDPM reverses the spatial axes."""
    reversed_axes = array.T
    return np.ascontiguousarray(reversed_axes[None] if array.ndim == 3 else reversed_axes)


def from_tensor_axes(tensor: np.ndarray) -> np.ndarray:
    """The inverse of `to_tensor_axes`: (1, D, W, H) to (H, W, D), and (C, D, W, H) to (H, W, D, C)."""
    array = tensor.T
    return np.ascontiguousarray(array[..., 0] if array.shape[-1] == 1 else array)
