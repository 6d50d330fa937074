"""Runs Nsight Compute on the marked ranges of a program, and keeps what it counted as two gzipped CSV files."""

import gzip
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from meddpm.files import replacing
from meddpm.log import logger
from meddpm.profiling.tools import tool
from meddpm.status import UNAVAILABLE, CannotRun
from meddpm.words import printable

NAME = "Nsight Compute"
# What it says where the host keeps the counters to itself.
REFUSED = re.compile(r"ERR_NVGPUCTRPERM|permission to access NVIDIA GPU Performance Counters|LibraryNotLoaded", re.I)
QUERY_S = 120
SAID = 4000  # characters of what it said that go to the log of a job that failed


def program() -> str:
    """The path of ncu, or what MEDDPM_NCU names. Raises CannotRun, unavailable, where it is not there."""
    found = shutil.which(os.environ.get("MEDDPM_NCU", "ncu"))
    if found is None:
        raise CannotRun(UNAVAILABLE, f"{NAME} (ncu) is not on the PATH of this host")
    return found


def run(
    command: Sequence[str],
    raw: Path,
    advice: Path,
    metrics: Sequence[str],
    sections: Sequence[str],
    seconds: float,
    env: Mapping[str, str] | None = None,
    functions: Sequence[str] | None = None,
) -> None:
    """Count `metrics` and the sections' own in the ranges that `command` marks by cudaProfilerStart and -Stop.

    Of all kernels there, or of those of `functions`: names without namespaces, template arguments and parameters.

    Writes `raw` (a row a launch, all metrics in base units, mangled kernel names, NVTX ranges) and `advice` (a row a
    metric or rule of the sections), both .csv.gz. Kernels run one by one, several times each, clocks left alone.

    Raises CannotRun: unavailable where ncu is missing or the host refuses the counters, failed where the program
    failed or took more than `seconds`.
    """
    ncu = program()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.ncu-rep"
        words = [ncu, "--profile-from-start", "off", "--clock-control", "none", "--nvtx", "--import-source", "no"]
        words += ["--metrics", ",".join(known(ncu, metrics))]
        words += [word for section in sections for word in ("--section", section)]
        if functions is not None:
            words += ["--kernel-name", f"regex:^({'|'.join(map(re.escape, functions))})$"]
        said = _run([*words, "--export", str(report), *command], seconds, env)
        if not report.is_file():
            raise CannotRun(UNAVAILABLE, f"{NAME} made no report: {tool.last_line(said)}")
        shared = [ncu, "--import", str(report), "--csv", "--print-units", "base", "--print-kernel-base", "mangled"]
        for target, page in ((raw, ["--page", "raw"]), (advice, ["--page", "details"])):
            text = _run([*shared, *page], seconds, env)
            with replacing(target) as temporary:
                temporary.write_bytes(gzip.compress(text.encode(), mtime=0))


def known(ncu: str, metrics: Sequence[str]) -> list[str]:
    """Those of `metrics` that this GPU has: ncu refuses the whole run for one that it does not know."""
    said = _run([ncu, "--query-metrics"], QUERY_S)
    bases = set(re.findall(r"^([a-z0-9]+__\w+)", said, re.MULTILINE))
    # Those of a launch, without a dot, are collected always: they are no counters of a unit.
    there = [name for name in metrics if name.split(".")[0] in bases or "." not in name]
    lacking = sorted(set(metrics) - set(there))
    if lacking:
        logger.info("counters that this GPU does not have: %s", ", ".join(lacking))
    if not bases:
        raise CannotRun(UNAVAILABLE, f"{NAME} lists none of the counters for this GPU: {tool.last_line(said)}")
    return there


def _run(command: Sequence[str], seconds: float, env: Mapping[str, str] | None = None) -> str:
    try:
        said = tool.run(list(command), seconds, NAME, env)
    except tool.Failed as failed:
        logger.info("%s said:\n%s", NAME, printable(failed.output[-SAID:], keep="\n"))
        if REFUSED.search(failed.output):
            raise _refused() from None
        raise
    if REFUSED.search(said):
        raise _refused()
    return said


def _refused() -> CannotRun:
    return CannotRun(
        UNAVAILABLE, "the host refuses GPU counters, or its virtual machine has none; its administrator can allow them"
    )
