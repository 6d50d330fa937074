"""What only a GPU can show: variants give the right result with the kernels that they name, and are timed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no NVIDIA GPU here", allow_module_level=True)

import yaml  # noqa: E402

from meddpm import study, tables, variants  # noqa: E402
from meddpm.config import VariantConfig, repository_root  # noqa: E402
from meddpm.model import build_model, presets, weights  # noqa: E402
from meddpm.profiling import trace  # noqa: E402
from meddpm.profiling.readers import kineto  # noqa: E402
from meddpm.profiling.tools import torch_profiler  # noqa: E402
from meddpm.stages import bench  # noqa: E402
from meddpm.training.loop import train  # noqa: E402
from tests.unit.training_fixture import FULL, copied, fresh, stopped, timeless, trained  # noqa: E402
from tests.unit.weights_fixture import equal  # noqa: E402

CONFIG = yaml.safe_load((repository_root() / "config.yaml").read_text(encoding="utf-8"))
STUDY = study.load(CONFIG)
NAMES = list(STUDY.variants)
CUDA = torch.device("cuda")
LARGEST_ERROR = {"fp32": 1e-5, "channels_last": 1e-5}
GRAPH = VariantConfig(cuda_graph=True)


def evaluate(variant: VariantConfig, file: Path | None = None) -> torch.Tensor:
    config = presets.PRESETS["demo"]
    model = build_model(config).eval()
    weights.fill(model, 0)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((1, config.in_channels, *config.shape[1:]), generator=generator).to(CUDA)
    t = torch.tensor([7], device=CUDA)
    with torch.no_grad(), variants.applied(variant, CUDA) as applied:
        network = applied.network(model)
        output = network(x, t)
        if file:
            torch_profiler.profile(lambda: network(x, t), 1, 1, file, cuda=True)
    return output


@pytest.fixture(scope="module")
def reference() -> torch.Tensor:
    return evaluate(VariantConfig())


@pytest.mark.parametrize("name", NAMES)
def test_every_variant_gives_what_fp32_gives(name: str, reference: torch.Tensor) -> None:
    error = torch.linalg.vector_norm(evaluate(STUDY.variants[name]) - reference) / torch.linalg.vector_norm(reference)
    assert error < LARGEST_ERROR.get(name, 0.03)


def test_a_replayed_graph_gives_what_the_eager_network_gives(reference: torch.Tensor) -> None:
    torch.testing.assert_close(evaluate(GRAPH), reference, rtol=1e-4, atol=1e-4)


def test_a_graph_follows_the_size_of_the_batch() -> None:
    def double(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return 2 * x + t.reshape(-1, 1)

    network = variants._captured(double)
    for batch in (2, 1, 2):
        x, t = torch.randn(batch, 3, device=CUDA), torch.arange(batch, device=CUDA)
        torch.testing.assert_close(network(x, t), double(x, t))


@pytest.mark.parametrize(
    ("name", "precision"), [("fp32", "fp32"), ("tf32", "tf32"), ("stock", "tf32"), ("bf16", "bf16"), ("fp16", "fp16")]
)
def test_the_kernels_say_what_the_flags_say(name: str, precision: str, tmp_path: Path) -> None:
    evaluate(STUDY.variants[name], tmp_path / "trace.json.gz")
    rows = trace.rows(kineto.read(tmp_path / "trace.json.gz"))
    time = {row["precision"]: 0.0 for row in rows}
    for row in rows:
        if row["category"] == "convolution forward":
            time[row["precision"]] += row["time_ms"]
    assert max(time, key=time.get) == precision, time
    if precision == "fp32":
        assert not time.get("tf32")
    other = sum(row["share"] for row in rows if row["category"] == "other")
    assert other < 0.01, [row["kernel"] for row in rows if row["category"] == "other"]


@pytest.mark.parametrize("phase", ["sample", "train"])
@pytest.mark.parametrize("name", ["tf32", "compile", "fp16"])
def test_a_cell_is_timed(name: str, phase: str, tmp_path: Path) -> None:
    settings = STUDY.settings("bench", model="demo", gpu="local", variant=name, phase=phase)
    bench.run(settings, tmp_path / "timing.csv", tmp_path / "environment.csv", threads=4)
    (row,) = tables.read("timing", tmp_path / "timing.csv")
    assert row["status"] == "ok", row["reason"]
    assert row["step_ms_p05"] <= row["step_ms_median"] <= row["step_ms_p95"]
    assert 0 < row["peak_memory_gib"] < 10
    assert row["speedup"] == pytest.approx(row["fp32_step_ms_median"] / row["step_ms_median"])
    (environment,) = tables.read("environment", tmp_path / "environment.csv")
    assert environment["driver"]
    assert environment["clocks"]
    flags = json.loads((tmp_path / "flags.json").read_text())
    assert flags["fp32"]["conv_fp32_precision"] == flags["fp32"]["matmul_fp32_precision"] == "ieee"


# --- training ---


@pytest.fixture
def deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN without the algorithms whose sums come in another order each time."""
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)


@pytest.mark.parametrize("name", ["fp32", "bf16", "fp16"])
def test_a_training_learns_and_its_weights_stay_fp32(name: str) -> None:
    run, result = trained(replace(FULL, steps=60), STUDY.variants[name], CUDA)
    assert sum(result.losses[-20:]) < 0.8 * sum(result.losses[:20])
    state = run.state()
    assert {value.dtype for value in state["model"].values()} == {torch.float32}
    assert (state["scaler"].get("_growth_tracker") == 60) is (name == "fp16")
    # Which batches are shown does not depend on the variant.
    _, fp32 = trained(replace(FULL, steps=1), STUDY.variants["fp32"], CUDA)
    assert result.losses[0] == pytest.approx(fp32.losses[0], rel=0.02)


def test_the_gradient_of_fp16_is_cut_after_its_scale_is_taken_off() -> None:
    norms = {}
    for clip in (None, 0.05):
        with fresh(replace(FULL, gradient_clip=clip), STUDY.variants["fp16"], device=CUDA) as run:
            run.step(run.batches, 1)
            norm = torch.cat([parameter.grad.flatten() for parameter in run.model.parameters()]).norm().item()
            norms[clip] = norm
    assert norms[0.05] == pytest.approx(0.05, rel=1e-2)
    assert norms[None] > 0.1


def test_a_step_that_overflows_fp16_is_left_out_and_halves_the_scale() -> None:
    with fresh(FULL, STUDY.variants["fp16"], device=CUDA) as run:
        run.step.scaler.load_state_dict({**run.step.scaler.state_dict(), "scale": 2.0**40})
        before = copied(run.state())["model"]
        run.step(run.batches, 1)
        after = copied(run.state())
    assert equal(dict(after["model"]), dict(before))
    assert after["scaler"]["scale"] == 2.0**39


@pytest.mark.parametrize("name", ["fp32", "channels_last", "bf16", "fp16"])
def test_a_run_that_was_stopped_goes_on_as_if_it_never_was(name: str, deterministic: None) -> None:
    variant = STUDY.variants[name]
    _, expected = trained(FULL, variant, CUDA)
    saved = stopped(FULL, 13, variant=variant, device=CUDA)
    with fresh(FULL, variant, device=CUDA) as second:
        second.restore(saved)
        assert equal(timeless(copied(second.state())), timeless(saved))
        result = train(second)
    # The backward pass of the trilinear interpolation adds up in any order: two runs are never equal to the bit.
    assert result.losses == pytest.approx(expected.losses, rel=1e-3)
