"""The program that a profiler starts: `python -m meddpm.stages.marked JOB ANSWER`. It marks what is to be seen.

JOB is a file with the stage and the settings of a job, and `operators`. Where that is null, the whole step of the job
lies in one range that cudaProfilerStart and cudaProfilerStop mark; else each of these operators, called by itself (see
meddpm.profiling.tools.operators), in a range of its own, with an NVTX range of its name. ANSWER is written: JSON, the
flags in effect, or the status and reason where the job cannot run.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from meddpm import variants
from meddpm.config import ProfileConfig, VariantConfig
from meddpm.files import write_json
from meddpm.profiling.tools.operators import again
from meddpm.stages import measured_step, network
from meddpm.stages.job import Job
from meddpm.status import CannotRun


def main(job_file: str, answer: str) -> None:
    """Run what JOB says, marked. Exits with the reason where it cannot run."""
    values = json.loads(Path(job_file).read_text(encoding="utf-8"))
    job = Job(values["stage"], values["settings"])
    torch.set_num_threads(values["threads"])
    torch.cuda.set_device(values["device"])
    try:
        flags = _step(job) if values["operators"] is None else _operators(job, values["operators"])
    except CannotRun as reason:
        # The job that started this process reads it back.
        write_json(answer, {"status": reason.status, "reason": reason.reason})
        sys.exit(reason.reason)
    write_json(answer, {"flags": flags})


def _step(job: Job) -> dict[str, Any]:
    with measured_step.built(job, torch.device("cuda")) as step:
        for _ in range(job.get("profile", ProfileConfig).warmup):
            step.run()
        _settle()
        with _marked("step"):
            step.run()
        return step.flags


def _operators(job: Job, described: dict[str, dict[str, Any]]) -> dict[str, Any]:
    variant = job.get("variant_config", VariantConfig)
    with variants.applied(variant, torch.device("cuda")) as applied, network.device_errors():
        for number, (name, call) in enumerate(described.items(), 1):
            # A profiler takes seconds for some: what it prints ends the reason of a job that took too long.
            print(f"operator {number} of {len(described)}: {call['function']}", flush=True)
            operator = again(call)
            operator()  # cuDNN chooses an algorithm, kernels are loaded
            _settle()
            with _marked(name):
                operator()
            del operator
        return applied.flags()


def _settle() -> None:
    """Nothing runs, and the memory that is kept for later use is given back: a profiler saves and restores it all."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


@contextmanager
def _marked(name: str) -> Iterator[None]:
    torch.cuda.profiler.start()
    torch.cuda.nvtx.range_push(name)
    try:
        yield
    finally:
        torch.cuda.synchronize()
        torch.cuda.nvtx.range_pop()
        torch.cuda.profiler.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
