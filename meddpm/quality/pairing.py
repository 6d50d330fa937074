"""Which samples are held against which, and by what figures."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from meddpm.config import EvaluateConfig
from meddpm.quality import ANOTHER_SEED, TRUE_IMAGE, same_noise, same_noise_and_mask
from meddpm.quality.metrics import Measurement, compare, similarity
from meddpm.quality.truth import Truth

# The volumes (C, D, W, H) of one cell and case by seed.
Seeds = dict[str, np.ndarray]
Measure = Callable[[Seeds, Seeds, Truth, EvaluateConfig], Iterator[Measurement]]


class Cell(NamedTuple):
    """What drew some samples."""

    gpu: str
    variant: str
    solver: str


class Comparison(NamedTuple):
    """The samples of `cell` held against something called `reference`.

    `other` is the cell whose samples that takes; it is `cell` where it takes none but its own. `measure` gives the
    figures of one case from the volumes of both.
    """

    cell: Cell
    other: Cell
    reference: str
    measure: Measure

    def figures(self, own: Seeds, others: Seeds, truth: Truth, settings: EvaluateConfig) -> list[Measurement]:
        """The figures of one case, each with its reference."""
        found = self.measure(own, others, truth, settings)
        return [entry if entry.reference else entry._replace(reference=self.reference) for entry in found]


def comparisons(cells: Iterable[Cell], baseline: str, full_solver: str | None, several_seeds: bool) -> list[Comparison]:
    """What is to be compared, cell by cell.

    Each cell with that of the `baseline` variant, with the truth, with its own other seeds where there are several,
    and with that of the `full_solver`, which takes every step of the model, where the study has one.
    """
    found = []
    for cell in cells:
        if cell.variant != baseline:
            other = cell._replace(variant=baseline)
            found.append(Comparison(cell, other, same_noise(baseline), _each_seed))
        found.append(Comparison(cell, cell, TRUE_IMAGE, _truth))
        if several_seeds:
            found.append(Comparison(cell, cell, ANOTHER_SEED, _first_seed))
        if full_solver and cell.solver != full_solver:
            other = cell._replace(solver=full_solver)
            found.append(Comparison(cell, other, same_noise_and_mask(full_solver), _each_seed_by_ssim))
    return found


def _each_seed(own: Seeds, others: Seeds, truth: Truth, settings: EvaluateConfig) -> Iterator[Measurement]:
    for seed, volume in own.items():
        yield from compare(volume, others[seed], truth.mask, settings)


def _each_seed_by_ssim(own: Seeds, others: Seeds, truth: Truth, settings: EvaluateConfig) -> Iterator[Measurement]:
    for seed, volume in own.items():
        yield from similarity(volume, others[seed], truth.mask, settings)


def _first_seed(own: Seeds, others: Seeds, truth: Truth, settings: EvaluateConfig) -> Iterator[Measurement]:
    first, *rest = own.values()
    for volume in rest:
        yield from similarity(volume, first, truth.mask, settings)


def _truth(own: Seeds, others: Seeds, truth: Truth, settings: EvaluateConfig) -> Iterator[Measurement]:
    for volume in own.values():
        yield from truth.figures(volume)
    # Once a case, however many seeds: they are figures of the case.
    yield from truth.yardsticks
