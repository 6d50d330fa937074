"""Write the files of cells that do not run: their rows say why."""

import json
from pathlib import Path

from meddpm import tables
from meddpm.config import BASELINE
from meddpm.files import write_csv
from meddpm.stages import bench, counters, profile, sample, timeline
from meddpm.stages.job import Job

ENVIRONMENT = "environment"


def run(cells: str) -> None:
    """Write the files of each of `cells`, a JSON list of {stage, settings, files, cells, status, reason}.

    `settings` are those of the stage's job; `files` are its outputs, each named after its table; `cells` are, for the
    evaluation of a model, the cells that it would have compared.
    """
    for cell in json.loads(cells):
        job = Job(cell["stage"], json.loads(cell["settings"]))
        why = {"status": cell["status"], "reason": cell["reason"]}
        for path in map(Path, cell["files"]):
            if path.stem == ENVIRONMENT:
                tables.write(ENVIRONMENT, [], path)
            elif job.stage == "sample":
                write_csv(path, sample.COLUMNS, [why])
            else:
                rows = _unmeasured(job, path.stem, cell["cells"])
                tables.write(path.stem, [row | why for row in rows], path)


def _unmeasured(job: Job, table: str, compared: list[dict[str, str]]) -> list[tables.Row]:
    """The rows of `table` that the stage would have written, without what is measured."""
    if job.stage == "evaluate":
        return [{**cell, "reference": BASELINE, "metric": "ssim", "region": "whole"} for cell in compared]
    if job.stage == "bench":
        return bench.unmeasured(job)
    return {"profile": profile, "counters": counters, "timeline": timeline}[job.stage].unmeasured(job, table)
