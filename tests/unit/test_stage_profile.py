"""The stages that profile: torch.profiler on the CPU, Nsight Compute and Nsight Systems with the tools faked."""

import csv
import gzip
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from meddpm import device, study, tables
from meddpm.config import ConfigError, GpuConfig, repository_root
from meddpm.profiling import work
from meddpm.profiling.readers import kineto
from meddpm.profiling.tools import ncu, nsys
from meddpm.profiling.trace import Kernel, MarkedRange, Trace
from meddpm.stages import counters, job, not_run, profile, timeline
from meddpm.stages.marking import Program
from meddpm.status import FAILED, UNAVAILABLE, CannotRun

ROOT = repository_root()
CELL = {"model": "tiny", "gpu": "cpu", "variant": "fp32", "phase": "sample"}
CONFIG = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
for key, value in yaml.safe_load((ROOT / "tests/workflow/tiny.yaml").read_text(encoding="utf-8")).items():
    CONFIG.setdefault(key, {}).update(value)
STUDY = study.load(CONFIG)
FP32 = {"conv_fp32_precision": "ieee", "matmul_fp32_precision": "ieee", "autocast": "none"}
CONVOLUTION = "sm80_xmma_fprop_implicit_gemm_{0}_{0}_f32_nchwkcrs_nchw_tilesize128x64x8_execute_kernel__5x_cudnn"


def outputs(stage: Any, folder: Path) -> dict[str, Path]:
    return {table: folder / f"{table}.csv" for table in stage.TABLES}


def figures(path: Path) -> dict[tuple[str, str], float]:
    return {(row["scope"], row["metric"]): row["value"] for row in tables.read("counters", path)}


@pytest.mark.parametrize("phase", ["sample", "train"])
def test_a_step_is_profiled(phase: str, tmp_path: Path) -> None:
    files = outputs(profile, tmp_path)
    profile.run(STUDY.settings("profile", **CELL | {"phase": phase}), files, tmp_path / "environment.csv", threads=1)
    kernels = tables.read("kernels", files["kernels"])
    categories = {row["category"] for row in kernels}
    assert {"convolution forward", "normalisation"} <= categories
    assert ("convolution backward" in categories) is (phase == "train")
    assert {row["status"] for row in kernels} == {"ok"}
    found = figures(files["counters"])
    assert found["total", "operator time a step"] == pytest.approx(sum(row["time_ms"] for row in kernels))
    assert found["total", "FLOP a step"] == work.flop(STUDY.models["tiny"].config, phase) > 0
    shares = [value for (scope, metric), value in found.items() if metric == "share of operator time"]
    assert sum(shares) == pytest.approx(100)
    assert ("total", "idle share") not in found, "a CPU has none"
    record = json.loads((tmp_path / "profile.json").read_text())
    assert record["flags"]["conv_fp32_precision"] == "ieee"
    assert gzip.decompress((tmp_path / "trace.json.gz").read_bytes()).lstrip().startswith(b"{")


def test_a_training_step_has_three_times_the_operations_of_an_evaluation() -> None:
    config = STUDY.models["tiny"].config
    # The first layer has no gradient of its input.
    assert 2.8 < work.flop(config, "train") / work.flop(config, "sample") < 3


