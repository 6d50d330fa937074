"""The stages: what a cell leaves behind when it runs, and when it cannot."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from meddpm import study, tables, variants
from meddpm.config import UserError, VariantConfig, repository_root
from meddpm.model import build_model, weights
from meddpm.stages import bench, network, prepare, profile, sample, train

ROOT = repository_root()
CONFIG = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
for key, value in yaml.safe_load((ROOT / "tests/workflow/tiny.yaml").read_text(encoding="utf-8")).items():
    CONFIG[key] = {**CONFIG[key], **value}
CELL = {"model": "tiny", "gpu": "cpu"}
SAMPLE = {**CELL, "variant": "fp32", "solver": "ddpm"}


def settings(stage: str, changes: dict[str, Any] | None = None, **cell: str) -> str:
    """The settings of one job of the tiny study, some values of a section changed."""
    config = {name: {**section, **(changes or {}).get(name, {})} for name, section in CONFIG.items()}
    return study.load(config, ROOT).settings(stage, **cell)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    table = tmp_path_factory.mktemp("data") / "cases.tsv"
    prepare.run(settings("prepare", dataset="icbm152_tiny"), table, workers=1)
    return table


def run_train(folder: Path, cases: Path, text: str) -> None:
    names = ("weights.safetensors", "loss.csv", "training.json")
    target, curve, record = (folder / name for name in names)
    train.run(text, cases, target, curve, record, threads=1)


def read_samples(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_earlier_weights_are_kept_when_others_are_trained(tmp_path: Path, cases: Path) -> None:
    cell = {**CELL, "variant": "fp32"}
    run_train(tmp_path, cases, settings("train", {"train": {"steps": 1}}, **cell))
    first = (tmp_path / "weights.safetensors").read_bytes()
    (tmp_path / "weights.safetensors").unlink()  # as Snakemake does before it runs a job again
    run_train(tmp_path, cases, settings("train", {"train": {"steps": 2}}, **cell))
    kept = [path.read_bytes() for path in tmp_path.glob("kept/*/weights.safetensors")]
    assert len(kept) == 2
    assert first in kept
    assert (tmp_path / "weights.safetensors").read_bytes() in kept
    assert json.loads((tmp_path / "training.json").read_text())["steps"] == 2
    assert weights.read_card(tmp_path / "weights.safetensors")["steps"] == 2


def test_training_that_diverges_says_what_to_change(tmp_path: Path, cases: Path) -> None:
    diverging = {"train": {"steps": 200, "learning_rate": 1e30}}
    with pytest.raises(UserError, match=r"loss is .* train\.learning_rate in config\.yaml"):
        run_train(tmp_path, cases, settings("train", diverging, **CELL, variant="fp32"))
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_device_that_cannot_train_says_so(tmp_path: Path, cases: Path) -> None:
    with pytest.raises(UserError, match=r"tiny cannot be trained here: TF32 .* train\.variant"):
        run_train(tmp_path, cases, settings("train", **CELL, variant="tf32"))


def test_a_batch_of_two_draws_what_a_batch_of_one_draws(tmp_path: Path, cases: Path) -> None:
    digests = {}
    for batch in (1, 2):
        target = tmp_path / str(batch) / "samples.csv"
        sample.run(settings("sample", {"sample": {"batch": batch}}, **SAMPLE), cases, None, target, threads=1)
        rows = read_samples(target)
        assert [row["status"] for row in rows] == ["ok", "ok"]
        digests[batch] = [sample.volumes.read_image(target.parent / row["file"])[0] for row in rows]
    for one, two in zip(digests[1], digests[2], strict=True):
        torch.testing.assert_close(torch.from_numpy(one), torch.from_numpy(two), rtol=1e-3, atol=1e-3)


def test_a_cell_that_cannot_run_is_a_row_without_a_volume(tmp_path: Path, cases: Path) -> None:
    target = tmp_path / "samples.csv"
    sample.run(settings("sample", **{**SAMPLE, "variant": "tf32"}), cases, None, target, threads=1)
    (row,) = read_samples(target)
    assert (row["status"], row["file"]) == ("unsupported", "")
    assert "TF32" in row["reason"]


def test_weights_of_another_network_are_refused_in_one_line(tmp_path: Path, cases: Path) -> None:
    path = tmp_path / "weights.safetensors"
    weights.save(path, build_model("demo"), {})
    with pytest.raises(UserError, match=r"weights differ .* they fit the preset demo") as caught:
        sample.run(settings("sample", **SAMPLE), cases, path, tmp_path / "samples.csv", threads=1)
    assert "\n" not in str(caught.value)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Variants that use bf16 give what `broken["network"]` says, or raise `broken["error"]`."""
    faults: dict[str, Any] = {}
    honest = variants.Applied.network

    def network_of(self: variants.Applied, model: torch.nn.Module) -> variants.Network:
        run = honest(self, model)
        if self.variant == VariantConfig():
            return run

        def wrong(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            if "error" in faults:
                raise faults["error"]
            return faults["network"](run(x, t))

        return wrong

    monkeypatch.setattr(variants.Applied, "network", network_of)
    return faults


def run_bench(folder: Path, phase: str) -> list[tables.Row]:
    text = settings("bench", **CELL, variant="bf16", phase=phase)
    bench.run(text, folder / "timing.csv", folder / "environment.csv", threads=1)
    return tables.read("timing", folder / "timing.csv")


@pytest.mark.parametrize("wrong", [lambda y: y * 1.5, lambda y: y * float("nan"), torch.zeros_like])
def test_a_wrong_result_is_failed_and_not_timed(broken: dict[str, Any], tmp_path: Path, wrong: Any) -> None:
    broken["network"] = wrong
    rows = run_bench(tmp_path, "sample")
    assert {row["solver"] for row in rows} == {"ddpm", "dpmpp_2m_sde_5"}
    for row in rows:
        assert row["status"] == "failed"
        assert "wrong result" in row["reason"]
        assert row["step_ms_median"] is row["speedup"] is None
        assert row["device_name"]


@pytest.mark.parametrize("phase", ["sample", "train"])
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.\nmore"), "out of memory: CUDA out of"),
        (torch.AcceleratorError("CUDA error: an illegal memory access"), "the device failed: CUDA error"),
    ],
)
def test_an_error_of_the_device_is_a_row(
    broken: dict[str, Any], tmp_path: Path, phase: str, error: Exception, words: str
) -> None:
    broken["error"] = error
    rows = run_bench(tmp_path, phase)
    assert {row["status"] for row in rows} == {"failed"}
    assert all(words in row["reason"] and "\n" not in row["reason"] for row in rows)


