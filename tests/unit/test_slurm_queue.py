"""Our jobs in the queue, from what squeue prints, and their end."""

import logging
import os
import time
from pathlib import Path

import pytest

from meddpm.config import UserError
from meddpm.slurm import command, queue
from meddpm.slurm.command import NoCluster
from meddpm.slurm.queue import QueuedJob
from tests.unit.slurm_fixture import Commands, commands

__all__ = ["commands"]

RUN = "562cb261-610d-4dcf-9ec4-c270923be12f"


def line(
    number: str, folder: Path | str, comment: str = "rule_bench_wildcards_a", name: str = RUN, state: str = "RUNNING"
) -> str:
    """A job as squeue prints it."""
    return (
        "\x1e"
        + "\x1f".join([number, state, name, "" if state == "PENDING" else "node-01", str(folder), comment])
        + "\n"
    )


def living(commands: Commands, **jobs: str) -> None:
    """Let squeue list jobs as long as they are there as files, which scancel removes."""
    (commands.folder / "jobs").mkdir()
    (commands.folder / "rm").symlink_to("/bin/rm")
    for number, text in jobs.items():
        (commands.folder / "jobs" / number.removeprefix("_")).write_text(text, encoding="utf-8")
    commands.script(
        "squeue", f'cd "{commands.folder}/jobs"; for job in *; do [ -e "$job" ] && cat "$job"; done; exit 0'
    )
    commands.script("scancel", f'cd "{commands.folder}/jobs"; rm -f -- "$@"')


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "POLL_S", 0.02)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


def test_the_jobs_of_a_folder_are_found_by_one_call(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    text = line("7", tmp_path) + line("8", tmp_path / "link", state="PENDING") + line("9", tmp_path / "other")
    commands.prints("squeue", text)
    expected = [
        QueuedJob("7", "RUNNING", RUN, "rule_bench_wildcards_a", "node-01"),
        QueuedJob("8", "PENDING", RUN, "rule_bench_wildcards_a", ""),
    ]
    assert queue.jobs(tmp_path) == expected
    assert queue.jobs(tmp_path / "link") == expected
    call, _ = commands.called("squeue")
    assert call == f"--noheader --user={os.getuid()} --format {queue.FORMAT}"


def test_a_comment_may_hold_anything(commands: Commands, tmp_path: Path) -> None:
    comments = ["a|b %k\n\x1b[31mnew \x1fline\n", "(null)", ""]
    text = "".join(line(str(number), tmp_path, comment) for number, comment in enumerate(comments))
    commands.prints("squeue", text + "\x1ebroken\n")
    found = queue.jobs(tmp_path)
    assert [job.comment for job in found] == ["a|b %k??[31mnew ?line?", "", ""]


def test_what_the_user_has_set_changes_nothing(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands.prints("squeue", line("7", tmp_path))
    commands.script("squeue", f'[ -z "$SQUEUE_PARTITION$SQUEUE_STATES" ] && cat "{commands.folder}/squeue.txt"')
    monkeypatch.setenv("SQUEUE_PARTITION", "other")
    monkeypatch.setenv("SQUEUE_STATES", "PENDING")
    assert [job.id for job in queue.jobs(tmp_path)] == ["7"]


def test_no_answer_is_none_and_no_job_is_an_empty_list(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert queue.jobs(tmp_path) is None
    commands.script("squeue", "echo down >&2; exit 1")
    assert queue.jobs(tmp_path) is None
    commands.prints("squeue", "")
    assert queue.jobs(tmp_path) == []
    monkeypatch.setattr(command, "TIMEOUT_S", 0.2)
    commands.script("squeue", "sleep 60")
    assert queue.jobs(tmp_path) is None


def test_cancel_waits_until_the_jobs_are_gone(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    living(commands, _1=line("1", tmp_path), _2=line("2", tmp_path), _3=line("3", tmp_path))
    # They end 0.3 s after scancel.
    commands.script("scancel", f'cd "{commands.folder}/jobs"; (sleep 0.3; rm -f -- "$@") >/dev/null 2>&1 &')
    monkeypatch.setattr(queue, "REPORT_S", 0.1)
    with caplog.at_level(logging.INFO, logger="meddpm"):
        queue.cancel(["1", "2", "1"])
    assert commands.called("scancel") == ["1 2"]
    assert [job.id for job in queue.jobs(tmp_path)] == ["3"]
    lines = [record.getMessage() for record in caplog.records]
    assert 2 <= len(lines) <= 5
    assert lines[0] == "waiting for the end of 2 cancelled SLURM jobs: 1, 2"


def test_jobs_that_do_not_go_are_named(commands: Commands, tmp_path: Path) -> None:
    living(commands, _1=line("1", tmp_path), _2=line("2", tmp_path))
    commands.script("scancel", f'cd "{commands.folder}/jobs"; rm 1')
    start = time.monotonic()
    with pytest.raises(UserError, match=r"^SLURM jobs 2: still in the queue 0 s after scancel; end them by hand"):
        queue.cancel(["1", "2"], patience_s=0.3)
    assert 0.3 <= time.monotonic() - start < 5


def test_a_queue_that_does_not_answer_is_not_an_empty_one(commands: Commands) -> None:
    commands.script("scancel", "")
    commands.script("squeue", 'echo "no controller" >&2; exit 1')
    with pytest.raises(UserError, match=r"^SLURM jobs 1: still .* \(squeue: failed \(no controller\)"):
        queue.cancel(["1"], patience_s=0.1)


def test_scancel_is_tried_again_where_it_fails(commands: Commands, tmp_path: Path) -> None:
    living(commands, _1=line("1", tmp_path))
    flag = commands.folder / "busy"
    flag.write_text("")
    commands.script("scancel", f'[ -e "{flag}" ] && rm "{flag}" && exit 1; rm "{commands.folder}/jobs/$1"')
    queue.cancel(["1"], patience_s=10)
    assert commands.called("scancel") == ["1", "1"]


def test_jobs_that_have_ended_already_are_no_fault(commands: Commands) -> None:
    living(commands)
    commands.script("scancel", 'echo "Invalid job id specified" >&2; exit 1')
    queue.cancel(["1"], patience_s=0)
    queue.cancel([])
    assert commands.called("scancel") == ["1"]


def test_many_jobs_are_named_in_one_short_line(commands: Commands, tmp_path: Path) -> None:
    many = [str(number) for number in range(100, 130)]
    commands.script("scancel", "")
    commands.prints("squeue", "".join(line(number, tmp_path) for number in many))
    with pytest.raises(UserError, match=r"jobs 100, 101, .* 119 and 10 more: still"):
        queue.cancel(many, patience_s=0)


def test_only_what_snakemake_left_in_this_folder_is_cancelled(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    living(
        commands,
        _1=line("1", tmp_path),
        _2=line("2", tmp_path, name=f"mine_{RUN}", state="PENDING"),
        _3=line("3", tmp_path / "other"),
        _4=line("4", tmp_path, comment="my own job"),
        _5=line("5", tmp_path, name="snakemake"),
        _6=line("6", tmp_path),
    )
    monkeypatch.setenv("SLURM_JOB_ID", "6")
    queue.cancel_left_over(tmp_path)
    assert commands.called("scancel") == ["1 2"]
    queue.cancel_left_over(tmp_path)
    assert commands.called("scancel") == ["1 2"]


def test_what_is_left_over_is_not_guessed(commands: Commands, tmp_path: Path) -> None:
    with pytest.raises(NoCluster, match=r"^squeue: cannot be run"):
        queue.cancel_left_over(tmp_path)
