"""python -m meddpm kernels: which reader takes a file, what is printed at which width, comparisons, the CSV."""

import csv
import errno
import gzip
import json
import logging
import math
import os
import re
import sqlite3
import subprocess
import sys
import time
from io import BytesIO, StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from meddpm.cli import app
from meddpm.config import UserError, repository_root
from meddpm.profiling import comparing, kernel_csv
from meddpm.profiling.names import family, short
from meddpm.profiling.readers import kineto, ncu_files, nsys_file, reading
from meddpm.profiling.taxonomy import taxonomy
from meddpm.profiling.trace import Kernel, MarkedRange, Occupied, Trace
from meddpm.report.kernel_table import print_files
from meddpm.report.numbers import NOT_MEASURED
from tests.unit.files_fixture import one_line, shared

XMMA = "sm80_xmma_fprop_implicit_gemm_{}_tilesize{}_stage3_warpsize2x2x1_g1_{}_execute_kernel__5x_cudnn"
FP32 = XMMA.format("f32f32_f32f32_f32_nchwkcrs_nchw", "64x32x8", "ffma_aligna4_alignc4")
TF32 = XMMA.format("tf32f32_tf32f32_f32_nhwckrsc_nchw", "128x64x32", "tensor16x8x8")
NORM = "void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float>(long, float, float const*, float*)"
ADD = (
    "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::CUDAFunctor_add<float> "
    ">(at::TensorIteratorBase&, at::native::CUDAFunctor_add<float> const&)::{lambda(int)#1}>(int, int)"
)
SHAPE = "(4,2,1)x(128,1,1)"


def trace(*kernels: tuple[str, int, float], profiler: str = "torch", **more: object) -> Trace:
    """A trace of kernels of one launch shape: name, calls, ms."""
    found = [Kernel(name, SHAPE, calls, time) for name, calls, time in kernels]
    return Trace(profiler, tuple(sorted(found, key=lambda kernel: -kernel.time_ms)), **{"on_gpu": True, **more})


PLAIN = {ord(NOT_MEASURED): "none", ord("\N{MULTIPLICATION SIGN}"): "x"}
BEFORE = trace((FP32, 6, 30.0), (NORM, 4, 8.0), (ADD, 5, 2.0), device="GPU A")
AFTER = trace((TF32, 6, 5.0), (NORM, 4, 8.5), ("nchwToNhwcKernel", 12, 3.0), ("mystery", 1, 0.5), device="GPU A")


def printed(*traces: Trace, width: int = 120, top: int = 20, colour: bool = False) -> str:
    """What a terminal of some width gets."""
    stream = StringIO()
    system = "standard" if colour else None
    console = Console(file=stream, width=width, highlight=False, force_terminal=colour, color_system=system)
    print_files([(Path(f"{number}.json"), seen) for number, seen in enumerate(traces)], top, console)
    return stream.getvalue()


def words(text: str) -> str:
    """The text on one line, in plain letters."""
    return " ".join(text.split()).translate(PLAIN)


def kernels(*arguments: str | Path) -> Result:
    """The result of the command; a fault that the user can mend is raised."""
    result = CliRunner().invoke(app, ["kernels", *map(str, arguments)])
    if isinstance(result.exception, UserError):
        raise result.exception
    return result


def event(name: str, start: float, duration: float, **arguments: object) -> dict[str, object]:
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "pid": 0,
        "tid": 7,
        "ts": start,
        "dur": duration,
        "args": arguments,
    }


def torch_file(path: Path, *events: dict[str, object], packed: bool = False) -> Path:
    text = json.dumps(
        {"schemaVersion": 1, "traceEvents": list(events) or [event(FP32, 0, 2500), event(NORM, 3000, 500)]}
    )
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    return path


def ncu_file(path: Path, before: str = "", packed: bool = False) -> Path:
    header = '"ID","Kernel Name","Block Size","Grid Size","gpu__time_duration.sum"\n"","","","","us"\n'
    text = before + header + f'"0","{TF32}","(128, 1, 1)","(4, 2, 1)","1,250.5"\n'
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    return path


def nsys_file_at(path: Path) -> Path:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE StringIds (id, value)")
    connection.execute("INSERT INTO StringIds VALUES (1, 'add_kernel')")
    connection.execute('CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, "end", demangledName)')
    connection.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000000, 4000000, 1)")
    connection.commit()
    connection.close()
    return path


# Which reader


