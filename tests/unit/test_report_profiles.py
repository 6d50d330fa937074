"""The page's sections on the claims and on where the time goes."""

import dataclasses
import re

import pytest

from meddpm import tables
from meddpm.claims import rules, verdicts
from meddpm.profiling import counters as counters_of_ncu
from meddpm.report import numbers, profiles
from meddpm.report.inputs import ReportInputs
from tests.unit import claims_fixture
from tests.unit.claims_fixture import GPU, MODEL
from tests.unit.report_fixture import Run, write_run
from tests.unit.test_report import build, undrawn  # noqa: F401 (a fixture)

HOSTILE = "<script>alert(1)</script>\"'{{7*7}}"
CELL = {"model": MODEL, "gpu": GPU, "phase": "sample"}


# Figures take most of the time, and are not looked at here.
pytestmark = pytest.mark.usefixtures("undrawn")


def advice(variant: str, rank: int, **changes: object) -> tables.Row:
    row = {"variant": variant, "rank": rank, "kernel": f"kernel_{rank}", "category": "elementwise", "rule": "Occupancy"}
    row |= {"scope": "local", "share": 0.3, "speedup_pct": 40.0, "score_pct": 12.0, "environment": "n1", "status": "ok"}
    return {**CELL, **row, "advice": f"Rank {rank} is slow, e.g. by 2.5 cycles. It says more.", **changes}


def written(root, claims=None, counters=None, priorities=None) -> ReportInputs:
    inputs = write_run(root, Run(models=(MODEL,), gpus=(GPU,), capability="9.0", device_name=claims_fixture.DEVICE))
    folder = inputs.timing.parent
    paths = {}
    for name, rows in (("claims", claims), ("counters", counters), ("priorities", priorities)):
        paths[name] = folder / f"{name}.csv"
        tables.write(name, rows or [], paths[name])
    return dataclasses.replace(inputs, **paths)


def decided() -> list[tables.Row]:
    return verdicts.rows(rules.load(), claims_fixture.tables(), claims_fixture.config("random"))


def test_each_claim_has_its_verdict_as_a_word_and_a_colour(tmp_path):
    page = build(tmp_path, written(tmp_path, claims=decided()))
    section = page.section("claims")
    assert section.count('<th scope="row">') == 11
    assert section.count('class="pill reproduced">reproduced<') == 6
    assert section.count('class="pill not-reproduced">not reproduced<') == 3
    assert section.count('class="pill not-tested">not tested<') == 2
    assert "6 reproduced, 3 not reproduced and 2 not tested" in section
    assert "the claim is of an A100; this is NVIDIA H200" in section
    assert ".pill.not-reproduced {" in page.source
    assert '<a href="../tables/claims.csv">' in page.source
    assert '<a href="#claims">' in page.source


def test_claims_of_which_none_was_tested_are_folded(tmp_path):
    untested = [{**row, "gpu": "cpu", "verdict": "not tested"} for row in decided()]
    section = build(tmp_path, written(tmp_path, claims=decided() + untested)).section("claims")
    assert section.count("<details>") == section.count("</details>") == 1
    assert f"<details><summary>Model {MODEL} · GPU row cpu · 11 not tested</summary>" in section


def test_cells_without_kernels_are_told_once_a_profiler_and_reason():
    lost = {"status": "unsupported", "reason": "this is a CPU"}
    rows = [
        {
            "variant": variant,
            "profiler": profiler,
            **(lost if profiler == "ncu" or variant == "tf32" else {"status": "ok"}),
        }
        for profiler in ("torch", "ncu")
        for variant in ("fp32", "tf32", "bf16")
    ]
    assert profiles.not_profiled(rows) == [
        "tf32 by torch (unsupported: this is a CPU)",
        "fp32, tf32 and bf16 by ncu (unsupported: this is a CPU)",
    ]


def test_two_gpus_have_a_table_each(tmp_path):
    other = [{**row, "gpu": "a100"} for row in decided()]
    section = build(tmp_path, written(tmp_path, claims=decided() + other)).section("claims")
    assert section.count("<table") == 2


def test_key_figures_are_a_row_a_variant(tmp_path):
    counters = [row for row in claims_fixture.tables()["counters"] if row["phase"] == "sample"]
    counters.append(
        {**CELL, "variant": "fp16", "scope": "total", "metric": "", "unit": "", "status": "failed", "reason": "gone"}
    )
    section = build(tmp_path, written(tmp_path, counters=counters)).section("first").split("<details")[0]
    assert shown(counters, [])["tf32"] == {
        "Kernels a step": ("572", ""),
        "GPU idle": ("8.0 %", "under the profiler"),
        "Layout conversions and copies": ("8.0 %", ""),
        "Convolution time on tensor cores": ("99 %", ""),
        "FLOP utilisation": ("56 %", "of the tf32 ceiling, under the profiler"),
    }
    assert section.count('<th scope="row">') == 5
    assert section.count('<tr class="absent">') == 1
    assert "gone" in section


