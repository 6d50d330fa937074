"""Makes a trace of a few marked calls with torch.profiler."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from meddpm.config import UserError
from meddpm.files import replacing
from meddpm.model.layers import AttentionBlock, Downsample, Upsample
from meddpm.model.unet import UNet

# What stands in a stage of the U-Net beside residual blocks.
KINDS = {AttentionBlock: "attention", Downsample: "downsample", Upsample: "upsample"}


def profile(
    step: Callable[[], None],
    warmup: int,
    active: int,
    trace: Path,
    cuda: bool,
    ranges: torch.nn.Module | None = None,
) -> None:
    """Call `step` `warmup` + `active` times and write a trace of the last `active` calls to `trace` (.json.gz).

    Each traced call is marked ProfilerStep#N. The file is a gzipped Chrome trace, which Perfetto and
    `meddpm.profiling.readers` read. Shapes, stacks and memory are not recorded, to keep it small. With `cuda` the
    kernels on the GPU are traced as well as the operators on the CPU. The times are for shares and counts:
    a profiled run is slower than a timed one.

    `ranges` is the U-Net that `step` calls: while it is traced its parts are marked, by hooks on its modules, as
    `named_ranges` names them. Not for a compiled network, which hooks would compile again.

    Raises UserError where `cuda` is asked for and PyTorch sees no CUDA device, ValueError where `active` is below 1,
    `warmup` below 0, `trace` is not called .gz or `ranges` is no U-Net.
    """
    if active < 1 or warmup < 0:
        raise ValueError(f"active must be 1 or more and warmup 0 or more, not {active} and {warmup}")
    if trace.suffix != ".gz":
        raise ValueError(f"the trace is gzipped: its name must end in .json.gz, not {trace.name}")
    if ranges is not None and not isinstance(ranges, UNet):
        raise ValueError(f"only the parts of a U-Net can be marked, not those of {type(ranges).__name__}")
    if cuda and not torch.cuda.is_available():
        raise UserError("PyTorch sees no CUDA device to profile; profile the CPU or choose another machine")

    # Its collector prints a line at the start and at the end of every trace, at a level of 5 of its own.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    activities = [torch.profiler.ProfilerActivity.CPU]
    if cuda:
        activities.append(torch.profiler.ProfilerActivity.CUDA)

    def call() -> None:
        step()
        if cuda:
            # Launches return at once: without this, kernels of one call would fall into the range of the next.
            torch.cuda.synchronize()

    # The first calls compile, choose algorithms and fill caches: they stay out of the trace. The last of them runs
    # while the profiler itself warms up.
    for _ in range(warmup - 1):
        call()
    with (
        replacing(trace) as temporary,
        _marked(ranges),
        torch.profiler.profile(
            activities=activities,
            schedule=torch.profiler.schedule(wait=0, warmup=1, active=active, repeat=1),
            on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(temporary)),
            acc_events=True,
        ) as profiler,
    ):
        if warmup:
            call()
        profiler.step()
        for _ in range(active):
            call()
            profiler.step()


def named_ranges(network: UNet) -> list[tuple[str, torch.nn.Module, torch.nn.Module]]:
    """Each range of the U-Net: its name, and the modules with which it begins and ends.

    The names are "time" (the embedding), "in", "out", "middle", "down L" and "up L" of level L, 0 at full resolution,
    and below them "down 0/block 1", "middle/attention", "down 0/downsample", "up 2/upsample". Joining the skip to the
    input of a stage is no module's: it is in the range of the level, and before the first stage in none.
    """
    first, *down = network.input_blocks
    found = [("time", network.time_embed, network.time_embed), ("in", first, first)]
    for name, stages in (
        *_levels("down", down, 0, 1),
        ("middle", [network.middle_block]),
        *_levels("up", network.output_blocks, network.halvings, -1),
    ):
        found.append((name, stages[0], stages[-1]))
        blocks = 0
        for module in (module for stage in stages for module in stage):
            kind = KINDS.get(type(module))
            if kind is None:
                kind, blocks = f"block {blocks}", blocks + 1
            found.append((f"{name}/{kind}", module, module))
    return [*found, ("out", network.out, network.out)]


def _levels(side: str, stages: Sequence[Any], level: int, step: int) -> Iterator[tuple[str, list[Any]]]:
    """The stages of one side of the U-Net by level: each level but the last ends with a change of resolution."""
    own = []
    for stage in stages:
        own.append(stage)
        if any(isinstance(module, Downsample | Upsample) for module in stage):
            yield f"{side} {level}", own
            own, level = [], level + step
    if own:
        yield f"{side} {level}", own


@contextmanager
def _marked(network: UNet | None) -> Iterator[None]:
    """Mark the parts of the network with record_function inside the block."""
    opened: list[Any] = []

    def opening(name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            mark = torch.profiler.record_function(name)
            mark.__enter__()
            opened.append(mark)

        return hook

    def close(*_: Any) -> None:
        opened.pop().__exit__(None, None, None)

    handles = []
    try:
        for name, begin, end in named_ranges(network) if network is not None else ():
            handles.append(begin.register_forward_pre_hook(opening(name)))
            handles.append(end.register_forward_hook(close))
        yield
    finally:
        for handle in handles:
            handle.remove()
        while opened:  # the step failed inside the network
            close()