@pytest.mark.parametrize("name", ["plain", "a.json", "a.csv", "a.sqlite", "a.ncu-rep"])
def test_the_content_chooses_the_reader_and_not_the_name(tmp_path, name):
    assert reading.read(torch_file(tmp_path / name)) == kineto.read(tmp_path / name)
    torch_file(tmp_path / name, packed=True)
    assert reading.read(tmp_path / name).profiler == "torch"
    (tmp_path / name).unlink()
    assert reading.read(nsys_file_at(tmp_path / name)) == nsys_file.read(tmp_path / name)
    (tmp_path / name).write_bytes(gzip.compress((tmp_path / name).read_bytes()))
    assert reading.read(tmp_path / name).profiler == "nsys"
    if not name.endswith("rep"):
        assert reading.read(ncu_file(tmp_path / name)) == ncu_files.read(tmp_path / name)
        assert reading.read(ncu_file(tmp_path / name, packed=True)).kernels[0].time_ms == pytest.approx(1.2505)


def test_a_trace_may_begin_with_a_mark_or_space_and_be_a_list(tmp_path):
    path = tmp_path / "t"
    path.write_text(f'\ufeff \n{{"traceEvents": [{json.dumps(event(ADD, 0, 1))}]}}', encoding="utf-8")
    assert reading.read(path).kernels[0].name == ADD
    path.write_text(f"\n[ {json.dumps(event(ADD, 0, 1))}]")
    assert reading.read(path).profiler == "torch"


@pytest.mark.parametrize("before", ["[rank0] hello\n", '{"loss": 1}\n==PROF== Connected to process 7\n', "{'a': 1}\n"])
def test_what_a_program_printed_before_the_table_of_ncu_is_no_trace(tmp_path, before):
    assert reading.read(ncu_file(tmp_path / "log", before)).profiler == "ncu"


def test_much_space_before_the_content_costs_no_time(tmp_path):
    begin = time.monotonic()
    for space in ("\n" * 60_000, " " * 200_000, " \n\r\n" * 60_000):
        assert reading._reader(tmp_path, reading._head(BytesIO(f'{space}{{ "a": 1'.encode()))) == kineto.read
        text = f'{space}"ID","Kernel Name"\n'.encode()
        assert reading._reader(tmp_path, reading._head(BytesIO(text))) == ncu_files.read
        for begun in ("x", "{", "["):
            head = f"{begun}{space}{'y' * 9}==PROF== z".encode()[: reading.HEAD]
            reading.JSON.match(head), reading.OF_NCU.search(head), reading.MAYBE_NCU.search(head)
    assert time.monotonic() - begin < 1
    (tmp_path / "t.json").write_text(" " * 200_000)
    with pytest.raises(UserError, match="the file is empty"):
        reading.read(tmp_path / "t.json")


def test_a_program_may_print_much_after_space_before_the_table_of_ncu(tmp_path):
    before = "\n" + "what the program says\n" * 10_000
    assert reading.read(ncu_file(tmp_path / "log", before)).profiler == "ncu"


