"""Nsight Compute as a program: what it is asked, what it leaves, and each way in which it can fail. It is faked."""

import gzip
import stat
from pathlib import Path

import pytest

from meddpm.profiling.tools import ncu
from meddpm.status import FAILED, UNAVAILABLE, CannotRun

METRICS = ["gpu__time_duration.sum", "sm__cycles_active.sum", "sm__new_counter.sum", "launch__block_size"]
QUERY = """
cat <<END
Device NVIDIA
gpu__time_duration    Counter  nsecond  duration
sm__cycles_active     Counter  cycle    active
END
"""
FAKE = """#!/bin/sh
echo "$@" >> "$CALLS"
case "$*" in
  *--query-metrics*) {query} ;;
  *--csv*raw*) echo '"ID","Kernel Name"'; echo '"0","k"' ;;
  *--csv*) echo '"ID","Rule Name"'; echo '"0","r"' ;;
  *) {profile} ;;
esac
"""
# It writes the file that follows --export.
PROFILES = 'while [ "$1" != --export ]; do shift; done; echo report > "$2"; shift 2; "$@"'


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: str = PROFILES, query: str = QUERY) -> None:
    program = tmp_path / "fake ncu"
    program.write_text(FAKE.format(profile=profile, query=query))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("MEDDPM_NCU", str(program))


def count(tmp_path: Path, seconds: float = 20, functions: list[str] | None = None) -> tuple[Path, Path]:
    raw, advice = tmp_path / "raw.csv.gz", tmp_path / "advice.csv.gz"
    program = ["sh", "-c", f"echo ran > '{tmp_path}/ran'"]
    ncu.run(program, raw, advice, METRICS, ["Occupancy", "LaunchStats"], seconds, functions=functions)
    return raw, advice


def test_a_program_is_counted_and_both_pages_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: Path
) -> None:
    fake(tmp_path, monkeypatch)
    raw, advice = count(tmp_path)
    assert gzip.decompress(raw.read_bytes()).decode() == '"ID","Kernel Name"\n"0","k"\n'
    assert gzip.decompress(advice.read_bytes()).decode() == '"ID","Rule Name"\n"0","r"\n'
    assert (tmp_path / "ran").is_file()
    _, profile, *imports = calls.read_text().splitlines()
    assert "--clock-control none" in profile
    assert "--profile-from-start off" in profile
    assert "--metrics gpu__time_duration.sum,sm__cycles_active.sum,launch__block_size " in profile, "what it knows"
    assert "--section Occupancy --section LaunchStats" in profile
    assert "--kernel-name" not in profile
    assert all("--print-units base" in line and "--print-kernel-base mangled" in line for line in imports)


def test_kernels_of_some_functions_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: Path) -> None:
    fake(tmp_path, monkeypatch)
    count(tmp_path, functions=["triton_poi_fused_0", "operator()"])
    assert r"--kernel-name regex:^(triton_poi_fused_0|operator\(\))$ " in calls.read_text()


REFUSES = (
    'echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"; '
)


@pytest.mark.parametrize(
    ("profile", "status", "words"),
    [
        (REFUSES + "exit 1", UNAVAILABLE, "refuses GPU counters"),
        (REFUSES, UNAVAILABLE, "refuses GPU counters"),
        ("echo '==ERROR== Failed to initialize the profiler: LibraryNotLoaded'; exit 9", UNAVAILABLE, "refuses"),
        ("echo no kernels were profiled", UNAVAILABLE, "made no report: no kernels were profiled"),
        ("echo out of memory; exit 3", FAILED, "exit code 3"),
        ("sleep 60", FAILED, "took more than 0.5 s"),
    ],
)
def test_why_nothing_was_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: Path, profile: str, status: str, words: str
) -> None:
    fake(tmp_path, monkeypatch, profile)
    with pytest.raises(CannotRun) as raised:
        count(tmp_path, 0.5 if "sleep" in profile else 20)
    assert (raised.value.status, words in raised.value.reason) == (status, True), raised.value.reason
    assert not list(tmp_path.glob("*.gz"))


def test_a_gpu_of_which_nothing_is_known_and_a_host_without_the_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: Path
) -> None:
    fake(tmp_path, monkeypatch, query="echo nothing")
    with pytest.raises(CannotRun, match="none of the counters") as raised:
        ncu.known(ncu.program(), METRICS[:3])
    assert raised.value.status == UNAVAILABLE
    monkeypatch.setenv("MEDDPM_NCU", str(tmp_path / "no such program"))
    with pytest.raises(CannotRun, match="not on the PATH") as raised:
        count(tmp_path)
    assert raised.value.status == UNAVAILABLE
