"""Conditions, and Med-DDPM's preparation of its two published models."""

from pathlib import Path

import numpy as np
import pytest

from meddpm.config import ModelConfig, UserError
from meddpm.data import conditions, med_ddpm, volumes
from meddpm.data.volumes import Case

SHARED = Path(__file__).resolve().parents[3] / "shared"
AFFINE = np.array([[-1.5, 0, 0, 20], [0, 1.25, 0, -30], [0, 0, 2, 4.5], [0, 0, 0, 1]])


def counting(*shape: int) -> np.ndarray:
    """Every voxel has a value of its own, so that any swapped or flipped axis shows."""
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def model(size: tuple[int, int, int], labels=(1, 2), value_range=(-1.0, 1.0)) -> ModelConfig:
    return ModelConfig(size, 1, labels, value_range, 32, (1, 2), 1, (), 10)


def one_line(error: pytest.ExceptionInfo, *words: str) -> None:
    text = str(error.value)
    assert "\n" not in text
    for word in words:
        assert word in text


def shared(path: str) -> Path:
    if not SHARED.is_dir():
        pytest.skip("../shared is not here")
    return SHARED / path


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


# Med-DDPM's preparation


def test_whole_head_scales_each_slice_of_the_last_axis():
    image = counting(2, 3, 4) ** 2
    image[..., 2] = 7
    label = np.zeros((2, 3, 4), np.uint8)
    label[0, 1, 3], label[1, 2, 0] = 1, 2
    condition, target = med_ddpm.whole_head(image, label)
    assert target.shape == (1, 4, 3, 2)
    assert target.dtype == np.float32
    for k in (0, 1, 3):
        plane = image[..., k]
        expected = 2 * (plane - plane.min()) / (plane.max() - plane.min()) - 1
        np.testing.assert_allclose(target[0, k], expected.T, atol=1e-6)
    assert (target[0, 2] == -1).all()
    assert np.argwhere(condition == 1).tolist() == [[0, 3, 1, 0], [1, 0, 2, 1]]
    assert condition.min() == -1


def test_brats_leaves_targets_as_they_are():
    images = counting(2, 3, 5, 4) / 120 * 2 - 1
    label = (counting(2, 3, 5) % 5).astype(np.uint8)
    condition, target = med_ddpm.brats(images, label)
    np.testing.assert_array_equal(target[2, 4, 1, 0], images[0, 1, 4, 2])
    np.testing.assert_array_equal(target, volumes.to_tensor_axes(images))
    assert condition.shape == (4, 5, 3, 2)
    for channel in range(4):
        np.testing.assert_array_equal(condition[channel], (label == channel + 1).T)


def test_crop_or_pad_takes_the_larger_part_at_the_start():
    line = np.arange(1, 8).reshape(7, 1, 1)
    assert med_ddpm.crop_or_pad(line, (4, 1, 1)).ravel().tolist() == [3, 4, 5, 6]
    assert med_ddpm.crop_or_pad(line, (10, 1, 1)).ravel().tolist() == [0, 0, 1, 2, 3, 4, 5, 6, 7, 0]
    array = counting(5, 3, 4, 2)
    np.testing.assert_array_equal(med_ddpm.crop_or_pad(array, (3, 3, 5))[:, :, 1:], array[1:4])


def raw_brats() -> Case:
    images = counting(6, 4, 7, 4) + 10
    images[:2] = 0
    label = np.zeros((6, 4, 7), np.uint8)
    label[3, 1, 3], label[4, 2, 4], label[2, 0, 2] = 1, 2, 4
    return Case("raw", images, label, AFFINE)


def test_raw_brats_labels_scale_and_place():
    prepared, note = med_ddpm.prepare_raw_brats(raw_brats(), (6, 6, 4))
    assert note == ""
    assert prepared.image.shape == (6, 6, 4, 4)
    assert prepared.image.dtype == np.float32
    assert prepared.image.min(axis=(0, 1, 2)).tolist() == [-1] * 4
    assert prepared.image.max(axis=(0, 1, 2)).tolist() == [1] * 4
    # One voxel of padding before W; two voxels cut before D.
    expected = np.zeros((6, 6, 4), np.uint8)
    expected[2:, 1:5] = 4
    expected[3, 2, 1], expected[4, 3, 2], expected[2, 1, 0] = 1, 2, 3
    np.testing.assert_array_equal(prepared.label, expected)
    voxel = np.array([3, 1, 3, 1])
    np.testing.assert_allclose(prepared.affine @ [3, 2, 1, 1], AFFINE @ voxel)


