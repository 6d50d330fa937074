"""Jobs that fail on SLURM in every way: each is a row that says why, the report is made, and a second run mends it."""

import signal
from collections.abc import Iterator

import pytest

from tests.rows import rows
from tests.slurm.conftest import Cluster, SlurmCheckout, SmallDisk, forget_logs, signal_job

SOLVER = "dpmpp_2m_4"
TIMING = "results/bench/tiny/CPU/fp32/sample/timing.csv"
TIMING_LOG = "bench/tiny/CPU/fp32/sample.log"
CASES = "results/data/icbm152_tiny/cases.tsv"


def reasons(study: SlurmCheckout) -> dict[str, tuple[str, str]]:
    """Row and variant to the status and reason of their samples in the table of quality, against fp32 or the truth."""
    found = {}
    for row in rows(study.root / "results/tables/quality.csv"):
        found.setdefault(f"{row['gpu']} {row['variant']}", (row["status"], row["reason"]))
    return found


def page(study: SlurmCheckout) -> str:
    return (study.root / "results/report/index.html").read_text(encoding="utf-8")


def begun(study: SlurmCheckout, gpu: str, variant: str) -> bool:
    """Whether the sampling of a cell has begun."""
    return "started on" in study.log("sample/tiny", gpu, variant, f"{SOLVER}.log")


@pytest.fixture(scope="module")
def hung(
    cluster: Cluster, finished: SlurmCheckout, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SlurmCheckout]:
    """A run, begun before the first test of this file, whose only job hangs until SLURM ends it after its minute."""
    study = SlurmCheckout.copy(finished, tmp_path_factory.mktemp("hung") / "a study")
    study.configure("site.yaml", gpus={"CPU": study.site()["gpus"]["CPU"] | {"runtime": 1}})
    forget_logs(study)
    (study.root / TIMING).unlink()
    try:
        run = study.start("--retries", "1", TIMING)
        run.until(lambda: "started on" in study.log(TIMING_LOG), "a job")
        signal_job(study.log(TIMING_LOG), signal.SIGSTOP)
        yield study
    finally:
        for each in study.runs:
            each.kill()
        cluster.tidy(study.root)


@pytest.fixture
def fails(study: SlurmCheckout) -> SlurmCheckout:
    """The finished study with other seeds, so that its cells are sampled again, and faults in the site's file."""
    study.configure("tiny.yaml", sample={"seeds": list(range(1, 6))})
    gpus = study.site()["gpus"]
    faults = {
        "H200": {"device": "cpu", "partition": "gpu-h200", "gpu_model": "h200"},
        "H100": gpus["H100"] | {"constraint": "nowhere"},
        # Otherwise SLURM itself puts the jobs of a node that fails back into the queue, for at least two minutes.
        "A100": gpus["A100"] | {"slurm_extra": "--no-requeue"},
    }
    study.configure("site.yaml", gpus=faults, study={"gpus": ["V100", "A100", "H100", "H200"]})
    forget_logs(study)
    return study


def test_each_failed_cell_is_a_row_with_its_reason_and_a_second_run_makes_them(
    cluster: Cluster, hung: SlurmCheckout, fails: SlurmCheckout
) -> None:
    run = fails.start("--retries", "0")
    cells = [("V100", "fp32"), ("A100", "fp32"), ("A100", "channels_last")]
    run.until(lambda: all(begun(fails, *cell) for cell in cells), "three cells are being sampled")
    (cancelled,) = (job for job in cluster.live(fails.root) if "V100_fp32" in job.cell)
    cluster.cancel(cancelled)
    cluster.node("gpu-a100-01", "DOWN")
    assert run.wait() == 1, run.text
    assert "Traceback" not in run.text
    found = reasons(fails)
    assert found["V100 channels_last"] == ("failed", found["V100 fp32"][1]), "it has no fp32 to be compared with"
    words = {
        "V100 fp32": ("failed", "CANCELLED"),
        "A100 fp32": ("failed", "NODE_FAIL"),
        "A100 channels_last": ("failed", "NODE_FAIL"),
        "H100 fp32": ("failed", "sbatch refused: Invalid feature specification"),
        "H100 channels_last": ("failed", "sbatch refused"),
        "H200 fp32": ("unavailable", "no partition gpu-h200"),
        "H200 channels_last": ("unavailable", "no partition gpu-h200"),
    }
    for cell, (status, reason) in words.items():
        assert found[cell][0] == status, (cell, found[cell])
        assert reason in found[cell][1], (cell, found[cell])
        if status == "failed":
            assert found[cell][1] in run.text, f"{cell}: a line for the user"
        folder = fails.root / "results/samples/tiny" / cell.replace(" ", "/") / SOLVER
        assert not (folder / "samples.csv").exists(), "what failed has no table, not the one from before either"
    assert all(words in page(fails) for words in ("CANCELLED", "NODE_FAIL", "sbatch refused", "no partition gpu-h200"))
    first = cluster.jobs(fails.root)
    done = [job.cell for job in first if job.state == "COMPLETED"]
    assert done == [f"sample tiny_V100_channels_last_{SOLVER}", "evaluate tiny", "report", "archive"], "what could be"

    cluster.mend_nodes()
    fails.configure("site.yaml", gpus={"H100": fails.site()["gpus"]["H100"] | {"constraint": "h100"}})
    second = fails.start()
    assert second.wait() == 0, second.text
    again = [job.cell.removesuffix(f"_{SOLVER}") for job in cluster.jobs(fails.root)[len(first) :]]
    failed = [f"sample tiny_{cell.replace(' ', '_')}" for cell, (status, _) in words.items() if status == "failed"]
    assert sorted(again) == sorted([*failed, "evaluate tiny", "report", "archive"])
    assert {status for cell, (status, _) in reasons(fails).items() if "H200" not in cell} == {"ok"}
    assert {status for cell, (status, _) in reasons(fails).items() if "H200" in cell} == {"unavailable"}


