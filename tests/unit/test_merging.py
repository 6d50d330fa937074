"""python -m meddpm merge: which rows of several runs are taken, what contradicts, and what is never overwritten."""

import errno
import gzip
import json
import os
import re
from collections.abc import Callable
from html import unescape
from io import StringIO
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner, Result

from meddpm import tables
from meddpm.cli import app
from meddpm.config import ConfigError, UserError, repository_root
from meddpm.merging import Merged, cells, merge, parts
from meddpm.merging.printed import print_merged
from meddpm.profiling import counters as profiling_counters
from meddpm.profiling import derived, trace
from meddpm.tables import Row
from meddpm.validation import validate
from tests.rows import rows
from tests.unit import claims_fixture, report_fixture
from tests.unit.report_fixture import Run

H200 = repository_root() / "results" / "published" / "h200"


def timing(variant: str = "tf32", step: float = 50.0, environment: str = "e1", **more: object) -> Row:
    """A row of the timing table."""
    figures = {"shape": "1x8x8x8", "evaluations": 250, "step_ms_median": step, "setup_s": 1.5}
    speedup = {"fp32_step_ms_median": 200.0, "speedup": 200.0 / step}
    row = {"model": "mini", "gpu": "a100", "variant": variant, "phase": "sample", "solver": "ddpm", "status": "ok"}
    return {**row, "device_name": "Some GPU", **figures, **speedup, "environment": environment, **more}


def missing(row: Row, status: str = "failed", reason: str = "out of memory") -> Row:
    """A row of the same cell that has no figures."""
    kept = ("model", "gpu", "variant", "phase", "solver", "profiler", "metric", "region", "reference", "kernel")
    return {**{name: row[name] for name in kept if name in row}, "status": status, "reason": reason}


def kernel(name: str, time: float, **more: object) -> Row:
    """A row of the kernel table."""
    row = {"model": "mini", "gpu": "a100", "variant": "tf32", "phase": "sample", "profiler": "torch", "kernel": name}
    return {**row, "category": "other", "calls": 3, "time_ms": time, "share": 0.5, "status": "ok", **more}


def quality(reference: str = "true image", value: float = 0.9, **more: object) -> Row:
    """A row of the quality table."""
    row = {"model": "mini", "gpu": "a100", "variant": "tf32", "solver": "ddpm", "metric": "ssim", "region": "whole"}
    return {**row, "reference": reference, "value": value, "n": 2, "environment": "e1", "status": "ok", **more}


def counter(metric: str, value: float | None = 1.0, unit: str = "ns", **more: object) -> Row:
    """A row of the table of counters."""
    row = {"model": "mini", "gpu": "a100", "variant": "tf32", "phase": "sample", "scope": "total", "metric": metric}
    return {**row, "value": value, "unit": unit, "status": "ok", **more}


def priority(name: str, score: float) -> Row:
    """A row of the table of priorities."""
    row = {"model": "mini", "gpu": "a100", "variant": "tf32", "phase": "sample", "rank": 1, "kernel": name}
    return {**row, "category": "other", "rule": "Occupancy", "scope": "local", "score_pct": score, "status": "ok"}


def environment(key: str = "e1", **more: object) -> Row:
    """A row of the environment table."""
    row = {"model": "mini", "gpu": "a100", "environment": key, "python": "3.11.7", "torch": "2.11.0"}
    return {**row, "device_name": "Some GPU", "code_digest": "c0de", "temperature": 33.0, "status": "ok", **more}


