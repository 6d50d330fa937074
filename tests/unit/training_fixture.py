"""A tiny network and a tiny dataset to train it on."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from meddpm import variants
from meddpm.config import ModelConfig, TrainConfig, VariantConfig
from meddpm.model import build_model
from meddpm.training.batches import Batches
from meddpm.training.cases import InMemory
from meddpm.training.loop import Run, State, Stopped, TrainingResult, train

# Several threads wait for each other in each layer of a network this small, and without end where cores are shared.
torch.set_num_threads(1)

CPU = torch.device("cpu")
# At 4^3, the second level at 2^3, oneDNN leaves NaN in the bf16 weight gradient of a convolution.
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
    prediction="v",
)
# The recipe of the original with a rate at which a few steps show, the average beginning within them. Two volumes a
# batch, for which the convolutions of a CPU are four times as fast as for one.
PLAIN = TrainConfig(steps=30, batch=2, learning_rate=1e-3, ema_start=8, ema_every=4)
# Everything that a recipe can switch, switched.
FULL = TrainConfig(
    steps=30,
    accumulation=1,
    batch=2,
    loss="l2",
    optimizer="adamw",
    learning_rate=2e-3,
    weight_decay=0.1,
    warmup_steps=5,
    decay="cosine",
    gradient_clip=0.5,
    ema_decay=0.9,
    ema_every=3,
    ema_start=0,
    ema_warmup=True,
)


def dataset(cases: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Images (N, 1, 8, 8, 8), which differ and follow from their label maps (N, 8, 8, 8)."""
    generator = torch.Generator().manual_seed(3)
    labels = torch.randint(4, (cases, *TINY.shape[1:]), generator=generator).to(torch.uint8)
    return (labels[:, None].float() / 2 - 0.75) * torch.linspace(0.5, 1, cases).reshape(-1, 1, 1, 1, 1), labels


@contextmanager
def fresh(
    settings: TrainConfig, variant: VariantConfig | None = None, cases: int = 3, device: torch.device = CPU
) -> Iterator[Run]:
    """A training that has not begun, its variant switched on for the block."""
    torch.manual_seed(settings.seed)
    with variants.applied(variant or VariantConfig(), device, training=True) as applied:
        batches = Batches(InMemory(*dataset(cases)), TINY, settings, applied)
        yield Run(build_model(TINY), TINY, settings, applied, batches)


def trained(
    settings: TrainConfig, variant: VariantConfig | None = None, device: torch.device = CPU
) -> tuple[Run, TrainingResult]:
    """A training from its first step to its last, and its result."""
    with fresh(settings, variant, device=device) as run:
        return run, train(run)


def copied(state: State) -> State:
    """What comes back from a checkpoint of `state`."""
    content = io.BytesIO()
    torch.save(state, content)
    content.seek(0)
    return torch.load(content, map_location="cpu", weights_only=True)


def stopped(
    settings: TrainConfig,
    at: int,
    saved: State | None = None,
    variant: VariantConfig | None = None,
    device: torch.device = CPU,
) -> State:
    """The state of a training, fresh or going on from `saved`, that was asked to stop during step `at`."""
    states: dict[int, State] = {}
    with fresh(settings, variant, device=device) as run:
        if saved:
            run.restore(saved)
        try:
            train(run, lambda number, state: states.update({number: copied(state)}), stop=lambda: run.number == at)
        except Stopped:
            return states[at]
    raise AssertionError(f"the training did not stop at step {at}")


def by_step(settings: TrainConfig) -> tuple[dict[int, State], TrainingResult]:
    """The state after each step, and the result, of a training that saves at each of its steps."""
    states: dict[int, State] = {}
    with fresh(settings) as run:
        result = train(run, lambda number, state: states.update({number: copied(state)}))
    return states, result


def timeless(state: dict[str, Any]) -> dict[str, Any]:
    """A state without the one value that no two runs share."""
    return {key: value for key, value in state.items() if key != "seconds"}
