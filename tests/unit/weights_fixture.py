"""A tiny network, and its weights in the layout of the published checkpoints."""

import dataclasses
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from meddpm.config import ModelConfig, to_mapping
from meddpm.diffusion.schedule import cosine_schedule
from meddpm.model import build_model, weights

TINY = ModelConfig(
    size=(8, 8, 8),
    image_channels=1,
    condition_labels=(1, 2),
    condition_range=(-1.0, 1.0),
    base_channels=32,
    channel_multipliers=(1, 1),
    blocks_per_level=1,
    attention_factors=(2,),
    steps=7,
)
CARD: dict[str, Any] = {"preset": to_mapping(TINY), "steps": 5, "dataset": "none", "name": "é"}

State = dict[str, Tensor]


def network(seed: int | None = 0, **changes: Any) -> torch.nn.Module:
    """The tiny network with some of its values changed, its weights made from `seed`; None leaves it fresh."""
    model = build_model(dataclasses.replace(TINY, **changes)).eval()
    if seed is not None:
        weights.fill(model, seed)
    return model


def entries(state: State, steps: int = TINY.steps, prefix: str = "denoise_fn.") -> State:
    """One entry of a published checkpoint: the buffers of the schedule, then the weights behind the prefix."""
    return {**vars(cosine_schedule(steps)), **{prefix + key: tensor for key, tensor in state.items()}}


def checkpoint(step: int = 12, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """{step, model, ema} as the original code has it, `model` and `ema` being different weights."""
    model, ema = ({key: value.to(dtype) for key, value in network(seed).state_dict().items()} for seed in (1, 2))
    return {"step": step, "model": entries(model), "ema": entries(ema)}


def saved(path: Path, content: Any) -> Path:
    """`content` in a file of torch.save."""
    torch.save(content, path)
    return path


def equal(one: Any, other: Any) -> bool:
    """Whether two contents are the same to the last bit, in the same order."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        alike = one.dtype == other.dtype and one.shape == other.shape
        return alike and torch.equal(*(tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other)))
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(equal(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(equal, one, other))
    return type(one) is type(other) and one == other


class Trap:
    """Makes a folder when it is unpickled by pickle itself."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.path),))


def with_code(path: Path, trap: Path) -> Path:
    """A checkpoint whose pickle would make the folder `trap`."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"ema": Trap(trap)}, protocol=2))
        archive.writestr("archive/version", "3\n")
    return path
