"""The state of every cell of a run: from its files, the queue of a cluster, the logs, and what the run said at its end.

A run that goes on changes all of them at any time, so nothing here depends on two of them being of one moment.
"""

import csv
import io
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from meddpm.config import UserError
from meddpm.runs import failures, job_log, plan, regular, snakemake_log
from meddpm.runs.failures import Failure
from meddpm.runs.job_log import JobLog
from meddpm.runs.plan import Plan, PlannedJob
from meddpm.runs.snakemake_log import Said
from meddpm.status import FAILED, UNAVAILABLE, UNSUPPORTED
from meddpm.words import one_line

if TYPE_CHECKING:
    from meddpm.slurm.queue import QueuedJob

DONE, QUEUED, RUNNING, NOT_STARTED, STOPPED = "done", "queued", "running", "not started", "stopped"
# In the order in which they are counted.
STATES = (DONE, UNSUPPORTED, UNAVAILABLE, RUNNING, QUEUED, NOT_STARTED, STOPPED, FAILED)

# Stages whose table says of its cell whether it ran. That of evaluate holds other cells' rows.
WITH_STATUS = ("sample", "bench", "profile", "counters", "timeline")
# The rule that writes the files of cells that do not run, below FOLDER and else where the stage would.
NOT_RUN, NOT_RUN_FOLDER = "not_run", "results/not_run"
# The folder of a stage's files, and the wildcards that lie below it.
CELL_FOLDERS = {
    "samples": ("sample", ("model", "gpu", "variant", "solver")),
    "bench": ("bench", ("model", "gpu", "variant", "phase")),
    "profiles": ("profile", ("model", "gpu", "variant", "phase")),
    "counters": ("counters", ("model", "gpu", "variant", "phase")),
    "timelines": ("timeline", ("model", "gpu", "variant", "phase")),
    "quality": ("evaluate", ("model",)),
}
# States that SLURM has for a job that does not run yet, or any more; in every other one it runs.
WAITS = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
ENDED = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
    *("REVOKED", "TIMEOUT"),
}
# Seconds by which the clocks of a machine and of its file system may differ.
CLOCKS = 60
# Seconds of which some file systems keep the time of a file.
GRAIN = 1
# Lines of the log of a failed job that are shown.
LINES = 3
# What ends a job that is told to stop.
TOLD = ("", "SIGINT", "SIGTERM")


@dataclass(frozen=True)
class CellState:
    """One job: `state` is one of STATES; `detail` the reason or the progress, one line or "".

    `log` tells more: the job's own one, if it has words, or Snakemake's, of a job that was not taken into the queue.
    `lines` are the last ones of the log of a job that failed, printable.
    """

    rule: str
    wildcards: dict[str, str]
    state: str
    slurm_id: str | None = None
    detail: str = ""
    log: str | None = None
    lines: tuple[str, ...] = ()


def states(planned: Plan, folder: Path | str, queue: "list[QueuedJob] | None") -> list[CellState]:
    """The state of each job of `planned` that makes something, in its order. `queue` None: it is not known."""
    folder = Path(folder)
    known = {_key(each.rule, each.wildcards): each for each in failures.read(folder)}
    logs = snakemake_log.of_run(folder, planned.since)
    said = snakemake_log.read(logs[0] if logs else None)
    stopped = snakemake_log.stopped(logs)
    slurm_ids = None if queue is None else {each.id for each in queue}
    in_queue = {each.comment: each for each in queue or () if each.state not in ENDED}
    found = []
    for job in planned.jobs:
        if job.rule == NOT_RUN:
            found += _not_run(job, folder)
        elif job.outputs:
            seen = _Seen(
                job=job,
                folder=folder,
                since=planned.since,
                log=failures.fresh_log(job, folder, planned.since),
                queued=in_queue.get(_comment(job)),
                slurm_ids=slurm_ids,
                failure=known.get(_key(job.rule, job.wildcards)),
                said=snakemake_log.last(said, job.rule, job.outputs),
                stopped=stopped,
            )
            run_log = str(logs[0].relative_to(folder)) if logs else None
            found.append(_cell(seen, *_state(seen), run_log))
    return found


def lives(host: str, process: int, seen: float) -> bool | None:
    """Whether a process that lived at the time `seen` still does; None where it is on another host than this."""
    if host != socket.gethostname():
        return None
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return False
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    # One that began later has got the number of one that ended.
    return fields[0] != "Z" and time.time() - age <= seen + CLOCKS


class _Seen(NamedTuple):
    """What is known of a job: its log of this run, its place in the queue, what the run said at its end and before.

    `stopped` says how the run was told to stop, "" if it was not.
    """

    job: PlannedJob
    folder: Path
    since: float
    log: JobLog | None
    queued: "QueuedJob | None"
    slurm_ids: set[str] | None
    failure: Failure | None
    said: Said | None
    stopped: str


def _cell(seen: _Seen, state: str, detail: str, run_log: str | None) -> CellState:
    job, log, queued = seen.job, seen.log, seen.queued
    detail = one_line(detail)
    refused = state == FAILED and seen.said and seen.said.refused
    own_log = job.log if log and log.lines else None
    return CellState(
        rule=job.rule,
        wildcards=job.wildcards,
        state=state,
        slurm_id=queued.id if queued else log.slurm_id if log else None,
        detail=detail,
        log=run_log if refused else own_log,
        lines=_last_lines(log, detail) if log and state == FAILED and not refused else (),
    )


