"""A whole study on SLURM: each job in the partition of its row, with its GPU and no other."""

import re
from collections import Counter

import pytest

from tests.rows import rows
from tests.slurm.conftest import SlurmCheckout, SlurmJob

# Row of the matrix: partition, node, the GPU asked for.
ROWS = {
    "V100": ("gpu-v100", "gpu-v100-01", "gres:gpu:v100:1"),
    "A100": ("gpu-a100", "gpu-a100-01", "gres:gpu:a100:1"),
    "H100": ("gpu-h100", "gpu-h100-01", "gres:gpu:h100:1"),
    "CPU": ("cpu", "cpu-01", ""),
}
WITHOUT_GPU = ("cpu", "cpu-01", "")
CELLS = [f"{gpu} {variant}" for gpu in ROWS for variant in ("fp32", "channels_last")]
JOBS = {"prepare": 1, "data_qc": 1, "train": 1, "evaluate": 1, "report": 1, "archive": 1} | dict.fromkeys(
    ("sample", "bench", "profile"), len(CELLS)
)


@pytest.fixture
def jobs(finished: SlurmCheckout) -> list[SlurmJob]:
    return finished.jobs


def place(job: SlurmJob) -> tuple[str, str, str]:
    """Where a job ran, and the GPU that it asked for."""
    return job.partition, job.nodes, job.asked


def test_each_job_is_submitted_once_and_the_tables_are_made_without_the_cluster(jobs: list[SlurmJob]) -> None:
    assert Counter(job.cell.split()[0] for job in jobs) == JOBS
    assert len({job.cell for job in jobs}) == len(jobs)
    assert {job.state for job in jobs} == {"COMPLETED"}


def test_each_job_has_the_partition_and_the_gpu_of_its_row(jobs: list[SlurmJob]) -> None:
    found = {job.cell: place(job) for job in jobs}
    for gpu in ROWS:
        of_row = {cell: where for cell, where in found.items() if f" tiny_{gpu}_" in cell}
        assert len(of_row) == (7 if gpu == "V100" else 6), "the cells, and the training in the first row"
        assert set(of_row.values()) == {ROWS[gpu]}, gpu
    others = {
        cell: where for cell, where in found.items() if cell.split()[0] not in ("train", "sample", "bench", "profile")
    }
    assert set(others.values()) == {WITHOUT_GPU}, others


def test_a_stage_that_is_exclusive_has_its_node_alone(jobs: list[SlurmJob]) -> None:
    assert [job.cell for job in jobs if job.alone] == ["train tiny_V100_fp32"]


def test_the_log_of_each_cell_names_the_slurm_job_that_ran_in_its_partition(
    jobs: list[SlurmJob], finished: SlurmCheckout
) -> None:
    by_id = {job.id: job for job in jobs}
    logs = finished.root / "results/logs"
    seen = set()
    for stage in ("train", "sample", "bench", "profile"):
        for path in sorted((logs / stage).rglob("*.log")):
            first, *_, last = path.read_text().splitlines()
            match = re.search(r"started on (\S+), process \d+, SLURM job (\d+)$", first)
            assert match, f"{path}: {first}"
            assert last.endswith("done")
            job = by_id[match[2]]
            parts = [stage, *path.relative_to(logs / stage).with_suffix("").parts]
            assert job.cell == f"{stage} {'_'.join(parts[1:])}"
            assert place(job) == ROWS[parts[2]], path
            seen.add(job.id)
    assert len(seen) == 3 * len(CELLS) + 1


@pytest.mark.parametrize("table", ["timing", "kernels", "quality"])
def test_every_cell_is_in_the_tables(finished: SlurmCheckout, table: str) -> None:
    found = rows(finished.root / f"results/tables/{table}.csv")
    assert {f"{row['gpu']} {row['variant']}" for row in found} == set(CELLS)
    assert {row["status"] for row in found} == {"ok"}


def test_the_page_and_the_archive_are_made(finished: SlurmCheckout) -> None:
    page = (finished.root / "results/report/index.html").read_text()
    assert all(gpu in page for gpu in ROWS)
    assert (finished.root / "results/archive/tiny.zip").stat().st_size > 1000
    assert not list((finished.root / "results").rglob(".*.*.*")), "no file is half written"