def shown(counters: list[tables.Row], timing: list[tables.Row]) -> dict[str, dict[str, tuple[str, str]]]:
    """The key figures of each variant: what is shown, and what stands below it."""
    return {
        row["variant"]: {
            heading: (value.replace("\N{NO-BREAK SPACE}", " "), below.replace("\N{NO-BREAK SPACE}", " "))
            for heading, value, below in row["figures"]
        }
        for row in profiles.figure_rows(counters, timing)
    }


@pytest.mark.parametrize(
    ("changes", "idle", "utilisation"),
    [
        # 36 ms under the profiler, in which the GPU was busy for 28.8; 30 ms otherwise.
        ({}, ("4.0 %", "20 % under the profiler"), ("12 %", "of the bf16 ceiling")),
        ({"step_ms_median": 28.5}, ("< 0.50 %", "20 % under the profiler"), ("13 %", "of the bf16 ceiling")),
        ({"batch": 2}, ("20 %", "under the profiler"), ("10 %", "of the bf16 ceiling, under the profiler")),
        ({"status": "failed"}, ("20 %", "under the profiler"), ("10 %", "of the bf16 ceiling, under the profiler")),
    ],
)
def test_idle_share_and_utilisation_are_those_of_the_timed_step(
    changes: tables.Row, idle: tuple[str, str], utilisation: tuple[str, str]
) -> None:
    figures = {"kernels a step": 500, "idle share": 20.0, "step time under the profiler": 36.0}
    figures["FLOP utilisation of the bf16 ceiling"] = 10.0
    cell = {**CELL, "variant": "compile"}
    counters = [
        {**cell, "scope": "total", "metric": name, "value": value, "status": "ok"} for name, value in figures.items()
    ]
    timing = [{**cell, "batch": 1, "step_ms_median": 30.0, "status": "ok", **changes}]
    timing.append({**cell, "phase": "train", "batch": 1, "step_ms_median": 90.0, "status": "ok"})
    found = shown(counters, timing)["compile"]
    assert (found["GPU idle"], found["FLOP utilisation"]) == (idle, utilisation)


def test_counters_stand_by_group_with_variants_beside_each_other(tmp_path):
    found = claims_fixture.tables()["counters"]
    read = {
        "scope": "total",
        "metric": "DRAM read",
        "value": 46.2e9,
        "unit": "byte",
        "environment": "n1",
        "status": "ok",
    }
    found.append({**CELL, "variant": "tf32", **read})
    of_trace = {
        "scope": "total",
        "metric": "idle share",
        "value": 1.0,
        "unit": "%",
        "environment": "n1",
        "status": "ok",
    }
    found.append({**CELL, "variant": "bf16", **of_trace})
    first, second = profiles.counter_groups(found)
    assert (first["where"], second["where"]) == (f"{MODEL} on {GPU}, sampling", f"{MODEL} on {GPU}, training")
    assert first["variants"] == ["fp32", "tf32", "channels_last", "tf32_channels_last"], "of bf16 nothing was counted"
    assert list(first["groups"]) == ["SM cycles", "instructions", "tensor pipe", "IPC", "memory"]
    assert "memory" not in second["groups"]
    assert first["groups"]["SM cycles"][0] == {
        "what": "SM active cycles",
        "unit": "cycle",
        "cells": [numbers.amount(value) for value in (4.25e10, 1.45e10, 5.1e10, 2.39e10)],
    }
    dash = numbers.NOT_MEASURED
    assert first["groups"]["memory"] == [{"what": "DRAM read", "unit": "GB", "cells": [dash, "46.2", dash, dash]}]
    of_ncu = {counter.name for counter in counters_of_ncu.counters()}
    page = build(tmp_path, written(tmp_path, counters=[row for row in found if row["metric"] in of_ncu]))
    section = page.section("first")
    assert "#first" in page.attributes("a", "href"), "without a trace too"
    assert f"<summary>Counters: {MODEL} on {GPU}, sampling</summary>" in section
    assert '<th scope="row">DRAM read<small>GB</small></th>' in section
    assert profiles.counter_groups([row for row in found if row["metric"] == "idle share"]) == []


def test_models_keep_their_order(tmp_path):
    counters = [{**row, "model": model} for model in ("Zebra", "ant") for row in claims_fixture.tables()["counters"]]
    section = build(tmp_path, written(tmp_path, counters=counters)).section("first")
    assert re.findall(r"<caption><b>(\w+)", section) == ["Zebra", "Zebra", "ant", "ant"]


def test_operators_of_a_cpu_have_no_section(tmp_path):
    row = {**CELL, "variant": "fp32", "scope": "total", "unit": "operator", "environment": "c", "status": "ok"}
    counters = [{**row, "metric": "operators a step", "value": 900.0}]
    page = build(tmp_path, written(tmp_path, counters=counters))
    assert 'id="first"' not in page.source
    assert 'id="claims"' not in page.source


