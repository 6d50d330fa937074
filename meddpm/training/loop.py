"""The training loop: cases in, weights out. Knows no files.

The recipe of Med-DDPM (arXiv 2305.18453) is the default of TrainConfig: L1 on the network's target, Adam, gradients of
two batches accumulated, an exponential moving average of the weights.
"""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from meddpm.config import ModelConfig, TrainConfig
from meddpm.diffusion import process
from meddpm.diffusion.schedule import cosine_schedule
from meddpm.log import logger
from meddpm.variants import Applied, Network

LOG_EVERY_S = 5.0


@dataclass(frozen=True)
class TrainingResult:
    """Weights of the moving average, the loss of each optimiser step, and how long it took."""

    weights: dict[str, torch.Tensor]
    losses: list[float]
    seconds: float


class Step:
    """One optimiser step under a variant: accumulated batches, backward, update. Also what a bench times."""

    def __init__(self, model: torch.nn.Module, config: ModelConfig, settings: TrainConfig, applied: Applied) -> None:
        self.network: Network = applied.network(model)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
        self.scaler = applied.scaler()
        self.schedule = cosine_schedule(config.steps).to(applied.device)
        self.device = applied.device
        self.config = config
        self.accumulation = settings.accumulation

    def __call__(
        self, batches: Callable[[], tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]]
    ) -> torch.Tensor:
        """Take one step; `batches()` gives (image, condition, t, noise) of the next batch. Returns the mean loss."""
        self.optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=self.device)
        for _ in range(self.accumulation):
            image, condition, t, noise = batches()
            loss = process.training_loss(
                self.network, self.schedule, self.config.prediction, image, condition, t, noise
            )
            self.scaler.scale(loss / self.accumulation).backward()
            total += loss.detach() / self.accumulation
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return total


def train(
    model: torch.nn.Module,
    config: ModelConfig,
    settings: TrainConfig,
    applied: Applied,
    images: torch.Tensor,
    conditions: torch.Tensor,
) -> TrainingResult:
    """Train `model` in place on images (N, C, D, W, H) in [-1, 1] and conditions (N, K, D, W, H), held on the CPU.

    Order, timesteps and noise come from one CPU generator seeded with settings.seed. Stops at settings.steps, or at
    the first step past settings.max_seconds. Raises FloatingPointError when the loss or a weight is no longer finite.
    """
    generator = torch.Generator().manual_seed(settings.seed)

    def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        chosen = torch.randint(len(images), (settings.batch,), generator=generator)
        t = torch.randint(config.steps, (settings.batch,), generator=generator)
        noise = torch.randn(images[chosen].shape, generator=generator)
        return (
            applied.tensor(images[chosen]),
            applied.tensor(conditions[chosen]),
            t.to(applied.device),
            applied.tensor(noise),
        )

    model.train()
    step = Step(model, config, settings, applied)
    average = copy.deepcopy(model.state_dict())
    losses: list[float] = []
    start = last = time.monotonic()
    for number in range(1, settings.steps + 1):
        losses.append(float(step(batch)))
        if not torch.isfinite(torch.tensor(losses[-1])):
            raise FloatingPointError(f"the loss is {losses[-1]} at step {number}: the learning rate is too high")
        if number % settings.ema_every == 0:
            _update_average(average, model.state_dict(), settings.ema_decay if number >= settings.ema_start else 0.0)
        now = time.monotonic()
        over = settings.max_seconds is not None and now - start >= settings.max_seconds
        if now - last >= LOG_EVERY_S or over or number == settings.steps:
            last = now
            recent = losses[-20:]
            rate = number / (now - start)
            left = (settings.steps - number) / rate
            if settings.max_seconds is not None:
                left = min(left, settings.max_seconds - (now - start))
            logger.info(
                "training step %d/%d, loss %.4f, %.2f steps/s, %.0f s left",
                number, settings.steps, sum(recent) / len(recent), rate, max(left, 0),
            )  # fmt: skip
        if over:
            break
    if len(losses) < settings.ema_start:
        average = model.state_dict()  # the average is a plain copy until ema_start: give the newest one
    if not all(torch.isfinite(value).all() for value in average.values()):
        raise FloatingPointError("the weights are no longer finite: the learning rate is too high")
    return TrainingResult(average, losses, time.monotonic() - start)


def _update_average(average: dict[str, torch.Tensor], weights: dict[str, torch.Tensor], decay: float) -> None:
    for key, value in weights.items():
        average[key].lerp_(value, 1 - decay)