def part(folder: Path, config: dict | None = None, place: str = "tables", **of_tables: list[Row]) -> Path:
    """Write a folder of results with these tables."""
    for table, content in of_tables.items():
        tables.write(table, content, folder / place / f"{table}.csv")
    if config is not None:
        (folder / "run_config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    return folder


def joined(out: Path, *folders: Path, prefer: tuple[Path, ...] = ()) -> Merged:
    """Join `folders` without a page."""
    return merge(folders, out, prefer, page=False)


def refused(out: Path, *folders: Path, prefer: tuple[Path, ...] = ()) -> str:
    """The line that a refused merge says; it has written nothing."""
    before = sorted(out.parent.rglob("*"))
    with pytest.raises(UserError) as error:
        joined(out, *folders, prefer=prefer)
    assert sorted(out.parent.rglob("*")) == before
    text = str(error.value)
    assert text.isprintable(), "one line, which a terminal obeys in nothing"
    return text


def table(out: Path, name: str) -> list[Row]:
    """A joined table."""
    return tables.read(name, out / "tables" / f"{name}.csv")


def command(*words: str | Path) -> Result:
    """The result of the command; a fault that the user can mend is raised."""
    result = CliRunner().invoke(app, ["merge", *map(str, words)])
    if isinstance(result.exception, UserError):
        raise result.exception
    return result


def test_every_published_table_is_known() -> None:
    schemas = {path.name.removesuffix(".schema.yaml") for path in (repository_root() / "schemas").iterdir()}
    assert schemas - {"config", "claims"} == parts.CELL.keys()
    for name in parts.CELL:
        told = {*parts.CELL[name], *parts.ROW.get(name, ()), *cells.OF_A_ROW.get(name, ())}
        assert told <= set(tables.columns(name))


def test_every_total_that_counters_must_agree_in_is_one() -> None:
    traces = [trace.Trace("torch", (trace.Kernel("k", None, 1, 2.0),), on_gpu) for on_gpu in (True, False)]
    made = {row["metric"] for seen in traces for row in derived.rows(seen, 1, 1, {})}
    assert set(cells.OF_COUNTERS) <= made | {counter.name for counter in profiling_counters.counters()}
    assert {parts.cell("counters", counter(metric))[-1] for metric in made} == {"torch"}
    counted = {row["metric"] for row in profiling_counters.rows([])}
    assert {parts.cell("counters", counter(metric))[-1] for metric in counted} == {"ncu"}


def test_rows_of_all_parts_in_the_order_given(tmp_path: Path) -> None:
    one = part(tmp_path / "one", timing=[timing("tf32")], environment=[environment()])
    two = part(tmp_path / "two", timing=[timing("fp16", 40.0, "e2")], quality=[quality()])
    part(two, environment=[environment("e2", torch="2.13.0"), environment("e1")])
    done = joined(tmp_path / "out", two, one)
    assert [(row["variant"], row["environment"]) for row in table(tmp_path / "out", "timing")] == [
        ("fp16", "e2"),
        ("tf32", "e1"),
    ]
    assert [row["environment"] for row in table(tmp_path / "out", "environment")] == ["e2", "e1"]
    assert done.counts == {"timing": [1, 1], "quality": [1, 0], "environment": [2, 0]}
    assert sorted(os.listdir(tmp_path / "out" / "tables")) == ["environment.csv", "quality.csv", "timing.csv"]
    record = json.loads((tmp_path / "out" / "merged.json").read_text(encoding="utf-8"))
    assert record["folders"] == [str(two), str(one)]
    assert record["tables"]["environment"] == {"rows": 2, "of": [2, 0]}


@pytest.mark.parametrize("place", [".", "tables", "results/tables"])
def test_what_a_folder_may_be(tmp_path: Path, place: str) -> None:
    one = part(tmp_path / "one", place=place, timing=[timing()])
    root = {".": one, "tables": one, "results/tables": one / "results"}[place]
    part(root, {"variants": {"tf32": {}}})
    joined(tmp_path / "out", one)
    assert len(table(tmp_path / "out", "timing")) == 1
    assert yaml.safe_load((tmp_path / "out" / "run_config.yaml").read_text()) == {"variants": {"tf32": {}}}


def test_tables_by_themselves_have_the_configuration_beside_their_folder(tmp_path: Path) -> None:
    one = part(tmp_path / "one", {"variants": {"tf32": {}}}, timing=[timing()])
    joined(tmp_path / "out", one / "tables")
    assert (tmp_path / "out" / "run_config.yaml").is_file()


def test_speed_ups_are_those_of_the_process_of_each_row(tmp_path: Path) -> None:
    slow = [timing("fp16", 60.0, fp32_step_ms_median=300.0, speedup=5.0)]
    one, two = part(tmp_path / "one", timing=[timing()]), part(tmp_path / "two", timing=slow)
    joined(tmp_path / "out", one, two)
    for row in table(tmp_path / "out", "timing"):
        assert row["speedup"] == row["fp32_step_ms_median"] / row["step_ms_median"]


def test_the_same_row_is_taken_once(tmp_path: Path) -> None:
    same = {"timing": [timing(), timing("fp16")], "kernels": [kernel("gemm", 3.0)], "environment": [environment()]}
    one, two = part(tmp_path / "one", **same), part(tmp_path / "two", **same)
    part(two, timing=[timing(), timing()])
    assert joined(tmp_path / "out", one, two).counts == {"timing": [2, 0], "kernels": [1, 0], "environment": [1, 0]}
    assert joined(tmp_path / "again", two).counts["timing"] == [1]


def test_a_folder_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    one = part(tmp_path / "one", timing=[timing()])
    (tmp_path / "link").symlink_to("one")
    for again in (one, one / "tables", tmp_path / "link"):
        text = refused(tmp_path / "out", one, again)
        assert text == f"{again}: is the folder {one}, which is joined already; name each folder once"


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0), (1, 2, 0)])
def test_the_order_of_folders_does_not_decide_whether_they_agree(tmp_path: Path, order: tuple[int, ...]) -> None:
    # Neighbours agree, the ends do not.
    folders = [part(tmp_path / str(number), timing=[timing(step=50.0 * (1 + 0.08 * number))]) for number in range(3)]
    text = refused(tmp_path / "out", *(folders[number] for number in order))
    assert all(f"{step} in" in text for step in (50, 58))
    joined(tmp_path / "out", *folders[:2])
    joined(tmp_path / "out", *folders[1:])


@pytest.mark.parametrize(
    ("change", "column"),
    [({"device_name": "Other"}, "gpu"), ({"shape": "1x9x9x9"}, "model"), ({"evaluations": 9}, "solver")],
)
def test_what_a_name_stands_for_is_not_preferred(tmp_path: Path, change: Row, column: str) -> None:
    one, two = part(tmp_path / "one", timing=[timing()]), part(tmp_path / "two", timing=[timing(**change)])
    text = refused(tmp_path / "out", one, two)
    assert f"or give it another name in the column {column} of its tables" in text
    assert "--prefer" not in text


def test_another_version_of_the_software_is_said(tmp_path: Path) -> None:
    one = part(tmp_path / "one", timing=[timing()], environment=[environment(cudnn="91900")])
    other = environment("e2", torch="2.12.0", cudnn="91900")
    two = part(tmp_path / "two", timing=[timing("fp16", environment="e2")], environment=[other])
    assert joined(tmp_path / "out", one, two).notes[:1] == [f"a100: torch is 2.11.0 in {one} and 2.12.0 in {two}"]
    part(two, environment=[other, environment(cudnn="91900")])
    assert not any("torch is" in note for note in joined(tmp_path / "out2", one, two).notes)


def test_the_same_figures_of_another_commit_are_no_contradiction(tmp_path: Path) -> None:
    one = part(tmp_path / "one", quality=[quality()])
    two = part(tmp_path / "two", quality=[quality(environment="e2"), quality("label map")])
    joined(tmp_path / "out", one, two)
    taken = [(row["reference"], row["environment"]) for row in table(tmp_path / "out", "quality")]
    assert taken == [("true image", "e1"), ("label map", "e1")]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["mended later", "failed later"])
def test_a_cell_that_ran_wins(tmp_path: Path, order: tuple[int, int]) -> None:
    folders = [tmp_path / "broken", tmp_path / "good"]
    part(folders[0], timing=[missing(timing()), timing("fp16")], kernels=[{**missing(kernel("", 0)), "category": ""}])
    part(folders[1], timing=[timing()], kernels=[kernel("gemm", 3.0), kernel("copy", 1.0)])
    done = joined(tmp_path / "out", *(folders[number] for number in order))
    assert {row["status"] for row in table(tmp_path / "out", "timing")} == {"ok"}
    assert [row["kernel"] for row in table(tmp_path / "out", "kernels")] == ["gemm", "copy"]
    note = f"timing of mini/a100/tf32/sample/ddpm: failed in {folders[0]}, taken from {folders[1]}"
    assert note in done.notes


