"""Brain and head, drawn from an image."""

import numpy as np
import pytest

from meddpm.config import UserError
from meddpm.data import derive, volumes
from tests.unit.files_fixture import shared


def dice(one: np.ndarray, other: np.ndarray) -> float:
    return 2 * (one & other).sum() / (one.sum() + other.sum())


def distance(shape: tuple[int, int, int], centre: tuple[float, ...], radii: tuple[float, ...]) -> np.ndarray:
    """Below 1 inside of an ellipsoid in voxels."""
    axes = [(np.arange(n) - c) / r for n, c, r in zip(shape, centre, radii, strict=True)]
    return np.sqrt(sum(axis**2 for axis in np.meshgrid(*axes, indexing="ij")))


def brain_image() -> tuple[np.ndarray, np.ndarray]:
    """A brain of bright and dark tissue on 0, and where it is."""
    where = distance((40, 44, 36), (20, 22, 18), (12, 14, 10)) < 1
    tissue = np.random.default_rng(0).uniform(20, 200, where.shape).astype(np.float32)
    return np.where(where, tissue, 0), where


def head_image(noise: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """A T1 of a head that is cut at the neck, in [0, 1] and a little more, and where it is.

    Scalp, a skull as dark as the air, fluid that is nearly so, brain, and an airway that opens at the cut.
    """
    shape, centre = (60, 70, 64), (30, 35, 24)
    outer = distance(shape, centre, (25, 30, 34))
    image = np.where(outer < 1, 0.8, 0.0)
    image[outer < 0.88] = 0.02
    image[outer < 0.78] = 0.15
    image[outer < 0.72] = 0.6
    image[29:32, 40:44, :20] = 0
    random = np.random.default_rng(0)
    real, imaginary = image + random.normal(0, noise, shape), random.normal(0, noise, shape)
    return np.hypot(real, imaginary).astype(np.float32), outer < 1


# Brain


@pytest.mark.parametrize(("factor", "offset"), [(1, 0), (1, 100), (0.01, -1), (1, -5000)])
def test_brain_is_what_lies_above_the_background(factor, offset):
    image, where = brain_image()
    image = image * np.float32(factor) + np.float32(offset)
    assert derive.background(image) == np.float32(offset)
    np.testing.assert_array_equal(derive.brain(image), where)


def test_rings_below_the_background_are_no_brain():
    image, where = brain_image()
    random = np.random.default_rng(1)
    rings = ~where & (random.random(where.shape) < 0.3)
    image[rings] = random.uniform(-30, -1, rings.sum())
    np.testing.assert_array_equal(derive.brain(image), where)


def test_a_brain_that_is_cut_by_the_volume_is_found():
    image, where = brain_image()
    np.testing.assert_array_equal(derive.brain(image[15:, :, :20]), where[15:, :, :20])


def test_specks_stay_as_in_the_published_rule():
    image, where = brain_image()
    image[1, 1, 1] = 5
    assert derive.brain(image)[1, 1, 1]
    assert derive.brain(image).sum() == where.sum() + 1


def test_background_is_that_of_all_faces():
    """The face where a head is cut may have anything on it."""
    image, _ = brain_image()
    image = image[:, :, 18:].copy()
    image[:, :, 0] = 90
    assert derive.background(image) == 0


# Head


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_head_has_scalp_skull_and_airways(noise):
    image, where = head_image(noise)
    found = derive.head(image, (1.5, 1.5, 1.5))
    assert dice(found, where) > 0.98
    assert found[30, 35, 24], "brain"
    assert found[30, 35 + 25, 24], "skull"
    assert found[30, 42, 10], "airway"
    assert not found[0, 0, 0]


@pytest.mark.parametrize(("factor", "offset"), [(1, 100), (2, -1), (4000, -2000), (1e-3, 0)])
def test_head_does_not_depend_on_the_scale(factor, offset):
    image, _ = head_image(0.05)
    expected = derive.head(image, (1.5, 1.5, 1.5))
    moved = derive.head((image * np.float64(factor) + offset).astype(np.float32), (1.5, 1.5, 1.5))
    assert dice(moved, expected) > 0.999


def test_a_few_bright_voxels_do_not_decide():
    image, where = head_image(0.05)
    image[30:32, 30:32, 30:32] = 50
    assert dice(derive.head(image, (1.5, 1.5, 1.5)), where) > 0.98


@pytest.mark.parametrize("step", [1, 2, 3])
def test_the_closing_is_in_millimetres(step):
    """A gap of 4.5 mm in the scalp, from the forehead to the neck, is closed in thin and in thick slices."""
    image, where = head_image()
    image[29:32, :12] = 0
    found = derive.head(image[:, :, ::step], (1.5, 1.5, 1.5 * step))
    assert dice(found, where[:, :, ::step]) > 0.98


@pytest.mark.parametrize(("spacing", "closes"), [((1, 1, 1), True), ((1, 3, 3), True), ((3, 1, 1), False)], ids=str)
def test_a_gap_is_closed_up_to_16_mm(spacing, closes):
    image = np.zeros((60, 40, 40), np.float32)
    image[5:25, 10:30, 10:30] = image[33:48, 10:30, 10:30] = 1
    found = derive.head(image, spacing)
    assert found[5:25, 10:30, 10:30].all()
    assert found[29, 20, 20] == found[40, 20, 20] == closes


def test_another_bright_thing_beside_the_head_is_left_out():
    image, where = head_image()
    image[1:5, 1:5, 50:60] = 0.9
    assert not derive.head(image, (1.5, 1.5, 1.5))[1:5, 1:5, 50:60].any()
    assert dice(derive.head(image, (1.5, 1.5, 1.5)), where) > 0.98


def test_head_of_a_published_case():
    folder = shared("data/med-ddpm/whole_head")
    image, affine = volumes.read_image(folder / "image/sample_3.nii.gz")
    label, _ = volumes.read_label(folder / "mask/sample_3.nii.gz")
    spacing = tuple(np.abs(np.diag(affine))[:3])
    assert dice(derive.head(image, spacing), label > 0) > 0.97
    random = np.random.default_rng(0)
    noisy = np.hypot((image + 1) / 2 + random.normal(0, 0.1, image.shape), random.normal(0, 0.1, image.shape))
    assert dice(derive.head(noisy.astype(np.float32), spacing), label > 0) > 0.96


def test_head_of_an_oblique_volume():
    image, _ = volumes.read_image(shared("data/odd/oblique_t1_head.nii.gz"))
    litres = derive.head(image, (1.6, 1.6, 1.6)).sum() * 1.6**3 / 1e6
    assert 3.8 < litres < 4.4


# Judgement


@pytest.mark.parametrize("share", [0.0, 0.0005, 0.96, 1.0])
@pytest.mark.parametrize("what", ["brain", "head"])
def test_what_cannot_be_is_refused(what, share):
    mask = np.arange(10000).reshape(10, 100, 10) < share * 10000
    with pytest.raises(UserError) as error:
        derive.require_plausible(mask, what, "t1.nii.gz")
    text = str(error.value)
    assert text.startswith("t1.nii.gz: ")
    assert "\n" not in text
    assert f"`derive: {what}`" in text


def test_what_can_be_passes():
    for share in (0.02, 0.5, 0.9):
        derive.require_plausible(np.arange(10000).reshape(10, 100, 10) < share * 10000, "brain", "t1.nii.gz")
