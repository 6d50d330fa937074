"""How near kernels come to the ceilings of their GPU, from counters of Nsight Compute and the ceilings measured on it.

The roofline model (Williams, Waterman and Patterson, Communications of the ACM 52(4), 2009), with a ceiling for each
kind of arithmetic: the least time that a GPU needs for some work is the longer of that of its arithmetic, each kind at
its ceiling, and that of its traffic with DRAM at the rate of a copy.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from meddpm.profiling import ceilings
from meddpm.status import OK
from meddpm.tables import Row

# Figures of counters.yaml that are arithmetic: the ceiling of each, and the operations of one of them. An instruction
# of the FMA pipe is that of a warp of 32 threads, of 2 operations where it is a multiply-add, which not all are.
ARITHMETIC = {
    "instructions, FMA pipe": ("fp32", 64),
    "tensor operations, TF32": ("tf32", 1),
    "tensor operations, bf16": ("bf16", 1),
    "tensor operations, fp16": ("fp16", 1),
}
ON_TENSOR_CORES = "instructions, tensor pipe"
TRAFFIC = ("DRAM read", "DRAM written")
TIME = "kernel time"
CEILING = "ceiling, "
# Below this share of both ceilings kernels wait: for each other, for data, for a grid too small. Nsight Compute's
# section SpeedOfLight says so of the same share.
NEAR = 0.6
TERA = 1e12


@dataclass(frozen=True)
class Placed:
    """Where some kernels lie below the roof.

    `intensity` is in FLOP a byte of DRAM traffic (None where there was none), `rate` in FLOP/s, `traffic` in bytes/s.
    `compute` and `memory` are the shares, 0 to 1, of the time that the ceilings of arithmetic and of a copy would take;
    the larger is how near the kernels come to the roof, and tells what bounds them where it is no small one.
    """

    scope: str
    time_ns: float
    intensity: float | None
    rate: float
    traffic: float
    compute: float
    memory: float

    @property
    def bound(self) -> str:
        """What bounds the kernels: "compute" or "memory", or "latency" where they come near neither ceiling."""
        if max(self.compute, self.memory) < NEAR:
            return "latency"
        return "compute" if self.compute > self.memory else "memory"


def limits(counters: Iterable[Row]) -> dict[str, dict[str, float]]:
    """The ceilings in the counters table, FLOP/s and (under "copy") bytes/s, by GPU: of several, the highest."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for row in counters:
        measured = row["value"] is not None and 0 < row["value"] < math.inf
        if measured and row["status"] == OK and row["metric"].startswith(CEILING):
            name = row["metric"].removeprefix(CEILING)
            found[row["gpu"]][name] = max(row["value"] * TERA, found[row["gpu"]].get(name, 0.0))
    return dict(found)


def placed(scope: str, figures: Mapping[str, float], roof: Mapping[str, float]) -> Placed | None:
    """Where the kernels of one scope lie, from its figures by their names in counters.yaml.

    None where a figure or a ceiling that it takes is missing.
    """
    time = figures.get(TIME)
    if not time or any(name not in figures for name in TRAFFIC) or ceilings.COPY not in roof:
        return None
    # A GPU that counts the instructions of its tensor cores and not their operations (Volta).
    if figures.get(ON_TENSOR_CORES) and not any(name in figures for name in ARITHMETIC if name.startswith("tensor")):
        return None
    done = {kind: each * figures.get(name, 0.0) for name, (kind, each) in ARITHMETIC.items()}
    done = {kind: operations for kind, operations in done.items() if operations}
    if any(kind not in roof for kind in done):
        return None
    seconds, moved, operations = time / 1e9, sum(figures[name] for name in TRAFFIC), sum(done.values())
    return Placed(
        scope=scope,
        time_ns=time,
        intensity=operations / moved if moved else None,
        rate=operations / seconds,
        traffic=moved / seconds,
        compute=sum(number / roof[kind] for kind, number in done.items()) / seconds,
        memory=moved / roof[ceilings.COPY] / seconds,
    )
