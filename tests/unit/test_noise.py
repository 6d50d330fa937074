"""Noise: reproducible to the bit, independent of everything but case, seed and draw."""

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

from meddpm.config import repository_root
from meddpm.diffusion.noise import gaussian

SHAPE = (1, 8, 16, 16)


def digest(case: str, seed: int, draw: int) -> str:
    return hashlib.sha256(gaussian(case, seed, draw, SHAPE).tobytes()).hexdigest()[:16]


PINNED = {
    ("case_0", 0, 0): "78a98fe2227aae24",
    ("case_0", 0, 1): "403bdd4716a7e096",
    ("case_0", 0, 250): "26a54b062104cf0d",
    ("case_0", 1, 0): "4c0ab0faac7ae0e9",
    ("BraTS2021_01306", 7, 3): "3115fe7adff7c035",
    ("größe", 0, 0): "2804218fcae7b4ce",
}


@pytest.mark.parametrize("arguments", PINNED)
def test_pinned(arguments):
    assert digest(*arguments) == PINNED[arguments]


def test_first_numbers():
    expected = np.array([-1.3448458, -1.6095649, -0.2369607, -0.6962952], dtype=np.float32)
    assert np.array_equal(gaussian("case_0", 0, 0, (4,)), expected)


def test_same_on_a_plain_processor():
    """With vector instructions switched off the bits stay the same, unlike torch.randn's."""
    code = (
        "import hashlib; from meddpm.diffusion.noise import gaussian; "
        f"print(hashlib.sha256(gaussian('case_0', 0, 0, {SHAPE}).tobytes()).hexdigest()[:16])"
    )
    plain = {"ATEN_CPU_CAPABILITY": "default", "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3 X86_V3 X86_V4 AVX512_ICL"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=repository_root(),
        env=os.environ | plain,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == PINNED["case_0", 0, 0], done.stderr


def test_streams_are_unrelated():
    streams = [
        gaussian(case, seed, draw, SHAPE).ravel()
        for case, seed, draw in [("a", 0, 0), ("b", 0, 0), ("a", 1, 0), ("a", 0, 1), ("a", 0, 2), ("a0", 0, 0)]
    ]
    correlation = np.corrcoef(streams) - np.eye(len(streams))
    # 2048 numbers each: the correlation of independent ones has a standard deviation of 0.022.
    assert np.abs(correlation).max() < 0.09


def test_standard_normal():
    values = gaussian("a", 0, 0, (100_000,)).astype(np.float64)
    assert abs(values.mean()) < 0.015
    assert abs(values.std() - 1) < 0.01
    assert abs((values**4).mean() - 3) < 0.15


def test_type_and_shape():
    values = gaussian("a", 0, 0, [2, 3, 4])
    assert values.dtype == np.float32
    assert values.shape == (2, 3, 4)


def test_draw_is_not_negative():
    with pytest.raises(ValueError, match="draw -1"):
        gaussian("a", 0, -1, (1,))
