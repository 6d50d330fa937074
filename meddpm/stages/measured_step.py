"""The step that a profiler watches: one evaluation of the network, or one training step, under a variant."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from meddpm import variants
from meddpm.config import ModelConfig, TrainConfig, VariantConfig
from meddpm.stages import network
from meddpm.stages.job import Job
from meddpm.training import step as training

INPUT_SEED = 0


@dataclass(frozen=True)
class MeasuredStep:
    """Call `run` for one step. `model` is the network as it was built; `flags` are those in effect, read back.

    `hidden`: see `hides_operators`.
    """

    run: Callable[[], None]
    model: torch.nn.Module
    flags: dict[str, Any]
    hidden: bool


def hides_operators(variant: VariantConfig) -> bool:
    """Whether a compiler or a CUDA graph runs the network, so that neither hooks nor dispatch see its operators."""
    return variant.compile != "none" or variant.cuda_graph


@contextmanager
def built(job: Job, where: torch.device) -> Iterator[MeasuredStep]:
    """The step of the job's cell, with seeded inputs and random weights (times do not depend on them).

    Raises CannotRun where the variant cannot run on the device, or the device fails within the block.
    """
    config, variant = job.get("model_config", ModelConfig), job.get("variant_config", VariantConfig)
    train = job.values["phase"] == "train"
    with variants.applied(variant, where, train) as applied, network.device_errors():
        generator = torch.Generator().manual_seed(INPUT_SEED)
        image = applied.tensor(torch.randn((1, *config.shape), generator=generator))
        labels = (1, len(config.condition_labels), *config.shape[1:])
        condition = applied.tensor(torch.randn(labels, generator=generator))
        t = torch.zeros(1, dtype=torch.long, device=applied.device)
        model = network.load(config, None)
        if train:
            training_step = training.Step(model.train(), config, TrainConfig(accumulation=1), applied)

            def run() -> None:
                training_step(lambda: (image, condition, t, image))
        else:
            net = applied.network(model)
            inputs = torch.cat([image, condition], dim=1)

            def run() -> None:
                with torch.no_grad():
                    net(inputs, t)

        yield MeasuredStep(run, model, applied.flags(), hides_operators(variant))