def test_of_two_that_did_not_run_the_later_is_taken(tmp_path: Path) -> None:
    one = part(tmp_path / "one", timing=[missing(timing())], quality=[missing(quality("fp32"))])
    why = ("unsupported", "no tensor cores")
    two = part(tmp_path / "two", timing=[missing(timing(), *why)], quality=[missing(quality(), *why)])
    joined(tmp_path / "out", one, two)
    for name in ("timing", "quality"):
        assert [row["reason"] for row in table(tmp_path / "out", name)] == ["no tensor cores"]


def test_one_row_that_stands_for_a_failed_evaluation_goes_where_it_was_mended(tmp_path: Path) -> None:
    one = part(tmp_path / "one", quality=[missing(quality("fp32"))])
    two = part(tmp_path / "two", quality=[quality(), missing(quality("fp32, same noise"))])
    joined(tmp_path / "out", one, two)
    taken = [(row["reference"], row["status"]) for row in table(tmp_path / "out", "quality")]
    assert taken == [("true image", "ok"), ("fp32, same noise", "failed")]


def test_of_a_row_that_ran_in_neither_the_later_is_taken(tmp_path: Path) -> None:
    one = part(tmp_path / "one", quality=[quality(), missing(quality("label map"), reason="first")])
    two = part(tmp_path / "two", quality=[quality(), missing(quality("label map"), reason="second")])
    joined(tmp_path / "out", one, two)
    assert [row["reason"] for row in table(tmp_path / "out", "quality")] == [None, "second"]


def test_parts_that_share_the_baseline_are_joined(tmp_path: Path) -> None:
    shared = {"quality": [quality(variant="fp32")], "kernels": [kernel("gemm", 3.0), kernel("copy", 1.0)]}
    one = part(tmp_path / "one", timing=[timing("fp32", 200.0), timing("tf32")], **shared)
    shared = {"quality": [quality(variant="fp32", value=0.9004)], "kernels": [kernel("gemm", 3.0), kernel("fill", 0.8)]}
    two = part(tmp_path / "two", timing=[timing("fp32", 208.0, setup_s=9.0), timing("fp16", 40.0)], **shared)
    done = joined(tmp_path / "out", one, two)
    assert {row["variant"]: row["step_ms_median"] for row in table(tmp_path / "out", "timing")} == {
        "fp32": 200.0,
        "tf32": 50.0,
        "fp16": 40.0,
    }
    assert [row["kernel"] for row in table(tmp_path / "out", "kernels")] == ["gemm", "copy"]
    assert [row["value"] for row in table(tmp_path / "out", "quality")] == [0.9]
    same = "several folders agree on 1 cell, and the first is taken"
    assert done.notes[:3] == [
        f"timing: {same}; step_ms_median of mini/a100/fp32/sample/ddpm differs most, by 3.8 %",
        f"kernels: {same}; the sum of time_ms of mini/a100/tf32/sample/torch differs most, by 5 %",
        f"quality: {same}; value of mini/a100/fp32/ddpm, ssim/whole/true image differs most, by 0.0004",
    ]
    three = part(tmp_path / "three", timing=[timing("fp32", 230.0)])
    assert "step_ms_median is 200 in" in refused(tmp_path / "out", one, two, three)
    swapped = joined(tmp_path / "swapped", two, one)
    assert [row["step_ms_median"] for row in table(tmp_path / "swapped", "timing")] == [208.0, 40.0, 50.0]
    assert swapped.notes[0] == done.notes[0]


def test_the_cell_that_differs_most_is_told(tmp_path: Path) -> None:
    steps = [("fp32", 100.0, 101.0), ("tf32", 50.0, 48.0), ("fp16", 40.0, 40.0)]
    folders = [
        part(tmp_path / str(number), timing=[timing(entry[0], entry[number]) for entry in steps]) for number in (1, 2)
    ]
    assert joined(tmp_path / "out", *folders).notes[0] == (
        "timing: several folders agree on 3 cells, and the first is taken; "
        "step_ms_median of mini/a100/tf32/sample/ddpm differs most, by 4 %"
    )


@pytest.mark.parametrize(
    ("name", "one", "agrees", "differs", "said"),
    [
        ("timing", timing(), timing(step=55.5), timing(step=56.0), "step_ms_median is 50 in"),
        ("timing", timing(), timing(step=45.0), timing(step=44.9), "step_ms_median is 50 in"),
        ("timing", timing(), timing(setup_s=9.0), timing(step_ms_median=None), "and empty in"),
        ("timing", timing(), timing(speedup=4.8), timing(speedup=1.0), "speedup is 4 in"),
        ("timing", timing(), timing(), timing(fp32_step_ms_median=230.0), "fp32_step_ms_median is 200 in"),
        ("timing", timing(batch=10), timing(batch=10), timing(batch=11), "batch is 10 in"),
        ("timing", timing(), timing(peak_memory_gib=3.0), timing(shape="1x9x9x9"), "shape is 1x8x8x8 in"),
        (
            "timing",
            timing(),
            timing(energy_j_per_volume=3.0),
            timing(device_name="Other"),
            "device_name is Some GPU in",
        ),
        ("timing", timing(), timing(volume_s=3.0), timing(evaluations=249), "evaluations is 250 in"),
        ("kernels", kernel("gemm", 3.0), kernel("conv", 3.3), kernel("gemm", 3.4), "the sum of time_ms is 3 in"),
        ("kernels", kernel("gemm", 0.0), kernel("conv", 0.0), kernel("gemm", 0.1), "the sum of time_ms is 0 in"),
        ("kernels", kernel("gemm", 3.0), kernel("gemm", 3.0), kernel("gemm", 3.0, calls=4), "the sum of calls is 3 in"),
        ("quality", quality(), quality(value=0.9009), quality(value=0.9011), "ssim/whole/true image: value is 0.9 in"),
        ("quality", quality(), quality(ci_low=0.7), quality(value=None), "value is 0.9 in"),
        ("quality", quality(value=None), quality(value=None), quality(), "value is empty in"),
        ("quality", quality(n=20), quality(n=20), quality(n=21), "n is 20 in"),
        (
            "quality",
            quality(value=40.0, metric="psnr_db"),
            quality(value=40.4, metric="psnr_db"),
            quality(value=40.6, metric="psnr_db"),
            "psnr_db is 40 in",
        ),
    ],
)
def test_the_main_figure_decides_whether_two_runs_agree(
    tmp_path: Path, name: str, one: Row, agrees: Row, differs: Row, said: str
) -> None:
    first, second = part(tmp_path / "first", **{name: [one]}), part(tmp_path / "second", **{name: [agrees]})
    assert joined(tmp_path / "out", first, second).counts == {name: [1, 0]}
    assert said in refused(tmp_path / "out2", first, part(second, **{name: [differs]}))


