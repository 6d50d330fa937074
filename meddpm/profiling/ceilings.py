"""The ceilings of a GPU, measured on it: matrix products in each precision, and copying memory."""

import statistics
from collections.abc import Callable

import torch

from meddpm import variants
from meddpm.config import VariantConfig
from meddpm.status import CannotRun

SIDE = 8192
COPY_BYTES = 2**31
WARMUP, REPEATS = 3, 10
COPY = "copy"
PRECISIONS = {
    "fp32": VariantConfig(),
    "tf32": VariantConfig(matmul_precision="tf32", conv_precision="tf32"),
    "bf16": VariantConfig(autocast="bf16"),
    "fp16": VariantConfig(autocast="fp16"),
}


def measure(where: torch.device) -> dict[str, float]:
    """FLOP/s of a matrix product of 8192 x 8192 in each precision that the GPU has, and bytes/s (read and written) of a
    copy of 2 GiB, under "copy". Empty for a CPU, and where the memory does not suffice.
    """
    if where.type != "cuda":
        return {}
    found = {}
    try:
        for name, variant in PRECISIONS.items():
            try:
                found[name] = _product(variant, where)
            except CannotRun:
                continue  # the GPU does not have this precision
        source = torch.empty(COPY_BYTES, dtype=torch.uint8, device=where)
        target = torch.empty_like(source)
        found[COPY] = 2 * COPY_BYTES / _seconds(lambda: target.copy_(source))
    except torch.OutOfMemoryError:
        return {}
    return found


def _product(variant: VariantConfig, where: torch.device) -> float:
    with variants.applied(variant, where) as applied:
        kind = applied.autocast_type or torch.float32
        # Random values: a GPU that multiplies zeros takes less power and clocks higher.
        left, right = (torch.randn((SIDE, SIDE), device=where).to(kind) for _ in range(2))
        return 2 * SIDE**3 / _seconds(lambda: left @ right)


def _seconds(call: Callable[[], object]) -> float:
    """The median time of one call on the current GPU."""
    for _ in range(WARMUP):
        call()
    times = []
    for _ in range(REPEATS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1000)
    return statistics.median(times)
