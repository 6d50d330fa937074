"""Reading of what Nsight Compute prints and writes."""

import csv
import gzip
import io
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace

import pytest

from meddpm.config import UserError
from meddpm.profiling.readers import demangle as demangling
from meddpm.profiling.readers.demangle import demangle
from meddpm.profiling.readers.ncu_files import Launch, base_unit, duration_ms, launch_text, read, read_launches
from tests.unit.files_fixture import one_line, shared

HEAD = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size"]
HEAD += ["Device", "CC"]
OLD = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream"]
TIME = "gpu__time_duration.sum"
NAME = "device__attribute_display_name"
PUSH_POP = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
DETAILS = ["Section Name", "Metric Name", "Metric Unit", "Metric Value", "Rule Name", "Rule Type", "Rule Description"]
DETAILS += ["Estimated Speedup Type", "Estimated Speedup"]
MANGLED = "_ZN4cave4stirIfLi8EEEvPT_i"
DEMANGLED = "void cave::stir<float, 8>(float*, int)"

PROF = "==PROF== Connected to process 77 (/usr/bin/oven)"


def quoted(*rows: list[str], delimiter: str = ",") -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return text.getvalue()


def identity(number: int | str = 0, kernel: str = "stir", process: str = "77") -> list[str]:
    return [str(number), process, "oven", "127.0.0.1", kernel, "1", "7", "(64, 2, 1)", "(5, 1, 3)", "0", "9.0"]


def raw(metrics: dict[str, tuple[str, ...]], units: list[str] | None = None, kernel: str = "stir") -> str:
    """A raw table: the cells of each metric, one a launch."""
    rows = [[*identity(number, kernel), *cells] for number, cells in enumerate(zip(*metrics.values(), strict=True))]
    header = [[*HEAD, *metrics]]
    return quoted(*header, *([["" for _ in HEAD] + units] if units else []), *rows)


def details(*rows: list[str], number: int = 0, kernel: str = "stir", head: bool = True) -> str:
    return (quoted([*HEAD, *DETAILS]) if head else "") + quoted(*[[*identity(number, kernel), *row] for row in rows])


