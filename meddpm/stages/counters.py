"""Count what the kernels of one cell do, with Nsight Compute: never the timed run."""

import gc
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from meddpm import device, tables
from meddpm.config import GpuConfig, ProfileConfig, VariantConfig
from meddpm.log import logger
from meddpm.profiling import counters, names, priorities, proof, trace
from meddpm.profiling.counters import Counted
from meddpm.profiling.readers import kineto, ncu_files
from meddpm.profiling.tools import ncu, torch_profiler
from meddpm.profiling.tools.operators import Operators, longest
from meddpm.stages import measured_step
from meddpm.stages.job import CELL, Job, folder, not_run
from meddpm.stages.marking import marked
from meddpm.status import FAILED, OK, UNSUPPORTED, CannotRun
from meddpm.tables import Row

PROFILER = "ncu"
TABLES = ("counters", "kernels", "priorities")
# Operators are counted, those of the most kernel time first, until they have this share of it: Nsight Compute takes a
# quarter of a second for a kernel, however short, and the last 5 % of the time are in two thirds of the operators.
COVERED = 0.95
# Where a compiler or a CUDA graph hides the operators, kernels are counted at each of their launches: those of the
# functions that have this share of the kernel time. The rest is a third to two thirds of the launches.
COVERED_BY_FUNCTIONS = 0.98


@dataclass(frozen=True)
class Chosen:
    """The operators that stand for a step: how each is called again, how often it was called, what it is.

    `weights` takes in calls of the same operators with shapes that were not chosen, by their kernel time (see
    counters.Counted). Shares of the step's kernel time, 0 to 1: `covered` is in the chosen ones, `left_out` in none of
    their operators.
    """

    described: dict[str, dict[str, Any]]
    calls: dict[str, int]
    kinds: dict[str, str]
    weights: dict[str, float]
    covered: float
    left_out: float


def run(settings: str, outputs: dict[str, Path | str], environment: Path | str, threads: int) -> None:
    """Write the cell's rows of the tables counters, kernels and priorities to `outputs`, by the table's name.

    Beside them lie raw.csv.gz and advice.csv.gz, what Nsight Compute printed.
    """
    job = Job.parse("counters", settings)
    torch.set_num_threads(threads)
    cell = job.cell(*CELL)
    environment_rows: list[Row] = []
    try:
        with device.claimed(job.get("gpu_config", GpuConfig), cell["gpu"]) as where:
            if where.type != "cuda":
                raise CannotRun(UNSUPPORTED, "counters are those of a CUDA GPU; this is a CPU")
            ncu.program()  # before the minute that it takes to choose operators
            environment_rows = [job.environment(where)]
            counted, note = _count(job, where, folder(outputs["counters"]), threads)
        known = {**cell, "environment": environment_rows[0]["environment"], "status": OK, "reason": note}
        rows = {
            "counters": counters.rows(counted),
            "kernels": [{"profiler": PROFILER, **row} for row in trace.rows(_as_trace(counted))],
            "priorities": priorities.rows(counted),
        }
        rows = {table: [{**known, **row} for row in found] for table, found in rows.items()}
    except CannotRun as reason:
        logger.info("%s: %s", reason.status, reason.reason)
        rows = {table: [row | not_run(reason) for row in unmeasured(job, table)] for table in TABLES}
    for table, found in rows.items():
        tables.write(table, found, outputs[table])
    tables.write("environment", environment_rows, environment)


def unmeasured(job: Job, table: str) -> list[Row]:
    """The row of `table` of a cell that was not counted."""
    empty = {
        "counters": {"scope": counters.TOTAL, "metric": "kernel time", "unit": "ns"},
        "kernels": {"profiler": PROFILER, "kernel": "", "category": ""},
        "priorities": {"kernel": "", "category": "", "rule": "", "scope": ""},
    }
    return [{**job.cell(*CELL), **empty[table]}]


