"""Hold every cell's samples against fp32's, the truth, other seeds, and the solver that takes every step."""

from collections import defaultdict
from pathlib import Path

from meddpm import quality, tables
from meddpm.config import EvaluateConfig, UserError
from meddpm.data import manifest, volumes
from meddpm.log import progress
from meddpm.quality.metrics import Measurement
from meddpm.quality.pairing import Cell, Comparison, Seeds, comparisons
from meddpm.quality.truth import Truth
from meddpm.stages import drawn
from meddpm.stages.drawn import Drawn
from meddpm.stages.job import Job
from meddpm.status import OK
from meddpm.tables import Row


def run(settings: str, samples: list[Path], cases: Path | str | None, target: Path | str) -> None:
    """Write the quality table of one model from the samples.csv of its cells, <gpu>/<variant>/<solver>/samples.csv.

    `meddpm.quality.pairing.comparisons` says what is compared with what. A comparison with a cell that has no samples
    is one row with its reason. `cases` is None where the dataset could not be prepared, and no cell ran.
    """
    job = Job.parse("evaluate", settings)
    how = job.get("evaluate", EvaluateConfig)
    cells = {found.cell: found for found in map(drawn.read, samples)}
    ran = [found for found in cells.values() if not found.missing]
    for other in ran[1:]:
        drawn.require_same(ran[0], other)
    several_seeds = any(len(found.seeds) > 1 for found in ran)
    wanted = comparisons(cells, job.values["baseline"], job.values["full_solver"], several_seeds)
    figures = _figures(job, how, [each for each in wanted if not _missing(each, cells)], cells, cases)

    rows: list[Row] = []
    for each in wanted:
        row = {**job.cell("model"), **each.cell._asdict(), "reference": each.reference}
        missing = _missing(each, cells)
        if missing:
            rows.append({**row, "metric": "ssim", "region": "whole", **missing})
            continue
        row |= {"environment": cells[each.cell].environment, "status": OK}
        rows += [row | measured for measured in quality.quality_rows(figures[each], how)]
    tables.write("quality", rows, target)


def _missing(comparison: Comparison, cells: dict[Cell, Drawn]) -> Row | None:
    """Status and reason where one side of a comparison did not run."""
    return cells[comparison.cell].missing or cells[comparison.other].missing


def _figures(
    job: Job, how: EvaluateConfig, possible: list[Comparison], cells: dict[Cell, Drawn], cases: Path | str | None
) -> dict[Comparison, list[Measurement]]:
    """The figures of each comparison, over all cases.

    Case by case and variant by variant, so that each file is read once and few volumes are held: those of a variant
    and, because every variant is compared with it, of the baseline.
    """
    figures: dict[Comparison, list[Measurement]] = {each: [] for each in possible}
    if not possible or cases is None:
        return figures
    variants: dict[tuple[str, str], list[Comparison]] = defaultdict(list)
    for each in possible:
        variants[each.cell.gpu, each.cell.variant].append(each)
    rows = _cases(possible, cells, cases)
    for number, row in enumerate(rows, 1):
        truth = _truth(job, how, cases, row)
        held: dict[Cell, Seeds] = {}
        what = f"case {number} of {len(rows)}, variants"
        for (gpu, _), of_variant in progress(variants.items(), len(variants), what):
            held = {cell: held[cell] for cell in held if cell[:2] == (gpu, job.values["baseline"])}
            for each in of_variant:
                for cell in {each.cell, each.other} - held.keys():
                    held[cell] = cells[cell].of_case(row.id)
                figures[each] += each.figures(held[each.cell], held[each.other], truth, how)
    return figures


def _cases(possible: list[Comparison], cells: dict[Cell, Drawn], cases: Path | str) -> list[manifest.CaseRow]:
    """The rows of the table of cases that the samples were drawn for."""
    known = {row.id: row for row in manifest.read(cases)}
    names = cells[possible[0].cell].cases
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UserError(f"{cases}: lacks the case {unknown[0]} that samples were drawn for; draw them again")
    return [known[name] for name in names]


def _truth(job: Job, how: EvaluateConfig, cases: Path | str, row: manifest.CaseRow) -> Truth:
    case = manifest.load_case(cases, row)
    image = None if case.image is None else volumes.to_tensor_axes(case.image)
    return Truth(image, volumes.to_tensor_axes(case.label)[0], dict(job.values["tissues"]), how)
