"""The network of Med-DDPM, its presets and its weights. Importing this package does not import torch."""

from typing import TYPE_CHECKING

from meddpm.config import ConfigError, ModelConfig
from meddpm.model.presets import PRESETS, check

if TYPE_CHECKING:
    import torch


def build_model(model: str | ModelConfig) -> "torch.nn.Module":
    """The U-Net of a preset (by name) or of a configuration, freshly initialised, on the default device.

    Its forward takes x (B, in_channels, D, W, H), float, and t (B,), integer diffusion steps from 0, and returns
    (B, image_channels, D, W, H) in the type of x. Raises ConfigError if the name is unknown or the row impossible.
    """
    if isinstance(model, str):
        if model not in PRESETS:
            raise ConfigError(f"models: there is no preset {model!r}; use {', '.join(PRESETS)}")
        where, model = f"models.{model}", PRESETS[model]
    else:
        where = "models"
    check(model, where)

    from meddpm.model.unet import UNet

    return UNet(model)