def test_a_report_of_ncu_goes_to_its_reader(tmp_path, monkeypatch):
    monkeypatch.setattr(ncu_files, "read", lambda path: f"ncu reads {path.name}")
    (tmp_path / "x.json").write_bytes(b"NVR\0 and so on")
    assert reading.read(tmp_path / "x.json") == "ncu reads x.json"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("r.nsys-rep", b"\0\1\2\3", "right would be its SQLite export: nsys export --type sqlite r.nsys-rep"),
        ("r.qdrep.gz", gzip.compress(b"\0\1\2\3", mtime=0), "nsys export --type sqlite r.qdrep"),
        ("t.json", b"", "the file is empty"),
        ("t.json.gz", gzip.compress(b"", mtime=0), "the file is empty"),
        ("t.json", b"\n \n", "is empty"),
        ("t.json.gz", gzip.compress(b'{"traceEvents": []}' * 99, mtime=0)[:30], "truncated"),
        ("t.json", b'{"traceEvents": [{"ph"', "truncated"),
        ("wide.json", '{"traceEvents": []}'.encode("utf-16"), "UTF-16"),
        ("big.json", "[{}]".encode("utf-16-be"), "UTF-16"),
        ("t.json", b'{"a": 1}', "no events"),
        ("t.zip", b"PK\x03\x04rest", "packed as ZIP; unpack it"),
        ("t.json.gz", gzip.compress(gzip.compress(b"{}", mtime=0), mtime=0), "packed as gzip (twice); unpack it"),
        ("notes.txt", b"what I saw\n", "no file of a profiler that is known; right would be a trace of torch.profiler"),
        ("core", b"\x7fELF\0\0", "no file of a profiler that is known"),
        ("x.csv", b"==PROF== Connected\n==ERROR== it broke\n", "Nsight Compute said: it broke"),
        ("k.csv", b"model,gpu,variant,phase,profiler,kernel,category,precision\n", "a kernel table already"),
        ("red\x1b[31m.json", b"{}", "red?[31m.json: the file has no events"),
    ],
)
def test_what_is_no_file_of_a_profiler_is_one_line(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as error:
        kernels(tmp_path / name)
    one_line(error, said)


def test_folders_pipes_and_missing_files_are_one_line(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, said in (
        (tmp_path, "a folder"),
        (tmp_path / "pipe", "no regular file"),
        (tmp_path / "no", "No such file"),
    ):
        with pytest.raises(UserError) as error:
            kernels(path)
        one_line(error, said, str(path))


def test_a_long_read_shows_that_it_lives(tmp_path, monkeypatch, caplog):
    def slow(path):
        time.sleep(0.2)
        return BEFORE

    monkeypatch.setattr(reading, "EVERY_S", 0.05)
    monkeypatch.setattr(kineto, "read", slow)
    with caplog.at_level(logging.INFO, "meddpm"):
        reading.read(torch_file(tmp_path / "t.json"))
    assert 2 <= len(caplog.records) <= 4
    assert re.fullmatch(r"reading \S+/t\.json \(0\.00\d+ MB\), 0 s", caplog.records[0].getMessage())
    time.sleep(0.1)
    assert len(caplog.records) <= 4, "the file has been read"


# Names


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (NORM, "RowwiseMomentsCUDAKernel"),
        (ADD, "elementwise_kernel: CUDAFunctor_add"),
        (FP32, FP32),
        ("std::enable_if<(2>1), void>::type internal::gemvx::kernel<int, 7>(int)", "gemvx::kernel"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_9x9>(cutlass_80::Params)", "Kernel2: cutlass_80_simt_sgemm_9x9"),
        ("void at::<unnamed>::fold<float>(const T1 *)", "fold"),
        ("_Z3addPfi", "add"),
        ("void a::cut_short<float, b::c<d", "cut_short"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        ("aten::_to_copy", "aten::_to_copy"),
        ("enumerate(DataLoader)#_Iter.__next__", "enumerate(DataLoader)#_Iter.__next__"),
        ("", ""),
        ("<<<(((", "<<<((("),
        ("odd [one [two", "odd [one [two"),
    ],
)
def test_short_names(name, expected):
    assert short(name) == expected


def test_families_have_no_types_tiles_or_layouts():
    assert family(FP32) == family(TF32) == "xmma_fprop_implicit_gemm_cudnn"
    assert family("ampere_sgemm_32x32_sliced1x4_tn") == family("ampere_bf16_s16816gemm_bf16_64x64_ldg8_stages_64x5_nn")
    assert family("nvjet_tst_192x208_64x4_1x1_h_bz_TNT") == family("nvjet_hsh_64x8_64x16_4x1_v_bz_TNN") == "nvjet"
    assert family("triton_poi_fused_silu_add_17") == "triton_poi_fused_silu_add"
    assert family(ADD) == "elementwise_kernel: CUDAFunctor_add"
    for name in ("aten::add_", "aten::_to_copy", "Memset (Device)", "detach_", "f32"):
        assert family(name) == name


@pytest.mark.parametrize(
    "name", ["_execute_" * 9000, "f<cutlass" + "_" * 9000 + ">(int)", "_execute_a" * 9000 + "kernel"]
)
def test_names_of_any_length_have_a_family_in_no_time(name):
    begin = time.monotonic()
    assert family(name)
    assert time.monotonic() - begin < 0.5


# One file


def test_categories_add_up_to_the_total():
    for seen in (BEFORE, AFTER):
        parts, whole = comparing.by_category(seen), comparing.total(seen)
        assert sum(part.kernels for part in parts.values()) == whole.kernels == len(seen.kernels)
        assert sum(part.calls for part in parts.values()) == whole.calls
        assert math.isclose(sum(part.time_ms for part in parts.values()), whole.time_ms)
        times = [part.time_ms for part in parts.values()]
        assert times == sorted(times, reverse=True)


def test_one_file_is_categories_kernels_busy_ranges_and_what_is_not_known():
    busy = Occupied(50.0, 40.0, 3, 0.5, 9.0)
    ranges = tuple(MarkedRange(f"down {number}", 2, 7, 1.0 + number) for number in range(12))
    text = words(printed(trace((FP32, 6, 30.0), (NORM, 4, 9.0), ("mystery", 1, 1.0), occupied=busy, ranges=ranges)))
    assert "kernels, copies and fills: 40.000 ms in 11 launches" in text
    assert "GPU busy 40.000 of 50.000 ms (80.0 %), idle 10.000 ms in 3 gaps, median 0.500 ms, longest 9.000 ms" in text
    assert "convolution forward 1 6 30.000 75.0 %" in text
    assert "all 3 11 40.000 100.0 %" in text
    assert f"RowwiseMomentsCUDAKernel normalisation, fp32, {SHAPE} 4 9.000 22.5 %" in text
    assert f"convolution forward, fp32, implicit GEMM, {SHAPE} 6 30.000 75.0 %" in text
    assert "down 11 7 2 12.000 30.0 %" in text
    assert "down 2 7" in text
    assert "down 1 7" not in text
    assert "2 ranges more" in text
    assert "unclassified (category other): 2.5 % of the time, mystery" in text
    assert "add up to" not in text


def test_top_says_what_it_leaves_out():
    text = words(printed(BEFORE, top=1))
    assert "2 more, 10.000 ms (25.0 %); --top 3 prints all" in text
    assert "RowwiseMoments" not in text
    assert "Rowwise" in printed(BEFORE, top=3)
    assert "more" not in printed(BEFORE, top=3)
    assert "3 more" in printed(BEFORE, top=0)


def test_a_file_without_gpu_work_says_so():
    seen = Trace("torch", (Kernel("aten::conv3d", None, 2, 5.0),), on_gpu=False)
    text = words(printed(seen))
    assert "no work of a GPU: operators of the CPU" in text
    assert "operator, category calls ms share aten::conv3d convolution forward 2 5.000 100.0 %" in text
    assert "busy" not in text


def test_kernels_that_ran_at_once_are_said_in_words():
    assert comparing.overlap(trace(("a", 1, 10.0), occupied=Occupied(12.0, 10.0, 1, 2.0, 2.0))) is None
    busy = Occupied(12.0, 8.0, 1, 2.0, 2.0)
    assert "1.25 times the busy time: kernels ran at once" in comparing.overlap(trace(("a", 1, 10.0), occupied=busy))
    assert "more than the time that passed (20.000 against 12.000 ms)" in words(
        printed(trace(("a", 1, 20.0), occupied=busy))
    )


def test_times_that_are_not_known_are_no_shares():
    text = words(printed(trace(("a_kernel", 3, 0.0), profiler="ncu")))
    assert "all 1 3 0.000 none" in text
    assert "how busy the GPU was is not in the file" in text


@pytest.mark.parametrize("width", [50, 80, 109, 110, 149, 150, 200])
@pytest.mark.parametrize("traces", [[BEFORE], [BEFORE, AFTER]])
def test_no_line_is_wider_than_the_terminal_or_has_colour_in_a_pipe(width, traces):
    notes = ("a note of many words " * 9, "\x1b[31m[bold]odd[/bold]")
    huge = [Kernel(f"\x1b[31m[red]{'n' * 300}", "(1,1,1)x(1,1,1)", 10**5, 1e5 * number) for number in (1, 2)]
    traces = [
        Trace("nsys", (kernel, *seen.kernels), True, notes=notes, device="x" * 20)
        for kernel, seen in zip(huge, traces, strict=False)
    ]
    text = printed(*traces, width=width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)
    assert "\x1b" not in text
    assert "[red]nnn" in text
    assert "[bold]odd[/bold]" in text
    coloured = printed(*traces, width=width, colour=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == text


def test_a_wide_terminal_has_a_column_for_each_word_and_a_narrow_one_a_line_for_the_name():
    wide = next(line for line in printed(BEFORE, width=200).splitlines() if line.startswith("sm80"))
    assert wide.split()[1:] == [
        "convolution",
        "forward",
        "fp32",
        "implicit",
        "GEMM",
        SHAPE,
        "6",
        "30.000",
        *["75.0", "%"],
    ]
    narrow = [line for line in printed(BEFORE, width=80).splitlines() if line.startswith("sm80")]
    assert narrow == [FP32[:79] + "…"]


def test_more_than_two_files_are_not_compared():
    text = printed(BEFORE, AFTER, BEFORE)
    assert text.count("unclassified") == 3
    assert "3 files one after another; name two of them" in text
    assert "saved" not in text


# Two files


def test_a_comparison_aligns_categories_families_and_kernels():
    changes = comparing.compare(BEFORE, AFTER)
    saved = {change.name: change.saved_ms for change in changes.categories}
    assert saved == {
        **{"convolution forward": 25.0, "elementwise": 2.0, "normalisation": -0.5, "other": -0.5},
        "layout conversion": -3.0,
    }
    assert list(saved.values()) == sorted(saved.values(), reverse=True)
    assert sum(saved.values()) == pytest.approx(comparing.total(BEFORE).time_ms - comparing.total(AFTER).time_ms)
    convolution = changes.families[0]
    assert (convolution.name, convolution.before.time_ms, convolution.after.time_ms) == (family(FP32), 30.0, 5.0)
    sides = {change.name: (change.before is None, change.after is None) for change in changes.kernels}
    assert sides[FP32] == (False, True)
    assert sides[TF32] == (True, False)
    assert sides[NORM] == (False, False)
    for part in (changes.categories, changes.families, changes.kernels):
        assert sum(change.saved_ms for change in part) == pytest.approx(23.0)


def test_kernels_of_another_launch_shape_are_others():
    other = Trace("torch", (Kernel(NORM, "(9,1,1)x(32,1,1)", 4, 1.0),), True)
    changes = comparing.compare(trace((NORM, 4, 8.0)), other)
    assert [(change.launch, change.saved_ms) for change in changes.kernels] == [
        (SHAPE, 8.0),
        ("(9,1,1)x(32,1,1)", -1.0),
    ]
    assert len(changes.families) == 1


def test_a_comparison_is_printed_the_most_time_saved_first():
    lines = printed(BEFORE, AFTER, width=200).splitlines()
    text = words("\n".join(lines))
    assert "kernel time, ms 40.000 17.000 2.35x" in text
    assert "launches 15 23 0.652x" in text
    assert "convolution forward 30.000 5.000 25.000 6.00x 6" in text
    assert "layout conversion none 3.000 -3.000 only after 0 to 12" in text
    assert f"RowwiseMomentsCUDAKernel {SHAPE} normalisation 8.000 8.500 -0.500 0.941x 4" in text
    exact = lines[next(number for number, line in enumerate(lines) if line.startswith("kernel   ")) + 1 :]
    starts = ["sm80", "elementwise", "RowwiseMoments", "mystery", "nchwToNhwc", "sm80"]
    assert [line.startswith(start) for line, start in zip(exact, starts, strict=False)] == [True] * 6
    assert "only before" in exact[0]
    assert "only after" in exact[5]
    assert "warning" not in text


def test_the_largest_changes_are_shown_whichever_way_they_go():
    text = words(printed(BEFORE, AFTER, top=2, width=200))
    assert "4 kernels more with smaller changes or none, which together take 2.000 ms longer" in text
    kernel_table = text.partition("kernel launch")[2]
    assert "sm80_xmma_fprop_implicit_gemm_f32f32" in kernel_table
    assert "sm80_xmma_fprop_implicit_gemm_tf32f32" in kernel_table
    assert "nchwToNhwc" not in kernel_table
    same = words(printed(BEFORE, BEFORE))
    assert "3 kernels with smaller changes or none, which together change nothing" in same


def test_busy_and_idle_are_compared_where_a_file_tells():
    old = trace((NORM, 4, 8.0), occupied=Occupied(20.0, 8.0, 3, 1.0, 2.0))
    text = words(printed(old, trace((NORM, 4, 2.0), occupied=Occupied(6.0, 2.0, 3, 1.0, 2.0))))
    assert "GPU busy, ms 8.000 2.000 4.00x" in text
    assert "GPU idle, ms 12.000 4.000 3.00x" in text
    assert "first start to last end, ms 20.000 6.000 3.33x" in text
    assert "GPU busy, ms 8.000 none none" in words(printed(old, trace((NORM, 4, 2.0), profiler="ncu")))


def test_what_cannot_be_compared_is_a_warning():
    def warned(old: Trace, new: Trace) -> str:
        return " | ".join(comparing.compare(old, new).warnings)

    assert warned(BEFORE, AFTER) == ""
    assert "two profilers" in warned(BEFORE, trace((NORM, 4, 8.0), profiler="nsys"))
    assert "one by one" not in warned(BEFORE, trace((NORM, 4, 8.0), profiler="nsys"))
    assert "one by one" in warned(BEFORE, trace((NORM, 4, 8.0), profiler="ncu"))
    assert "operators of a CPU" in warned(BEFORE, trace((NORM, 4, 8.0), on_gpu=False))
    assert "GPU A, then GPU B" in warned(BEFORE, trace((NORM, 4, 8.0), device="GPU B"))
    text = words(printed(BEFORE, trace((NORM, 4, 8.0), profiler="ncu")))
    assert "warning: the files are of two profilers" in text


def test_another_number_of_steps_is_suspected():
    def times(*calls: int) -> str:
        new = trace(*((kernel.name, number, 1.0) for kernel, number in zip(BEFORE.kernels, calls, strict=True)))
        return " | ".join(comparing.compare(BEFORE, new).warnings)

    assert [kernel.calls for kernel in BEFORE.kernels] == [6, 4, 5]
    assert "launched 3 times as often in the second" in times(18, 12, 15)
    four, two = (trace(*((name, calls, 1.0) for name in "abc")) for calls in (4, 2))
    assert "launched 1/2 times" in " ".join(comparing.compare(four, two).warnings)
    assert times(6, 4, 5) == ""
    assert times(18, 12, 5) == ""
    few = comparing.compare(trace(("a", 1, 1.0), ("b", 1, 1.0)), trace(("a", 2, 1.0), ("b", 2, 1.0)))
    assert few.warnings == ()


# The command and its CSV


def test_the_command_prints_and_writes_every_kernel_of_all_files(tmp_path):
    first, second = torch_file(tmp_path / "a.json.gz", packed=True), ncu_file(tmp_path / "b.csv")
    out = tmp_path / "table.csv"
    result = kernels(first, second, "--out", out, "--top", "1")
    assert result.exit_code == 0
    assert "before: " in result.stdout
    assert words(result.stdout).endswith(f"Every kernel with its whole name: {out}")
    with open(out, newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert ",".join(rows[0]) == "file,profiler,kernel,category,precision,detail,launch,calls,time_ms,share"
    assert [(row["file"], row["profiler"], row["kernel"]) for row in rows] == [
        *[(str(first), "torch", name) for name in (FP32, NORM)],
        (str(second), "ncu", TF32),
    ]
    assert [(float(row["time_ms"]), row["calls"], row["precision"]) for row in rows] == [
        *[(2.5, "1", "fp32"), (0.5, "1", "fp32")],
        (1.2505, "1", "tf32"),
    ]
    assert rows[0]["launch"] == ""
    assert rows[2]["launch"] == SHAPE
    kernels(second, "--out", out)
    assert len(out.read_text().splitlines()) == 2, "a table of its own is replaced"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json.gz", "b.csv", "table.csv"]


def test_odd_names_do_not_break_the_csv_or_the_terminal(tmp_path):
    odd = os.fsdecode(b"odd\xff.json")
    try:
        torch_file(tmp_path / odd, event('a\x1b[31m,"b"\n[red]\ud800', 0, 1))
    except OSError:
        pytest.skip("this file system takes no such name")
    result = kernels(tmp_path / odd, "--out", tmp_path / "t.csv")
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    (row,) = csv.DictReader((tmp_path / "t.csv").read_text(encoding="utf-8").splitlines())
    assert row["file"].endswith("odd?.json")
    assert row["kernel"].startswith('a?[31m,"b"?[red]')


def test_out_replaces_nothing_that_is_not_its_own(tmp_path):
    mine, source = tmp_path / "mine.csv", torch_file(tmp_path / "t.json")
    (tmp_path / "dangling.csv").symlink_to("nowhere")
    for content in (b"", b"mine,profiler\n1,2\n", b"\xff\xfe\0", b'file,"', b"x" * 200_000):
        mine.write_bytes(content)
        for out in (mine, tmp_path, source, tmp_path / "dangling.csv", Path(os.devnull)):
            with pytest.raises(UserError) as error:
                kernels(source, "--out", out)
            one_line(error, f"--out: {out} is there and no table of this command; name another file")
        assert mine.read_bytes() == content
    with pytest.raises(UserError, match="in no folder that is there"):
        kernels(source, "--out", tmp_path / "no" / "t.csv")


@pytest.mark.parametrize("letters", [250, 300])
def test_a_name_that_is_too_long_is_one_line(tmp_path, monkeypatch, letters):
    monkeypatch.chdir(tmp_path)
    out = Path("y" * letters)
    with pytest.raises(UserError) as error:
        kernels(torch_file(tmp_path / "t.json"), "--out", out)
    assert str(error.value) == f"--out: {out}: {os.strerror(errno.ENAMETOOLONG)}; give it a shorter name"


@pytest.mark.parametrize(
    ("number", "said"), [(errno.ENOENT, "no file can be made there; name another file"), (errno.EINVAL, "Invalid")]
)
def test_a_folder_that_takes_no_files_is_one_line(tmp_path, monkeypatch, number, said):
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number), ".1.temporary")

    monkeypatch.setattr(kernel_csv, "write_csv", refuse)
    with pytest.raises(UserError) as error:
        kernels(torch_file(tmp_path / "t.json"), "--out", tmp_path / "t.csv")
    one_line(error, f"--out: {tmp_path}/t.csv: {said}")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_behind_the_output_is_one_line(tmp_path):
    command = [sys.executable, "-m", "meddpm", "kernels", str(torch_file(tmp_path / "t.json"))]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, cwd=repository_root(), check=False)
    assert done.returncode == 1
    assert done.stderr.decode() == "the output: No space left on device; make room or mend the permissions\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_lacks_letters_gets_plain_ones(tmp_path, encoding):
    path = torch_file(tmp_path / "t.json", event("\u043a" + "k" * 200, 0, 2500), event("t\u0113xt", 9, 1))
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    command = [sys.executable, "-m", "meddpm", "kernels", str(path), str(path)]
    for arguments in (command[:-1], command):
        done = subprocess.run(arguments, capture_output=True, env=environment, cwd=repository_root(), check=False)
        text = done.stdout.decode(encoding)
        assert done.returncode == 0, done.stderr
        assert arguments == command or all(part in text for part in ("?kkk", "k~", "text"))
    assert "1.00x" in text.replace("\N{MULTIPLICATION SIGN}", "x")
    assert max(map(len, text.splitlines())) <= 120 + len(str(path))


def test_a_full_disk_is_one_line(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kernel_csv, "write_csv", full)
    with pytest.raises(UserError) as error:
        kernels(torch_file(tmp_path / "t.json"), "--out", tmp_path / "t.csv")
    one_line(error, "--out: ", "t.csv: No space left on device")


def test_nothing_is_written_where_one_file_cannot_be_read(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        kernels(torch_file(tmp_path / "t.json"), tmp_path / "no.json", "--out", tmp_path / "t.csv")
    assert not (tmp_path / "t.csv").exists()


def test_the_docs_have_each_column_and_category():
    text = (repository_root() / "docs" / "profiling.md").read_text(encoding="utf-8")
    for name in kernel_csv.columns():
        assert f"| `{name}` |" in text
    for category in taxonomy().categories.values():
        assert f"| {category.name} | {category.description} |" in text


@pytest.mark.parametrize("kind", ["kineto", "ncu", "nsys"])
def test_every_real_file_has_a_table_that_adds_up(kind):
    folder = shared(f"profiles/{kind}")
    found = [(path, reading.read(path)) for path in sorted(folder.iterdir())]
    assert found
    for path, seen in found:
        assert seen.profiler == {"kineto": "torch"}.get(kind, kind)
        parts, whole = comparing.by_category(seen), comparing.total(seen)
        assert math.isclose(sum(part.time_ms for part in parts.values()), whole.time_ms, rel_tol=1e-9)
        assert path.name in words(printed(seen)).replace("0.json", path.name)


def test_the_real_fp32_and_tf32_convolutions_meet():
    old, new = (reading.read(shared(f"profiles/ncu/h200_forward_{name}_raw.csv.gz")) for name in ("fp32", "tf32"))
    changes = comparing.compare(old, new)
    assert changes.categories[0].name == "convolution forward"
    largest = changes.families[0]
    assert largest.name == "xmma_fprop_implicit_gemm_cudnn"
    assert largest.before.time_ms > 4 * largest.after.time_ms > 0
    assert changes.categories[-1].name == "layout conversion"
    assert changes.categories[-1].before is None
