"""Weights in files (safetensors, with a card that says what they are) and made-up weights for timing.

A card is a JSON object in the file's metadata: whatever the writer wants to be known of the weights, such as the
preset, the data and the training. Nothing in a file is executed.
"""

import json
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from meddpm.config import ModelConfig, UserError
from meddpm.files import replacing
from meddpm.model.presets import PRESETS
from meddpm.status import first_line

Shapes = dict[str, tuple[int, ...]]


def save(
    path: Path | str,
    model: torch.nn.Module | Mapping[str, torch.Tensor],
    card: dict[str, Any],
    dtype: torch.dtype | None = None,
) -> None:
    """Write the weights of `model` (a network or its state dict) and `card` to `path`, atomically.

    `dtype` converts the floating-point weights, e.g. to torch.float16 for a file of half the size.
    """
    state = model.state_dict() if isinstance(model, torch.nn.Module) else model
    tensors = {}
    for key, tensor in state.items():
        wanted = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
        # Contiguous copies: the format knows neither strides (channels_last_3d) nor shared memory.
        tensors[key] = tensor.detach().to("cpu", wanted, copy=True).contiguous()
    with replacing(path) as temporary:
        save_file(tensors, temporary, metadata={"card": json.dumps(card, sort_keys=True)})


def load(path: Path | str, model: torch.nn.Module) -> dict[str, Any]:
    """Copy the weights at `path` into `model` (which keeps its device and types) and return the file's card.

    Raises UserError, and leaves `model` as it was, if the file cannot be read or any key or shape differs.
    """
    card, found = _read_header(path)
    wanted = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}
    if found != wanted:
        raise UserError(f"{path}: {_difference(found, wanted)}; {_fitting(found)}")
    try:
        with safe_open(path, framework="pt", device="cpu") as stored:
            state = {key: stored.get_tensor(key) for key in found}
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"{path}: the weights cannot be read ({first_line(error)}); fetch or train them again"
        ) from None
    model.load_state_dict(state)
    return card


def read_card(path: Path | str) -> dict[str, Any]:
    """The card of the weights at `path`. Raises UserError if the file is no readable safetensors file with a card."""
    return _read_header(path)[0]


def fill(model: torch.nn.Module, seed: int) -> None:
    """Give every parameter of `model` a value that follows from its key, its shape and `seed` alone.

    For timing: no layer is zero, as freshly initialised ones are, and activations stay of the order of 1.
    Convolutions and linear layers get N(0, 1 / fan_in), norm weights 1 + 0.1 N(0, 1), biases 0.05 N(0, 1).
    """
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            # The checksum continues from the seed; with seed 0 it is the plain CRC-32 of the key.
            generator = torch.Generator().manual_seed(zlib.crc32(key.encode(), seed))
            values = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() > 1:
                values = values / math.sqrt(math.prod(parameter.shape[1:]))
            elif key.endswith("weight"):
                values = 1 + 0.1 * values
            else:
                values = 0.05 * values
            parameter.copy_(values)


def shapes(model: ModelConfig) -> Shapes:
    """Key and shape of every weight of the network of `model`, found without allocating it."""
    from meddpm.model.unet import UNet

    with torch.device("meta"):
        return {key: tuple(tensor.shape) for key, tensor in UNet(model).state_dict().items()}


def _read_header(path: Path | str) -> tuple[dict[str, Any], Shapes]:
    try:
        with safe_open(path, framework="pt", device="cpu") as stored:
            metadata = stored.metadata() or {}
            found = {key: tuple(stored.get_slice(key).get_shape()) for key in stored.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file; check the path of the weights") from None
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path}: not a readable safetensors file ({first_line(error)})") from None
    try:
        card = json.loads(metadata["card"])
    except (KeyError, ValueError):
        raise UserError(f"{path}: the file has no card; these weights were not written by meddpm") from None
    return card, found


def _difference(found: Shapes, wanted: Shapes) -> str:
    """Which keys differ, in words: how many, and the first three."""
    differences = [f"{key} is missing" for key in wanted if key not in found]
    differences += [f"{key} is unknown" for key in found if key not in wanted]
    differences += [
        f"{key} is {list(found[key])}, not {list(wanted[key])}"
        for key in wanted
        if key in found and found[key] != wanted[key]
    ]
    more = ", ..." if len(differences) > 3 else ""
    return f"{len(differences)} of {len(wanted)} weights differ ({', '.join(differences[:3])}{more})"


def _fitting(found: Shapes) -> str:
    fitting = [name for name, preset in PRESETS.items() if shapes(preset) == found]
    return f"they fit the preset {fitting[0]}" if fitting else "they fit no preset"