def test_counters_of_two_profilers_are_two_cells(tmp_path: Path) -> None:
    traced = [counter("kernel time a step", 190.0, "ms"), counter("longest launch gap", 5.0, "us")]
    counted = [counter("launches", 400.0, "launch"), counter("SM active cycles", 4e10, "cycle")]
    one, two = part(tmp_path / "one", counters=traced), part(tmp_path / "two", counters=counted)
    assert joined(tmp_path / "out", one, two).counts == {"counters": [2, 2]}
    lost = [{**row, "value": None, "status": "unavailable"} for row in counted[1:]]
    part(one, counters=[*traced, *lost])
    part(
        two, counters=[counter("kernel time a step", 200.0, "ms"), counter("longest launch gap", 50.0, "us"), *counted]
    )
    done = joined(tmp_path / "out", one, two)
    assert [(row["metric"], row["value"]) for row in table(tmp_path / "out", "counters")] == [
        ("kernel time a step", 190.0),
        ("longest launch gap", 5.0),
        ("launches", 400.0),
        ("SM active cycles", 4e10),
    ]
    assert done.notes[0].endswith("kernel time a step of mini/a100/tf32/sample/torch differs most, by 5 %")
    assert f"counters of mini/a100/tf32/sample/ncu: unavailable in {one}, taken from {two}" in done.notes


@pytest.mark.parametrize("metric", cells.OF_COUNTERS)
def test_counters_of_a_cell_come_from_one_folder(tmp_path: Path, metric: str) -> None:
    more = counter(metric, 7.0, scope="kernel:gemm")
    one = part(tmp_path / "one", counters=[counter(metric, 100.0), more])
    two = part(tmp_path / "two", counters=[counter(metric, 95.0), {**more, "scope": "kernel:conv"}])
    joined(tmp_path / "out", one, two)
    assert [row["scope"] for row in table(tmp_path / "out", "counters")] == ["total", "kernel:gemm"]
    part(two, counters=[counter(metric, 50.0), {**more, "scope": "kernel:conv"}])
    assert f": {metric} is 100 in" in refused(tmp_path / "out2", one, two)


def test_cells_of_counters_that_share_no_figure_are_refused(tmp_path: Path) -> None:
    one = part(tmp_path / "one", counters=[counter("kernel time a step", 100.0)])
    two = part(tmp_path / "two", counters=[counter("operator time a step", 100.0)])
    assert "kernel time a step is 100 in" in refused(tmp_path / "out", one, two)


def test_priorities_are_taken_with_their_counters(tmp_path: Path) -> None:
    one = part(tmp_path / "one", counters=[counter("kernel time", 100.0)], priorities=[priority("gemm", 9.0)])
    rows_of_two = {"priorities": [priority("conv", 3.0), priority("copy", 1.0)]}
    two = part(tmp_path / "two", counters=[counter("kernel time", 101.0)], **rows_of_two)
    joined(tmp_path / "out", one, two)
    assert [row["kernel"] for row in table(tmp_path / "out", "priorities")] == ["gemm"]
    part(two, counters=[counter("kernel time", 150.0)])
    joined(tmp_path / "out", one, two, prefer=(two,))
    assert [row["kernel"] for row in table(tmp_path / "out", "priorities")] == ["conv", "copy"]
    part(one, counters=[missing(counter("kernel time")) | {"scope": "total", "unit": "ns"}])
    part(one, priorities=[missing(priority("", 0)) | {"category": "", "rule": "", "scope": ""}])
    joined(tmp_path / "out", one, two)
    assert [row["kernel"] for row in table(tmp_path / "out", "priorities")] == ["conv", "copy"]
    (one / "tables" / "counters.csv").unlink()
    (two / "tables" / "counters.csv").unlink()
    joined(tmp_path / "out", one, two)
    assert [row["kernel"] for row in table(tmp_path / "out", "priorities")] == ["conv", "copy"]


def test_claims_are_decided_anew_from_the_cells_of_all_parts(tmp_path: Path) -> None:
    made, config = claims_fixture.tables(), claims_fixture.config()
    for name, variants in (("one", {"fp32", "tf32"}), ("two", {"fp32", "channels_last", "tf32_channels_last"})):
        own = {table: [row for row in rows if row.get("variant", "fp32") in variants] for table, rows in made.items()}
        folder = part(tmp_path / name, config, **own)
        (folder / "tables" / "claims.csv").write_text("verdicts on a part alone\n")
    done = joined(tmp_path / "out", tmp_path / "one", tmp_path / "two")
    joined(tmp_path / "whole", part(tmp_path / "all", config, **made))
    taken = [{row["claim"]: row["verdict"] for row in table(tmp_path / name, "claims")} for name in ("out", "whole")]
    assert taken[0] == taken[1]
    assert {taken[0]["TF32 speed-up"], taken[0]["layout conversions"]} == {"reproduced"}
    assert "claims" not in done.counts
    (tmp_path / "two" / "tables" / "quality.csv").unlink()
    alone = joined(tmp_path / "out", tmp_path / "two")
    assert "there is no claims.csv, which needs quality.csv too" in alone.notes
    assert not (tmp_path / "out" / "tables" / "claims.csv").exists()


def test_figures_that_differ_are_refused(tmp_path: Path) -> None:
    one = part(tmp_path / "one", timing=[timing(setup_s=1.5), timing("fp16")])
    two = part(tmp_path / "two", timing=[timing(step=70.0, setup_s=6.0), timing("fp16", 41.0)])
    text = refused(tmp_path / "out", one, two)
    assert text == (
        f"results contradict each other: timing of mini/a100/tf32/sample/ddpm: step_ms_median is 50 in {one} and 70 in "
        f"{two} (and 1 more); leave one of the folders out, or take the figures of one with --prefer {one}"
    )


