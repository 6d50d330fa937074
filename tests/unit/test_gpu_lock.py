"""The locks of a machine's GPUs, on made up ids and real processes: a GPU is one job's alone, however the job ends."""

import fcntl
import logging
import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from meddpm import gpu_lock
from meddpm.config import UserError, repository_root

IDS = ["GPU-a", "GPU-b"]
NOBODY = 65534
START = """
import multiprocessing, os, subprocess, sys, time
from pathlib import Path
from meddpm import config, gpu_lock, log
log.setup()
"""
HOLD = """
with gpu_lock.held(sys.argv[2:], Path(sys.argv[1]), poll_s=0.02) as index:
    print("has", index, flush=True)
    sys.stdin.readline()
"""

Start = Callable[..., "Job"]


class Job:
    """A process that takes a lock, says which, and ends when it is told to."""

    def __init__(self, code: str, folder: Path, ids: list[str]) -> None:
        command = [sys.executable, "-c", START + code, str(folder), *ids]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, bufsize=0, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, cwd=repository_root()
        )

    def line(self, seconds: float = 20.0) -> str:
        """The next line that it prints or logs."""
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        assert ready, "the job said nothing"
        return self.process.stdout.readline().decode().strip()

    def index(self) -> int:
        line = self.line()
        assert line.startswith("has "), line
        return int(line.split()[1])

    def end(self) -> None:
        self.process.communicate(b"\n", timeout=20)
        assert self.process.returncode == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    jobs: list[Job] = []

    def started(code: str = HOLD, folder: Path = tmp_path / "locks", ids: list[str] = IDS) -> Job:
        jobs.append(Job(code, folder, ids))
        return jobs[-1]

    yield started
    for job in jobs:
        job.kill()
        job.process.stdin.close()
        job.process.stdout.close()


def file_of(folder: Path, gpu: str) -> Path:
    """The file of a lock, and that it is the only one."""
    with gpu_lock.held([gpu], folder):
        (path,) = folder.iterdir()
    return path


class Enough(Exception):
    """Ends a waiting."""


def wait(folder: Path, looks: int, ids: list[str] = IDS, report_s: float = 30.0) -> None:
    """Wait for a GPU until it was looked for `looks` times."""
    left = iter(range(looks - 1))

    def between() -> None:
        if next(left, None) is None:
            raise Enough

    with pytest.raises(Enough), gpu_lock.held(ids, folder, between, 0.001, report_s):
        pytest.fail("the lock is not free")


# --- who has it ---


def test_two_jobs_get_a_gpu_each_and_a_third_waits_for_one(start: Start) -> None:
    first, second = start(), start()
    assert {first.index(), second.index()} == {0, 1}
    third = start()
    line = third.line()
    assert "waiting for a GPU" in line
    for job in (first, second):
        assert f"process {job.process.pid} on " in line
    assert sys.executable in line
    second.end()
    freed = third.index()
    fourth = start()
    assert f"process {third.process.pid} on " in fourth.line()
    first.end()
    assert fourth.index() == 1 - freed


def test_a_job_that_is_killed_frees_its_gpu(start: Start) -> None:
    first = start(ids=["GPU-a"])
    assert first.index() == 0
    second = start(ids=["GPU-a"])
    assert "waiting" in second.line()
    first.process.send_signal(signal.SIGKILL)
    assert second.index() == 0
    assert first.process.wait() == -signal.SIGKILL


CHILDREN = {
    "a program": "child = subprocess.Popen(['sleep', '60'], close_fds=False).pid",
    "a fork": "child = os.fork()\n    if not child: time.sleep(60)",
    "a worker": """worker = multiprocessing.get_context('fork').Process(target=time.sleep, args=(60,), daemon=True)
    worker.start()
    child = worker.pid""",
}


@pytest.mark.parametrize("child", CHILDREN)
def test_a_child_that_outlives_a_killed_job_does_not_keep_its_gpu(start: Start, child: str) -> None:
    job = start(HOLD.replace("print(", f"{CHILDREN[child]}\n    print(").replace("index, ", "index, child, "))
    outliving = int(job.line().split()[2])
    try:
        job.kill()
        next_one = start()
        assert next_one.index() == 0
        os.kill(outliving, 0)  # it lives still
    finally:
        os.kill(outliving, signal.SIGKILL)


def test_a_forked_child_that_leaves_the_block_does_not_free_the_gpu(start: Start) -> None:
    job = start(HOLD.replace("print(", "if not os.fork(): sys.exit()\n    os.wait()\n    print("))
    assert job.index() == 0
    assert start(ids=IDS[:1]).line().endswith(")")
    assert "waiting" in start(ids=IDS[:1]).line()


def test_the_end_of_the_block_frees_the_gpu_and_an_error_in_it_too(tmp_path: Path) -> None:
    def fail() -> None:
        with gpu_lock.held(["GPU-a"], tmp_path / "locks") as index:
            raise ZeroDivisionError(index)

    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="0"):
            fail()
    assert gpu_lock._open_files == set()


def test_other_folders_and_ids_have_other_locks(tmp_path: Path) -> None:
    with gpu_lock.held(["a b"], tmp_path / "1"), gpu_lock.held(["a_b"], tmp_path / "1") as index:
        with gpu_lock.held(["a b"], tmp_path / "2"):
            assert index == 0
        wait(tmp_path / "1", 1, ["a b", "a_b"])


