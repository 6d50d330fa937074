"""Which jobs of a run failed or never started because of those, and why: one line each."""

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from meddpm.files import write_json
from meddpm.runs import job_log, plan, records, snakemake_log
from meddpm.runs.job_log import JobLog
from meddpm.runs.names import name
from meddpm.runs.plan import RECORDS, PlannedJob
from meddpm.runs.snakemake_log import Said
from meddpm.words import one_line

FILE = RECORDS / "failures.json"
# What SLURM says of a job that ended with an exit code: then the job's own log says why.
BY_ITSELF = "FAILED"
NOT_STARTED = "not started: "


@dataclass(frozen=True)
class Failure:
    """A job that did not end well, and the reason, one printable line. `started`: it failed itself."""

    rule: str
    wildcards: dict[str, str]
    outputs: list[str]
    reason: str
    started: bool = True


def collect(
    folder: Path | str, snakemake_log_path: Path | str | None, unfinished: list[PlannedJob], failed: Collection[str]
) -> list[Failure]:
    """Why each of `unfinished` did not end well, in their order; they are the jobs of the run in `folder` that did not.

    `failed` has an output of each job that failed itself, the first one say: the others never started.
    """
    planned = plan.read(folder)
    since = planned.since if planned else 0.0
    said = snakemake_log.read(snakemake_log_path)
    broken = [job for job in unfinished if not set(job.outputs).isdisjoint(failed)]
    reasons = {id(job): why(job, folder, since, snakemake_log.last(said, job.rule, job.outputs)) for job in broken}
    makers = {path: job for job in unfinished for path in job.outputs}
    found = []
    for job in unfinished:
        started = id(job) in reasons
        reason = reasons[id(job)] if started else _not_started(job, makers, reasons)
        found.append(Failure(job.rule, job.wildcards, job.outputs, one_line(reason), started))
    return found


def why(job: PlannedJob, folder: Path | str, since: float, said: Said | None) -> str:
    """Why a job failed, from what Snakemake `said` of it and its own log, if that was written after `since`."""
    said = said or Said()
    if said.refused:
        return one_line(said.refused)
    if said.missing:
        return one_line(snakemake_log.without(said.missing))
    log = fresh_log(job, folder, since)
    head = f"SLURM job {said.slurm_id} ended as {said.state}" if said.state else ""
    head += f" ({said.state_reason})" if said.state_reason else ""
    by_itself = said.state in ("", BY_ITSELF)
    if log and log.error:
        return one_line(log.error if by_itself else f"{head}; its log ends with: {log.error}")
    parts = [] if by_itself else [head]
    if by_itself:
        killed = snakemake_log.killed_by(said.signal) if said.signal else snakemake_log.in_slurm_log(said.slurm_log)
        parts += [f"{head}: {killed}" if head else killed] if killed else []
    if log and log.last:
        parts += [f"its log ends with: {log.last}"]
    if not parts:
        where = said.slurm_log or job.log
        parts = [f"{head or 'it ended'} without a word" + (f"; see {where}" if where else "")]
    return one_line("; ".join(parts))


def fresh_log(job: PlannedJob, folder: Path | str, since: float) -> JobLog | None:
    """The log of a job, if it was written after `since`: an older one is of an earlier run."""
    log = job_log.read(Path(folder) / job.log) if job.log else None
    return log if log and log.written >= since else None


def _not_started(job: PlannedJob, makers: dict[str, PlannedJob], reasons: dict[int, str]) -> str:
    """Which failed jobs come before one that never started. `makers` tells what job makes a file."""
    roots: dict[int, PlannedJob] = {}
    seen, waiting = set(), [job]
    while waiting:
        before = [makers[path] for path in waiting.pop(0).inputs if path in makers]
        for each in before:
            if id(each) in reasons:
                roots[id(each)] = each
            elif id(each) not in seen:
                waiting.append(each)
            seen.add(id(each))
    if not roots:
        return NOT_STARTED + "the run was ended before its turn"
    number, root = next(iter(roots.items()))
    called = name(root.rule, root.wildcards)
    if len(roots) > 1:
        return f"{NOT_STARTED}{len(roots)} jobs before it failed, as {called} ({reasons[number]})"
    of_weights = root.rule == "train" and job.rule == "sample"
    return f"{NOT_STARTED}{'the training of its weights' if of_weights else called} failed ({reasons[number]})"


def write(folder: Path | str, failures: list[Failure]) -> None:
    """Write the failures of the run in `folder`."""
    write_json(Path(folder) / FILE, [dataclasses.asdict(each) for each in failures])


def read(folder: Path | str) -> list[Failure]:
    """The failures of the last run in `folder`; none where it wrote none. Raises UserError if the file is no such."""
    return records.read(Path(folder) / FILE, lambda value: [_failure(each) for each in records.listed(value)]) or []


def _failure(value: object) -> Failure:
    """One failure of the file. Raises ValueError if it is none."""
    record = records.checked(
        value,
        rule=records.is_text,
        wildcards=records.are_named_texts,
        outputs=records.are_texts,
        reason=records.is_text,
        started=records.is_flag,
    )
    return Failure(**record)


def clear(folder: Path | str) -> None:
    """Forget the failures of the last run in `folder`: another one starts."""
    (Path(folder) / FILE).unlink(missing_ok=True)


def in_words(failures: list[Failure], at_most: int = 20) -> str:
    """What failed, a line each, `at_most` of them, and how many others never started because of it."""
    started = [each for each in failures if each.started]
    lines = [f"  {name(each.rule, each.wildcards)}: {each.reason}" for each in started[:at_most]]
    if len(started) > at_most:
        lines.append(f"  and {len(started) - at_most} more")
    waiting = len(failures) - len(started)
    lines += [f"  {waiting} that come after them were not started"] if waiting else []
    if any(each.reason.startswith(snakemake_log.NOT_QUEUED) for each in started):
        lines.append("  `python -m meddpm slurm check` says what the cluster has of what a row asks for")
    return "\n".join([f"Failed: {len(started)} {'job' if len(started) == 1 else 'jobs'}.", *lines])
