"""The preset table and what makes a row of it possible. Imports no torch: the workflow reads this at parse time."""

from pathlib import Path

from meddpm.config import ConfigError, ModelConfig

GROUPS = 32
"""Groups of every GroupNorm in the network: each normalised width is a multiple of it."""

PREDICTIONS = ("epsilon", "v")
"""What a network can predict: the noise, or the velocity sqrt(acp) noise - sqrt(1 - acp) x0."""

SHIPPED_FOLDER = Path(__file__).parent / "shipped"
"""Where the weights lie that come with the package: <preset>.safetensors."""

WHOLE_HEAD = "whole_head_128"
"""The published model whose label 1 is the whole head, scalp and skull included."""

PRESETS: dict[str, ModelConfig] = {
    # Published: T1 of the whole head from a head mask and a tumour mask (Med-DDPM, arXiv 2305.18453).
    # Attention at 1/8 resolution (16^3 voxels) beside the middle block.
    WHOLE_HEAD: ModelConfig(
        size=(128, 128, 128),
        image_channels=1,
        condition_labels=(1, 2),
        condition_range=(-1.0, 1.0),
        base_channels=64,
        channel_multipliers=(1, 1, 2, 3, 4),
        blocks_per_level=1,
        attention_factors=(8,),
        steps=250,
        prediction="epsilon",
    ),
    # Published: T1, T1ce, T2 and FLAIR from three tumour parts and the rest of the brain.
    # Its rule for attention (factor == 192 // 16 = 12) never applies: only the middle block attends.
    "brats_192": ModelConfig(
        size=(192, 192, 144),
        image_channels=4,
        condition_labels=(1, 2, 3, 4),
        condition_range=(0.0, 1.0),
        base_channels=64,
        channel_multipliers=(1, 1, 2, 3, 4),
        blocks_per_level=2,
        attention_factors=(),
        steps=250,
        prediction="epsilon",
    ),
    # Ours: small enough to sample on a CPU. T1 from CSF (1), grey (2) and white matter (3) and lesions (4).
    # It predicts v: predicting the noise leaves x_0 to the difference of two large numbers where the signal is weak.
    "demo": ModelConfig(
        size=(56, 64, 56),
        image_channels=1,
        condition_labels=(1, 2, 3, 4),
        condition_range=(-1.0, 1.0),
        base_channels=32,
        channel_multipliers=(1, 1, 2, 3),
        blocks_per_level=1,
        attention_factors=(8,),
        steps=250,
        prediction="v",
    ),
}


def shipped(preset: str) -> Path:
    """Path of the weights that come with the package for this preset, whether they are there or not."""
    return SHIPPED_FOLDER / f"{preset}.safetensors"


def level_factors(model: ModelConfig) -> tuple[int, ...]:
    """Downsampling factor of each level, outermost first: 1, 2, 4, ..."""
    return tuple(2**level for level in range(len(model.channel_multipliers)))


def check(model: ModelConfig, where: str) -> None:
    """Raise ConfigError, in one line that begins with `where`, if no network can be built from `model`."""
    _check_widths(model, where)
    _check_size(model, where)
    _check_channels(model, where)
    factors = level_factors(model)
    for factor in model.attention_factors:
        if factor not in factors:
            listed = ", ".join(map(str, factors))
            raise ConfigError(f"{where}.attention_factors: {factor} is no level's downsampling factor; use {listed}")
    if model.steps < 1:
        raise ConfigError(f"{where}.steps: {model.steps} diffusion steps are too few; use 1 or more")
    if model.prediction not in PREDICTIONS:
        raise ConfigError(f"{where}.prediction: {model.prediction!r} is unknown; use {' or '.join(PREDICTIONS)}")


def _check_widths(model: ModelConfig, where: str) -> None:
    if model.blocks_per_level < 1:
        raise ConfigError(f"{where}.blocks_per_level: {model.blocks_per_level} is too few; use 1 or more")
    if not model.channel_multipliers:
        raise ConfigError(f"{where}.channel_multipliers: the list is empty; give one multiplier a level")
    # Every normalised width is the base, a level's width, or a sum of two of these (an up block's input with its
    # skip): if these are multiples of the group count, so are the sums.
    base = model.base_channels
    if base < 1 or base % GROUPS:
        raise ConfigError(
            f"{where}.base_channels: {base} is not a multiple of {GROUPS} (the groups of GroupNorm); "
            f"use {_nearest(base, GROUPS)}"
        )
    for multiplier in model.channel_multipliers:
        if multiplier <= 0 or (base * multiplier) % GROUPS:
            raise ConfigError(
                f"{where}.channel_multipliers: {multiplier} gives a level {base} x {multiplier} = {base * multiplier} "
                f"channels, which is not a multiple of {GROUPS}; use whole numbers from 1"
            )


def _check_size(model: ModelConfig, where: str) -> None:
    if len(model.size) != 3:
        raise ConfigError(f"{where}.size: {list(model.size)} has {len(model.size)} numbers; give three, (H, W, D)")
    halvings = len(model.channel_multipliers) - 1
    for extent in model.size:
        if extent < 1 or extent % 2**halvings:
            raise ConfigError(
                f"{where}.size: {extent} voxels cannot be halved {halvings} times, as "
                f"{len(model.channel_multipliers)} levels ask; use {_nearest(extent, 2**halvings)}"
            )


def _check_channels(model: ModelConfig, where: str) -> None:
    if model.image_channels < 1:
        raise ConfigError(f"{where}.image_channels: {model.image_channels} is too few; use 1 or more")
    labels = model.condition_labels
    if not labels:
        raise ConfigError(f"{where}.condition_labels: the list is empty; give at least one label value of the masks")
    if len(set(labels)) < len(labels) or min(labels) < 1:
        raise ConfigError(
            f"{where}.condition_labels: {list(labels)} must be different whole numbers from 1 (0 is the background)"
        )
    if len(model.condition_range) != 2 or model.condition_range[0] >= model.condition_range[1]:
        raise ConfigError(
            f"{where}.condition_range: {list(model.condition_range)} must be two rising numbers, such as [-1, 1]"
        )


def _nearest(value: int, unit: int) -> str:
    """The multiples of `unit` on both sides of `value`, in words."""
    below = value // unit * unit
    return f"{below} or {below + unit}" if below > 0 else str(unit)
