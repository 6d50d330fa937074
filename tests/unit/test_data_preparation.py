"""Conditions, and the presets of Med-DDPM: from files to the tensors that its two published models are shown."""

from pathlib import Path

import numpy as np
import pytest

from meddpm.config import ModelConfig, UserError
from meddpm.data import cases, conditions, volumes
from meddpm.data.cases import Built
from meddpm.data.examine import examine
from meddpm.data.layouts import CaseFiles
from meddpm.data.preparations import PREPARATIONS, WHOLE_HEAD
from meddpm.data.tasks import Goal
from tests.unit.files_fixture import one_line, shared

MODALITIES = ("t1", "t1ce", "t2", "flair")
# Those of the files are those of the presets: RAS for the whole head, LPS for BraTS.
RAS = np.array([[1.5, 0, 0, 20], [0, 1.25, 0, -30], [0, 0, 2, 4.5], [0, 0, 0, 1]])
LPS = np.diag([-1, -1, 1, 1]) @ RAS


def counting(*shape: int) -> np.ndarray:
    """Every voxel has a value of its own, so that any swapped or flipped axis shows."""
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def model(size: tuple[int, int, int], labels=(1, 2), value_range=(-1.0, 1.0)) -> ModelConfig:
    return ModelConfig(size, 1, labels, value_range, 32, (1, 2), 1, (), 10)


# Conditions


def test_encode_gives_a_channel_a_label():
    label = np.zeros((2, 3, 5), np.uint8)
    label[1, 0, 4], label[0, 2, 3], label[1, 1, 1] = 2, 7, 3
    condition = conditions.encode(label, model((2, 3, 5), labels=(7, 2)))
    expected = np.full((2, 5, 3, 2), -1, np.float32)
    expected[0, 3, 2, 0] = expected[1, 4, 0, 1] = 1
    assert condition.dtype == np.float32
    np.testing.assert_array_equal(condition, expected)


def test_encode_uses_the_models_range():
    label = np.array([[[0, 1]]], np.uint8)
    condition = conditions.encode(label, model((1, 1, 2), labels=(1,), value_range=(0.0, 0.5)))
    np.testing.assert_array_equal(condition, np.array([0, 0.5], np.float32).reshape(1, 2, 1, 1))


def test_encode_refuses_another_shape():
    with pytest.raises(UserError) as error:
        conditions.encode(np.zeros((5, 3, 2), np.uint8), model((2, 3, 5)))
    one_line(error, "5x3x2", "2x3x5")


def test_remap_is_simultaneous():
    label = np.array([0, 1, 2, 3, 255], np.uint8)
    remapped = conditions.remap(label, {1: 2, 2: 1, 3: 0})
    assert remapped.dtype == np.uint8
    assert remapped.tolist() == [0, 2, 1, 0, 255]
    assert label.tolist() == [0, 1, 2, 3, 255]
    with pytest.raises(UserError) as error:
        conditions.remap(label, {1: 256})
    one_line(error, "256")


# The presets


def prepared(files: CaseFiles, preset: str, size: tuple[int, int, int]) -> Built:
    """The case at `size` as `preset` has it."""
    root = files.label.parents[1]
    how = PREPARATIONS[preset]
    return cases.build(examine(files, root, how, ()), how, Goal(size, whole_head=preset in WHOLE_HEAD))


