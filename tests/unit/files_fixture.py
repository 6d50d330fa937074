"""Small datasets of files, written by the tests themselves."""

from pathlib import Path

import nibabel
import numpy as np
import pytest

from meddpm.config import repository_root

SHARED = repository_root().parent / "shared"

# Sides that differ, so that a swapped axis shows; voxels of 14 x 12 x 17 mm make a "head" of 3 L.
SHAPE = (16, 20, 12)
AFFINE = np.diag([14.0, 12.0, 17.0, 1.0])
AFFINE[:3, 3] = [-90.0, -110.0, -60.0]


def shared(path: str) -> Path:
    """A real input from the folder shared/ beside the checkout; without it the test is skipped."""
    if not SHARED.is_dir():
        pytest.skip("../shared is not here")
    return SHARED / path


def one_line(error: pytest.ExceptionInfo, *words: str) -> None:
    """A message is one line and has all the words."""
    text = str(error.value)
    assert "\n" not in text
    for word in words:
        assert word in text


def save(path: Path, array: np.ndarray, affine: np.ndarray = AFFINE) -> Path:
    """Write `array` as NIfTI where the name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(array, affine), path)
    return path


def head(number: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """An image (float32, any scale, background 0) and a label map (uint8): 1 a head of about 3 L, 2 a tumour."""
    random = np.random.Generator(np.random.Philox(number))
    label = np.zeros(SHAPE, np.uint8)
    label[3:13, 4:17, 2:10] = 1
    label[5:7, 6:9, 4:6] = 2
    image = np.where(label > 0, 100 + random.uniform(0, 50, SHAPE) + 30 * label, 0).astype(np.float32)
    return image, label


def whole_heads(folder: Path, cases: int = 3, images: bool = True) -> Path:
    """A dataset in the layout of Med-DDPM's whole heads: mask/ and image/."""
    for number in range(cases):
        image, label = head(number)
        save(folder / "mask" / f"sample_{number}.nii.gz", label)
        if images:
            save(folder / "image" / f"sample_{number}.nii.gz", image)
    return folder


def raw_brats(folder: Path, names: dict[str, str], ids: list[str], enhancing: int, joint: str = "_") -> Path:
    """Case folders as the BraTS challenge shares them. `names` are the four images and "seg" as the files have them."""
    for number, case in enumerate(ids):
        image, label = head(number)
        seg = np.zeros_like(label)
        seg[label == 2] = 1
        seg[5, 6:9, 4] = enhancing
        seg[6, 6:9, 4] = 2
        for place, name in enumerate(names.values()):
            array = seg if name == "seg" else (image * (1 + place)).astype(np.int16)
            save(folder / case / f"{case}{joint}{name}.nii.gz", array)
    return folder
