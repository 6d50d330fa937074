"""The loops: a sample depends on its own noise alone; training lowers the loss, averages and stops in time."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from meddpm import sampling, training, variants
from meddpm.config import ModelConfig, SolverConfig, TrainConfig, VariantConfig, repository_root
from meddpm.diffusion import noise, solvers
from meddpm.model import build_model, weights

CPU = torch.device("cpu")
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


def run_training(settings: TrainConfig, seed: int = 0) -> tuple[torch.nn.Module, training.TrainingResult]:
    torch.manual_seed(seed)
    network = build_model(TINY)
    images = torch.stack([condition("a")[:1], condition("b")[:1]]) * 0.5
    conditions = torch.stack([condition("a"), condition("b")])
    with variants.applied(VariantConfig(), CPU, training=True) as applied:
        return network, training.train(network, TINY, settings, applied, images, conditions)


def test_training_lowers_the_loss_and_repeats() -> None:
    settings = TrainConfig(steps=60, learning_rate=2e-3, accumulation=2, batch=2)
    _, first = run_training(settings)
    assert len(first.losses) == 60
    assert np.mean(first.losses[-10:]) < 0.8 * np.mean(first.losses[:10])
    _, again = run_training(settings)
    assert again.losses == first.losses
    assert run_training(TrainConfig(steps=3, seed=1))[1].losses != first.losses[:3]


def test_accumulated_batches_are_one_large_batch() -> None:
    torch.manual_seed(0)
    network = build_model(TINY)
    twin = build_model(TINY)
    twin.load_state_dict(network.state_dict())
    image, noisy = torch.rand(4, 1, 8, 8, 8) * 2 - 1, torch.randn(4, 1, 8, 8, 8)
    batch = (image, torch.rand(4, 2, 8, 8, 8), torch.tensor([0, 2, 4, 5]), noisy)
    halves = iter([tuple(part[:2] for part in batch), tuple(part[2:] for part in batch)])
    with variants.applied(VariantConfig(), CPU, training=True) as applied:
        one = training.Step(network, TINY, TrainConfig(accumulation=1), applied)
        two = training.Step(twin, TINY, TrainConfig(accumulation=2), applied)
        torch.testing.assert_close(one(lambda: batch), two(partial(next, halves)))
    for (name, left), right in zip(network.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(left.grad, right.grad, rtol=1e-3, atol=1e-6, msg=name)


def test_the_average_is_a_copy_before_its_start_and_moves_slowly_after() -> None:
    network, result = run_training(TrainConfig(steps=5, learning_rate=1e-2, ema_start=100))
    for key, value in network.state_dict().items():
        torch.testing.assert_close(result.weights[key], value)
    network, result = run_training(TrainConfig(steps=6, learning_rate=1e-2, ema_start=1, ema_every=1, ema_decay=0.5))
    expected, replayed = averaged_by_hand(6, 0.5)
    torch.testing.assert_close(network.state_dict()["out.2.bias"], replayed)
    torch.testing.assert_close(result.weights["out.2.bias"], expected)
    assert not torch.allclose(expected, replayed)


def averaged_by_hand(steps: int, decay: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The average of one parameter and its last value, from runs of 0, 1, ... steps."""
    torch.manual_seed(0)
    average = build_model(TINY).state_dict()["out.2.bias"]
    value = average
    for number in range(1, steps + 1):
        value = run_training(TrainConfig(steps=number, learning_rate=1e-2))[0].state_dict()["out.2.bias"]
        average = decay * average + (1 - decay) * value
    return average, value


def test_training_stops_after_its_seconds() -> None:
    _, result = run_training(TrainConfig(steps=100_000, max_seconds=0.5))
    assert 0 < len(result.losses) < 100_000
    assert result.seconds < 5


def test_a_loss_that_is_no_number_ends_the_training() -> None:
    with pytest.raises(FloatingPointError, match="learning rate"):
        run_training(TrainConfig(steps=200, learning_rate=1e30))


def test_the_loops_know_no_files() -> None:
    for module in (sampling, training):
        source = Path(module.__file__).read_text(encoding="utf-8")
        assert "open(" not in source
        assert "Path" not in source
