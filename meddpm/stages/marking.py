"""Starts the program whose marked step a profiler of its own process watches: `meddpm.stages.marked`."""

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from meddpm.config import repository_root
from meddpm.files import write_json
from meddpm.stages.job import Job
from meddpm.status import FAILED, CannotRun


@dataclass(frozen=True)
class Program:
    """The command that a profiler starts, the environment it needs, and the file in which it answers."""

    command: list[str]
    environment: dict[str, str]
    answer: Path

    def said(self) -> dict[str, Any]:
        """What the program left: {flags}. Raises CannotRun where it left nothing."""
        if not self.answer.is_file():
            raise CannotRun(FAILED, "the profiled program ended before its step; its words are in the log")
        return json.loads(self.answer.read_text(encoding="utf-8"))


@contextmanager
def marked(job: Job, operators: dict[str, Any] | None, threads: int) -> Iterator[Program]:
    """The program that runs the step of a job on the current GPU between marks, or each of `operators` in its place.

    Where the block raises CannotRun and the program itself had a reason not to run, that is raised in its place.
    """
    with tempfile.TemporaryDirectory() as folder:
        asked, answer = Path(folder) / "job.json", Path(folder) / "answer.json"
        values = {"stage": job.stage, "settings": job.values, "threads": threads, "operators": operators}
        write_json(asked, {**values, "device": torch.cuda.current_device()})
        command = [sys.executable, "-m", "meddpm.stages.marked", str(asked), str(answer)]
        # It finds this package wherever it is started.
        paths = [str(repository_root()), os.environ.get("PYTHONPATH", "")]
        program = Program(command, {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}, answer)
        try:
            yield program
        except CannotRun:
            said = program.said() if answer.is_file() else {}
            if "status" in said:
                raise CannotRun(said["status"], said["reason"]) from None
            raise
