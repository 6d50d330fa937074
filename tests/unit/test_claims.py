"""The claims of the paper: each verdict from figures whose answer is known, and rules that are checked."""

import copy
from pathlib import Path

import pytest
import yaml

from meddpm import provenance, tables
from meddpm.claims import rules, verdicts
from meddpm.config import UserError
from meddpm.profiling import counters, derived
from meddpm.profiling.trace import Kernel, Occupied, Trace
from meddpm.report.rows import unique
from meddpm.stages import claims as stage
from tests.unit import claims_fixture
from tests.unit.claims_fixture import GPU, MODEL, config, ok

CLAIMS = {claim.name: claim for claim in rules.load()}
TIMES = "\N{MULTIPLICATION SIGN}"
NAMES = ["TF32 speed-up", "convolutions dominate training", "fp32 leaves the tensor cores unused", "layout conversions",
         "channels-last breaks kernels up", "TF32 keeps the heavy kernels whole", "SM cycles", "dynamic instructions",
         "tensor-core use", "IPC", "quality"]  # fmt: skip


def decide(name: str, found: dict | None = None, weights: str = "shipped") -> tables.Row:
    found = claims_fixture.tables() if found is None else found
    row = verdicts.verdict(CLAIMS[name], found, config(weights), MODEL, GPU)
    return {key: text.replace("\N{NO-BREAK SPACE}", " ") if text else text for key, text in row.items()}


def changed(table: str, values: dict, **which: object) -> dict:
    """The made-up tables with some rows changed: those that have the values of `which`; there must be one."""
    found = claims_fixture.tables()
    hit = [row for row in found[table] if all(row[key] == value for key, value in which.items())]
    assert hit
    for row in hit:
        row |= values
    return found


def counter(values: dict, metric: str, **which: object) -> dict:
    return changed("counters", values, metric=metric, **which)


def test_every_claim_has_a_row_for_each_model_and_gpu_of_the_study() -> None:
    study = {"study": {"models": [MODEL, "other"], "gpus": [GPU, "v100"]}, "models": {}}
    rows = verdicts.rows(rules.load(), claims_fixture.tables(), study)
    assert [row["claim"] for row in rows[:11]] == NAMES
    assert unique((row["model"], row["gpu"]) for row in rows) == [
        (MODEL, GPU), (MODEL, "v100"), ("other", GPU), ("other", "v100")]  # fmt: skip
    for row in rows[11:]:
        assert (row["verdict"], row["status"]) == ("not tested", "unavailable")
        assert row["reason"]
        assert row["environment"] is None


def test_the_verdicts_on_what_an_h200_gave() -> None:
    reproduced = {name for name in NAMES if decide(name)["verdict"] == "reproduced"}
    refused = {name for name in NAMES if decide(name)["verdict"] == "not reproduced"}
    assert refused == {"channels-last breaks kernels up", "SM cycles", "tensor-core use"}
    assert reproduced == set(NAMES) - refused - {"IPC"}


def test_speed_up_is_the_larger_of_both_phases_and_says_both() -> None:
    row = decide("TF32 speed-up")
    assert row["measured"] == f"sampling: speed-up 2.20{TIMES}. training: speed-up 5.39{TIMES}"
    assert row["environment"] == "t1"
    assert row["threshold"].startswith(f"speed-up at least 5{TIMES} within 10 %, in one phase at least")
    assert row["evidence"] == "timing.csv: tf32/sample/ddpm, tf32/train"


@pytest.mark.parametrize(("speedup", "verdict"), [(4.5, "reproduced"), (4.499, "not reproduced")])
def test_speed_up_within_ten_per_cent(speedup: float, verdict: str) -> None:
    found = changed("timing", {"speedup": speedup}, variant="tf32", phase="train")
    assert decide("TF32 speed-up", found)["verdict"] == verdict


def test_up_to_is_not_refused_while_a_phase_is_missing() -> None:
    row = decide("TF32 speed-up", claims_fixture.tables(phases=("sample",)))
    assert (row["verdict"], row["status"]) == ("not tested", "unavailable")
    assert row["measured"] == f"sampling: speed-up 2.20{TIMES}. training: not measured"
    assert "may hold in training, which was not measured: timing.csv has no row (tf32 training)" in row["reason"]
    alone = decide("TF32 speed-up", claims_fixture.tables(phases=("train",)))
    assert alone["verdict"] == "reproduced"
    assert alone["reason"] == "not measured: timing.csv has no row (tf32 sampling)"


