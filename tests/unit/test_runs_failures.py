"""Why a job failed: what Snakemake and SLURM said of it (excerpts of real logs), and what its own log says."""

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from meddpm.config import UserError
from meddpm.runs import failures, job_log, plan, snakemake_log
from meddpm.runs.plan import PlannedJob

TIME = "[Tue Dec  1 00:21:27 2026]"
FURTHER = "For further error details see the cluster/cloud log and the log files of the involved rule(s)."
CHECK = "(check log file(s) for error details)"

# What Snakemake 9.27 with the plugin 2.8 writes of jobs that sbatch refused: a partition and a GPU that are not there.
REFUSED = f"""\
{TIME}
Error in rule sample:
    message: SLURM sbatch failed. The error message was 'sbatch: error: invalid partition specified: nowhere
sbatch: error: Batch job submission failed: Invalid partition name specified'.
    sbatch call:
        sbatch --parsable --comment rule_sample_wildcards_mini_nopart -p nowhere -t 1 --wrap="python -m snakemake"
{FURTHER}
    jobid: 5
    output: out/mini/nopart.txt, out/mini/nopart.csv
    log: results/logs/nopart.log {CHECK}
Logfile results/logs/nopart.log: empty file
{TIME}
Error in rule sample:
    message: SLURM sbatch failed. The error message was 'sbatch: error: Batch job submission failed: Requested node \
configuration is not available'.
    sbatch call:
        sbatch --parsable --comment rule_sample_wildcards_mini_nomodel -p gpu-v100 -t 1 --gpus=v9000:1
{FURTHER}
    jobid: 4
    output: out/mini/nomodel.txt, out/mini/nomodel.csv
    log: results/logs/nomodel.log {CHECK}
"""

# What SLURM's own log of a job holds: the job is a run of Snakemake, twice.
INNER = f"""\

SNAKEMAKE
=========
  Date: 2026-12-01 00:22:40
  Command: /data/study/.venv/bin/snakemake --target-jobs sample:model=mini,gpu=GPU

Building DAG of jobs...
Using shell: /usr/bin/bash
Provided cores: 2
Select jobs to execute...
Execute 1 jobs...

{TIME}
localrule sample:
    output: out/mini/GPU.txt, out/mini/GPU.csv
    log: results/logs/GPU.log
    jobid: 0
WORDS
RuleException:
CalledProcessError in file "/data/study/Snakefile", line 10:
Command 'set -euo pipefail; python /data/study/.snakemake/scripts/tmp.s.py' HOW.
{TIME}
Error in rule sample:
    message: None
    jobid: 0
    output: out/mini/GPU.txt, out/mini/GPU.csv
    log: results/logs/GPU.log {CHECK}
Shutting down, this might take some time.
Exiting because a job execution failed. Look above for error messages
Storing output in storage.
Elapsed time: 0:00:00.223
WorkflowError:
At least one job did not complete successfully.
srun: error: cpu-01: task 0: Exited with exit code 1
"""
EXIT_1 = "returned non-zero exit status 1"
KILLED = "died with <Signals.SIGKILL: 9>"


def ended(folder: Path, gpu: str, number: int, state: str, pasted: str = "") -> str:
    """The block on the SLURM job `number`; `pasted` is what --show-failed-logs puts below it."""
    slurm_log = folder / f".snakemake/slurm_logs/rule_sample/mini_{gpu}/{number}.log"
    return f"""\
{TIME}
Error in rule sample:
    message: SLURM-job '{number}' failed, SLURM status is: '{state}'. Detailed failure reason unavailable (status \
command is not 'sacct').{FURTHER}
    jobid: {number}
    output: out/mini/{gpu}.txt, out/mini/{gpu}.csv
    log: results/logs/{gpu}.log, {slurm_log} {CHECK}
    external_jobid: {number}
{pasted}"""


def pasted(path: str, text: str) -> str:
    """A log as --show-failed-logs pastes it."""
    lines = text.splitlines()
    bar = "=" * min(80, max(map(len, [*lines, f"Logfile {path}:"])))
    return "\n".join([f"Logfile {path}:", bar, *lines, bar]) + "\n"


