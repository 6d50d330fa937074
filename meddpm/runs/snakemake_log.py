"""What Snakemake and its executor plugin for SLURM say of failed jobs in their log, .snakemake/log/*.snakemake.log."""

import contextlib
import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from meddpm.runs import job_log, regular

FOLDER = Path(".snakemake/log")
TIME = re.compile(r"\[\w{3} \w{3} [ \d]?\d \d\d:\d\d:\d\d \d{4}\]")
ERROR = re.compile(r"Error in rule (\S+):")
FIELD = re.compile(r"    ([\w-]+): (.*)")
PASTED = re.compile(r"Logfile .+:")
CHECK = " (check log file(s) for error details)"
SIGNAL = re.compile(r"died with <Signals\.(SIG\w+): \d+>")
MISSING_FILES = "completed successfully, but some output files are missing"
MISSING_FILE = re.compile(r"(.+) \(missing .*\)")

STATUS = re.compile(r"SLURM-job '(\w+)' failed.*?SLURM status is: '([\w ]+)'")
STATUS_REASON = re.compile(r"Reason: (?:Step \d+: )?([^.]+)\.")
REFUSED = re.compile(r"SLURM sbatch failed\. The error message was '(.*?)'\.?$", re.DOTALL | re.MULTILINE)
NOT_SUBMITTED = re.compile(r"Job submission failed with exception: (.*)")
FURTHER = "For further error details see"
# Of the log that SLURM writes of a job: what Snakemake and srun always say there.
USUAL = re.compile(
    r"\s|\[|srun:|Error in rule|RuleException|CalledProcessError|Command '|WorkflowError|At least one job|"
    r"Shutting down|Exiting because|Storing output|Elapsed time|Will exit after|Removing output|Building DAG|"
    r"Using shell|Provided |Rules claiming|Select jobs|Execute |SNAKEMAKE|=+$|(local)?rule |Logfile |"
    r"slurmstepd.*CANCELLED AT"
)

# What Snakemake says, a line of its own, when it is told to stop, and how that is told.
STOPPED = {
    "Terminating processes on user request, this might take some time.": "stopped by you; the same command goes on",
    "Will exit after finishing currently running jobs (scheduler).": "stopped with the run; the same command goes on",
}

# How the reason of a job begins that never came into the queue.
NOT_QUEUED = "sbatch refused: "


@dataclass(frozen=True)
class Said:
    """What was said of one failed try of a job; "" or () for what was not.

    `outputs` is their list as one text. `slurm_id` and `state` (FAILED, TIMEOUT ...) are SLURM's, with its
    `state_reason`; `refused` is why there was no SLURM job; `signal` what killed a local job; `missing` are files that
    a job which ended well did not leave; `slurm_log` is the log that SLURM writes of it. `stopping`: the run had been
    told to stop before.
    """

    rule: str = ""
    outputs: str = ""
    slurm_id: str = ""
    state: str = ""
    state_reason: str = ""
    refused: str = ""
    signal: str = ""
    missing: tuple[str, ...] = ()
    slurm_log: str = ""
    stopping: bool = False

    def is_about(self, rule: str, outputs: list[str]) -> bool:
        """Whether it is about the job of `rule` with these outputs."""
        if self.missing:
            return any(path in self.missing for path in outputs)
        return self.rule == rule and self.outputs == ", ".join(outputs)


def of_run(folder: Path | str, since: float) -> list[Path]:
    """The logs of the run that started at `since` (its plan's) in `folder`, its own first: a second pass writes one."""
    found = []
    for path in sorted(Path(folder, FOLDER).glob("*.snakemake.log")):
        with contextlib.suppress(OSError):  # gone meanwhile
            found += [path] if path.is_file() and path.stat().st_mtime >= since else []
    return found


def stopped(paths: Sequence[Path]) -> str:
    """How the run with the logs `paths` was told to stop, in words; "" where it was not."""
    told = [STOPPED[line] for path in paths for line in _own_lines(path) if line in STOPPED]
    return told[-1] if told else ""


def read(path: Path | str | None) -> list[Said]:
    """What the log at `path` says of failed tries, in its order; nothing where there is no log."""
    lines = _lines(path)
    found: list[Said] = []
    number, stopping = 0, False
    while number < len(lines):
        if MISSING_FILES in lines[number]:
            said, number = _missing(lines, number + 1)
            found.append(said)
        elif number and TIME.fullmatch(lines[number - 1]) and ERROR.fullmatch(lines[number]):
            said, number = _block(lines, number)
            found.append(dataclasses.replace(said, stopping=stopping))
        else:
            stopping = stopping or lines[number] in STOPPED
            number += 1
    return found


