"""Our jobs in the queue of the cluster: which there are, and how to be rid of them."""

import math
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from meddpm.config import UserError
from meddpm.log import logger
from meddpm.slurm import command
from meddpm.slurm.command import NoCluster
from meddpm.words import printable

# Characters that no name or path has, and the comment, which may hold anything, comes last.
RECORD, FIELD = "\x1e", "\x1f"
FORMAT = RECORD + FIELD.join(["%i", "%T", "%j", "%N", "%Z", "%k"])
# The name that Snakemake gives all jobs of a run: a UUID, perhaps with a prefix, and how its comments begin.
RUN = re.compile(r"(.*_)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
COMMENT = "rule_"
SHOWN_AT_MOST = 20
POLL_S = 1.0
REPORT_S = 5.0


@dataclass(frozen=True)
class QueuedJob:
    """A job that squeue lists: its state as PENDING, RUNNING or COMPLETING, and the node, "" while it waits.

    Snakemake submits with the name of its run and the comment rule_NAME_wildcards_VALUES. All is printable.
    """

    id: str
    state: str
    name: str
    comment: str
    node: str


def jobs(folder: Path | str) -> list[QueuedJob] | None:
    """The user's own jobs that were submitted from `folder`. None where squeue is not there or does not answer."""
    try:
        return _submitted_from(Path(folder))
    except NoCluster:
        return None


def cancel_left_over(folder: Path | str, patience_s: float = 300) -> None:
    """End the jobs that an earlier Snakemake left in the queue of `folder`, and wait for their end, as `cancel` does.

    Other jobs of that folder stay, also the one that this process may run in. Raises NoCluster where squeue does not
    answer.
    """
    left = [job for job in _submitted_from(Path(folder)) if RUN.fullmatch(job.name) and job.comment.startswith(COMMENT)]
    own = os.environ.get("SLURM_JOB_ID")
    cancel([job.id for job in left if job.id != own], patience_s)


def cancel(ids: Iterable[str], patience_s: float = 300) -> None:
    """Cancel jobs and wait until squeue lists none of them; a line of the log every few seconds says for which.

    Raises UserError, which names them, where some are still there after `patience_s` seconds.
    """
    left = list(dict.fromkeys(ids))
    deadline, told, sent = time.monotonic() + patience_s, -math.inf, False
    while left:
        trouble = ""
        try:
            # Where it fails, again until it does not: a busy controller may have refused it.
            if not sent:
                command.run("scancel", *left)
                sent = True
        except NoCluster as error:
            trouble = f" ({error})"
        try:
            listed = {fields[0] for fields in _listed()}
            left = [job for job in left if job in listed]
        except NoCluster as error:
            trouble = f" ({error})"
        now = time.monotonic()
        if left and now >= deadline:
            raise UserError(
                f"SLURM jobs {_several(left)}: still in the queue {patience_s:.0f} s after scancel{trouble}; "
                "end them by hand, or ask the site, and start again"
            )
        if left and now - told >= REPORT_S:
            told = now
            logger.info("waiting for the end of %d cancelled SLURM jobs: %s%s", len(left), _several(left), trouble)
        if left:
            time.sleep(min(POLL_S, deadline - now))


def _submitted_from(folder: Path) -> list[QueuedJob]:
    """The jobs of `folder`. Raises NoCluster."""
    here = folder.resolve()
    found = []
    for number, state, name, node, where, comment in _listed():
        # A shared file system has other paths to the same folder.
        if where and Path(where).resolve() == here:
            comment = "" if comment == "(null)" else comment
            found.append(QueuedJob(*map(printable, (number, state, name, comment, node))))
    return found


def _listed() -> list[list[str]]:
    """The fields of `FORMAT` for each of the user's own jobs. Raises NoCluster."""
    printed = command.run("squeue", "--noheader", f"--user={os.getuid()}", "--format", FORMAT)
    rows = [record.removesuffix("\n").split(FIELD, FORMAT.count(FIELD)) for record in printed.split(RECORD)]
    return [row for row in rows if len(row) == FORMAT.count(FIELD) + 1]


def _several(ids: list[str]) -> str:
    more = f" and {len(ids) - SHOWN_AT_MOST} more" if len(ids) > SHOWN_AT_MOST else ""
    return ", ".join(ids[:SHOWN_AT_MOST]) + more
