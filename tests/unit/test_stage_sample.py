"""The sample stage: what it keeps when it is stopped, killed or out of room, and how the next try goes on."""

import csv
import dataclasses
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from meddpm import log, provenance, study, variants
from meddpm.config import UserError, repository_root
from meddpm.data import manifest, volumes
from meddpm.model import build_model, weights
from meddpm.stages import archive, finished, sample
from meddpm.status import UNAVAILABLE, CannotRun

ROOT = repository_root()
CONFIG = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
for key, value in yaml.safe_load((ROOT / "tests/workflow/tiny.yaml").read_text(encoding="utf-8")).items():
    CONFIG[key] = {**CONFIG[key], **value}
CONFIG["models"]["tiny"]["size"] = [8, 8, 8]
STEPS = CONFIG["models"]["tiny"]["steps"]
CELL = {"model": "tiny", "gpu": "cpu", "variant": "fp32", "solver": "ddpm"}
WANTED = [("case-0", 1), ("case-0", 0), ("case-1", 1), ("case-1", 0)]
NAMES = [f"{case}_seed{seed}.nii.gz" for case, seed in WANTED]
FIRST_ON_GRID = "case-0_seed1_original_grid.nii.gz"


def settings(**changes: Any) -> str:
    """The settings of the job that draws the volumes of `WANTED`, some keys of `sample` changed."""
    config = {**CONFIG, "sample": {"cases": 2, "seeds": [1, 0], **changes}}
    return study.load(config, ROOT).settings("sample", **CELL)


def make_cases(folder: Path) -> Path:
    """The table of two label maps, 8^3; the file of the first one was on another grid."""
    folder.mkdir()
    generator = np.random.default_rng(0)
    rows = []
    for number in range(2):
        case = volumes.Case(f"case-{number}", None, generator.integers(0, 5, (8, 8, 8), dtype=np.uint8), np.eye(4))
        path = folder / f"{case.id}_label.nii.gz"
        volumes.write(path, case.label, case.affine)
        rows.append(manifest.describe(case, None, path, folder))
    grid = {"original_shape": (4, 4, 4), "original_affine": (2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2, 0)}
    manifest.write(folder / manifest.FILE_NAME, [dataclasses.replace(rows[0], **grid), rows[1]])
    return folder / manifest.FILE_NAME


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_cases(tmp_path_factory.mktemp("data") / "cases")


def run(folder: Path, cases: Path, text: str = "", weights_file: Path | None = None, threads: int = 1) -> None:
    table = folder / "samples.csv"
    sample.run(text or settings(), cases, weights_file, table, folder / "environment.csv", threads)