def written(folder: Path, text: str | bytes, name: str = "ncu.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def launches(folder: Path, text: str | bytes, name: str = "ncu.csv") -> list[Launch]:
    return read_launches(written(folder, text, name))


def metrics(folder: Path, text: str) -> dict[str, float]:
    (launch,) = launches(folder, text)
    return launch.metrics


def refused(folder: Path, text: str | bytes, *words: str, name: str = "ncu.csv") -> None:
    path = written(folder, text, name)
    for reader in (read, read_launches):
        with pytest.raises(UserError) as error:
            reader(path)
        one_line(error, str(path), ";", *words)


# The raw page


def test_a_launch_of_the_raw_page(tmp_path: Path) -> None:
    text = raw({NAME: ("NVIDIA X9",), TIME: ("12.5",), "dram__bytes.sum": ("3.25",)}, ["", "us", "Mbyte"], MANGLED)
    (launch,) = launches(tmp_path, text)
    assert launch == Launch(
        0,
        DEMANGLED,
        "(5,1,3)x(64,2,1)",
        "NVIDIA X9",
        None,
        {TIME: 12500.0, "dram__bytes.sum": 3.25e6},
        {TIME: "ns", "dram__bytes.sum": "byte"},
        (),
    )
    assert duration_ms(launch) == 0.0125


def test_the_kernel_table_sums_launches_of_one_shape(tmp_path: Path) -> None:
    text = raw({NAME: ("X9", "X9"), TIME: ("2", "3")}, ["", "ms"]) + raw(
        {NAME: ("X9",), TIME: ("7",)}, ["", "ms"], "fry"
    )
    trace = read(written(tmp_path, text))
    assert (trace.profiler, trace.on_gpu, trace.occupied, trace.device) == ("ncu", True, None, "X9")
    assert [(k.name, k.launch, k.calls, k.time_ms) for k in trace.kernels] == [
        ("fry", "(5,1,3)x(64,2,1)", 1, 7.0),
        ("stir", "(5,1,3)x(64,2,1)", 2, 5.0),
    ]
    assert len(trace.notes) == 1
    assert "serialised" in trace.notes[0]


@pytest.mark.parametrize(
    ("cells", "value"),
    [
        ("us", 1e3), ("usecond", 1e3), ("msecond", 1e6), ("ms", 1e6), ("nsecond", 1), ("ns", 1), ("second", 1e9),
        ("Gbyte", 1e9), ("Kbyte", 1e3), ("Ginst", 1e9), ("%", 1), ("inst/cycle", 1), ("Tbyte/second", 1e12),
        ("Ghz", 1e9), ("cycle/nsecond", 1e9), ("sector/us", 1e6), ("%/Kbyte", 1e-3), ("Kbyte/block", 1e3), ("SM", 1),
        ("", 1), ("Tensor", 1),
    ],
)  # fmt: skip
def test_units_are_scaled_to_the_base(tmp_path: Path, cells: str, value: float) -> None:
    assert metrics(tmp_path, raw({"a__b": ("4.0",)}, [cells])) == {"a__b": 4.0 * value}


def test_base_units_have_one_name() -> None:
    names = ["usecond", "second", "Gbyte/second", "MB", "cycle/nsecond", "Mhz", "Kbyte/block", "Ksectors"]
    assert [base_unit(name)[0] for name in names] == [
        *("ns", "ns", "byte/s", "byte", "cycle/s", "hz", "byte/block", "sectors"),
    ]


def test_scaling_adds_no_rounding(tmp_path: Path) -> None:
    assert metrics(tmp_path, raw({TIME: ("0.001955",)}, ["ms"]))[TIME] == 1955.0


@pytest.mark.parametrize(
    "cell", ["", "n/a", "(!) n/a", "nan", "-nan", "inf", "no data", "PolicySpread", "1e999", "1.2.3", "12.34,5"]
)
def test_what_is_no_number_is_no_metric(tmp_path: Path, cell: str) -> None:
    assert metrics(tmp_path, raw({"a__b": (cell,), TIME: ("3.5",)}, ["", "ns"])) == {TIME: 3.5}


def test_instances_stand_behind_the_value(tmp_path: Path) -> None:
    values = "; ".join(["2"] * 90_000)
    text = raw({"a__b": ("5 (1; 2; 2)",), "c__d": (f"1,234.5 ({values})",)}, ["", ""])
    assert metrics(tmp_path, text) == {"a__b": 5.0, "c__d": 1234.5}


def test_old_raw_tables_have_no_units_and_no_shape(tmp_path: Path) -> None:
    header = [*OLD, "launch__block_size", "launch__grid_size", TIME]
    row = ["4", "77", "oven", "127.0.0.1", "stir", "2019-Nov-08 19:56:53", "1", "7", "128", "1,960", "2,500,000"]
    path = written(tmp_path, quoted(header, row))
    (launch,) = read_launches(path)
    assert (launch.number, launch.launch, launch.metrics[TIME]) == (4, "(1960,1,1)x(128,1,1)", 2.5e6)
    trace = read(path)
    assert trace.kernels[0].time_ms == 2.5
    assert sum("units" in note or "along x" in note for note in trace.notes) == 2


def test_the_dimensions_of_old_tables_are_taken_where_they_are(tmp_path: Path) -> None:
    sizes = [f"launch__{what}_dim_{axis}" for what in ("grid", "block") for axis in "xyz"]
    text = quoted(
        [*OLD, *sizes, TIME],
        [*["" for _ in OLD], *["block"] * 6, "ns"],
        ["0", "7", "o", "h", "k", "", "1", "7", *"987321", "5"],
    )
    assert launches(tmp_path, text)[0].launch == "(9,8,7)x(3,2,1)"


def test_a_short_row_keeps_what_it_has(tmp_path: Path) -> None:
    text = quoted([*HEAD, TIME, "a__b", "c__d"], ["" for _ in HEAD] + ["ns", "", ""], [*identity(), "8", "9"])
    assert metrics(tmp_path, text) == {TIME: 8.0, "a__b": 9.0}


def test_a_file_cut_inside_a_row_says_so(tmp_path: Path) -> None:
    text = raw({TIME: ("1", "2", "3")}, ["ms"])
    trace = read(written(tmp_path, text[:-3]))
    assert trace.kernels[0].calls == 2
    assert any("cut short" in note for note in trace.notes)


def test_what_follows_a_cut_row_is_read(tmp_path: Path) -> None:
    text = raw({TIME: ("1", "2", "3")}, ["ms"])[:-3] + "\n==ERROR== killed\n" + raw({TIME: ("4",)}, ["ms"], "fry")
    trace = read(written(tmp_path, text))
    assert [(k.name, k.calls) for k in trace.kernels] == [("fry", 1), ("stir", 2)]
    assert [note for note in trace.notes if "killed" in note or "cut short" in note] == list(trace.notes[1:])
    assert len(trace.notes) == 3


def test_a_table_that_another_program_saved_again(tmp_path: Path) -> None:
    plain = raw({TIME: ("1.5",), "a__b": ("2",)}, ["us", ""]).replace('"', "").replace("(64, 2, 1)", '"(64, 2, 1)"')
    plain = plain.replace("(5, 1, 3)", '"(5, 1, 3)"')
    assert launches(tmp_path, plain)[0].metrics == {TIME: 1500.0, "a__b": 2.0}
    excel = quoted([*HEAD, TIME], ["" for _ in HEAD] + ["us"], [*identity(), "1,5"], delimiter=";")
    assert launches(tmp_path, excel)[0].metrics == {TIME: 1500.0}


def test_such_a_table_may_be_cut_inside_a_number(tmp_path: Path) -> None:
    plain = ",".join(name for name in HEAD if "Size" not in name) + f",{TIME},a__b,c__d\n"
    text = "\ufeff" + plain + ",,,,,,,,,ns,ns,ns\n4,77,oven,127.0.0.1,stir,1,7,0,9.0,5,12"
    (launch,) = launches(tmp_path, text)
    assert (launch.number, launch.metrics) == (4, {TIME: 5.0})


def test_spaces_between_the_cells(tmp_path: Path) -> None:
    assert metrics(tmp_path, raw({TIME: ("1.5",)}, ["us"]).replace('","', '", "')) == {TIME: 1500.0}


def test_units_stand_below_the_header_alone(tmp_path: Path) -> None:
    empty = quoted([*["" for _ in HEAD], "ms"])
    head, first, second = raw({TIME: ("5", "6")}).splitlines(keepends=True)
    assert [launch.metrics[TIME] for launch in launches(tmp_path, head + first + empty + second)] == [5.0, 6.0]


def test_the_gui_puts_units_into_the_header(tmp_path: Path) -> None:
    assert metrics(tmp_path, quoted([*HEAD, f"{TIME} [us]"], [*identity(), "1.5"])) == {TIME: 1500.0}


# Other lines


def test_other_lines_before_between_and_after(tmp_path: Path) -> None:
    head, units, first, second = raw({TIME: ("1.25", "2.5")}, ["us"]).splitlines()
    noise = (
        'step 1,2,"three"\n"0","hello","world"\n"5","77","a","b","c","d","e","f","g","h","i","j"\n'
        '"5","77","a","b","c","1","7","(1, 1, 1)","(1, 1, 1)","0","9.0","1","2"\n\n"",""\n==WARNING== a, b\n'
    )
    # The program's last line may lack its end, and a progress bar goes back to the start of its line.
    text = f"{PROF}\n{noise}loss 0.5{head}\n{noise}{units}\n{noise}{first}\n{noise}50%\r{second}\n{noise}"
    assert [launch.metrics for launch in launches(tmp_path, text)] == [{TIME: 1250.0}, {TIME: 2500.0}]
    glued = f"{PROF}\n{head}\n{units}\n{first}\nloss 0.25{second}\n"
    assert [launch.number for launch in launches(tmp_path, glued)] == [0, 1]


def test_every_line_may_have_the_number_of_its_task(tmp_path: Path) -> None:
    text = "".join(f"0: {line}\n" for line in raw({TIME: ("1.25", "2.5")}, ["us"]).splitlines())
    assert [launch.metrics[TIME] for launch in launches(tmp_path, text)] == [1250.0, 2500.0]


def test_several_runs_in_one_file(tmp_path: Path) -> None:
    second = quoted([*HEAD, "a__b", TIME], ["" for _ in HEAD] + ["", "ms"], [*identity(0, "fry"), "1", "2"])
    text = raw({TIME: ("4",)}, ["us"]) + f"{PROF}\n\ufeff" + second
    assert [(x.kernel, x.metrics[TIME]) for x in launches(tmp_path, text)] == [("stir", 4e3), ("fry", 2e6)]


def test_what_ncu_said_beside_launches_is_a_note(tmp_path: Path) -> None:
    text = "==ERROR== The application returned an error code (9).\n" + raw({TIME: ("1",)}, ["ms"])
    assert any("error code (9)" in note for note in read(written(tmp_path, text)).notes)


@pytest.mark.parametrize("change", ["gz", "bom", "crlf", "utf-16"])
def test_the_bytes_of_the_file(tmp_path: Path, change: str) -> None:
    text = raw({TIME: ("1.25",)}, ["us"])
    content = {
        "gz": gzip.compress(text.encode(), mtime=0),
        "bom": b"\xef\xbb\xbf" + text.encode(),
        "crlf": text.replace("\n", "\r\n").encode(),
        "utf-16": text.encode("utf-16"),
    }[change]
    assert launches(tmp_path, content)[0].metrics == {TIME: 1250.0}


def left_out(folder: Path, text: str) -> tuple[int, list[str]]:
    """How many launches are read, and the notes on what is not."""
    trace = read(written(folder, text))
    return sum(kernel.calls for kernel in trace.kernels), [note for note in trace.notes if "left out" in note]


def with_second(change: Callable[[str], str]) -> str:
    """A table of three launches, the row of the second of which is changed."""
    head, units, *rows = raw({TIME: ("4", "6", "9")}, ["us"]).splitlines()
    return "\n".join([head, units, rows[0], change(rows[1]), rows[2], ""])


@pytest.mark.parametrize(
    "change",
    [
        lambda row: row + ',"8"',
        lambda row: row.replace('"stir"', '""'),
        lambda row: row + row.replace('"1","77"', '"5","77"', 1),
        lambda row: row.replace('"9.0"', '"9==PROF== Profiling "q": 0%....100% - 8 passes\n.0"'),
        lambda row: row.replace('"1"', f'"{"3" * 5000}"', 1),
        lambda row: row.replace("(5, 1, 3)", f"({'3' * 5000}, 1, 3)"),
        lambda row: "loss 0.5 " + row + ',"8"',
    ],
    ids=["a cell too many", "no name", "two rows", "a banner inside", "a long ID", "a large grid", "behind words"],
)
def test_a_row_that_cannot_be_read_is_a_note(tmp_path: Path, change: Callable[[str], str]) -> None:
    calls, notes = left_out(tmp_path, with_second(change))
    assert calls == 2
    assert len(notes) == 1
    assert "a line of the table" in notes[0]


def test_every_such_row_is_counted(tmp_path: Path) -> None:
    text = raw({TIME: tuple("469")}, ["us"])
    wide = text.replace('"6"', '"6","8"').replace('"9"\n', '"9","8"\n')
    calls, notes = left_out(tmp_path, wide)
    assert calls == 1
    assert ["2 lines of the table" in note for note in notes] == [True]
    bare = wide.replace('"', "").replace("(64, 2, 1)", "64").replace("(5, 1, 3)", "5")
    calls, notes = left_out(tmp_path, bare)
    assert calls == 1
    assert ["2 lines of the table" in note for note in notes] == [True]
    assert left_out(tmp_path, text + 'step 1, 2\n{"loss": "0.5", "step": "7"}\n') == (3, [])


def test_what_ncu_prints_behind_a_row_is_no_part_of_it(tmp_path: Path) -> None:
    text = with_second(lambda row: row + "==PROF== Disconnected from process 77")
    assert left_out(tmp_path, text) == (3, [])
    text = with_second(lambda row: row + "==ERROR== the oven is cold")
    assert "Nsight Compute said: the oven is cold" in read(written(tmp_path, text)).notes


def test_a_table_of_which_no_row_can_be_read_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, raw({TIME: ("4",)}, ["us"], ""), "no launch", "a line of the table", "--page raw")