def test_an_unsupported_variant_gives_its_status_and_reason() -> None:
    lost = {"status": "unsupported", "reason": "compute capability 7.0 has no TF32", "speedup": None}
    found = changed("timing", lost, variant="tf32")
    row = decide("TF32 speed-up", found)
    assert (row["verdict"], row["status"], row["measured"]) == ("not tested", "unsupported", None)
    assert row["reason"] == "unsupported: compute capability 7.0 has no TF32 (tf32 sampling, tf32 training)"


def test_convolutions_that_do_not_dominate() -> None:
    found = changed("kernels", {"time_ms": 500.0}, category="elementwise", variant="fp32", phase="train")
    row = decide("convolutions dominate training", found)
    assert row["verdict"] == "not reproduced"
    assert "kernel time of fp32 32.6 %: does not hold" in row["measured"]
    assert "implicit GEMM in the time of convolutions 92.3 %: holds" in row["measured"]
    few = changed("kernels", {"detail": "direct"}, detail="implicit GEMM", variant="fp32", phase="train")
    assert decide("convolutions dominate training", few)["verdict"] == "not reproduced"
    assert decide("convolutions dominate training", claims_fixture.tables(("sample",)))["verdict"] == "not tested"


def test_unknown_algorithms_are_told_and_leave_the_claim_open() -> None:
    hidden = changed("kernels", {"detail": None}, detail="direct", variant="fp32", phase="train")
    row = decide("convolutions dominate training", hidden)
    assert row["verdict"] == "reproduced"
    assert "92.3 % (the names of 7.69 % do not tell): holds" in row["measured"]
    unknown = changed("kernels", {"detail": None}, detail="implicit GEMM", variant="fp32", phase="train")
    row = decide("convolutions dominate training", unknown)
    assert (row["verdict"], row["status"]) == ("not tested", "unavailable")
    assert "the names of 92.3 % more do not tell" in row["reason"]


@pytest.mark.parametrize("profiler", ["nsys", "ncu"])
def test_profilers_do_not_add_up_and_two_are_not_compared(profiler: str) -> None:
    found = claims_fixture.tables()
    twice = [{**row, "profiler": profiler, "calls": 900} for row in found["kernels"]]
    assert decide("TF32 keeps the heavy kernels whole", {**found, "kernels": twice + found["kernels"]})[
        "measured"
    ].startswith(f"sampling: launches of convolutions 1{TIMES} (65 to 65)")
    mixed = [row for row in twice if row["variant"] == "tf32"]
    mixed += [row for row in found["kernels"] if row["variant"] == "fp32"]
    row = decide("TF32 keeps the heavy kernels whole", {**found, "kernels": mixed})
    assert row["verdict"] == "not tested"
    assert f"it was profiled by {profiler}, and fp32 by torch" in row["reason"]


def test_tensor_cores_of_fp32() -> None:
    name = "fp32 leaves the tensor cores unused"
    used = decide(name, counter({"value": 1.0}, "tensor-pipe use", variant="fp32", phase="train"))
    assert used["verdict"] == "not reproduced"
    assert "training: tensor-pipe use of fp32 1 %: does not hold" in used["measured"]
    by_name = changed("kernels", {"precision": "tf32"}, category="convolution forward", variant="fp32", phase="sample")
    assert decide(name, by_name)["verdict"] == "not reproduced"
    found = claims_fixture.tables()
    found["counters"] = [row for row in found["counters"] if row["environment"] != "n1"]
    row = decide(name, found)
    assert row["verdict"] == "not tested", "names alone are not enough"
    assert "by their names 0: holds" in row["measured"]
    assert "counters.csv has no tensor-pipe use (fp32 sampling, fp32 training)" in row["reason"]


