"""The 3D U-Net of Med-DDPM (Dorjsembe et al. 2023, arXiv 2305.18453), after Dhariwal and Nichol 2021.

No step of the forward pass waits for the device or depends on a tensor's values, so that it can be compiled whole
and recorded in a CUDA graph.
"""

from torch import Tensor, cat, nn

from meddpm.config import ModelConfig
from meddpm.model.layers import (
    AttentionBlock,
    Downsample,
    ResidualBlock,
    Upsample,
    convolution,
    group_norm,
    time_embedding,
)


class Stage(nn.Sequential):
    """Modules applied in turn; residual blocks among them also get the time embedding."""

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """x (B, C, D, W, H), time (B, time_channels)."""
        for module in self:
            x = module(x, time) if isinstance(module, ResidualBlock) else module(x)
        return x


class UNet(nn.Module):
    """Predicts the noise (or velocity) in the image channels of [noisy images, condition]."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        self.base_channels = model.base_channels
        self.halvings = len(model.channel_multipliers) - 1
        time_channels = 4 * model.base_channels
        self.time_embed = nn.Sequential(
            nn.Linear(model.base_channels, time_channels), nn.SiLU(), nn.Linear(time_channels, time_channels)
        )

        def level_stage(in_channels: int, out_channels: int, factor: int) -> list[nn.Module]:
            """A residual block, with attention behind it where the level attends."""
            block = ResidualBlock(in_channels, out_channels, time_channels)
            return [block, AttentionBlock(out_channels)] if factor in model.attention_factors else [block]

        width = model.base_channels
        self.input_blocks = nn.ModuleList([Stage(convolution(model.in_channels, width))])
        # Channels of each output of the down path: the up path takes them back from the end.
        skips = [width]
        for level, multiplier in enumerate(model.channel_multipliers):
            for _ in range(model.blocks_per_level):
                level_width = model.base_channels * multiplier
                self.input_blocks.append(Stage(*level_stage(width, level_width, 2**level)))
                width = level_width
                skips.append(width)
            if level < self.halvings:
                self.input_blocks.append(Stage(Downsample(width)))
                skips.append(width)

        self.middle_block = Stage(
            ResidualBlock(width, width, time_channels),
            AttentionBlock(width),
            ResidualBlock(width, width, time_channels),
        )

        self.output_blocks = nn.ModuleList()
        for level, multiplier in reversed(list(enumerate(model.channel_multipliers))):
            for block in range(model.blocks_per_level + 1):
                level_width = model.base_channels * multiplier
                modules = level_stage(width + skips.pop(), level_width, 2**level)
                width = level_width
                if level > 0 and block == model.blocks_per_level:
                    modules.append(Upsample(width))
                self.output_blocks.append(Stage(*modules))

        self.out = nn.Sequential(group_norm(width), nn.SiLU(), convolution(width, model.image_channels))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """x (B, in_channels, D, W, H), t (B,) integer steps -> (B, image_channels, D, W, H) in the type of x.

        Any size is taken whose axes can be halved at every level but the last; else raises ValueError.
        """
        unit = 2**self.halvings
        if any(extent % unit for extent in x.shape[2:]):
            raise ValueError(f"volume {tuple(x.shape[2:])} has an axis that is not a multiple of {unit}")
        embedding = time_embedding(t, self.base_channels)
        time = self.time_embed(embedding.to(self.time_embed[0].weight.dtype))
        hidden = x
        skips = []
        for stage in self.input_blocks:
            hidden = stage(hidden, time)
            skips.append(hidden)
        hidden = self.middle_block(hidden, time)
        for stage in self.output_blocks:
            # In two lines, so that the parts are freed while the stage runs: at full size that is half a GiB.
            hidden = cat([hidden, skips.pop()], dim=1)
            hidden = stage(hidden, time)
        return self.out(hidden).to(x.dtype)
