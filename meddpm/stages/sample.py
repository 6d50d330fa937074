"""Draw the volumes of one cell: every case and seed of one model, GPU, variant and solver."""

import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from meddpm import data, device, interrupt, sampling, tables, variants
from meddpm.config import GpuConfig, ModelConfig, SampleConfig, SolverConfig, UserError, VariantConfig
from meddpm.data import conditions, manifest, volumes
from meddpm.diffusion import noise, solvers
from meddpm.files import remove_abandoned, write_csv, write_json
from meddpm.log import logger, progress
from meddpm.stages import network, volume_files
from meddpm.stages.finished import Finished, identity
from meddpm.stages.job import Job, folder, not_run
from meddpm.status import FAILED, OK, CannotRun
from meddpm.tables import Row

COLUMNS = ["case", "seed", "file", "sha256", "original_grid_file", "seconds", "status", "reason"]

Pair = tuple[manifest.CaseRow, int]
"""A case and a seed: one volume."""


def run(
    settings: str,
    cases: Path | str,
    weights: Path | str | None,
    target: Path | str,
    environment: Path | str,
    threads: int,
) -> None:
    """Write a NIfTI volume for every case and seed beside `target`, and `target` (samples.csv) last.

    A cell that cannot run is one row with its status and reason. `environment` gets the row of the environment table.
    Volumes that an earlier try of the same job finished are kept: their record stays, also when all are there, because
    Snakemake runs a job again that ended after Snakemake itself was killed. Raises UserError when asked to stop.
    """
    job = Job.parse("sample", settings)
    torch.set_num_threads(threads)
    place = folder(target)
    remove_abandoned(place)
    environment_rows: list[Row] = []
    try:
        with device.claimed(job.get("gpu_config", GpuConfig), job.values["gpu"]) as where:
            environment_rows = [job.environment(where)]
            with variants.applied(job.get("variant_config", VariantConfig), where) as applied, network.device_errors():
                wanted = _wanted(Path(cases), job.get("sample", SampleConfig))
                known = identity(job, weights, [row for row, _ in wanted], environment_rows[0], threads)
                finished = Finished(place, known)
                _draw(job, applied, Path(cases), weights, wanted, finished)
                rows = [finished.rows[row.id, seed] for row, seed in wanted]
                write_json(place / "flags.json", applied.flags())
    except CannotRun as reason:
        logger.info("%s: %s", reason.status, reason.reason)
        rows = [not_run(reason)]
    tables.write("environment", environment_rows, environment)
    write_csv(target, COLUMNS, rows)


def _draw(
    job: Job, applied: variants.Applied, cases: Path, weights: Path | str | None, wanted: list[Pair], finished: Finished
) -> None:
    """Draw and write every volume of `wanted` that is not finished, and record each batch."""
    config, which = job.get("model_config", ModelConfig), job.get("sample", SampleConfig)
    if finished.rows:
        logger.info("going on: %d of %d volumes were drawn before", len(finished.rows), len(wanted))
    # A volume that was lost is drawn in the batch that it was in: another batch rounds in another way.
    batches = [(first, wanted[first : first + which.batch]) for first in range(0, len(wanted), which.batch)]
    left = [each for each in batches if any((row.id, seed) not in finished.rows for row, seed in each[1])]
    if not left:
        return
    with interrupt.noted() as asked:
        net = applied.network(network.load(config, weights))
        solver = solvers.build(job.get("solver_config", SolverConfig), config)

        def go_on() -> None:
            if asked():
                cell = "/".join(job.cell("model", "gpu", "variant", "solver").values())
                done = f"stopped by {asked()} after {len(finished.rows)} of {len(wanted)} volumes"
                raise UserError(f"{cell}: {done}; the same command goes on from there")

        for first, pairs in left:
            batch = [(data.load_case(cases, row), seed) for row, seed in pairs]
            what = f"volumes {first + 1} to {first + len(batch)} of {len(wanted)}"
            start = time.monotonic()
            drawn = _draw_batch(
                net, solver, applied, batch, config, functools.partial(_steps, what=what, go_on=go_on, applied=applied)
            )
            timed = {"seconds": round((time.monotonic() - start) / len(batch), 3), "status": OK}
            finished.add(
                volume_files.write(array, case, seed, finished.folder, row if which.original_grid else None) | timed
                for array, (row, _), (case, seed) in zip(drawn, pairs, batch, strict=True)
                if (case.id, seed) not in finished.rows
            )


def _draw_batch(
    net: variants.Network,
    solver: solvers.Solver,
    applied: variants.Applied,
    batch: list[tuple[volumes.Case, int]],
    config: ModelConfig,
    steps: sampling.Progress,
) -> list[np.ndarray]:
    """The volume (H, W, D[, C]) of each case and seed. Raises CannotRun where one is not finite."""
    condition = np.stack([conditions.encode(case.label, config) for case, _ in batch])
    noises = functools.partial(_noise, applied, batch, config)
    drawn = sampling.draw(net, applied.tensor(torch.from_numpy(condition)), solver, noises, steps).cpu()
    if not torch.isfinite(drawn).all():
        raise CannotRun(FAILED, "the volumes hold values that are not finite: look at the weights or the precision")
    return [volumes.from_tensor_axes(volume.numpy()) for volume in drawn]


def _steps(timesteps: list[int], what: str, go_on: Callable[[], None], applied: variants.Applied) -> Iterator[int]:
    """The timesteps, with progress; before each one `go_on` may raise to end the drawing."""
    for timestep in progress(timesteps, len(timesteps), what):
        go_on()
        yield timestep
        if applied.device.type == "cuda":
            torch.cuda.synchronize()  # else a CUDA graph is asked for all steps before the first one is done


def _wanted(cases: Path, which: SampleConfig) -> list[Pair]:
    """The cases and seeds to draw, in their order. Raises UserError where the table lists too few cases."""
    known = manifest.read(cases)
    if len(known) < which.cases:
        raise UserError(
            f"{cases}: has {len(known)} cases that can be used where sample.cases asks for {which.cases}; lower "
            f"sample.cases to {len(known)}, or add cases"
        )
    return [(row, seed) for row in known[: which.cases] for seed in which.seeds]


def _noise(
    applied: variants.Applied, batch: list[tuple[volumes.Case, int]], config: ModelConfig, draw: int
) -> torch.Tensor:
    """The `draw`-th noise of each (case, seed) as one batch (B, C, D, W, H) on the device."""
    each = [noise.gaussian(case.id, seed, draw, config.shape) for case, seed in batch]
    return applied.tensor(torch.from_numpy(np.stack(each)))
