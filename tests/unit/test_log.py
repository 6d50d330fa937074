"""The log of a job: how it begins and how it ends, whatever ends it."""

import errno
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from meddpm import interrupt, log
from meddpm.config import UserError, repository_root
from meddpm.files import replacing, write_text

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a.csv")


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Handlers of signals as Python starts with, and afterwards those of signals and of logging as they were."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setattr(logging, "raiseExceptions", logging.raiseExceptions)
    root, handlers = logging.getLogger(), logging.getLogger().handlers[:]
    levels = root.level, log.logger.level
    signals = {number: signal.getsignal(number) for number in interrupt.SIGNALS}
    root.handlers.clear()  # basicConfig would close them
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in signals.items():
        signal.signal(number, handler)
    for handler in root.handlers:
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    log.logger.setLevel(levels[1])
    logging.captureWarnings(False)


def lines(path: Path) -> list[str]:
    """The lines of a log without their times."""
    return [re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ", "", line) for line in path.read_text().splitlines()]


def began() -> str:
    return f"INFO started on {socket.gethostname()}, process {os.getpid()}"


def test_a_job_that_ends_well_says_where_it_ran_and_that_it_is_done(tmp_path: Path) -> None:
    with log.job(tmp_path / "logs/job.log"):
        log.logger.info("at work")
    assert lines(tmp_path / "logs/job.log") == [began(), "INFO at work", "INFO done"]


@pytest.mark.parametrize(("number", "said"), [("4711", ", SLURM job 4711"), ("", ""), ("1\n2", ""), ("x", "")])
def test_the_number_of_a_slurm_job_is_in_the_first_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: str, said: str
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", number)
    with log.job(tmp_path / "job.log"):
        pass
    assert lines(tmp_path / "job.log") == [began() + said, "INFO done"]


@pytest.mark.parametrize(
    ("error", "line", "ends_with"),
    [
        (UserError("mend it"), "mend it", SystemExit),
        (FULL, "a.csv: No space left on device; make room or mend the permissions", SystemExit),
        (OSError(errno.ENOENT, "no such file"), "the system refused", OSError),
        (ValueError("shapes"), "a fault of the program", ValueError),
        (SystemExit("enough"), "enough", SystemExit),
        (KeyboardInterrupt(), "stopped by SIGINT (Ctrl-C)", SystemExit),
    ],
)
def test_a_job_that_fails_says_why_and_ends_with_an_error(
    tmp_path: Path, error: BaseException, line: str, ends_with: type[BaseException]
) -> None:
    with pytest.raises(ends_with) as caught, log.job(tmp_path / "job.log"):
        raise error
    said = lines(tmp_path / "job.log")
    assert (said[0], said[1], said[-1]) == (began(), f"ERROR {line}", "ERROR ended with an error")
    if ends_with is SystemExit:
        assert caught.value.code == line
        assert len(said) == 3


def test_a_refusal_names_the_file_or_the_place() -> None:
    assert log.refusal(FULL, "x") == "a.csv: No space left on device; make room or mend the permissions"
    bare = OSError(errno.EIO, "Input/output error")
    assert log.refusal(bare) == "results: Input/output error; make room or mend the permissions"
    assert log.refusal(bare, Path("y")).startswith("y: Input/output error;")


@pytest.mark.parametrize("words", ["make room or mend the permissions", '"ended with an error"', "started on "])
def test_words_that_others_look_for_stand_in_one_place(words: str) -> None:
    root = repository_root()
    sources = [
        path for folder in ("meddpm", "rules") for path in (root / folder).rglob("*") if path.suffix in (".py", ".smk")
    ]
    found = [path.relative_to(root) for path in sources if words in path.read_text(encoding="utf-8")]
    assert found == [Path("meddpm/log.py")]


# --- SIGTERM ---

WRITES = """
import sys, time
from pathlib import Path
from meddpm import files, log
with log.job(sys.argv[1]), files.replacing(sys.argv[2]) as temporary:
    temporary.write_text("half")
    print("writing", flush=True)
    time.sleep(60)
"""


def test_sigterm_ends_a_job_with_a_line_and_nothing_half_written(tmp_path: Path) -> None:
    target = tmp_path / "table.csv"
    write_text(target, "before")
    process = subprocess.Popen(
        [sys.executable, "-c", WRITES, str(tmp_path / "job.log"), str(target)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=repository_root(),
    )
    try:
        assert process.stdout.readline() == "writing\n"
        process.terminate()
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, errors) == (1, f"{log.TERMINATED}\n")
    assert lines(tmp_path / "job.log")[1:] == [f"ERROR {log.TERMINATED}", "ERROR ended with an error"]
    assert target.read_text() == "before"
    assert {path.name for path in tmp_path.iterdir()} == {"job.log", "table.csv"}


def test_after_the_block_sigterm_is_what_it_was(tmp_path: Path) -> None:
    with log.job(tmp_path / "job.log"):
        assert callable(signal.getsignal(signal.SIGTERM))
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    with pytest.raises(SystemExit), log.job(tmp_path / "job.log"):
        raise UserError("mend it")
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda number, frame: None])
def test_another_answer_to_sigterm_stays(tmp_path: Path, handler: signal.Handlers) -> None:
    signal.signal(signal.SIGTERM, handler)
    with log.job(tmp_path / "job.log"):
        signal.raise_signal(signal.SIGTERM)
    assert lines(tmp_path / "job.log")[-1] == "INFO done"
    assert signal.getsignal(signal.SIGTERM) == handler


def test_in_another_thread_signals_are_left_alone(tmp_path: Path) -> None:
    found = []

    def work() -> None:
        with log.job(tmp_path / "job.log"):
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.SIG_DFL]
    assert lines(tmp_path / "job.log")[-1] == "INFO done"


def test_a_loop_that_notes_signals_ends_as_it_likes(tmp_path: Path) -> None:
    with log.job(tmp_path / "job.log"):
        with interrupt.noted() as asked:
            signal.raise_signal(signal.SIGTERM)
            assert asked() == "SIGTERM"
        write_text(tmp_path / "saved", "all")
    assert lines(tmp_path / "job.log")[-1] == "INFO done"


def test_a_second_sigterm_ends_what_the_first_one_began_and_nothing_is_half_written(tmp_path: Path) -> None:
    write_text(tmp_path / "saved", "before")

    def work() -> None:
        with log.job(tmp_path / "job.log"), interrupt.noted(), replacing(tmp_path / "saved") as temporary:
            temporary.write_text("half")
            for _ in range(2):
                signal.raise_signal(signal.SIGTERM)

    with pytest.raises(SystemExit, match="stopped by SIGTERM"):
        work()
    assert (tmp_path / "saved").read_text() == "before"
    assert {path.name for path in tmp_path.iterdir()} == {"job.log", "saved"}
    assert lines(tmp_path / "job.log")[1:] == [f"ERROR {log.TERMINATED}", "ERROR ended with an error"]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
