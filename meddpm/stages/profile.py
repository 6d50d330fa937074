"""Profile one cell with torch.profiler: never the timed run."""

from pathlib import Path

import torch

from meddpm import device, tables
from meddpm.config import GpuConfig, ModelConfig, ProfileConfig
from meddpm.files import write_json
from meddpm.log import logger
from meddpm.profiling import ceilings, derived, proof, trace, work
from meddpm.profiling.readers import kineto
from meddpm.profiling.tools import torch_profiler
from meddpm.stages import measured_step
from meddpm.stages.job import CELL, Job, folder, not_run
from meddpm.status import OK, CannotRun
from meddpm.tables import Row

PROFILER = "torch"
TABLES = ("kernels", "counters")


def run(settings: str, outputs: dict[str, Path | str], environment: Path | str, threads: int) -> None:
    """Write the cell's rows of the tables kernels and counters to `outputs`, by the table's name.

    Beside them lie trace.json.gz, which Perfetto opens, and profile.json: flags in effect, marked ranges, notes.
    """
    job = Job.parse("profile", settings)
    torch.set_num_threads(threads)
    cell = job.cell(*CELL)
    environment_rows: list[Row] = []
    try:
        file = folder(outputs["kernels"]) / "trace.json.gz"
        with device.claimed(job.get("gpu_config", GpuConfig), cell["gpu"]) as where:
            environment_rows = [job.environment(where)]
            flags, limits = _profile(job, file, where)
        seen = kineto.read(file)
        kernels = trace.rows(seen)
        if seen.on_gpu:
            proof.require(flags, kernels)
        write_json(file.with_name("profile.json"), {"flags": flags, **derived.record(seen)})
        active = job.get("profile", ProfileConfig).active
        operations = work.flop(job.get("model_config", ModelConfig), cell["phase"])
        known = {**cell, "environment": environment_rows[0]["environment"], "status": OK}
        rows = {
            "kernels": [{"profiler": PROFILER, **row} for row in kernels],
            "counters": derived.rows(seen, active, operations, limits),
        }
        rows = {table: [{**known, **row} for row in found] for table, found in rows.items()}
    except CannotRun as reason:
        logger.info("%s: %s", reason.status, reason.reason)
        rows = {table: [row | not_run(reason) for row in unmeasured(job, table)] for table in TABLES}
    for table, found in rows.items():
        tables.write(table, found, outputs[table])
    tables.write("environment", environment_rows, environment)


def unmeasured(job: Job, table: str = "kernels") -> list[Row]:
    """The row of `table` of a cell that was not profiled."""
    empty = {
        "kernels": {"profiler": PROFILER, "kernel": "", "category": ""},
        "counters": {"scope": derived.TOTAL, "metric": "kernel time a step", "unit": "ms"},
    }
    return [{**job.cell(*CELL), **empty[table]}]


def _profile(job: Job, file: Path, where: torch.device) -> tuple[dict[str, object], dict[str, float]]:
    """Trace the job's step to `file`; the flags in effect and the ceilings of the device."""
    how = job.get("profile", ProfileConfig)
    with measured_step.built(job, where) as step:
        model = None if step.hidden else step.model
        torch_profiler.profile(step.run, how.warmup, how.active, file, where.type == "cuda", ranges=model)
    return step.flags, ceilings.measure(where)
