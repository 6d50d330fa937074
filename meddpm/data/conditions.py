"""Label maps to the condition channels that the network is shown."""

from typing import TYPE_CHECKING

import numpy as np

from meddpm.config import ModelConfig, UserError
from meddpm.data.nifti import by
from meddpm.data.volumes import to_tensor_axes

if TYPE_CHECKING:
    import torch

# The largest label that a file may hold; those of a model are bytes.
LARGEST_SOURCE = 65535


def binary_channels(
    label: np.ndarray, labels: tuple[int, ...], value_range: tuple[float, float] = (0.0, 1.0)
) -> np.ndarray:
    """One channel for each of `labels`: float32 (C, D, W, H) of a `label` map (H, W, D).

    A channel holds the upper end of `value_range` where the map has its label, and the lower end elsewhere.
    """
    low, high = value_range
    channels = [np.where(label == value, np.float32(high), np.float32(low)) for value in labels]
    return to_tensor_axes(np.stack(channels, axis=-1))


def encode(label: np.ndarray, model: ModelConfig) -> np.ndarray:
    """The condition of `model` for a `label` map (H, W, D): float32 (C, D, W, H), values in `model.condition_range`.

    One binary channel for each of `model.condition_labels`, in that order; other labels count as background. Raises
    UserError where the map has another shape than the model.
    """
    require_size(label, model)
    return binary_channels(label, model.condition_labels, model.condition_range)


def require_size(label: np.ndarray, model: ModelConfig) -> None:
    """Raise UserError where a `label` map (H, W, D) has another shape than `model`."""
    if label.shape != tuple(model.size):
        raise UserError(
            f"a label map of {by(label.shape)} voxels does not fit a model of {by(model.size)}; "
            "prepare the dataset at the model's size."
        )


def encode_batch(labels: "torch.Tensor", model: ModelConfig) -> "torch.Tensor":
    """What `encode` makes, for a batch on its device: (B, D, W, H) uint8 labels to (B, K, D, W, H) float32."""
    import torch

    low, high = model.condition_range
    inside = torch.stack([labels == value for value in model.condition_labels], dim=1)
    return torch.where(inside, high, low)


def remap(label: np.ndarray, table: dict[int, int]) -> np.ndarray:
    """`label` as uint8 with each value replaced as `table` says, all at once; values not in the table stay.

    Values of `label` are integers from 0 to 65535. Raises UserError where the table maps anything else, or to what is
    not a label (an integer from 0 to 255), and where a value above 255 stays.
    """
    if any(not 0 <= source <= LARGEST_SOURCE or not 0 <= target <= 255 for source, target in table.items()):
        raise UserError(f"remap: {table} maps a value outside 0 to {LARGEST_SOURCE}, or to one outside 0 to 255.")
    lookup = np.arange(LARGEST_SOURCE + 1, dtype=np.uint16)
    lookup[list(table.keys())] = list(table.values())
    largest = int(lookup[label].max(initial=0)) if label.dtype != np.uint8 else 0
    if largest > 255:
        raise UserError(f"remap: label {largest} stays, and a label of a model is at most 255; give it another value.")
    return lookup.astype(np.uint8)[label]