# Numbers


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        # Each list has one number at least that can be read in one way only; it decides on the rest.
        (("1,234", "0.5"), (1234, 0.5)),
        (("1,234", "12.25"), (1234, 12.25)),
        (("1,234", "1,234,567"), (1234, 1234567)),
        (("1,234", "1,234.5"), (1234, 1234.5)),
        (("1.234", "1.234,56"), (1234, 1234.56)),
        (("1.234", "0,5"), (1234, 0.5)),
        (("1.234", "1234,567"), (1234, 1234.567)),
        (("1.234", "1.234.567"), (1234, 1234567)),
        (("1,234", "1 234,5"), (1.234, 1234.5)),
        (("1,234", "1\u202f234,5"), (1.234, 1234.5)),
        (("1,234", "1\u00a0234\u00a0567,5"), (1.234, 1234567.5)),
        (("1,234", "1'234.5"), (1234, 1234.5)),
        (("1,234", "12,34,567.5"), (1234, 1234567.5)),
        # Nothing decides: English.
        (("1,234", "5"), (1234, 5)),
        (("1.234", "5"), (1.234, 5)),
        # One odd number does not outvote the others.
        (("1,234", "0,5", "0.5", "0.25"), (1234, 0.5, 0.5, 0.25)),
        (("-1,5", "0,5", "1.234e+03"), (-1.5, 0.5, 1234)),
    ],
)
def test_numbers_of_every_locale(tmp_path: Path, cells: tuple[str, ...], values: tuple[float, ...]) -> None:
    names = [f"a__{letter}" for letter in "bcdef"]
    found = metrics(
        tmp_path, raw({name: (cell,) for name, cell in zip(names, cells, strict=False)}, ["" for _ in cells])
    )
    assert tuple(found.values()) == pytest.approx(values, rel=1e-12)


