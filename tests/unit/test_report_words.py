"""Numbers with their digits, and the table for a terminal."""

import math

import pytest
from rich.console import Console

from meddpm import tables
from meddpm.report import numbers, rows
from meddpm.report.summary import print_summary, summary
from tests.unit.report_fixture import UNSUPPORTED, Run, quality_rows, timing_rows, write_run

SPACE, TIMES, DASH = "\N{NO-BREAK SPACE}", "\N{MULTIPLICATION SIGN}", "\N{EN DASH}"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, DASH), (math.nan, DASH), (math.inf, DASH), (0, "0"), (29.69, "29.7"), (9.996, "10.0"), (0.01234, "0.0123"),
     (1252.6, "1,253"), (-3.14159, "-3.14"), (2.1e-5, f"2.10 {TIMES} 10⁻⁵")],
)  # fmt: skip
def test_number(value, text):
    assert numbers.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (572.0, "572"), (12345.0, "12,345"), (0.5, "0.500"), (4.25e10, f"4.25 {TIMES} 10¹⁰"),
     (None, DASH), (math.nan, DASH)],
)  # fmt: skip
def test_an_amount(value, text):
    assert numbers.amount(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, DASH), (1, "1.0000"), (0.98714, "0.9871"), (0.99997, "0.99997"), (0.9999996, "0.9999996"),
     (1 - 1e-9, "> 0.9999999"), (-0.2, "-0.2000")],
)  # fmt: skip
def test_similarity_is_never_rounded_up_to_one(value, text):
    assert numbers.similarity(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, DASH), (0.0123, f"12.3{SPACE}ms"), (0.743, f"0.743{SPACE}s"), (61.5, f"61.5{SPACE}s"),
     (178, f"178{SPACE}s"), (1234, f"20.6{SPACE}min"), (9000, f"2.50{SPACE}h")],
)  # fmt: skip
def test_duration(seconds, text):
    assert numbers.duration(seconds) == text


def test_similarity_prefers_the_mask_and_only_that_with_fp32_of_the_same_noise():
    row = timing_rows(Run())[3]
    quality = [{**dict.fromkeys(tables.columns("quality")), **found} for found in quality_rows(Run())]
    assert rows.against_fp32(quality, "ssim", row)["value"] == pytest.approx(0.9871)
    whole = [found for found in quality if found["region"] == "whole"]
    assert rows.against_fp32(whole, "ssim", row)["value"] == pytest.approx(0.9871**0.5)
    other_seed = [found for found in quality if found["reference"] == "another seed, same mask"]
    assert len(other_seed) == 5
    assert rows.against_fp32(other_seed, "ssim", row) is None
    small = [{**found, "metric": "ssim_window5"} for found in quality if found["metric"] == "ssim"]
    assert rows.against_fp32(small, "ssim", row)["value"] == pytest.approx(0.9871)


def rendered(run: Run, timing: list[tables.Row] | None = None) -> list[list[str]]:
    """The lines of the terminal table, each as its words."""
    names = tables.columns("timing")
    timing = [{**dict.fromkeys(names), **row} for row in timing or timing_rows(run)]
    quality = [{**dict.fromkeys(tables.columns("quality")), **row} for row in quality_rows(run)]
    console = Console(width=200)
    with console.capture() as captured:
        console.print(summary(timing, quality))
    return [line.split() for line in captured.get().splitlines()]


def test_summary_has_a_line_for_every_variant():
    lines = rendered(Run())
    assert lines[0] == ["variant", "ms", "an", "evaluation", "speed-up", "SSIM", "vs", "fp32", "status"]
    assert lines[1] == ["fp32", "200", f"1.00{TIMES}", "reference", "ok"]
    assert lines[4] == ["bf16_compiled", "29.7", f"6.84{TIMES}", "0.9871", "ok"]
    assert lines[5][:5] == ["bf16_graph", DASH, DASH, DASH, "unsupported"]
    assert " ".join(lines[5][5:]) == UNSUPPORTED
    assert len(lines) == 6


def test_summary_names_models_gpus_phases_and_solvers_that_differ():
    run = Run(models=("one", "two"), gpus=("a", "b"), solvers=("ddpm250", "unipc25"), phases=("sample", "train"))
    lines = rendered(run)
    assert lines[0][:7] == ["model", "GPU", "phase", "solver", "variant", "ms", "a"]
    assert lines[1][:5] == ["one", "a", "sample", "ddpm250", "fp32"]
    assert lines[-1][:5] == ["two", "b", "train", DASH, "bf16_graph"]
    assert len(lines) == 1 + 2 * 2 * (10 + 5)


def test_summary_shows_brackets_as_they_are():
    timing = timing_rows(Run())
    timing[1]["variant"] = "[red]tf32[/red]"
    assert rendered(Run(), timing)[2][0] == "[red]tf32[/red]"


def test_summary_of_nothing_is_a_heading():
    console = Console(width=140)
    with console.capture() as captured:
        console.print(summary([], []))
    assert captured.get().split()[0] == "variant"


def test_print_summary_says_where_the_page_is(tmp_path, capsys):
    inputs = write_run(tmp_path)
    inputs.quality.unlink()
    page = tmp_path / "report" / "index.html"
    print_summary(inputs.timing.parent, page)
    assert capsys.readouterr().out.rstrip().endswith(f"{page} is not there yet")
    page.parent.mkdir()
    page.touch()
    print_summary(inputs.timing.parent, page)
    printed = capsys.readouterr().out
    assert "bf16_compiled" in printed
    assert f"the fp32 medians of 4 jobs spread over 1.5{SPACE}%." in printed
    assert printed.rstrip().endswith(f"The page: {page}")
