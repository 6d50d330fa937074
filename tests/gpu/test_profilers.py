"""What only a GPU can show of profiling: traces, ceilings, and counters where the host gives them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no NVIDIA GPU here", allow_module_level=True)

import yaml  # noqa: E402

from meddpm import study, tables  # noqa: E402
from meddpm.config import repository_root  # noqa: E402
from meddpm.profiling import ceilings, counters  # noqa: E402
from meddpm.profiling.readers import kineto  # noqa: E402
from meddpm.profiling.tools import ncu  # noqa: E402
from meddpm.stages import counters as counters_stage  # noqa: E402
from meddpm.stages import measured_step, profile  # noqa: E402

CONFIG = yaml.safe_load((repository_root() / "config.yaml").read_text(encoding="utf-8"))
STUDY = study.load(CONFIG)
# Of all launches against those that stand for them.
SAME = ("kernel time", "SM active cycles", "executed instructions", "instructions, tensor pipe", "DRAM read", "IPC")


def settings(stage: str, variant: str, phase: str, model: str = "demo") -> str:
    return STUDY.settings(stage, model=model, gpu="local", variant=variant, phase=phase)


@pytest.mark.parametrize(("variant", "phase"), [("bf16", "train"), ("tf32", "sample"), ("compile", "sample")])
def test_a_cell_is_profiled(variant: str, phase: str, tmp_path: Path) -> None:
    outputs = {table: tmp_path / f"{table}.csv" for table in profile.TABLES}
    profile.run(settings("profile", variant, phase), outputs, tmp_path / "environment.csv", threads=4)
    kernels = tables.read("kernels", outputs["kernels"])
    assert {row["status"] for row in kernels} == {"ok"}, kernels[0]["reason"]
    categories = {row["category"] for row in kernels}
    assert "convolution forward" in categories
    if phase == "train":
        assert {"convolution weight gradient", "optimiser"} <= categories
    figures = {(row["scope"], row["metric"]): row["value"] for row in tables.read("counters", outputs["counters"])}
    assert 0 <= figures["total", "idle share"] < 100
    assert figures["total", "tensor-core share of convolution time"] > 50
    assert figures["total", "achieved"] < figures["total", f"ceiling, {'bf16' if variant == 'bf16' else 'tf32'}"]
    marked = [scope for scope, _ in figures if scope.startswith("range:")]
    assert ("range:middle" in marked) is (variant != "compile")
    seen = kineto.read(tmp_path / "trace.json.gz")
    # One stream: kernels do not overlap, so that their times add up to the time in which the GPU was busy.
    assert sum(kernel.time_ms for kernel in seen.kernels) == pytest.approx(seen.occupied.busy_ms, rel=0.02)


def test_ceilings_are_in_their_order() -> None:
    found = ceilings.measure(torch.device("cuda"))
    assert found["fp32"] < found["tf32"] < found["bf16"]
    assert found["copy"] > 1e11


def needs_counters() -> None:
    if shutil.which(os.environ.get("MEDDPM_NCU", "ncu")) is None:
        pytest.skip("no Nsight Compute (ncu) here")
    said = subprocess.run(
        ["ncu", "--clock-control", "none", "--metrics", "sm__cycles_active.sum", sys.executable, "-c",
         "import torch; torch.ones(9, device='cuda').sin().cpu()"], capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    if ncu.REFUSED.search(said.stdout + said.stderr):
        pytest.skip("the host refuses GPU counters")


# Two to four minutes each.
@pytest.mark.parametrize(
    ("model", "variant"), [("demo", "tf32"), ("demo", "compile"), ("whole_head_128", "tf32_channels_last")]
)
def test_launches_that_stand_for_others_give_the_totals_of_all(
    model: str, variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_counters()
    totals = {}
    for way in ("once", "all"):
        (tmp_path / way).mkdir()
        outputs = {table: tmp_path / way / f"{table}.csv" for table in counters_stage.TABLES}
        if way == "all":
            monkeypatch.setattr(measured_step, "hides_operators", lambda variant: True)
            monkeypatch.setattr(counters_stage, "COVERED_BY_FUNCTIONS", 1.0)
        counters_stage.run(
            settings("counters", variant, "sample", model), outputs, tmp_path / "environment.csv", threads=4
        )
        rows = tables.read("counters", outputs["counters"])
        assert {row["status"] for row in rows} == {"ok"}, rows[0]["reason"]
        totals[way] = {row["metric"]: row["value"] for row in rows if row["scope"] == counters.TOTAL}
        if way == "once":
            advice = tables.read("priorities", outputs["priorities"])
            assert advice[0]["score_pct"] > 0
    for metric in SAME:  # shown by pytest -s
        print(f"{model}, {variant}: {metric}: {totals['once'][metric]:.4g} for {totals['all'][metric]:.4g}")
    for metric in SAME:
        assert totals["once"][metric] == pytest.approx(totals["all"][metric], rel=0.03), metric
    precision = "bf16" if variant == "compile" else "TF32"
    assert totals["once"][f"tensor operations, {precision}"] > 0
    assert totals["once"]["launches"] < totals["all"]["launches"]