@pytest.mark.parametrize("precision", ["fp16", "fp8", "int8"])
def test_any_tensor_core_precision_counts(precision: str) -> None:
    which = {"category": "convolution forward", "variant": "fp32", "phase": "sample"}
    found = decide("fp32 leaves the tensor cores unused", changed("kernels", {"precision": precision}, **which))
    assert found["verdict"] == "not reproduced"


def test_names_that_do_not_tell_are_not_counted_as_good() -> None:
    found = changed("kernels", {"precision": None}, category="convolution forward", variant="fp32")
    row = decide("fp32 leaves the tensor cores unused", found)
    assert (row["verdict"], row["status"]) == ("not tested", "unavailable")
    assert "on tensor cores, by their names: the names of" in row["reason"]


def without(*variants: str) -> dict:
    """The made-up tables without some variants."""
    return {
        name: [row for row in of_table if row.get("variant") not in variants]
        for name, of_table in claims_fixture.tables().items()
    }


@pytest.mark.parametrize("variant", ["tf32", "fp32"])
@pytest.mark.parametrize("name", ["tensor-core use", "layout conversions"])
def test_a_missing_variant_leaves_open_what_it_might_decide(name: str, variant: str) -> None:
    row = decide(name, without(variant))
    assert (row["verdict"], row["status"]) == ("not tested", "unavailable")
    if name == "layout conversions":
        pair = "tf32_channels_last against tf32" if variant == "tf32" else "channels_last against fp32"
        assert row["reason"].startswith(f"each pair must hold, and {pair} was not measured: ")


def test_a_pair_that_does_not_hold_decides_without_the_other() -> None:
    found = without("tf32")
    for row in found["kernels"]:
        if row["category"] == "copy and cast":
            row["time_ms"] = 0.1
    assert decide("layout conversions", found)["verdict"] == "not reproduced"


@pytest.mark.parametrize(
    "device", ["NVIDIA RTX PRO 6000 Blackwell Server Edition", "NVIDIA GB10", "NVIDIA GeForce RTX 5090", "NVIDIA H20"]
)
def test_later_gpus_are_of_the_newest_generation(device: str) -> None:
    assert decide("layout conversions", claims_fixture.tables(device=device))["verdict"] == "reproduced"


def test_layout_conversions_of_every_pair_and_on_the_newest_gpu() -> None:
    row = decide("layout conversions")
    share = "layout conversions and copies in the kernel time +31"
    assert f"tf32_channels_last against tf32, sampling: {share}" in row["measured"]
    which = {"category": "copy and cast", "variant": "tf32_channels_last", "phase": "sample"}
    less = changed("kernels", {"time_ms": 1.0}, **which)
    assert decide("layout conversions", less)["verdict"] == "not reproduced"
    older = decide("layout conversions", claims_fixture.tables(device="Tesla V100-SXM2-32GB"))
    assert (older["verdict"], older["status"]) == ("not tested", "ok")
    assert older["reason"].endswith("this is Tesla V100-SXM2-32GB")
    assert share in older["measured"]


def breaks_up(**changes: tuple) -> dict:
    """Tables in which channels-last does break kernels up, but for `changes`: metric and values by variant."""
    found = claims_fixture.tables()
    better = {"kernels a step": 900, "kernel time a step": 130.0, "idle share": 20.0}
    for row in found["counters"]:
        if "channels_last" in row["variant"] and row["metric"] in better:
            row["value"] = better[row["metric"]] * (1 if row["phase"] == "sample" else 2)
            row["value"] = changes.get(row["metric"].replace(" ", "_"), row["value"])
    return found


def test_channels_last_must_keep_all_three_parts() -> None:
    name = "channels-last breaks kernels up"
    assert decide(name, breaks_up())["verdict"] == "reproduced"
    fewer = decide(name, breaks_up(kernels_a_step=300))
    assert fewer["verdict"] == "not reproduced"
    assert f"kernels a step 0.750{TIMES} (400 to 300): does not hold" in fewer["measured"]
    assert f"mean kernel time 0.295{TIMES} (0.490 ms to 0.144 ms): holds" in decide(name, breaks_up())["measured"]
    assert decide(name, breaks_up(kernel_time_a_step=1000.0))["verdict"] == "not reproduced"
    busy = decide(name, breaks_up(idle_share=0.5))
    assert busy["verdict"] == "reproduced", "lower SM activity will do"
    assert f"idle share -0.500 points (1 % to 0.500 %): does not hold; SM activity 0.960{TIMES}" in busy["measured"]


