"""Metrics of a volume against its reference, and statistics over volumes."""

import itertools
import math
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from meddpm import tables
from meddpm.config import ConfigError, EvaluateConfig, UserError
from meddpm.quality import quality_rows
from meddpm.quality.metrics import Measurement, compare, similarity, ssim_map, ssim_window
from meddpm.quality.statistics import bootstrap_interval

SETTINGS = EvaluateConfig(ssim_window=7, bootstrap=500, confidence=0.95)
SHAPE = (1, 12, 13, 14)


def noise(seed: int, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def half_mask(shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    mask = np.zeros(shape[1:], dtype=bool)
    mask[: shape[1] // 2] = True
    return mask


def rows_of(pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> list[tables.Row]:
    """The rows of pairs of volume and reference, as the evaluate stage makes them."""
    measured = (compare(volume, reference, half_mask(), SETTINGS) for volume, reference in pairs)
    return quality_rows(itertools.chain.from_iterable(measured), SETTINGS)


def figures(volume: np.ndarray, reference: np.ndarray, mask: np.ndarray, settings: EvaluateConfig = SETTINGS):
    return {(entry.metric, entry.region): entry.value for entry in compare(volume, reference, mask, settings)}


def test_identical_volumes() -> None:
    volume = noise(0)
    measured = compare(volume, volume.copy(), half_mask(), SETTINGS)
    assert len(measured) == 8
    for entry in measured:
        if entry.metric == "psnr_db":
            assert entry.value is None
            assert "identical" in entry.note
        else:
            assert entry.value == pytest.approx({"ssim": 1.0}.get(entry.metric, 0.0), abs=1e-12)
            assert entry.note is None


def test_constant_offset() -> None:
    reference = np.zeros(SHAPE, np.float32) + np.float32(0.5)
    measured = figures(reference - np.float32(0.25), reference, half_mask())
    for region in ("whole", "mask"):
        # 10 log10(2^2 / 0.25^2) = 20 log10(8)
        assert measured["psnr_db", region] == pytest.approx(20 * math.log10(8))
        assert measured["relative_error", region] == pytest.approx(0.5)
        assert measured["max_abs_difference", region] == pytest.approx(0.25)


def test_figures_by_hand() -> None:
    reference = np.zeros((1, 7, 7, 7), np.float32)
    reference[0, 0, 0, 0], reference[0, 6, 6, 6] = 0.3, 0.4
    volume = reference.copy()
    volume[0, 0, 0, 0] += 0.06
    volume[0, 6, 6, 6] -= 0.08
    mask = np.zeros((7, 7, 7), np.uint8)
    mask[6] = 1
    measured = figures(volume, reference, mask)
    # Norms: sqrt(.06^2 + .08^2) = .1 and sqrt(.3^2 + .4^2) = .5; inside the mask .08 and .4.
    assert measured["relative_error", "whole"] == pytest.approx(0.2, rel=1e-5)
    assert measured["relative_error", "mask"] == pytest.approx(0.2, rel=1e-5)
    assert measured["max_abs_difference", "whole"] == pytest.approx(0.08, rel=1e-5)
    assert measured["psnr_db", "whole"] == pytest.approx(10 * math.log10(4 / (0.01 / 343)), rel=1e-5)
    assert measured["psnr_db", "mask"] == pytest.approx(10 * math.log10(4 / (0.0064 / 49)), rel=1e-5)


def test_ssim_of_one_window_by_its_formula() -> None:
    x, y = noise(1, (1, 7, 7, 7)), noise(2, (1, 7, 7, 7))
    a, b = x.astype(float).ravel(), y.astype(float).ravel()
    covariance = np.cov(a, b)  # sample covariance, divided by n - 1
    c1, c2 = (0.01 * 2) ** 2, (0.03 * 2) ** 2
    means = (2 * a.mean() * b.mean() + c1) / (a.mean() ** 2 + b.mean() ** 2 + c1)
    expected = means * (2 * covariance[0, 1] + c2) / (covariance[0, 0] + covariance[1, 1] + c2)

    mean, values = ssim_map(x, y, 7)
    assert mean == pytest.approx(expected)
    assert values.shape == (7, 7, 7)
    # The one window that lies inside the volume has its centre in the middle.
    assert values[3, 3, 3] == pytest.approx(expected)


def test_ssim_falls_with_noise_and_channels_are_averaged() -> None:
    reference = noise(3)
    little = figures(reference + 0.1 * noise(4), reference, half_mask())["ssim", "whole"]
    much = figures(reference + 0.5 * noise(4), reference, half_mask())["ssim", "whole"]
    assert 0 < much < little < 1

    two = np.concatenate([reference, reference])
    changed = np.concatenate([reference, reference + 0.5 * noise(4)])
    measured = figures(changed, two, half_mask())
    assert measured["ssim", "whole"] == pytest.approx((1 + much) / 2)
    only = figures(changed[1:], two[1:], half_mask())
    alone = figures(changed[1:], reference, half_mask())["ssim", "mask"]
    assert measured["ssim", "mask"] == pytest.approx((1 + alone) / 2)
    # Half the voxels are equal: half the squared error, 3 dB more.
    assert measured["psnr_db", "whole"] == pytest.approx(only["psnr_db", "whole"] + 10 * math.log10(2))
    assert measured["max_abs_difference", "whole"] == only["max_abs_difference", "whole"]


def test_mask_and_whole_differ() -> None:
    shape = (1, 24, 9, 9)
    reference, mask = noise(5, shape), half_mask(shape)
    outside = reference.copy()
    outside[:, ~mask] += 0.3
    measured = figures(outside, reference, mask)
    assert measured["relative_error", "mask"] == 0
    assert measured["psnr_db", "mask"] is None
    assert measured["max_abs_difference", "mask"] == 0
    assert measured["relative_error", "whole"] > 0.2
    assert measured["ssim", "mask"] > measured["ssim", "whole"]

    far = np.zeros(shape[1:], bool)
    far[:4] = True  # windows here do not reach the changed half
    assert figures(outside, reference, far)["ssim", "mask"] == pytest.approx(1)
    assert figures(outside, reference, ~mask)["ssim", "mask"] < measured["ssim", "whole"]


def test_a_mask_may_hold_labels() -> None:
    reference, volume, mask = noise(6), noise(7), half_mask()
    labels = np.where(mask, 3, 0).astype(np.uint8)
    assert figures(volume, reference, labels) == figures(volume, reference, mask)


def test_ssim_in_the_mask_is_the_mean_of_the_map_there() -> None:
    reference, volume, mask = noise(6), noise(7), half_mask()
    _, values = ssim_map(volume, reference, 7)
    assert figures(volume, reference, mask)["ssim", "mask"] == pytest.approx(values[:6].mean())


@pytest.mark.parametrize(
    ("shape", "wanted", "window"),
    [((8, 9, 7), 7, 7), ((8, 9, 6), 7, 5), ((5, 9, 9), 7, 5), ((4, 4, 4), 11, 3), ((3, 3, 3), 7, 3), ((9, 9, 9), 5, 5)],
)
def test_window_fits_the_smallest_side(shape: tuple[int, ...], wanted: int, window: int) -> None:
    assert ssim_window(shape, wanted) == window


def test_a_window_that_was_shrunk_is_in_the_name() -> None:
    reference = noise(8, (1, 6, 8, 8))
    metrics = {entry.metric for entry in compare(reference, reference, half_mask(reference.shape), SETTINGS)}
    assert metrics == {"ssim_window5", "psnr_db", "relative_error", "max_abs_difference"}


@pytest.mark.parametrize("window", [0, 1, 6])
def test_a_window_that_is_even_or_too_small_is_a_fault_of_the_configuration(window: int) -> None:
    with pytest.raises(ConfigError, match=r"evaluate\.ssim_window"):
        ssim_window((9, 9, 9), window)


def test_a_volume_too_small_for_ssim_is_told() -> None:
    with pytest.raises(UserError, match="3 voxels"):
        ssim_window((9, 2, 9), 7)


def test_shapes_must_agree() -> None:
    volume = noise(0)
    for other, mask in ((noise(0, (1, 12, 13, 13)), half_mask()), (volume, half_mask()[:5]), (volume[0], half_mask())):
        with pytest.raises(ValueError, match="shapes do not agree"):
            compare(volume, other, mask, SETTINGS)


def test_empty_mask_and_zero_reference_have_notes_not_numbers() -> None:
    reference = np.zeros(SHAPE, np.float32)
    notes = {
        (entry.metric, entry.region): (entry.value, entry.note)
        for entry in compare(reference + 1, reference, np.zeros(SHAPE[1:], bool), SETTINGS)
    }
    assert notes["relative_error", "whole"] == (None, "the reference is zero")
    assert notes["psnr_db", "whole"][0] == pytest.approx(10 * math.log10(4))
    assert all(notes[key] == (None, "the mask is empty") for key in notes if key[1] == "mask")


def test_rows_average_over_volumes() -> None:
    reference = np.full(SHAPE, 0.5, np.float32)
    offsets = (0.125, 0.25, 0.375)
    rows = rows_of((reference + np.float32(o), reference) for o in offsets)
    by_key = {(row["metric"], row["region"]): row for row in rows}
    row = by_key["relative_error", "mask"]
    assert row["value"] == pytest.approx(0.5)
    assert row["n"] == 3
    assert 0.25 <= row["ci_low"] < 0.5 < row["ci_high"] <= 0.75
    assert row["status"] == "ok"
    assert row["reason"] is None
    mean_psnr = sum(10 * math.log10(4 / o**2) for o in offsets) / 3
    assert by_key["psnr_db", "whole"]["value"] == pytest.approx(mean_psnr)


def test_rows_count_volumes_without_a_figure() -> None:
    reference = np.full(SHAPE, 0.5, np.float32)
    pairs = [(reference + np.float32(0.25), reference), (reference, reference)]
    by_key = {(row["metric"], row["region"]): row for row in rows_of(pairs)}
    psnr = by_key["psnr_db", "whole"]
    assert psnr["value"] == pytest.approx(10 * math.log10(4 / 0.0625))
    assert psnr["n"] == 1
    assert psnr["reason"] == "1 of 2 volumes: identical: the PSNR is infinite"
    assert by_key["relative_error", "whole"]["n"] == 2
    assert by_key["relative_error", "whole"]["value"] == pytest.approx(0.25)


def test_a_volume_that_is_not_finite_fails_its_rows() -> None:
    reference = noise(9)
    broken = reference.copy()
    broken[0, 3, 3, 3] = np.nan
    rows = rows_of([(reference, reference), (broken, reference)])
    assert {(row["status"], row["value"], row["n"]) for row in rows} == {("failed", None, 0)}
    assert all("1 of 2 volumes: the volume has values that are not finite" in row["reason"] for row in rows)


def test_a_reference_that_is_not_finite_is_refused() -> None:
    reference = noise(9)
    reference[0, 0, 0, 0] = np.inf
    with pytest.raises(ValueError, match="reference"):
        compare(noise(1), reference, half_mask(), SETTINGS)


def test_rows_fit_the_quality_table(tmp_path: Path) -> None:
    reference = noise(10)
    rows = rows_of([(reference, reference)] * 2)
    cell = {"model": "m", "gpu": "g", "variant": "tf32", "solver": "ddpm"}
    tables.write("quality", [cell | row for row in rows], tmp_path / "quality.csv")
    assert "inf," not in (tmp_path / "quality.csv").read_text()
    by_key = {(row["metric"], row["region"]): row for row in tables.read("quality", tmp_path / "quality.csv")}
    assert by_key["psnr_db", "whole"]["value"] is None
    assert by_key["ssim", "mask"]["value"] == pytest.approx(1)
    assert by_key["relative_error", "whole"]["ci_low"] == by_key["relative_error", "whole"]["ci_high"] == 0


def test_no_pairs_give_no_rows() -> None:
    assert quality_rows([], SETTINGS) == []


def test_a_worst_case_is_the_largest_value_without_an_interval() -> None:
    offsets = [Measurement("offset_max", "background", value, worst=True) for value in (0.1, 0.3, 0.2)]
    (row,) = quality_rows([*offsets, Measurement("offset_max", "background", None, "none here", worst=True)], SETTINGS)
    assert (row["value"], row["n"], row["ci_low"], row["ci_high"]) == (0.3, 3, None, None)
    assert row["reason"] == "1 of 4 volumes: none here"


def test_figures_with_another_reference_are_another_row() -> None:
    found = [Measurement("ssim", "mask", value, reference=name) for value, name in ((0.2, "a"), (0.4, "b"), (0.6, "a"))]
    rows = quality_rows(found, SETTINGS)
    assert [(row["reference"], row["value"], row["n"]) for row in rows] == [("a", 0.4, 2), ("b", 0.4, 1)]


def test_similarity_is_the_ssim_of_compare_under_a_name_of_its_own() -> None:
    volume, reference = noise(1), noise(2)
    ssim = [entry for entry in compare(volume, reference, half_mask(), SETTINGS) if entry.metric == "ssim"]
    assert similarity(volume, reference, half_mask(), SETTINGS) == ssim
    small = similarity(volume[:, :6], reference[:, :6], half_mask()[:6], SETTINGS, "ssim_of_label_means")
    assert [entry.metric for entry in small] == ["ssim_of_label_means_window5"] * 2


def test_bootstrap_of_one_value_and_of_none_is_empty() -> None:
    assert bootstrap_interval([0.3], 100, 0.95) == (None, None)
    assert bootstrap_interval([], 100, 0.95) == (None, None)


def test_bootstrap_of_equal_values_has_no_width() -> None:
    # The floating-point mean of three times 0.1 is not 0.1: the bounds are the value itself.
    assert bootstrap_interval([0.1] * 3, 100, 0.95) == (0.1, 0.1)


def test_bootstrap_agrees_with_the_normal_interval_on_many_values() -> None:
    values = np.random.default_rng(0).normal(5, 2, 400)
    half_width = 1.96 * values.std(ddof=1) / math.sqrt(400)
    low, high = bootstrap_interval(values, 5000, 0.95)
    assert low == pytest.approx(values.mean() - half_width, abs=0.05 * 2 * half_width)
    assert high == pytest.approx(values.mean() + half_width, abs=0.05 * 2 * half_width)
    narrow = bootstrap_interval(values, 5000, 0.5)
    assert low < narrow[0] < narrow[1] < high


def test_bootstrap_is_seeded() -> None:
    values = [0.1, 0.4, 0.2, 0.9, 0.5]
    assert bootstrap_interval(values, 200, 0.95) == bootstrap_interval(values, 200, 0.95)
    assert bootstrap_interval(values, 200, 0.95, seed=1) != bootstrap_interval(values, 200, 0.95, seed=2)


@pytest.mark.parametrize("values", [[0.1, 0.2], [0.0, 0.0, 0.0, 1.0], [1.0, 1.0 + 1e-16, 1.0 + 3e-16]])
def test_bootstrap_of_few_values_is_finite(values: list[float]) -> None:
    low, high = bootstrap_interval(values, 200, 0.95)
    assert min(values) <= low <= high <= max(values)


def test_bootstrap_refuses_values_that_are_not_finite() -> None:
    with pytest.raises(ValueError, match="finite"):
        bootstrap_interval([1.0, math.inf], 100, 0.95)


def test_the_packages_import_no_heavy_library() -> None:
    heavy = {"numpy", "scipy", "skimage", "torch"}
    code = f"import sys, meddpm.quality, meddpm.profiling.readers.kineto; print(sorted({heavy} & set(sys.modules)))"
    root = Path(__file__).parents[2]
    result = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
