"""Which device a job runs on, and the reason when it cannot."""

import re
from typing import TYPE_CHECKING

from meddpm.config import GpuConfig
from meddpm.provenance import processor_name
from meddpm.status import FAILED, UNAVAILABLE, CannotRun

if TYPE_CHECKING:
    import torch


def resolve(gpu: GpuConfig) -> "torch.device":
    """The torch device for a row of the GPU matrix.

    Raises CannotRun: unavailable where the row asks for CUDA and there is none, failed where the device found is not
    the one that the row names, so that no figure stands under the wrong name.
    """
    import torch

    kind = gpu.device
    if kind == "auto":
        kind = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cuda" and not torch.cuda.is_available():
        raise CannotRun(UNAVAILABLE, "this host has no CUDA device that torch can use")
    device = torch.device(kind)
    found = name(device)
    if gpu.device_name and not re.search(gpu.device_name, found):
        raise CannotRun(FAILED, f"the job got {found}, which does not match device_name {gpu.device_name}")
    return device


def name(device: "torch.device") -> str:
    """The device's name as its driver gives it."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else processor_name()