def test_kernels_of_a_cell_come_from_one_folder(tmp_path: Path) -> None:
    one = part(tmp_path / "one", kernels=[kernel("gemm", 3.0), kernel("copy", 1.0)])
    two = part(tmp_path / "two", kernels=[kernel("gemm", 3.0), kernel("fill", 2.0)])
    assert "the sum of time_ms is 4 in" in refused(tmp_path / "out", one, two)
    done = joined(tmp_path / "out", one, two, prefer=(two,))
    assert [row["kernel"] for row in table(tmp_path / "out", "kernels")] == ["gemm", "fill"]
    assert done.counts == {"kernels": [0, 2]}
    other = part(tmp_path / "other", kernels=[kernel("gemm", 3.0, profiler="ncu")])
    assert joined(tmp_path / "out3", one, other).counts == {"kernels": [2, 1]}


def test_prefer_takes_whole_cells_of_the_first_that_has_them_and_no_other_cells(tmp_path: Path) -> None:
    one = part(tmp_path / "one", timing=[timing(), timing("fp16")], quality=[quality(), quality("label map")])
    two = part(tmp_path / "two", timing=[timing(step=70.0), missing(timing("fp16"))], quality=[quality(value=0.8)])
    three = part(tmp_path / "three", timing=[timing("bf16")])
    done = joined(tmp_path / "out", one, two, three, prefer=(three, two))
    taken = {row["variant"]: row["step_ms_median"] for row in table(tmp_path / "out", "timing")}
    assert taken == {"tf32": 70.0, "fp16": 50.0, "bf16": 50.0}
    assert [(row["reference"], row["value"]) for row in table(tmp_path / "out", "quality")] == [("true image", 0.8)]
    assert sum("as --prefer says" in note for note in done.notes) == 2
    assert "is none of the folders" in refused(tmp_path / "out2", one, two, prefer=(tmp_path,))
    assert "contradict" in refused(tmp_path / "out2", one, two, three, prefer=(three,))


def test_an_environment_says_one_thing(tmp_path: Path) -> None:
    one = part(tmp_path / "one", environment=[environment(temperature=30.0), environment(model="other")])
    two = part(tmp_path / "two", environment=[environment(temperature=50.0), environment(gpu="h100")])
    assert joined(tmp_path / "out", one, two).counts == {"environment": [2, 1]}
    part(two, environment=[environment(python="3.12.1", gpu="h100")])
    text = refused(tmp_path / "out2", one, two, prefer=(two,))
    assert f"environment e1: python is 3.11.7 in {one} and 3.12.1 in {two}" in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"device_name": "Another GPU"}, "mini/a100/sample: device_name is Some GPU in"),
        ({"shape": "1x9x9x9"}, "mini: shape is 1x8x8x8 in"),
        ({"evaluations": 20}, "mini/ddpm: evaluations is 250 in"),
    ],
)
def test_a_name_that_means_two_things_in_the_tables_is_refused(tmp_path: Path, change: Row, said: str) -> None:
    one, two = part(tmp_path / "one", timing=[timing()]), part(tmp_path / "two", timing=[timing("fp16", **change)])
    assert said in refused(tmp_path / "out", one, two)
    part(two, timing=[timing("fp16", **change, model="other", gpu="b", solver="ddim")])
    joined(tmp_path / "out", one, two)


def test_an_environment_that_no_table_has_is_said(tmp_path: Path) -> None:
    done = joined(tmp_path / "out", part(tmp_path / "one", timing=[timing()], environment=[environment("e2")]))
    assert done.notes[:1] == [
        f"timing: 1 of the rows of {tmp_path}/one name an environment that no environment.csv has"
    ]


CONFIG = {
    "study": {"name": "one", "models": ["mini"], "variants": ["fp32"], "gpus": ["a100"]},
    "models": {"mini": {"preset": "demo", "dataset": "d", "steps": 250}},
    "gpus": {"a100": {"device": "cuda", "partition": "gpu"}},
    "variants": {"fp32": {}, "tf32": {"conv_precision": "tf32"}},
    "solvers": {"ddpm": None},
    "datasets": {"d": {"cases": 1}, "same": {"cases": 2}},
    "evaluate": {"confidence": 0.9},
    "bench": {"rounds": 2},
}


def test_the_configuration_is_what_the_parts_agree_on(tmp_path: Path) -> None:
    other = {
        "study": {"name": "two", "models": ["mini"], "variants": ["fp32", "tf32"], "gpus": ["h100"]},
        "models": {"mini": {"preset": "demo", "dataset": "d", "weights": "train", "steps": 250}},
        "gpus": {"a100": {"device": "cuda", "partition": "big", "mem": "64G"}, "h100": {}},
        "variants": {"fp32": {"autocast": "none"}},
        "solvers": {"ddpm": {"kind": "ddpm", "skip_first": 0}, 7: {}},
        "datasets": {"d": {"cases": 9}, "same": {"cases": 2}},
        "evaluate": {"confidence": 0.9},
        "bench": {"rounds": 4},
    }
    one, two = part(tmp_path / "one", CONFIG, timing=[timing()]), part(tmp_path / "two", other, timing=[timing()])
    joined(tmp_path / "out", one, two)
    config = yaml.safe_load((tmp_path / "out" / "run_config.yaml").read_text(encoding="utf-8"))
    assert config["study"] == {"models": ["mini"], "variants": ["fp32", "tf32"], "gpus": ["a100", "h100"]}
    assert config["gpus"] == {"a100": CONFIG["gpus"]["a100"], "h100": {}}
    assert list(config["variants"]) == ["fp32", "tf32"]
    assert list(config["solvers"]) == ["ddpm", "7"]
    assert config["datasets"] == {"same": {"cases": 2}}
    assert config["evaluate"] == {"confidence": 0.9}
    assert "bench" not in config