def _state(seen: _Seen) -> tuple[str, str]:
    """State and detail of a job. The order matters: what is surer comes first."""
    job, log, failure = seen.job, seen.log, seen.failure
    if failure and failure.started:
        return FAILED, failure.reason
    if _complete(seen):
        return _of_table(seen.folder / job.outputs[0]) if job.rule in WITH_STATUS else (DONE, "")
    if seen.queued:
        place = f"on {seen.queued.node}" if seen.queued.node else ""
        return (QUEUED, "") if seen.queued.state in WAITS else (RUNNING, log.last if log and log.last else place)
    if failure:
        return NOT_STARTED, failure.reason.removeprefix(failures.NOT_STARTED)
    unfinished = log is not None and log.host is not None and log.end is None
    living = unfinished and _lives(log, seen.slurm_ids)
    if living is None:
        return RUNNING, f"on {log.host}, as far as can be seen from here"
    if living:
        return RUNNING, log.last
    if seen.stopped and _told_to_stop(seen):
        return STOPPED, seen.stopped
    if seen.said:
        return FAILED, failures.why(job, seen.folder, seen.since, seen.said)
    if unfinished:
        return FAILED, "killed without a word" + (f"; its log ends with: {log.last}" if log.last else "")
    if log and log.end == job_log.FAILED:
        return FAILED, log.error or job_log.FAILED
    if log and log.end == job_log.DONE:
        return FAILED, snakemake_log.without([path for path in job.outputs if not os.path.exists(seen.folder / path)])
    return NOT_STARTED, ""


def _told_to_stop(seen: _Seen) -> bool:
    """Whether a job that ended in a run which was told to stop ended for that, and not by itself or its time limit."""
    log, said = seen.log, seen.said
    by_log = log is not None and log.host is not None
    stopped = by_log and (log.end is None or log.told_to_stop)
    if said and (said.refused or said.missing or said.signal not in TOLD):
        return False
    if said and said.slurm_id:
        return stopped and log.slurm_id != said.slurm_id  # a later try than that which ended as SLURM said
    if said and not by_log:
        return said.stopping  # it was stopped before it had a log
    return stopped and (said is None or said.stopping)


def _complete(seen: _Seen) -> bool:
    """Whether the files of a job are there, and are those that this run asks for."""
    job, log = seen.job, seen.log
    try:
        times = [(seen.folder / path).stat().st_mtime for path in job.outputs]
    except OSError:
        return False
    if not job.needed or (log and log.end == job_log.DONE):
        return True
    if min(times) < seen.since - GRAIN or (log and log.end == job_log.FAILED):
        return False
    # A job that still writes has a log that is newer than its files.
    return log is None or log.host is None or log.written <= max(times)


def _last_lines(log: JobLog, detail: str) -> tuple[str, ...]:
    """The last lines of a log but for its end and what `detail` says already."""
    lines = [one_line(line) for line in log.lines[-LINES:]]
    said = (job_log.FAILED, detail)
    return tuple(line for line in lines if not any(job_log.message(line) in each for each in said))


def _lives(log: JobLog, slurm_ids: set[str] | None) -> bool | None:
    """Whether the job of a log without an end lives; None where that cannot be told from here."""
    if log.slurm_id and slurm_ids is not None:
        return log.slurm_id in slurm_ids
    return lives(log.host or "", log.process or 0, log.written)


def _of_table(path: Path) -> tuple[str, str]:
    """State and reason of a cell that has its table: what the rows say, if all say that it did not run."""
    try:
        rows = list(csv.DictReader(io.StringIO(regular.content(path).decode(), newline="")))
    except (OSError, ValueError, csv.Error):
        return DONE, ""
    bad = [row for row in rows if row.get("status") in (UNSUPPORTED, UNAVAILABLE, FAILED)]
    if not bad:
        return DONE, ""
    reason = bad[0].get("reason") or ""
    if len(bad) == len(rows):
        return bad[0]["status"], reason
    return DONE, f"{len(bad)} of {len(rows)} rows are {bad[0]['status']}: {reason}"


def _not_run(job: PlannedJob, folder: Path) -> list[CellState]:
    """The cells that a job of rule not_run stands for."""
    found: dict[tuple[str, ...], CellState] = {}
    for path in job.outputs:
        place, *names = Path(path.removeprefix(f"{NOT_RUN_FOLDER}/")).parent.parts or [""]
        rule, keys = CELL_FOLDERS.get(place, ("", ()))
        if not rule or len(names) != len(keys):
            raise UserError(f"{folder / plan.FILE}: {one_line(path)} is of no cell; delete it, or start the run again")
        state, reason = _of_table(folder / path) if os.path.isfile(folder / path) else (UNAVAILABLE, "")
        cell = CellState(rule, dict(zip(keys, names, strict=True)), state, detail=one_line(reason))
        # The first file of a cell is the one with a status.
        found.setdefault((rule, *names), cell)
    return list(found.values())


def _comment(job: PlannedJob) -> str:
    """How the executor plugin for SLURM names a job in the queue (its `get_job_wildcards`)."""
    if not job.wildcards:
        return f"rule_{job.rule}"
    return f"rule_{job.rule}_wildcards_{'_'.join(job.wildcards.values()).replace('/', '_')}"


def _key(rule: str, wildcards: Mapping[str, str]) -> tuple[str, ...]:
    return rule, *wildcards.values()
