"""A run that is ended from outside, on SLURM: no job is left or doubled, and the next run goes on."""

import json
import re
import resource
import shutil
import signal
import time

import pytest

from tests.slurm.conftest import NODES, Cluster, Run, SlurmCheckout, forget_logs, signal_job, until

SOLVER = "dpmpp_2m_4"
TRAINED = "results/train/tiny/V100/fp32"


def samples(gpu: str, variant: str = "fp32") -> str:
    return f"results/samples/tiny/{gpu}/{variant}/{SOLVER}/samples.csv"


def log_of(study: SlurmCheckout, gpu: str, variant: str = "fp32") -> str:
    return study.log("sample/tiny", gpu, variant, f"{SOLVER}.log")


def slow(study: SlurmCheckout, volumes: int) -> SlurmCheckout:
    """The study with a sampling of so many volumes a cell."""
    study.configure("tiny.yaml", sample={"cases": 1, "seeds": list(range(volumes))})
    forget_logs(study)
    return study


def test_a_training_that_reaches_its_time_limit_or_ctrl_c_goes_on_from_its_checkpoint(
    cluster: Cluster, study: SlurmCheckout
) -> None:
    steps = 1_000_000
    study.configure("tiny.yaml", train={"steps": steps})
    site = study.site()
    study.configure(
        "site.yaml", gpus={"V100": site["gpus"]["V100"] | {"runtime": 1}}, cluster=site["cluster"] | {"warning_s": 10}
    )
    forget_logs(study)
    shutil.rmtree(study.root / TRAINED)
    target = f"{TRAINED}/weights.safetensors"
    # SLURM looks at the limits twice a minute: the first job is told to stop, the second one goes on.
    run = study.start("--retries", "1", target)

    def log() -> str:
        return study.log("train/tiny/V100/fp32.log")

    run.until(lambda: "going on after step" in log(), "the second try goes on", 150)
    first, second = cluster.jobs(study.root)
    assert (first.state, second.state) == ("FAILED", "RUNNING")
    reached = int(re.search(r"going on after step (\d+)", log())[1])
    assert reached > 0
    run.until(lambda: "training step" in log(), "steps of the second try")

    run.signal(signal.SIGINT)
    assert run.wait(60) != 0
    until(lambda: not cluster.live(study.root), 30, "the end of the job that Ctrl-C cancelled")
    assert cluster.jobs(study.root)[-1].state == "CANCELLED"
    assert f"of {steps}; the same command goes on from there" in log()
    stopped = int(re.search(r"stopped at step (\d+)", log())[1])
    assert stopped > reached
    assert not (study.root / target).exists()
    assert "Traceback" not in run.text

    study.configure("tiny.yaml", train={"steps": stopped + 3})
    study.configure("site.yaml", gpus={"V100": site["gpus"]["V100"]})  # with time enough on a busy machine
    third = study.start(target)
    assert third.wait() == 0, third.text
    record = json.loads((study.root / TRAINED / "training.json").read_text())
    assert (record["steps"], record["continued_after_step"]) == (stopped + 3, stopped)
    assert len(cluster.jobs(study.root)) == 3


def test_snakemake_killed_the_next_start_cancels_its_jobs_and_submits_each_cell_once(
    cluster: Cluster, study: SlurmCheckout
) -> None:
    slow(study, 20)
    targets = [samples(gpu) for gpu in ("V100", "A100")]
    first = study.start(*targets)
    for gpu in ("V100", "A100"):
        first.until(lambda gpu=gpu: "volumes 2 to 2" in log_of(study, gpu), f"volumes of {gpu}")
        # Held, so that it is there still when the second start looks.
        signal_job(log_of(study, gpu), signal.SIGSTOP)
    first.kill()
    dead = cluster.live(study.root)
    assert len(dead) == 2, "the jobs outlive Snakemake"

    refused = study.start(*targets)
    assert refused.wait() != 0
    assert "--unlock" in refused.text
    assert "Traceback" not in refused.text
    assert cluster.live(study.root) == dead, "a start that is refused touches no job"

    unlocked = study.start("--unlock")
    assert unlocked.wait() == 0, unlocked.text
    assert {job.id for job in cluster.live(study.root)} == {job.id for job in dead}

    second = study.start(*targets)

    def ended() -> bool:
        lives = cluster.live(study.root)
        assert len({job.cell for job in lives}) == len(lives), f"a cell runs twice: {lives}"
        return second.process.poll() is not None

    until(ended, 240, "the end of the second run")
    assert second.wait() == 0, second.text
    before, after = cluster.jobs(study.root)[:2], cluster.jobs(study.root)[2:]
    assert {job.state for job in before} == {"CANCELLED"}
    assert {job.state for job in after} == {"COMPLETED"}
    assert sorted(job.cell for job in after) == sorted(job.cell for job in dead), "each once"
    for gpu in ("V100", "A100"):
        going_on = re.search(r"going on: (\d+) of 20 volumes were drawn before", log_of(study, gpu))
        assert going_on, "finished volumes are kept"
        assert int(going_on[1]) >= 1
        assert len((study.root / samples(gpu)).read_text().splitlines()) == 21


