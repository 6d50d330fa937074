"""The arithmetic of one step, counted from the shapes of its operators."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from meddpm.config import ModelConfig
from meddpm.model import build_model


def flop(config: ModelConfig, phase: str) -> int:
    """Floating-point operations of the convolutions and matrix products of one step of batch 1, an addition and a
    multiplication counted as two. A training step has the gradients too. What else a step does is bound by memory.
    """
    with torch.device("meta"):
        model = build_model(config)
        x = torch.empty((1, model_channels(config), *config.shape[1:]))
        t = torch.zeros(1, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        if phase == "train":
            model(x, t).sum().backward()
        else:
            with torch.no_grad():
                model(x, t)
    return counter.get_total_flops()


def model_channels(config: ModelConfig) -> int:
    """Channels of the network's input: images and condition."""
    return config.image_channels + len(config.condition_labels)
