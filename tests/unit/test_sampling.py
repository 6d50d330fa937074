"""Sampling: a sample depends on its own noise alone, and that noise is the same everywhere."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from meddpm import sampling
from meddpm.config import ModelConfig, SolverConfig, repository_root
from meddpm.diffusion import noise, solvers
from meddpm.model import build_model, weights

TINY = ModelConfig(
    size=(8, 8, 8),
    image_channels=1,
    condition_labels=(1, 2),
    condition_range=(-1.0, 1.0),
    base_channels=32,
    channel_multipliers=(1, 1),
    blocks_per_level=1,
    attention_factors=(),
    steps=6,
)
KEYS = [("a", 0), ("b", 0), ("a", 1)]


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    network = build_model(TINY).eval()
    weights.fill(network, 0)
    return network


def condition(case: str) -> torch.Tensor:
    return torch.from_numpy(noise.gaussian(f"condition of {case}", 0, 0, (2, 8, 8, 8))).sign()


def draw(model: torch.nn.Module, keys: list[tuple[str, int]], kind: str = "ddpm") -> torch.Tensor:
    def stacked(number: int) -> torch.Tensor:
        each = [noise.gaussian(case, seed, number, TINY.shape) for case, seed in keys]
        return torch.from_numpy(np.stack(each))

    solver = solvers.build(SolverConfig(kind, None if kind == "ddpm" else 3), TINY)
    return sampling.draw(model, torch.stack([condition(case) for case, _ in keys]), solver, stacked)


@pytest.mark.parametrize("kind", ["ddpm", "dpmpp_2m_sde", "unipc"])
def test_a_sample_depends_on_its_case_and_seed_and_not_on_batch_or_order(model: torch.nn.Module, kind: str) -> None:
    # Near t = T the solvers divide by a signal of 2e-4, so rounding of 1e-7 grows; another noise would differ by 1.
    close = partial(torch.testing.assert_close, rtol=1e-3, atol=1e-3)
    together = draw(model, KEYS, kind)
    for number, key in enumerate(KEYS):
        close(draw(model, [key], kind)[0], together[number])
    close(draw(model, KEYS[::-1], kind).flip(0), together)
    assert not torch.allclose(together[0], together[2], atol=1e-2), "another seed is another volume"


def test_samples_are_clamped_and_no_gradient_is_kept(model: torch.nn.Module) -> None:
    drawn = draw(model, KEYS[:1])
    assert drawn.shape == (1, 1, 8, 8, 8)
    assert drawn.abs().max() <= 1
    assert not drawn.requires_grad


def test_progress_sees_every_step_and_each_step_its_own_noise(model: torch.nn.Module) -> None:
    seen: list[int] = []
    numbers: list[int] = []

    def watched(timesteps: list[int]) -> list[int]:
        seen.extend(timesteps)
        return timesteps

    def counted(number: int) -> torch.Tensor:
        numbers.append(number)
        return torch.zeros(1, *TINY.shape)

    solver = solvers.build(SolverConfig(), TINY)
    sampling.draw(model, condition("a")[None], solver, counted, watched)
    assert seen == [5, 4, 3, 2, 1, 0]
    assert numbers == [0, 1, 2, 3, 4, 5, 6]


NOISE_DIGEST = """
import hashlib
import torch
from meddpm.diffusion import noise
values = torch.from_numpy(noise.gaussian("sub-Ångström 1", 7, 3, (2, 5, 6, 7)))
print(torch.backends.cpu.get_cpu_capability(), hashlib.sha256(values.numpy().tobytes()).hexdigest())
"""


def test_noise_is_the_same_under_another_instruction_set() -> None:
    printed = []
    for changes in ({}, {"ATEN_CPU_CAPABILITY": "default"}):
        environment = {**os.environ, **changes, "PYTHONPATH": str(repository_root())}
        command = [sys.executable, "-c", NOISE_DIGEST]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        printed.append(result.stdout.split())
    assert printed[1][0] == "DEFAULT"
    assert printed[0][1] == printed[1][1]


def test_the_loop_knows_no_files() -> None:
    source = Path(sampling.__file__).read_text(encoding="utf-8")
    assert "open(" not in source
    assert "Path" not in source
