"""python -m meddpm status: what it prints, at which width, and its exit code."""

import dataclasses
import os
import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from meddpm.cli import app
from meddpm.config import UserError
from meddpm.report.status_table import print_status
from meddpm.runs import failures, plan, state
from meddpm.runs.failures import Failure
from meddpm.runs.plan import Plan, PlannedJob
from meddpm.runs.state import CellState
from meddpm.slurm import queue

PLAN = Plan("login1", 7, "2026-01-31 10:00:00", "snakemake --profile slurm", [], 0.0)
REASON = "SLURM job 12 ended as TIMEOUT; its log ends with: volumes 1 to 1 of 4"


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch):
    """The queue is not known."""
    monkeypatch.setattr(queue, "jobs", lambda folder: None)


def status(*words: str | Path) -> Result:
    """The result of the command; a fault that the user can mend is raised."""
    result = CliRunner().invoke(app, ["status", *map(str, words)])
    if isinstance(result.exception, UserError):
        raise result.exception
    return result


def sample(state: str, detail: str = "", variant: str = "fp32", solver: str = "ddpm", **more: object) -> CellState:
    """A cell of the stage that draws."""
    wildcards = {"model": "mini", "gpu": "a100", "variant": variant, "solver": solver}
    return CellState("sample", wildcards, state, detail=detail, **more)


def printed(cells: list[CellState], width: int = 100, colour: bool = False, **options: bool) -> str:
    """What a terminal of some width gets."""
    stream = StringIO()
    system = "standard" if colour else None
    console = Console(file=stream, width=width, highlight=False, force_terminal=colour, color_system=system)
    print_status(PLAN, cells, console=console, **options)
    return stream.getvalue()


def make(folder: Path, *done: str) -> None:
    """A run of two samples in `folder`, of which some are done."""
    jobs = []
    for solver in ("ddpm", "ddim"):
        names = {"model": "mini", "gpu": "a100", "variant": "fp32", "solver": solver}
        path = f"results/samples/mini/a100/fp32/{solver}/samples.csv"
        jobs.append(PlannedJob("sample", names, [path], None, True))
    plan.write(folder, jobs, "snakemake --profile local")
    for solver in done:
        path = folder / f"results/samples/mini/a100/fp32/{solver}/samples.csv"
        path.parent.mkdir(parents=True)
        path.write_text("status,reason\nok,\n")


def test_a_folder_without_a_run_says_how_to_start_one(tmp_path):
    with pytest.raises(UserError, match="no run was started in this folder; start one with ") as caught:
        status("--folder", tmp_path)
    for profile in ("local", "slurm"):
        assert f"`snakemake --profile {profile}`" in str(caught.value)


@pytest.mark.parametrize("module", [plan, failures])
def test_a_damaged_record_is_a_line(tmp_path, module):
    make(tmp_path)
    (tmp_path / module.FILE).write_bytes(b'[{"rule')
    with pytest.raises(UserError, match=r"\.json: cannot be read \(.*\); delete it, or start the run again") as caught:
        status("--folder", tmp_path)
    assert "\n" not in str(caught.value)


def test_a_run_that_was_stopped_is_no_failure(tmp_path):
    make(tmp_path)
    (path,) = [job.outputs[0] for job in plan.read(tmp_path).jobs if job.wildcards["solver"] == "ddim"]
    text = "Terminating processes on user request, this might take some time.\n[Tue Dec  1 00:21:27 2026]\n"
    text += f"Error in rule sample:\n    message: None\n    jobid: 4\n    output: {path}\n"
    log = tmp_path / ".snakemake/log/1.snakemake.log"
    log.parent.mkdir(parents=True)
    log.write_text(text)
    for words in ([], ["--failed"]):
        result = status("--folder", tmp_path, *words)
        assert result.exit_code == 0
        line = r"ddim +stopped\n    stopped by you; the same command goes on\n"
        assert re.search(line, result.stdout)
    assert result.stdout.endswith("2 cells: 1 not started, 1 stopped\n")