def test_a_fault_of_the_program_is_not_hidden_in_a_row(broken: dict[str, Any], tmp_path: Path) -> None:
    broken["error"] = RuntimeError("shapes differ")
    with pytest.raises(RuntimeError, match="shapes differ"):
        run_bench(tmp_path, "sample")
    assert not (tmp_path / "timing.csv").exists()


def test_an_error_of_the_compiler_is_known_by_its_module() -> None:
    compiler_error = type("InductorError", (RuntimeError,), {"__module__": "torch._inductor.exc"})
    with pytest.raises(network.CannotRun, match=r"torch\.compile failed: no g"), network.device_errors():
        raise compiler_error("no g++\nlong text")


def test_a_training_step_is_profiled(tmp_path: Path) -> None:
    text = settings("profile", **CELL, variant="fp32", phase="train")
    profile.run(text, tmp_path / "kernels.csv", tmp_path / "environment.csv", threads=1)
    categories = {row["category"] for row in tables.read("kernels", tmp_path / "kernels.csv")}
    assert {"convolution forward", "convolution backward", "normalisation"} <= categories


HEAVY = {"torch", "numpy", "nibabel", "nilearn", "matplotlib", "diffusers", "skimage", "pandas"}


@pytest.mark.parametrize("module", ["meddpm.study", "meddpm.cli", "meddpm.tables"])
def test_what_the_snakefile_and_the_command_line_read_is_light(module: str) -> None:
    script = f"import sys, {module}; print(*{HEAVY!r} & set(sys.modules))"
    printed = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert printed.stdout.split() == []