def test_a_second_start_is_refused_and_the_controller_may_restart_under_the_first(
    cluster: Cluster, study: SlurmCheckout
) -> None:
    slow(study, 20)
    first = study.start(samples("H100"))
    first.until(lambda: "volumes 1 to 1" in log_of(study, "H100"), "a volume")
    signal_job(log_of(study, "H100"), signal.SIGSTOP)
    second = study.start(samples("H100"))
    assert second.wait(60) != 0
    assert "--unlock" in second.text
    assert "Traceback" not in second.text
    assert first.process.poll() is None
    assert [job.state for job in cluster.jobs(study.root)] == ["RUNNING"]

    # The job is held meanwhile: the steps of one that ends without a controller tell it so a minute later.
    cluster.stop_controller()
    try:
        time.sleep(15)  # SLURM's commands try for ten seconds before they give up
        assert first.process.poll() is None, first.text
    finally:
        cluster.start_controller()
    signal_job(log_of(study, "H100"), signal.SIGCONT)
    assert first.wait(120) == 0, first.text
    (job,) = cluster.jobs(study.root)
    assert job.state == "COMPLETED"


def test_jobs_that_the_queue_has_forgotten_are_taken_by_their_files(cluster: Cluster, study: SlurmCheckout) -> None:
    slow(study, 2)
    (study.root / samples("V100")).unlink()
    (study.root / samples("A100")).unlink()
    run = study.start("--retries", "0", samples("V100"), samples("A100"))
    run.until(lambda: "started on" in log_of(study, "V100") and "started on" in log_of(study, "A100"), "both jobs")
    # Snakemake does not look while they end and are forgotten.
    run.signal(signal.SIGSTOP)
    (cancelled,) = (job for job in cluster.live(study.root) if "A100" in job.cell)
    cluster.cancel(cancelled)
    with cluster.forgetful():
        until(lambda: not cluster.jobs(study.root), 150, "a controller that knows none of them")
        run.signal(signal.SIGCONT)
        assert run.wait(60) == 1, run.text
    assert (study.root / samples("V100")).is_file()
    assert not (study.root / samples("A100")).exists()
    assert run.text.count("Finished jobid") == 1, run.text
    assert "sample tiny A100" in run.text, "the line of what failed"
    assert "Traceback" not in run.text


CELLS = 200


def with_cells(study: SlurmCheckout, cells: int) -> SlurmCheckout:
    """The study with so many cells to sample: 4 rows, 2 variants, and a solver for each 8."""
    names = range(100, 100 + cells // 8)
    solvers = {f"dpmpp_2m_{n}": {"kind": "dpmpp_2m", "evaluations": 4, "skip_first": n % 5} for n in names}
    study.configure("tiny.yaml", solvers=solvers, study={"solvers": list(solvers)})
    return study


@pytest.fixture
def large(study: SlurmCheckout) -> SlurmCheckout:
    return with_cells(study, CELLS)


def planning_s(study: SlurmCheckout, cells: int) -> float:
    """The seconds of CPU time that the plan of the study with so many cells takes."""
    with_cells(study, cells)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    planned = study.planned()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert planned["sample"] == cells
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_the_plan_of_200_cells_takes_little_longer_than_that_of_16(study: SlurmCheckout) -> None:
    # Against each other, since machines differ. On a machine of today they take 3 and 4 s.
    few, many = planning_s(study, 16), planning_s(study, CELLS)
    assert many < 2 * few, f"{few:.1f} and {many:.1f} s of CPU time"


def ended_by_ctrl_c(cluster: Cluster, study: SlurmCheckout, run: Run) -> None:
    """Press Ctrl-C; no job is left, and none comes later."""
    run.signal(signal.SIGINT)
    assert run.wait(60) != 0
    until(lambda: not cluster.live(study.root), 30, "an empty queue")
    time.sleep(3)
    assert not cluster.live(study.root)
    assert {job.state for job in cluster.jobs(study.root)} == {"CANCELLED"}


def drain(cluster: Cluster) -> None:
    """Let no job start."""
    for node in NODES:
        cluster.node(node, "DRAIN")


def test_no_more_jobs_than_asked_for_wait_and_ctrl_c_leaves_none(cluster: Cluster, large: SlurmCheckout) -> None:
    drain(cluster)
    run = large.start("--jobs", "30")
    most = 0

    def watched() -> bool:
        nonlocal most
        most = max(most, len(cluster.live(large.root)))
        return most >= 30

    run.until(watched, "30 jobs in the queue")
    for _ in range(15):
        watched()
        time.sleep(0.2)
    assert most == 30
    ended_by_ctrl_c(cluster, large, run)


def test_ctrl_c_in_the_middle_of_submitting_leaves_none(cluster: Cluster, large: SlurmCheckout) -> None:
    drain(cluster)
    run = large.start("--jobs", "100")
    run.until(lambda: cluster.live(large.root), "the first jobs")
    ended_by_ctrl_c(cluster, large, run)
    assert len(cluster.jobs(large.root)) < 100