def test_the_first_five_of_each_variant_in_a_sentence(tmp_path):
    rows = [advice("tf32", rank) for rank in (7, 6, 5, 4, 3, 2, 1)] + [advice("fp32", 1)]
    rows.append({**advice("fp16", 1), "rank": None, "status": "failed", "reason": "no kernel"})
    section = build(tmp_path, written(tmp_path, priorities=rows)).section("first")
    assert section.count("<details") == 2
    assert [f"kernel_<wbr>{rank}<" in section for rank in (1, 5, 6)] == [True, True, False]
    assert section.index("kernel_<wbr>1<") < section.index("kernel_<wbr>2<")
    assert "2 more in priorities.csv" in section
    assert "Rank 1 is slow, e.g. by 2.5 cycles.<" in section
    assert "It says more" not in section
    assert "No advice for fp16 sampling (failed: no kernel)." in section


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("One. Two.", "One."),
        ("No stop at all", "No stop at all"),
        ("By 12.5 %, i.e. Half of it. Next.", "By 12.5 %, i.e. Half of it."),
        ("  Two\n lines.  See @url. ", "Two lines."),
        ("", ""),
    ],
)
def test_advice_is_cut_to_a_sentence(text, sentence):
    assert profiles.one_sentence(text) == sentence
    assert len(profiles.one_sentence(text * 100)) <= profiles.ADVICE


def test_text_from_files_is_escaped(tmp_path):
    claims = [
        {
            **decided()[0],
            **dict.fromkeys(("statement", "source", "measured", "threshold", "evidence", "reason"), HOSTILE),
        }
    ]
    priorities = [advice("tf32", 1, kernel=HOSTILE, category=HOSTILE, rule=HOSTILE, scope=HOSTILE, advice=HOSTILE)]
    priorities.append({**advice("fp16", 1), "status": "failed", "reason": HOSTILE})
    counters = claims_fixture.tables()["counters"]
    for row in counters:
        row["variant"] = HOSTILE
        row["metric"] = row["metric"].replace("the tf32 ceiling", f"the {HOSTILE} ceiling")
    page = build(tmp_path, written(tmp_path, claims, counters, priorities))
    assert "script" not in {tag for tag, _ in page.tags}
    assert "<script" not in page.source
    assert page.source.count("&lt;script&gt;") >= 12
    assert "{{7*7}}" in page.text


def test_a_page_without_these_tables_is_as_before(tmp_path):
    inputs = write_run(tmp_path)
    assert (inputs.claims, inputs.counters, inputs.priorities) == (None, None, None)
    page = build(tmp_path, inputs)
    assert "What the paper claims" not in page.source
    assert "claims.csv" not in page.source


def counted(scope: str, gpu: str = GPU, variant: str = "tf32", **figures: float) -> list[tables.Row]:
    known = {**CELL, "gpu": gpu, "variant": variant, "environment": "n1", "status": "ok", "unit": "x", "scope": scope}
    return [{**known, "metric": metric.replace("_", " "), "value": value} for metric, value in figures.items()]


def test_categories_stand_below_the_roof_of_their_gpu():
    ceilings = {"ceiling, tf32": 400.0, "ceiling, copy": 4.0}
    tensor = {"tensor operations, TF32": 100e9}
    rows = [
        *counted("total", variant="fp32", **ceilings),
        *counted("category:elementwise", kernel_time=2e5, DRAM_read=4e8, DRAM_written=0.0),
        *counted("total", kernel_time=1e6, DRAM_read=8e8, DRAM_written=0.0, **tensor),
        *counted("category:convolution forward", kernel_time=8e5, DRAM_read=4e8, DRAM_written=0.0, **tensor),
        *counted("category:reduction", kernel_time=1e3, DRAM_read=1.0, DRAM_written=0.0),
        *counted("kernel:some", kernel_time=8e5, DRAM_read=4e8, DRAM_written=0.0),
        *counted("total", gpu="another", kernel_time=1e6, DRAM_read=8e8, DRAM_written=0.0),
    ]
    (group,) = profiles.roof_groups(rows)
    assert (group["variant"], [(row["what"], row["bound"]) for row in group["rows"]]) == (
        "tf32",
        [("all kernels", "latency"), ("convolution forward", "latency"), ("elementwise", "latency")],
    )
    assert [value for _, value in group["rows"][0]["cells"]] == [
        "100\N{NO-BREAK SPACE}%",
        "125",
        "100",
        "0.800",
        "25\N{NO-BREAK SPACE}%",
        "20\N{NO-BREAK SPACE}%",
    ]


def test_the_roofline_is_on_the_page(tmp_path):
    ceilings = {"ceiling, tf32": 400.0, "ceiling, copy": 4.0}
    rows = [*counted("total", **ceilings), *counted("total", kernel_time=1e6, DRAM_read=8e8, DRAM_written=0.0)]
    page = build(tmp_path, written(tmp_path, counters=rows))
    assert f"Roofline, tf32: {MODEL} on {GPU}, sampling" in page.section("first")
