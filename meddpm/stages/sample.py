"""Draw the volumes of one cell: every case and seed of one model, GPU, variant and solver."""

import functools
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from meddpm import data, device, sampling, tables, variants
from meddpm.config import GpuConfig, ModelConfig, SampleConfig, SolverConfig, UserError, VariantConfig
from meddpm.data import conditions, grids, manifest, volumes
from meddpm.diffusion import noise, solvers
from meddpm.files import sha256, write_csv, write_json
from meddpm.log import logger, progress
from meddpm.stages import network
from meddpm.stages.job import Job, folder, not_run
from meddpm.status import FAILED, OK, CannotRun
from meddpm.tables import Row

COLUMNS = ["case", "seed", "file", "sha256", "original_grid_file", "seconds", "status", "reason"]


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
    """
    job = Job.parse("sample", settings)
    torch.set_num_threads(threads)
    environment_rows: list[Row] = []
    try:
        where = device.resolve(job.get("gpu_config", GpuConfig))
        environment_rows = [job.environment(where)]
        with variants.applied(job.get("variant_config", VariantConfig), where) as applied, network.device_errors():
            rows = _draw(job, applied, Path(cases), weights, folder(target))
            write_json(folder(target) / "flags.json", applied.flags())
    except CannotRun as reason:
        logger.info("%s: %s", reason.status, reason.reason)
        rows = [not_run(reason)]
    tables.write("environment", environment_rows, environment)
    write_csv(target, COLUMNS, rows)


def _draw(
    job: Job, applied: variants.Applied, cases: Path, weights: Path | str | None, target: Path
) -> list[dict[str, Any]]:
    """Draw and write every volume that the job asks for; the rows of samples.csv."""
    config, which = job.get("model_config", ModelConfig), job.get("sample", SampleConfig)
    solver = solvers.build(job.get("solver_config", SolverConfig), config)
    net = applied.network(network.load(config, weights))
    wanted = _wanted(cases, which)
    rows = []
    for first in range(0, len(wanted), which.batch):
        batch = [(row, data.load_case(cases, row), seed) for row, seed in wanted[first : first + which.batch]]
        condition = np.stack([conditions.encode(case.label, config) for _, case, _ in batch])
        what = f"volumes {first + 1} to {first + len(batch)} of {len(wanted)}"
        start = time.monotonic()
        drawn = sampling.draw(
            net,
            applied.tensor(torch.from_numpy(condition)),
            solver,
            functools.partial(_noise, applied, batch, config),
            functools.partial(progress, total=len(solver.timesteps), what=what),
        ).cpu()
        seconds = (time.monotonic() - start) / len(batch)
        if not torch.isfinite(drawn).all():
            raise CannotRun(FAILED, "the volumes hold values that are not finite: look at the weights or the precision")
        for volume, (row, case, seed) in zip(drawn, batch, strict=True):
            file = target / f"{case.id}_seed{seed}.nii.gz"
            array = volumes.from_tensor_axes(volume.numpy())
            volumes.write(file, array, case.affine)
            original = _on_original_grid(array, case.affine, row, file) if which.original_grid else ""
            written = {"file": file.name, "sha256": sha256(file), "original_grid_file": original}
            rows.append({"case": case.id, "seed": seed, **written, "seconds": round(seconds, 3), "status": OK})
    return rows


def _on_original_grid(array: np.ndarray, affine: np.ndarray, row: manifest.CaseRow, file: Path) -> str:
    """Write a volume on the grid of its label map's file, if that is another one; the name of the file, or none."""
    if row.original_affine is None or row.original_shape is None:
        return ""
    grid = np.vstack([np.reshape(row.original_affine, (3, 4)), [0, 0, 0, 1]])
    if row.original_shape == array.shape[:3] and np.allclose(grid, affine, atol=1e-6):
        return ""
    target = file.with_name(file.name.replace(".nii.gz", "_original_grid.nii.gz"))
    volumes.write(target, grids.back(array, affine, row.original_shape, grid), grid)
    return target.name


def _wanted(cases: Path, which: SampleConfig) -> list[tuple[manifest.CaseRow, int]]:
    """The cases and seeds to draw, in their order. Raises UserError where the table lists too few cases."""
    known = manifest.read(cases)
    if len(known) < which.cases:
        raise UserError(
            f"{cases}: has {len(known)} cases that can be used where sample.cases asks for {which.cases}; lower "
            f"sample.cases to {len(known)}, or add cases"
        )
    return [(row, seed) for row in known[: which.cases] for seed in which.seeds]


def _noise(
    applied: variants.Applied, batch: list[tuple[manifest.CaseRow, volumes.Case, int]], config: ModelConfig, draw: int
) -> torch.Tensor:
    """The `draw`-th noise of each (case, seed) as one batch (B, C, D, W, H) on the device."""
    each = [noise.gaussian(case.id, seed, draw, config.shape) for _, case, seed in batch]
    return applied.tensor(torch.from_numpy(np.stack(each)))
