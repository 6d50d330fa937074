"""Running a command of SLURM: its answer as text, or one line that says why there is none."""

import os
import signal
import subprocess

from meddpm.config import UserError
from meddpm.words import printable

TIMEOUT_S = 30.0


class NoCluster(UserError):
    """There is no SLURM here, or it does not answer."""


def run(*words: str) -> str:
    """What the command prints. Raises NoCluster where it is not there, fails or takes more than `TIMEOUT_S` seconds."""
    # What a user has set for their own eyes (SQUEUE_FORMAT, SINFO_PARTITION ...) changes what is listed.
    personal = ("SINFO_", "SQUEUE_", "SCANCEL_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(personal)}
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            env=environment,
            # A group of its own: where the command is a site's wrapper, what that started is ended with it.
            start_new_session=True,
        )
    except OSError as error:
        raise NoCluster(
            f"{words[0]}: cannot be run ({error.strerror}); right would be a login node of a SLURM cluster"
        ) from None
    try:
        printed, complaint = process.communicate(timeout=TIMEOUT_S)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise NoCluster(
                f"{words[0]}: no answer in {TIMEOUT_S:.0f} s; is the SLURM controller down? Try again later"
            ) from None
        raise
    if process.returncode != 0:
        lines = printable(complaint.strip(), keep="\n").splitlines()
        reason = lines[0][:200] if lines else f"exit code {process.returncode}"
        raise NoCluster(f"{words[0]}: failed ({reason}); is the SLURM controller down?")
    return printed
