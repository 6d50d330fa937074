"""The exponential moving average of the weights: what is drawn with."""

from collections.abc import Mapping

import torch

from meddpm.config import TrainConfig


class MovingAverage:
    """average <- decay * average + (1 - decay) * weights, every `ema_every` steps.

    Before the first update, at or after `ema_start`, it is a plain copy. With `ema_warmup` the decay of the n-th update
    is at most (1 + n) / (10 + n), so that a short training does not average its first, bad weights in.
    """

    def __init__(self, model: torch.nn.Module, settings: TrainConfig) -> None:
        self.settings = settings
        self.updates = 0
        self.weights = {key: value.detach().clone() for key, value in model.state_dict().items()}

    def update(self, number: int, model: torch.nn.Module) -> None:
        """Take in the weights of `model` after step `number`, if it is one of those that count."""
        settings = self.settings
        if number % settings.ema_every:
            return
        decay = 0.0
        if number >= settings.ema_start:
            self.updates += 1
            decay = settings.ema_decay
            if settings.ema_warmup:
                decay = min(decay, (1 + self.updates) / (10 + self.updates))
        self._lerp(model.state_dict(), decay)

    def result(self, number: int, model: torch.nn.Module) -> dict[str, torch.Tensor]:
        """The average after step `number`; before its first update the newest weights."""
        if number < self.settings.ema_start or not self.updates:
            self._lerp(model.state_dict(), 0.0)
        return self.weights

    def restore(self, weights: Mapping[str, torch.Tensor], updates: int) -> None:
        """Go on from the average `weights` after `updates` updates."""
        self.updates = updates
        self._lerp(weights, 0.0)

    def _lerp(self, weights: Mapping[str, torch.Tensor], decay: float) -> None:
        for key, value in weights.items():
            if decay:
                self.weights[key].lerp_(value, 1 - decay)
            else:
                self.weights[key].copy_(value)  # to the bit, from any device
