"""Samples against the truth: phantoms whose figures are known beforehand."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from meddpm import tables
from meddpm.config import EvaluateConfig, Icbm152Config
from meddpm.data import tissues as tissues_of
from meddpm.quality import BLACK, LABEL_MAP, TRUE_IMAGE, quality_rows
from meddpm.quality.metrics import ssim_map
from meddpm.quality.pairing import Cell, comparisons
from meddpm.quality.tissues import in_order, recover
from meddpm.quality.truth import Truth, label_means

SETTINGS = EvaluateConfig(ssim_window=7, bootstrap=100)
TISSUES = {"csf": 1, "grey": 2, "white": 3}
INTENSITY = {0: -1.0, 1: -0.4, 2: 0.1, 3: 0.6, 4: -0.7}
SIDE = 16


def label_map(lesion: bool = False) -> np.ndarray:
    """A ball (D, W, H) of white matter in grey matter in CSF, with a lesion in the white matter."""
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, SIDE)] * 3, indexing="ij"))
    radius = np.linalg.norm(grid, axis=0)
    label = np.select([radius < 0.45, radius < 0.7, radius < 0.9], [3, 2, 1], 0).astype(np.uint8)
    if lesion:
        label[6:9, 6:9, 6:9] = 4
    return label


def painted(label: np.ndarray, noise: float = 0.02, seed: int = 0, **changed: float) -> np.ndarray:
    """An image (1, D, W, H) of the map: each label in its intensity, with a little noise inside the body.

    `changed` gives other intensities by label: label2=0.5.
    """
    values = INTENSITY | {int(name.removeprefix("label")): value for name, value in changed.items()}
    image = np.select([label == value for value in values], list(values.values()))
    grain = np.random.default_rng(seed).uniform(-noise, noise, label.shape) * (label > 0)
    return (image + grain).astype(np.float32)[None]


def truth(label: np.ndarray, image: np.ndarray | None = None, tissues: dict[str, int] = TISSUES) -> Truth:
    return Truth(image, label, tissues, SETTINGS)


def figures(known: Truth, volume: np.ndarray) -> dict[tuple[str, str], float | None]:
    measured = [*known.figures(volume), *known.yardsticks]
    found = {(entry.metric, entry.region): entry.value for entry in measured}
    assert len(found) == len(measured)
    return found


def test_a_perfect_volume() -> None:
    label = label_map()
    image = painted(label)
    found = figures(truth(label, image), image)
    assert found == {
        ("ssim", "whole"): pytest.approx(1),
        ("ssim", "mask"): pytest.approx(1),
        ("dice_csf", "mask"): 1,
        ("dice_grey", "mask"): 1,
        ("dice_white", "mask"): 1,
        ("dice_csf_over_true_image", "mask"): 1,
        ("dice_grey_over_true_image", "mask"): 1,
        ("dice_white_over_true_image", "mask"): 1,
        ("tissue_order", "mask"): 1,
        ("background_mean", "background"): -1,
        ("background_offset_max", "background"): 0,
        ("ssim_of_label_means", "whole"): found["ssim_of_label_means", "whole"],
        ("ssim_of_label_means", "mask"): found["ssim_of_label_means", "mask"],
        ("dice_csf_of_true_image", "mask"): 1,
        ("dice_grey_of_true_image", "mask"): 1,
        ("dice_white_of_true_image", "mask"): 1,
    }
    assert 0.9 < found["ssim_of_label_means", "whole"] < 1


def test_swapped_tissues_are_out_of_order_and_not_recovered() -> None:
    label = label_map()
    swapped = painted(label, label1=INTENSITY[3], label3=INTENSITY[1])
    found = figures(truth(label, painted(label)), swapped)
    assert found["tissue_order", "mask"] == 0
    assert found["dice_csf", "mask"] == found["dice_white", "mask"] == 0
    assert found["dice_grey", "mask"] == 1
    equal = painted(label, noise=0, label2=INTENSITY[1])
    assert in_order(equal, label, TISSUES) == (False, None)


def test_dice_by_hand() -> None:
    label = np.repeat(np.array([1, 2, 3], np.uint8), 20).reshape(3, 4, 5)
    volume = painted(label, noise=0)
    volume[0, 1, 0] = INTENSITY[3]  # 5 of 20 voxels of grey matter as bright as white matter
    dice = recover(volume, label, TISSUES).dice
    assert dice == {"csf": 1, "grey": pytest.approx(2 * 15 / (15 + 20)), "white": pytest.approx(2 * 20 / (25 + 20))}


@pytest.mark.parametrize("middle", [-0.99, -0.3, 0.006, 0.3, 0.99])
def test_three_intensities_are_three_classes_wherever_they_lie(middle: float) -> None:
    label = label_map()
    volume = painted(label, noise=0, label1=-1.0, label2=middle, label3=1.0)
    assert recover(volume, label, TISSUES).dice == {"csf": 1, "grey": 1, "white": 1}


def test_a_lesion_is_on_neither_side() -> None:
    label = label_map(lesion=True)
    for intensity in (INTENSITY[1], INTENSITY[3], 50.0):
        volume = painted(label, label4=intensity)
        assert recover(volume, label, TISSUES).dice == {"csf": 1, "grey": 1, "white": 1}
        assert in_order(volume, label, TISSUES) == (True, None)
    # It is inside the body, though: the mask has it, the background has not.
    found = figures(truth(label, painted(label)), painted(label, label4=1.0))
    assert found["ssim", "mask"] < 0.99
    assert found["background_mean", "background"] == -1


def test_the_ratio_is_to_what_the_true_image_reaches() -> None:
    label = label_map()
    blurred = painted(label)
    blurred[0][label == 2] = np.where(np.random.default_rng(0).random(np.sum(label == 2)) < 0.5, 0.1, 0.6)
    worse = painted(label)
    worse[0][label == 2] = 0.6
    worse[0, SIDE // 2, 2:4] = 0.1  # three classes remain
    found = figures(truth(label, blurred), worse)
    assert found["dice_grey_of_true_image", "mask"] < 0.9
    ratio = found["dice_grey", "mask"] / found["dice_grey_of_true_image", "mask"]
    assert found["dice_grey_over_true_image", "mask"] == pytest.approx(ratio)


@pytest.mark.parametrize("shift", [0.1, -0.1])
def test_a_background_that_is_not_black(shift: float) -> None:
    label = label_map()
    found = figures(truth(label), painted(label, label0=-1 + shift))
    assert found["background_mean", "background"] == pytest.approx(-1 + shift)
    assert found["background_offset_max", "background"] == pytest.approx(0.1)


def test_the_background_that_counts_is_the_worst_one() -> None:
    label = label_map()
    volumes = [painted(label, label0=-1 + shift) for shift in (0.02, -0.3, 0.1)]
    rows = quality_rows([entry for volume in volumes for entry in truth(label).figures(volume)], SETTINGS)
    by_metric = {row["metric"]: row for row in rows}
    assert by_metric["background_offset_max"]["value"] == pytest.approx(0.3)
    assert by_metric["background_offset_max"]["ci_low"] is None
    assert by_metric["background_mean"]["value"] == pytest.approx(-1 - 0.06)
    assert by_metric["background_mean"]["ci_low"] < by_metric["background_mean"]["ci_high"]


def test_the_order_is_a_share_of_the_volumes() -> None:
    label = label_map()
    volumes = [painted(label), painted(label, seed=1), painted(label), painted(label, label3=-0.9)]
    rows = quality_rows([entry for volume in volumes for entry in truth(label).figures(volume)], SETTINGS)
    (order,) = [row for row in rows if row["metric"] == "tissue_order"]
    assert (order["value"], order["n"], order["reference"], order["region"]) == (0.75, 4, LABEL_MAP, "mask")
    assert 0 <= order["ci_low"] <= 0.75 <= order["ci_high"] <= 1


def test_label_means_are_those_of_the_true_image() -> None:
    label = label_map(lesion=True)
    image = np.random.default_rng(0).uniform(-1, 1, (2, *label.shape)).astype(np.float32)
    means = label_means(image, label)
    assert np.unique(means[0]).size == 5
    for value in range(5):
        for channel in range(2):
            expected = image[channel][label == value].mean()
            np.testing.assert_allclose(means[channel][label == value], expected, rtol=1e-5)
    mean, values = ssim_map(means, image, 7)
    found = {(entry.metric, entry.region): entry for entry in truth(label, image, {}).yardsticks}
    assert found["ssim_of_label_means", "whole"].value == pytest.approx(mean)
    assert found["ssim_of_label_means", "mask"].value == pytest.approx(values[label > 0].mean())
    assert {entry.reference for entry in found.values()} == {TRUE_IMAGE}


@pytest.mark.parametrize("value", [-1.0, 0.0])
def test_a_constant_volume_has_no_classes_and_says_so(value: float) -> None:
    label = label_map()
    constant = np.full((1, *label.shape), value, np.float32)
    rows = quality_rows(truth(label, painted(label)).figures(constant), SETTINGS)
    dice = [row for row in rows if row["metric"].startswith("dice")]
    assert len(dice) == 6
    assert {(row["value"], row["n"], row["status"]) for row in dice} == {(None, 0, "ok")}
    assert {row["reason"] for row in dice} == {"1 of 1 volumes: multi-Otsu finds too few classes of intensity"}
    assert [row["value"] for row in rows if row["metric"] == "tissue_order"] == [0]


def test_a_true_image_without_classes_gives_no_ratio() -> None:
    label = label_map()
    rows = quality_rows(truth(label, np.zeros((1, *label.shape), np.float32)).figures(painted(label)), SETTINGS)
    ratios = [row for row in rows if row["metric"].endswith("_over_true_image")]
    assert [row["reason"] for row in ratios] == ["1 of 1 volumes: the true image recovers none"] * 3
    assert [row["value"] for row in rows if row["metric"] == "dice_white"] == [1]


def test_a_map_without_a_tissue_or_a_background() -> None:
    label = label_map()
    label[label == 2] = 3
    assert recover(painted(label), label, TISSUES) == ({}, "the label map lacks a tissue")
    assert in_order(painted(label), label, TISSUES) == (None, "the label map lacks a tissue")
    label[label == 0] = 1
    notes = {entry.note for entry in truth(label).figures(painted(label)) if entry.region == "background"}
    assert notes == {"the label map has no background"}


def test_a_volume_of_several_images_has_no_tissues_and_no_likeness() -> None:
    label = label_map()
    image = painted(label)
    two = np.concatenate([image, image])
    noted = {entry.metric: entry.note for entry in truth(label, image).figures(two) if entry.value is None}
    assert "different numbers of images" in noted["ssim"]
    assert {"dice_csf", "dice_csf_over_true_image", "tissue_order"} < noted.keys()
    assert figures(truth(label), two)["background_mean", "background"] == -1


def test_values_that_are_not_finite_fail_every_row() -> None:
    label = label_map()
    broken = painted(label)
    broken[0, 8, 8, 8] = np.nan
    rows = quality_rows(truth(label, painted(label)).figures(broken), SETTINGS)
    assert len(rows) == 11
    assert {(row["status"], row["value"]) for row in rows} == {("failed", None)}


def test_without_a_true_image_the_label_map_still_judges() -> None:
    label = label_map()
    known = truth(label)
    assert known.yardsticks == []
    assert {entry.metric for entry in known.figures(painted(label))} == {
        *("dice_csf", "dice_grey", "dice_white", "tissue_order", "background_mean", "background_offset_max")
    }


def test_without_tissues_likeness_and_background_are_left() -> None:
    label = label_map()
    known = truth(label, painted(label), {})
    metrics = {entry.metric for entry in (*known.figures(painted(label)), *known.yardsticks)}
    assert metrics == {"ssim", "ssim_of_label_means", "background_mean", "background_offset_max"}


def test_tissues_of_a_dataset_are_known_while_its_labels_stay_apart() -> None:
    dataset = Icbm152Config(lesion_every=4)
    assert dict(tissues_of(dataset)) == TISSUES
    assert [name for name, _ in tissues_of(dataset)] == ["csf", "grey", "white"]
    assert dict(tissues_of(dataclasses.replace(dataset, remap={1: 7, 2: 1}))) == {"csf": 7, "grey": 1, "white": 3}
    for remap in ({1: 1, 2: 1, 3: 1}, {1: 4, 2: 4, 3: 4}, {4: 3}, {1: 0}, {0: 2}):
        assert tissues_of(dataclasses.replace(dataset, remap=remap)) == [], remap
    without_lesions = dataclasses.replace(dataset, remap={4: 3}, lesion_every=0)
    assert dict(tissues_of(without_lesions)) == TISSUES


def test_rows_fit_the_quality_table(tmp_path: Path) -> None:
    label = label_map()
    known = truth(label, painted(label))
    rows = quality_rows([*known.figures(painted(label, seed=1)), *known.yardsticks], SETTINGS)
    cell = {"model": "m", "gpu": "g", "variant": "fp32", "solver": "ddpm"}
    tables.write("quality", [cell | row for row in rows], tmp_path / "quality.csv")
    read = tables.read("quality", tmp_path / "quality.csv")
    assert {row["reference"] for row in read} == {TRUE_IMAGE, LABEL_MAP, BLACK}
    assert {row["region"] for row in read} == {"whole", "mask", "background"}


def test_what_a_cell_is_held_against() -> None:
    cells = [Cell("g", variant, solver) for variant in ("fp32", "tf32") for solver in ("every", "few")]
    found = [
        (each.cell.variant, each.cell.solver, each.reference, each.other.variant, each.other.solver)
        for each in comparisons(cells, "fp32", "every", several_seeds=True)
    ]
    assert found == [
        ("fp32", "every", "true image", "fp32", "every"),
        ("fp32", "every", "another seed, same mask", "fp32", "every"),
        ("fp32", "few", "true image", "fp32", "few"),
        ("fp32", "few", "another seed, same mask", "fp32", "few"),
        ("fp32", "few", "every, same noise and mask", "fp32", "every"),
        ("tf32", "every", "fp32, same noise", "fp32", "every"),
        ("tf32", "every", "true image", "tf32", "every"),
        ("tf32", "every", "another seed, same mask", "tf32", "every"),
        ("tf32", "few", "fp32, same noise", "fp32", "few"),
        ("tf32", "few", "true image", "tf32", "few"),
        ("tf32", "few", "another seed, same mask", "tf32", "few"),
        ("tf32", "few", "every, same noise and mask", "tf32", "every"),
    ]
    alone = comparisons(cells, "fp32", None, several_seeds=False)
    assert {each.reference for each in alone} == {"true image", "fp32, same noise"}
