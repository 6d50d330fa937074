"""The state of every cell: from its files, the queue, its log, and what the run said at its end."""

import dataclasses
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType, SimpleNamespace

import pytest
from snakemake_executor_plugin_slurm.utils import get_job_wildcards

from meddpm import log
from meddpm.config import UserError
from meddpm.runs import failures, plan, state
from meddpm.runs.failures import Failure
from meddpm.runs.plan import PlannedJob
from meddpm.runs.state import CellState
from meddpm.slurm.queue import QueuedJob

ROOT = Path(__file__).resolve().parents[2]
WILDCARDS = {"model": "mini", "gpu": "a100", "variant": "fp32", "solver": "ddim_50"}
COMMENT = "rule_sample_wildcards_mini_a100_fp32_ddim_50"
SAMPLES = "results/samples/mini/a100/fp32/ddim_50"
LOG = "results/logs/sample/mini/a100/fp32/ddim_50.log"
JOB = PlannedJob("sample", WILDCARDS, [f"{SAMPLES}/samples.csv", f"{SAMPLES}/environment.csv"], LOG, True)
AGO = 1000.0  # seconds since the run began
PROGRESS = "INFO volumes 1 to 1 of 4 [##..] 3/20, 600 s left"
END = "ERROR ended with an error"


def queued(state_: str, comment: str = COMMENT, number: str = "12") -> QueuedJob:
    """A job in the queue."""
    return QueuedJob(number, state_, "a-run", comment, "node7")


def started(host: str = "", process: int | None = None, slurm: str = "") -> str:
    """The first line of a log."""
    return f"INFO started on {host or socket.gethostname()}, process {process or os.getpid()}{slurm}"