@pytest.mark.parametrize("stage", [counters, timeline])
def test_a_cpu_has_no_counters_and_no_timeline(stage: Any, tmp_path: Path) -> None:
    name = stage.__name__.rpartition(".")[2]
    target = outputs(counters, tmp_path) if stage is counters else tmp_path / "kernels.csv"
    stage.run(STUDY.settings(name, **CELL), target, tmp_path / "environment.csv", threads=1)
    for table in counters.TABLES if stage is counters else ("kernels",):
        (row,) = tables.read(table, tmp_path / f"{table}.csv")
        assert row["status"] == "unsupported"
        assert "this is a CPU" in row["reason"]
    assert tables.read("environment", tmp_path / "environment.csv") == []


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A GPU that is not there; what the marked program answers and ncu prints may be changed."""
    one = {"calls": 3, "kinds": "aten.convolution.default 1", "weights": 1.5, "described": {}}
    chosen = counters.Chosen(**{part: {"operator 1": value} for part, value in one.items()}, covered=0.6, left_out=0.1)
    behaviour = {"said": {"flags": FP32}, "kernel": CONVOLUTION.format("f32f32"), "error": None}

    @contextmanager
    def claimed(gpu: GpuConfig, row: str) -> Iterator[torch.device]:
        yield torch.device("cuda")

    @contextmanager
    def marked(job: job.Job, operators: dict[str, Any] | None, threads: int) -> Iterator[Program]:
        behaviour["operators"] = operators
        answer = Path(behaviour["folder"]) / "answer.json"
        answer.write_text(json.dumps(behaviour["said"]))
        yield Program(["program"], {}, answer)

    def run(command: list[str], raw: Path, advice: Path, *others: Any) -> None:
        behaviour["functions"] = others[-1]
        if behaviour["error"]:
            raise behaviour["error"]
        shape = {"Block Size": "(128, 1, 1)", "Grid Size": "(2, 3, 1)"}
        mark = '1  "<default domain>:operator 1:none:none:none:none:none:none" '
        launch = {"ID": "0", "Kernel Name": behaviour["kernel"], **shape, "gpu__time_duration.sum": "2000000"}
        rule = {"Rule Name": "Occupancy", "Rule Type": "OPT", "Rule Description": "registers"}
        rule |= {"Estimated Speedup Type": "global", "Estimated Speedup": "25"}
        page(raw, {**launch, "Id:Domain:Push/Pop_Range:PL": mark}, {"gpu__time_duration.sum": "ns"})
        section = {"Section Name": "Occupancy", "Metric Name": "", "Metric Unit": "", "Metric Value": ""}
        page(advice, {**{key: launch[key] for key in ("ID", "Kernel Name", *shape)}, **section, **rule})

    def environment(self: job.Job, where: torch.device) -> dict[str, Any]:
        empty = dict.fromkeys(tables.columns("environment"))
        known = {"environment": "e", "device_name": "H200", "python": "3.12", "torch": "2.11", "code_digest": "c"}
        return {**empty, **self.cell("model", "gpu"), **known, "status": "ok"}

    monkeypatch.setattr(device, "claimed", claimed)
    monkeypatch.setattr(job.Job, "environment", environment)
    monkeypatch.setattr(counters, "marked", marked)
    monkeypatch.setattr(timeline, "marked", marked)
    monkeypatch.setattr(counters, "chosen_operators", lambda job, where: chosen)
    monkeypatch.setattr(counters, "chosen_functions", lambda job, where: (["triton_poi_fused_0"], 0.015))
    monkeypatch.setattr(ncu, "program", lambda: "ncu")
    monkeypatch.setattr(ncu, "run", run)
    return behaviour


def page(path: Path, row: dict[str, str], units: dict[str, str] | None = None) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(row), quoting=csv.QUOTE_ALL)
    writer.writeheader()
    if units is not None:
        writer.writerow({**dict.fromkeys(row, ""), **units})
    writer.writerow(row)
    path.write_bytes(gzip.compress(text.getvalue().encode()))


def count(folder: Path, gpu: dict[str, Any], variant: str = "fp32") -> dict[str, list[dict[str, Any]]]:
    gpu["folder"] = folder
    files = outputs(counters, folder)
    counters.run(STUDY.settings("counters", **CELL | {"variant": variant}), files, folder / "environment.csv", 1)
    return {table: tables.read(table, path) for table, path in files.items()}


def test_what_was_counted_stands_for_all_its_calls(tmp_path: Path, gpu: dict[str, Any]) -> None:
    found = count(tmp_path, gpu)
    assert (gpu["operators"], gpu["functions"]) == ({"operator 1": {}}, None)
    total = {row["metric"]: row["value"] for row in found["counters"] if row["scope"] == "total"}
    assert (total["launches"], total["kernel time"]) == (3, 9e6)
    scope = "operator:aten.convolution.default 1"
    (own,) = (row["value"] for row in found["counters"] if (row["scope"], row["metric"]) == (scope, "kernel time"))
    assert own == 6e6, "an operator's figures are of its own calls"
    (kernel,) = found["kernels"]
    assert (kernel["profiler"], kernel["calls"], kernel["time_ms"], kernel["launch"]) == (
        *("ncu", 3, 6, "(2,3,1)x(128,1,1)"),
    )
    (advice,) = found["priorities"]
    assert (advice["rank"], advice["rule"], advice["score_pct"]) == (1, "Occupancy", 25)
    note = "1 launches were counted, each operator and shape once, and stand for 3 with 60.0 % of the kernel time; "
    assert found["counters"][0]["reason"].startswith(note)
    assert found["counters"][0]["reason"].endswith(", 10.0 % is left out")


def test_the_operators_of_most_kernel_time_stand_for_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU, where a trace has no kernels: their times are made up. Two products, one with most of the time."""
    marked: list[str] = []

    def read(file: Path) -> Trace:
        events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
        marked.extend(event["name"] for event in events if event.get("cat") == "user_annotation")
        # aten.mul, aten.cat, aten.mul of another shape, aten.exp
        times = {"operator 5": 50.0, "operator 7": 45.0, "operator 12": 2.0, "operator 13": 3.0, "down 0": 90.0}
        ranges = tuple(MarkedRange(name, 1, 1, time) for name, time in times.items())
        return Trace("torch", (Kernel("a kernel", None, 1, 104.0),), on_gpu=True, ranges=ranges)

    monkeypatch.setattr(kineto, "read", read)
    text = STUDY.settings("counters", **CELL | {"phase": "train"})
    chosen = counters.chosen_operators(job.Job("counters", json.loads(text)), torch.device("cpu"))
    assert {name: call["function"] for name, call in chosen.described.items()} == {
        "operator 5": "aten.mul.Tensor",
        "operator 7": "aten.cat.default",
    }
    assert chosen.weights == {"operator 5": pytest.approx(52 / 50), "operator 7": 1}
    assert (chosen.covered, chosen.left_out) == (pytest.approx(95 / 104), pytest.approx(1 - 97 / 104))
    for name, times in chosen.calls.items():
        assert marked.count(name) == times > 0, "each call is a range of the trace"
    kinds = {chosen.described[name]["function"] for name in chosen.kinds}
    assert kinds == {kind.rpartition(" ")[0] for kind in chosen.kinds.values()}


