"""What the log of one job tells (`meddpm.log.job` writes it): where it runs, how far it is, how it ended."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from meddpm.log import DONE, FAILED, INTERRUPTED, STARTED, TERMINATED
from meddpm.runs import regular

RECORD = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ([A-Z]+) (.*)")
# How a stage that keeps what it has says that it was told to stop.
GOES_ON = "; the same command goes on from there"
# Bytes that are read of the begin and of the end of a log.
HEAD, TAIL = 4_000, 60_000


@dataclass(frozen=True)
class JobLog:
    """A job's log. `end` is DONE, FAILED, or None: it runs, or was killed.

    `error` is the last error that it tells, with the exception if there is one, `last` the last message of all but for
    those on begin and end; "" if there is none. `lines` are its last lines. `written` is the time of its last line.
    """

    written: float
    host: str | None
    process: int | None
    slurm_id: str | None
    end: str | None
    error: str
    last: str
    lines: list[str]

    @property
    def told_to_stop(self) -> bool:
        """Whether the job ended because it was told to: by Ctrl-C, a cancel, a time limit."""
        return self.end == FAILED and (self.error in (TERMINATED, INTERRUPTED) or GOES_ON in self.error)


def read(path: Path | str) -> JobLog | None:
    """Read the log at `path`; None where there is none that can be read."""
    try:
        written = Path(path).stat().st_mtime
        head, lines = _ends(Path(path))
    except OSError:
        return None
    first = RECORD.fullmatch(head)
    started = STARTED.fullmatch(first[2]) if first else None
    host, process, slurm_id = started.groups() if started else (None, None, None)
    final = RECORD.fullmatch(lines[-1]) if lines else None
    ends = {("INFO", DONE): DONE, ("ERROR", FAILED): FAILED}
    records = [(level, text) for level, text in _records(lines) if text not in (DONE, FAILED)]
    errors = [text for level, text in records if level in ("ERROR", "CRITICAL")]
    messages = [text for _, text in records if not STARTED.fullmatch(text)]
    return JobLog(
        written=written,
        host=host,
        process=int(process) if process else None,
        slurm_id=slurm_id,
        end=ends.get((final[1], final[2])) if final else None,
        error=_in_short(errors[-1]) if errors else "",
        last=_in_short(messages[-1]) if messages else "",
        lines=lines,
    )


def tail(path: Path | str) -> list[str]:
    """The last lines of any log, those without words left out. Raises OSError."""
    return _ends(Path(path))[1]


def message(line: str) -> str:
    """A line of a log without time and level."""
    match = RECORD.fullmatch(line)
    return match[2] if match else line


def _ends(path: Path) -> tuple[str, list[str]]:
    """The first line, and the last lines that have words in them."""
    with regular.opened(path) as stream:
        head = stream.read(HEAD).decode(errors="replace").split("\n")[0]
        begin = max(0, stream.seek(0, os.SEEK_END) - TAIL)
        stream.seek(begin)
        text = stream.read(TAIL).decode(errors="replace")
    # Not splitlines: that would split at letters which a hostile line may hold.
    lines = text.split("\n")[1 if begin else 0 :]
    return head, [line.rstrip("\r") for line in lines if line.strip()]


def _records(lines: list[str]) -> list[tuple[str, str]]:
    """Level and text of each message, with the lines that go on with it."""
    records: list[tuple[str, str]] = []
    for line in lines:
        match = RECORD.fullmatch(line)
        if match:
            records.append((match[1], match[2]))
        elif records:
            level, text = records[-1]
            records[-1] = level, f"{text}\n{line}"
    return records


def _in_short(text: str) -> str:
    """A message without its traceback: its first line and the exception; without one, the message."""
    first, *more = text.split("\n")
    # Below the last line of code stands the exception; its text may have lines of any kind.
    code = [number for number, line in enumerate(more) if line.startswith('  File "')]
    if not code:
        return text
    exception = next((line for line in more[code[-1] :] if not line.startswith(" ")), "")
    return f"{first}: {exception}"