def slurm_log(folder: Path, gpu: str, number: int, words: str = "", how: str = EXIT_1) -> str:
    """Write the log that SLURM keeps of a job; its text."""
    path = folder / f".snakemake/slurm_logs/rule_sample/mini_{gpu}/{number}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = INNER.replace("GPU", gpu).replace("WORDS\n", words).replace("HOW", how)
    path.write_text(text)
    return text


def own_log(folder: Path, gpu: str, *lines: str) -> None:
    """Write the log of a job: each line a level and a text."""
    path = folder / f"results/logs/{gpu}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"2026-12-01 00:22:45,123 {line}\n" for line in lines))


def job(gpu: str) -> PlannedJob:
    """A job of rule sample."""
    outputs = [f"out/mini/{gpu}.txt", f"out/mini/{gpu}.csv"]
    return PlannedJob("sample", {"model": "mini", "gpu": gpu}, outputs, f"results/logs/{gpu}.log", True)


def reason(folder: Path, gpu: str, log: str) -> str:
    """The reason of one job that failed."""
    path = folder / "run.snakemake.log"
    path.write_text(log)
    (found,) = failures.collect(folder, path, [job(gpu)], {f"out/mini/{gpu}.txt"})
    assert found.started
    return found.reason


STARTED = "INFO started on node7, process 99, SLURM job 12"
PROGRESS = "INFO volumes 1 to 1 of 4 [##..] 3/20, 600 s left"
END = "ERROR ended with an error"


def test_what_sbatch_refused_is_said(tmp_path):
    own_log(tmp_path, "nopart")
    refused = "sbatch refused: invalid partition specified: nowhere; Invalid partition name specified"
    assert reason(tmp_path, "nopart", REFUSED) == refused
    assert reason(tmp_path, "nomodel", REFUSED) == "sbatch refused: Requested node configuration is not available"


def test_a_job_that_could_not_be_submitted_says_why(tmp_path):
    log = f"{TIME}\nError in rule sample:\n    message: Job submission failed with exception: no sbatch here{FURTHER}\n"
    log += "    jobid: 1\n    output: out/mini/a.txt, out/mini/a.csv\n"
    assert reason(tmp_path, "a", log) == "could not be submitted: no sbatch here"


@pytest.mark.parametrize("state", ["TIMEOUT", "CANCELLED", "OUT_OF_MEMORY"])
def test_the_state_of_slurm_comes_with_the_last_words_of_the_log(tmp_path, state):
    own_log(tmp_path, "a", STARTED, PROGRESS)
    words = f"SLURM job 12 ended as {state}; its log ends with: volumes 1 to 1 of 4 [##..] 3/20, 600 s left"
    assert reason(tmp_path, "a", ended(tmp_path, "a", 12, state)) == words
    own_log(tmp_path, "a", STARTED, PROGRESS, "ERROR stopped by SIGTERM", END)
    words = f"SLURM job 12 ended as {state}; its log ends with: stopped by SIGTERM"
    assert reason(tmp_path, "a", ended(tmp_path, "a", 12, state)) == words
    own_log(tmp_path, "a")
    assert reason(tmp_path, "a", ended(tmp_path, "a", 12, state)) == f"SLURM job 12 ended as {state}"


def test_a_job_that_failed_by_itself_has_the_words_of_its_log_alone(tmp_path):
    own_log(tmp_path, "a", STARTED, "ERROR weights: is not there", END)
    assert reason(tmp_path, "a", ended(tmp_path, "a", 12, "FAILED")) == "weights: is not there"


