"""The cosine noise schedule and everything that follows from it, one number a diffusion step."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def cosine_betas(steps: int) -> NDArray[np.float64]:
    """Variance of the noise added at each step t = 0 .. steps - 1; in (0, 0.999].

    The schedule of Nichol and Dhariwal 2021 (arXiv 2102.09672, equation 17), as Med-DDPM computes it: the squared
    cosine is sampled at steps + 1 points from 0 to steps + 1, one step further than in the paper.
    """
    offset = 0.008
    x = np.linspace(0, steps + 1, steps + 1)
    alphas_cumprod = np.cos((x / (steps + 1) + offset) / (1 + offset) * np.pi / 2) ** 2
    alphas_cumprod /= alphas_cumprod[0]
    return np.clip(1 - alphas_cumprod[1:] / alphas_cumprod[:-1], 0, 0.999)


@dataclass(frozen=True)
class Schedule:
    """Coefficients of the process (Ho et al. 2020, arXiv 2006.11239), each (steps,), float32, index t.

    Computed in float64, stored in float32, under the names they have in the published checkpoints. "acp" below is
    alphas_cumprod, the share of the image's variance left in x_t.
    """

    betas: Tensor
    alphas_cumprod: Tensor
    alphas_cumprod_prev: Tensor
    """acp of the step before; 1 at t = 0."""
    sqrt_alphas_cumprod: Tensor
    sqrt_one_minus_alphas_cumprod: Tensor
    log_one_minus_alphas_cumprod: Tensor
    sqrt_recip_alphas_cumprod: Tensor
    sqrt_recipm1_alphas_cumprod: Tensor
    """sqrt(1 / acp - 1)."""
    posterior_variance: Tensor
    """Variance of q(x_{t-1} | x_t, x_0), equation 7; 0 at t = 0."""
    posterior_log_variance_clipped: Tensor
    """Its logarithm, with the variance floored at 1e-20."""
    posterior_mean_coef1: Tensor
    """Weight of x_0 in the mean of q(x_{t-1} | x_t, x_0), equation 7."""
    posterior_mean_coef2: Tensor
    """Weight of x_t in that mean."""
    posterior_mean_coef3: Tensor
    """1 - posterior_mean_coef2: held by the published checkpoints, used by nothing."""

    @property
    def steps(self) -> int:
        """Number of diffusion steps."""
        return len(self.betas)

    def to(self, device: torch.device | str) -> "Schedule":
        """The schedule on `device`."""
        return Schedule(**{item.name: getattr(self, item.name).to(device) for item in dataclasses.fields(self)})


def cosine_schedule(steps: int) -> Schedule:
    """The schedule of `steps` steps, on the CPU."""
    betas = cosine_betas(steps)
    acp = np.cumprod(1 - betas)
    acp_prev = np.append(1.0, acp[:-1])
    posterior_variance = betas * (1 - acp_prev) / (1 - acp)
    coef2 = (1 - acp_prev) * np.sqrt(1 - betas) / (1 - acp)
    values = {
        "betas": betas,
        "alphas_cumprod": acp,
        "alphas_cumprod_prev": acp_prev,
        "sqrt_alphas_cumprod": np.sqrt(acp),
        "sqrt_one_minus_alphas_cumprod": np.sqrt(1 - acp),
        "log_one_minus_alphas_cumprod": np.log(1 - acp),
        "sqrt_recip_alphas_cumprod": np.sqrt(1 / acp),
        "sqrt_recipm1_alphas_cumprod": np.sqrt(1 / acp - 1),
        "posterior_variance": posterior_variance,
        "posterior_log_variance_clipped": np.log(np.maximum(posterior_variance, 1e-20)),
        "posterior_mean_coef1": betas * np.sqrt(acp_prev) / (1 - acp),
        "posterior_mean_coef2": coef2,
        "posterior_mean_coef3": 1 - coef2,
    }
    return Schedule(**{name: torch.from_numpy(value.astype(np.float32)) for name, value in values.items()})
