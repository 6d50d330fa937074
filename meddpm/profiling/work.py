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
        x = torch.empty((1, config.in_channels, *config.shape[1:]))
        t = torch.zeros(1, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        if phase == "train":
            model(x, t).sum().backward()
        else:
            with torch.no_grad():
                model(x, t)
    return counter.get_total_flops()