def _count(job: Job, where: torch.device, target: Path, threads: int) -> tuple[list[Counted], str]:
    """What was counted, and a note on the way."""
    chosen, functions, left_out = None, None, 0.0
    if measured_step.hides_operators(job.get("variant_config", VariantConfig)):
        functions, left_out = chosen_functions(job, where)
    else:
        chosen = chosen_operators(job, where)
    # Nsight Compute gets the GPU's memory.
    gc.collect()
    torch.cuda.empty_cache()
    raw, advice = target / "raw.csv.gz", target / "advice.csv.gz"
    with marked(job, chosen and chosen.described, threads) as program:
        wanted, sections, seconds = counters.metrics(), counters.sections(), job.values["limit_s"]
        ncu.run(program.command, raw, advice, wanted, sections, seconds, program.environment, functions)
        flags = program.said()["flags"]
    launches = _with_advice(ncu_files.read_launches(raw), ncu_files.read_launches(advice))
    if chosen is None:
        counted = [Counted(launch) for launch in launches]
        note = f"{len(counted)} launches were counted; {100 * left_out:.1f} % of the kernel time is in no one of them"
    else:
        counted = [
            Counted(each, chosen.calls[each.range], chosen.kinds[each.range], chosen.weights[each.range])
            for each in launches
        ]
        note = (
            f"{len(counted)} launches were counted, each operator and shape once, and stand for "
            f"{sum(each.calls for each in counted)} with {100 * chosen.covered:.1f} % of the kernel time; other shapes "
            f"of these operators are in by their time, {100 * chosen.left_out:.1f} % is left out"
        )
    proof.require(flags, trace.rows(_as_trace(counted)))
    return counted, note


def chosen_functions(job: Job, where: torch.device) -> tuple[list[str], float]:
    """The functions of the kernels that have most of the step's kernel time, and the share of the others, 0 to 1.

    Told from a trace of one step on the device. Nsight Compute picks kernels by such a name, without namespaces and
    template arguments.
    """
    found = _traced(job, where, nullcontext)
    times: dict[str, float] = defaultdict(float)
    for kernel in found.kernels:
        if kernel.launch:  # a copy is no kernel
            times[names.function(kernel.name)] += kernel.time_ms
    if not any(times.values()):
        raise CannotRun(FAILED, "the trace of a step has no kernels")
    functions = longest(times, COVERED_BY_FUNCTIONS)
    every = sum(kernel.time_ms for kernel in found.kernels)
    return functions, 1 - sum(times[function] for function in functions) / every


def chosen_operators(job: Job, where: torch.device) -> Chosen:
    """The operators that have most of the step's kernel time, told from a trace of one step on the device."""
    seen: list[Operators] = []

    def noted() -> Operators:
        seen[:] = [Operators(torch.profiler.record_function)]
        return seen[0]

    found = _traced(job, where, noted)
    (operators,) = seen
    times = {each.name: each.time_ms for each in found.ranges if each.name in operators.calls}
    if not any(times.values()):
        raise CannotRun(FAILED, "the trace of a step has no kernels below its operators")
    chosen = longest(times, COVERED)
    every = sum(kernel.time_ms for kernel in found.kernels)

    def by_function(some: Iterable[str]) -> dict[str, float]:
        sums: dict[str, float] = defaultdict(float)
        for name in some:
            sums[operators.described[name]["function"]] += times[name]
        return sums

    counted, all_shapes = by_function(chosen), by_function(times)
    weights = {function: all_shapes[function] / time for function, time in counted.items()}
    return Chosen(
        {name: operators.described[name] for name in chosen},
        {name: operators.calls[name] for name in chosen},
        {name: operators.kinds[name] for name in chosen},
        {name: weights[operators.described[name]["function"]] for name in chosen},
        covered=sum(counted.values()) / every,
        left_out=1 - sum(all_shapes[function] for function in counted) / every,
    )


def _traced(job: Job, where: torch.device, around: Callable[[], AbstractContextManager[object]]) -> trace.Trace:
    """The trace of one step of the job; `around` is called for each step, and gives the context in which it runs."""
    with tempfile.TemporaryDirectory() as temporary, measured_step.built(job, where) as step:
        file = Path(temporary) / "trace.json.gz"

        def run() -> None:
            with around():
                step.run()

        torch_profiler.profile(run, job.get("profile", ProfileConfig).warmup, 1, file, where.type == "cuda")
        return kineto.read(file)


def _with_advice(launches: list[ncu_files.Launch], advised: list[ncu_files.Launch]) -> list[ncu_files.Launch]:
    rules = {launch.number: launch.rules for launch in advised}
    return [replace(launch, rules=rules.get(launch.number, ())) for launch in launches]


def _as_trace(counted: list[Counted]) -> trace.Trace:
    """The kernels with the times that Nsight Compute measured, scaled to all calls of what was counted."""
    found: dict[tuple[str, str | None], tuple[int, float]] = {}
    for each in counted:
        calls, time = found.get((each.launch.kernel, each.launch.launch), (0, 0.0))
        time += counters.time_ns([replace(each, weight=1.0)]) / 1e6
        found[each.launch.kernel, each.launch.launch] = (calls + each.calls, time)
    kernels = [trace.Kernel(name, launch, calls, time) for (name, launch), (calls, time) in found.items()]
    return trace.Trace(PROFILER, tuple(sorted(kernels, key=lambda kernel: -kernel.time_ms)), on_gpu=True)