def test_one_launch_decides_for_the_whole_file(tmp_path: Path) -> None:
    text = raw({TIME: ("1.234", "2.345", "0,5")}, ["us"])
    assert [launch.metrics[TIME] for launch in launches(tmp_path, text)] == [1_234_000, 2_345_000, 500]


def semicolons(name: str, unit: str, *cells: str, size: str = "(64; 2; 1)") -> str:
    rows = [[*identity(number)[:7], size, *identity()[8:], cell] for number, cell in enumerate(cells)]
    return quoted([*HEAD, name], ["" for _ in HEAD] + [unit], *rows, delimiter=";")


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        # A GPU's clock has no fractions of a ns.
        (raw({TIME: ("7.136", "8.032")}, ["ns"]), (7136, 8032)),
        (raw({TIME: ("7,136", "8,032")}, ["ns"]), (7136, 8032)),
        (raw({TIME: ("7.136", "8.032")}), (7136, 8032)),
        (semicolons(TIME, "nsecond", "7.136", "8.032"), (7136, 8032)),
        # Durations are whole ns, so that three digits behind us are decimals.
        (raw({TIME: ("7.136", "8.032")}, ["us"]), (7136, 8032)),
        (semicolons(TIME, "us", "7,136", "8,032"), (7136, 8032)),
        (raw({TIME: ("7,136", "8,032")}, ["us"]), (7136, 8032)),
        (raw({TIME: ("7,136", "8,032")}, ["msecond"]), (7_136_000, 8_032_000)),
        # Numbers that can be read in one way only are better evidence.
        (raw({TIME: ("7,136", "8,032.5")}, ["us"]), (7_136_000, 8_032_500)),
        (raw({TIME: ("7.136", "8.032"), "a__b": ("1.5", "2.25")}, ["ns", "%"]), (7.136, 8.032)),
    ],
)
def test_durations_tell_the_decimal_mark(tmp_path: Path, text: str, ns: tuple[float, ...]) -> None:
    assert [launch.metrics[TIME] for launch in launches(tmp_path, text)] == pytest.approx(ns, rel=1e-12)


def test_durations_tell_it_on_the_page_details_too(tmp_path: Path) -> None:
    text = details(["S", TIME, "ns", "7.136"], ["T", "Duration", "ns", "7.136"])
    assert metrics(tmp_path, text) == {TIME: 7136.0}
    trace = read(tmp_path / "ncu.csv")
    assert (trace.kernels[0].time_ms, len(trace.notes)) == (0.007136, 1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (semicolons("a__b", "%", "7,136", size="(64, 2, 1)"), 7.136),
        (semicolons("a__b", "%", "7,136").replace(";", ",").replace("(64, 2, 1)", "(64; 2; 1)"), 7.136),
        (raw({"a__b": ("7,136",), "c__d.sum": ("1.234",)}, ["%", "inst"]), 7.136),
        (raw({"a__b": ("7,136",), "launch__grid_size": ("1.234",)}, ["%", ""]), 7.136),
        (semicolons("a__b", "%", "7.136", size="(1,024; 1; 1)"), 7.136),
        (raw({"a__b": ("7,136",)}, ["%"]).replace('"77"', '"1.234"'), 7.136),
        (semicolons("a__b", "%", "7.136", size="(1.024; 1; 1)"), 7136.0),
    ],
)
def test_what_else_tells_the_decimal_mark(tmp_path: Path, text: str, value: float) -> None:
    assert launches(tmp_path, text)[0].metrics["a__b"] == value