def test_launches_of_convolutions_may_rise_by_a_tenth() -> None:
    name = "TF32 keeps the heavy kernels whole"
    which = {"category": "convolution forward", "variant": "tf32"}
    assert decide(name, changed("kernels", {"calls": 71}, **which))["verdict"] == "reproduced"
    assert decide(name, changed("kernels", {"calls": 72}, **which, phase="sample"))["verdict"] == "not reproduced"
    slower = changed("timing", {"speedup": 0.98}, variant="tf32", phase="sample")
    assert decide(name, slower)["verdict"] == "not reproduced"


@pytest.mark.parametrize("name", ["SM cycles", "dynamic instructions"])
def test_a_hundred_times_says_which_reading_reaches_it(name: str) -> None:
    metric = {"SM cycles": "SM active cycles", "dynamic instructions": "executed instructions"}[name]
    operator = "operator:aten.convolution.default 1"
    for value, verdict, says in ((4.4e8, "reproduced", "holds"), (4.5e8, "not reproduced", "does not hold")):
        found = counter({"value": 4.0e10}, metric, scope=operator, variant="fp32")
        for row in found["counters"]:
            if row["metric"] == metric and row["scope"] == operator and row["variant"] == "tf32":
                row["value"] = value
        row = decide(name, found)
        assert row["verdict"] == verdict
        factor = f"{4e10 / value:.1f}"
        ends = f"4.00 {TIMES} 10¹⁰ to {value / 1e8:.2f} {TIMES} 10⁸, aten.convolution.default 1"
        assert f"{metric} of one operator {factor}{TIMES} ({ends}): {says}" in row["measured"]
        assert f"{metric} in total" in row["measured"]


def test_only_the_same_operator_is_compared() -> None:
    found = claims_fixture.tables()
    for row in found["counters"]:
        if row["variant"] == "tf32" and row["scope"] == "operator:aten.convolution.default 1":
            row["scope"] = "operator:aten.convolution.default 9"
    row = decide("dynamic instructions", found)
    assert row["verdict"] == "not reproduced"
    assert f"one operator 1{TIMES}" in row["measured"]
    assert "aten.native_group_norm.default 2" in row["measured"]


@pytest.mark.parametrize(
    ("metric", "fp32", "tf32", "verdict"),
    [
        ("tensor-pipe use", 1.2, 9.98, "reproduced"),
        ("tensor-pipe use", 1.15, 11.97, "not reproduced"),
        ("tensor-pipe use", 4.0, 27.0, "reproduced"),  # as a factor
        ("tensor-pipe use", 1.45, 15.0, "not reproduced"),
        ("tensor-pipe use of elapsed time", 1.7, 8.1, "reproduced"),
    ],
)
def test_tensor_core_use_in_each_reading_of_the_unit(metric: str, fp32: float, tf32: float, verdict: str) -> None:
    found = claims_fixture.tables()
    for row in found["counters"]:
        if row["metric"] == metric:
            row["value"] = {"fp32": fp32, "tf32": tf32}.get(row["variant"], row["value"])
    assert decide("tensor-core use", found)["verdict"] == verdict


def test_both_ends_of_a_reading_are_of_one_phase() -> None:
    found = claims_fixture.tables()
    for row in found["counters"]:
        if row["metric"] == "tensor-pipe use":
            own = {("fp32", "sample"): 1.45, ("tf32", "train"): 9.98}
            row["value"] = own.get((row["variant"], row["phase"]), 50.0)
    assert decide("tensor-core use", found)["verdict"] == "not reproduced"