def last(said: list[Said], rule: str, outputs: list[str]) -> Said | None:
    """What was said of the last try of a job."""
    return next((each for each in reversed(said) if each.is_about(rule, outputs)), None)


def in_slurm_log(path: str) -> str:
    """The words of the log that SLURM writes of a job, which say why it ended; "" where there are none."""
    try:
        lines = job_log.tail(path) if path else []
    except OSError:
        return ""
    if any("oom_kill" in line or "OOM Killed" in line for line in lines):
        return "killed for its memory; give it more (mem)"
    killed = [match[1] for match in map(SIGNAL.search, lines) if match]
    if killed:
        return killed_by(killed[0])
    behind = next((number for number, line in enumerate(lines, 1) if MISSING_FILES in line), None)
    if behind and (missing := _missing(lines, behind)[0].missing):
        return without(missing)
    return next((line.strip() for line in reversed(lines) if not USUAL.match(line)), "")


def killed_by(signal: str) -> str:
    """A signal in words."""
    return f"killed by {signal}" + (" (out of memory, perhaps)" if signal == "SIGKILL" else "")


def without(files: Sequence[str]) -> str:
    """Files that are missing in words."""
    return f"it ended well, but {files[0]} is not there; on a slow file system raise latency-wait"


def _lines(path: Path | str | None) -> list[str]:
    """The lines of the log at `path`; none where it cannot be read."""
    try:
        return regular.text(path).split("\n") if path else []
    except OSError:
        return []


def _own_lines(path: Path) -> list[str]:
    """The lines of the log at `path` without the logs that are pasted there."""
    lines, number = _lines(path), 0
    own = []
    while number < len(lines):
        behind = _behind_pasted(lines, number)
        own += lines[number : number + 1] if behind == number else []
        number = max(behind, number + 1)
    return own


def _missing(lines: list[str], number: int) -> tuple[Said, int]:
    """The list of missing files that begins at `number`; the number of the line behind it."""
    files = []
    while number < len(lines) and (match := MISSING_FILE.fullmatch(lines[number])):
        files.append(match[1])
        number += 1
    return Said(missing=tuple(files)), number


def _block(lines: list[str], number: int) -> tuple[Said, int]:
    """The block on a failed job that begins at `number`; the number of the line behind it and the logs pasted there."""
    rule = ERROR.fullmatch(lines[number])[1]
    killed = SIGNAL.search(lines[number - 2]) if number > 1 else None
    number += 1
    first = number
    # The message has lines of any kind, as a call of sbatch.
    while number < len(lines) and not lines[number].startswith("    jobid: "):
        number += 1
    message = "\n".join(lines[first:number]).split(FURTHER)[0]
    fields: dict[str, str] = {}
    while number < len(lines) and lines[number].startswith("    "):
        field = FIELD.fullmatch(lines[number])
        if field:
            fields[field[1]] = field[2]
        number += 1
    state, reason, refused = STATUS.search(message), STATUS_REASON.search(message), _refused(message)
    logs = fields.get("log", "").removesuffix(CHECK).split(", ")
    slurm_id = fields.get("external_jobid", "")
    said = Said(
        rule=rule,
        outputs=fields.get("output", ""),
        slurm_id=slurm_id,
        state=state[2] if state else "",
        state_reason=reason[1] if reason and reason[1] not in ("Unknown", "None") else "",
        refused=refused,
        signal=killed[1] if killed else "",
        slurm_log=logs[-1] if slurm_id and logs[-1].endswith(f"{slurm_id}.log") else "",
    )
    return said, _behind_pasted(lines, number)


def _refused(message: str) -> str:
    """Why SLURM did not take a job: what sbatch answered."""
    match = REFUSED.search(message)
    if match:
        answers = [line.removeprefix("sbatch: error: ") for line in match[1].split("\n")]
        return NOT_QUEUED + "; ".join(line.removeprefix("Batch job submission failed: ") for line in answers)
    match = NOT_SUBMITTED.search(message)
    return f"could not be submitted: {match[1]}" if match else ""


def _behind_pasted(lines: list[str], number: int) -> int:
    """Skip the logs that --show-failed-logs pastes below a block: they may hold blocks of their own."""
    while number < len(lines) and PASTED.match(lines[number]):
        bar = lines[number + 1] if number + 1 < len(lines) else ""
        number += 1
        if bar and not bar.strip("="):
            ends = (later for later in range(number + 1, len(lines)) if lines[later] == bar)
            number = next(ends, len(lines) - 1) + 1
    return number