def write(path: Path, text: str = "", age: float = AGO / 2) -> None:
    """Write a file of a run, `age` seconds ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (time.time() - age,) * 2)


def make(folder: Path, *lines: str, age: float = AGO / 2) -> None:
    """Write the log of the job: each line a level and a text."""
    write(folder / LOG, "".join(f"2026-01-31 10:00:00,123 {line}\n" for line in lines), age)


def outputs(folder: Path, table: str = "status,reason\nok,\n", age: float = AGO / 2) -> None:
    """Write the files of the job."""
    for path in JOB.outputs:
        write(folder / path, table, age)


def states(folder: Path, *jobs: PlannedJob, queue: list[QueuedJob] | None = None) -> list[CellState]:
    """The states of the jobs of a run that began some time ago."""
    plan.write(folder, list(jobs), "snakemake")
    os.utime(folder / plan.FILE, (time.time() - AGO,) * 2)
    return state.states(plan.read(folder), folder, queue)


def one(folder: Path, queue: list[QueuedJob] | None = None, job: PlannedJob = JOB) -> tuple[str, str | None, str]:
    """State, id and detail of the job."""
    (cell,) = states(folder, job, queue=queue)
    assert (cell.rule, cell.wildcards) == (job.rule, job.wildcards)
    return cell.state, cell.slurm_id, cell.detail


def test_a_job_whose_files_are_there_is_done(tmp_path):
    outputs(tmp_path)
    assert one(tmp_path) == ("done", None, "")
    make(tmp_path, started(slurm=", SLURM job 7"), "INFO done", age=1)
    assert one(tmp_path, []) == ("done", "7", "")
    (tmp_path / JOB.outputs[1]).unlink()
    state_, _, detail = one(tmp_path)
    assert (state_, detail.split(";")[0]) == ("failed", f"it ended well, but {JOB.outputs[1]} is not there")


def test_files_that_are_newer_than_a_log_without_an_end_are_those_of_a_job_that_is_done(tmp_path):
    """The last line of a log may come late over a network."""
    make(tmp_path, started("node7", slurm=", SLURM job 12"), PROGRESS)
    outputs(tmp_path, age=AGO / 2 - 1)
    assert one(tmp_path, []) == ("done", "12", "")


def test_files_of_an_earlier_run_are_none_where_the_job_had_to_run(tmp_path):
    outputs(tmp_path, age=2 * AGO)
    make(tmp_path, started(), "ERROR an old one", END, age=2 * AGO)
    assert one(tmp_path) == ("not started", None, "")
    assert one(tmp_path, job=dataclasses.replace(JOB, needed=False)) == ("done", None, "")


@pytest.mark.parametrize("word", ["unsupported", "unavailable", "failed"])
def test_a_cell_that_did_not_run_has_the_state_and_reason_of_its_table(tmp_path, word):
    outputs(tmp_path, f'case,status,reason\na,{word},"no \x1b GPU"\nb,{word},other\n')
    assert one(tmp_path) == (word, None, "no ? GPU")
    outputs(tmp_path, f"case,status,reason\na,ok,\nb,{word},no GPU\n")
    assert one(tmp_path) == ("done", None, f"1 of 2 rows are {word}: no GPU")


def test_a_table_of_other_cells_says_nothing_of_its_job(tmp_path):
    write(tmp_path / "results/tables/timing.csv", "status,reason\nfailed,no GPU\n")
    job = PlannedJob("timing_table", {}, ["results/tables/timing.csv"], None, True)
    assert one(tmp_path, job=job) == ("done", None, "")


def test_a_table_that_cannot_be_read_is_done(tmp_path):
    outputs(tmp_path)
    (tmp_path / JOB.outputs[0]).write_bytes(b"status\n\xff\xfe\n")
    assert one(tmp_path) == ("done", None, "")


@pytest.mark.parametrize(
    ("slurm_state", "word"),
    [("PENDING", "queued"), ("REQUEUED", "queued"), ("RUNNING", "running"), ("COMPLETING", "running")],
)
def test_a_job_in_the_queue(tmp_path, slurm_state, word):
    other = queued("RUNNING", "rule_sample_wildcards_mini_a100_fp32_ddpm", "13")
    where = "on node7" if word == "running" else ""
    assert one(tmp_path, [other, queued(slurm_state)]) == (word, "12", where)
    # A try before this one failed.
    make(tmp_path, started(), "ERROR no memory", END)
    assert one(tmp_path, [other, queued(slurm_state)])[:2] == (word, "12")


def test_a_job_that_has_left_the_queue_is_not_in_it(tmp_path):
    assert one(tmp_path, [queued("CANCELLED"), queued("TIMEOUT")]) == ("not started", None, "")


def test_a_job_in_the_queue_tells_its_progress(tmp_path):
    make(tmp_path, started("node7", slurm=", SLURM job 12"), PROGRESS)
    assert one(tmp_path, [queued("RUNNING")]) == ("running", "12", PROGRESS[5:])
    # Its files come before the end of its log.
    outputs(tmp_path, age=AGO / 2 + 1)
    assert one(tmp_path, [queued("RUNNING")])[0] == "running"


@pytest.mark.parametrize("wildcards", [{}, {"dataset": "a"}, {"model": "a/b", "gpu": "c_d"}])
def test_jobs_are_found_by_the_comment_of_the_plugin(tmp_path, wildcards):
    words = get_job_wildcards(SimpleNamespace(wildcards=list(wildcards.values())))
    comment = f"rule_train_wildcards_{words}" if words else "rule_train"
    job = PlannedJob("train", wildcards, ["weights"], None, True)
    assert one(tmp_path, [queued("PENDING", comment)], job)[0] == "queued"


def test_a_job_of_this_machine_runs_while_its_process_lives(tmp_path):
    make(tmp_path, started(), PROGRESS, age=0)
    assert one(tmp_path) == ("running", None, PROGRESS[5:])
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    with subprocess.Popen([sys.executable, "-c", ""]) as zombie:
        make(tmp_path, started(process=zombie.pid), PROGRESS, age=0)
        while "Z" not in Path(f"/proc/{zombie.pid}/stat").read_text().rpartition(")")[2]:
            time.sleep(0.01)
        assert one(tmp_path)[0] == "failed"
    killed = "killed without a word; its log ends with: " + PROGRESS[5:]
    make(tmp_path, started(process=ended.pid), PROGRESS, age=0)
    assert one(tmp_path) == ("failed", None, killed)


def test_a_process_that_got_the_number_of_another_is_not_it(tmp_path):
    with subprocess.Popen(["sleep", "60"]) as later:
        make(tmp_path, started(process=later.pid), age=AGO / 2)
        assert one(tmp_path)[0] == "failed"
        make(tmp_path, started(process=later.pid), age=0)
        assert one(tmp_path)[0] == "running"
        later.kill()


def test_a_job_of_another_machine(tmp_path):
    make(tmp_path, started("node7", slurm=", SLURM job 12"), PROGRESS)
    assert one(tmp_path) == ("running", "12", "on node7, as far as can be seen from here")
    assert one(tmp_path, [queued("RUNNING", "another")])[0] == "running"
    assert one(tmp_path, [])[0] == "failed"


def test_a_job_that_ended_with_an_error_has_its_words_and_the_end_of_its_log(tmp_path):
    make(tmp_path, started(), PROGRESS, "WARNING odd \x1b[31m", "ERROR weights: are not there", END)
    (cell,) = states(tmp_path, JOB)
    assert (cell.state, cell.detail, cell.log) == ("failed", "weights: are not there", LOG)
    assert cell.lines == ("2026-01-31 10:00:00,123 WARNING odd ?[31m",)


CTRL_C = "Terminating processes on user request, this might take some time.\n"
SIGTERM = "Will exit after finishing currently running jobs (scheduler).\n"
BY_CTRL_C = ("stopped", "stopped by you; the same command goes on")
WITH_THE_RUN = ("stopped", "stopped with the run; the same command goes on")
TOLD = [
    (log.INTERRUPTED, END),
    (log.TERMINATED, END),
    ("a/b: stopped by SIGINT after 1 of 4 volumes; the same command goes on from there", END),
    ("tiny: stopped at step 3 of 9; the same command goes on from there (last good checkpoint: c.pt)", END),
]


def said(message: str = "None", more: str = "") -> str:
    """What Snakemake says of the job when it has failed."""
    head = f"[Tue Dec  1 00:21:27 2026]\nError in rule sample:\n    message: {message}\n    jobid: 4\n"
    return f"{head}    output: {', '.join(JOB.outputs)}\n{more}"


def run_log(folder: Path, text: str, name: str = "1") -> None:
    """Write the log of Snakemake."""
    write(folder / f".snakemake/log/{name}.snakemake.log", text)


TIMEOUT = said("SLURM-job '12' failed, SLURM status is: 'TIMEOUT'. ", "    external_jobid: 12\n")


@pytest.mark.parametrize(("reason", "end"), TOLD)
@pytest.mark.parametrize(("line", "stopped"), [(CTRL_C, BY_CTRL_C), (SIGTERM, WITH_THE_RUN)])
def test_a_job_that_was_told_to_stop_with_its_run_is_stopped(tmp_path, reason, end, line, stopped):
    make(tmp_path, started(), PROGRESS, f"ERROR {reason}", end)
    run_log(tmp_path, line + said())
    assert one(tmp_path)[::2] == stopped
    # On a cluster Snakemake cancels its jobs, and says no more of them.
    make(tmp_path, started("node7", slurm=", SLURM job 12"), PROGRESS, f"ERROR {reason}", end)
    run_log(tmp_path, line)
    assert one(tmp_path, []) == (stopped[0], "12", stopped[1])
    run_log(tmp_path, "")
    assert one(tmp_path, [])[0] == "failed", "nobody stopped the run"


def test_a_job_that_was_killed_with_its_run_before_it_said_anything_is_stopped(tmp_path):
    make(tmp_path, started("node7", slurm=", SLURM job 12"), PROGRESS)
    run_log(tmp_path, CTRL_C)
    assert one(tmp_path, [])[::2] == BY_CTRL_C
    (tmp_path / LOG).unlink()
    assert one(tmp_path, [])[0] == "not started"
    run_log(tmp_path, CTRL_C + said())
    assert one(tmp_path)[::2] == BY_CTRL_C
    run_log(tmp_path, said() + CTRL_C)
    assert one(tmp_path)[0] == "failed", "before the run was stopped"


@pytest.mark.parametrize("line", [CTRL_C, SIGTERM])
def test_what_failed_by_itself_has_failed_also_in_a_run_that_was_stopped(tmp_path, line):
    make(tmp_path, started(), "ERROR weights: are not there", END)
    for text in (line, line + said(), said() + line):
        run_log(tmp_path, text)
        assert one(tmp_path)[::2] == ("failed", "weights: are not there")
    make(tmp_path, started("node7", slurm=", SLURM job 12"), f"ERROR {log.TERMINATED}", END)
    for text in (line + TIMEOUT, TIMEOUT + line):
        run_log(tmp_path, text)
        assert one(tmp_path, [])[2].startswith("SLURM job 12 ended as TIMEOUT; ")
    # The next try of a job that had reached its limit.
    make(tmp_path, started("node7", slurm=", SLURM job 13"), f"ERROR {log.TERMINATED}", END)
    assert one(tmp_path, [])[:2] == ("stopped", "13")
    make(tmp_path, started(), PROGRESS)
    (tmp_path / LOG).write_text((tmp_path / LOG).read_text().replace(f"process {os.getpid()}", "process 4194305"))
    killed = "Command 's.py' died with <Signals.SIGKILL: 9>.\n"
    run_log(tmp_path, line + killed + said())
    assert one(tmp_path)[2].startswith("killed by SIGKILL")


def test_a_log_that_is_pasted_stops_nothing(tmp_path):
    make(tmp_path, started("node7", slurm=", SLURM job 12"), f"ERROR {log.TERMINATED}", END)
    bar = "=" * 60
    of_another = said(more=f"Logfile a.log:\n{bar}\n{CTRL_C}{bar}\n").replace(JOB.outputs[0], "a.csv")
    run_log(tmp_path, of_another)
    assert one(tmp_path, [])[0] == "failed"
    run_log(tmp_path, of_another + CTRL_C)
    assert one(tmp_path, [])[::2] == BY_CTRL_C


def test_a_run_that_is_stopped_in_its_second_pass_is_stopped(tmp_path):
    make(tmp_path, started("node7", slurm=", SLURM job 12"), f"ERROR {log.TERMINATED}", END)
    run_log(tmp_path, "")
    run_log(tmp_path, CTRL_C, "2")
    assert one(tmp_path, [])[::2] == BY_CTRL_C


def test_a_job_that_was_refused_has_no_log_but_snakemakes(tmp_path):
    make(tmp_path)
    run_log(tmp_path, said("SLURM sbatch failed. The error message was 'sbatch: error: No such GPU'."))
    (cell,) = states(tmp_path, JOB, queue=[])
    assert (cell.detail, cell.lines) == ("sbatch refused: No such GPU", ())
    assert cell.log == ".snakemake/log/1.snakemake.log"
    run_log(tmp_path, said())
    assert states(tmp_path, JOB)[0].log is None, "an empty log tells nothing"


def replaced_by(kind: str, path: Path) -> None:
    """Put something else in the place of a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")


