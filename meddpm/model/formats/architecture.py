"""What network a table of shapes belongs to, read off its keys alone. Imports no torch."""

import math
from dataclasses import dataclass

from meddpm.config import ModelConfig
from meddpm.model.formats.header import Shapes


@dataclass(frozen=True)
class Architecture:
    """What the shapes of a network's weights say of it; the names are those of ModelConfig."""

    in_channels: int
    image_channels: int
    base_channels: int
    channel_multipliers: tuple[int, ...]
    blocks_per_level: int
    attention_factors: tuple[int, ...]

    @classmethod
    def of(cls, model: ModelConfig) -> "Architecture":
        """What the shapes of the network of `model` say."""
        return cls(
            model.in_channels,
            model.image_channels,
            model.base_channels,
            tuple(model.channel_multipliers),
            model.blocks_per_level,
            tuple(sorted(model.attention_factors)),
        )

    def row(self) -> str:
        """The network as a row of config.yaml would have it; the labels' values are for the user to know."""
        return (
            f"image_channels: {self.image_channels}, condition_labels: {self.in_channels - self.image_channels} of "
            f"them, base_channels: {self.base_channels}, channel_multipliers: {list(self.channel_multipliers)}, "
            f"blocks_per_level: {self.blocks_per_level}, attention_factors: {list(self.attention_factors)}"
        )


def read_off(shapes: Shapes) -> Architecture | None:
    """The network of the weights whose bare keys and shapes are given; None if it is no U-Net of this kind."""
    first, last = shapes.get("input_blocks.0.0.weight", ()), shapes.get("out.2.weight", ())
    if len(first) != 5 or len(last) != 5 or min(first + last) < 1:
        return None
    base = first[0]
    # One entry a level: the width of its blocks, and their number.
    widths: list[int] = [base]
    blocks: list[int] = [0]
    factors: set[int] = set()
    number = 1
    while True:
        stage = f"input_blocks.{number}"
        if f"{stage}.0.op.weight" in shapes:
            widths.append(widths[-1])
            blocks.append(0)
        elif shapes.get(f"{stage}.0.in_layers.2.weight"):
            widths[-1] = shapes[f"{stage}.0.in_layers.2.weight"][0]
            blocks[-1] += 1
            if f"{stage}.1.qkv.weight" in shapes:
                factors.add(2 ** (len(widths) - 1))
        else:
            break
        number += 1
    if len(set(blocks)) > 1 or any(width % base for width in widths):
        return None
    multipliers = tuple(width // base for width in widths)
    return Architecture(first[1], last[0], base, multipliers, blocks[0], tuple(sorted(factors)))


def disagreements(shapes: Shapes, model: ModelConfig) -> list[str]:
    """Where shapes speak of another network than that of `model`, in words. Finds most faults, not every key."""
    found = read_off(shapes)
    if found is None:
        return ["the weights are not those of this network"]
    wanted = Architecture.of(model)
    pairs = ((name, getattr(found, name), getattr(wanted, name)) for name in Architecture.__dataclass_fields__)
    return [f"{name} {_listed(theirs)}, not {_listed(ours)}" for name, theirs, ours in pairs if theirs != ours]


def parameters(shapes: Shapes) -> int:
    """How many numbers the tensors hold."""
    return sum(math.prod(shape) for shape in shapes.values())


def _listed(value: int | tuple[int, ...]) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)