def tensors(built: Built, labels: tuple[int, ...], value_range: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """Condition and target as the network is shown them."""
    shape = built.case.label.shape
    condition = conditions.encode(built.case.label, model(shape, labels, value_range))
    return condition, volumes.to_tensor_axes(built.case.image)


def written(folder: Path, label: np.ndarray, images: dict[str, np.ndarray], affine: np.ndarray) -> CaseFiles:
    """The files of a case."""
    paths = {name: folder / "one" / f"{name}.nii.gz" for name in ("seg", *images)}
    (folder / "one").mkdir()
    for name, array in {"seg": label, **images}.items():
        volumes.write(paths[name], array, affine)
    return CaseFiles("one", {name: paths[name] for name in images}, paths["seg"])


def test_whole_head_scales_each_slice_of_the_last_axis(tmp_path):
    image = counting(2, 3, 4) ** 2
    image[..., 2] = 7
    label = np.zeros((2, 3, 4), np.uint8)
    label[0, 1, 3], label[1, 2, 0] = 1, 2
    built = prepared(written(tmp_path, label, {"t1": image}, RAS), "med_ddpm_whole_head", (2, 3, 4))
    condition, target = tensors(built, (1, 2), (-1.0, 1.0))
    assert target.shape == (1, 4, 3, 2)
    assert target.dtype == np.float32
    for k in (0, 1, 3):
        plane = image[..., k]
        expected = 2 * (plane - plane.min()) / (plane.max() - plane.min()) - 1
        np.testing.assert_allclose(target[0, k], expected.T, atol=1e-6)
    assert (target[0, 2] == -1).all()
    assert np.argwhere(condition == 1).tolist() == [[0, 3, 1, 0], [1, 0, 2, 1]]
    assert condition.min() == -1
    assert "no head (about 3.8 L)" in built.warnings[0]


def test_prepared_brats_is_left_as_it_is(tmp_path):
    images = counting(2, 3, 5, 4) / 120 * 2 - 1
    label = (counting(2, 3, 5) % 5).astype(np.uint8)
    named = dict(zip(MODALITIES, np.moveaxis(images, -1, 0), strict=True))
    built = prepared(written(tmp_path, label, named, LPS), "med_ddpm_brats", (2, 3, 5))
    condition, target = tensors(built, (1, 2, 3, 4), (0.0, 1.0))
    np.testing.assert_array_equal(target[2, 4, 1, 0], images[0, 1, 4, 2])
    np.testing.assert_array_equal(target, volumes.to_tensor_axes(images))
    assert condition.shape == (4, 5, 3, 2)
    for channel in range(4):
        np.testing.assert_array_equal(condition[channel], (label == channel + 1).T)
    assert built.changes == built.warnings == []


def raw_brats(enhancing: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Images (12, 10, 13, 4) of a brain on a background of 0, and a label map."""
    images = np.zeros((12, 10, 13, 4), np.float32)
    images[3:9, 2:8, 3:10] = counting(6, 6, 7, 4) + 10
    label = np.zeros((12, 10, 13), np.uint8)
    label[4, 3, 5], label[5, 4, 6], label[6, 5, 7] = 1, 2, enhancing
    return images, label


def of_raw_brats(folder: Path, images: np.ndarray, label: np.ndarray, preset: str = "brats2021") -> Built:
    named = dict(zip(MODALITIES, np.moveaxis(images, -1, 0), strict=True))
    return prepared(written(folder, label, named, LPS), preset, (10, 12, 8))


@pytest.mark.parametrize(("preset", "enhancing"), [("brats2021", 4), ("brats2023", 3)])
def test_raw_brats_labels_scale_and_place(tmp_path, preset, enhancing):
    images, label = raw_brats(enhancing)
    case = of_raw_brats(tmp_path, images, label, preset).case
    assert case.image.shape == (10, 12, 8, 4)
    assert case.image.dtype == np.float32
    # The published order: one voxel cut before H, one filled before W, three cut before D; then the scale; then the
    # brain, which is what T1 shows above -1.
    crop = np.zeros((10, 12, 8, 4))
    crop[:, 1:11] = images[1:11, :, 3:11]
    extent = crop.max(axis=(0, 1, 2))
    np.testing.assert_allclose(case.image, 2 * crop / extent - 1, atol=1e-6)
    expected = np.where(case.image[..., 0] > -1, 4, 0)
    expected[3, 4, 2], expected[4, 5, 3], expected[5, 6, 4] = 1, 2, 3
    np.testing.assert_array_equal(case.label, expected)
    assert (expected == 4).sum() == 6 * 6 * 7 - 3
    np.testing.assert_allclose(case.affine @ [3, 4, 2, 1], LPS @ [4, 3, 5, 1], atol=1e-5)


def test_raw_brats_clips_negatives_and_says_so(tmp_path):
    images, label = raw_brats()
    (tmp_path / "usual").mkdir()
    usual = of_raw_brats(tmp_path / "usual", images, label)
    images[0, 0, 0] = images[5, 0, 5] = -5
    built = of_raw_brats(tmp_path, images, label)
    assert "negative intensities set to 0, voxels: t1 2, t1ce 2, t2 2, flair 2" in built.changes
    assert not any("negative" in change for change in usual.changes)
    np.testing.assert_array_equal(built.case.label, usual.case.label)
    np.testing.assert_array_equal(built.case.image, usual.case.image)


# The published tensors


def agrees(golden: Path, condition: np.ndarray, target: np.ndarray) -> None:
    with np.load(golden) as stored:
        np.testing.assert_array_equal(condition[:, ::4, ::4, ::4], stored["cond_stride4"])
        np.testing.assert_array_equal(condition.sum(axis=(1, 2, 3), dtype=float), stored["cond_sum"])
        np.testing.assert_allclose(target[:, ::4, ::4, ::4], stored["target_stride4"], rtol=0, atol=1e-6)
        mean = target.mean(axis=(1, 2, 3), dtype=float)
        np.testing.assert_allclose(mean, np.broadcast_to(stored["target_mean"], mean.shape), rtol=0, atol=1e-6)


def test_golden_whole_head():
    folder = shared("data/med-ddpm/whole_head")
    images = {"t1": folder / "image/sample_3.nii.gz"}
    files = CaseFiles("sample_3", images, folder / "mask/sample_3.nii.gz")
    built = prepared(files, "med_ddpm_whole_head", (128, 128, 128))
    agrees(shared("golden/prepare_whole_head_sample_3.npz"), *tensors(built, (1, 2), (-1.0, 1.0)))
    assert built.warnings == []


def test_golden_brats():
    folder = shared("data/med-ddpm/brats2021")
    images = {name: folder / name / f"BraTS2021_01306_{name}.nii.gz" for name in MODALITIES}
    files = CaseFiles("01306", images, folder / "seg/BraTS2021_01306_seg.nii.gz")
    built = prepared(files, "med_ddpm_brats", (192, 192, 144))
    agrees(shared("golden/prepare_brats_01306.npz"), *tensors(built, (1, 2, 3, 4), (0.0, 1.0)))
    assert built.changes == built.warnings == []


def test_raw_case_is_mostly_background():
    folder = shared("data/brats_raw/BraTS2021_90001")
    images = {name: folder / f"BraTS2021_90001_{name}.nii.gz" for name in MODALITIES}
    built = prepared(CaseFiles("90001", images, folder / "BraTS2021_90001_seg.nii.gz"), "brats2021", (192, 192, 144))
    label = built.case.label
    assert label.shape == (192, 192, 144)
    assert np.unique(label).tolist() == [0, 1, 2, 3, 4]
    assert (label > 0).sum() == 1_601_147
    # The published rule, on the tensors: without the floor it takes 99 % of the crop for brain.
    np.testing.assert_array_equal((label > 0) & (built.case.image[..., 0] > -1), built.case.image[..., 0] > -1)
    assert "negative intensities set to 0, voxels: t1 1472, t1ce 4, t2 5528, flair 14121" in built.changes
    assert built.warnings == []