@pytest.mark.parametrize(("ipc", "verdict"), [(1.0631, "reproduced"), (1.0629, "not reproduced")])
def test_ipc_on_an_a100_and_elsewhere(ipc: float, verdict: str) -> None:
    found = claims_fixture.tables(device="NVIDIA A100-SXM4-80GB")
    for row in found["counters"]:
        if row["metric"] == "IPC":
            row["value"] = 3.0 * ipc if row["variant"] == "tf32" else 3.0
    assert decide("IPC", found)["verdict"] == verdict
    elsewhere = decide("IPC")
    assert (elsewhere["verdict"], elsewhere["status"]) == ("not tested", "ok")
    assert elsewhere["reason"] == "the claim is of an A100; this is NVIDIA H200"
    assert "sampling: IPC -57.8 % (3.29 to 1.39)" in elsewhere["measured"]


def test_a_device_without_a_name_is_not_taken_for_another() -> None:
    lost = {"device_name": None, "status": "unavailable", "reason": "this cluster has no partition a100"}
    found = changed("timing", lost) | {"environment": []}
    row = decide("IPC", found)
    assert (row["verdict"], row["status"]) == ("not tested", "unavailable")
    assert "the name of this device is not known (unavailable: this cluster has no partition a100)" in row["reason"]
    found["environment"] = [claims_fixture.environment(device="NVIDIA H200")]
    assert "this is NVIDIA H200" in decide("IPC", found)["reason"], "it was profiled, if not timed"


def test_quality_is_that_of_the_worst_solver() -> None:
    row = decide("quality")
    assert "SSIM of tf32 to fp32 0.9965 (dpmpp_20, 4 volumes): holds" in row["measured"]
    assert row["evidence"] == "quality.csv (ssim, psnr_db): tf32/dpmpp_20"
    for metric, bound in (("ssim", 0.9899), ("psnr_db", 40.0)):
        bad = changed("quality", {"ci_low": bound}, metric=metric, solver="ddpm", variant="tf32")
        assert decide("quality", bad)["verdict"] == "not reproduced"
    windowed = changed("quality", {"metric": "ssim_window5"}, metric="ssim")
    assert decide("quality", windowed)["verdict"] == "reproduced"
    found = claims_fixture.tables()
    found["quality"] += [{**found["quality"][0], "reference": "another seed, same mask", "ci_low": 0.1}]
    assert decide("quality", found)["verdict"] == "reproduced", "a yardstick is no comparison with fp32"


def test_equal_pictures_have_no_psnr_and_one_volume_no_interval() -> None:
    infinite = "4 of 4 volumes: identical: the PSNR is infinite"
    equal = changed("quality", {"value": None, "ci_low": None, "reason": infinite}, metric="psnr_db")
    row = decide("quality", equal)
    assert row["verdict"] == "reproduced"
    assert f"not measured (psnr_db: {infinite})" in row["measured"]
    row = decide("quality", changed("quality", {"ci_low": None, "n": 1}, metric="ssim"))
    assert row["verdict"] == "not tested"
    assert "one volume has no interval (the figure is 0.99910)" in row["reason"]


def test_random_weights_do_not_test_the_quality() -> None:
    row = decide("quality", weights="random")
    assert (row["verdict"], row["status"]) == ("not tested", "ok")
    assert row["reason"] == "the weights are random numbers and the samples no pictures"
    assert "0.9965" in row["measured"]


def test_a_cell_that_failed_is_told_beside_what_was_measured() -> None:
    found = claims_fixture.tables()
    found["counters"] = [row for row in found["counters"] if (row["environment"], row["phase"]) != ("n1", "train")]
    cell = {"model": MODEL, "gpu": GPU, "phase": "train", "scope": "total", "metric": "", "value": None, "unit": ""}
    for variant in ("fp32", "tf32"):
        found["counters"].append(
            {**cell, "variant": variant, "environment": None, "status": "failed", "reason": "late"}
        )
    row = decide("SM cycles", found)
    assert (row["verdict"], row["status"]) == ("not reproduced", "ok")
    assert row["reason"] == "not measured: failed: late (fp32 training)"
    assert row["measured"].endswith(". training: not measured")


