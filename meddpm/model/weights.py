"""Weights in files and made-up weights for timing.

Written are safetensors with a card, a JSON object that says what the weights are; read are these, the safetensors of
others and the files of torch.save (see meddpm.model.formats.stored). Nothing in a file is executed.
"""

import json
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as serialised

from meddpm.config import UserError
from meddpm.files import replacing
from meddpm.log import logger
from meddpm.model.formats import header, stored
from meddpm.model.formats.fit import difference, fitting, shapes
from meddpm.model.formats.stored import read_card

__all__ = ["fill", "load", "read_card", "save", "shapes"]


def save(
    path: Path | str,
    model: torch.nn.Module | Mapping[str, torch.Tensor],
    card: dict[str, Any],
    dtype: torch.dtype | None = None,
    texts: Mapping[str, str] | None = None,
) -> None:
    """Write the weights of `model` (a network or its state dict) and `card` to `path`, atomically.

    `dtype` converts the floating-point weights, e.g. to torch.float16 for a file of half the size.
    `texts` go into the file's metadata beside the card. Raises UserError, and writes nothing, if `load` could not read
    the file: a tensor has a name or a type that the format does not know, or card and texts are too long.
    """
    state = model.state_dict() if isinstance(model, torch.nn.Module) else model
    tensors = {}
    for key, tensor in state.items():
        wanted = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
        # Contiguous copies: the format knows neither strides (channels_last_3d) nor shared memory.
        tensors[key] = tensor.detach().to("cpu", wanted, copy=True).contiguous()
    # save_file of safetensors hides the system's reason (a full disk) behind an error of its own.
    content = serialised(tensors, metadata={"card": json.dumps(card, sort_keys=True), **(texts or {})})
    with replacing(path) as temporary:
        temporary.write_bytes(content)
        try:
            header.read(temporary)
        except header.Unreadable as error:
            raise UserError(
                f"{path}: cannot be written so that it can be read ({error.why}); "
                "a tensor's name or type or the length of the card and texts is the cause: leave that out"
            ) from None


def load(path: Path | str, model: torch.nn.Module, steps: int | None = None) -> dict[str, Any]:
    """Copy the weights at `path` into `model` (which keeps its device and types) and return the file's card.

    `steps` is the model's number of diffusion steps, for a file that holds a schedule. The card of a file that has
    none is empty. Raises UserError, and leaves `model` as it was, if the file cannot be read, any key or shape differs,
    the schedule is another one, or a weight is not finite.
    """
    file = stored.read(path)
    wanted = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}
    if file.shapes != wanted:
        preset = fitting(file.shapes)
        fits = f"they fit the preset {preset}" if preset else "they fit no preset"
        raise UserError(f"{path}: {difference(file.shapes, wanted)}; {fits}")
    fault = file.schedule_fault(steps) or file.value_fault()
    if fault:
        raise UserError(f"{path}: {fault}")
    if file.card is None and file.kind == header.SAFETENSORS:
        logger.warning("%s has no card: nothing is known of these weights but their shapes, which fit", path)
    model.load_state_dict(file.weights)
    return file.card or {}


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
