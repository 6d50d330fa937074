"""Prepare a dataset: cases as NIfTI pairs, and the table of them."""

import sys
from pathlib import Path

from meddpm.config import dataset_from_mapping
from meddpm.data import manifest, preparing
from meddpm.data.tasks import Goal
from meddpm.stages.job import Job, folder

# Warnings that are shown where the workflow was started; all of them are in the log, the table and on the page.
SHOWN = 5


def run(settings: str, target: Path | str, workers: int) -> None:
    """Write the cases beside `target`, and `target` (cases.tsv) last; say on standard error what to look at.

    Raises UserError where a case that cannot be used stops the dataset, or there is none.
    """
    job = Job.parse("prepare", settings)
    dataset, goal = dataset_from_mapping(job.values["dataset_config"]), job.get("goal", Goal)
    table = preparing.prepare(dataset, goal, folder(target), workers, job.code)
    lines = manifest.warnings(table)
    lines += [f"{row.id}: {text}" for row in manifest.read_all(table) for text in (*row.warnings, row.reason) if text]
    if lines:
        more = [f"... and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
        head = f"WARNING: look at the dataset {job.values['dataset']} before you use it ({table.with_name('qc.html')}):"
        print("\n  ".join([head, *lines[:SHOWN], *more]), file=sys.stderr)
