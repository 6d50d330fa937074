"""Write the page and its figures from the tables, the samples and the training records."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from meddpm.config import ReportConfig, repository_root
from meddpm.report.inputs import ReportInputs
from meddpm.report.page import build
from meddpm.stages.job import Job

TABLES = ("timing", "kernels", "quality", "environment", "counters", "priorities", "claims")


def run(
    settings: str,
    tables: Mapping[str, str],
    run_config: Path | str,
    samples: Iterable[Path | str],
    cases: Mapping[str, Path | str],
    datasets: Iterable[Path | str],
    training: Iterable[Path | str],
    page: Path | str,
    figures: Path | str,
) -> None:
    """Write `page` (index.html) and the folder `figures`. `tables` and `cases` give the files by table and by model."""
    job = Job.parse("report", settings)
    inputs = ReportInputs(
        **{name: Path(path) for name, path in tables.items()},
        run_config=Path(run_config),
        figures=Path(figures),
        samples=[Path(path) for path in samples],
        cases={model: Path(path) for model, path in cases.items()},
        datasets=[Path(path) for path in datasets],
        training=[Path(path) for path in training],
        published=repository_root() / "results" / "published",
    )
    # Where no cell has a time there is no figure, but the workflow waits for the folder.
    Path(figures).mkdir(parents=True, exist_ok=True)
    build(inputs, job.get("report", ReportConfig), Path(page).parent)