def test_a_run_that_goes_well_is_exit_code_0(tmp_path):
    make(tmp_path, "ddpm")
    result = status("--folder", tmp_path)
    assert result.exit_code == 0
    assert f"process {os.getpid()}, still running: snakemake --profile local" in result.stdout
    assert re.search(r"^sample +mini +a100 +fp32 +ddpm +done$", result.stdout, re.MULTILINE)
    assert re.search(r"^sample +mini +a100 +fp32 +ddim +not started$", result.stdout, re.MULTILINE)
    assert result.stdout.endswith("2 cells: 1 done, 1 not started\n")


def test_the_folder_of_the_command_is_that_of_the_run(tmp_path, monkeypatch):
    make(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert "2 not started" in status().stdout


def test_a_failure_is_exit_code_1_and_said(tmp_path):
    make(tmp_path, "ddpm")
    (job,) = [each for each in plan.read(tmp_path).jobs if each.wildcards["solver"] == "ddim"]
    failures.write(tmp_path, [Failure(job.rule, job.wildcards, job.outputs, REASON)])
    result = status("--folder", tmp_path)
    assert result.exit_code == 1
    assert f"    {REASON}\n" in result.stdout
    only = status("--folder", tmp_path, "--failed")
    assert only.exit_code == 1
    assert " ddim " in only.stdout
    assert " ddpm " not in only.stdout


def test_the_queue_of_the_cluster_is_asked(tmp_path, monkeypatch):
    comment = "rule_sample_wildcards_mini_a100_fp32_ddpm"
    waiting = queue.QueuedJob(id="12", state="PENDING", name="run", comment=comment, node="")
    monkeypatch.setattr(queue, "jobs", lambda folder: [waiting] if Path(folder) == tmp_path else None)
    make(tmp_path)
    output = status("--folder", tmp_path).stdout
    assert re.search(r"ddpm +queued +12$", output, re.MULTILINE)
    assert re.search(r"ddim +not started$", output, re.MULTILINE)


def test_stages_come_in_their_order_and_other_jobs_in_short():
    done = [
        CellState("archive", {}, "not started"),
        CellState("data_qc", {"dataset": "heads"}, "done"),
        CellState("evaluate", {"model": "mini"}, "done"),
        CellState("profile", {"model": "mini", "gpu": "a100", "variant": "fp32", "phase": "train"}, "done"),
        CellState("report", {}, "failed", detail="no room", log="results/logs/report.log"),
        sample("done", variant="tf32"),
        sample("done"),
        CellState("prepare", {"dataset": "heads"}, "done"),
        CellState("train", {"model": "mini", "gpu": "a100", "variant": "fp32"}, "done"),
        CellState("timing_table", {}, "done"),
    ]
    lines = printed(done).split("\n")
    assert (lines[2].split()[-3:], lines[3].split()) == (["variant", "phase,", "state"], ["data", "solver"])
    first = [line.split()[0] for line in lines[2:] if line and not line.startswith(" ")]
    stages = ["prepare", "train", "sample", "sample", "profile", "evaluate", "report"]
    assert first[: len(stages) + 1] == ["stage", *stages]
    assert [line.split()[3] for line in lines if line.startswith("sample")] == ["fp32", "tf32"]
    assert "other jobs done: data_qc heads, timing_table" in lines
    assert "other jobs not started: archive" in lines
    assert "6 cells: 6 done" in lines


@pytest.mark.parametrize("width", [80, 100])
def test_everything_fits_the_width(width):
    cells = [
        CellState(
            "sample",
            {
                "model": f"whole_head_128_{'long_' * 5}",
                "gpu": "a100",
                "variant": "tf32_channels_last",
                "solver": "x" * 21,
            },
            "failed",
            slurm_id="4711000",
            detail="word " * 60,
            log="results/logs/sample/" + "deep/" * 20 + "a.log",
            lines=("y" * 300, "one two"),
        )
    ]
    output = printed(cells, width)
    assert max(map(len, output.split("\n"))) <= width
    together = re.sub(r"\s", "", output)
    assert "4711000" in output
    assert together.count("word") == 60
    assert "y" * 300 in together
    assert "deep/" * 20 + "a.log" in together


def test_words_of_logs_neither_colour_nor_move_anything():
    odd = "[bold]odd[/bold] \x1b[2J\r[/red]"
    cell = sample("failed", odd, variant="[red]\x1b", log="a[/b].log", lines=(odd + "x", "\x9b1m"))
    output = printed([cell])
    assert "    [bold]odd[/bold] ?[2J?[/red]\n" in output
    assert "        [bold]odd[/bold] ?[2J?[/red]x\n        ?1m\n    a[/b].log\n" in output
    assert " [red]? " in output


def test_states_are_coloured():
    output = printed([sample("done"), sample("failed", "no", "tf32"), sample("queued", "", "bf16")], colour=True)
    assert re.search(r"\x1b\[32mdone *\x1b\[0m", output)
    assert re.search(r"\x1b\[31mfailed *\x1b\[0m", output)
    assert "\x1b[31mno\x1b[0m" in output
    for each in state.STATES:
        assert each in printed([sample(each)], colour=True)
    assert "\x1b" not in printed([sample("done")])


def test_the_same_words_are_said_once():
    cells = [sample("not started", "the training of its weights failed", variant) for variant in ("a", "b", "c")]
    output = printed(cells)
    assert output.count("not started\n") == 4  # with the count at the end
    assert output.count("the training of its weights failed") == 1
    cells = [sample("failed", "no room", variant, log=f"{variant}.log", lines=("x",)) for variant in ("a", "b")]
    assert printed(cells).count("no room") == 2


def test_many_cells_are_folded_unless_all_are_asked_for():
    variants = [f"v{number:02}" for number in range(70)]
    cells = [sample("failed" if variant in ("v33", "v35") else "done", variant=variant) for variant in variants]
    output = printed(cells)
    assert re.search(r"^sample +mini +a100 +68 cells +done$", output, re.MULTILINE)
    assert re.search(r"^sample +mini +a100 +v33 +ddpm +failed$", output, re.MULTILINE)
    assert "v34" not in output
    assert "70 cells: 68 done, 2 failed" in output
    output = printed(cells, every_cell=True)
    assert all(f" {variant} " in output for variant in variants)
    assert " v34 " in printed(cells[:40])


def test_only_what_is_not_settled_can_be_asked_for():
    cells = [
        *(sample(state, variant=f"is_{state[:3]}") for state in ("done", "unsupported", "unavailable", "failed")),
        *(sample(state, variant=f"is_{state[:3]}") for state in ("running", "queued", "not started")),
        CellState("run_config", {}, "done"),
        CellState("report", {}, "not started"),
    ]
    output = printed(cells, unsettled_only=True)
    assert re.findall(r"is_\w+", output) == ["is_fai", "is_not", "is_que", "is_run"]
    assert "run_config" not in output
    assert "other jobs not started: report" in output
    assert output.endswith(
        "cells: 1 done, 1 unsupported, 1 unavailable, 1 running, 1 queued, 1 not started, 1 failed\n"
    )


def test_a_run_that_has_ended_is_said_to_have(tmp_path):
    make(tmp_path)
    record = tmp_path / plan.FILE
    record.write_text(record.read_text().replace(f'"pid": {os.getpid()}', '"pid": 4194305'))
    assert "process 4194305, has ended: " in status("--folder", tmp_path).stdout
    assert "on login1, process 7: snakemake" in printed([])


@pytest.mark.parametrize(
    "program", ["/my venv/bin/snakemake", "/venv/site-packages/snakemake/__main__.py", "snakemake"]
)
def test_the_command_is_as_it_was_typed(program):
    found = dataclasses.replace(PLAN, command=f"{program} --profile local /a/snakemake")
    stream = StringIO()
    print_status(found, [], console=Console(file=stream, width=120))
    assert ", process 7: snakemake --profile local /a/snakemake\n" in stream.getvalue()
