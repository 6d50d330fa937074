"""How the two published Med-DDPM models were fed: their preparation, on arrays.

Source: Dorjsembe et al. 2023, arXiv 2305.18453, and the tensors that the original code makes of two public cases.
Arrays are in NIfTI order, (H, W, D[, C]); what a network takes is (C, D, W, H).
"""

import dataclasses

import numpy as np

from meddpm.config import UserError
from meddpm.data.conditions import binary_channels, remap
from meddpm.data.volumes import Case, to_tensor_axes

WHOLE_HEAD_LABELS = (1, 2)
BRATS_LABELS = (1, 2, 3, 4)
BRATS_SIZE = (192, 192, 144)
MODALITIES = ("t1", "t1ce", "t2", "flair")


def whole_head(image: np.ndarray, label: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Condition (2, D, W, H) in {-1, 1} and target (1, D, W, H) in [-1, 1] of the whole-head model, float32.

    `image` (H, W, D) has any scale. `label` (H, W, D) has 1 for the head (scalp and skull included) and 2 for the
    tumour, which the first channel leaves out.
    """
    condition = binary_channels(label, WHOLE_HEAD_LABELS, (-1.0, 1.0))
    target = 2 * minmax_each_last_axis_slice(image) - 1
    return condition, to_tensor_axes(target.astype(np.float32))


def minmax_each_last_axis_slice(image: np.ndarray) -> np.ndarray:
    """`image` (H, W, D) with each slice [:, :, k] scaled to [0, 1] by its own minimum and maximum, as float64.

    This is an oddity of the published whole-head model, which makes slices brighter or darker than their neighbours;
    its weights have learnt it. A constant slice becomes 0.
    """
    return _minmax(image, axis=(0, 1))


def brats(images: np.ndarray, label: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Condition (4, D, W, H) in {0, 1} and target (4, D, W, H) of the BraTS model, float32.

    `images` (H, W, D, 4) holds t1, t1ce, t2 and flair, in [-1, 1] already; they are left as they are. `label`
    (H, W, D) has 1, 2, 3 for the parts of the tumour and 4 for the rest of the brain.
    """
    return binary_channels(label, BRATS_LABELS), to_tensor_axes(images.astype(np.float32))


def prepare_raw_brats(case: Case, size: tuple[int, int, int] = BRATS_SIZE) -> tuple[Case, str]:
    """A case in the layout of the BraTS challenge, made ready for `brats`; and a note, empty where all was usual.

    `case.image` (H, W, D, 4) holds t1, t1ce, t2 and flair in scanner units, `case.label` has 0, 1, 2, 4. In order:
    negative intensities become 0; crop or pad to `size`; each modality to [-1, 1] by its own minimum and maximum;
    label 4 becomes 3; then every voxel without a label whose T1 is above -1 becomes 4. The last rule takes it that
    the background is the darkest value, which negative values outside the head (left by resampling) break: hence the
    clipping, which the note counts and which changes nothing on cases of the challenge.
    """
    if case.image is None or case.image.ndim != 4 or case.image.shape[-1] != len(MODALITIES):
        raise UserError(f"{case.id}: BraTS needs four images on the last axis: {', '.join(MODALITIES)}.")
    negative = int((case.image < 0).sum())
    images = crop_or_pad(np.maximum(case.image, 0), size)
    images = (2 * _minmax(images, axis=(0, 1, 2)) - 1).astype(np.float32)
    label = remap(crop_or_pad(case.label, size), {4: 3})
    label[(label == 0) & (images[..., 0] > -1)] = 4
    shift = [_first(old, new) for old, new in zip(case.label.shape, size, strict=True)]
    affine = case.affine.copy()
    affine[:3, 3] += case.affine[:3, :3] @ shift
    note = f"{negative} negative intensities set to 0 before scaling" if negative else ""
    return dataclasses.replace(case, image=images, label=label, affine=affine), note


def crop_or_pad(array: np.ndarray, size: tuple[int, int, int]) -> np.ndarray:
    """`array` (H, W, D[, C]) cut or filled with zeros about its centre to `size` (H, W, D).

    An odd number of voxels to cut or fill takes the larger part at the start of the axis, as TorchIO's CropOrPad
    does (Perez-Garcia et al. 2021); MONAI's ResizeWithPadOrCrop takes it at the end, one voxel off.
    """
    result = np.zeros((*size, *array.shape[3:]), array.dtype)
    source, target = [], []
    for old, new in zip(array.shape[:3], size, strict=True):
        first, length = _first(old, new), min(old, new)
        source.append(slice(max(first, 0), max(first, 0) + length))
        target.append(slice(max(-first, 0), max(-first, 0) + length))
    result[tuple(target)] = array[tuple(source)]
    return result


def resample(tensor: np.ndarray, size: tuple[int, int, int]) -> np.ndarray:
    """`tensor` (C, D, W, H) at `size` (H, W, D), float32, each channel by linear interpolation of its own.

    Voxels are taken as cells that fill the same box before and after (align_corners off).
    """
    import torch

    batch = torch.from_numpy(np.ascontiguousarray(tensor, dtype=np.float32))[None]
    shape = tuple(reversed(size))
    return torch.nn.functional.interpolate(batch, size=shape, mode="trilinear", align_corners=False)[0].numpy()


def _first(old: int, new: int) -> int:
    """Index, on the old axis, of the first voxel of the new one; negative where the axis grows."""
    return (old - new + 1) // 2 if old >= new else -((new - old + 1) // 2)


def _minmax(image: np.ndarray, axis: tuple[int, ...]) -> np.ndarray:
    """`image` scaled to [0, 1] by the minimum and maximum over `axis`, as float64; 0 where they are equal."""
    values = image.astype(np.float64)
    low = values.min(axis=axis, keepdims=True)
    extent = values.max(axis=axis, keepdims=True) - low
    return (values - low) / np.where(extent > 0, extent, 1)