@pytest.mark.parametrize(
    ("section", "name", "row", "said"),
    [
        ("models", "mini", {"preset": "demo", "dataset": "d", "base_channels": 96}, "base_channels is 32 in"),
        ("models", "mini", {"preset": "demo", "dataset": "d", "weights": "random"}, 'weights is "train" in'),
        ("models", "mini", {"preset": ["demo"], "dataset": "d"}, "differ"),
        ("variants", "tf32", {"conv_precision": "ieee"}, 'conv_precision is "tf32" in'),
        ("variants", "tf32", {"conv_precision": "tf32", "of_tomorrow": 1}, "of_tomorrow is null in"),
        ("solvers", "ddpm", {"evaluations": 20}, "evaluations is null in"),
        ("gpus", "a100", {"device": "cpu"}, 'device is "cuda" in'),
    ],
)
def test_a_name_that_is_defined_twice_is_refused(tmp_path: Path, section: str, name: str, row: Row, said: str) -> None:
    config = {**CONFIG, "models": {"mini": {"preset": "demo", "dataset": "d"}}}
    other = {**config, section: {**config[section], name: row}}
    one, two = part(tmp_path / "one", config, timing=[timing()]), part(tmp_path / "two", other, timing=[timing()])
    text = refused(tmp_path / "out", one, two)
    assert f"{section}.{name} of run_config.yaml: " in text
    assert said in text or said == "differ"


def test_a_part_without_a_configuration_is_said(tmp_path: Path) -> None:
    one, two = part(tmp_path / "one", CONFIG, timing=[timing()]), part(tmp_path / "two", timing=[timing()])
    done = joined(tmp_path / "out", one, two)
    assert any(note.startswith(f"{two}: has no run_config.yaml") for note in done.notes)
    neither = joined(tmp_path / "none", two)
    assert not (tmp_path / "none" / "run_config.yaml").exists()
    assert neither.page is None


HEADER = ",".join(tables.columns("quality"))
LINE = "mini,a100,tf32,ddpm,ssim,whole,0.9,,,true image,2,e1,ok,"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is empty"),
        (b"\x89PNG\r\n\x1a\n\x00\xff", "it is no text in UTF-8"),
        (b"\x00\x01\x02", "no CSV with such columns"),
        (b"a;b;c\n1;2;3\n", "no CSV with such columns"),
        (HEADER.replace("metric,", "").encode(), "it lacks the column metric"),
        (HEADER.encode() + b",of_tomorrow\x1b[2J\n", "it has the column of_tomorrow?[2J, which"),
        (HEADER.encode() + b",model\n", "it has a column twice"),
        (f"{HEADER}\n{LINE}\n{LINE[:19]}".encode(), "line 3 has 4 columns of 14"),
        (f"{HEADER}\n<<<<<<< HEAD\n{LINE}\n".encode(), "line 2 has 1 columns of 14"),
        (f"{HEADER}\n{LINE},x\n".encode(), "line 2 has 15 columns of 14"),
        (f'{HEADER}\n{LINE}"cut'.encode(), "unexpected end of data"),
        (f"{HEADER}\n{LINE.replace('0.9', 'nan')}\n".encode(), "line 2: nan is not of type"),
        (f"{HEADER}\n{LINE.replace('0.9', '0;9')}\n".encode(), "line 2: could not convert string to float: '0;9'"),
        (f"{HEADER}\n{LINE.replace(',ok,', ',fine,')}\n".encode(), "line 2: 'fine' is not one of"),
        (
            f"{HEADER}\n{LINE}\n{LINE.replace('0.9', '0.8')}\n".encode(),
            "has other rows too for mini/a100/tf32/ddpm/ssim",
        ),
    ],
)
def test_a_damaged_table_is_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    one = part(tmp_path / "one", timing=[timing()])
    (one / "tables" / "quality.csv").write_bytes(content)
    text = refused(tmp_path / "out", one)
    assert text.startswith(f"{one}/tables/quality.csv: ")
    assert said in text
    assert text.endswith("make it anew, or leave the folder out")


def test_a_table_of_an_older_version_or_another_program_is_read(tmp_path: Path) -> None:
    one = part(tmp_path / "one", quality=[quality()])
    path = one / "tables" / "quality.csv"
    older = [name for name in reversed(tables.columns("quality")) if name not in ("ci_low", "reason")]
    values = ["" if rows(path)[0][name] is None else rows(path)[0][name] for name in older]
    path.write_bytes(("\ufeff" + ",".join(older) + "\r\n" + ",".join(values) + "\r\n\r\n").encode())
    joined(tmp_path / "out", one)
    assert table(tmp_path / "out", "quality") == [{**dict.fromkeys(tables.columns("quality")), **quality()}]


def test_a_gzipped_table_is_read(tmp_path: Path) -> None:
    one = part(tmp_path / "one", kernels=[kernel("a", 1.0), kernel("b", 2.0)], timing=[timing()])
    text = (one / "tables" / "kernels.csv").read_bytes()
    (one / "tables" / "kernels.csv").unlink()
    (one / "tables" / "kernels.csv.gz").write_bytes(gzip.compress(text))
    joined(tmp_path / "out", one)
    assert (tmp_path / "out" / "tables" / "kernels.csv").read_bytes() == text


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda content: content[:-9], "Compressed file ended before"),
        (lambda content: b"model,gpu\n", "Not a gzipped file"),
        (lambda content: content[:30] + b"\xff\xff\xff\xff" + content[34:], "is no kernels table of this version ("),
    ],
)
def test_a_damaged_gzipped_table_is_one_line(tmp_path: Path, damage: Callable[[bytes], bytes], said: str) -> None:
    one = part(tmp_path / "one", kernels=[kernel(f"kernel_{number * 7919}", 1.0 + number) for number in range(99)])
    path = one / "tables" / "kernels.csv"
    path.with_suffix(".csv.gz").write_bytes(damage(gzip.compress(path.read_bytes())))
    path.unlink()
    assert said in refused(tmp_path / "out", one)


def test_folders_that_are_none(tmp_path: Path) -> None:
    out, one = tmp_path / "out", part(tmp_path / "one", timing=[timing()])
    (tmp_path / "empty").mkdir()
    (tmp_path / "demo.zip").write_bytes(b"PK")
    assert refused(out, one, tmp_path / "nowhere\n\x1b").startswith(f"{tmp_path}/nowhere")
    assert "is no folder; name one of results" in refused(out, one, tmp_path / "nowhere")
    assert "has no published table" in refused(out, one, tmp_path / "empty")
    assert "is a file; name the folder" in refused(out, one, tmp_path / "demo.zip")
    part(one, place=".", timing=[timing()])
    assert "has tables in" in refused(out, one)


