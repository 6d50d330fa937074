"""The files of a volume that was drawn, and what samples.csv says of them."""

from pathlib import Path

import numpy as np

from meddpm.data import grids, volumes
from meddpm.data.manifest import CaseRow
from meddpm.files import sha256
from meddpm.tables import Row


def write(array: np.ndarray, case: volumes.Case, seed: int, target: Path, on_grid_of: CaseRow | None) -> Row:
    """Write the volume `array` (H, W, D[, C]) of a case and a seed into the folder `target`.

    With the row `on_grid_of` of the case a second time, on the grid of its label map's file, if that is another one.
    The row of samples.csv says which files there are.
    """
    file = target / f"{case.id}_seed{seed}.nii.gz"
    volumes.write(file, array, case.affine)
    original = _on_original_grid(array, case.affine, on_grid_of, file) if on_grid_of else ""
    return {
        "case": case.id,
        "seed": seed,
        "file": file.name,
        "sha256": sha256(file),
        "original_grid_file": original,
    }


def _on_original_grid(array: np.ndarray, affine: np.ndarray, row: CaseRow, file: Path) -> str:
    """Write a volume on the grid of its label map's file, if that is another one; the name of the file, or none."""
    if row.original_affine is None or row.original_shape is None:
        return ""
    grid = np.vstack([np.reshape(row.original_affine, (3, 4)), [0, 0, 0, 1]])
    if row.original_shape == array.shape[:3] and np.allclose(grid, affine, atol=1e-6):
        return ""
    target = file.with_name(file.name.replace(".nii.gz", "_original_grid.nii.gz"))
    volumes.write(target, grids.back(array, affine, row.original_shape, grid), grid)
    return target.name
