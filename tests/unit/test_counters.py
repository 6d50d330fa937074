"""Counters of many kernels as one figure, what to fix first, and what is asked of Nsight Compute."""

from dataclasses import replace

import pytest

from meddpm.profiling import counters, priorities
from meddpm.profiling.counters import Counted, Counter
from meddpm.profiling.readers.ncu_files import Launch, Rule

CONVOLUTION = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_execute_kernel"
NORM = "void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float>(long, float, float const*, float*)"


def launch(kernel: str, time: float, rules: tuple[Rule, ...] = (), **metrics: float) -> Launch:
    named = {name.replace("__dot__", "."): value for name, value in metrics.items()}
    return Launch(0, kernel, "(1,1,1)x(128,1,1)", "H200", None, {counters.TIME: time, **named}, {}, rules)


def one(name: str) -> Counter:
    return next(counter for counter in counters.counters() if counter.name == name)


LAUNCHES = [
    Counted(
        launch(
            CONVOLUTION,
            1000,
            smsp__inst_executed__dot__sum=600,
            sm__cycles_active__dot__sum=300,
            sm__pipe_tensor_cycles_active__dot__avg__dot__pct_of_peak_sustained_active=50,
        ),
        calls=2,
        operator="aten.convolution.default 1",
    ),
    Counted(
        launch(
            NORM,
            4000,
            smsp__inst_executed__dot__sum=100,
            sm__cycles_active__dot__sum=900,
            sm__pipe_tensor_cycles_active__dot__avg__dot__pct_of_peak_sustained_active=0,
        ),
        operator="aten.native_group_norm.default 1",
    ),
]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("kernel time", 2 * 1000 + 4000),
        ("executed instructions", 2 * 600 + 100),
        ("SM active cycles", 2 * 300 + 900),
        ("IPC", (2 * 600 + 100) / (2 * 300 + 900)),
        # By active cycles: neither the mean over kernels (25) nor that over launches (33).
        ("tensor-pipe use", 2 * 300 * 50 / (2 * 300 + 900)),
    ],
)
def test_a_figure_of_all_launches_has_the_right_weights(name: str, expected: float) -> None:
    assert counters.value(one(name), LAUNCHES) == pytest.approx(expected)


def test_the_scopes_are_the_total_then_categories_kernels_and_operators_by_time() -> None:
    rows = counters.rows(LAUNCHES)
    scopes = list(dict.fromkeys(row["scope"] for row in rows))
    assert scopes == [
        *("total", "category:normalisation", "category:convolution forward", f"kernel:{NORM}", f"kernel:{CONVOLUTION}"),
        *("operator:aten.native_group_norm.default 1", "operator:aten.convolution.default 1"),
    ]
    figures = {(row["scope"], row["metric"]): row["value"] for row in rows}
    assert figures["total", "launches"] == 3
    assert figures["category:convolution forward", "tensor-pipe use"] == 50
    assert figures["category:convolution forward", "executed instructions"] == 1200
    assert ("total", "DRAM read") not in figures, "no launch has it"


def test_operators_stand_by_their_own_time() -> None:
    weighted = [replace(LAUNCHES[0], weight=3.0), LAUNCHES[1]]  # 2,000 of its own, 6,000 with other shapes
    scopes = list(dict.fromkeys(row["scope"] for row in counters.rows(weighted)))
    assert scopes[1:3] == ["category:convolution forward", "category:normalisation"]
    assert scopes[-2:] == ["operator:aten.native_group_norm.default 1", "operator:aten.convolution.default 1"]


def test_a_launch_without_a_metric_is_no_zero() -> None:
    some = [LAUNCHES[0], Counted(launch(NORM, 4000))]
    assert counters.value(one("tensor-pipe use"), some) == pytest.approx(50)
    assert counters.value(one("L2 hit rate"), some) is None


def test_the_metrics_that_are_asked_for_are_each_named_once_and_make_every_figure() -> None:
    metrics = counters.metrics()
    assert len(metrics) == len(set(metrics))
    every = [Counted(launch(NORM, 5, **{name.replace(".", "__dot__"): 1.0 for name in metrics}))]
    for counter in counters.counters():
        assert counters.value(counter, every) is not None, counter.name
    assert {counter.how for counter in counters.counters()} == {"sum", "ratio", "mean"}


def test_what_to_fix_first_is_the_advice_times_the_share_of_the_time() -> None:
    occupancy = Rule("Occupancy", "OPT", "too many registers", "local", 80.0)
    unbalanced = Rule("Unbalanced", "OPT", "some SMs have nothing to do", "global", 5.0)
    stalls = Rule("Stalls", "OPT", "waits for memory", "global", 10.0)
    wide = [
        Counted(launch(CONVOLUTION, 1000, (occupancy, unbalanced)), calls=2),
        Counted(launch(NORM, 8000, (stalls, Rule("Note", "INF", "no estimate")))),
    ]
    rows = priorities.rows(wide)
    assert [(row["rank"], row["rule"], row["kernel"]) for row in rows] == [
        (1, "Stalls", NORM),
        (2, "Unbalanced", CONVOLUTION),
        (3, "Occupancy", CONVOLUTION),
    ], "what is of a part of the work stands after what is of the whole, whatever its score"
    assert [row["score_pct"] for row in rows] == pytest.approx([100 * 0.8 * 0.1, 100 * 0.2 * 0.05, 100 * 0.2 * 0.8])
    assert [row["share"] for row in rows] == pytest.approx([0.8, 0.2, 0.2])
    assert [row["speedup_pct"] for row in rows] == pytest.approx([10, 5, 80])


def test_launches_without_the_advice_count_as_nothing_and_a_rule_that_speaks_twice_counts_once() -> None:
    twice = (Rule("Imbalance", "OPT", "some SMs", "global", 5.0), Rule("Imbalance", "OPT", "L2 slices", "global", 20.0))
    (row,) = priorities.rows([Counted(launch(NORM, 1000, twice)), Counted(launch(NORM, 3000))])
    assert row["speedup_pct"] == pytest.approx(5)
    assert row["advice"] == "L2 slices"
    assert row["share"] == 1


def test_no_time_gives_no_advice() -> None:
    assert priorities.rows([]) == []
    assert priorities.rows([Counted(launch(NORM, 0, (Rule("A", "OPT", "b", "local", 50.0),)))]) == []
