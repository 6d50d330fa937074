"""Time one cell: one model, GPU, variant and phase, each solver of the study a row."""

import copy
import functools
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from meddpm import bench, device, tables, variants
from meddpm.config import BenchConfig, GpuConfig, ModelConfig, SolverConfig, TrainConfig, VariantConfig, from_mapping
from meddpm.diffusion import solvers
from meddpm.files import write_json
from meddpm.log import logger
from meddpm.model import build_model
from meddpm.stages import network
from meddpm.stages.job import Job, folder, not_run
from meddpm.status import FAILED, OK, CannotRun
from meddpm.tables import Row
from meddpm.training import step as training

Step = Callable[[], None]
INPUT_SEED = 0


def run(settings: str, target: Path | str, environment: Path | str, threads: int) -> None:
    """Write the cell's rows of the timing table to `target` and its row of the environment table to `environment`."""
    job = Job.parse("bench", settings)
    torch.set_num_threads(threads)
    cell = job.cell("model", "gpu", "variant", "phase")
    environment_rows: list[Row] = []
    known: Row = {}
    measure = _train_rows if cell["phase"] == "train" else _sample_rows
    try:
        with device.claimed(job.get("gpu_config", GpuConfig), cell["gpu"]) as where:
            environment_rows = [job.environment(where)]
            known = {"environment": environment_rows[0]["environment"], "device_name": device.name(where)}
            with network.device_errors():
                measured = measure(job, where, target)
        note = variants.note(job.get("variant_config", VariantConfig), where)
        rows = [{**cell, **known, **row, "reason": note} for row in measured]
    except CannotRun as reason:
        logger.info("%s: %s", reason.status, reason.reason)
        rows = [{**row, **known, **not_run(reason)} for row in unmeasured(job)]
    tables.write("timing", rows, target)
    tables.write("environment", environment_rows, environment)


def unmeasured(job: Job) -> list[Row]:
    """The rows of a cell, each solver of the study one, without what is measured."""
    cell = job.cell("model", "gpu", "variant", "phase")
    return [{**cell, "solver": solver} for solver in list(job.values["solvers"]) or [None]]


def _sample_rows(job: Job, where: torch.device, target: Path | str) -> list[Row]:
    """One row a solver: a step is one evaluation of the network and one step of the solver."""
    config, how = job.get("model_config", ModelConfig), job.get("bench", BenchConfig)
    generator = torch.Generator().manual_seed(INPUT_SEED)
    sample = torch.randn((how.batch, *config.shape), generator=generator)
    labels = torch.randint(2, (how.batch, len(config.condition_labels), *config.shape[1:]), generator=generator)
    low, high = config.condition_range
    inputs = torch.cat([sample, low + (high - low) * labels], dim=1).to(where)

    model = network.load(config, None)
    rows = []
    with torch.no_grad():
        fp32 = _Sampler(job.get("baseline_config", VariantConfig), where, copy.deepcopy(model), inputs)
        start = time.monotonic()
        sampler = _Sampler(job.get("variant_config", VariantConfig), where, model, inputs)
        setup_s = time.monotonic() - start
        error = _require_same(sampler.output, fp32.output, how.max_relative_error)
        flags = {"fp32": fp32.flags, "variant": sampler.flags, "relative_error_of_one_evaluation": error}
        write_json(folder(target) / "flags.json", flags)
        for name, raw in job.values["solvers"].items():
            solver_config = from_mapping(SolverConfig, raw)
            sides = [
                bench.Side(_solver_step(one.network, solvers.build(solver_config, config), inputs, config), one.active)
                for one in (fp32, sampler)
            ]
            before, after = bench.compare(*sides, where, how, fp32.resident_gib)
            evaluations = len(solvers.build(solver_config, config).timesteps)
            rows.append(
                {
                    "solver": name,
                    "evaluations": evaluations,
                    "volume_s": evaluations * after.percentile(50) / 1000 / how.batch,
                    "energy_j_per_volume": _times(after.energy_j_per_step, evaluations / how.batch),
                    **_columns(before, after, config, how, setup_s),
                }
            )
    return rows


