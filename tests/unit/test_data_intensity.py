"""Intensities of an image to [-1, 1]."""

import numpy as np
import pytest

from meddpm.config import PreparationConfig, UserError
from meddpm.data import intensity


def how(name: str, **more) -> PreparationConfig:
    return PreparationConfig(intensity=name, **more)


def refused(image: np.ndarray, settings: PreparationConfig, *words: str) -> None:
    with pytest.raises(UserError) as error:
        intensity.scale(image, settings, "t1.nii.gz")
    text = str(error.value)
    assert text.startswith("t1.nii.gz: ")
    assert "\n" not in text
    for word in words:
        assert word in text


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(300, 80, shape).astype(np.float32)


def test_minmax_is_linear_between_the_extremes():
    image = np.array([-50, 0, 50, 150], np.float32).reshape(1, 2, 2)
    result = intensity.scale(image, how("minmax"))
    assert result.dtype == np.float32
    np.testing.assert_allclose(result.ravel(), [-1, -0.5, 0, 1])


def test_percentile_cuts_what_lies_beyond():
    image = np.arange(101, dtype=np.float32).reshape(1, 1, 101)
    result = intensity.scale(image, how("percentile", percentiles=(10, 90))).ravel()
    assert (result[:11] == -1).all()
    assert (result[90:] == 1).all()
    np.testing.assert_allclose(result[10:91], np.linspace(-1, 1, 81), atol=1e-6)
    assert intensity.range_of(image, how("percentile", percentiles=(10, 90))) == (10, 90)


def test_per_slice_scales_each_slice_of_the_last_axis():
    image = values(4, 5, 3)
    image[..., 1] = 7
    result = intensity.scale(image, how("med_ddpm_per_slice"))
    for k in (0, 2):
        plane = image[..., k].astype(float)
        expected = 2 * (plane - plane.min()) / (plane.max() - plane.min()) - 1
        np.testing.assert_allclose(result[..., k], expected, atol=1e-6)
    assert (result[..., 1] == -1).all()


@pytest.mark.parametrize("name", ["minmax", "percentile", "med_ddpm_per_slice"])
def test_no_value_leaves_the_range(name):
    # Large numbers that lie near to each other, where float32 has few digits left.
    result = intensity.scale(values(8, 8, 8) + 1e5, how(name))
    assert result.min() == -1
    assert result.max() == 1


def test_as_is_takes_rounding_and_no_more():
    image = np.linspace(-1, 1, 60, dtype=np.float32).reshape(3, 4, 5)
    np.testing.assert_array_equal(intensity.scale(image, how("as_is")), image)
    rounded = intensity.scale(image * np.float32(1.0005), how("as_is"))
    assert (rounded.min(), rounded.max()) == (-1, 1)
    refused(image * 1.01, how("as_is"), "-1.01 to 1.01", "`intensity: minmax`")
    refused(image + 0.01, how("as_is"), "1.01")


@pytest.mark.parametrize("name", ["minmax", "percentile", "med_ddpm_per_slice", "as_is"])
def test_a_constant_image_is_refused(name):
    refused(np.full((3, 3, 3), 0.5, np.float32), how(name), "0.5 everywhere")


def test_an_image_that_is_nearly_all_background_has_no_percentiles():
    image = np.zeros((20, 20, 20), np.float32)
    image[0, 0, :5] = 9
    refused(image, how("percentile"), "0.5 and 99.5", "both 0", "`intensity: minmax`")


@pytest.mark.parametrize("percentiles", [(99.5, 0.5), (50, 50), (-1, 99), (0, 101)])
def test_percentiles_are_two_numbers_in_order(percentiles):
    with pytest.raises(UserError, match=r"percentiles: .* the lower one first"):
        intensity.scale(values(4, 4, 4), how("percentile", percentiles=percentiles))