def test_a_file_that_is_removed_at_the_wrong_moment_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old files in /tmp are removed: a lock on one that no other process finds would be no lock."""
    path, flock = file_of(tmp_path / "locks", "GPU-a"), fcntl.flock

    def after_removal(file: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        path.unlink()
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", after_removal)
    with gpu_lock.held(["GPU-a"], tmp_path / "locks"):
        wait(tmp_path / "locks", 1, ["GPU-a"])


# --- what those who wait read ---


@pytest.mark.parametrize(("report_s", "lines"), [(1000.0, 1), (0.0, 5)])
def test_those_who_wait_say_so_at_once_and_now_and_then(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, report_s: float, lines: int
) -> None:
    caplog.set_level(logging.INFO, "meddpm")
    with gpu_lock.held(["GPU-a"], tmp_path):
        wait(tmp_path, 5, ["GPU-a"], report_s)
    assert len(caplog.messages) == lines
    assert f"GPU-a: process {os.getpid()} on " in caplog.messages[0]


@pytest.mark.parametrize("word", [b"", b"\x1b[2J evil\nline \xff\r" * 99])
def test_a_file_may_hold_anything(tmp_path: Path, caplog: pytest.LogCaptureFixture, word: bytes) -> None:
    caplog.set_level(logging.INFO, "meddpm")
    path = file_of(tmp_path, "GPU-a")
    assert path.read_bytes() == b"", "it names a holder that is gone"
    with gpu_lock.held(["GPU-a"], tmp_path):
        path.write_bytes(word)
        wait(tmp_path, 1, ["GPU-a"])
    (message,) = caplog.messages
    assert message.isprintable()
    assert len(message) < 400
    assert ("?[2J evil line" if word else "left no word") in message


# --- the folder and its files ---


def test_all_users_may_use_what_one_with_a_strict_umask_made(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        path = file_of(tmp_path / "locks", "../GPU\n/é")
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    assert path.parent == tmp_path / "locks"
    assert stat.S_IMODE(path.stat().st_mode) == 0o666
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o1777


# For root nothing is read only: it becomes another user, once all is imported.
AS_NOBODY = f"""
if os.geteuid() == 0:
    os.setegid({NOBODY})
    os.seteuid({NOBODY})
try:
{HOLD.replace(chr(10), chr(10) + "    ")}
except config.UserError as error:
    print("error:", error, flush=True)
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users reach."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o1777)
    yield folder
    folder.chmod(0o700)
    shutil.rmtree(folder)


def test_a_file_that_may_only_be_read_can_be_locked(start: Start, open_folder: Path) -> None:
    file_of(open_folder, "GPU-a").chmod(0o444)
    job = start(AS_NOBODY, open_folder, ["GPU-a"])
    assert job.index() == 0
    wait(open_folder, 1, ["GPU-a"])
    job.end()


def test_a_file_of_another_user_can_be_locked(start: Start, open_folder: Path) -> None:
    """Without root there is one user alone, and this shows less."""
    job = start(AS_NOBODY, open_folder, ["GPU-a"])
    assert job.index() == 0
    waiting = start(folder=open_folder, ids=["GPU-a"])
    assert "waiting" in waiting.line()
    waiting.kill()  # else it may be the next to have it
    job.end()
    with gpu_lock.held(["GPU-a"], open_folder):
        assert "waiting" in start(AS_NOBODY, open_folder, ["GPU-a"]).line()


def test_a_folder_that_may_not_be_written_in_is_a_line(start: Start, open_folder: Path) -> None:
    open_folder.chmod(0o555)
    line = start(AS_NOBODY, open_folder, ["GPU-a"]).line()
    assert line.startswith(f"error: {open_folder}/")
    assert "Permission denied: no GPU can be locked; right would be a folder" in line


@pytest.mark.parametrize("kind", ["file", "link", "nothing above"])
def test_a_folder_that_is_none_is_a_line(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "locks"
    if kind == "file":
        folder.touch()
    elif kind == "link":
        folder.symlink_to(tmp_path)
    else:
        folder = folder / "locks"
    with pytest.raises(UserError, match=r"locks: (Not a directory|No such file or directory): no GPU .*") as caught:
        gpu_lock.held(["GPU-a"], folder).__enter__()
    assert "\n" not in str(caught.value)
    assert gpu_lock._open_files == set()


@pytest.mark.parametrize("kind", ["link", "link to nothing", "second name", "pipe", "folder"])
def test_something_else_in_the_place_of_a_lock_is_refused_and_left_alone(tmp_path: Path, kind: str) -> None:
    path = file_of(tmp_path / "locks", "GPU-a")
    path.unlink()
    other = tmp_path / "precious"
    other.write_text("words")
    if kind == "link":
        path.symlink_to(other)
    elif kind == "link to nothing":
        path.symlink_to(tmp_path / "none")
    elif kind == "second name":
        path.hardlink_to(other)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(UserError, match=f"{path}: .*: no GPU can be locked"):
        gpu_lock.held(["GPU-a"], tmp_path / "locks").__enter__()
    assert other.read_text() == "words"
    assert not (tmp_path / "none").exists()
    assert gpu_lock._open_files == set()


def test_the_folder_is_the_same_for_one_who_has_a_tmpdir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert gpu_lock.shared_folder() == Path("/tmp/meddpm-gpus")