class _Sampler:
    """A network under a variant, set up by one evaluation at t = 0 of inputs (B, C + K, D, W, H)."""

    def __init__(
        self, variant: VariantConfig, where: torch.device, model: torch.nn.Module, inputs: torch.Tensor
    ) -> None:
        self.active = functools.partial(variants.applied, variant, where)
        with self.active() as applied:
            self.network = applied.network(model)
            self.output = self.network(inputs, torch.zeros(len(inputs), dtype=torch.long, device=where))
            self.flags = applied.flags()
        bench.synchronize(where)
        self.resident_gib = bench.resident_gib(where)


def _solver_step(network: variants.Network, solver: solvers.Solver, inputs: torch.Tensor, config: ModelConfig) -> Step:
    """One step of the sampler on `inputs`, a step further along the trajectory at each call."""
    noise = inputs[:, : config.image_channels].clone()
    timesteps = [torch.full((len(inputs),), step, device=inputs.device) for step in solver.timesteps]
    order = itertools.cycle(range(len(timesteps)))

    def step() -> None:
        index = next(order)
        if index == 0:
            solver.reset()
        solver.step(index, network(inputs, timesteps[index]), noise, noise if solver.draws_noise else None)

    return step


def _train_rows(job: Job, where: torch.device, target: Path | str) -> list[Row]:
    """One row: a step is one forward and backward pass of one batch and one update by Adam."""
    config, how = job.get("model_config", ModelConfig), job.get("bench", BenchConfig)
    generator = torch.Generator().manual_seed(INPUT_SEED)
    shape = (how.batch, *config.shape)
    image, noise = torch.rand(shape, generator=generator) * 2 - 1, torch.randn(shape, generator=generator)
    condition = torch.rand((how.batch, len(config.condition_labels), *shape[2:]), generator=generator)
    t = torch.randint(config.steps, (how.batch,), generator=generator)
    batch = tuple(tensor.to(where) for tensor in (image, condition, t, noise))

    def build(variant: VariantConfig) -> tuple[bench.Side, dict[str, Any]]:
        active = functools.partial(variants.applied, variant, where, training=True)
        with active() as applied:
            training_step = training.Step(build_model(config).train(), config, TrainConfig(accumulation=1), applied)

            def step() -> None:
                training_step(lambda: batch)

            step()  # gradients and Adam's moments are there from the first step on
            bench.synchronize(where)
            return bench.Side(step, active), applied.flags()

    fp32, fp32_flags = build(job.get("baseline_config", VariantConfig))
    resident = bench.resident_gib(where)
    start = time.monotonic()
    side, flags = build(job.get("variant_config", VariantConfig))
    setup_s = time.monotonic() - start
    write_json(folder(target) / "flags.json", {"fp32": fp32_flags, "variant": flags})
    before, after = bench.compare(fp32, side, where, how, resident)
    energy = _times(after.energy_j_per_step, 1)
    return [{"solver": None, "energy_j_per_volume": energy, **_columns(before, after, config, how, setup_s)}]


def _require_same(output: torch.Tensor, reference: torch.Tensor, largest: float) -> float:
    """The relative error, after CannotRun if it is too large.

    Compilers and libraries have been silently wrong for 3D convolutions: nothing wrong is timed.
    """
    error = float(torch.linalg.vector_norm(output - reference) / torch.linalg.vector_norm(reference))
    if not error <= largest:  # a NaN fails too
        raise CannotRun(
            FAILED, f"wrong result: relative error {error:.3g} of one evaluation against fp32, more than {largest}"
        )
    return error


def _columns(before: bench.Timing, after: bench.Timing, config: ModelConfig, how: BenchConfig, setup_s: float) -> Row:
    return {
        "shape": "x".join(str(side) for side in config.shape),
        "batch": how.batch,
        "repeats": len(after.step_ms),
        "step_ms_median": after.percentile(50),
        "step_ms_p05": after.percentile(5),
        "step_ms_p95": after.percentile(95),
        "fp32_step_ms_median": before.percentile(50),
        "speedup": before.percentile(50) / after.percentile(50),
        "peak_memory_gib": after.peak_memory_gib,
        "setup_s": setup_s,
        "status": OK,
    }


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
