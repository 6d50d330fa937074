"""Reading of torch.profiler traces, and making of them."""

import gzip
import json
import random
import re
import statistics
import tracemalloc
from array import array
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy  # noqa: F401  (what its import takes is no memory of a trace)
import pytest

from meddpm import tables
from meddpm.config import UserError
from meddpm.profiling import trace
from meddpm.profiling.readers import chrome_trace, kineto
from meddpm.profiling.taxonomy import OTHER
from meddpm.profiling.trace import Kernel, MarkedRange, Occupied, Trace

if TYPE_CHECKING:
    from meddpm.model.unet import UNet

PROFILES = Path(__file__).parents[2].parent / "shared" / "profiles"


def real_profile(name: str) -> Path:
    if not PROFILES.is_dir():
        pytest.skip("../shared is not here")
    return PROFILES / "kineto" / name


def range_(name: str, start: float, duration: float, category: str = "cpu_op", **fields: object) -> dict[str, object]:
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": duration, "pid": 1, "tid": 1, **fields}


def write_trace(path: Path, events: list[dict[str, object]]) -> Path:
    text = json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def rows_of(path: Path) -> list[tables.Row]:
    return trace.rows(kineto.read(path))


def times_ms(rows: list[tables.Row]) -> dict[str, float]:
    return {row["kernel"]: row["time_ms"] for row in rows}


def test_self_time_of_nested_operators(tmp_path: Path) -> None:
    path = write_trace(
        tmp_path / "trace.json",
        [
            # Not in order: the reader sorts.
            range_("aten::mkldnn_convolution", 20, 60),
            range_("aten::conv3d", 0, 100),
            range_("aten::convolution", 10, 80),
            range_("aten::silu", 100, 50),
            # The same moment on another thread is no child.
            range_("aten::copy_", 20, 7, tid=2),
            {"ph": "M", "name": "process_name", "pid": 1},
            {"ph": "i", "name": "Iteration Start", "ts": 1},
        ],
    )
    rows = rows_of(path)
    assert times_ms(rows) == pytest.approx(
        {
            "aten::mkldnn_convolution": 0.060,
            "aten::silu": 0.050,
            "aten::conv3d": 0.020,
            "aten::convolution": 0.020,
            "aten::copy_": 0.007,
        }
    )
    assert [row["time_ms"] for row in rows] == sorted((row["time_ms"] for row in rows), reverse=True)
    assert rows[0] == {
        "kernel": "aten::mkldnn_convolution",
        "category": "convolution forward",
        "precision": None,
        "detail": None,
        "launch": None,
        "calls": 1,
        "time_ms": pytest.approx(0.060),
        "share": pytest.approx(60 / 157),
    }


def test_operators_that_begin_with_their_parent_and_calls_are_counted(tmp_path: Path) -> None:
    events = [range_("inner", 0, 4), range_("outer", 0, 10), range_("outer", 10, 5)]
    rows = {row["kernel"]: row for row in rows_of(write_trace(tmp_path / "trace.json", events))}
    assert rows["outer"]["time_ms"] == pytest.approx(0.011)
    assert rows["outer"]["calls"] == 2
    assert rows["inner"]["calls"] == 1


def test_a_child_that_ends_after_its_parent_by_rounding() -> None:
    assert dict(kineto.self_times([range_("parent", 0, 10), range_("child", 6, 5)])) == {"parent": 6, "child": 5}


def test_cpu_operators_by_their_old_name(tmp_path: Path) -> None:
    events = [range_("aten::conv3d", 0, 10, "Operator"), range_("aten::mkldnn_convolution", 2, 7, "Operator")]
    rows = rows_of(write_trace(tmp_path / "trace.json", events))
    assert times_ms(rows) == {"aten::mkldnn_convolution": 0.007, "aten::conv3d": 0.003}


def test_ranges_of_the_profiler_and_of_the_user_are_left_out(tmp_path: Path) -> None:
    path = write_trace(
        tmp_path / "trace.json",
        [
            range_("ProfilerStep#3", 0, 100, "Operator"),
            range_("ProfilerStep#3", 0, 100, "user_annotation"),
            range_("my range", 0, 100, "user_annotation"),
            range_("PyTorch Profiler (0)", 0, 100, "Trace"),
            range_("aten::add", 10, 30),
        ],
    )
    rows = rows_of(path)
    assert times_ms(rows) == {"aten::add": 0.030}
    assert rows[0]["share"] == 1


@pytest.mark.parametrize(
    ("kernel", "copy", "fill"), [("kernel", "gpu_memcpy", "gpu_memset"), ("Kernel", "Memcpy", "Memset")]
)
def test_gpu_events_by_new_and_old_names(tmp_path: Path, kernel: str, copy: str, fill: str) -> None:
    small = {"grid": [1, 1, 1], "block": [128, 1, 1], "stream": 7}
    large = {"grid": [32, 4, 1], "block": [256, 1, 1], "stream": 7}
    path = write_trace(
        tmp_path / "trace.json.gz",
        [
            range_("sm90_xmma_fprop_tf32f32", 0, 50, kernel, args=large),
            range_("sm90_xmma_fprop_tf32f32", 50, 30, kernel, args=large),
            range_("sm90_xmma_fprop_tf32f32", 80, 10, kernel, args=small),
            range_("Memcpy HtoD (Pageable -> Device)", 90, 8, copy, args={"bytes": 4}),
            range_("Memset (Device)", 98, 2, fill),
            # The host's side of the same work: no kernel time.
            range_("aten::conv3d", 0, 1000),
            range_("cudaLaunchKernel", 0, 500, "cuda_runtime"),
            range_("ProfilerStep#1", 0, 100, "gpu_user_annotation"),
        ],
    )
    rows = rows_of(path)
    summary = [
        (row["kernel"][:6], row["launch"], row["calls"], round(row["time_ms"], 9), round(row["share"], 9))
        for row in rows
    ]
    assert summary == [
        ("sm90_x", "(32,4,1)x(256,1,1)", 2, 0.080, 0.80),
        ("sm90_x", "(1,1,1)x(128,1,1)", 1, 0.010, 0.10),
        ("Memcpy", None, 1, 0.008, 0.08),
        ("Memset", None, 1, 0.002, 0.02),
    ]
    assert [(row["category"], row["precision"]) for row in rows] == [
        ("convolution forward", "tf32"),
        ("convolution forward", "tf32"),
        ("copy and cast", None),
        ("memory set", None),
    ]


