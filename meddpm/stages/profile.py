"""Profile one cell: never the timed run."""

from pathlib import Path

import torch

from meddpm import device, tables, variants
from meddpm.config import GpuConfig, ModelConfig, ProfileConfig, TrainConfig, VariantConfig
from meddpm.log import logger
from meddpm.profiling import kineto, torch_profiler
from meddpm.stages import network
from meddpm.stages.job import Job, folder, not_run
from meddpm.status import OK, CannotRun
from meddpm.tables import Row
from meddpm.training import step as training

INPUT_SEED = 0
PROFILER = "torch"


def run(settings: str, target: Path | str, environment: Path | str, threads: int) -> None:
    """Write the cell's rows of the kernel table to `target`; the trace, trace.json.gz, lies beside it."""
    job = Job.parse("profile", settings)
    torch.set_num_threads(threads)
    cell = {**job.cell("model", "gpu", "variant", "phase"), "profiler": PROFILER}
    environment_rows: list[Row] = []
    try:
        trace = folder(target) / "trace.json.gz"
        variant = job.get("variant_config", VariantConfig)
        with device.claimed(job.get("gpu_config", GpuConfig), cell["gpu"]) as where:
            environment_rows = [job.environment(where)]
            with variants.applied(variant, where, cell["phase"] == "train") as applied, network.device_errors():
                _profile(job, applied, trace)
        known = {"environment": environment_rows[0]["environment"], "status": OK}
        rows = [{**cell, **row, **known} for row in kineto.kernel_rows(trace)]
    except CannotRun as reason:
        logger.info("%s: %s", reason.status, reason.reason)
        rows = [row | not_run(reason) for row in unmeasured(job)]
    tables.write("kernels", rows, target)
    tables.write("environment", environment_rows, environment)


def unmeasured(job: Job) -> list[Row]:
    """The one row of a cell that was not profiled."""
    return [{**job.cell("model", "gpu", "variant", "phase"), "profiler": PROFILER, "kernel": "", "category": ""}]


def _profile(job: Job, applied: variants.Applied, trace: Path) -> None:
    config, how = job.get("model_config", ModelConfig), job.get("profile", ProfileConfig)
    generator = torch.Generator().manual_seed(INPUT_SEED)
    image = applied.tensor(torch.randn((1, *config.shape), generator=generator))
    condition = applied.tensor(torch.randn((1, len(config.condition_labels), *config.shape[1:]), generator=generator))
    t = torch.zeros(1, dtype=torch.long, device=applied.device)
    model = network.load(config, None)
    if job.values["phase"] == "train":
        training_step = training.Step(model.train(), config, TrainConfig(accumulation=1), applied)

        def step() -> None:
            training_step(lambda: (image, condition, t, image))
    else:
        net = applied.network(model)
        inputs = torch.cat([image, condition], dim=1)

        def step() -> None:
            with torch.no_grad():
                net(inputs, t)

    torch_profiler.profile(step, how.warmup, how.active, trace, applied.device.type == "cuda")