def test_a_compiled_network_has_each_launch_of_its_long_kernels_counted(tmp_path: Path, gpu: dict[str, Any]) -> None:
    found = count(tmp_path, gpu, variant="compile")
    assert (gpu["operators"], gpu["functions"]) == (None, ["triton_poi_fused_0"])
    assert found["counters"][0]["reason"] == "1 launches were counted; 1.5 % of the kernel time is in no one of them"
    assert found["counters"][0]["value"] == 1


def test_the_functions_of_most_kernel_time_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(file: Path) -> Trace:
        assert b"operator " not in gzip.decompress(file.read_bytes()), (
            "operators of a compiled network are not looked for"
        )
        elementwise = "void at::native::vectorized_elementwise_kernel<4, {}>(int)"
        times = {elementwise.format("A"): 40.0, "triton_poi_fused_0": 45.0, elementwise.format("B"): 13.0, "short": 1.5}
        kernels = [Kernel(name, "(1,1,1)x(64,1,1)", 1, time) for name, time in times.items()]
        return Trace("torch", (*kernels, Kernel("Memcpy DtoD (Device -> Device)", None, 1, 0.5)), on_gpu=True)

    monkeypatch.setattr(kineto, "read", read)
    functions, left_out = counters.chosen_functions(
        job.Job("counters", json.loads(STUDY.settings("counters", **CELL))), torch.device("cpu")
    )
    assert functions == ["vectorized_elementwise_kernel", "triton_poi_fused_0"]
    assert left_out == pytest.approx(0.02)


def test_kernels_that_contradict_the_flags_fail_the_cell(tmp_path: Path, gpu: dict[str, Any]) -> None:
    gpu["kernel"] = CONVOLUTION.format("tf32f32")
    found = count(tmp_path, gpu)
    for rows in found.values():
        assert {row["status"] for row in rows} == {"failed"}
        assert "conv_fp32_precision ieee, but a convolution ran in tf32" in rows[0]["reason"]