def rows_of(folder: Path) -> list[dict[str, str]]:
    with open(folder / "samples.csv", newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def recorded(folder: Path) -> list[str]:
    """The files that the record lists."""
    entries = json.loads((folder / finished.RECORD).read_text(encoding="utf-8"))["finished"]
    return [entry["row"]["file"] for entry in entries]


def drawn(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.nii.gz")}


def times(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.nii.gz")}


def half_written(folder: Path) -> list[Path]:
    return [path for path in folder.rglob(".*") if path.is_file()]


def assert_same_end(folder: Path, unbroken: Path) -> None:
    """The volumes and their list are those of a run that nothing stopped, and nothing else is there."""
    assert drawn(folder) == drawn(unbroken)
    timeless = [[{**row, "seconds": ""} for row in rows_of(each)] for each in (folder, unbroken)]
    assert timeless[0] == timeless[1]
    assert [(row["case"], int(row["seed"])) for row in rows_of(folder)] == WANTED
    assert all(float(row["seconds"]) > 0 for row in rows_of(folder))
    assert set(recorded(folder)) == {row["file"] for row in rows_of(folder)}
    assert half_written(folder) == []


class Calls:
    """How often the network was evaluated; `at[n]` is done in the n-th evaluation."""

    def __init__(self) -> None:
        self.count = 0
        self.at: dict[int, Callable[[], None]] = {}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    counted, honest = Calls(), variants.Applied.network

    def network_of(self: variants.Applied, model: torch.nn.Module) -> variants.Network:
        evaluate = honest(self, model)

        def watched(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            counted.count += 1
            counted.at.get(counted.count, lambda: None)()
            return evaluate(x, t)

        return watched

    monkeypatch.setattr(variants.Applied, "network", network_of)
    return counted


def terminate() -> None:
    signal.raise_signal(signal.SIGTERM)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory, cases: Path) -> Path:
    folder = tmp_path_factory.mktemp("unbroken")
    run(folder, cases)
    return folder


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory, cases: Path) -> Path:
    """A job that was killed after two of its volumes."""
    folder = tmp_path_factory.mktemp("stopped")
    with pytest.MonkeyPatch.context() as patched:
        honest = finished.Finished.add

        def add(self: finished.Finished, rows: Any) -> None:
            honest(self, rows)
            if len(self.rows) == 2:
                raise KeyboardInterrupt

        patched.setattr(finished.Finished, "add", add)
        with pytest.raises(KeyboardInterrupt):
            run(folder, cases)
    assert recorded(folder) == NAMES[:2]
    return folder


@pytest.fixture
def half(stopped: Path, tmp_path: Path) -> Path:
    """A copy of `stopped`, to go on from."""
    return shutil.copytree(stopped, tmp_path / "half")


# --- stopped and killed ---

# The script of the workflow, as Snakemake runs it; each step takes its time after the first volume.
PROCESS = """
import runpy, sys, time, types
from meddpm.diffusion import noise
log, script, settings, cases, samples, environment = sys.argv[1:]
honest = noise.gaussian
def gaussian(case, seed, draw, shape):
    time.sleep(0 if (case, seed) == ("case-0", 1) else 0.2)
    return honest(case, seed, draw, shape)
noise.gaussian = gaussian
job = types.SimpleNamespace(
    log=[log], params=types.SimpleNamespace(settings=settings), threads=1,
    output=types.SimpleNamespace(samples=samples, environment=environment),
    input=type("Input", (dict,), {"cases": cases})(),
)
runpy.run_path(script, {"snakemake": job})
"""


def ended(folder: Path, cases: Path, number: signal.Signals) -> tuple[int, str, int]:
    """Exit code, errors and id of a process that got a signal in the evaluations after its first volume."""
    words = [str(folder / "sample.log"), str(ROOT / "workflow_scripts/sample.py"), settings(), str(cases)]
    process = subprocess.Popen(
        [sys.executable, "-c", PROCESS, *words, *(str(folder / name) for name in ("samples.csv", "environment.csv"))],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        deadline = time.monotonic() + 60
        while not (folder / finished.RECORD).exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    return process.returncode, errors, process.pid


def test_sigterm_ends_the_job_with_a_line_and_the_next_try_goes_on(
    tmp_path: Path, cases: Path, unbroken: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code, errors, _ = ended(tmp_path, cases, signal.SIGTERM)
    said = "tiny/cpu/fp32/ddpm: stopped by SIGTERM after 1 of 4 volumes; the same command goes on from there"
    assert (code, errors.splitlines()) == (1, [said])
    lines = (tmp_path / "sample.log").read_text().splitlines()
    assert lines[-2].endswith(f"ERROR {said}")
    assert lines[-1].endswith("ERROR ended with an error")
    assert not (tmp_path / "samples.csv").exists()
    assert half_written(tmp_path) == []
    before = times(tmp_path)
    assert set(before) == {NAMES[0], FIRST_ON_GRID}
    with caplog.at_level(logging.INFO, logger="meddpm"):
        run(tmp_path, cases)
    assert "going on: 1 of 4 volumes were drawn before" in caplog.text
    assert {name: times(tmp_path)[name] for name in before} == before
    assert_same_end(tmp_path, unbroken)


def test_a_killed_job_loses_only_the_batch_under_way(tmp_path: Path, cases: Path, unbroken: Path) -> None:
    code, errors, process = ended(tmp_path, cases, signal.SIGKILL)
    assert code == -signal.SIGKILL, errors
    assert recorded(tmp_path) == NAMES[:1]
    before = times(tmp_path)
    (tmp_path / f".{process}.{NAMES[1]}").write_bytes(b"half")
    run(tmp_path, cases)
    assert {name: times(tmp_path)[name] for name in before} == before
    assert_same_end(tmp_path, unbroken)


def test_a_signal_is_answered_before_the_next_evaluation(
    tmp_path: Path, cases: Path, unbroken: Path, calls: Calls
) -> None:
    calls.at = {STEPS + 3: terminate}
    with pytest.raises(UserError, match="stopped by SIGTERM after 1 of 4 volumes"):
        run(tmp_path, cases)
    assert calls.count == STEPS + 3
    run(tmp_path, cases)
    assert calls.count == STEPS + 3 + 3 * STEPS
    assert_same_end(tmp_path, unbroken)


def test_a_volume_that_is_drawn_when_the_signal_comes_is_kept(
    tmp_path: Path, cases: Path, unbroken: Path, calls: Calls
) -> None:
    calls.at = {2 * STEPS: terminate, 4 * STEPS: terminate}
    with pytest.raises(UserError, match="after 2 of 4 volumes"):
        run(tmp_path, cases)
    run(tmp_path, cases)  # the second signal comes when nothing is left to be drawn
    assert_same_end(tmp_path, unbroken)


def test_a_job_killed_before_its_table_draws_nothing_again(
    tmp_path: Path, cases: Path, unbroken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(sample, "write_csv", killed)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, cases)
    before = times(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(sample.network, "load", lambda *_: pytest.fail("the weights are loaded"))
        run(tmp_path, cases)
    assert times(tmp_path) == before
    assert_same_end(tmp_path, unbroken)
    assert (tmp_path / "flags.json").is_file()


# --- what is kept, and what is not ---


def known(cases: Path, threads: int = 1, **facts: Any) -> dict[str, Any]:
    """The identity of the job, some facts of the environment changed."""
    job = sample.Job.parse("sample", settings())
    environment = {**job.environment(torch.device("cpu")), **facts}
    return finished.identity(job, None, manifest.read(cases), environment, threads)


@pytest.mark.parametrize("fact", ["device_name", "capability", "driver", "cuda", "cudnn", "torch", "python"])
def test_another_device_or_library_is_another_identity(cases: Path, fact: str) -> None:
    assert known(cases, **{fact: "another"}) != known(cases)


@pytest.mark.parametrize("fact", ["git_commit", "snakemake", "environment", "clocks", "temperature"])
def test_what_changes_no_voxel_is_not_in_the_identity(cases: Path, fact: str) -> None:
    assert known(cases, **{fact: "another"}) == known(cases)


def test_threads_are_in_the_identity_on_a_cpu_and_its_other_cores_are_not(cases: Path) -> None:
    names = [f"{finished.CORES.sub('', provenance.processor_name())} ({cores} cores)" for cores in (4, 1000)]
    one, other = (known(cases, device_name=name) for name in names)
    assert one == other
    assert known(cases, threads=2) != known(cases)
    assert known(cases, 2, capability="9.0") == known(cases, 1, capability="9.0")


def anew(folder: Path, calls: Calls, caplog: pytest.LogCaptureFixture, other: str, *words: Any) -> None:
    with caplog.at_level(logging.INFO, logger="meddpm"):
        run(folder, *words)
    assert calls.count == 4 * STEPS
    assert f"beginning anew: the volumes there are of other {other}\n" in caplog.text
    assert "going on" not in caplog.text
    assert len(rows_of(folder)) == 4


def test_another_number_of_threads_begins_anew(
    half: Path, cases: Path, calls: Calls, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)  # two are slow where the cores are shared
    anew(half, calls, caplog, "environment", cases, "", None, 2)


def test_other_settings_begin_anew(half: Path, cases: Path, calls: Calls, caplog: pytest.LogCaptureFixture) -> None:
    anew(half, calls, caplog, "settings", cases, settings(original_grid=False))
    assert {row["original_grid_file"] for row in rows_of(half)} == {""}


def test_other_weights_begin_anew(half: Path, cases: Path, calls: Calls, caplog: pytest.LogCaptureFixture) -> None:
    tiny = study.load(CONFIG, ROOT).models["tiny"].config
    torch.manual_seed(0)
    weights.save(half / "weights.safetensors", build_model(tiny), {})
    anew(half, calls, caplog, "weights", cases, "", half / "weights.safetensors")


def test_other_cases_begin_anew(
    half: Path, cases: Path, tmp_path: Path, calls: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    table = shutil.copytree(cases.parent, tmp_path / "others") / cases.name
    first, second = manifest.read(table)
    manifest.write(table, [first, dataclasses.replace(second, id="case-2")])
    anew(half, calls, caplog, "cases", table)


@pytest.mark.parametrize(
    "change", [{"id": "x"}, {"label_sha256": "0"}, {"original_shape": (5, 4, 4)}, {"original_affine": (1.0,) * 12}]
)
def test_what_a_case_is_drawn_from_is_in_the_identity_and_where_it_came_from_is_not(
    cases: Path, change: dict[str, Any]
) -> None:
    job = sample.Job.parse("sample", settings())
    environment = job.environment(torch.device("cpu"))
    first, second = manifest.read(cases)
    elsewhere = dataclasses.replace(first, files={"label": "x"}, notes="moved")
    digests = [
        finished.identity(job, None, rows, environment, 1)["cases"]
        for rows in (
            [first, second],
            [elsewhere, second],
            [second, first],
            [dataclasses.replace(first, **change), second],
        )
    ]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_other_code_begins_anew(half: Path, cases: Path, calls: Calls, caplog: pytest.LogCaptureFixture) -> None:
    record = half / finished.RECORD
    record.write_text(record.read_text().replace(json.loads(settings())["code"], "another"))
    anew(half, calls, caplog, "code", cases)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(("name", "harm"), [(NAMES[0], cut), (FIRST_ON_GRID, Path.unlink)])
def test_a_volume_that_was_harmed_is_drawn_again_and_keeps_its_place(
    half: Path, cases: Path, unbroken: Path, calls: Calls, name: str, harm: Callable[[Path], None]
) -> None:
    harm(half / name)
    before = times(half)[NAMES[1]]
    run(half, cases)
    assert calls.count == 3 * STEPS
    assert times(half)[NAMES[1]] == before
    assert_same_end(half, unbroken)


def test_a_volume_of_a_batch_is_drawn_again_with_its_batch_and_the_others_stay(
    tmp_path: Path, cases: Path, calls: Calls
) -> None:
    whole, harmed, text = tmp_path / "whole", tmp_path / "harmed", settings(batch=2)
    run(whole, cases, text)
    calls.count, calls.at = 0, {STEPS + 1: terminate}
    with pytest.raises(UserError, match="after 2 of 4 volumes"):
        run(harmed, cases, text)
    (harmed / NAMES[1]).unlink()
    before = {name: moment for name, moment in times(harmed).items() if name.startswith("case-0_seed1")}
    calls.count, calls.at = 0, {}
    run(harmed, cases, text)
    assert calls.count == 2 * STEPS
    assert {name: times(harmed)[name] for name in before} == before
    assert_same_end(harmed, whole)


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        ("{", "{", NAMES[:2]),
        ("{", "", []),
        ('"identity"', '"identities"', []),
        ('"environment": {', '"environments": {', []),
        ('"finished": [', '"finished": null, "rest": [', []),
        ('"finished": [', '"finished": [null, 7, {}, ', NAMES[:2]),
        ('"case": "case-0"', '"case": []', []),
        ('"seed": 1', '"seeds": 1', NAMES[1:2]),
        (f'"{NAMES[0]}"', '""', NAMES[1:2]),
        (f'"{NAMES[0]}"', '"a\\u0000"', NAMES[1:2]),
        (f'"{NAMES[0]}"', "true", NAMES[1:2]),
        ('"original_grid_sha256": "', '"original_grid_sha256": "0', []),
    ],
)
def test_a_damaged_record_is_no_fault(half: Path, old: str, new: str, kept: list[str]) -> None:
    record = half / finished.RECORD
    text = record.read_text(encoding="utf-8")
    assert old in text
    record.write_text(text.replace(old, new, 1 if old == "{" else -1), encoding="utf-8")
    found = finished.Finished(half, json.loads(text)["identity"])
    assert [row["file"] for row in found.rows.values()] == kept


def test_a_cell_that_cannot_go_on_here_keeps_its_record_and_the_archive_leaves_it_out(
    half: Path, cases: Path, unbroken: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise CannotRun(UNAVAILABLE, "no such device")

    with monkeypatch.context() as patched:
        patched.setattr(sample.network, "load", refuse)
        run(half, cases)
    (row,) = rows_of(half)
    assert (row["status"], row["reason"]) == (UNAVAILABLE, "no such device")
    assert recorded(half) == NAMES[:2]
    packed = archive._of_the_cell(half / "samples.csv")
    assert {path.name for path in packed} == {"samples.csv", "environment.csv"}
    run(half, cases)
    assert calls.count == 2 * STEPS
    assert_same_end(half, unbroken)


def test_a_disk_that_is_full_while_recording_is_a_line_and_keeps_the_record_before(
    half: Path, cases: Path, unbroken: Path, calls: Calls
) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    (half / f".{os.getpid()}.{finished.RECORD}").symlink_to("/dev/full")
    with pytest.raises(SystemExit) as caught, log._told():
        run(half, cases)
    text = "No space left on device; make room or mend the permissions"
    assert caught.value.code == f"{half / finished.RECORD}: {text}"
    assert recorded(half) == NAMES[:2]
    run(half, cases)
    assert calls.count == STEPS + 2 * STEPS
    assert_same_end(half, unbroken)
