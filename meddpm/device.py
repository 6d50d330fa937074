"""Which device a job runs on, and the reason when it cannot."""

import gc
import os
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

from meddpm import gpu_lock
from meddpm.config import GpuConfig, UserError
from meddpm.log import logger
from meddpm.provenance import processor_name
from meddpm.status import FAILED, UNAVAILABLE, CannotRun, first_line

if TYPE_CHECKING:
    import torch


class WrongDevice(UserError):
    """The job is on another device than its row names: it must fail, so that no figure stands under a wrong name."""


def kind(gpu: GpuConfig) -> str:
    """The kind of device that a row of the GPU matrix gets here: cuda, cpu, or none where it asks for CUDA in vain."""
    import torch

    if gpu.device == "cpu":
        return "cpu"
    if torch.cuda.is_available():
        return "cuda"
    return "none" if gpu.device == "cuda" else "cpu"


@contextmanager
def claimed(gpu: GpuConfig, row: str = "", between: Callable[[], None] = lambda: None) -> Iterator["torch.device"]:
    """The torch device for the row `row` of the GPU matrix; a GPU is this job's alone within the block.

    "cuda" then means that GPU, in this thread. Where all that match the row are taken, it waits for one and calls
    `between` again and again, which may raise to end the waiting. Where SLURM gave the job one GPU, it has that one.

    Raises CannotRun, unavailable, where the row asks for CUDA and there is none; WrongDevice where no device has the
    name that the row asks for, or where SLURM gave a job none; UserError where GPUs cannot be locked.
    """
    import torch

    found = kind(gpu)
    if found == "none" and not _in_slurm():
        raise CannotRun(UNAVAILABLE, "this host has no CUDA device that torch can use")
    if found == "none":
        raise _wrong(gpu, row, "no CUDA device that torch can use")
    if found == "cpu":
        _matching(gpu, row, [processor_name()])
        yield torch.device("cpu")
        return
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    candidates = _matching(gpu, row, names)
    with _lock(candidates, len(names), between) as chosen:
        _use(candidates[chosen])
        try:
            yield torch.device("cuda")
        finally:
            _give_memory_back()


def _in_slurm() -> bool:
    return "SLURM_JOB_ID" in os.environ


def _matching(gpu: GpuConfig, row: str, names: list[str]) -> list[int]:
    """The indices of the devices whose name is what the row asks for. Raises WrongDevice if there is none."""
    matching = [index for index, each in enumerate(names) if re.search(gpu.device_name or "", each)]
    if not matching:
        raise _wrong(gpu, row, " and ".join(sorted(set(names))))
    return matching


def _wrong(gpu: GpuConfig, row: str, got: str) -> WrongDevice:
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    text = f"{f'gpus.{row}' if row else 'this row of gpus'}: the job got {got} on node {node}"
    if gpu.device_name:
        text += f", which does not match device_name {gpu.device_name}"
    if _in_slurm():
        return WrongDevice(f"{text}; right would be a gpu_model, gres, constraint or partition that gives one")
    return WrongDevice(f"{text}; right would be a device_name that does, or a study without this row")


def _lock(candidates: list[int], seen: int, between: Callable[[], None]) -> AbstractContextManager[int]:
    """A lock on one of the GPUs. Where SLURM lets the job see one alone, others are kept away already."""
    if seen == 1 and _in_slurm():
        return nullcontext(0)
    return gpu_lock.held([_identity(index) for index in candidates], between=between)


def _use(index: int) -> None:
    """Make "cuda" the GPU of this index. Raises CannotRun, failed, where it refuses."""
    import torch

    logger.info("on GPU %d of this host: %s (%s)", index, torch.cuda.get_device_name(index), _identity(index))
    try:
        torch.cuda.set_device(index)
    except RuntimeError as error:
        logger.exception("the device failed")
        raise CannotRun(FAILED, f"the device failed: {first_line(error)}") from None


def _identity(index: int) -> str:
    """What tells a GPU from all others of the machine, whichever of them a process sees."""
    import torch

    uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    return str(uuid) if uuid else f"{torch.cuda.get_device_name(index)}, number {index}"


def _give_memory_back() -> None:
    """Before the next job gets the GPU, what this one holds of its memory for later use."""
    import torch

    gc.collect()
    with suppress(RuntimeError):  # the device may have failed
        torch.cuda.empty_cache()


def name(device: "torch.device") -> str:
    """The device's name as its driver gives it."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else processor_name()
