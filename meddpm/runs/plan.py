"""The plan of a run: its jobs, written by the workflow before the first one starts."""

import dataclasses
import os
import socket
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from meddpm.config import UserError
from meddpm.files import write_json
from meddpm.runs import records
from meddpm.words import printable

# What a run leaves for `python -m meddpm status`, in its folder.
RECORDS = Path("results/run")
FILE = RECORDS / "plan.json"


@dataclass(frozen=True)
class PlannedJob:
    """One job: its rule, wildcards (in the order of the rule), files and log, relative to the folder of the run.

    `needed`: this run had to run it. `inputs` tell which jobs come before it.
    """

    rule: str
    wildcards: dict[str, str]
    outputs: list[str]
    log: str | None
    needed: bool
    inputs: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """The jobs of a run, the command and process that started it, when (local time) and where.

    `since` is that time by the clock of the file system, in seconds: files that are older come from an earlier run.
    """

    host: str
    pid: int
    time: str
    command: str
    jobs: list[PlannedJob]
    since: float


def write(folder: Path | str, jobs: list[PlannedJob], command: str) -> None:
    """Write the plan of a run that starts in `folder` now, as a child of this process or in it."""
    record = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "time": time.strftime("%Y-%m-%d %H:%M:%S"),
        "command": printable(command),
        "jobs": [dataclasses.asdict(job) for job in jobs],
    }
    write_json(Path(folder) / FILE, record)


def settle(folder: Path | str, outputs: Collection[str]) -> None:
    """Note in the plan of `folder` that `outputs` were found to be as they should: nothing had to be run for them.

    A plan that is gone or damaged stays as it is: `status` says so.
    """
    path = Path(folder) / FILE
    try:
        planned = read(folder)
    except UserError:
        planned = None
    if planned is None:
        return
    record = dataclasses.asdict(planned)
    del record["since"]
    for job in record["jobs"]:
        job["needed"] = job["needed"] and set(outputs).isdisjoint(job["outputs"])
    began = path.stat()
    write_json(path, record)
    os.utime(path, ns=(began.st_atime_ns, began.st_mtime_ns))  # it says when the run began


def read(folder: Path | str) -> Plan | None:
    """The plan of the last run that started in `folder`; None where none did. Raises UserError if it is no plan."""
    path = Path(folder) / FILE

    def build(value: object) -> Plan:
        record = records.checked(
            value,
            host=records.is_text,
            pid=records.is_number,
            time=records.is_text,
            command=records.is_text,
            jobs=lambda jobs: isinstance(jobs, list),
        )
        jobs = [_job(each) for each in record["jobs"]]
        return Plan(**record | {"jobs": jobs}, since=path.stat().st_mtime)

    return records.read(path, build)


def _job(value: object) -> PlannedJob:
    """A job of a plan. Raises ValueError if it is none."""
    record = records.checked(
        value,
        rule=records.is_text,
        wildcards=records.are_named_texts,
        outputs=records.are_texts,
        log=lambda log: log is None or records.is_text(log),
        needed=records.is_flag,
        inputs=records.are_texts,
    )
    return PlannedJob(**record)
