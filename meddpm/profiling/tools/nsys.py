"""Runs Nsight Systems on a program, and keeps what it saw as the SQLite database that `nsys_file` reads."""

import os
import re
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from meddpm.config import UserError
from meddpm.files import replacing
from meddpm.profiling.readers import nsys_file
from meddpm.profiling.tools import tool
from meddpm.profiling.trace import Trace
from meddpm.status import FAILED, UNAVAILABLE, CannotRun
from meddpm.words import one_line

NAME = "Nsight Systems"
VARIABLE = "MEDDPM_NSYS"
REPORTS, STREAM = (".nsys-rep", ".qdrep"), ".qdstrm"

OPTIONS = (
    # Only what the program marks; it then runs to its own end.
    "--capture-range=cudaProfilerApi",
    "--capture-range-end=stop",
    "--trace=cuda,nvtx",
    "--cuda-graph-trace=node",
    # Samples of the CPU cost time, are not read here, and are refused by many hosts.
    "--sample=none",
    "--cpuctxsw=none",
    "--force-overwrite=true",
)

# What nsys says where the host, or nsys itself, does not let it work. The last is one too old for the options above.
REFUSED = re.compile(
    r"ERR_NVGPUCTRPERM|INSUFFICIENT_PRIVILEGES|importer binary|Importer error status|Importation failed"
    r"|(nvidia/nsight_systems|nsys-).*(permission denied|not permitted)"
    r"|unrecogni[sz]ed option.*(capture-range|cuda-graph-trace|cpuctxsw)|illegal --(capture-range|cuda-graph-trace)",
    re.IGNORECASE,
)
# What nsys says in any case, often after the program's last words.
CHATTER = re.compile(
    r"\s*(Generating\b|Generated\b|Collecting data|Processing events|Capture range (started|ended)|"
    r"\[\d+/\d+\] ?\[|\[=*\d*%"
    r"|/\S.*\.(nsys-rep|qdrep|qdstrm|sqlite)$|No reports were generated|WARNING: |The target application )",
)
# The raw stream that nsys holds in the folder for temporary files, and leaves there when it is stopped.
LEFTOVER = re.compile(r"Generating '(/[^'\n]*/nsys-report-[0-9a-f]+\.qdstrm)'")


def command(program: list[str], report: Path) -> list[str]:
    """The command that profiles `program` between its cudaProfilerStart and -Stop, and writes `report` (.nsys-rep).

    The environment variable MEDDPM_NSYS names the nsys to run, "nsys" where it is not set.
    """
    # nsys fills in %h, %p and %q{...} in the name.
    return [_nsys(), "profile", *OPTIONS, f"--output={str(report).replace('%', '%%')}", *program]


def run(program: list[str], target_sqlite: Path | str, seconds: float, env: Mapping[str, str] | None = None) -> Trace:
    """Profile `program`, write what was seen to `target_sqlite`, and return it as read from there.

    `seconds` is for profiling and export together, `env` the whole environment of nsys and the program. Raises
    CannotRun: unavailable where nsys is not on the PATH, cannot make a report or is refused by the host; failed, with
    the last line of what was said, where the program failed or it took too long. The target is whole or not there.
    """
    until = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="meddpm-nsys-", ignore_cleanup_errors=True) as folder:
        report, database = Path(folder) / "report.nsys-rep", Path(folder) / "report.sqlite"
        said = _profile(command(program, report), report, seconds, env)
        made = _made(report, *REPORTS)
        if made is None:
            raise _no_report(report, said)
        export = [_nsys(), "export", "--type=sqlite", "--force-overwrite=true", f"--output={database}", str(made)]
        try:
            said = tool.run(export, max(until - time.monotonic(), 0.0), NAME, env)
        except tool.Failed as failed:
            if failed.timed_out:
                reason = f"{NAME} took more than {seconds:g} s and was stopped while it exported the report"
                raise CannotRun(FAILED, reason) from None
            raise _unavailable("cannot export its report", failed.output) from None
        if not database.is_file():
            raise _unavailable("exported no database", said)
        try:
            trace = nsys_file.read(database)
        except UserError as error:
            reason = str(error).removeprefix(f"{database}: ")
            raise CannotRun(UNAVAILABLE, one_line(f"{NAME}: {reason}")) from None
        with replacing(target_sqlite) as temporary:
            shutil.copyfile(database, temporary)
    return trace


def _nsys() -> str:
    return os.environ.get(VARIABLE) or "nsys"


def _profile(words: list[str], report: Path, seconds: float, env: Mapping[str, str] | None) -> str:
    try:
        return tool.run(words, seconds, NAME, env)
    except tool.Failed as failed:
        for leftover in LEFTOVER.findall(failed.output):
            with suppress(OSError):
                Path(leftover).unlink(missing_ok=True)
        if failed.timed_out:
            raise
        if _refusal(failed.output) or _made(report, STREAM):
            raise _no_report(report, failed.output) from None
        raise CannotRun(FAILED, one_line(f"the program failed under {NAME}: {_last_words(failed.output)}")) from None


def _made(report: Path, *suffixes: str) -> Path | None:
    """What nsys wrote in the folder of the report, under one of its suffixes; an old nsys adds its own to the name."""
    return next((path for path in sorted(report.parent.glob("report*")) if path.name.endswith(suffixes)), None)


def _no_report(report: Path, said: str) -> CannotRun:
    what = "made no report"
    if _made(report, STREAM):
        what = f"made only a raw stream ({STREAM}): its importer is missing or failed; install all of {NAME} here"
    elif not _refusal(said):
        what = "made no report (did the program call cudaProfilerStart?)"
    return _unavailable(what, said)


def _refusal(said: str) -> str | None:
    """The line in which nsys says that it cannot work here."""
    return next((line for line in said.splitlines() if REFUSED.search(line)), None)


def _last_words(said: str) -> str:
    """The last line that is not nsys' own; where all are, the last."""
    lines = said.splitlines()
    others = [line for line in lines if line.strip() and not CHATTER.match(line)]
    return tool.last_line("\n".join(others or lines))


def _unavailable(what: str, said: str) -> CannotRun:
    return CannotRun(UNAVAILABLE, one_line(f"{NAME} {what}: {_refusal(said) or _last_words(said)}"))
