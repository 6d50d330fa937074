"""Prepare a dataset: cases as NIfTI pairs, and the table of them."""

from pathlib import Path

from meddpm import data
from meddpm.config import DatasetConfig
from meddpm.stages.job import Job, folder


def run(settings: str, target: Path | str, workers: int) -> None:
    """Write the cases beside `target`, and `target` (cases.tsv) last."""
    job = Job.parse("prepare", settings)
    data.prepare(job.get("dataset_config", DatasetConfig), tuple(job.values["size"]), folder(target), workers)
