"""Prepare a dataset: cases as NIfTI pairs, and the table of them."""

from pathlib import Path

from meddpm.config import dataset_from_mapping
from meddpm.data import preparing
from meddpm.stages.job import Job, folder


def run(settings: str, target: Path | str, workers: int) -> None:
    """Write the cases beside `target`, and `target` (cases.tsv) last. Raises UserError where a case stops it."""
    job = Job.parse("prepare", settings)
    dataset, labels = dataset_from_mapping(job.values["dataset_config"]), job.values["labels"]
    preparing.prepare(dataset, tuple(job.values["size"]), folder(target), labels, workers, job.code)
