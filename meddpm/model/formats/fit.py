"""Which model a file's weights fit, and where they differ. Imports torch only where it builds a network."""

import math
from pathlib import Path

from meddpm.config import ModelConfig
from meddpm.model.formats import architecture, card, header, keys
from meddpm.model.formats.header import Shapes
from meddpm.model.formats.keys import shown
from meddpm.model.presets import PRESETS


def shapes(model: ModelConfig) -> Shapes:
    """Key and shape of every weight of the network of `model`, found without allocating it."""
    import torch

    from meddpm.model.unet import UNet

    with torch.device("meta"):
        return {key: tuple(tensor.shape) for key, tensor in UNet(model).state_dict().items()}


def foreseen(path: Path | str, model: ModelConfig) -> list[str]:
    """Where the weights at `path` are not those of `model`, as far as can be told without torch; in words.

    That is by the card, the shapes and the schedule's length in the header of safetensors; of another format, nothing.
    Raises UserError if the file is no file of weights.
    """
    if header.kind(path) != header.SAFETENSORS:
        return []
    found = header.read(path)
    try:
        weights, buffers = keys.sort(found.shapes)
    except ValueError:
        return []  # reported with its keys when the weights are read
    differ = card.disagreements(card.parse(found.metadata.get("card"), str(path)), model)
    steps = math.prod(found.shapes[buffers["betas"]]) if "betas" in buffers else model.steps
    if steps != model.steps:
        differ.append(f"steps {steps}, not {model.steps}")
    # What the card has said need not be said again in the words of the shapes.
    return differ or architecture.disagreements({key: found.shapes[name] for key, name in weights.items()}, model)


def differences(found: Shapes, wanted: Shapes) -> list[str]:
    """Every key that differs, in words: the missing ones, the unknown ones, those of another shape."""
    return [
        *(f"{key} is missing" for key in wanted if key not in found),
        *(f"{shown(key)} is unknown" for key in found if key not in wanted),
        *(
            f"{key} is {list(found[key])}, not {list(wanted[key])}"
            for key in wanted
            if key in found and found[key] != wanted[key]
        ),
    ]


def difference(found: Shapes, wanted: Shapes) -> str:
    """Which keys differ, in one line: how many, and the first three."""
    every = differences(found, wanted)
    more = ", ..." if len(every) > 3 else ""
    return f"{len(every)} of {len(wanted)} weights differ ({', '.join(every[:3])}{more})"


def fitting(found: Shapes) -> str | None:
    """The name of the preset whose keys and shapes are exactly these; None if there is none."""
    return next((name for name, preset in PRESETS.items() if shapes(preset) == found), None)


def closest(found: Shapes) -> str:
    """The name of the preset from which the fewest keys differ."""
    return min(PRESETS, key=lambda name: len(differences(found, shapes(PRESETS[name]))))