def test_tables_that_are_no_files(tmp_path: Path) -> None:
    one = part(tmp_path / "one", timing=[timing()])
    (one / "tables" / "kernels.csv").mkdir()
    assert "kernels.csv: is no kernels table of this version (it is no file)" in refused(tmp_path / "out", one)
    (one / "tables" / "kernels.csv").rmdir()
    (one / "tables" / "kernels.csv").symlink_to("gone")
    assert "it is no file" in refused(tmp_path / "out", one)


# Ten times as much in each line as in the one before.
BOMB = b"".join(b"a%d: &a%d [%s]\n" % (n + 1, n + 1, b", ".join([b"*a%d" % n] * 10)) for n in range(12))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff\xfe", "is no configuration"),
        (b"a: [", "is no configuration"),
        (b"just text", "no mapping of keys"),
        (b"a: &a [*a]", "is no configuration"),
        (b"a0: &a0 [x]\n" + BOMB, "more than 100,000 values, counting those that an alias"),
        (b"a0: &a0 {k: x}\n" + BOMB.replace(b"[*", b"{<<: [*").replace(b"]", b"]}"), "100,000 values"),
        (b"models: [demo]", "models of its run_config.yaml is no mapping"),
        (b"study: [demo]", "study of its run_config.yaml is no mapping"),
        (b"models: {demo: 3}", "models.demo of its run_config.yaml is no mapping"),
    ],
)
def test_a_damaged_configuration_is_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    one = part(tmp_path / "one", timing=[timing()])
    (one / "run_config.yaml").write_bytes(content)
    assert said in refused(tmp_path / "out", one)


def test_a_configuration_whose_aliases_stand_for_billions_is_refused() -> None:
    bomb: list[object] = ["x"]
    for _ in range(12):
        bomb = [bomb] * 10
    with pytest.raises(ConfigError, match=r"^here: it has more than 100,000 values, counting those that an alias"):
        validate({"study": bomb}, "here")


def test_out_is_never_a_folder_that_is_joined(tmp_path: Path) -> None:
    one = part(tmp_path / "one", timing=[timing()])
    joined(tmp_path / "out", one)
    (tmp_path / "link").symlink_to("out")
    for out in (tmp_path / "out", tmp_path / "link"):
        assert "that is joined; name another folder" in refused(out, one, tmp_path / "out")
        assert "that is joined; name another folder" in refused(out, one, tmp_path / "out" / "tables")
    assert "that is joined" in refused(tmp_path, one)
    assert len(table(tmp_path / "out", "timing")) == 1


def test_out_does_not_lie_in_a_folder_that_is_joined(tmp_path: Path) -> None:
    one = part(tmp_path / "one", timing=[timing()])
    (tmp_path / "link").symlink_to("one")
    for out in (one / "new", one / "tables" / "new" / "deep", tmp_path / "link" / "new"):
        assert "lies in the folder" in refused(out, one)
    assert "lies in the folder" in refused(one / "tables" / "new", one / "tables")
    joined(one / "beside", one / "tables")
    checkout = part(tmp_path / "checkout", place="results/tables", timing=[timing()])
    assert "lies in the folder" in refused(checkout / "results" / "new", checkout)
    joined(checkout / "new", checkout)


