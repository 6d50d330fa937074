"""The schedule, the process and the training loss."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from meddpm.config import ModelConfig, repository_root
from meddpm.diffusion import process
from meddpm.diffusion.schedule import cosine_betas, cosine_schedule
from meddpm.model import build_model, weights

GOLDEN = repository_root().parent / "shared" / "golden"

# The network of the golden trajectory: its attention rule is image size // 16 = 64 // 16.
SAMPLER = ModelConfig((64, 64, 64), 1, (1, 2), (-1.0, 1.0), 32, (1, 2, 3, 4), 1, (4,), steps=10)


def golden(name: str) -> dict[str, torch.Tensor]:
    if not (GOLDEN / name).exists():
        pytest.skip("../shared is not here")
    return {key: torch.from_numpy(value) for key, value in np.load(GOLDEN / name).items()}


def relative_error(value: torch.Tensor, reference: torch.Tensor) -> float:
    return ((value - reference).norm() / reference.norm()).item()


def test_schedule_golden():
    schedule = cosine_schedule(250)
    expected = golden("schedule_250.npz")
    assert set(expected) == {item.name for item in dataclasses.fields(schedule)}
    for name, buffer in expected.items():
        assert torch.equal(getattr(schedule, name), buffer), name


def test_schedule_of_three_steps():
    """Every buffer by hand: the points are x = 0, 4/3, 8/3, 4, and a(4) = 0, so that the last beta is clipped."""
    a = [math.cos((x / 4 + 0.008) / 1.008 * math.pi / 2) ** 2 for x in (0, 4 / 3, 8 / 3)]
    beta = [1 - a[1] / a[0], 1 - a[2] / a[1], 0.999]
    acp = [a[1] / a[0], a[2] / a[0], a[2] / a[0] * 0.001]
    before = [1, acp[0], acp[1]]
    variance = [beta[t] * (1 - before[t]) / (1 - acp[t]) for t in range(3)]
    from_x0 = [beta[t] * math.sqrt(before[t]) / (1 - acp[t]) for t in range(3)]
    from_xt = [math.sqrt(1 - beta[t]) * (1 - before[t]) / (1 - acp[t]) for t in range(3)]
    expected = {
        "betas": beta,
        "alphas_cumprod": acp,
        "alphas_cumprod_prev": before,
        "sqrt_alphas_cumprod": [math.sqrt(p) for p in acp],
        "sqrt_one_minus_alphas_cumprod": [math.sqrt(1 - p) for p in acp],
        "log_one_minus_alphas_cumprod": [math.log(1 - p) for p in acp],
        "sqrt_recip_alphas_cumprod": [p**-0.5 for p in acp],
        "sqrt_recipm1_alphas_cumprod": [math.sqrt((1 - p) / p) for p in acp],
        "posterior_variance": variance,
        "posterior_log_variance_clipped": [math.log(1e-20), math.log(variance[1]), math.log(variance[2])],
        "posterior_mean_coef1": from_x0,
        "posterior_mean_coef2": from_xt,
        "posterior_mean_coef3": [1 - c for c in from_xt],
    }
    schedule = cosine_schedule(3)
    assert set(expected) == {item.name for item in dataclasses.fields(schedule)}
    for name, values in expected.items():
        buffer = getattr(schedule, name)
        assert buffer.dtype == torch.float32
        torch.testing.assert_close(buffer, torch.tensor(values), rtol=1e-5, atol=1e-7, msg=name)
    assert schedule.steps == 3


@pytest.mark.parametrize("steps", [1, 2, 250, 1000])
def test_betas_are_variances(steps):
    betas = cosine_betas(steps)
    assert betas.shape == (steps,)
    assert betas.dtype == np.float64
    assert (betas > 0).all()
    assert betas.max() == 0.999


def test_schedule_moves_whole():
    moved = cosine_schedule(3).to("meta")
    assert all(getattr(moved, item.name).device.type == "meta" for item in dataclasses.fields(moved))


def volumes(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (batch, 1, 2, 3, 4)
    return torch.rand(shape, generator=generator) * 2 - 1, torch.randn(shape, generator=generator)


def test_q_sample_golden():
    data = golden("sampler_T10.npz")
    sample = process.q_sample(cosine_schedule(10), data["x0"], data["train_t"], data["train_noise"])
    assert relative_error(sample, data["q_sample"]) < 1e-6


def test_q_sample_mixes_by_share_of_variance():
    schedule = cosine_schedule(10)
    x0, noise = volumes(2)
    sample = process.q_sample(schedule, x0, torch.tensor([2, 8]), noise)
    for member, t in enumerate((2, 8)):
        share = float(np.prod(1 - cosine_betas(10)[: t + 1]))
        expected = math.sqrt(share) * x0[member] + math.sqrt(1 - share) * noise[member]
        torch.testing.assert_close(sample[member], expected)


@pytest.mark.parametrize("prediction", ["epsilon", "v"])
def test_target_leads_back_to_x0(prediction):
    schedule = cosine_schedule(10)
    x0, noise = volumes(3)
    t = torch.tensor([0, 4, 8])
    x_t = process.q_sample(schedule, x0, t, noise)
    target = process.prediction_target(schedule, prediction, x0, t, noise)
    torch.testing.assert_close(process.predict_x0(schedule, prediction, target, x_t, t), x0, atol=1e-5, rtol=0)


def test_velocity_is_the_derivative_along_the_angle():
    """With x = cos(a) x0 + sin(a) noise, v = dx/da (Salimans and Ho 2022, appendix D)."""
    schedule = cosine_schedule(10)
    x0, noise = volumes(1)
    angle = math.acos(schedule.sqrt_alphas_cumprod[4].item())
    step = 1e-3
    ahead, behind = (math.cos(a) * x0 + math.sin(a) * noise for a in (angle + step, angle - step))
    v = process.prediction_target(schedule, "v", x0, torch.tensor([4]), noise)
    torch.testing.assert_close(v, (ahead - behind) / (2 * step), atol=1e-3, rtol=0)


def test_unknown_prediction():
    schedule, (x0, noise), t = cosine_schedule(10), volumes(1), torch.tensor([1])
    with pytest.raises(ValueError, match="unknown prediction 'x0'"):
        process.prediction_target(schedule, "x0", x0, t, noise)
    with pytest.raises(ValueError, match="unknown prediction 'x0'"):
        process.predict_x0(schedule, "x0", noise, x0, t)


def test_posterior_is_the_product_of_two_gaussians():
    """Bayes: q(x_{t-1} | x_t, x_0) is proportional to q(x_t | x_{t-1}) q(x_{t-1} | x_0); precisions add."""
    schedule = cosine_schedule(10)
    x0, x_t = volumes(1)
    for t in range(1, 10):
        beta = cosine_betas(10)[t]
        before = float(np.prod(1 - cosine_betas(10)[:t]))
        precision = (1 - beta) / beta + 1 / (1 - before)
        expected = (math.sqrt(1 - beta) / beta * x_t + math.sqrt(before) / (1 - before) * x0) / precision
        mean, log_variance = process.posterior(schedule, x0, x_t, torch.tensor([t]))
        torch.testing.assert_close(mean, expected, rtol=1e-4, atol=1e-5)
        assert log_variance.shape == (1, 1, 1, 1, 1)
        assert math.isclose(log_variance.item(), -math.log(precision), abs_tol=1e-4)


def test_ancestral_step_adds_noise_but_at_the_end():
    schedule = cosine_schedule(10)
    x_t, noise = volumes(2)
    # The floored variance at t = 0 is 1e-20: only noise this wild would show that it was added.
    noise[0] = 1e12
    t = torch.tensor([0, 5])
    output = torch.zeros_like(x_t)
    quiet = process.ancestral_step(schedule, "epsilon", output, x_t, t, torch.zeros_like(noise))
    noisy = process.ancestral_step(schedule, "epsilon", output, x_t, t, noise)
    assert torch.equal(noisy[0], quiet[0])
    deviation = schedule.posterior_variance[5].sqrt()
    torch.testing.assert_close(noisy[1] - quiet[1], deviation * noise[1], atol=1e-6, rtol=0)


def test_ancestral_step_clamps_x0():
    schedule = cosine_schedule(10)
    x_t, noise = volumes(1)
    output = torch.full_like(x_t, -1000.0)
    # At t = 0 the posterior mean is x_0 itself.
    last = process.ancestral_step(schedule, "epsilon", output, x_t, torch.tensor([0]), noise)
    torch.testing.assert_close(last, torch.ones_like(x_t))


def test_training_loss_golden():
    data = golden("sampler_T10.npz")
    network = build_model(SAMPLER)
    weights.fill(network, 0)
    with torch.no_grad():
        loss = process.training_loss(
            network, cosine_schedule(10), "epsilon", data["x0"], data["cond"], data["train_t"], data["train_noise"]
        )
    assert math.isclose(loss.item(), data["train_l1"].item(), rel_tol=1e-5)


@pytest.mark.parametrize("prediction", ["epsilon", "v"])
def test_training_loss_is_the_mean_absolute_error(prediction):
    schedule = cosine_schedule(10)
    x0, noise = volumes(2)
    t = torch.tensor([3, 6])
    condition = torch.full((2, 2, 2, 3, 4), 0.5)
    seen = []

    class Network(torch.nn.Module):
        """Off the target by 0.25 in one volume and by -0.75 in the other."""

        def forward(self, x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
            seen.append((x, steps))
            error = torch.tensor([0.25, -0.75]).reshape(2, 1, 1, 1, 1)
            return process.prediction_target(schedule, prediction, x0, t, noise) + error

    loss = process.training_loss(Network(), schedule, prediction, x0, condition, t, noise)
    assert loss.shape == ()
    assert math.isclose(loss.item(), 0.5, rel_tol=1e-6)
    (x, steps) = seen[0]
    assert torch.equal(x, torch.cat([process.q_sample(schedule, x0, t, noise), condition], dim=1))
    assert torch.equal(steps, t)
