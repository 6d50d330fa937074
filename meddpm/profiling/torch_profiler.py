"""Makes a trace of a few marked calls with torch.profiler."""

import os
from collections.abc import Callable
from pathlib import Path

import torch

from meddpm.config import UserError
from meddpm.files import replacing


def profile(step: Callable[[], None], warmup: int, active: int, trace: Path, cuda: bool) -> None:
    """Call `step` `warmup` + `active` times and write a trace of the last `active` calls to `trace` (.json.gz).

    Each traced call is marked ProfilerStep#N. The file is a gzipped Chrome trace, which Perfetto and
    `meddpm.profiling.kineto` read. Shapes, stacks and memory are not recorded, to keep it small. With `cuda` the
    kernels on the GPU are traced as well as the operators on the CPU. The times are for shares and counts:
    a profiled run is slower than a timed one.

    Raises UserError where `cuda` is asked for and PyTorch sees no CUDA device, ValueError where `active` is below 1,
    `warmup` below 0 or `trace` is not called .gz.
    """
    if active < 1 or warmup < 0:
        raise ValueError(f"active must be 1 or more and warmup 0 or more, not {active} and {warmup}")
    if trace.suffix != ".gz":
        raise ValueError(f"the trace is gzipped: its name must end in .json.gz, not {trace.name}")
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
