"""Kernels' names against the flags in effect."""

import pytest

from meddpm.profiling import proof

FP32 = {"conv_fp32_precision": "ieee", "matmul_fp32_precision": "ieee", "autocast": "none"}
TF32 = {"conv_fp32_precision": "tf32", "matmul_fp32_precision": "tf32", "autocast": "none"}
BF16 = {"conv_fp32_precision": "ieee", "matmul_fp32_precision": "ieee", "autocast": "bf16"}
FP16 = {"conv_fp32_precision": "ieee", "matmul_fp32_precision": "ieee", "autocast": "fp16"}
STOCK = {"conv_fp32_precision": "none", "matmul_fp32_precision": "none", "autocast": "none"}


def row(precision: str | None, time_ms: float = 10.0, category: str = "convolution forward") -> dict[str, object]:
    return {"kernel": f"a kernel in {precision}", "category": category, "precision": precision, "time_ms": time_ms}


@pytest.mark.parametrize(
    ("flags", "kernels"),
    [
        (FP32, [row("fp32"), row(None)]),
        (FP32, []),
        (FP32, [row("fp32"), row("bf16", category="copy and cast")]),
        (FP32, [row("fp32", 1000), row("tf32", 1)]),
        (TF32, [row("tf32"), row("fp32"), row("fp32", category="matrix product")]),
        (TF32, [row(None)]),
        (BF16, [row("bf16"), row("fp32", 1)]),
        (BF16, [row("bf16"), row("tf32", 1, "convolution weight gradient")]),
        (FP16, [row("fp32"), row("fp32") | {"kernel": "volta_fp16_scudnn_fp16_128x64_relu_small_nn_v1"}]),
        (STOCK, [row("tf32"), row("fp32", category="matrix product")]),
        (STOCK, [row("fp32")]),
    ],
)
def test_what_agrees(flags: dict[str, str], kernels: list[dict[str, object]]) -> None:
    assert proof.contradiction(flags, kernels) is None


@pytest.mark.parametrize(
    ("flags", "kernels", "words"),
    [
        (FP32, [row("fp32"), row("tf32")], "conv_fp32_precision ieee, but a convolution ran in tf32: a kernel in tf32"),
        (FP32, [row("tf32", category="matrix product")], "matmul_fp32_precision ieee, but a matrix product ran in"),
        (TF32, [row("fp32"), row(None)], "tf32 was asked for, but no convolution ran in it: they ran in fp32"),
        (TF32, [row("tf32"), row("bf16")], "conv_fp32_precision tf32, but a convolution ran in bf16"),
        (FP16, [row("fp32") | {"kernel": "volta_scudnn_bf16"}], "fp16 was asked for, but no convolution ran in it"),
        (BF16, [row("fp32")], "bf16 was asked for, but no convolution ran in it"),
        (BF16, [row("bf16"), row("fp16", category="convolution weight gradient")], "autocast bf16, but a convolution"),
    ],
)
def test_what_contradicts(flags: dict[str, str], kernels: list[dict[str, object]], words: str) -> None:
    assert words in proof.contradiction(flags, kernels)