@pytest.fixture
def not_for_ever():
    """Nothing waits longer than some seconds."""

    def end(number: int, frame: FrameType | None) -> None:
        pytest.fail("it waits")  # no OSError: the code would go on

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_no_file_is_not_waited_for(tmp_path, kind, not_for_ever):
    slurm_log = tmp_path / "12.log"
    failed = said(more=f"    log: {LOG}, {slurm_log}\n    external_jobid: 12\n")
    run_log(tmp_path, failed)
    for path in (tmp_path / LOG, slurm_log):
        replaced_by(kind, path)
    assert one(tmp_path, [])[0] == "failed"
    replaced_by(kind, tmp_path / ".snakemake/log/0.snakemake.log")
    assert one(tmp_path, [])[0] == "failed"
    replaced_by(kind, tmp_path / ".snakemake/log/1.snakemake.log")
    assert one(tmp_path, [])[0] == "not started"
    for path in JOB.outputs:
        replaced_by(kind, tmp_path / path)
    assert one(tmp_path, job=dataclasses.replace(JOB, needed=False))[0] == "done"
    replaced_by(kind, tmp_path / failures.FILE)
    with pytest.raises(UserError, match="delete it"):
        one(tmp_path)


@pytest.mark.parametrize(
    "path", ["", "/", "a/b", "results/not_run", "results/not_run/bench/mini/a.csv", "results/not_run/x/mini/a.csv"]
)
def test_a_plan_with_files_of_no_cell_is_a_line(tmp_path, path):
    with pytest.raises(UserError, match=r"plan.json: .*; delete it, or start the run again"):
        states(tmp_path, PlannedJob("not_run", {}, [path], None, True))


