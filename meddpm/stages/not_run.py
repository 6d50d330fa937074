"""Write the files of cells that do not run: their rows say why."""

import json
from pathlib import Path

from meddpm import tables
from meddpm.config import BASELINE
from meddpm.files import write_csv
from meddpm.stages import bench, profile, sample
from meddpm.stages.job import Job

TABLES = {"bench": "timing", "profile": "kernels", "evaluate": "quality"}


def run(cells: str) -> None:
    """Write the files of each of `cells`, a JSON list of {stage, settings, files, cells, status, reason}.

    `settings` are those of the stage's job; `files` are its outputs, in their order; `cells` are, for the evaluation of
    a model, the cells that it would have compared.
    """
    for cell in json.loads(cells):
        job = Job(cell["stage"], json.loads(cell["settings"]))
        why = {"status": cell["status"], "reason": cell["reason"]}
        target, *environment = map(Path, cell["files"])
        if job.stage == "sample":
            write_csv(target, sample.COLUMNS, [why])
        else:
            tables.write(TABLES[job.stage], [row | why for row in _unmeasured(job, cell["cells"])], target)
        for path in environment:
            tables.write("environment", [], path)


def _unmeasured(job: Job, compared: list[dict[str, str]]) -> list[tables.Row]:
    """The rows that the stage would have written, without what is measured."""
    if job.stage == "evaluate":
        return [{**cell, "reference": BASELINE, "metric": "ssim", "region": "whole"} for cell in compared]
    return {"bench": bench, "profile": profile}[job.stage].unmeasured(job)