def test_a_decimal_mark_that_is_a_guess_is_a_note(tmp_path: Path) -> None:
    def doubts(text: str) -> list[str]:
        return [note for note in read(written(tmp_path, text)).notes if "decimal mark" in note]

    (note,) = doubts(raw({TIME: ("7,136",)}, ["us"]))
    assert '"7,136"' in note
    assert '"," is taken' in note
    # Some have a comma and some a point, and neither is more.
    (note,) = doubts(raw({TIME: ("7.136", "8,032")}, ["us"]))
    assert '"." is taken' in note
    for sure in (
        raw({TIME: ("7.136",)}, ["us"]),
        raw({TIME: ("7.136",)}, ["ns"]),
        semicolons(TIME, "us", "7,136"),
        raw({TIME: ("7,136", "0,5")}, ["us"]),
        # The kernel table does not need this one.
        raw({TIME: ("5",), "a__b": ("7,136",)}, ["us", "%"]),
    ):
        assert doubts(sure) == []


@pytest.mark.parametrize(
    ("cell", "ns"),
    [("0." + "0" * 90 + "7", 7e-91), ("4" + "0" * 90, 4e90), ("1" + "0" * 500, None), ("0." + "0" * 500 + "7", None)],
    ids=["small", "large", "too large", "too long"],
)
def test_a_long_number_is_never_read_in_part(tmp_path: Path, cell: str, ns: float | None) -> None:
    (launch,) = launches(tmp_path, raw({TIME: (cell,)}, ["ns"]))
    assert launch.metrics.get(TIME) == (ns if ns is None else pytest.approx(ns, rel=1e-12))


# The page details


def test_labels_become_names_of_metrics(tmp_path: Path) -> None:
    text = details(
        ["GPU Speed Of Light Throughput", "Duration", "us", "1,234.5"],
        ["GPU Speed Of Light Throughput", "Elapsed Cycles", "cycle", "1,234"],
        ["GPU Speed Of Light Throughput", "DRAM Throughput", "%", "12.5", ""],
        ["GPU Speed Of Light Throughput", "Memory Throughput", "%", "40.25"],
        ["Memory Workload Analysis", "Memory Throughput", "Gbyte/s", "2.5"],
        ["My Section", "Spoons", "", "3"],
        ["Other Section", "Spoons", "", "4"],
        ["My Section", "Duration", "cycle", "5"],
        ["Command line profiler metrics", "lts__t_bytes.sum", "Kbyte", "6"],
        ["Command line profiler metrics", "Hit Rate lts__hits.pct", "%", "7"],
        ["Launch Statistics", "Function Cache Configuration", "", "CachePreferNone"],
    )
    (launch,) = launches(tmp_path, text)
    assert launch.metrics == {
        TIME: 1_234_500.0,
        "gpc__cycles_elapsed.max": 1234.0,
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 12.5,
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": 40.25,
        "dram__bytes.sum.per_second": 2.5e9,
        "Spoons": 3.0,
        "Other Section: Spoons": 4.0,
        "Duration": 5.0,
        "lts__t_bytes.sum": 6000.0,
        "lts__hits.pct": 7.0,
    }
    assert (launch.launch, launch.device, launch.units[TIME]) == ("(5,1,3)x(64,2,1)", None, "ns")
    assert read(tmp_path / "ncu.csv").kernels[0].time_ms == 1.2345


def test_rules_and_their_estimates(tmp_path: Path) -> None:
    message = "Use @url:the guide:https://x.test/a#b@, and\nsee @section:Occupancy:Occupancy@."
    text = details(
        ["S", "Duration", "ns", "5"],
        ["S", "", "", "", "Tail", "OPT", message, "global", "12.5"],
        ["S", "", "", "", "Cache", "WRN", 'a "quoted", word', "local", "250"],
        ["S", "", "", "", "Note", "INF", "none", "", ""],
        ["S", "", "", "", "Broken", "ERR", "failed", "", ""],
    )
    (launch,) = launches(tmp_path, text)
    assert [(r.name, r.kind, r.message, r.scope, r.speedup_pct) for r in launch.rules] == [
        ("Tail", "OPT", "Use the guide (https://x.test/a#b), and see Occupancy.", "global", 12.5),
        ("Cache", "WRN", 'a "quoted", word', "local", 100.0),
        ("Note", "INF", "none", "", None),
    ]


def test_old_details_of_nv_nsight_cu_cli(tmp_path: Path) -> None:
    columns = [*OLD, *DETAILS[:4]]
    row = ["0", "77", "oven", "127.0.0.1", "stir", "2020-Apr-07 17:01:05", "1", "7"]
    text = quoted(
        columns,
        [*row, "GPU Speed Of Light", "Memory Frequency", "cycle/nsecond", "1.25"],
        [*row, "GPU Speed Of Light", "Duration", "nsecond", "2,500"],
        [*row, "Launch Statistics", "Block Size", "", "128"],
        [*row, "Launch Statistics", "Grid Size", "", "1,960"],
    ).replace(columns[-1] + '"\n', columns[-1] + '"\n\n')
    (launch,) = launches(tmp_path, text)
    assert (launch.launch, launch.metrics[TIME], launch.metrics["Memory Frequency"]) == (
        "(1960,1,1)x(128,1,1)",
        2500.0,
        1.25e9,
    )