def test_out_that_no_system_makes_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, long = part(tmp_path / "one", timing=[timing()]), tmp_path / ("y" * 300)
    text = refused(long, one)
    assert text == f"--out: {long}: {os.strerror(errno.ENAMETOOLONG)}; give it a shorter name"

    def none(*_: object, **__: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    # As /proc does.
    monkeypatch.setattr(Path, "mkdir", none)
    text = refused(tmp_path / "out", one)
    assert text == f"--out: {tmp_path}/out: no folder can be made there; name another folder"


def test_a_name_that_is_empty_is_not_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(part(tmp_path / "one", timing=[timing()]))
    two = part(tmp_path / "two", timing=[timing()])
    for words in (["", "--out", "../out"], [two, "--out", ""], [".", two, "--prefer", "", "--out", "../out"]):
        with pytest.raises(UserError, match="the name of a folder is empty"):
            command(*words)
    assert command(".", two, "--prefer", ".", "--out", "../out", "--no-page").exit_code == 0


def test_nothing_but_an_untouched_merge_is_replaced(tmp_path: Path) -> None:
    one, out = part(tmp_path / "one", timing=[timing()], quality=[quality()]), tmp_path / "deep" / "out"
    joined(out, one)
    (one / "tables" / "quality.csv").unlink()
    joined(out, one)
    assert os.listdir(out / "tables") == ["timing.csv"]
    assert os.listdir(out.parent) == ["out"], "nothing temporary is left"

    (out / "notes.txt").write_text("mine")
    assert "notes.txt is not of the merge that wrote" in refused(out, one)
    (out / "notes.txt").unlink()
    (out / "tables" / "link").symlink_to(one)
    assert "link is not of the merge that wrote" in refused(out, one)
    (out / "tables" / "link").unlink()
    (out / "tables" / "timing.csv").rename(out.parent / "kept.csv")
    (out / "tables" / "timing.csv").symlink_to(out.parent / "kept.csv")
    assert "timing.csv is not of the merge that wrote" in refused(out, one)
    (out.parent / "kept.csv").rename(out / "tables" / "timing.csv")
    with open(out / "tables" / "timing.csv", "a") as stream:
        stream.write("\n")
    assert "timing.csv was changed since a merge wrote it" in refused(out, one)
    (out / "merged.json").write_text("[]")
    assert "is not empty, and no merge wrote it" in refused(out, one)

    results = part(tmp_path / "results", timing=[timing()])
    assert "is not empty, and no merge wrote it" in refused(results, one)
    (tmp_path / "file").write_text("mine")
    assert "is a file; name another folder" in refused(tmp_path / "file", one)
    assert "make room or mend the permissions" in refused(tmp_path / "file" / "out", one)
    (tmp_path / "empty").mkdir()
    joined(tmp_path / "empty", one)
    assert len(table(tmp_path / "empty", "timing")) == 1


def test_a_merge_that_fails_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, out = part(tmp_path / "one", timing=[timing()]), tmp_path / "out"
    joined(out, one)
    before = (out / "merged.json").read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("meddpm.merging.target.write_json", full)
    assert "No space left on device" in refused(out, part(one, timing=[timing("fp16")]))
    assert (out / "merged.json").read_bytes() == before


def test_a_merge_that_cannot_be_put_in_place_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, out, replace = part(tmp_path / "one", timing=[timing()]), tmp_path / "out", os.replace
    joined(out, one)

    def busy(source: Path, target: Path) -> None:
        if Path(target) == out and ".before." not in str(source):
            raise OSError(errno.EBUSY, "Device or resource busy", str(out))
        replace(source, target)

    monkeypatch.setattr(os, "replace", busy)
    assert f"--out: {out}: Device or resource busy" in refused(out, one)


def test_the_page_says_which_figures_were_preferred(tmp_path: Path) -> None:
    one = report_fixture.write_run(tmp_path / "one", Run(variants=("fp32", "tf32"), absent={})).timing.parents[1]
    two = report_fixture.write_run(tmp_path / "two", Run(variants=("fp32", "tf32"), absent={})).timing.parents[1]
    path = two / "tables" / "timing.csv"
    measured = tables.read("timing", path)
    tables.write("timing", [row | {"step_ms_median": 2 * row["step_ms_median"]} for row in measured], path)
    done = merge([one, two], tmp_path / "out", [two])
    page = (tmp_path / "out" / "report" / "index.html").read_text(encoding="utf-8")
    said = [note for note in done.notes if "as --prefer says" in note]
    assert said
    assert all(note[1:] in unescape(page) for note in said[:2])


def test_the_same_parts_make_the_same_bytes(tmp_path: Path) -> None:
    one = part(tmp_path / "one", CONFIG, timing=[timing()], environment=[environment()])
    for out in ("a", "b"):
        joined(tmp_path / out, one)
    for name in ("merged.json", "run_config.yaml", "tables/timing.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert (tmp_path / "a" / "tables" / "timing.csv").read_bytes() == (one / "tables" / "timing.csv").read_bytes()


def test_the_command_draws_the_page_of_all_parts(tmp_path: Path) -> None:
    one = report_fixture.write_run(tmp_path / "one", Run(variants=("fp32", "tf32"), absent={})).timing.parents[1]
    two = report_fixture.write_run(tmp_path / "two", Run(gpus=("h100",), capability="9.0")).timing.parents[1]
    for path in (two / "tables").iterdir():
        path.write_text(path.read_text().replace("e0123456789", "another"))
    part(two, counters=[{**counter("kernel time a step", 3.25, "ms"), "model": "demo", "gpu": "h100"}])
    printed = command(one, two, "--out", tmp_path / "out").stdout
    page = (tmp_path / "out" / "report" / "index.html").read_text(encoding="utf-8")
    assert "2 runs joined" in page
    assert "Joined from other results" in page
    assert f"The tables are those of {one} and {two}." in page
    assert all(f"timing+demo+{gpu}+sample.svg" in os.listdir(tmp_path / "out" / "figures") for gpu in ("auto", "h100"))
    links = [unquote(link) for link in re.findall(r'href="([^"#:]+)"', page)]
    assert {f"../tables/{name}.csv" for name in ("timing", "counters", "claims")} <= set(links)
    assert [link for link in links if not (tmp_path / "out" / "report" / link).exists()] == []
    assert re.search(
        rf"rows taken of +timing +kernels +quality +environment +counters\n{str(one)[:20]}\S* +2 +9 ", printed
    )
    assert f"the page: {tmp_path}/out/report/index.html" in printed
    assert "page" not in command(one, "--no-page", "--out", tmp_path / "bare").stdout
    part(two, timing=[timing(model="demo", gpu="auto", variant="tf32", solver="ddpm250")])
    with pytest.raises(UserError, match="contradict"):
        command(one, two, "--out", tmp_path / "out")
    assert command(one, two, "--out", tmp_path / "out", "--no-page", "--prefer", one).exit_code == 0


def test_names_break_no_terminal(tmp_path: Path) -> None:
    one = part(tmp_path / "[red]\x1b[2J\udcff", timing=[missing(timing("[b]\x1b"))])
    two = part(tmp_path / "two", timing=[timing("[b]\x1b")])
    stream = StringIO()
    print_merged(joined(tmp_path / "out", one, two), Console(file=stream, width=300, highlight=False))
    assert "\x1b" not in stream.getvalue()
    assert f"\n{tmp_path}/[red]?[2J?  " in stream.getvalue()
    assert "timing of mini/a100/[b]?/sample/ddpm: failed in" in stream.getvalue()


def test_many_notes_are_cut_short(tmp_path: Path) -> None:
    many = [f"v{number}" for number in range(30)]
    one = part(tmp_path / "one", timing=[missing(timing(name)) for name in many])
    done = joined(tmp_path / "out", one, part(tmp_path / "two", timing=[timing(name) for name in many]))
    stream = StringIO()
    print_merged(done, Console(file=stream, width=200))
    assert stream.getvalue().count("failed in") == 20
    assert f"... and {len(done.notes) - 20} more, in" in stream.getvalue()
    record = json.loads((tmp_path / "out" / "merged.json").read_text(encoding="utf-8"))
    assert sum("failed in" in note for note in record["notes"]) == 30


def test_what_was_published_can_be_joined(tmp_path: Path) -> None:
    own = part(tmp_path / "own", timing=[timing(gpu="local")], environment=[environment(gpu="local")])
    done = joined(tmp_path / "out", H200, own)
    published = rows(H200 / "timing.csv")
    assert done.counts["timing"] == [len(published), 1]
    assert done.counts["kernels"][0] > 1000, "gzipped"
    assert rows(tmp_path / "out" / "tables" / "timing.csv")[: len(published)] == published
    claims = {(row["model"], row["claim"]): row["verdict"] for row in rows(tmp_path / "out" / "tables" / "claims.csv")}
    assert claims["whole_head_128", "TF32 speed-up"] == "reproduced", "decided anew, from the published tables"
