"""Gaussian noise that depends on the case, the seed and the draw alone: not on batch, order, device or machine."""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def gaussian(case: str, seed: int, draw: int, shape: Sequence[int]) -> NDArray[np.float32]:
    """Standard normal noise of `shape`, float32, for one volume.

    `draw` 0 is x_T, the volume sampling starts from; `draw` k > 0 is the noise of the k-th step. Every draw is a
    stream of its own of the counter-based generator Philox 4x64-10 (Salmon et al. 2011, "Parallel random numbers:
    as easy as 1, 2, 3"), so that leaving one out changes no other.
    """
    if draw < 0:
        raise ValueError(f"draw {draw} is negative")
    # A zero byte ends the case, so that no two pairs of case and seed give the same text.
    digest = hashlib.sha256(case.encode() + b"\0" + str(seed).encode()).digest()
    key = int.from_bytes(digest[:16], "little")
    # The counter has 256 bits and rises by one for each four 64-bit words drawn: the topmost 64 bits number the draw.
    generator = np.random.Generator(np.random.Philox(key=key, counter=draw << 192))
    return generator.standard_normal(tuple(shape), dtype=np.float32)