def test_what_the_run_says_while_it_runs_is_taken(tmp_path):
    block = f"""\
[Tue Dec  1 00:21:27 2026]
Error in rule sample:
    message: SLURM sbatch failed. The error message was 'sbatch: error: Batch job submission failed: No such GPU'.
    jobid: 4
    output: {", ".join(JOB.outputs)}
"""
    write(tmp_path / ".snakemake/log/1.snakemake.log", block)
    make(tmp_path)
    assert one(tmp_path, []) == ("failed", None, "sbatch refused: No such GPU")
    assert one(tmp_path, [queued("PENDING")])[0] == "queued"  # another try
    write(tmp_path / ".snakemake/log/1.snakemake.log", block, age=2 * AGO)
    assert one(tmp_path, [])[0] == "not started"


def test_the_failures_of_the_run_win(tmp_path):
    failed = Failure("sample", WILDCARDS, JOB.outputs, "SLURM job 12 ended as TIMEOUT")
    failures.write(tmp_path, [failed])
    make(tmp_path, started(), "ERROR stopped", END)
    assert one(tmp_path) == ("failed", None, "SLURM job 12 ended as TIMEOUT")
    waits = Failure("sample", WILDCARDS, JOB.outputs, "not started: the training failed", started=False)
    failures.write(tmp_path, [waits])
    assert one(tmp_path) == ("not started", None, "the training failed")
    # A second pass makes what it can.
    outputs(tmp_path)
    make(tmp_path, started(), "INFO done")
    assert one(tmp_path)[0] == "done"


