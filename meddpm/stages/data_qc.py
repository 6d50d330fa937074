"""Write the page that shows each case of a dataset."""

from pathlib import Path

from meddpm.report import cases_page
from meddpm.stages.job import Job, folder


def run(settings: str, cases: Path | str, target: Path | str) -> None:
    """Write `target` from the table `cases` (cases.tsv) and the volumes beside it."""
    job = Job.parse("data_qc", settings)
    folder(target)
    cases_page.write(Path(cases), Path(target), job.values["dataset"])
