"""One optimiser step under a variant: what the loop repeats, a bench times and a profiler watches."""

import math
from collections.abc import Callable

import torch

from meddpm.config import ModelConfig, TrainConfig
from meddpm.diffusion import process
from meddpm.diffusion.schedule import cosine_schedule
from meddpm.model.presets import level_factors
from meddpm.status import UNSUPPORTED, CannotRun
from meddpm.variants import Applied, Network

Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""image (B, C, D, W, H), condition (B, K, D, W, H), t (B,) and noise (B, C, D, W, H), on the device."""

OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


class Step:
    """Accumulated batches, backward, update."""

    def __init__(self, model: torch.nn.Module, config: ModelConfig, settings: TrainConfig, applied: Applied) -> None:
        """Raises CannotRun where the gradients would be wrong."""
        _check_gradients(config, applied)
        self.network: Network = applied.network(model)
        self.optimizer = OPTIMIZERS[settings.optimizer](
            model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        self.scaler = applied.scaler()
        self.schedule = cosine_schedule(config.steps).to(applied.device)
        self.device = applied.device
        self.config = config
        self.settings = settings
        self.parameters = list(model.parameters())

    def __call__(self, batches: Callable[[], Batch], number: int = 1) -> torch.Tensor:
        """Take step `number` (from 1); `batches()` gives the next batch. Returns the mean loss, on the device."""
        settings = self.settings
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(settings, number)
        self.optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=self.device)
        for _ in range(settings.accumulation):
            image, condition, t, noise = batches()
            loss = process.training_loss(
                self.network, self.schedule, self.config.prediction, image, condition, t, noise, settings.loss
            )
            self.scaler.scale(loss / settings.accumulation).backward()
            total += loss.detach() / settings.accumulation
        if settings.gradient_clip is not None:
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.parameters, settings.gradient_clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return total


def _check_gradients(config: ModelConfig, applied: Applied) -> None:
    """On a CPU the bf16 gradient of a 3D convolution's weights is garbage where the first axis has two voxels.

    Seen with torch 2.13 and oneDNN on a CPU with AVX-512: NaN or numbers that differ from run to run.
    """
    depths = {config.size[2] // factor for factor in level_factors(config)}
    if applied.device.type == "cpu" and applied.variant.autocast == "bf16" and 2 in depths:
        raise CannotRun(
            UNSUPPORTED,
            "bf16 gradients of 3D convolutions are wrong on a CPU where a level is 2 voxels deep: train in fp32, or "
            "with a larger size",
        )


def learning_rate(settings: TrainConfig, number: int) -> float:
    """The learning rate of step `number` (from 1).

    A linear warm-up over `warmup_steps`, then constant, or with decay "cosine" half a cosine down to 0 after the last
    step (Loshchilov and Hutter 2017, arXiv 1608.03983, without restarts).
    """
    rate = settings.learning_rate
    if number <= settings.warmup_steps:
        return rate * number / settings.warmup_steps
    if settings.decay == "none":
        return rate
    done = (number - 1 - settings.warmup_steps) / max(1, settings.steps - settings.warmup_steps)
    return rate * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
