"""Variants: flags go on for a block and off afterwards, an impossible request is a status with a reason."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from meddpm import variants
from meddpm.config import VariantConfig, repository_root
from meddpm.status import CannotRun

CPU = torch.device("cpu")
CUDA = torch.device("cuda")
TF32 = VariantConfig(conv_precision="tf32", matmul_precision="tf32")


class Small(torch.nn.Module):
    """A convolution that remembers the layout and type that it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv3d(4, 4, 3, padding=1)
        self.seen: dict[str, object] = {}

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        self.seen = {"layout": x.is_contiguous(memory_format=torch.channels_last_3d), "type": y.dtype}
        return y + t.reshape(-1, 1, 1, 1, 1)


def flags() -> tuple[str, str, bool]:
    backends = torch.backends
    return backends.cudnn.conv.fp32_precision, backends.cuda.matmul.fp32_precision, backends.cudnn.benchmark


def reason(variant: VariantConfig, where: torch.device, training: bool = False) -> tuple[str, str]:
    with pytest.raises(CannotRun) as caught:
        variants.check(variant, where, training)
    return caught.value.status, caught.value.reason


@pytest.mark.parametrize("raises", [False, True])
def test_the_old_flags_come_back_also_after_an_error(raises: bool) -> None:
    before = flags()
    asked = VariantConfig(matmul_precision="ieee", cudnn_benchmark=True)
    try:
        with variants.applied(asked, CPU) as applied:
            assert flags() == ("ieee", "ieee", True)
            shown = applied.flags()
            assert (shown["conv_fp32_precision"], shown["matmul_fp32_precision"]) == ("ieee", "ieee")
            assert shown["cudnn_benchmark"] is True
            if raises:
                raise ZeroDivisionError
    except ZeroDivisionError:
        assert raises
    assert flags() == before


def test_default_leaves_the_setting_of_pytorch_alone() -> None:
    before = flags()
    with variants.applied(VariantConfig(conv_precision="default", matmul_precision="default"), CPU):
        assert flags()[:2] == before[:2]
    assert before[0] != "ieee", "this test means something only while PyTorch allows TF32 convolutions by default"


@pytest.mark.parametrize(
    ("variant", "word"),
    [
        (TF32, "TF32"),
        (VariantConfig(conv_precision="tf32"), "TF32"),
        (VariantConfig(autocast="fp16"), "fp16"),
        (VariantConfig(cuda_graph=True), "CUDA graphs"),
    ],
)
def test_what_a_cpu_cannot_do_is_unsupported(variant: VariantConfig, word: str) -> None:
    status, why = reason(variant, CPU)
    assert status == "unsupported"
    assert word in why
    assert "\n" not in why


