"""Trace one cell with Nsight Systems: never the timed run."""

import gzip
import shutil
import tempfile
from pathlib import Path

from meddpm import device, tables
from meddpm.config import GpuConfig
from meddpm.files import replacing
from meddpm.log import logger
from meddpm.profiling import proof, trace
from meddpm.profiling.tools import nsys
from meddpm.stages.job import CELL, Job, folder, not_run
from meddpm.stages.marking import marked
from meddpm.status import OK, UNSUPPORTED, CannotRun
from meddpm.tables import Row

PROFILER = "nsys"


def run(settings: str, target: Path | str, environment: Path | str, threads: int) -> None:
    """Write the cell's rows of the kernel table to `target`; timeline.sqlite.gz lies beside it."""
    job = Job.parse("timeline", settings)
    cell = {**job.cell(*CELL), "profiler": PROFILER}
    environment_rows: list[Row] = []
    try:
        with device.claimed(job.get("gpu_config", GpuConfig), cell["gpu"]) as where:
            if where.type != "cuda":
                raise CannotRun(UNSUPPORTED, "a timeline of Nsight Systems is that of a CUDA GPU; this is a CPU")
            environment_rows = [job.environment(where)]
            kernels = _trace(job, folder(target) / "timeline.sqlite.gz", threads)
        known = {"environment": environment_rows[0]["environment"], "status": OK}
        rows = [{**cell, **row, **known} for row in kernels]
    except CannotRun as reason:
        logger.info("%s: %s", reason.status, reason.reason)
        rows = [row | not_run(reason) for row in unmeasured(job)]
    tables.write("kernels", rows, target)
    tables.write("environment", environment_rows, environment)


def unmeasured(job: Job, table: str = "kernels") -> list[Row]:
    """The row of a cell that was not traced."""
    return [{**job.cell(*CELL), "profiler": PROFILER, "kernel": "", "category": ""}]


def _trace(job: Job, file: Path, threads: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as temporary:
        plain = Path(temporary) / "timeline.sqlite"
        with marked(job, None, threads) as program:
            seen = nsys.run(program.command, plain, job.values["limit_s"], program.environment)
            flags = program.said()["flags"]
        kernels = trace.rows(seen)
        with replacing(file) as packed, open(plain, "rb") as source, gzip.open(packed, "wb") as packing:
            shutil.copyfileobj(source, packing)
    proof.require(flags, kernels)
    return kernels
