"""The weights that come with the package: small, described, and good for a brain that they have not seen."""

import csv
import re

import numpy as np
import pytest
import torch
import yaml

from meddpm import data, sampling, variants
from meddpm.config import EvaluateConfig, Icbm152Config, SolverConfig, VariantConfig, from_mapping, repository_root
from meddpm.data import conditions, icbm152, volumes
from meddpm.diffusion import noise, solvers
from meddpm.model import weights
from meddpm.model.presets import PRESETS, shipped
from meddpm.quality.truth import Truth
from meddpm.stages import network

ROOT = repository_root()
FILE = shipped("demo")
CARD = FILE.with_suffix(".md").read_text(encoding="utf-8")
CONFIG = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
# A seed that no training and no other study has.
UNSEEN = Icbm152Config(cases=1, seed=77, lesion_every=1)


def test_the_file_is_small_and_holds_half_precision() -> None:
    assert FILE.stat().st_size < 12_000_000
    card = weights.read_card(FILE)
    assert card["stored"] == "fp16"
    assert "synthetic" in card["dataset"]
    assert from_mapping(type(PRESETS["demo"]), card["preset"]) == PRESETS["demo"]


def test_the_model_card_says_what_the_file_says() -> None:
    card = weights.read_card(FILE)
    for said in (
        f"{card['cases']} deformations",
        f"{card['steps']:,} steps",
        f"{card['seconds']:.0f} s",
        "NVIDIA H200",
    ):
        assert said in CARD
    for number in (card["loss_first"], card["loss_last"], FILE.stat().st_size / 1e6):
        assert f"{number:.3g}" in CARD
    assert card["environment"]["code_digest"] in CARD
    assert "must not be used for" in CARD


def test_the_model_card_has_the_published_figures() -> None:
    with open(ROOT / "results/published/h200/demo_weights/quality.csv", newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    found = {
        (row["solver"], row["metric"], row["reference"]): float(row["value"])
        for row in rows
        if row["region"] in ("whole", "background") or row["metric"].startswith("dice")
    }
    lines = [re.split(r"\s*\|\s*", line.strip("| ")) for line in CARD.splitlines() if line.startswith("| ")]
    table = {cells[0]: cells[1:] for cells in lines}
    wanted = {
        "SSIM to the true image (each label painted in its mean: 0.941)": ("ssim", "true image", 3),
        "Dice of grey matter, recovered by multi-Otsu, over that of the true image": (
            "dice_grey_over_true_image",
            "label map",
            3,
        ),
        "the same of white matter": ("dice_white_over_true_image", "label map", 3),
        "largest distance of a volume's mean background from -1": ("background_offset_max", "black, -1", 3),
    }
    for name, (metric, reference, digits) in wanted.items():
        for solver, cell in zip(("ddpm", "dpmpp_2m_sde_10"), table[name], strict=True):
            assert cell == f"{found[solver, metric, reference]:.{digits}f}"
    few = found["dpmpp_2m_sde_10", "ssim", "ddpm, same noise and mask"]
    seeds = found["ddpm", "ssim", "another seed, same mask"]
    assert few >= seeds
    assert f"{few:.4f}" in CARD
    assert f"{seeds:.4f}" in CARD


@pytest.mark.slow
def test_the_demo_draws_a_brain_that_the_weights_have_not_seen() -> None:
    preset = PRESETS["demo"]
    (name,) = CONFIG["study"]["solvers"]
    settings = from_mapping(SolverConfig, CONFIG["solvers"][name])
    assert settings.evaluations <= 20
    cases = [icbm152.build(UNSEEN, index, preset.size) for index in range(UNSEEN.cases)]
    condition = torch.from_numpy(np.stack([conditions.encode(case.label, preset) for case in cases]))

    def noises(number: int) -> torch.Tensor:
        return torch.from_numpy(np.stack([noise.gaussian(case.id, 0, number, preset.shape) for case in cases]))

    with variants.applied(VariantConfig(), torch.device("cpu")) as applied:
        drawer = applied.network(network.load(preset, FILE))
        drawn = sampling.draw(drawer, condition, solvers.build(settings, preset), noises).numpy()
    for volume, case in zip(drawn, cases, strict=True):
        label = volumes.to_tensor_axes(case.label)[0]
        truth = Truth(volumes.to_tensor_axes(case.image), label, dict(data.tissues(UNSEEN)), EvaluateConfig())
        found = {(each.metric, each.region): each.value for each in [*truth.figures(volume), *truth.yardsticks]}
        assert found["dice_grey_over_true_image", "mask"] >= 0.93
        assert found["dice_white_over_true_image", "mask"] >= 0.93
        assert found["tissue_order", "mask"] == 1
        assert found["background_offset_max", "background"] < 0.03
        assert found["ssim", "whole"] > found["ssim_of_label_means", "whole"]
        assert found["ssim", "mask"] > found["ssim_of_label_means", "mask"]