def test_a_fault_of_the_program_has_its_exception(tmp_path):
    own_log(tmp_path, "a", STARTED, "ERROR a fault of the program", END)
    path = tmp_path / "results/logs/a.log"
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g(\n    ^^\nValueError: no\n  such\n'
    path.write_text(path.read_text().replace("program\n", f"program\n{trace}"))
    assert reason(tmp_path, "a", "") == "a fault of the program: ValueError: no"


@pytest.mark.parametrize(
    ("words", "how", "why"),
    [
        ("", KILLED, "killed by SIGKILL (out of memory, perhaps)"),
        ("Traceback (most recent call last):\n  File\nMemoryError\n", EXIT_1, "MemoryError"),
        (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0\n",
            KILLED,
            "killed for its memory; give it more (mem)",
        ),
    ],
)
def test_a_job_without_an_end_in_its_log_has_the_words_of_slurms(tmp_path, words, how, why):
    own_log(tmp_path, "a", STARTED)
    slurm_log(tmp_path, "a", 12, words, how)
    assert reason(tmp_path, "a", ended(tmp_path, "a", 12, "FAILED")) == f"SLURM job 12 ended as FAILED: {why}"
    own_log(tmp_path, "a", STARTED, PROGRESS)
    assert reason(tmp_path, "a", ended(tmp_path, "a", 12, "FAILED")).endswith("; its log ends with: " + PROGRESS[5:])


def test_a_job_that_says_nothing_anywhere_has_the_path_of_a_log(tmp_path):
    slurm_log(tmp_path, "a", 12)
    end = "rule_sample/mini_a/12.log"
    found = reason(tmp_path, "a", ended(tmp_path, "a", 12, "FAILED"))
    assert found.startswith("SLURM job 12 ended as FAILED without a word; see ")
    assert found.endswith(end)
    assert reason(tmp_path, "a", "") == "it ended without a word; see results/logs/a.log"


def test_the_last_try_counts(tmp_path):
    own_log(tmp_path, "a", STARTED)
    log = ended(tmp_path, "a", 12, "TIMEOUT") + "Trying to restart job 1.\n" + ended(tmp_path, "b", 13, "CANCELLED")
    assert reason(tmp_path, "a", log) == "SLURM job 12 ended as TIMEOUT"
    assert reason(tmp_path, "a", log + ended(tmp_path, "a", 14, "NODE_FAIL")) == "SLURM job 14 ended as NODE_FAIL"


def test_what_is_pasted_from_logs_misleads_nobody(tmp_path):
    """The log of SLURM has blocks like those of the run, and a program may write what it likes."""
    hostile = f"x\n{TIME}\n" + ended(tmp_path, "b", 99, "BAD").split("\n", 1)[1]
    text = slurm_log(tmp_path, "a", 12)
    below = pasted("results/logs/a.log", hostile) + pasted("/data/12.log", text.replace("message: None", "message: x"))
    log = ended(tmp_path, "b", 11, "CANCELLED") + ended(tmp_path, "a", 12, "TIMEOUT", below)
    assert reason(tmp_path, "a", log) == "SLURM job 12 ended as TIMEOUT"
    assert reason(tmp_path, "b", log) == "SLURM job 11 ended as CANCELLED"
    assert reason(tmp_path, "b", log + hostile.split("\n", 2)[2]) == "SLURM job 11 ended as CANCELLED"
    # What comes behind is read again.
    assert reason(tmp_path, "b", log + ended(tmp_path, "b", 13, "TIMEOUT")) == "SLURM job 13 ended as TIMEOUT"


def test_a_hostile_line_is_one_printable_line(tmp_path):
    own_log(tmp_path, "a", STARTED, "ERROR [bold]\x1b[31m\x07\x85 " + "long " * 100, END)
    found = reason(tmp_path, "a", "")
    assert found.startswith("[bold]?[31m? long")
    assert len(found) == 300
    assert found.isprintable()


def test_a_local_job_that_was_killed_says_by_what(tmp_path):
    own_log(tmp_path, "a", STARTED)
    block = f"{TIME}\nError in rule sample:\n    message: None\n    jobid: 2\n"
    block += "    output: out/mini/a.txt, out/mini/a.csv\n    log: results/logs/a.log\n"
    killed = 'RuleException:\nCalledProcessError in file "/data/study/Snakefile", line 10:\n'
    killed += f"Command 'set -euo pipefail;  python s.py' {KILLED}.\n"
    assert reason(tmp_path, "a", killed + block) == "killed by SIGKILL (out of memory, perhaps)"
    assert "killed" not in reason(tmp_path, "a", killed.replace(KILLED, EXIT_1) + block)


def test_files_that_a_slow_file_system_hides_are_named(tmp_path):
    own_log(tmp_path, "a", STARTED, "INFO done")
    text = """\
Waiting at most 2 seconds for missing files:
out/mini/a.csv (missing locally)
MissingOutputException in rule sample in file "/data/study/Snakefile", line 3:
Job 2  completed successfully, but some output files are missing. Missing files after 2 seconds. This might be due to
out/mini/a.csv (missing locally, parent dir contents: a.txt)
Removing output files of failed job sample since they might be corrupted:
out/mini/a.txt
""".replace("due to\n", "due to filesystem latency. If that is the case, consider to increase it:\n")
    words = "it ended well, but out/mini/a.csv is not there; on a slow file system raise latency-wait"
    assert reason(tmp_path, "a", text) == words
    slurm_log(tmp_path, "a", 12, text)
    assert reason(tmp_path, "a", ended(tmp_path, "a", 12, "FAILED")) == f"SLURM job 12 ended as FAILED: {words}"


def test_a_log_of_an_earlier_run_says_nothing(tmp_path):
    own_log(tmp_path, "a", STARTED, "ERROR an old one", END)
    plan.write(tmp_path, [job("a")], "snakemake")
    os.utime(tmp_path / "results/logs/a.log", (time.time() - 100,) * 2)
    assert reason(tmp_path, "a", ended(tmp_path, "a", 12, "TIMEOUT")) == "SLURM job 12 ended as TIMEOUT"


def chain() -> list[PlannedJob]:
    """A dataset, a training, two samples, an evaluation of both."""
    prepare = PlannedJob("prepare", {"dataset": "d"}, ["cases.tsv"], None, True)
    train = PlannedJob("train", {"model": "mini"}, ["weights", "loss"], None, True, ["cases.tsv"])
    samples = [
        PlannedJob("sample", {"model": "mini", "gpu": gpu}, [f"{gpu}.csv"], None, True, ["cases.tsv", "weights"])
        for gpu in ("a100", "h100")
    ]
    evaluate = PlannedJob("evaluate", {"model": "mini"}, ["quality.csv"], None, True, ["a100.csv", "h100.csv"])
    return [evaluate, *samples, train, prepare]


def reasons(jobs: list[PlannedJob], failed: set[str]) -> dict[str, str]:
    """The reason of each job of a chain by its first output."""
    found = failures.collect("/nowhere", None, jobs, failed)
    assert [each.outputs[0] for each in found] == [each.outputs[0] for each in jobs]
    assert [each.started for each in found] == [each.outputs[0] in failed for each in jobs]
    return {each.outputs[0]: each.reason for each in found}


def test_jobs_that_never_started_say_what_failed_before_them():
    word = "it ended without a word"
    jobs = chain()
    found = reasons(jobs[:-1], {"weights"})
    assert found["a100.csv"] == f"not started: the training of its weights failed ({word})"
    assert found["quality.csv"] == f"not started: train mini failed ({word})"
    found = reasons(jobs, {"cases.tsv"})
    assert found["weights"] == found["h100.csv"] == found["quality.csv"] == f"not started: prepare d failed ({word})"
    found = reasons(jobs[:3], {"a100.csv", "h100.csv"})
    assert found["quality.csv"] == f"not started: 2 jobs before it failed, as sample mini a100 ({word})"


def test_a_long_reason_stays_one_below_another_job(tmp_path):
    own_log(tmp_path, "a", STARTED, "ERROR " + "long " * 100, END)
    after = PlannedJob("evaluate", {"model": "mini"}, ["quality.csv"], None, True, job("a").outputs)
    found = failures.collect(tmp_path, None, [job("a"), after], {job("a").outputs[0]})
    assert [len(each.reason) for each in found] == [300, 300]


def test_jobs_whose_inputs_are_not_known_or_well_say_so():
    jobs = [PlannedJob("report", {}, ["index.html"], None, True), *chain()]
    assert reasons(jobs, {"weights"})["index.html"] == "not started: the run was ended before its turn"
    assert reasons(jobs, set())["index.html"] == "not started: the run was ended before its turn"


def test_failures_are_kept_until_the_next_run(tmp_path):
    assert failures.read(tmp_path) == []
    found = failures.collect(tmp_path, None, chain(), {"weights"})
    failures.write(tmp_path, found)
    assert (tmp_path / "results/run/failures.json").is_file()
    assert failures.read(tmp_path) == found
    failures.clear(tmp_path)
    failures.clear(tmp_path)
    assert failures.read(tmp_path) == []


def test_the_plan_is_kept(tmp_path):
    assert plan.read(tmp_path) is None
    plan.write(tmp_path, chain(), "snakemake --config title=\udcff\x1b")
    found = plan.read(tmp_path)
    assert (found.jobs, found.pid, found.command) == (chain(), os.getpid(), "snakemake --config title=??")
    assert found.since == (tmp_path / "results/run/plan.json").stat().st_mtime


def refused(folder: Path, module: ModuleType, content: bytes) -> None:
    """Reading `content` as a record is a line with the mend."""
    path = folder / module.FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    with pytest.raises(UserError, match="delete it, or start the run again") as caught:
        module.read(folder)
    assert str(caught.value).isprintable()
    assert str(caught.value).startswith(f"{path}: ")


BROKEN = [b"", b"[1]", b'{"jobs": [{"rule": "x"}]}', b"[{}]", b"\xff\xfe\x00", b"[" * 100_000, b'"\x1b"', b"7", b"{}"]


@pytest.mark.parametrize("content", BROKEN)
@pytest.mark.parametrize("module", [plan, failures])
def test_a_record_that_is_none_is_the_users_to_mend(tmp_path, module, content):
    refused(tmp_path, module, content)


DAMAGES = [None, [], {}, [1], {"a": 1}, "a\0b", "\ud800", -1, 1.5, True, {"\x1b[2J": {}}]


@pytest.mark.parametrize("module", [plan, failures])
def test_a_record_with_other_types_in_it_or_cut_short_is_too(tmp_path, module):
    plan.write(tmp_path, chain(), "snakemake")
    failures.write(tmp_path, failures.collect(tmp_path, None, chain(), {"weights"}))
    whole = (tmp_path / module.FILE).read_bytes()
    for length in range(1, len(whole) - 1, len(whole) // 20):
        refused(tmp_path, module, whole[:length])
    good = json.loads(whole)
    first = good["jobs"][0] if module is plan else good[0]
    # Where a value is one that it may be, the record is none that is damaged.
    may_be = {"inputs": [[]], "outputs": [[]], "wildcards": [{}], "log": [None], "needed": [True], "started": [True]}
    for record in (first, good) if module is plan else (first,):
        for name, right in list(record.items()):
            for value in DAMAGES:
                if value not in may_be.get(name, []) and (name, value) != ("jobs", []):
                    record[name] = value
                    refused(tmp_path, module, json.dumps(good).encode())
            record.pop(name)
            refused(tmp_path, module, json.dumps(good).encode())
            record[name] = right
    (tmp_path / module.FILE).write_text(json.dumps(good))
    assert module.read(tmp_path)


def test_a_damaged_record_of_an_earlier_run_stops_no_start_and_no_end(tmp_path):
    for module in (plan, failures):
        path = tmp_path / module.FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\xff{")
    plan.settle(tmp_path, ["weights"])
    assert (tmp_path / plan.FILE).read_bytes() == b"\xff{"
    failures.clear(tmp_path)
    plan.write(tmp_path, chain(), "snakemake")
    assert plan.read(tmp_path).jobs == chain()
    assert failures.read(tmp_path) == []


def test_what_was_found_to_be_right_is_settled_and_the_run_began_when_it_did(tmp_path):
    plan.write(tmp_path, chain(), "snakemake")
    os.utime(tmp_path / plan.FILE, (1000, 1000))
    before = plan.read(tmp_path)
    plan.settle(tmp_path, ["weights", "h100.csv"])
    after = plan.read(tmp_path)
    assert [job.outputs[0] for job in after.jobs if job.needed] == ["quality.csv", "a100.csv", "cases.tsv"]
    assert dataclasses.replace(after, jobs=before.jobs) == before


def test_the_log_of_the_run_is_the_first_since_its_plan(tmp_path):
    folder = tmp_path / snakemake_log.FOLDER
    folder.mkdir(parents=True)
    for name, age in (("1", 100), ("2", 10), ("3", 5)):
        (folder / f"{name}.snakemake.log").touch()
        os.utime(folder / f"{name}.snakemake.log", (1000 - age,) * 2)
    assert snakemake_log.of_run(tmp_path, 950) == [folder / "2.snakemake.log", folder / "3.snakemake.log"]
    assert snakemake_log.of_run(tmp_path, 1000) == []
    assert snakemake_log.read(None) == snakemake_log.read(tmp_path / "none") == []


PROGRAM = """
import sys
from meddpm import log
from meddpm.config import UserError
with log.job(sys.argv[1]):
    log.logger.info("half of it")
    exec(sys.argv[2])
"""


@pytest.mark.parametrize(
    ("program", "end", "error"),
    [
        ("", job_log.DONE, ""),
        ("raise UserError('not there')", job_log.FAILED, "not there"),
        ("{}['x']", job_log.FAILED, "a fault of the program: KeyError: 'x'"),
        ("import os; os._exit(1)", None, ""),
    ],
)
def test_the_logs_of_jobs_are_understood(tmp_path, program, end, error):
    path = tmp_path / "job.log"
    command = [sys.executable, "-c", PROGRAM, str(path), program]
    process = subprocess.Popen(command, env=os.environ | {"SLURM_JOB_ID": "12"}, stderr=subprocess.DEVNULL)
    process.wait()
    log = job_log.read(path)
    assert (log.host, log.process, log.slurm_id) == (os.uname().nodename, process.pid, "12")
    assert (log.end, log.error, log.last) == (end, error, error or "half of it")


def test_a_long_log_is_read_at_its_ends(tmp_path):
    own_log(tmp_path, "a", STARTED, *["INFO step"] * 50_000, "ERROR no", END)
    log = job_log.read(tmp_path / "results/logs/a.log")
    assert (log.host, log.error, log.end) == ("node7", "no", job_log.FAILED)
    assert len(log.lines) < 3000
    assert log.lines[0] == "2026-12-01 00:22:45,123 INFO step"
    assert job_log.read(tmp_path / "none.log") is None


def test_failures_are_a_few_lines_for_the_end_of_a_run():
    jobs = chain()
    found = failures.collect("/nowhere", None, jobs, {"weights"})
    word = "it ended without a word"
    lines = ["Failed: 1 job.", f"  train mini: {word}", "  4 that come after them were not started"]
    assert failures.in_words(found).split("\n") == lines
    found = failures.collect("/nowhere", None, jobs[1:], {"weights", "a100.csv", "h100.csv", "cases.tsv"})
    lines = ["Failed: 4 jobs.", f"  sample mini a100: {word}", "  and 3 more"]
    assert failures.in_words(found, at_most=1).split("\n") == lines


def test_a_request_that_was_refused_has_its_mend() -> None:
    refused = failures.Failure("bench", {"gpu": "h999"}, ["a.csv"], "sbatch refused: Invalid gres")
    assert "python -m meddpm slurm check" in failures.in_words([refused])
    assert "slurm check" not in failures.in_words([failures.Failure("bench", {}, ["a.csv"], "no memory")])