def test_each_cell_that_rule_not_run_writes_is_one(tmp_path):
    files = [
        *(f"results/not_run/samples/mini/v100/fp32/ddpm/{name}.csv" for name in ("samples", "environment")),
        *(f"results/not_run/bench/mini/v100/fp32/train/{name}.csv" for name in ("timing", "environment")),
        "results/not_run/quality/mini/quality.csv",
    ]
    write(tmp_path / files[0], "status,reason\nunavailable,no partition v100\n")
    job = PlannedJob("not_run", {}, files, None, True)
    sample, bench, quality = states(tmp_path, job, PlannedJob("all", {}, [], None, True))
    assert (sample.rule, list(sample.wildcards.values())) == ("sample", ["mini", "v100", "fp32", "ddpm"])
    assert (sample.state, sample.detail) == ("unavailable", "no partition v100")
    assert (bench.rule, bench.wildcards["phase"], bench.state) == ("bench", "train", "unavailable")
    assert (quality.rule, quality.wildcards) == ("evaluate", {"model": "mini"})


def test_the_folders_of_cells_are_those_of_the_rules():
    found = {}
    for path in (ROOT / "rules").glob("*.smk"):
        for rule, folder, rest in re.findall(
            r"^rule (\w+):\n(?:(?!rule ).*\n)*?    output:\n\s+(?:\w+=)?\"results/(\w+)/((?:{\w+}/)+)",
            path.read_text(encoding="utf-8"),
            re.MULTILINE,
        ):
            found[folder] = (rule, tuple(re.findall(r"{(\w+)}", rest)))
    assert {name: found[name] for name in state.CELL_FOLDERS} == state.CELL_FOLDERS