def test_launches_of_details_are_told_apart(tmp_path: Path) -> None:
    def rows(time: str) -> list[list[str]]:
        return [["S", "Duration", "ns", time], ["S", "Elapsed Cycles", "cycle", "3"]]

    text = details(*rows("5")) + details(*rows("6"), number=1, head=False)
    # A second run: the same process number and ID, as containers have them, and the same time; then one without a head.
    text += details(*rows("5")) + details(*rows("5")) + details(*rows("6"), number=1, head=False)
    text += details(*rows("7"), head=False)
    found = [(x.number, x.metrics[TIME]) for x in launches(tmp_path, text)]
    assert found == [(0, 5.0), (1, 6.0), (0, 5.0), (0, 5.0), (1, 6.0), (0, 7.0)]


def test_two_processes_may_print_at_once(tmp_path: Path) -> None:
    def row(process: str, name: str, value: str) -> str:
        return quoted([*identity(0, "stir", process), "S", name, "ns", value])

    head = quoted([*HEAD, *DETAILS])
    text = (
        head
        + row("7", "Duration", "5")
        + head
        + row("8", "Duration", "6")
        + row("7", "a__b", "1")
        + row("8", "a__b", "2")
    )
    assert [x.metrics for x in launches(tmp_path, text)] == [{TIME: 5.0, "a__b": 1.0}, {TIME: 6.0, "a__b": 2.0}]


def test_a_table_without_ids(tmp_path: Path) -> None:
    text = quoted(
        ["Kernel Name", "Metric Name", "Metric Unit", "Metric Value"],
        ["stir", TIME, "ns", "5"],
        ["stir", "a__b", "", "1"],
        ["stir", TIME, "ns", "6"],
        ["fry", TIME, "ns", "7"],
    )
    found = [(x.number, x.kernel, x.launch, x.metrics[TIME]) for x in launches(tmp_path, text)]
    assert found == [(0, "stir", None, 5.0), (1, "stir", None, 6.0), (2, "fry", None, 7.0)]


# Ranges


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        ('1  "<default domain>:outer:none:none:none:none:none:none"', "outer"),
        (
            '16  "<default domain>:outer:none:none:none:none:none:none"  '
            '"<default domain>:down 0: aten::conv3d:none:none:none:none:none:none" ',
            "down 0: aten::conv3d",
        ),
        ('1  "<default domain>:two\nlines:none:none:none:none:none:none"', "two lines"),
        ('1  "mine:short"', "short"),
        ("5  <default domain>:bare:none:none:none:none:none:none", "bare"),
        ("", None),
        ('12  ""', None),
    ],
)
def test_the_innermost_range(tmp_path: Path, cell: str, name: str | None) -> None:
    text = quoted(
        [*HEAD[:4], PUSH_POP, *HEAD[4:], TIME],
        [*["" for _ in HEAD], "", "ns"],
        [*identity()[:4], cell, *identity()[4:], "5"],
    )
    (launch,) = launches(tmp_path, text)
    assert (launch.range, launch.metrics) == (name, {TIME: 5.0})


# Launches without a time, and files that are refused


def test_a_launch_without_a_time_stays(tmp_path: Path) -> None:
    trace = read(written(tmp_path, raw({TIME: ("2", "n/a"), "a__b": ("1", "1")}, ["ms", ""])))
    assert (trace.kernels[0].calls, trace.kernels[0].time_ms) == (2, 2.0)
    assert any(note.startswith("1 of 2 launches") for note in trace.notes)
    trace = read(written(tmp_path, raw({"a__b": ("1", "1")}, [""])))
    assert (trace.kernels[0].calls, trace.kernels[0].time_ms) == (2, 0.0)
    assert any(note.startswith("no launch has") for note in trace.notes)


def test_a_negative_time_does_not_count(tmp_path: Path) -> None:
    trace = read(written(tmp_path, raw({TIME: ("2", "-6", "3", "n/a")}, ["ms"])))
    assert (trace.kernels[0].calls, trace.kernels[0].time_ms) == (4, 5.0)
    assert any(note.startswith("1 launch has a negative") for note in trace.notes)
    assert any(note.startswith("1 of 4 launches has no") for note in trace.notes)
    trace = read(written(tmp_path, raw({TIME: ("-1", "-6", "3")}, ["ms"])))
    assert trace.kernels[0].time_ms == 3.0
    assert any(note.startswith("2 launches have a negative") for note in trace.notes)


def test_gpus_of_several_kinds_are_a_note(tmp_path: Path) -> None:
    trace = read(written(tmp_path, raw({NAME: ("X9", "Y2"), TIME: ("2", "3")}, ["", "ms"])))
    assert trace.device == "X9"
    assert any("X9, Y2" in note for note in trace.notes)


