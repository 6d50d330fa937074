"""The parts of the U-Net: normalisation, residual block, attention, down- and upsampling.

Attribute names are those of the published checkpoints (in_layers, emb_layers, out_layers, skip_connection, qkv,
proj_out, op, conv), so that their weights load key by key. Tensors are (B, C, D, W, H).
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from meddpm.model.presets import GROUPS


class GroupNorm(nn.GroupNorm):
    """Group normalisation (Wu and He 2018, arXiv 1803.08494) computed in float32; the output has the input's type."""

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.weight.float(), self.bias.float()
        return functional.group_norm(x.float(), self.num_groups, weight, bias, self.eps).to(x.dtype)


def group_norm(channels: int) -> GroupNorm:
    """The network's normalisation of `channels` channels: 32 groups, eps 1e-5."""
    return GroupNorm(GROUPS, channels, eps=1e-5)


def convolution(in_channels: int, out_channels: int, stride: int = 1) -> nn.Conv3d:
    """A 3x3x3 convolution with padding 1: it keeps the size, or halves it with stride 2."""
    return nn.Conv3d(in_channels, out_channels, kernel_size=3, stride=stride, padding=1)


def zeroed(module: nn.Module) -> nn.Module:
    """`module` with every parameter zero: a residual branch that ends in it starts as the identity."""
    for parameter in module.parameters():
        nn.init.zeros_(parameter)
    return module


def time_embedding(t: Tensor, channels: int, max_period: float = 1000.0) -> Tensor:
    """Sinusoids of the diffusion step: (B,) -> (B, channels), float32, cosines first.

    The transformer's position embedding (Vaswani et al. 2017, section 3.5) with frequencies
    max_period^(-i / half), i = 0 .. half - 1, half = channels / 2. Med-DDPM's longest period is 1000, not 10000.
    """
    half = channels // 2
    exponents = torch.arange(half, dtype=torch.float32, device=t.device) / half
    angles = t.float()[:, None] * torch.exp(-math.log(max_period) * exponents)[None]
    return torch.cat([torch.cos(angles), torch.sin(angles)], dim=1)


class ResidualBlock(nn.Module):
    """Two normalised convolutions with the time embedding added between them, plus the input."""

    def __init__(self, in_channels: int, out_channels: int, time_channels: int) -> None:
        super().__init__()
        self.in_layers = nn.Sequential(group_norm(in_channels), nn.SiLU(), convolution(in_channels, out_channels))
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(time_channels, out_channels))
        # The dropout is 0 in both published models; its place keeps the key of the convolution, out_layers.3.
        self.out_layers = nn.Sequential(
            group_norm(out_channels), nn.SiLU(), nn.Dropout(0.0), zeroed(convolution(out_channels, out_channels))
        )
        self.skip_connection: nn.Module = nn.Identity()
        if in_channels != out_channels:
            self.skip_connection = nn.Conv3d(in_channels, out_channels, kernel_size=1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """x (B, in_channels, D, W, H), time (B, time_channels) -> (B, out_channels, D, W, H)."""
        hidden = self.in_layers(x)
        hidden = hidden + self.emb_layers(time).to(hidden.dtype)[:, :, None, None, None]
        return self.skip_connection(x) + self.out_layers(hidden)


class AttentionBlock(nn.Module):
    """Self-attention with one head over all voxels, plus the input (Wang et al. 2018, arXiv 1711.07971)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = group_norm(channels)
        self.qkv = nn.Conv1d(channels, 3 * channels, kernel_size=1)
        self.proj_out = zeroed(nn.Conv1d(channels, channels, kernel_size=1))

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, D, W, H) -> the same shape."""
        flat = x.flatten(start_dim=2)
        query, key, value = self.qkv(self.norm(flat)).chunk(3, dim=1)
        # Scaling both factors by C^(-1/4), not their product by C^(-1/2), keeps half precision from overflowing.
        scale = flat.shape[1] ** -0.25
        logits = torch.bmm((query * scale).transpose(1, 2), key * scale)
        weights = torch.softmax(logits.float(), dim=-1).to(value.dtype)
        attended = torch.bmm(value, weights.transpose(1, 2))
        return (flat + self.proj_out(attended)).reshape(x.shape)


class Downsample(nn.Module):
    """Halves each spatial axis with a strided convolution."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.op = convolution(channels, channels, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, D, W, H) -> (B, C, D/2, W/2, H/2)."""
        return self.op(x)


class Upsample(nn.Module):
    """Doubles each spatial axis by trilinear interpolation, then convolves."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = convolution(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, D, W, H) -> (B, C, 2 D, 2 W, 2 H)."""
        return self.conv(functional.interpolate(x, scale_factor=2.0, mode="trilinear", align_corners=False))
