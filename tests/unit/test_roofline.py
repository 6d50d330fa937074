"""How near kernels come to the ceilings of their GPU."""

import pytest

from meddpm.profiling import counters, roofline

ROOF = {"fp32": 50e12, "tf32": 400e12, "copy": 4e12}
# 1 ms: 10 GFLOP in fp32 (0.2 ms at the ceiling), 120 GFLOP in TF32 (0.3 ms), 1 GB (0.25 ms).
FIGURES = {
    "kernel time": 1e6,
    "instructions, FMA pipe": 10e9 / 64,
    "tensor operations, TF32": 120e9,
    "DRAM read": 0.6e9,
    "DRAM written": 0.4e9,
}


def test_the_times_at_the_ceilings_of_each_arithmetic_add_up_and_traffic_stands_beside() -> None:
    found = roofline.placed("total", FIGURES, ROOF)
    assert (found.compute, found.memory, found.bound) == (pytest.approx(0.5), pytest.approx(0.25), "latency")
    assert (found.intensity, found.rate, found.traffic) == tuple(map(pytest.approx, (130, 130e12, 1e12)))


def test_kernels_that_only_move_are_bound_by_memory() -> None:
    copying = {"kernel time": 1e6, "DRAM read": 1e9, "DRAM written": 1e9}
    found = roofline.placed("category:copy and cast", copying, ROOF)
    assert (found.intensity, found.compute, found.memory, found.bound) == (0, 0, pytest.approx(0.5), "latency")
    assert roofline.placed("x", copying | {"DRAM read": 0.0, "DRAM written": 0.0}, ROOF).intensity is None


@pytest.mark.parametrize(
    ("time", "extra", "bound"),
    [(0.8e6, 0.0, "compute"), (0.85e6, 0.0, "latency"), (1.6e6, 3e9, "memory"), (1.7e6, 3e9, "latency")],
)
def test_what_is_near_no_ceiling_waits(time: float, extra: float, bound: str) -> None:
    figures = FIGURES | {"kernel time": time, "DRAM read": FIGURES["DRAM read"] + extra}
    assert roofline.placed("total", figures, ROOF).bound == bound


@pytest.mark.parametrize("lost", ["kernel time", "DRAM read", "copy", "tf32"])
def test_what_lacks_a_figure_or_a_ceiling_has_no_place(lost: str) -> None:
    without = ({name: value for name, value in part.items() if name != lost} for part in (FIGURES, ROOF))
    assert roofline.placed("total", *without) is None


def test_tensor_cores_whose_operations_a_gpu_does_not_count_have_no_place() -> None:
    figures = {name: value for name, value in FIGURES.items() if not name.startswith("tensor operations")}
    assert roofline.placed("total", figures | {"instructions, tensor pipe": 1e10}, ROOF) is None
    assert roofline.placed("total", figures | {"instructions, tensor pipe": 0.0}, ROOF) is not None


def test_a_ceiling_of_arithmetic_that_was_not_done_is_not_needed() -> None:
    assert roofline.placed("total", FIGURES | {"tensor operations, bf16": 0.0}, ROOF) is not None


def test_ceilings_are_those_of_the_gpu_the_highest_of_its_cells() -> None:
    rows = [
        {"gpu": gpu, "metric": metric, "value": value, "status": status}
        for gpu, metric, value, status in (
            ("H200", "ceiling, fp32", 50.0, "ok"),
            ("H200", "ceiling, fp32", 51.0, "ok"),
            ("H200", "ceiling, copy", 4.1, "ok"),
            ("A100", "ceiling, fp32", 19.0, "ok"),
            ("A100", "ceiling, copy", None, "failed"),
            ("A100", "ceiling, tf32", None, "ok"),
            ("A100", "ceiling, bf16", 0.0, "ok"),
            ("A100", "ceiling, fp16", float("nan"), "ok"),
            ("A100", "kernel time", 7.0, "ok"),
        )
    ]
    assert roofline.limits(rows) == {"H200": {"fp32": 51e12, "copy": pytest.approx(4.1e12)}, "A100": {"fp32": 19e12}}


def test_the_figures_of_arithmetic_and_traffic_are_counted() -> None:
    counted = {counter.name for counter in counters.counters()}
    assert {*roofline.ARITHMETIC, *roofline.TRAFFIC, roofline.TIME} <= counted