def test_raw_brats_clips_negatives_and_says_so():
    usual, _ = med_ddpm.prepare_raw_brats(raw_brats(), (6, 4, 7))
    case = raw_brats()
    case.image[0, 0, 0] = -5
    prepared, note = med_ddpm.prepare_raw_brats(case, (6, 4, 7))
    assert "4 negative intensities" in note
    np.testing.assert_array_equal(prepared.label, usual.label)
    np.testing.assert_array_equal(prepared.image, usual.image)


def test_raw_brats_needs_four_images():
    case = Case("flat", counting(3, 3, 3), np.zeros((3, 3, 3), np.uint8), AFFINE)
    with pytest.raises(UserError) as error:
        med_ddpm.prepare_raw_brats(case)
    one_line(error, "flat", "t1ce")


def test_resample_is_linear_on_each_axis():
    tensor = np.zeros((2, 4, 4, 4), np.float32)
    tensor[0] = np.arange(4).reshape(4, 1, 1)
    tensor[1] = np.arange(4).reshape(1, 1, 4) * 10
    result = med_ddpm.resample(tensor, (2, 4, 8))
    assert result.shape == (2, 8, 4, 2)
    np.testing.assert_allclose(result[0, :, 0, 0], [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3])
    np.testing.assert_allclose(result[1, 0, 0], [5, 25])


def agrees(golden: Path, condition: np.ndarray, target: np.ndarray) -> None:
    with np.load(golden) as stored:
        np.testing.assert_array_equal(condition[:, ::4, ::4, ::4], stored["cond_stride4"])
        np.testing.assert_array_equal(condition.sum(axis=(1, 2, 3), dtype=float), stored["cond_sum"])
        np.testing.assert_allclose(target[:, ::4, ::4, ::4], stored["target_stride4"], rtol=0, atol=1e-6)
        mean = target.mean(axis=(1, 2, 3), dtype=float)
        np.testing.assert_allclose(mean, np.broadcast_to(stored["target_mean"], mean.shape), rtol=0, atol=1e-6)


def test_golden_whole_head():
    folder = shared("data/med-ddpm/whole_head")
    image, _ = volumes.read_image(folder / "image/sample_3.nii.gz")
    label, _ = volumes.read_label(folder / "mask/sample_3.nii.gz")
    agrees(shared("golden/prepare_whole_head_sample_3.npz"), *med_ddpm.whole_head(image, label))


def test_golden_brats():
    folder = shared("data/med-ddpm/brats2021")
    label, _ = volumes.read_label(folder / "seg/BraTS2021_01306_seg.nii.gz")
    names = [folder / name / f"BraTS2021_01306_{name}.nii.gz" for name in med_ddpm.MODALITIES]
    images = np.stack([volumes.read_image(name)[0] for name in names], axis=-1)
    agrees(shared("golden/prepare_brats_01306.npz"), *med_ddpm.brats(images, label))


def test_raw_case_is_mostly_background():
    folder = shared("data/brats_raw/BraTS2021_90001")
    label, affine = volumes.read_label(folder / "BraTS2021_90001_seg.nii.gz")
    names = [folder / f"BraTS2021_90001_{name}.nii.gz" for name in med_ddpm.MODALITIES]
    images = np.stack([volumes.read_image(name)[0] for name in names], axis=-1)
    prepared, note = med_ddpm.prepare_raw_brats(Case("90001", images, label, affine))
    assert note
    assert prepared.label.shape == (192, 192, 144)
    assert 0.15 < (prepared.label == 4).mean() < 0.4
    assert np.unique(prepared.label).tolist() == [0, 1, 2, 3, 4]
