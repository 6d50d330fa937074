"""The training loop: batches in, weights out, with progress; it continues where an earlier run was stopped."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from meddpm.config import ModelConfig, TrainConfig
from meddpm.log import logger
from meddpm.training.average import MovingAverage
from meddpm.training.batches import Batches
from meddpm.training.step import Step
from meddpm.variants import Applied

LOG_EVERY_S = 5.0
# Losses stay on the device until they are looked at, so that the next step is prepared while it computes.
LOOK_EVERY_S = 0.5
# A loss this many times the one it began with has left the region that it could come back from.
DIVERGED = 10.0
RECENT = 20

State = dict[str, Any]
ENTRIES = ("step", "seconds", "losses", "model", "ema", "ema_updates", "optimizer", "scaler", "random")
"""What a state holds."""


class Diverged(Exception):
    """The loss or the weights are lost; the text says at which step."""


class Stopped(Exception):
    """The run was asked to stop; its state is saved. The text says at which step."""


@dataclass(frozen=True)
class TrainingResult:
    """Weights of the moving average, the loss of each optimiser step, and how long all of them took."""

    weights: dict[str, torch.Tensor]
    losses: list[float]
    seconds: float


class Run:
    """A training under way: everything that a checkpoint holds."""

    def __init__(
        self, model: torch.nn.Module, config: ModelConfig, settings: TrainConfig, applied: Applied, batches: Batches
    ) -> None:
        self.model = model.train()
        self.settings = settings
        self.batches = batches
        self.step = Step(model, config, settings, applied)
        self.average = MovingAverage(model, settings)
        self.number = 0
        self.losses: list[float] = []
        self.seconds = 0.0

    def state(self) -> State:
        """Tensors and plain values from which `restore` continues as if nothing had happened."""
        return {
            "step": self.number,
            "seconds": self.seconds,
            "losses": torch.tensor(self.losses),
            "model": self.model.state_dict(),
            "ema": self.average.weights,
            "ema_updates": self.average.updates,
            "optimizer": self.step.optimizer.state_dict(),
            "scaler": self.step.scaler.state_dict(),
            "random": self.batches.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self.number = state["step"]
        self.seconds = state["seconds"]
        self.losses = state["losses"].tolist()
        self.model.load_state_dict(state["model"])
        self.average.restore(state["ema"], state["ema_updates"])
        self.step.optimizer.load_state_dict(state["optimizer"])
        self.step.scaler.load_state_dict(state["scaler"])
        self.batches.restore(state["random"])

    def over(self) -> bool:
        """Whether the steps or the seconds are used up."""
        limit = self.settings.max_seconds
        return self.number >= self.settings.steps or (limit is not None and self.seconds >= limit)

    def look(self, losses: list[float]) -> None:
        """Take in the `losses` of the last steps. Raises Diverged if one is not finite or they have risen too far."""
        self.losses += losses
        for number, loss in enumerate(losses, self.number - len(losses) + 1):
            if not math.isfinite(loss):
                raise Diverged(f"the loss is {loss} at step {number}")
        # The first loss alone: a learning rate that is far too large ruins the second one already.
        recent, began = self.losses[-RECENT:], self.losses[0]
        loss = sum(recent) / len(recent)
        if len(self.losses) >= 2 * RECENT and loss > DIVERGED * began:
            raise Diverged(f"the loss rose from {began:.3g} to {loss:.3g} by step {self.number}")

    def check_weights(self) -> None:
        """Raise Diverged if a weight or its average is not finite: nothing broken is saved."""
        values = [*self.model.state_dict().values(), *self.average.weights.values()]
        if not torch.stack([torch.isfinite(value).all() for value in values]).all():
            raise Diverged(f"the weights are no longer finite at step {self.number}")

    def log(self, rate: float) -> None:
        """One line: step, loss, steps a second, seconds left."""
        recent = self.losses[-RECENT:]
        left = (self.settings.steps - self.number) / rate
        if self.settings.max_seconds is not None:
            left = min(left, self.settings.max_seconds - self.seconds)
        logger.info(
            "training step %d/%d, loss %.4f, %.2f steps/s, %.0f s left",
            self.number, self.settings.steps, sum(recent) / len(recent), rate, max(left, 0),
        )  # fmt: skip


def train(
    run: Run, save: Callable[[int, State], None] = lambda number, state: None, stop: Callable[[], bool] = lambda: False
) -> TrainingResult:
    """Take the steps that `run` has left, until settings.steps or the first one past settings.max_seconds.

    `save` gets the state every `checkpoint_every` steps, at the end, and when `stop` says to stop, after which Stopped
    is raised. Raises Diverged, without saving, when the loss or a weight is no longer finite or the loss has risen
    tenfold.
    """
    every = run.settings.checkpoint_every
    pending: list[torch.Tensor] = []
    begun = looked = logged = time.monotonic()
    before, first = run.seconds, run.number
    while not run.over():
        run.number += 1
        pending.append(run.step(run.batches, run.number))
        run.average.update(run.number, run.model)
        stopping = stop()
        due = run.number % every == 0
        now = time.monotonic()
        if not (stopping or due or run.number == run.settings.steps or now - looked >= LOOK_EVERY_S):
            continue
        losses = torch.stack(pending).tolist()  # waits for the device
        pending.clear()
        looked = now = time.monotonic()
        run.seconds = before + now - begun
        run.look(losses)
        if now - logged >= LOG_EVERY_S or run.over():
            logged = now
            run.log((run.number - first) / (now - begun))
        if due or stopping or run.over():
            run.check_weights()
            save(run.number, run.state())
        if stopping and not run.over():
            raise Stopped(f"stopped at step {run.number} of {run.settings.steps}")
    return TrainingResult(run.average.result(run.number, run.model), run.losses, run.seconds)