def test_a_job_that_needs_more_memory_is_a_failed_row_or_gets_it_in_a_second_try(
    cluster: Cluster, study: SlurmCheckout
) -> None:
    study.configure("site.yaml", cluster={"stages": study.site()["cluster"]["stages"] | {"mem": 450}})
    before = {path.name for path in (study.root / CASES).parent.glob("*.nii.gz")}
    (study.root / CASES).unlink()
    known = {job.id for job in cluster.jobs(study.root)}
    run = study.start("--retries", "0", CASES)
    assert run.wait() == 1, run.text
    (job,) = (job for job in cluster.jobs(study.root) if job.id not in known)
    assert "memory" in run.text, run.text
    assert not (study.root / CASES).exists()

    second = study.start(CASES)
    assert second.wait() == 0, second.text
    tries = [each for each in cluster.jobs(study.root) if each.id not in known and each.id != job.id]
    assert [each.state for each in tries[:-1]] == ["FAILED"] * (len(tries) - 1)
    assert len(tries) > 1, "the first try had too little memory"
    assert tries[-1].state == "COMPLETED"
    assert [each.memory for each in tries] == [450, 900, 1350][: len(tries)]
    assert {path.name for path in (study.root / CASES).parent.glob("*.nii.gz")} == before


def test_a_partition_that_is_not_there_for_the_stages_is_one_line(cluster: Cluster, study: SlurmCheckout) -> None:
    study.configure("site.yaml", cluster={"stages": study.site()["cluster"]["stages"] | {"partition": "cpus"}})
    submitted = len(cluster.jobs())
    run = study.start()
    assert run.wait() == 1, run.text
    (line,) = (line for line in run.text.splitlines() if "cluster.stages.partition" in line)
    assert "no partition cpus" in line
    assert "right would be" in line or "cpu" in line.split(";")[-1]
    assert "Traceback" not in run.text
    assert len(cluster.jobs()) == submitted


def test_a_study_that_names_no_cluster_is_one_line(cluster: Cluster, study: SlurmCheckout) -> None:
    (study.root / "site.yaml").write_text("{}\n")
    submitted = len(cluster.jobs())
    run = study.start("--forcerun", "report")
    assert run.wait() == 1, run.text
    assert run.text.splitlines()[-1].startswith("--configfile: no file says how the cluster is asked"), run.text
    assert "Traceback" not in run.text
    assert len(cluster.jobs()) == submitted


def test_a_full_disk_is_a_line_and_nothing_half_written_is_taken(
    cluster: Cluster, study: SlurmCheckout, small_disk: SmallDisk
) -> None:
    study.configure("tiny.yaml", sample={"seeds": list(range(10))})
    forget_logs(study)
    target = f"results/samples/tiny/V100/fp32/{SOLVER}/samples.csv"
    small_disk.mount(study.root / "results", leave_kb=2000)
    first = study.start("--retries", "0", target)
    first.until(lambda: "volumes 1 to 1" in study.log("sample/tiny/V100/fp32", f"{SOLVER}.log"), "a volume")
    small_disk.fill()
    assert first.wait() == 1, first.text
    second = study.start(target)
    assert second.wait() == 1, second.text
    for run in study.runs:
        assert "No space left on device; make room" in run.text, run.text
        assert "Traceback" not in run.text
        assert "run.smk" not in run.text, "the workflow itself broke"
    assert len(cluster.jobs(study.root)) == 1, "nothing is submitted where nothing can be written"
    assert not (study.root / target).exists()
    assert not list((study.root / "results/samples").rglob(".*.*.*")), "no half-written file stays"

    small_disk.make_room()
    third = study.start(target)
    assert third.wait() == 0, third.text
    assert "going on: " in study.log("sample/tiny/V100/fp32", f"{SOLVER}.log"), "finished volumes are kept"
    found = rows(study.root / target)
    assert (len(found), {row["status"] for row in found}) == (20, {"ok"})


def test_a_job_that_hangs_is_ended_at_its_time_limit_and_tried_again(cluster: Cluster, hung: SlurmCheckout) -> None:
    (run,) = hung.runs
    assert run.wait() == 0, run.text
    assert [job.state for job in cluster.jobs(hung.root)] == ["TIMEOUT", "COMPLETED"]
    assert "TIMEOUT" in run.text
    assert {row["status"] for row in rows(hung.root / TIMING)} == {"ok"}