def test_a_cpu_has_no_kernels_of_a_gpu() -> None:
    found = claims_fixture.tables(device="Some CPU (2 cores)")
    for row in found["kernels"]:
        row["launch"] = None
    found["counters"] = [
        ok({**{key: row[key] for key in ("model", "gpu", "variant", "phase")}}, "c1", scope="total", value=3.0, unit="",
           metric="operators a step")
        for row in found["counters"] if row["metric"] == "IPC"
    ]  # fmt: skip
    for name in ("convolutions dominate training", "channels-last breaks kernels up", "SM cycles"):
        row = decide(name, found)
        assert (row["verdict"], row["status"]) == ("not tested", "unsupported"), name
        assert "a CPU has operators" in row["reason"]


def test_no_table_has_a_row() -> None:
    nothing: dict[str, list] = {name: [] for name in stage.TABLES}
    for row in verdicts.rows(rules.load(), nothing, config()):
        assert (row["verdict"], row["status"], row["measured"]) == ("not tested", "unavailable", None)
    assert verdicts.rows(rules.load(), nothing, {}) == []


def test_the_tables_are_not_changed_and_rows_repeat() -> None:
    found = claims_fixture.tables()
    before = copy.deepcopy(found)
    rows = verdicts.rows(rules.load(), found, config())
    assert found == before
    shuffled = {name: list(reversed(table)) for name, table in found.items()}
    again = verdicts.rows(rules.load(), shuffled, config())
    assert [row["verdict"] for row in again] == [row["verdict"] for row in rows]


def test_the_stage_writes_the_table(tmp_path: Path) -> None:
    found = claims_fixture.tables()
    inputs = {name: tmp_path / f"{name}.csv" for name in stage.TABLES}
    for name, path in inputs.items():
        known = tables.columns(name)
        kept = [{key: value for key, value in row.items() if key in known} for row in found[name]]
        tables.write(name, kept, path)
    (tmp_path / "run_config.yaml").write_text(yaml.safe_dump(config()), encoding="utf-8")
    settings = f'{{"code": "{provenance.code_digest("meddpm.stages.claims")}"}}'
    stage.run(settings, inputs, tmp_path / "run_config.yaml", tmp_path / "claims.csv")
    rows = tables.read("claims", tmp_path / "claims.csv")
    assert [row["claim"] for row in rows] == NAMES
    assert rows[0]["verdict"] == "reproduced"
    with pytest.raises(UserError, match="edited after this job was planned"):
        stage.run('{"code": "0"}', inputs, tmp_path / "run_config.yaml", tmp_path / "claims.csv")


def test_counters_of_the_rules_are_counted_or_derived() -> None:
    kernels = (Kernel("sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nchw", "(1,1,1)x(1,1,1)", 2, 3.0),)
    seen = Trace("torch", kernels, on_gpu=True, occupied=Occupied(4.0, 3.0, 1, 1.0, 1.0))
    known = {row["metric"] for row in derived.rows(seen, 1, 10**9, {})} | {each.name for each in counters.counters()}
    parts = [part for claim in CLAIMS.values() for part in claim.rule.leaves() if part.table == "counters"]
    assert len(parts) > 10
    assert {name for part in parts for name in (part.metric, part.per) if name} <= known


GOOD = """
claims:
  - name: a
    source: somewhere
    statement: tf32 is faster
    pairs: [{variant: tf32, against: fp32}]
    phases: [sample]
    all:
      - {what: speed-up, table: timing, metric: speedup, is: above, bound: 1}
"""


def loaded(path: Path, text: str) -> tuple[rules.Claim, ...]:
    path.write_text(text, encoding="utf-8")
    return rules.load(path)


def test_a_claim_of_the_same_kind_needs_no_python(tmp_path: Path) -> None:
    (claim,) = loaded(tmp_path / "c.yaml", GOOD)
    row = verdicts.verdict(claim, claims_fixture.tables(), config(), MODEL, GPU)
    assert (row["verdict"], row["measured"]) == ("reproduced", "sampling: speed-up 2.20")