@pytest.mark.parametrize(("status", "reason"), [(UNAVAILABLE, "no counters"), (FAILED, "took more than 600 s")])
def test_why_nothing_was_counted_is_a_row_of_each_table(
    tmp_path: Path, gpu: dict[str, Any], status: str, reason: str
) -> None:
    gpu["error"] = CannotRun(status, reason)
    found = count(tmp_path, gpu)
    assert {(rows[0]["status"], rows[0]["reason"], len(rows)) for rows in found.values()} == {(status, reason, 1)}


def test_a_timeline_gives_kernels_and_is_kept(
    tmp_path: Path, gpu: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: list[str], target: Path, seconds: float, env: dict[str, str]) -> Any:
        target.write_bytes(b"an export")
        return seen

    seen = Trace("nsys", (Kernel(CONVOLUTION.format("f32f32"), "(1,1,1)x(64,1,1)", 2, 5.0),), on_gpu=True)
    monkeypatch.setattr(nsys, "run", run)
    gpu["folder"] = tmp_path
    text = STUDY.settings("timeline", **CELL)
    timeline.run(text, tmp_path / "kernels.csv", tmp_path / "environment.csv", threads=1)
    (row,) = tables.read("kernels", tmp_path / "kernels.csv")
    assert (row["profiler"], row["calls"], row["time_ms"], row["status"]) == ("nsys", 2, 5, "ok")
    assert gzip.decompress((tmp_path / "timeline.sqlite.gz").read_bytes()) == b"an export"
    gpu["said"] |= {"flags": FP32 | {"conv_fp32_precision": "tf32"}}
    timeline.run(text, tmp_path / "kernels.csv", tmp_path / "environment.csv", threads=1)
    (row,) = tables.read("kernels", tmp_path / "kernels.csv")
    assert row["status"] == "failed"


def test_cells_that_do_not_run_have_a_row_in_each_of_their_tables(tmp_path: Path) -> None:
    cells = [
        {
            "stage": stage,
            "settings": STUDY.settings(stage, **CELL),
            "files": [str(tmp_path / stage / f"{table}.csv") for table in (*names, "environment")],
            "cells": [],
            "status": UNAVAILABLE,
            "reason": "no such GPU",
        }
        for stage, names in (("profile", profile.TABLES), ("counters", counters.TABLES), ("timeline", ["kernels"]))
    ]
    for cell in cells:
        Path(cell["files"][0]).parent.mkdir()
    not_run.run(json.dumps(cells))
    for cell in cells:
        for path in map(Path, cell["files"]):
            rows = tables.read(path.stem, path)
            reasons = [(row["status"], row["reason"]) for row in rows]
            assert reasons == ([] if path.stem == "environment" else [(UNAVAILABLE, "no such GPU")]), path


def test_the_cells_of_a_slow_profiler_are_those_that_are_picked() -> None:
    def cells(stage: str, **picked: Any) -> list[dict[str, str]]:
        return study.load(CONFIG | {stage: picked} | {"profile": {"phases": ["sample", "train"]}}).cells(stage)

    assert cells("counters") == []
    every = cells("counters", enabled=True)
    assert {(cell["variant"], cell["phase"]) for cell in every} == {
        (variant, phase) for variant in ("fp32", "tf32", "bf16") for phase in ("sample", "train")
    }
    some = cells("timeline", enabled=True, variants=["tf32"], phases=["train"], models=["tiny"])
    assert some == [CELL | {"variant": "tf32", "phase": "train"}]
    with pytest.raises(ConfigError, match="fp23 is not defined"):
        cells("counters", enabled=True, variants=["fp23"])


def test_a_study_may_draw_no_volume() -> None:
    none = study.load(CONFIG | {"sample": {"enabled": False, "cases": 1000}})
    assert none.cells("sample") == none.cells("evaluate") == []
    assert none.cells("bench") == STUDY.cells("bench")


def test_which_cells_are_profiled_is_no_setting_of_one() -> None:
    other = study.load(CONFIG | {"profile": {"phases": ["train", "sample"]}, "counters": {"enabled": True}})
    for stage in ("profile", "counters", "timeline"):
        assert other.settings(stage, **CELL) == STUDY.settings(stage, **CELL)