NO_PERMISSION = (
    f"{PROF}\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters "
    "on the target device 0.\n==PROF== Disconnected from process 77\n"
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["empty"]),
        ("\n\n", ["no table"]),
        ("loss 0.5\n", ["no table", "--page raw"]),
        (NO_PERMISSION, ["ERR_NVGPUCTRPERM", "does not have permission", "NVreg_RestrictProfilingToAdminUsers=0"]),
        (f"{PROF}\n==ERROR== Failed to find metric x__y\n", ["Failed to find metric x__y"]),
        (f"{PROF}\n==WARNING== No kernels were profiled.\n", ["No kernels were profiled."]),
        (raw({TIME: ()}, ["ms"]), ["no launch"]),
        ("==12== NVPROF is profiling process 12\n", ["nvprof"]),
        ('"Type","Time(%)","Time","Calls"\n', ["nvprof"]),
        ("  stir (5, 1, 3)x(64, 2, 1)\n    Section: GPU Speed Of Light\n", ["printed page", "--page raw"]),
        (quoted(["Kernel Name", "Invocations", "Metric Name", "Minimum"], ["stir", "4", TIME, "1"]), ["summary"]),
        (b"SQLite format 3\0" + bytes(90), ["SQLite"]),
        (b"\x7fELF\0\0\0", ["neither a report"]),
        (gzip.compress(b"x" * 5000, mtime=0)[:-12], ["truncated"]),
        (b"\x1f\x8b\x08\0no gzip at all", ["cannot be unpacked"]),
    ],
)
def test_files_without_launches_are_refused(tmp_path: Path, text: str | bytes, words: list[str]) -> None:
    refused(tmp_path, text, *words)


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    for path, words in ((tmp_path / "absent.csv", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(UserError) as error:
            read(path)
        one_line(error, str(path), words)


def test_no_letter_of_a_file_reaches_the_terminal(tmp_path: Path) -> None:
    text = raw({NAME: ("X\x1b[31m",), TIME: ("1",)}, ["", "ms"], "st\x1b[2Jir\x07")
    (launch,) = launches(tmp_path, text)
    assert launch.kernel.isprintable()
    assert launch.device is not None
    assert launch.device.isprintable()
    refused(tmp_path, "==ERROR== \x1b[2J gone\n", "gone")


# Names


def test_demangle() -> None:
    assert demangle(MANGLED) == DEMANGLED
    for name in ("stir", "f", "_Z", "_Znonsense", "void cave::stir<float>(int)", MANGLED + "\0x", ""):
        assert demangle(name) == name


def test_demangle_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demangling, "_library", lambda: None)
    assert demangle.__wrapped__(MANGLED) == MANGLED


def test_launch_text() -> None:
    assert launch_text((1, 2, 3), (4.0, 5, 6)) == "(1,2,3)x(4,5,6)"
    for grid in ((), (0, 0, 0), (1, 2), (1, None, 1)):
        assert launch_text(grid, (1, 1, 1)) is None


# Reports


class Kind(IntEnum):
    NONE = 0
    OK = 1
    OPTIMIZATION = 2
    WARNING = 3
    ERROR = 4


class Speedup(IntEnum):
    UNKNOWN = 0
    LOCAL = 1
    GLOBAL = 2


class FakeMetric:
    def __init__(self, value: float | str, unit: str = "", has: bool = True) -> None:
        self.value, self.unit, self.has_value = (lambda: value), (lambda: unit), (lambda: has)
        self.as_string = lambda: str(value)


class FakeRule:
    def __init__(self, kind: Kind, message: str, estimate: tuple[Speedup, float] | None = None) -> None:
        self.rule_identifier = self.name = lambda: "Tail"
        self.has_rule_message = lambda: bool(message)
        self.rule_message = lambda: {"title": "Tail effect", "message": message, "type": int(kind)}
        self.has_speedup_estimation = lambda: estimate is not None
        self.speedup_estimation = lambda: dict(zip(("type", "speedup"), map(float, estimate or ()), strict=False))


class FakeAction:
    NameBase_MANGLED = 2

    def __init__(self, names: dict[int | None, str], found: dict[str, FakeMetric], **more: object) -> None:
        self.names, self.found, self.more = names, found, more

    def name(self, base: int | None = None) -> str:
        return self.names[base]

    def metric_names(self) -> tuple[str, ...]:
        return tuple(self.found)

    def metric_by_name(self, name: str) -> FakeMetric | None:
        return self.found.get(name)

    def nvtx_state(self) -> object:
        stacks = self.more.get("stacks")
        if stacks is None:
            return None
        domains = {
            number: SimpleNamespace(push_pop_ranges=lambda stack=stack: stack) for number, stack in enumerate(stacks)
        }
        return SimpleNamespace(domains=lambda: tuple(domains), domain_by_id=domains.__getitem__)

    def rule_results(self) -> object:
        return self.more.get("rules", ())


def fake(monkeypatch: pytest.MonkeyPatch, *ranges: list[FakeAction], load: object = None) -> list[Path]:
    """A package of the same shape, for which every file is this report."""
    seen: list[Path] = []

    def load_report(name: str) -> object:
        seen.append(Path(name))
        assert Path(name).is_file()
        if load:
            raise load
        parts = [SimpleNamespace(num_actions=lambda r=r: len(r), action_by_idx=r.__getitem__) for r in ranges]
        return SimpleNamespace(num_ranges=lambda: len(parts), range_by_idx=parts.__getitem__)

    module = SimpleNamespace(load_report=load_report, MsgType=Kind, SpeedupType=Speedup)
    monkeypatch.setitem(sys.modules, "ncu_report", module)
    return seen


def action(**more: object) -> FakeAction:
    found = {
        f"launch__{what}_dim_{axis}": FakeMetric(size)
        for what, sizes in (("grid", (5, 1, 3)), ("block", (64, 2, 1)))
        for axis, size in zip("xyz", sizes, strict=True)
    }
    found |= {
        TIME: FakeMetric(2500.0, "nsecond"),
        "a__b": FakeMetric(float("nan")),
        "c__d": FakeMetric(0.0, "", False),
        "launch__func_cache_config": FakeMetric("CachePreferNone"),
        "dram__bytes.sum": FakeMetric(3, "Kbyte"),
        NAME: FakeMetric("NVIDIA X9"),
    }
    return FakeAction({2: MANGLED, None: "stir"}, found, **more)


def test_a_launch_of_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = (
        FakeRule(Kind.OPTIMIZATION, "grow @section:Occupancy:the grid@", (Speedup.GLOBAL, 12.5)),
        FakeRule(Kind.WARNING, "look", (Speedup.LOCAL, 140.0)),
        FakeRule(Kind.OK, "well"),
        FakeRule(Kind.ERROR, "failed"),
        FakeRule(Kind.OK, ""),
    )
    fake(monkeypatch, [action(rules=rules, stacks=[("outer", "down 0: a"), ()])], [action(stacks=[()])])
    first, second = read_launches(written(tmp_path, "whatever", "a.ncu-rep"))
    assert (first.number, first.kernel, first.launch) == (0, DEMANGLED, "(5,1,3)x(64,2,1)")
    assert (first.device, first.range) == ("NVIDIA X9", "down 0: a")
    assert {TIME: 2500.0, "dram__bytes.sum": 3000.0}.items() <= first.metrics.items()
    assert not {"a__b", "c__d", "launch__func_cache_config", NAME} & set(first.metrics)
    assert (first.units[TIME], first.units["dram__bytes.sum"]) == ("ns", "byte")
    assert [(r.name, r.kind, r.message, r.scope, r.speedup_pct) for r in first.rules] == [
        ("Tail", "OPT", "grow the grid", "global", 12.5),
        ("Tail", "WRN", "look", "local", 100.0),
        ("Tail", "INF", "well", "", None),
    ]
    assert (second.number, second.range, second.rules) == (1, None, ())
    trace = read(tmp_path / "a.ncu-rep")
    assert [(k.calls, k.time_ms) for k in trace.kernels] == [(2, 0.005)]
    assert trace.device == "NVIDIA X9"


def test_a_packed_report_goes_through_a_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = fake(monkeypatch, [action()])
    # By what it is, not by its name.
    path = written(tmp_path, gzip.compress(b"NVR\0 and more", mtime=0), "a.bin")
    assert len(read_launches(path)) == 1
    assert seen[0].suffix == ".ncu-rep"
    assert not seen[0].exists()


def test_reports_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for ranges in ([], [[]]):
        fake(monkeypatch, *ranges)
        refused(tmp_path, "hello", "no launch", name="a.ncu-rep")
    # A damaged report has names that are none.
    broken = action(stacks=[(None,)], rules=(FakeRule(Kind.OK, "x"),))
    broken.names = {2: None, None: None}
    broken.found[NAME].as_string = lambda: None
    fake(monkeypatch, [broken])
    (launch,) = launches(tmp_path, "hello", "a.ncu-rep")
    assert (launch.kernel, launch.device, launch.range) == ("?", None, None)
    fake(monkeypatch, load=RuntimeError("bad\nblock"))
    refused(tmp_path, "hello", "cannot be loaded: bad block", name="a.ncu-rep")
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    refused(tmp_path, "hello", "pip install ncu-report", "ncu --import a.ncu-rep --csv --page raw", name="a.ncu-rep")


def test_the_real_package_refuses_what_is_no_report(tmp_path: Path) -> None:
    pytest.importorskip("ncu_report")
    for content in (b"hello", b"NVR\0", b"NVR\0" + bytes(range(256)), gzip.compress(b"hello", mtime=0)):
        refused(tmp_path, content, "no launch", name="a.ncu-rep")


def test_the_limit_of_other_tables_is_left_as_it_was(tmp_path: Path) -> None:
    before = csv.field_size_limit()
    with pytest.raises(UserError):
        read_launches(written(tmp_path, b"no table"))
    assert csv.field_size_limit() == before


def test_readers_load_nothing_heavy() -> None:
    names = ("ncu_files", "ncu_csv", "ncu_report_file")
    code = "; ".join(f"import meddpm.profiling.readers.{name}" for name in names)
    code += "; import sys; print(sorted({'torch', 'ncu_report'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Real files


def test_the_files_of_an_h200() -> None:
    for name, count in (("fp32", 390), ("tf32", 511)):
        path = shared(f"profiles/ncu/h200_forward_{name}_raw.csv.gz")
        found = read_launches(path)
        assert len(found) == count
        assert all(x.launch and duration_ms(x) and len(x.metrics) > 250 for x in found)
        trace = read(path)
        assert trace.device == "NVIDIA H200"
        assert sum(k.calls for k in trace.kernels) == count


def test_the_details_of_a_b200() -> None:
    (launch,) = read_launches(shared("profiles/ncu/cublaslt_ncu_B200_details.log"))
    assert launch.metrics[TIME] == 406240.0
    assert Counter(rule.scope for rule in launch.rules) == {"": 2, "global": 5, "local": 1}
