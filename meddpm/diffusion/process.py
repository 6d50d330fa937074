"""The diffusion process: adding noise, reading x_0 from the network's output, the ancestral step, the loss.

Volumes are (B, C, D, W, H), float32, with images in [-1, 1]; t is (B,) integer steps on the same device. "acp" is
the schedule's alphas_cumprod at t. `prediction` is what the network predicts, a key of the preset: "epsilon", the
noise (Ho et al. 2020, arXiv 2006.11239), or "v", the velocity (Salimans and Ho 2022, arXiv 2202.00512).
Nothing here waits for the device.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from meddpm.diffusion.schedule import Schedule


def q_sample(schedule: Schedule, x0: Tensor, t: Tensor, noise: Tensor) -> Tensor:
    """x_t = sqrt(acp) x_0 + sqrt(1 - acp) noise (Ho et al. 2020, equation 4)."""
    return _at(schedule.sqrt_alphas_cumprod, t, x0) * x0 + _at(schedule.sqrt_one_minus_alphas_cumprod, t, x0) * noise


def prediction_target(schedule: Schedule, prediction: str, x0: Tensor, t: Tensor, noise: Tensor) -> Tensor:
    """What the network should output: the noise, or v = sqrt(acp) noise - sqrt(1 - acp) x_0."""
    if prediction == "epsilon":
        return noise
    if prediction == "v":
        signal, spread = schedule.sqrt_alphas_cumprod, schedule.sqrt_one_minus_alphas_cumprod
        return _at(signal, t, x0) * noise - _at(spread, t, x0) * x0
    raise ValueError(f"unknown prediction {prediction!r}")


def predict_x0(schedule: Schedule, prediction: str, output: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
    """x_0 as the network's output implies it, not clamped; float32 whatever the type of `output`."""
    output = output.float()
    if prediction == "epsilon":
        scale, noise_scale = schedule.sqrt_recip_alphas_cumprod, schedule.sqrt_recipm1_alphas_cumprod
    elif prediction == "v":
        scale, noise_scale = schedule.sqrt_alphas_cumprod, schedule.sqrt_one_minus_alphas_cumprod
    else:
        raise ValueError(f"unknown prediction {prediction!r}")
    return _at(scale, t, x_t) * x_t - _at(noise_scale, t, x_t) * output


def posterior(schedule: Schedule, x0: Tensor, x_t: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """Mean, (B, C, D, W, H), and log variance, (B, 1, 1, 1, 1), of q(x_{t-1} | x_t, x_0).

    Ho et al. 2020, equation 7. The logarithm of the variance is floored at log 1e-20.
    """
    mean = _at(schedule.posterior_mean_coef1, t, x_t) * x0 + _at(schedule.posterior_mean_coef2, t, x_t) * x_t
    return mean, _at(schedule.posterior_log_variance_clipped, t, x_t)


def ancestral_step(
    schedule: Schedule, prediction: str, output: Tensor, x_t: Tensor, t: Tensor, noise: Tensor
) -> Tensor:
    """x_{t-1} from x_t and the network's output (Ho et al. 2020, algorithm 2), with x_0 clamped to [-1, 1].

    The variance is the posterior's; at t = 0 no noise is added.
    """
    x0 = predict_x0(schedule, prediction, output, x_t, t).clamp(-1, 1)
    mean, log_variance = posterior(schedule, x0, x_t, t)
    noisy = (t != 0).to(x_t.dtype).reshape(-1, *[1] * (x_t.dim() - 1))
    return mean + noisy * torch.exp(0.5 * log_variance) * noise


LOSSES = {"l1": functional.l1_loss, "l2": functional.mse_loss}


def training_loss(
    network: nn.Module,
    schedule: Schedule,
    prediction: str,
    x0: Tensor,
    condition: Tensor,
    t: Tensor,
    noise: Tensor,
    loss: str = "l1",
) -> Tensor:
    """A scalar: how far the network's output on [x_t, condition] is from its target.

    `loss` is "l1", the mean absolute error of the published models, or "l2", the mean squared error.
    """
    x_t = q_sample(schedule, x0, t, noise)
    output = network(torch.cat([x_t, condition], dim=1), t)
    return LOSSES[loss](output.float(), prediction_target(schedule, prediction, x0, t, noise))


def _at(values: Tensor, t: Tensor, like: Tensor) -> Tensor:
    """values[t], shaped (B, 1, ...) to multiply a volume like `like`."""
    return values[t].reshape(-1, *[1] * (like.dim() - 1))