def test_rows_fit_the_kernels_table(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace.json", [range_("aten::add", 0, 3), range_("aten::zero", 5, 0)])
    cell = {"model": "m", "gpu": "g", "variant": "fp32", "phase": "sample", "profiler": "torch", "status": "ok"}
    tables.write("kernels", [cell | row for row in rows_of(path)], tmp_path / "kernels.csv")
    assert [row["time_ms"] for row in tables.read("kernels", tmp_path / "kernels.csv")] == [0.003, 0.0]


def test_share_is_empty_where_no_time_passed(tmp_path: Path) -> None:
    assert rows_of(write_trace(tmp_path / "trace.json", [range_("aten::add", 0, 0)]))[0]["share"] is None


def test_a_trace_that_is_a_bare_list(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(json.dumps([range_("aten::add", 0, 3)]))
    assert times_ms(rows_of(tmp_path / "trace.json")) == {"aten::add": 0.003}


WHOLE = json.dumps({"traceEvents": [range_("aten::add", 0, 3)] * 50}).encode()


@pytest.mark.parametrize(
    ("content", "word"),
    [
        pytest.param(WHOLE[: len(WHOLE) // 2], "truncated", id="truncated"),
        pytest.param(gzip.compress(WHOLE, mtime=0)[:-20], "truncated", id="truncated gzip"),
        pytest.param(gzip.compress(WHOLE[: len(WHOLE) // 2], mtime=0), "truncated", id="gzip of truncated"),
        pytest.param(gzip.compress(WHOLE, mtime=0)[:-8] + bytes(8), "cannot be read", id="gzip of another checksum"),
        # The deflate block type 3 does not exist.
        pytest.param(gzip.compress(WHOLE, mtime=0)[:10] + b"\x07" * 40, "cannot be read", id="damaged gzip"),
        pytest.param(gzip.compress(WHOLE, mtime=0) + b"garbage", "no gzip follow its", id="bytes behind gzip"),
        pytest.param(b"", "empty", id="empty"),
        pytest.param(b" \n", "empty", id="blank"),
        pytest.param(gzip.compress(b"", mtime=0), "empty", id="gzip of nothing"),
        pytest.param(b"==PROF== Connected", "no JSON", id="text"),
        pytest.param(b"\x89PNG\r\n\x1a\n\xff\xfe", "no JSON", id="binary"),
        pytest.param(b'{"traceEvents": [1,, 2]}', "no valid JSON", id="broken"),
        pytest.param(b'{"traceEvents": [1, 2]} {}', "no valid JSON", id="two documents"),
        pytest.param(b'{"traceEvents": [{"a": tru', "truncated", id="truncated within a word"),
        pytest.param(b'{"traceEvents": [{"dur": 12.', "truncated", id="truncated within a number"),
        pytest.param(b'{"traceEvents": [NaN, {"a": "', "truncated", id="truncated within a string"),
        pytest.param(b'[{"ph": "X", "args": {"grid": [1]}', "truncated", id="list truncated within an event"),
        pytest.param(b'[{"ph": "X", "args": {"grid": [1', "truncated", id="list truncated within a list"),
        pytest.param(b"[", "truncated", id="list of nothing"),
        pytest.param(b"[INFO] started", "no valid JSON", id="log"),
        pytest.param(b'{"a": "\xff\xfe"}', "no events", id="not UTF-8"),
        pytest.param(WHOLE.decode().encode("utf-16"), "JSON in UTF-16; right would be UTF-8", id="UTF-16"),
        pytest.param(WHOLE.decode().encode("utf-16-le"), "JSON in UTF-16", id="UTF-16 LE, no mark"),
        pytest.param(b"\xfe\xff" + (" \n" + WHOLE.decode()).encode("utf-16-be"), "JSON in UTF-16", id="UTF-16 BE"),
        pytest.param("Änderung".encode("utf-16"), "no JSON", id="text in UTF-16"),
        pytest.param(b"{}", "no events", id="no events key"),
        pytest.param(b"[]", "no events", id="empty list"),
        pytest.param(b'{"traceEvents": 5}', "no events", id="events no list"),
        pytest.param(b'{"traceEvents": [null, 5, {"ph": "M"}]}', "no events of kernels", id="other events"),
        pytest.param(b'{"traceEvents": [{"ph": "X", "name": "a", "cat": "cpu_op"}]}', "no events", id="no duration"),
        pytest.param(
            json.dumps([range_("ProfilerStep#1", 0, 5)]).encode(), "no events of kernels", id="profiler's own"
        ),
    ],
)
def test_a_file_that_is_no_trace_is_told_in_one_line(tmp_path: Path, content: bytes, word: str) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(content)
    with pytest.raises(UserError, match=word) as caught:
        kineto.read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_trace_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        rows_of(tmp_path / "none.json.gz")


def kernel(
    name: str, start: float, duration: float, correlation: int | None = None, stream: int = 7, device: int = 0
) -> dict[str, object]:
    arguments: dict[str, object] = {"device": device, "stream": stream, "grid": [2, 1, 1], "block": [64, 1, 1]}
    if correlation is not None:
        arguments["correlation"] = correlation
    return range_(name, start, duration, "kernel", pid=device, tid=stream, args=arguments)


def launch(start: float, correlation: int, tid: int = 1, category: str = "cuda_runtime") -> dict[str, object]:
    return range_("cudaLaunchKernel", start, 1, category, tid=tid, args={"correlation": correlation})


def mark(name: str, start: float, end: float, tid: int = 1) -> dict[str, object]:
    return range_(name, start, end - start, "user_annotation", tid=tid)


def gpu_mark(name: str, start: float, end: float, stream: int = 7) -> dict[str, object]:
    return range_(name, start, end - start, "gpu_user_annotation", pid=0, tid=stream)


def read_text(path: Path, text: str | bytes) -> Trace:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return kineto.read(path)


def one_kernel(arguments: str = "{}", name: str = "k", end: str = "") -> str:
    """The text of an event: a kernel of 4 us."""
    return (
        '{"ph": "X", "cat": "kernel", "ts": 1, "dur": 4, "pid": 0, "tid": 7, '
        f'"name": "{name}", "args": {arguments}{end}}}'
    )


ONE = (Kernel("k", None, 1, 0.004),)
# How other languages write what JSON has, or has not.
NO_JSON = ["NaN", "-nan", "nan", "inf", "-Infinity", "-nan(ind)", "-1.#IND", "1" * 30]
NO_JSON += ["+Infinity", "+inf", "1e999", "-1.5E+999", "9" * 400 + ".5", "0x10", "-0X1f", "0x" + "f" * 400, "+5", "007"]
NO_JSON += ["1.", ".5", "-.5e3", "True", "FALSE", "None", "undefined"]


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 1 << 18])
@pytest.mark.parametrize("number", NO_JSON)
def test_numbers_that_json_does_not_know(
    tmp_path: Path, number: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chrome_trace, "CHUNK", chunk)
    event = one_kernel(f'{{"a": {number}, "b": [{number},{number}], "c": ": NaN, \\", inf"}}')
    found = read_text(tmp_path / "trace.json", f'{{"traceEvents": [{event}]}}')
    assert found.kernels == ONE


@pytest.mark.parametrize("chunk", [1, 3, 1 << 18])
def test_a_name_stays_as_it_is_where_text_is_mended(
    tmp_path: Path, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chrome_trace, "CHUNK", chunk)
    name = 'a: NaN, -inf ,] \\" 12345678901234567890 \\\\'
    text = f'{{"traceEvents": [{one_kernel("NaN", name)}]}}'
    assert [kernel.name for kernel in read_text(tmp_path / "trace.json", text).kernels] == [json.loads(f'"{name}"')]


@pytest.mark.parametrize("chunk", [1, 3, 1 << 18])
@pytest.mark.parametrize(
    ("raw", "name"),
    [
        (b"a\x01\n\tb\x1b[0m", "a\x01\n\tb\x1b[0m"),
        (b"bad\xff\xc3\x28", "bad\ufffd\ufffd("),
        ("größe ≥ 1 \U0001f600".encode(), "größe ≥ 1 \U0001f600"),
        (b"C:\\Users\\x \\u12", "C:\\Users\\x \\u12"),
        (b"a\\u0041\\n", "aA\n"),
    ],
)
def test_names_that_are_no_strict_json(
    tmp_path: Path, raw: bytes, name: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chrome_trace, "CHUNK", chunk)
    text = b'\xef\xbb\xbf {"traceEvents": [{"ph": "X", "cat": "kernel", "ts": 1, "dur": 4, "name": "' + raw + b'"}]}'
    assert [kernel.name for kernel in read_text(tmp_path / "trace.json", text).kernels] == [name]


def test_a_string_that_does_not_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chrome_trace, "CHUNK", 64)
    monkeypatch.setattr(chrome_trace, "LONGEST_STRING", 1000)
    with pytest.raises(UserError, match=r"no valid JSON \(a string that does not end\)"):
        read_text(tmp_path / "trace.json", b'{"traceEvents": [NaN, "' + b"x" * 5000)


@pytest.mark.parametrize("end", ["", ",", " ,\n", "\n\n"])
@pytest.mark.parametrize("chunk", [1, 1 << 18])
def test_a_list_may_lack_its_closing_bracket(
    tmp_path: Path, end: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chrome_trace, "CHUNK", chunk)
    found = read_text(tmp_path / "trace.json", f"[{one_kernel()}{end}")
    assert found.kernels == ONE
    assert found.notes == ("the list of events has no closing bracket: events may be missing",)


def test_a_comma_too_many_and_a_closed_list_give_no_note(tmp_path: Path) -> None:
    found = read_text(tmp_path / "trace.json", f'{{"traceEvents": [{one_kernel(end=",")}, ], }}')
    assert (found.kernels, found.notes) == (ONE, ())
    found = read_text(tmp_path / "trace.json", f"[{one_kernel('NaN')}]")
    assert (found.kernels, found.notes) == (ONE, ())


def test_events_and_devices_stand_anywhere_among_the_keys(tmp_path: Path) -> None:
    events = json.dumps([kernel("k", 0, 5)])
    devices = json.dumps([{"id": 0, "name": "GPU of the test"}, {"id": 1, "name": "another"}])
    for text in (
        f'{{"deviceProperties": {devices}, "a": {{"traceEvents": [1]}}, "traceEvents": {events}}}',
        f'{{"traceEvents": {events}, "a": [[{{}}]], "deviceProperties": {devices}, "b": null}}',
    ):
        found = read_text(tmp_path / "trace.json", text)
        assert found.device == "GPU of the test"
        assert found.kernels == (Kernel("k", "(2,1,1)x(64,1,1)", 1, 0.005),)
    assert read_text(tmp_path / "trace.json", f'{{"traceEvents": {events}}}').device is None
    assert read_text(tmp_path / "trace.json", f'{{"deviceProperties": [5], "traceEvents": {events}}}').device is None


def test_a_gzip_file_of_several_members(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": [kernel("k", n, 1) for n in range(100)]}).encode()
    members = b"".join(gzip.compress(text[start : start + 999]) for start in range(0, len(text), 999))
    assert read_text(tmp_path / "trace.json.gz", members).kernels[0].calls == 100
    with pytest.raises(UserError, match="truncated"):
        read_text(tmp_path / "trace.json.gz", members[:-30])


def test_times_as_text_and_events_without_times(tmp_path: Path) -> None:
    events = [
        range_("k", "10.5", "2.25", "kernel"),
        range_("k", 20, "later", "kernel"),
        range_("k", None, 3, "kernel"),
        range_("k", 30, -1, "kernel"),
        range_("k", 40, 18446744073709551, "kernel"),
        range_("k", True, 1, "kernel"),
        {"ph": "X", "cat": "kernel", "name": "k", "ts": 3},
    ]
    found = kineto.read(write_trace(tmp_path / "trace.json", events))
    assert found.kernels == (Kernel("k", None, 1, 0.00225),)
    assert found.notes == ("6 events without a start or a duration are left out",)


def test_pairs_of_begin_and_end_are_noted(tmp_path: Path) -> None:
    pair = [{"ph": ph, "name": "k", "cat": "kernel", "ts": 1} for ph in "BE"]
    found = kineto.read(write_trace(tmp_path / "trace.json", [kernel("k", 1, 2), *pair]))
    assert [kernel.calls for kernel in found.kernels] == [1]
    assert found.notes == ("2 events in pairs of begin and end (B, E) are left out",)
    with pytest.raises(UserError, match="no events of kernels or operators; 2 events in pairs of begin and end "):
        kineto.read(write_trace(tmp_path / "trace.json", pair))


def test_one_event_is_no_events(tmp_path: Path) -> None:
    events = [kernel("k", 1, 2), {"ph": "B", "name": "k"}, range_("k", 1, -2, "kernel")]
    assert kineto.read(write_trace(tmp_path / "trace.json", events)).notes == (
        "1 event in pairs of begin and end (B, E) is left out",
        "1 event without a start or a duration is left out",
    )


def test_events_without_a_category(tmp_path: Path) -> None:
    bare = [kernel("k", 1, 2), range_("Memcpy DtoD", 5, 1, args={"stream": 7, "bytes": 4}), range_("aten::add", 0, 9)]
    for event in bare:
        del event["cat"]
    found = kineto.read(write_trace(tmp_path / "trace.json", [*bare, {"ph": "X", "name": "mine", "ts": 1, "dur": 1}]))
    assert [kernel.name for kernel in found.kernels] == ["k", "Memcpy DtoD"]
    found = kineto.read(write_trace(tmp_path / "trace.json", bare[2:]))
    assert ([kernel.name for kernel in found.kernels], found.on_gpu) == (["aten::add"], False)
    old = [
        {"ph": "X", "name": side, "ts": 1, "dur": 1, "tid": 0, "pid": f"{side} functions"} for side in ("CUDA", "CPU")
    ]
    found = kineto.read(write_trace(tmp_path / "trace.json", old))
    assert [kernel.name for kernel in found.kernels] == ["CUDA"]


def test_values_of_any_kind_do_not_end_the_reading(tmp_path: Path) -> None:
    odd = [None, [], {}, [[1]], {"a": []}, "text", -1, 1.5, True]
    events: list[dict[str, object]] = [kernel("k", 0, 1)]
    for category in ("kernel", "cpu_op", "cuda_runtime", "user_annotation", "gpu_user_annotation"):
        for value in odd:
            for key in ("pid", "tid", "args", "name", "ts", "dur"):
                events.append(range_("k", 0, 1, category) | {key: value})
            for key in ("grid", "device", "stream", "correlation"):
                events.append(range_("k", 0, 1, category, args={"block": [1], key: value}))
    events += [range_("k", 0, 1) | {"cat": value} for value in odd]
    assert kineto.read(write_trace(tmp_path / "trace.json", events)).on_gpu


def test_how_busy_the_busiest_device_was(tmp_path: Path) -> None:
    # Late time stamps, as of a clock that counts from 1970.
    zero = 1_700_000_000_000_000
    events = [
        kernel("k", zero + 1000, 2000, device=1),
        # A copy on another stream meanwhile, a fill that goes on from the first kernel, two gaps of 1 and 3 ms.
        range_("Memcpy", zero + 1500, 500, "gpu_memcpy", pid=1, tid=9, args={"device": 1, "stream": 9}),
        range_("Memset", zero + 3000, 1000, "gpu_memset", pid=1, tid=9, args={"device": 1, "stream": 9}),
        kernel("k", zero + 5000, 1000, device=1),
        kernel("k", zero + 9000, 1000, device=1),
        kernel("k", zero, 4000, device=0),
    ]
    devices = [{"id": 0, "name": "first"}, {"id": 1, "name": "second"}]
    found = read_text(tmp_path / "trace.json", json.dumps({"deviceProperties": devices, "traceEvents": events}))
    assert found.occupied == Occupied(span_ms=9, busy_ms=5, gaps=2, gap_ms_median=2, gap_ms_longest=3)
    assert found.device == "second"
    assert found.notes == ("kernels of 2 devices are summed; how busy the GPU was is that of device 1",)
    assert sum(kernel.time_ms for kernel in found.kernels) == pytest.approx(9.5)


def test_gpus_of_a_trace_that_was_merged_of_several_processes(tmp_path: Path) -> None:
    # Each process knew its GPU as the first; the tool that merged gave other numbers to the processes alone.
    events = [kernel("k", 10 * n, 4) | {"pid": rank} for n in range(10) for rank in (0, 1000)]
    # A fill that names no device is of the one of its process.
    events.append(range_("Memset", 200, 40, "gpu_memset", pid=1000, args={"stream": 7}))
    events.append(range_("Memset", 200, 20, "gpu_memset", pid=0))
    found = kineto.read(write_trace(tmp_path / "trace.json", events))
    assert (found.occupied.busy_ms, found.occupied.span_ms) == pytest.approx((0.080, 0.240))
    note = "kernels of 2 devices are summed; how busy the GPU was is that of device 0 of process 1000"
    assert found.notes == (note,)
    # Of one GPU there is nothing to say.
    found = kineto.read(write_trace(tmp_path / "trace.json", [event for event in events if event["pid"] == 1000]))
    assert (found.notes, found.occupied.busy_ms) == ((), pytest.approx(0.080))


def test_processes_whose_launches_have_the_same_numbers_do_not_get_each_others_kernels(tmp_path: Path) -> None:
    events = [
        *(mark("first", 0, 100), mark("second", 0, 100) | {"pid": 2}),
        *(launch(10, 5), launch(10, 5) | {"pid": 2}, launch(20, 6) | {"pid": 2}),
        *(kernel("a", 200, 1000, 5), kernel("b", 200, 2000, 5, device=1), kernel("b", 3000, 4000, 6, device=1)),
    ]
    found = kineto.read(write_trace(tmp_path / "trace.json", events))
    assert found.ranges == (MarkedRange("first", 1, 0, 0), MarkedRange("second", 1, 1, 4))
    assert found.notes[1] == "launches of 2 processes: of a number that two of them have no kernel is known"


def test_how_busy_agrees_with_a_plain_count() -> None:
    chance = random.Random(11)
    for size in (1, 2, 3, 40, 300):
        starts = [chance.randrange(1000) for _ in range(size)]
        ends = [start + chance.randrange(12) for start in starts]
        busy, gaps, reached = 0, [], min(starts)
        for start, end in sorted(zip(starts, ends, strict=True)):
            gaps += [start - reached] if start > reached else []
            busy += max(0, end - max(start, reached))
            reached = max(reached, end)
        median = statistics.median(gaps or [0])
        wanted = Occupied(max(ends) - min(starts), busy, len(gaps), median, max(gaps, default=0))
        assert trace.occupied(starts, ends) == trace.occupied(array("d", starts), array("d", ends)) == wanted
    assert trace.occupied([], []) is None


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("start", "duration"), [("1e308", "5"), ("-1e308", "5"), ("3", "9e307"), ("1e17", "5")])
def test_times_that_no_clock_gives_are_left_out(tmp_path: Path, start: str, duration: str) -> None:
    odd = one_kernel().replace('"ts": 1, "dur": 4', f'"ts": {start}, "dur": {duration}')
    found = read_text(tmp_path / "trace.json", f"[{one_kernel()}, {odd}]")
    assert found.kernels == ONE
    assert found.occupied == Occupied(0.004, 0.004, 0, 0, 0)
    assert found.notes == ("1 event without a start or a duration is left out",)


@pytest.mark.parametrize("number", ["+4", "4.", "04", "0x4", "+0X4", "+.4e1"])
def test_numbers_of_other_languages_keep_their_values(tmp_path: Path, number: str) -> None:
    text = one_kernel().replace('"dur": 4', f'"dur": {number}')
    assert read_text(tmp_path / "trace.json", f"[{text}]").kernels == ONE


@pytest.mark.parametrize("chunk", [1, 3, 1 << 18])
@pytest.mark.parametrize("odd", ["", "NaN, "])
def test_values_that_are_nested_deep_are_refused(
    tmp_path: Path, odd: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chrome_trace, "CHUNK", chunk)
    # Brackets in strings, also behind quotation marks and backslashes that are escaped, nest nothing.
    name = json.dumps('[{"[{\\"[' * 60 + "\\")[1:-1]
    event = one_kernel(f'{{"a": {"[" * 90 + "]" * 90}, "b": [{odd}"{name}"]}}', name)
    with monkeypatch.context() as context:
        if not odd:  # strict JSON is read once
            context.delattr(chrome_trace, "_mended")
        assert read_text(tmp_path / "trace.json", f"[{event}]").kernels[0].name == json.loads(f'"{name}"')
    deep = one_kernel(f'{{"a": "{name}", "b": [{odd}{"[" * 60}{{"k": {"[" * 60}')
    with pytest.raises(UserError, match="nested more than 100 deep"):
        read_text(tmp_path / "trace.json", f"[{deep}")


def test_nested_values_take_no_memory_by_the_square_of_their_depth(tmp_path: Path) -> None:
    text = f'{{"traceEvents": [{one_kernel("[" * 3000 + "]" * 3000)}]}}'
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match="nested"):
            read_text(tmp_path / "trace.json", text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2e6


def test_long_time_stamps_make_no_gaps(tmp_path: Path) -> None:
    # Back to back in nanoseconds, written in microseconds with three decimals, as Kineto does.
    chance, moment, events = random.Random(3), 5_239_198_100_688_654, []
    for _ in range(500):
        took = chance.randrange(1, 5000)
        events.append(kernel("k", moment / 1000, took / 1000))
        moment += took
    found = kineto.read(write_trace(tmp_path / "trace.json", events)).occupied
    assert (found.gaps, found.busy_ms) == (0, pytest.approx(found.span_ms))


def test_ranges_hold_the_kernels_that_they_launched(tmp_path: Path) -> None:
    events = [
        mark("ProfilerStep#3", 0, 1000),
        mark("outer", 10, 100),
        mark("inner", 20, 50),
        mark("inner", 60, 80),
        mark("empty", 200, 300),
        # The same moment on another thread.
        mark("other", 0, 1000, tid=2),
        # Kernels run later than they were launched, and one launch may start several (a CUDA graph).
        launch(15, 1),
        launch(20, 2),
        launch(50, 3, category="cuda_driver"),
        launch(70, 4),
        launch(100, 5),
        launch(70, 6, tid=2, category="Runtime"),
        kernel("a", 200, 1000, 1),
        kernel("b", 1200, 2000, 2),
        kernel("c", 3200, 4000, 3),
        kernel("d", 7200, 8000, 4),
        kernel("d", 15200, 16000, 4),
        kernel("e", 31200, 32000, 5),
        kernel("f", 63200, 64000, 6),
        # Launched before the trace began; a correlation of 0 is none.
        kernel("g", 127200, 128000, 99),
        kernel("g", 255200, 256000, 0),
        launch(15, 0),
    ]
    random.Random(1).shuffle(events)
    found = kineto.read(write_trace(tmp_path / "trace.json", events))
    assert found.ranges == (
        MarkedRange("other", 1, 1, 64),
        MarkedRange("outer", 1, 5, 1 + 2 + 4 + 8 + 16),
        MarkedRange("inner", 2, 3, 2 + 8 + 16),
        MarkedRange("empty", 1, 0, 0),
    )


def test_ranges_of_one_name_that_nest_count_a_kernel_once(tmp_path: Path) -> None:
    events = [mark("again", 0, 100), mark("again", 10, 20), mark("again", 30, 40), mark("again", 100, 110)]
    events += [launch(15, 1), launch(50, 2), launch(105, 3)]
    events += [kernel("k", 1000 * n, 1000, n) for n in (1, 2, 3)]
    found = kineto.read(write_trace(tmp_path / "trace.json", events))
    assert found.ranges == (MarkedRange("again", 4, 3, 3),)


def test_ranges_on_streams_stand_for_launches_that_are_not_there(tmp_path: Path) -> None:
    events = [
        gpu_mark("ProfilerStep#1", 0, 9000),
        gpu_mark("step", 1000, 4000),
        gpu_mark("step", 1000, 2000, stream=8),
        gpu_mark("step", 5000, 6000),
        kernel("a", 1000, 1000),
        kernel("b", 1000, 500, stream=8),
        kernel("c", 3000, 1000, correlation=5),
        kernel("d", 4000, 1000),
        kernel("e", 5000, 250),
        kernel("f", 5000, 250, stream=8),
    ]
    found = kineto.read(write_trace(tmp_path / "trace.json", events))
    assert found.ranges == (MarkedRange("step", 2, 4, 2.75),)
    # With the launch of one kernel known, within the range on the CPU: it is counted by that, and once.
    found = kineto.read(write_trace(tmp_path / "trace.json", [*events, mark("step", 0, 50), launch(10, 5)]))
    assert found.ranges == (MarkedRange("step", 1, 4, 2.75),)


def test_a_trace_of_cpu_operators_tells_where_kernels_are_missing(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace.json", [range_("aten::add", 0, 3), launch(1, 1)])
    found = kineto.read(path)
    assert (found.on_gpu, found.occupied, found.ranges, found.device) == (False, None, (), None)
    assert found.notes == ("the trace has launches of kernels but no kernels: another profiler may have held the GPU",)
    assert kineto.read(write_trace(path, [range_("aten::add", 0, 3)])).notes == ()


@pytest.mark.parametrize("number", ["0", "NaN"])
@pytest.mark.parametrize("category", ["kernel", "cpu_op"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, category: str, number: str) -> None:
    event = json.dumps(range_("k", 0, 1, category, args={"stack": "x" * 20000})).replace('"pid": 1', f'"pid": {number}')
    path = tmp_path / "trace.json.gz"
    with gzip.open(path, "wt", compresslevel=1) as stream:
        stream.write('{"traceEvents": [' + ",\n".join([event] * 1500) + "]}")
    tracemalloc.start()
    try:
        found = kineto.read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.kernels[0].calls == 1500
    # The text has 30 MB.
    assert peak < 6e6


def test_of_many_events_a_few_numbers_stay(tmp_path: Path) -> None:
    found = kineto._Found()
    events = [kernel("k", 0, 1, 1), launch(0, 1), range_("aten::add", 0, 1), mark("m", 0, 1)]
    tracemalloc.start()
    try:
        for start in range(5000):
            for event in events:
                found.add(event | {"ts": start})
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < 5000 * 100


@pytest.mark.parametrize("gpus", [1, 3])
def test_how_busy_takes_few_bytes_a_kernel(tmp_path: Path, gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chrome_trace, "CHUNK", 1 << 12)
    events = ",".join(
        f'{{"ph":"X","cat":"kernel","name":"k","pid":{number % gpus},"tid":7,"ts":{1e6 + 10 * number},"dur":4}}'
        for number in range(9_000)
    )
    # What a first reading loads is no memory of a kernel.
    kineto.read(write_trace(tmp_path / "trace.json", [kernel("k", 0, 1), kernel("k", 5, 1)]))
    (tmp_path / "trace.json").write_text(f"[{events}]")
    tracemalloc.start()
    try:
        found = kineto.read(tmp_path / "trace.json")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.occupied.gaps == 9_000 // gpus - 1
    # A slim event has 90 bytes of text or more, so that a file takes less memory than it has bytes.
    assert peak < 90 * 9_000


def test_random_ranges_agree_with_a_plain_count(tmp_path: Path) -> None:
    chance = random.Random(7)
    marks, launches, kernels = [], [], []

    def nest(start: int, end: int, tid: int, depth: int) -> None:
        """Ranges within one another; every edge and launch at a microsecond of its own."""
        while start + 10 < end and depth:
            stop = chance.randrange(start + 5, end)
            marks.append(mark(chance.choice("abcd"), start, stop, tid))
            nest(start + 1, stop - 1, tid, depth - 1)
            start = stop + chance.randrange(1, 9)

    for tid in (1, 2):
        nest(0, 2000, tid, 4)
    for number in range(1, 400):
        launches.append(launch(chance.randrange(2000) + 0.5, number, chance.choice((1, 2))))
        kernels.append(kernel("k", 5000 + 10 * number, chance.randrange(1, 10), number))
    wanted = {name: [0, 0.0] for name in "abcd"}
    for call, run in zip(launches, kernels, strict=True):
        own = [one for one in marks if one["tid"] == call["tid"] and 0 <= call["ts"] - one["ts"] < one["dur"]]
        for name in {one["name"] for one in own}:
            wanted[name][0] += 1
            wanted[name][1] += run["dur"] / 1000
    found = kineto.read(write_trace(tmp_path / "trace.json", [*kernels, *marks, *launches]))
    calls = Counter(one["name"] for one in marks)
    assert sorted((one.name, one.calls, one.kernels, round(one.time_ms, 6)) for one in found.ranges) == [
        (name, calls[name], wanted[name][0], round(wanted[name][1], 6)) for name in "abcd"
    ]


def covered_ms(events: list[dict[str, object]]) -> float:
    """Time in which at least one range is open, summed over threads."""
    threads: dict[object, list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    total = 0.0
    for intervals in threads.values():
        reached = float("-inf")
        for start, end in sorted(intervals):
            total += max(0.0, end - max(start, reached))
            reached = max(reached, end)
    return total / 1000


@pytest.mark.parametrize(
    ("name", "on_gpu"),
    [
        ("amd_trace__mi250_minitoy_train_ROCm6_2_kineto.json.gz", True),
        ("critical_path__alexnet__benchmark_result_2869224_1695835535_trace.json.gz", True),
        ("triton_example__triton_example.json.gz", True),
        ("cupti_profiler__benchmark_result_924719_1679055439_trace.json.gz", False),
        ("rank_unavailable__rank_not_found.json.gz", False),
    ],
)
def test_real_traces(name: str, on_gpu: bool) -> None:
    path = real_profile(name)
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    rows = rows_of(path)
    total = sum(row["time_ms"] for row in rows)
    if on_gpu:
        wanted = [event for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
        assert total == pytest.approx(sum(event["dur"] for event in wanted) / 1000)
        # Of one device: its streams are one line here.
        line = [event | {"pid": 0, "tid": 0} for event in wanted]
        assert kineto.read(path).occupied.busy_ms == pytest.approx(covered_ms(line), abs=1e-4)
    else:
        wanted = [event for event in events if event.get("cat") == "cpu_op"]
        # Self times add up to the time in which any operator ran.
        assert total == pytest.approx(covered_ms(wanted), rel=1e-6)
    assert sum(row["calls"] for row in rows) == len(wanted)
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert sum(row["share"] for row in rows if row["category"] == OTHER) < 0.01


def test_real_traces_have_a_device_and_ranges() -> None:
    found = kineto.read(real_profile("critical_path__alexnet__benchmark_result_2869224_1695835535_trace.json.gz"))
    assert found.device == "NVIDIA A100-PG509-200"
    ranges = {one.name: one for one in found.ranges}
    assert not any(name.startswith("ProfilerStep") for name in ranges)
    # The benchmark is in one range, with every kernel of the trace.
    assert ranges["[param|cuda]"].kernels == sum(kernel.calls for kernel in found.kernels)
    assert ranges["[param|cuda]"].time_ms == pytest.approx(sum(kernel.time_ms for kernel in found.kernels))
    inner = ranges["[param|pytorch.model.alex_net|0|0|0|measure|forward]"]
    assert (inner.calls, 0 < inner.time_ms < ranges["[param|cuda]"].time_ms) == (2, True)
    found = kineto.read(real_profile("amd_trace__mi250_minitoy_train_ROCm6_2_kineto.json.gz"))
    assert found.device == "AMD Radeon Graphics"
    assert [(one.name, one.calls, one.kernels) for one in found.ranges] == [("Optimizer.step#SGD.step", 1, 1)]


def test_real_trace_has_launches() -> None:
    rows = rows_of(real_profile("triton_example__triton_example.json.gz"))
    assert [(row["category"], row["launch"], row["calls"]) for row in rows] == [("fused", "(1,1,1)x(128,1,1)", 1)]


@pytest.mark.parametrize(("warmup", "active"), [(0, 1), (2, 3)])
def test_a_trace_holds_the_active_calls_alone(tmp_path: Path, warmup: int, active: int) -> None:
    torch = pytest.importorskip("torch")
    from meddpm.profiling.tools.torch_profiler import profile

    calls = []
    values = torch.ones(64)

    def step() -> None:
        calls.append(None)
        torch.cos(values) if len(calls) <= warmup else torch.sin(values)

    path = tmp_path / "deep" / "trace.json.gz"
    profile(step, warmup, active, path, cuda=False)

    assert len(calls) == warmup + active
    document = json.loads(gzip.decompress(path.read_bytes()))
    names = [event["name"] for event in document["traceEvents"] if event.get("ph") == "X"]
    assert len([name for name in names if re.fullmatch(r"ProfilerStep#\d+", name)]) == active
    assert not any("Input Dims" in event.get("args", {}) for event in document["traceEvents"])
    rows = {row["kernel"]: row for row in rows_of(path)}
    assert rows["aten::sin"]["calls"] == active
    assert "aten::cos" not in rows
    assert list(path.parent.iterdir()) == [path]


def test_a_step_that_fails_leaves_no_trace(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from meddpm.profiling.tools.torch_profiler import profile

    def step() -> None:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        profile(step, 0, 1, tmp_path / "trace.json.gz", cuda=False)
    assert list(tmp_path.iterdir()) == []


def test_a_profile_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from meddpm.profiling.tools.torch_profiler import profile

    with pytest.raises(ValueError, match="active must be 1 or more"):
        profile(lambda: None, 1, 0, tmp_path / "trace.json.gz", cuda=False)
    with pytest.raises(ValueError, match=r"\.json\.gz"):
        profile(lambda: None, 1, 1, tmp_path / "trace.json", cuda=False)
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match="no CUDA device"):
            profile(lambda: None, 1, 1, tmp_path / "trace.json.gz", cuda=True)


def small_unet() -> "UNet":
    from meddpm.config import ModelConfig
    from meddpm.model import build_model

    return build_model(ModelConfig((4, 4, 4), 1, (1, 2), (-1.0, 1.0), 32, (1, 2, 2), 1, (4,), steps=10))


def hooks(network: "UNet") -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in network.modules())


def test_the_parts_of_the_network_are_marked(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from meddpm.profiling.tools.torch_profiler import profile

    network = small_unet().eval()
    x, t = torch.zeros(1, 3, 4, 4, 4), torch.zeros(1, dtype=torch.long)

    def step() -> None:
        with torch.no_grad():
            network(x, t)

    path = tmp_path / "trace.json.gz"
    profile(step, 1, 2, path, cuda=False, ranges=network)
    assert hooks(network) == 0

    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    marks = [event for event in events if event.get("cat") == "user_annotation"]
    steps = [event for event in marks if event["name"].startswith("ProfilerStep")]
    calls = Counter(event["name"] for event in marks)
    wanted = ["time", "in", "out", "middle", "middle/block 0", "middle/attention", "middle/block 1"]
    wanted += [f"{side} {level}" for side in ("down", "up") for level in range(3)]
    wanted += [f"down {level}/block 0" for level in range(3)]
    wanted += [f"up {level}/block {block}" for level in range(3) for block in range(2)]
    wanted += ["down 0/downsample", "down 1/downsample", "up 1/upsample", "up 2/upsample", "down 2/attention"]
    # Two residual blocks of the level attend.
    assert {name: n for name, n in calls.items() if not name.startswith("Prof")} == {
        **dict.fromkeys(wanted, 2),
        "up 2/attention": 4,
    }

    def within(event: dict[str, float], other: dict[str, float]) -> bool:
        return other["ts"] <= event["ts"] and event["ts"] + event["dur"] <= other["ts"] + other["dur"]

    for mark in marks:
        assert mark in steps or any(within(mark, one) for one in steps)
        if "/" in mark["name"]:
            level = mark["name"].partition("/")[0]
            assert any(within(mark, other) for other in marks if other["name"] == level), mark["name"]
    # The convolutions of the network are within some part of it.
    for event in events:
        if event.get("name") == "aten::conv3d":
            assert any(within(event, one) for one in marks if one not in steps)


def test_marks_are_removed_where_the_network_fails(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from meddpm.profiling.tools.torch_profiler import profile

    network = small_unet()
    network.middle_block[1].register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        profile(
            lambda: network(torch.zeros(1, 3, 4, 4, 4), torch.zeros(1, dtype=torch.long)),
            *(0, 1, tmp_path / "trace.json.gz"),
            cuda=False,
            ranges=network,
        )
    assert hooks(network) == 1
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="not those of Linear"):
        profile(lambda: None, 0, 1, tmp_path / "trace.json.gz", cuda=False, ranges=torch.nn.Linear(1, 1))
