"""One run at a time in a folder."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from meddpm.config import UserError, repository_root
from meddpm.runs import lock

HOLD = "import sys; from meddpm.runs import lock; lock.take(sys.argv[1]); print('has', flush=True); sys.stdin.read()"
# The holder starts a child that has the file, and one that has not, and tells their numbers.
PARENT = """
import subprocess, sys
from meddpm.runs import lock
file = lock.take(sys.argv[1])
heir = subprocess.Popen(["sleep", "100"], pass_fds=[file])
other = subprocess.Popen(["sleep", "100"])
print(heir.pid, other.pid, flush=True)
sys.stdin.read()
"""


def start(code: str, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, str(folder)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=repository_root(), stdin=pipe, stdout=pipe, text=True)


def test_a_second_run_is_refused_in_a_line_until_the_first_is_killed(tmp_path: Path) -> None:
    with start(HOLD, tmp_path) as first:
        assert first.stdout.readline() == "has\n"
        with pytest.raises(UserError, match=rf"another run works in this folder \(process {first.pid} on ") as caught:
            lock.take(tmp_path)
        assert "\n" not in str(caught.value)
        os.close(lock.take(tmp_path / "another"))
        first.kill()
    os.close(lock.take(tmp_path))


def test_the_second_pass_holds_it_after_its_parent_was_killed_and_a_job_does_not(tmp_path: Path) -> None:
    with start(PARENT, tmp_path) as parent:
        heir, other = map(int, parent.stdout.readline().split())
        parent.kill()
    try:
        with pytest.raises(UserError, match="another run"):
            lock.take(tmp_path)
        os.kill(heir, signal.SIGKILL)
        while Path(f"/proc/{heir}/fd").exists() and list(Path(f"/proc/{heir}/fd").iterdir()):
            pass
        os.close(lock.take(tmp_path))
    finally:
        os.kill(other, signal.SIGKILL)


def test_who_holds_it_can_be_asked_without_taking_it(tmp_path: Path) -> None:
    assert lock.holder(tmp_path) is None
    assert not list(tmp_path.iterdir()), "asking leaves nothing"
    with start(HOLD, tmp_path) as first:
        assert first.stdout.readline() == "has\n"
        assert lock.holder(tmp_path).startswith(f"process {first.pid} on ")
        (tmp_path / lock.FILE).write_text("\x1b[2J\nprocess")
        assert lock.holder(tmp_path) == "?[2J process"
        first.kill()
    assert lock.holder(tmp_path) is None
    os.close(lock.take(tmp_path))
    (tmp_path / lock.FILE).unlink()
    os.mkfifo(tmp_path / lock.FILE)
    ask = "import sys; from meddpm.runs import lock; assert lock.holder(sys.argv[1]) is None"
    subprocess.run([sys.executable, "-c", ask, str(tmp_path)], cwd=repository_root(), check=True, timeout=20)


def test_what_a_holder_wrote_cannot_break_the_terminal(tmp_path: Path) -> None:
    with start(HOLD, tmp_path) as first:
        first.stdout.readline()
        (tmp_path / lock.FILE).write_text("\x1b[2J\nprocess")
        with pytest.raises(UserError) as caught:
            lock.take(tmp_path)
        assert str(caught.value).isprintable()
        first.kill()