@pytest.mark.parametrize(
    ("capability", "variant", "allowed"),
    [
        ((7, 0), TF32, False),
        ((7, 5), VariantConfig(autocast="bf16"), False),
        ((7, 0), VariantConfig(autocast="fp16"), True),
        ((7, 0), VariantConfig(), True),
        ((8, 0), TF32, True),
        ((9, 0), VariantConfig(autocast="bf16"), True),
    ],
)
def test_what_a_gpu_can_do_follows_from_its_capability(
    capability: tuple[int, int], variant: VariantConfig, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    if allowed:
        variants.check(variant, CUDA)
    else:
        status, why = reason(variant, CUDA)
        assert status == "unsupported"
        assert f"this GPU has {capability[0]}.{capability[1]}" in why


def test_a_graph_is_neither_trained_through_nor_captured_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    assert reason(VariantConfig(cuda_graph=True), CUDA, training=True)[0] == "unsupported"
    assert "reduce-overhead" in reason(VariantConfig(cuda_graph=True, compile="default"), CUDA)[1]


def test_compile_without_a_compiler_is_unavailable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    status, why = reason(VariantConfig(compile="default"), CPU)
    assert status == "unavailable"
    assert "C++ compiler" in why
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.delenv("CC", raising=False)
    assert "C compiler" in reason(VariantConfig(compile="default"), CUDA)[1]


def test_compile_without_pythons_headers_is_unavailable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/c++")
    monkeypatch.setattr(variants.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    assert reason(VariantConfig(compile="default"), CPU) == (
        "unavailable",
        "torch.compile needs Python's headers: Python.h is not there",
    )


def test_layout_and_precision_reach_the_network_and_the_output_is_float32() -> None:
    x, t = torch.randn(2, 4, 4, 6, 8), torch.tensor([1, 2])
    model = Small().eval()
    expected = model(x, t)
    with variants.applied(VariantConfig(autocast="bf16", memory_format="channels_last_3d"), CPU) as applied:
        output = applied.network(model)(x, t)
    assert model.seen == {"layout": True, "type": torch.bfloat16}
    assert output.dtype == torch.float32
    assert 0 < torch.linalg.vector_norm(output - expected) / torch.linalg.vector_norm(expected) < 0.02
    with variants.applied(VariantConfig(), CPU) as applied:
        torch.testing.assert_close(applied.network(model)(x, t), expected)
    assert model.seen == {"layout": False, "type": torch.float32}


@pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler here")
def test_a_compiled_network_gives_what_the_eager_one_gives() -> None:
    x, t = torch.randn(1, 4, 4, 4, 4), torch.tensor([3])
    model = Small().eval()
    with torch.no_grad(), variants.applied(VariantConfig(compile="default"), CPU) as applied:
        torch.testing.assert_close(applied.network(model)(x, t), model(x, t))


SPACED = """
import sys
import torch
from torch.utils import cpp_extension
from meddpm import variants
from meddpm.config import VariantConfig
cpp_extension.TORCH_LIB_PATH = sys.argv[1]
x = torch.randn(1, 2, 4, 4, 4)
class Net(torch.nn.Module):
    def forward(self, x, t):
        return torch.nn.functional.silu(x) * 2 + t
cpu = torch.device("cpu")
with torch.no_grad(), variants.applied(VariantConfig(compile="default"), cpu) as applied:
    for _ in range(2):
        network = applied.network(Net())
    torch.testing.assert_close(network(x, torch.tensor([1])), Net()(x, torch.tensor([1])))
"""


@pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler here")
def test_torch_in_a_path_with_a_space_compiles(tmp_path: Path) -> None:
    (tmp_path / "a lib").symlink_to(Path(torch.__file__).parent / "lib")
    environment = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": str(repository_root()),
    }
    command = [sys.executable, "-c", SPACED, str(tmp_path / "a lib")]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-2000:]


def test_a_graph_is_captured_once_for_each_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    captured: list[torch.Size] = []

    def capture(run: variants.Network, x: torch.Tensor, t: torch.Tensor) -> variants.Network:
        captured.append(x.shape)
        return run

    monkeypatch.setattr(variants, "_capture", capture)
    network = variants._captured(lambda x, t: x + t.reshape(-1, 1))
    for batch in (2, 2, 1, 2):
        torch.testing.assert_close(network(torch.zeros(batch, 3), torch.ones(batch)), torch.ones(batch, 3))
    assert captured == [(2, 3), (1, 3)]


def test_a_variant_that_switches_nothing_on_a_cpu_says_so() -> None:
    stock = VariantConfig(conv_precision="default", matmul_precision="default")
    assert "fp32" in variants.note(stock, CPU)
    assert variants.note(stock, CUDA) is None
    assert variants.note(VariantConfig(), CPU) is None
    assert variants.note(VariantConfig(autocast="bf16"), CPU) is None


def test_the_scaler_works_under_fp16_alone() -> None:
    assert not variants.Applied(VariantConfig(autocast="bf16"), CPU).scaler().is_enabled()
    assert variants.Applied(VariantConfig(autocast="fp16"), CPU).scaler().is_enabled()
