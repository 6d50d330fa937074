"""Runs a profiler, a program of its own, with a time limit; nothing that it started outlives the call."""

import os
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from meddpm.status import FAILED, UNAVAILABLE, CannotRun
from meddpm.words import one_line

# What a tool gets to tidy up after itself once it is asked to end, in seconds.
GRACE_S = 5.0
# Set for all that a tool starts, so that it is found again in whatever session it put itself.
MARK = "MEDDPM_PROFILER_RUN"


class Failed(CannotRun):
    """The tool, or the program that it ran, failed or was stopped; `output` is all that both said."""

    def __init__(self, reason: str, output: str, timed_out: bool) -> None:
        super().__init__(FAILED, reason)
        self.output = output
        self.timed_out = timed_out


def run(command: list[str], seconds: float, name: str, env: Mapping[str, str] | None = None) -> str:
    """What the command and all that it starts print, standard output and error together.

    `env` is the whole environment, that of this process where it is None. `name` is the tool's in reasons. Raises
    CannotRun, unavailable, where the command cannot be run here, and Failed where it ends with an error, or has not
    ended in `seconds`. When the call ends, so has everything that the command started.
    """
    mark = f"{MARK}={secrets.token_hex(16)}"
    environment = dict(os.environ if env is None else env) | {MARK: mark.partition("=")[2]}
    # A file, not a pipe: what a tool leaves behind may hold a pipe open for ever.
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            missing = isinstance(error, FileNotFoundError) and os.sep not in command[0]
            why = "not on the PATH" if missing else error.strerror or str(error)
            raise CannotRun(UNAVAILABLE, one_line(f"{name} cannot be run here ({command[0]}: {why})")) from None
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process, mark.encode())
        output.seek(0)
        said = output.read().decode("utf-8", "replace")
    if code is None:
        reason = f"{name} took more than {seconds:g} s and was stopped; the last it said: {last_line(said)}"
        raise Failed(one_line(reason), said, True)
    if code != 0:
        how = f"ended by {_signal(-code)}" if code < 0 else f"exit code {code}"
        raise Failed(one_line(f"{name} failed ({how}): {last_line(said)}"), said, False)
    return said


def last_line(text: str) -> str:
    """The last line that is not blank, printable and not long; words that say so where there is none."""
    lines = [line for line in text[-100_000:].splitlines() if line.strip()]
    return one_line(lines[-1]) if lines else "nothing was printed"


def _end(process: subprocess.Popen[bytes], mark: bytes) -> None:
    """End the process where it still runs, and all that it started."""
    try:
        if process.poll() is None:
            _signal_group(process, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)
    finally:
        _signal_group(process, signal.SIGKILL)
        process.wait()
        # A tool may put its helpers into sessions of their own, and one that is being ended may start another.
        until = time.monotonic() + GRACE_S
        while (left := _marked(mark)) and time.monotonic() < until:
            for number in left:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            time.sleep(0.01)


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _marked(mark: bytes) -> list[int]:
    """The processes that have the mark in the environment they were started with."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:  # of another user, or gone
            pass
    return found


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