FAULTS = [
    ("claims:", "claim:", "right would be the key claims alone"),
    ("claims:", "claims: [", r"is no YAML \(line \d+\)"),
    ("    source: somewhere\n", "", "claim a: the key source is missing"),
    ("    source: somewhere", "    sources: [1]", "claim a: the key source is missing"),
    ("name: a", "name: 7", "claim 1: name is 7; right would be a text"),
    ("    phases: [sample]", "    phases: [sampling]", "claim a: phases is 'sampling'; did you mean sample"),
    ("    phases: [sample]", "    phases: sample", "claim a: phases is 'sample'; right would be a list"),
    ("    phases: [sample]", "    phases: [sample]\n    in_phases: some", "in_phases is 'some'"),
    ("    phases: [sample]", "    phases: [sample]\n    needs_every_phase: true", "with in_phases: any alone"),
    ("    phases: [sample]", "    phases: [sample]\n    any: [{}]", "right would be one of the keys all and any"),
    ("    phases: [sample]", "    phases: [sample]\n    devices: {pattern: '(', words: x}", "no regular expression"),
    ("    phases: [sample]", "    phases: [sample]\n    devices: {pattern: x}", "devices: the key words is missing"),
    ("    phases: [sample]", "    phases: [sample]\n    not_with_weights: {random: 1}", "no mapping of texts"),
    ("{variant: tf32, against: fp32}", "{variant: tf32}", "claim a, pairs: the key against is missing"),
    ("    pairs: [{variant: tf32, against: fp32}]\n", "", "part 1: the key variant is missing, and the claim has no"),
    ("    all:\n", "    every:\n", "claim a: unknown key every"),
    ("table: timing", "table: timings", "part 1: table is 'timings'; did you mean timing"),
    ("metric: speedup", "metrik: speedup", "part 1: the key metric is missing"),
    ("metric: speedup", "metric: speed", "part 1: metric is 'speed'; did you mean speedup"),
    ("metric: speedup", "metric: speedup, scope: total", "part 1: unknown key scope"),
    ("is: above", "is: more than", "part 1: is is 'more than'"),
    ("is: above", "is: about", "within_pct is missing"),
    ("bound: 1", "bound: true", "part 1: bound is True; right would be a number"),
    ("bound: 1", "bound: 1, as: quotient", "part 1: as is 'quotient'"),
    ("bound: 1", "bound: 1, within_pct: -1", "within_pct is missing or negative"),
    ("table: timing, metric: speedup", "table: kernels, metric: number", "part 1: metric is 'number'"),
    ("table: timing, metric: speedup", "table: kernels, metric: time, where: {name: x}", "part 1: where is 'name'"),
    ("table: timing, metric: speedup", "table: kernels, metric: time, out_of: {detail: 3}", "out_of.detail is 3"),
    ("table: timing, metric: speedup", "table: quality, metric: ssim, column: low", "part 1: column is 'low'"),
    ("table: timing, metric: speedup", "table: quality, metric: ssim, region: head", "part 1: region is 'head'"),
    ("{what: speed-up, table", "{all: [{what: speed-up, table", "claim a, part 1"),
]


@pytest.mark.parametrize(("old", "new", "words"), FAULTS, ids=[words[:40] for *_, words in FAULTS])
def test_a_fault_in_the_rules_is_a_line_that_says_where(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    if new.startswith("{all"):
        text = text.replace("bound: 1}", "bound: 1}]}")
        words = "the key what is missing"
    with pytest.raises(UserError, match=words) as caught:
        loaded(tmp_path / "c.yaml", text)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "c.yaml"))


def test_a_name_is_there_once(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="claim a is there twice"):
        loaded(tmp_path / "c.yaml", GOOD + GOOD.partition("claims:")[2])


@pytest.mark.parametrize("content", ["", "[]", "claims: {}", "claims: [1]", "claims: [{name: a}]", "\xff"])
def test_what_is_no_list_of_claims_is_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "c.yaml").write_text(content, encoding="latin-1")
    with pytest.raises(UserError, match=r"c\.yaml: ") as caught:
        rules.load(tmp_path / "c.yaml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("comparison", "inside", "outside"),
    [
        ("at least", 90, 89.99),
        ("at most", 110, 110.01),
        ("above", 90.01, 90),
        ("below", 109.99, 110),
        ("about", 110, 111),
    ],
)
def test_bounds_are_widened(comparison: str, inside: float, outside: float) -> None:
    part = rules.Part("x", "timing", "speedup", comparison, 100, within_pct=10)
    assert part.holds(inside)
    assert not part.holds(outside)
