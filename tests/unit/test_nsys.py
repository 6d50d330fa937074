"""Nsight Systems: reading the SQLite exports of many versions, and running a tool that may fail in many ways."""

import gzip
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from meddpm.config import UserError
from meddpm.profiling.readers import nsys_file
from meddpm.profiling.tools import nsys, tool
from meddpm.profiling.trace import Kernel, MarkedRange, Trace
from meddpm.status import FAILED, UNAVAILABLE, CannotRun
from tests.unit.files_fixture import one_line, shared

MS = 1_000_000
PID, OTHER_PID = 321, 654
GRID = {"gridX": 5, "gridY": 2, "gridZ": 1, "blockX": 64, "blockY": 1, "blockZ": 1}


def process(pid: int) -> int:
    return 3 << 48 | pid << 24


class Export:
    """An export as nsys writes it, with the tables and columns that a test names."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tables: dict[str, list[dict]] = {"StringIds": [], "TARGET_INFO_SYSTEM_ENV": [{"name": "Host"}]}
        self.correlation = 0
        self.since = 0

    def add(self, table: str, **values: object) -> None:
        self.tables.setdefault(table, []).append(values)

    def string(self, text: str) -> int:
        number = 100 + len(self.tables["StringIds"])
        self.add("StringIds", id=number, value=text)
        return number

    def work(
        self, kind: str, start: float, length: float, pid: int = PID, called: float | None = None, **values
    ) -> None:
        """Work on the GPU, in ms, launched at `called` by the main thread."""
        self.correlation += 1
        times = {"start": self.since + round(start * MS), "end": self.since + round((start + length) * MS)}
        own = {"deviceId": 0, "globalPid": process(pid), "correlationId": self.correlation}
        self.add(f"CUPTI_ACTIVITY_KIND_{kind}", **{**times, **own, **values})
        if called is not None:
            at = {"start": round(called * MS), "end": round((called + 0.01) * MS)}
            key = {"globalTid": process(pid) + pid, "correlationId": self.correlation}
            self.add("CUPTI_ACTIVITY_KIND_RUNTIME", **at, **key)

    def kernel(self, name: str, start: float, length: float, **values) -> None:
        self.work("KERNEL", start, length, **{"demangledName": self.string(name), **GRID, **values})

    def mark(self, text: str | None, start: float, end: float | None, kind: int = 59, pid: int = PID, **values) -> None:
        stop = None if end is None else round(end * MS)
        thread = process(pid) + pid
        times = {"start": round(start * MS), "end": stop}
        self.add("NVTX_EVENTS", **{**times, "eventType": kind, "text": text, "globalTid": thread, **values})

    def write(self) -> Path:
        self.path.unlink(missing_ok=True)
        connection = sqlite3.connect(self.path)
        for table, rows in self.tables.items():
            columns = list(dict.fromkeys(column for row in rows for column in row)) or ["id", "value"]
            names = ", ".join(f'"{column}"' for column in columns)
            connection.execute(f"CREATE TABLE {table} ({names})")
            values = [[row.get(column) for column in columns] for row in rows]
            connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", values)
        connection.commit()
        connection.close()
        return self.path

    def read(self) -> Trace:
        return nsys_file.read(self.write())


@pytest.fixture
def export(tmp_path: Path) -> Export:
    return Export(tmp_path / "run.sqlite")


# Kernels, copies, fills


def test_launches_of_one_kernel_and_shape_are_one_row_longest_first(export: Export) -> None:
    export.kernel("short", 0, 1)
    export.kernel("conv", 10, 2)
    export.kernel("conv", 20, 3.5)
    export.kernel("conv", 30, 1.5, gridZ=7)
    trace = export.read()
    assert (trace.profiler, trace.on_gpu, trace.ranges, trace.device, trace.notes) == ("nsys", True, (), None, ())
    assert trace.kernels == (
        Kernel("conv", "(5,2,1)x(64,1,1)", 2, 5.5),
        Kernel("conv", "(5,2,7)x(64,1,1)", 1, 1.5),
        Kernel("short", "(5,2,1)x(64,1,1)", 1, 1.0),
    )


def test_a_kernel_without_its_long_name_has_the_short_one_or_the_mangled_one_demangled(export: Export) -> None:
    export.work("KERNEL", 0, 3, demangledName=None, shortName=export.string("brief"), **GRID)
    export.work("KERNEL", 10, 2, mangledName=export.string("_Z5scalePfi"), **GRID)
    export.work("KERNEL", 20, 1, demangledName=77, **GRID)
    names = [kernel.name for kernel in export.read().kernels]
    assert names[0] == "brief"
    assert names[1].startswith("scale(")
    assert names[2] == "(unnamed)"


def test_an_old_export_has_few_columns(export: Export) -> None:
    export.add("CUPTI_ACTIVITY_KIND_KERNEL", start=0, end=4 * MS, demangledName=export.string("k"), gridX=1)
    trace = export.read()
    assert trace.kernels == (Kernel("k", None, 1, 4.0),)
    assert trace.occupied is not None
    assert trace.occupied.busy_ms == 4.0


def test_copies_and_fills_are_named_as_kineto_names_them_without_tables_of_words(export: Export) -> None:
    export.kernel("k", 0, 9)
    export.work("MEMCPY", 10, 5, copyKind=1, srcKind=0, dstKind=2)
    export.work("MEMCPY", 20, 4, copyKind=8, srcKind=2, dstKind=2)
    export.work("MEMCPY", 30, 3, copyKind=99, srcKind=None, dstKind=1)
    export.work("MEMSET", 40, 2, memKind=2)
    export.work("MEMSET", 50, 1, memKind=4)
    assert [(kernel.name, kernel.launch) for kernel in export.read().kernels[1:]] == [
        ("Memcpy HtoD (Pageable -> Device)", None),
        ("Memcpy DtoD (Device -> Device)", None),
        ("Memcpy Unknown (Unknown -> Pinned)", None),
        ("Memset (Device)", None),
        ("Memset (Managed)", None),
    ]


def test_an_exports_own_words_for_copies_go_before_ours(export: Export) -> None:
    export.add("ENUM_CUDA_MEMCPY_OPER", id=1, name="X", label="Device-to-Host")
    export.add("ENUM_CUDA_MEMCPY_OPER", id=40, name="Y", label="Unified Host-to-Device")
    export.add("ENUM_CUDA_MEM_KIND", id=0, name="Z", label="Pinned")
    export.kernel("k", 0, 9)
    export.work("MEMCPY", 10, 5, copyKind=1, srcKind=2, dstKind=0)
    export.work("MEMCPY", 20, 4, copyKind=40, srcKind=0, dstKind=2)
    assert [kernel.name for kernel in export.read().kernels[1:]] == [
        "Memcpy DtoH (Device -> Pinned)",
        "Memcpy Unified HtoD (Pinned -> Device)",
    ]


def test_a_copy_of_an_export_without_kinds_of_memory_is_named_by_its_direction(export: Export) -> None:
    export.kernel("k", 0, 9)
    export.work("MEMCPY", 10, 5, copyKind=2)
    assert export.read().kernels[1].name == "Memcpy DtoH"


def test_records_without_times_are_left_out_and_told(export: Export) -> None:
    export.kernel("k", 1000, 2)
    export.kernel("k", 0, 0)
    export.kernel("k", 1010, -3)
    export.kernel("k", 0, 1)
    export.tables["CUPTI_ACTIVITY_KIND_KERNEL"][-1]["start"] = None
    trace = export.read()
    assert trace.kernels == (Kernel("k", "(5,2,1)x(64,1,1)", 1, 2.0),)
    assert trace.occupied is not None
    assert trace.occupied.span_ms == 2.0
    assert trace.notes == ("3 records without times were left out",)
    del export.tables["CUPTI_ACTIVITY_KIND_KERNEL"][1:3]
    assert export.read().notes == ("1 record without times was left out",)


def test_a_name_that_is_no_text_of_utf8_is_read(export: Export) -> None:
    export.kernel("k", 0, 1)
    export.write()
    connection = sqlite3.connect(export.path)
    connection.execute("UPDATE StringIds SET value = CAST(x'6bff' AS TEXT)")
    connection.commit()
    connection.close()
    assert nsys_file.read(export.path).kernels[0].name == "k\ufffd"


# How busy, on which device


def test_the_busiest_device_tells_how_busy_and_its_name(export: Export) -> None:
    export.since = 1_700_000_000_000_000_000  # an export may count from 1970
    export.add("TARGET_INFO_GPU", id=0, name="Small GPU", cuDevice=0)
    export.add("TARGET_INFO_GPU", id=1, name="Large GPU", cuDevice=1)
    export.kernel("k", 0, 1)
    export.kernel("k", 0, 2, deviceId=1)
    export.kernel("k", 1.5, 1.5, deviceId=1)
    export.kernel("within", 1.6, 0.2, deviceId=1)
    export.kernel("overlapping", 2.9, 0.1, deviceId=1)
    export.work("MEMSET", 5, 1, memKind=2, deviceId=1)
    trace = export.read()
    busy = trace.occupied
    assert busy is not None
    assert (busy.span_ms, busy.busy_ms, busy.gaps, busy.gap_ms_longest) == pytest.approx((6.0, 4.0, 1, 2.0))
    assert trace.device == "Large GPU"
    assert trace.kernels[0].calls == 3
    [note] = trace.notes
    assert "2 GPUs" in note
    assert "GPU 0 with 1, GPU 1 with 5" in note
    assert "told of GPU 1" in note


def test_two_processes_that_each_see_one_gpu_as_the_first_are_on_two_gpus(export: Export) -> None:
    export.add("TARGET_INFO_GPU", id=4, name="Fourth", cuDevice=0)
    export.add("TARGET_INFO_GPU", id=5, name="Fifth", cuDevice=0)
    export.add("TARGET_INFO_CUDA_DEVICE", gpuId=4, cudaId=0, pid=PID)
    export.add("TARGET_INFO_CUDA_DEVICE", gpuId=5, cudaId=0, pid=OTHER_PID)
    export.kernel("k", 0, 3)
    export.kernel("k", 2, 5, pid=OTHER_PID)
    trace = export.read()
    assert trace.device == "Fifth"
    assert trace.occupied is not None
    assert trace.occupied.busy_ms == 5.0
    assert "2 GPUs and 2 processes" in trace.notes[0]


def test_the_busiest_gpu_is_the_one_that_was_busy_longest_not_that_of_most_kernel_time(export: Export) -> None:
    export.since = 1_700_000_000_000_000_000
    export.kernel("k", 0, 2, deviceId=0)
    export.kernel("k", 0, 2, deviceId=0, streamId=8)
    export.kernel("k", 0, 3, deviceId=1)
    trace = export.read()
    assert trace.occupied is not None
    assert trace.occupied.busy_ms == 3.0
    [note] = trace.notes
    assert "2 GPUs and 1 process (GPU 0 with 2, GPU 1 with 1 row of work)" in note
    assert "told of GPU 1" in note


def test_times_that_add_up_to_more_than_64_bits_hold(export: Export) -> None:
    for stream in range(3):
        export.kernel("k", 0, 0, called=1, streamId=stream)
        export.tables["CUPTI_ACTIVITY_KIND_KERNEL"][-1]["end"] = 2**62 + 1
    export.mark("step", 0, 5)
    trace = export.read()
    assert trace.kernels == (Kernel("k", "(5,2,1)x(64,1,1)", 3, pytest.approx(3 * 2**62 / 1e6)),)
    assert trace.ranges == (MarkedRange("step", 1, 3, pytest.approx(3 * 2**62 / 1e6)),)
    assert trace.occupied is not None
    assert trace.occupied.busy_ms == pytest.approx(2**62 / 1e6)


def test_a_view_that_is_broken_hides_nothing_else(export: Export) -> None:
    export.kernel("k", 0, 3)
    export.write()
    connection = sqlite3.connect(export.path)
    connection.execute("CREATE VIEW mine AS SELECT * FROM gone")
    connection.execute("CREATE VIEW circle AS SELECT * FROM circle")
    connection.commit()
    connection.close()
    assert nsys_file.read(export.path).kernels[0].time_ms == 3.0


def test_exports_before_2021_name_the_gpu_elsewhere(export: Export) -> None:
    export.add("TARGET_INFO_CUDA_GPU", deviceId=0, name="Old GPU")
    export.kernel("k", 0, 3)
    assert export.read().device == "Old GPU"


# CUDA graphs


def test_graphs_traced_as_wholes_are_rows_and_a_note_says_how_to_see_inside(export: Export) -> None:
    export.kernel("k", 0, 1)
    export.work("GRAPH_TRACE", 5, 10, graphId=3)
    export.work("GRAPH_TRACE", 20, 12, graphId=4)
    trace = export.read()
    assert trace.kernels[0] == Kernel("CUDA graph", None, 2, 22.0)
    assert trace.occupied is not None
    assert trace.occupied.busy_ms == 23.0
    assert "--cuda-graph-trace=node" in trace.notes[0]


def test_a_report_of_graphs_alone_is_read(export: Export) -> None:
    export.work("GRAPH_TRACE", 5, 10, graphId=3)
    assert [kernel.name for kernel in export.read().kernels] == ["CUDA graph"]


def test_nodes_of_a_graph_are_kernels_and_the_graph_is_not_counted_again(export: Export) -> None:
    export.kernel("inside", 0, 4, called=-1, correlationId=1, graphNodeId=11)
    export.kernel("inside", 5, 4, correlationId=1, graphNodeId=12)
    export.kernel("alone", 20, 1, correlationId=50)
    export.work("GRAPH_TRACE", 0, 9, correlationId=1, graphId=3)
    export.work("GRAPH_TRACE", 30, 2, correlationId=60, graphId=4)
    export.mark("step", -2, 0)
    trace = export.read()
    assert [(kernel.name, kernel.calls, kernel.time_ms) for kernel in trace.kernels] == [
        ("inside", 2, 8.0),
        ("CUDA graph", 1, 2.0),
        ("alone", 1, 1.0),
    ]
    assert trace.ranges == (MarkedRange("step", 1, 2, 8.0),)


# Ranges


def test_a_range_holds_what_was_launched_within_it_and_ranges_nest(export: Export) -> None:
    export.kernel("a", 100, 1, called=1)
    export.kernel("b", 110, 2, called=3)
    export.work("MEMCPY", 120, 4, called=6, copyKind=8, srcKind=2, dstKind=2)
    export.kernel("late", 5, 8, called=50)
    export.mark("step", 0, 10)
    export.mark("down 0", 0.5, 4)
    export.mark(None, 5, 7, textId=export.string("registered"))
    export.mark("", 5, 7, textId=export.string("registered too"))
    export.mark("nothing", 8, 9)
    export.mark("a mark, no range", 0, 99, kind=34)
    assert export.read().ranges == (
        MarkedRange("step", 1, 3, 7.0),
        MarkedRange("down 0", 1, 2, 3.0),
        MarkedRange("registered", 1, 1, 4.0),
        MarkedRange("registered too", 1, 1, 4.0),
    )


def test_started_ranges_overlap_and_open_ones_last_to_the_end(export: Export) -> None:
    export.kernel("a", 100, 1, called=2)
    export.kernel("b", 110, 2, called=4)
    export.mark("left", 0, 3, kind=60)
    export.mark("right", 1, 5, kind=60)
    export.mark("open", 3, None)
    export.mark("open too", 1, 0)
    assert {marked.name: marked.time_ms for marked in export.read().ranges} == {
        "left": 1.0,
        "right": 3.0,
        "open": 2.0,
        "open too": 3.0,
    }


def test_a_range_of_another_thread_or_process_holds_nothing(export: Export) -> None:
    export.kernel("a", 100, 1, called=2)
    export.kernel("b", 100, 5, pid=OTHER_PID, called=2, correlationId=1)
    export.add(
        "CUPTI_ACTIVITY_KIND_RUNTIME", start=2 * MS, end=3 * MS, globalTid=process(OTHER_PID) + 9, correlationId=1
    )
    export.mark("own", 0, 3)
    export.mark("thread", 0, 3, globalTid=process(PID) + 9)
    export.mark("process", 0, 3, globalTid=process(OTHER_PID) + 9)
    ranges = export.read().ranges
    assert ranges == (MarkedRange("own", 1, 1, 1.0), MarkedRange("process", 1, 1, 5.0))


def test_a_kernel_whose_launch_is_not_there_is_in_no_range_of_another_process(export: Export) -> None:
    export.kernel("a", 100, 1, correlationId=7)
    export.kernel("b", 100, 5, pid=OTHER_PID, called=2)
    for row in (export.tables["CUPTI_ACTIVITY_KIND_KERNEL"][1], *export.tables["CUPTI_ACTIVITY_KIND_RUNTIME"]):
        row["correlationId"] = 7
    export.mark("other", 0, 3, pid=OTHER_PID)
    assert export.read().ranges == (MarkedRange("other", 1, 1, 5.0),)


def test_a_range_within_one_of_its_own_name_counts_a_kernel_once(export: Export) -> None:
    export.kernel("a", 100, 1, called=2)
    export.mark("aten::to, seq = 4, op_id = 17", 0, 5)
    export.mark("aten::to, op_id = 18", 1, 3)
    export.mark("aten::to, op_id = 19", 7, 8)
    assert export.read().ranges == (MarkedRange("aten::to", 3, 1, 1.0),)


def test_without_calls_or_marks_there_are_no_ranges(export: Export) -> None:
    export.kernel("a", 0, 1)
    export.mark("step", 0, 10)
    assert export.read().ranges == ()
    del export.tables["NVTX_EVENTS"]
    export.work("KERNEL", 3, 1, called=2)
    assert export.read().ranges == ()


def test_many_ranges_and_kernels_take_little_time_whatever_overlaps(export: Export) -> None:
    count = 20_000
    name = export.string("k")
    for number in range(count):
        export.work("KERNEL", number, 0.5, called=number, demangledName=name)
        export.mark(f"range {number % 1500}", number, 2 * count, kind=60)
    export.write()
    start = time.perf_counter()
    trace = nsys_file.read(export.path)
    assert time.perf_counter() - start < 3
    assert len(trace.ranges) == nsys_file.RANGES_KEPT
    assert trace.ranges[0] == MarkedRange("range 0", 14, count, count / 2)
    assert "1500 names of marked ranges" in trace.notes[0]


# Files that are none


def test_a_compressed_export_is_read_and_nothing_is_written_beside_it(
    export: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export.kernel("k", 0, 1)
    plain = export.read()
    connection = sqlite3.connect(export.path)
    connection.execute("PRAGMA journal_mode = WAL")  # SQLite would make two files beside it
    connection.close()
    odd = tmp_path / "a?b#c%20 d.sqlite.gz"
    odd.write_bytes(gzip.compress(export.path.read_bytes()))
    export.path.rename(tmp_path / "a?b#c%20 d.sqlite")
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    meanwhile = []
    own = nsys_file._Export.trace
    monkeypatch.setattr(
        nsys_file._Export, "trace", lambda self: (own(self), meanwhile.append(len(list(tmp_path.iterdir()))))[0]
    )
    assert nsys_file.read(odd) == nsys_file.read(tmp_path / "a?b#c%20 d.sqlite") == plain
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    assert meanwhile == [2, 2]


@pytest.mark.parametrize("name", ["a b.nsys-rep", "run.qdrep", "run.qdstrm", "run.nsys-rep.gz"])
def test_a_report_is_refused_with_the_command_that_exports_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"NSYS")
    with pytest.raises(UserError) as error:
        nsys_file.read(tmp_path / name)
    one_line(error, name, "nsys export --type sqlite")
    assert "'a b.nsys-rep'" in str(error.value) or " " not in name


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "empty"), (b"{}", "no SQLite"), (b"SQLite format 3\0" + bytes(90), "damaged"), (None, "cannot be read")],
)
@pytest.mark.parametrize("packed", [False, True])
def test_what_is_no_database_is_refused(tmp_path: Path, content: bytes | None, words: str, packed: bool) -> None:
    path = tmp_path / "x.sqlite"
    if content is not None:
        path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(UserError) as error:
        nsys_file.read(path)
    one_line(error, str(path), words)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.97])
def test_a_truncated_file_is_refused(export: Export, tmp_path: Path, share: float) -> None:
    for number in range(400):
        export.kernel(f"kernel {number}", number, 0.5)
    content = export.write().read_bytes()
    export.path.write_bytes(content[: int(len(content) * share)])
    packed = tmp_path / "y.sqlite.gz"
    packed.write_bytes(gzip.compress(content)[: int(len(gzip.compress(content)) * share)])
    for path in (export.path, packed):
        with pytest.raises(UserError) as error:
            nsys_file.read(path)
        one_line(error, str(path), "truncated")


def test_a_damaged_file_is_read_or_refused_in_one_line(export: Export) -> None:
    for number in range(300):
        export.kernel(f"kernel {number}", number, 0.5, called=number)
        export.mark(f"range {number}", number, number + 1)
    content = export.write().read_bytes()
    refused = []
    for place in range(100, len(content), 4096):
        export.path.write_bytes(content[:place] + b"\xa5" * 300 + content[place + 300 :])
        try:
            nsys_file.read(export.path)
        except UserError as error:
            refused.append(str(error))
    assert len(refused) > 3
    assert not any("\n" in text for text in refused)


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "other.sqlite")
    connection.execute('CREATE TABLE "a""b" (x)')
    connection.commit()
    connection.close()
    with pytest.raises(UserError) as error:
        nsys_file.read(tmp_path / "other.sqlite")
    one_line(error, "none of nsys")


def test_a_report_without_kernels_is_refused_with_what_nsys_said(export: Export) -> None:
    export.work("MEMSET", 0, 1, memKind=2)
    export.add("DIAGNOSTIC_EVENT", severity=1, text="all well")
    export.add("DIAGNOSTIC_EVENT", severity=3, text="CUPTI says\n\x1b[31mno")
    with pytest.raises(UserError) as error:
        export.read()
    one_line(error, "no kernels", "CUPTI says ?[31mno", "cudaProfilerStart")
    export.kernel("k", 0, 1)
    assert export.read().notes == ("nsys said: CUPTI says ?[31mno",)


# Real exports


def test_a_real_export_of_one_kernel(tmp_path: Path) -> None:
    trace = nsys_file.read(shared("profiles/nsys/mock.sqlite"))
    assert [kernel.launch for kernel in trace.kernels] == ["(1,1,1)x(16,1,1)", None, "(1,1,1)x(128,1,1)"]
    assert trace.kernels[1].name == "Memcpy DtoH (Device -> Pinned)"
    assert trace.device == "NVIDIA GeForce RTX 3080"


def test_a_real_export_of_two_gpus_agrees_with_a_query_of_its_tables(tmp_path: Path) -> None:
    packed = shared("profiles/nsys/mfu_2gpu_before.sqlite.gz")
    trace = nsys_file.read(packed)
    assert sum(kernel.calls for kernel in trace.kernels) == 4010 + 1020 + 269
    assert "2 GPUs and 2 processes" in trace.notes[0]
    (tmp_path / "x.sqlite").write_bytes(gzip.decompress(packed.read_bytes()))
    connection = sqlite3.connect(tmp_path / "x.sqlite")
    tables = " UNION ALL ".join(
        f'SELECT rowid, globalPid, correlationId, "end" - start AS time FROM CUPTI_ACTIVITY_KIND_{kind}'
        for kind in ("KERNEL", "MEMCPY", "MEMSET")
    )
    work = connection.execute(f"SELECT globalPid, correlationId, time FROM ({tables})").fetchall()
    calls = connection.execute("SELECT globalTid, correlationId, start FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchall()
    for name in ("AllToAll4D", "aten::mul", "ncclGroupEnd"):
        query = """SELECT globalTid, start, "end" FROM NVTX_EVENTS LEFT JOIN StringIds ON textId = id
            WHERE coalesce(text, value) = ?1 OR text LIKE ?1 || ', %'"""
        spans = connection.execute(query, (name,)).fetchall()
        held = {
            (thread >> 24, correlation)
            for thread, correlation, at in calls
            if any(thread == own and start <= at <= end for own, start, end in spans)
        }
        times = [time for pid, correlation, time in work if (pid >> 24, correlation) in held]
        [marked] = [marked for marked in trace.ranges if marked.name == name]
        assert (marked.calls, marked.kernels) == (len(spans), len(times))
        assert marked.time_ms == pytest.approx(sum(times) / MS)
    connection.close()


# Running it

# What a fake nsys does on "profile" and on "export"; $report and $target are the files to make.
PROFILES = """echo 'Capture range started in the application.'; "$@" || exit $?; echo raw > "$report"
echo 'Generated:'; echo "    $report" """
EXPORTS = 'cp "$FAKE_EXPORT" "$target"'


def running() -> list[str]:
    """The command lines of all processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
    return found


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, export: Export):
    """Makes a fake nsys; gives the folder of the target. Its export is one kernel of 4 ms."""
    export.kernel("k", 0, 4)
    (tmp_path / "temporary").mkdir()
    (tmp_path / "results").mkdir()
    monkeypatch.setenv("FAKE_EXPORT", str(export.write()))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(tool, "GRACE_S", 0.3)

    def make(profile: str = PROFILES, exports: str = EXPORTS) -> Path:
        script = tmp_path / "fake nsys"
        script.write_text(
            "#!/bin/sh\nverb=$1; shift\n"
            'while [ "${1#--}" != "$1" ]; do case $1 in --output=*) report=${1#--output=};; esac; shift; done\n'
            f"target=$report\nif [ $verb = profile ]; then\n{profile}\nelse\n{exports}\nfi\n"
        )
        script.chmod(0o755)
        monkeypatch.setenv("MEDDPM_NSYS", str(script))
        return tmp_path / "results"

    yield make
    # Whatever happened, nothing is left: no file half written, no folder, no process.
    assert list((tmp_path / "temporary").iterdir()) == []
    assert [path.name for path in (tmp_path / "results").iterdir()] in ([], ["run.sqlite"])
    assert not [line for line in running() if str(tmp_path) in line]


def refusal(folder: Path, seconds: float = 20, program: tuple[str, ...] = ("true",)) -> CannotRun:
    with pytest.raises(CannotRun) as error:
        nsys.run(list(program), folder / "run.sqlite", seconds)
    assert not (folder / "run.sqlite").exists()
    assert "\n" not in error.value.reason
    assert error.value.reason.isprintable()
    return error.value


def test_the_command_profiles_what_the_program_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEDDPM_NSYS", raising=False)
    words = nsys.command(["python", "-c", "x"], Path("/some/100%h/r.nsys-rep"))
    assert words[:2] == ["nsys", "profile"]
    assert words[-3:] == ["python", "-c", "x"]
    assert {
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop",
        "--cuda-graph-trace=node",
        "--trace=cuda,nvtx",
        "--sample=none",
        "--force-overwrite=true",
        "--output=/some/100%%h/r.nsys-rep",
    } < set(words)


def test_a_run_leaves_the_database_and_gives_what_is_in_it(fake) -> None:
    folder = fake()
    (folder / "run.sqlite").write_text("an older one")
    trace = nsys.run(["true"], folder / "run.sqlite", 20)
    assert trace.kernels == (Kernel("k", "(5,2,1)x(64,1,1)", 1, 4.0),)
    assert nsys_file.read(folder / "run.sqlite") == trace


def test_an_old_nsys_names_its_report_otherwise(fake) -> None:
    folder = fake(PROFILES.replace("$report", "$report.qdrep"))
    assert nsys.run(["true"], folder / "run.sqlite", 20).kernels


def test_the_program_gets_the_environment(fake) -> None:
    folder = fake()
    reason = refusal(folder, program=("sh", "-c", "echo own=$OWN; exit 3"))
    assert reason.status == FAILED
    assert "own=" in reason.reason
    with pytest.raises(CannotRun, match="own=word"):
        nsys.run(["sh", "-c", "echo own=$OWN; exit 3"], folder / "run.sqlite", 20, os.environ | {"OWN": "word"})


def test_without_nsys_it_is_unavailable(fake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = fake()
    monkeypatch.delenv("MEDDPM_NSYS")
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = refusal(folder)
    assert reason.status == UNAVAILABLE
    assert "nsys: not on the PATH" in reason.reason
    monkeypatch.setenv("MEDDPM_NSYS", str(tmp_path / "results"))
    assert refusal(folder).status == UNAVAILABLE


NO_IMPORTER = "echo 'Importer error status: The importer binary and its dependencies were not found.'"


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        (f"{NO_IMPORTER}; echo x > ${{report%.nsys-rep}}.qdstrm", "importer"),
        (f"{NO_IMPORTER}; echo x > ${{report%.nsys-rep}}.qdstrm; exit 1", "importer"),
        ("echo Generating; echo x > ${report%.nsys-rep}.qdstrm; exit 1", "raw stream"),
        ("echo 'Subscribe returned 999'; echo 'No reports were generated.'", "Subscribe returned 999"),
        ("echo 'CUPTI_ERROR_INSUFFICIENT_PRIVILEGES' >&2; exit 1", "INSUFFICIENT_PRIVILEGES"),
        ("echo 'cannot create /tmp/nvidia/nsight_systems: Permission denied'; exit 1", "Permission denied"),
        (
            "printf \"unrecognised option '--capture-range-end=stop'\\n\\nusage: nsys\\n\"; exit 1",
            "unrecognised option",
        ),
    ],
)
def test_where_nsys_cannot_make_a_report_it_is_unavailable(fake, profile: str, words: str) -> None:
    reason = refusal(fake(profile))
    assert reason.status == UNAVAILABLE
    assert words in reason.reason


@pytest.mark.parametrize(
    ("exports", "words"),
    [
        ("echo 'bad metadata'; exit 1", "bad metadata"),
        ("echo 'done nothing'", "done nothing"),
        ("echo SQLite > $target", "no SQLite"),
        ("head -c 5000 $FAKE_EXPORT > $target", "truncated"),
    ],
)
def test_where_nsys_cannot_export_it_is_unavailable(fake, exports: str, words: str) -> None:
    reason = refusal(fake(exports=exports))
    assert reason.status == UNAVAILABLE
    assert words in reason.reason
    assert "meddpm-nsys-" not in reason.reason


def test_a_report_without_kernels_is_unavailable_and_not_kept(fake, export: Export) -> None:
    folder = fake()
    del export.tables["CUPTI_ACTIVITY_KIND_KERNEL"]
    export.write()
    reason = refusal(folder)
    assert reason.status == UNAVAILABLE
    assert "no kernels" in reason.reason


@pytest.mark.parametrize("made", [True, False])
def test_a_program_that_fails_is_told_by_its_last_line_not_by_that_of_nsys(fake, made: bool) -> None:
    report = "echo raw > $report;" if made else "echo '    No reports were generated.';"
    folder = fake(
        f'"$@"; code=$?; {report} echo "Generating \'/tmp/nsys-report-0.qdstrm\'"; '
        "printf '[1/1] [====100%%] report.nsys-rep\\nGenerated:\\n\\t/x/report.nsys-rep\\n'; exit $code"
    )
    reason = refusal(
        folder, program=("sh", "-c", "echo open: Permission denied; printf 'CUDA out\\033[1m of memory\\n' >&2; exit 7")
    )
    assert reason.status == FAILED
    assert reason.reason.endswith("CUDA out?[1m of memory")


def test_a_program_that_says_nothing_or_is_killed(fake) -> None:
    assert "nothing was printed" in refusal(fake("exit 3")).reason
    assert refusal(fake("kill -9 $$")).status == FAILED


LOOP = "while :; do sleep 1; done"
STUBBORN = f"trap '' TERM; echo step 41; setsid sh -c 'trap \"\" TERM; {LOOP}' \"$0\" & {LOOP}"


def test_a_program_that_takes_too_long_is_stopped_with_all_that_it_started(fake) -> None:
    folder = fake()
    start = time.monotonic()
    reason = refusal(folder, 0.7, ("sh", "-c", STUBBORN, str(folder)))
    assert time.monotonic() - start < 5
    assert reason.status == FAILED
    assert "0.7 s" in reason.reason
    assert "step 41" in reason.reason


def test_an_export_that_takes_too_long_is_stopped(fake) -> None:
    folder = fake(exports='echo half > "$target"; sleep 60')
    reason = refusal(folder, 1)
    assert reason.status == FAILED
    assert "more than 1 s" in reason.reason


def test_a_stopped_tool_may_tidy_up_first(fake, tmp_path: Path) -> None:
    half = tmp_path / "temporary" / "half"
    assert refusal(fake(f"trap 'rm {half}; exit' TERM; touch {half}; sleep 60 & wait"), 0.5).status == FAILED


def test_a_stopped_nsys_leaves_no_raw_stream(fake, tmp_path: Path) -> None:
    stream = tmp_path / "temporary" / "nsys-report-0af3.qdstrm"
    folder = fake(f"echo x > {stream}; echo \"Generating '{stream}'\"; sleep 60")
    assert refusal(folder, 0.5).status == FAILED


def test_what_a_tool_leaves_running_is_ended_at_once(fake) -> None:
    folder = fake("(setsid sleep 60 &) ; sleep 60 & " + PROFILES)
    start = time.monotonic()
    nsys.run(["true"], folder / "run.sqlite", 30)
    assert time.monotonic() - start < 10


def test_an_interrupted_run_ends_what_it_started(fake, tmp_path: Path) -> None:
    folder = fake()
    code = (
        "import signal, sys; from meddpm.profiling.tools import nsys\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        f"nsys.run(['sh', '-c', 'touch {tmp_path}/begun; sleep 60'], {str(folder / 'run.sqlite')!r}, 60)"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as runner:
        while not (tmp_path / "begun").exists() and runner.poll() is None:
            time.sleep(0.02)
        runner.terminate()
        assert runner.wait(20) == 9


def test_a_tool_gives_what_it_printed() -> None:
    assert tool.run(["sh", "-c", "echo out; echo err >&2; printf '\\377'"], 10, "Tool") == "out\nerr\n\ufffd"
    with pytest.raises(tool.Failed) as error:
        tool.run(["sh", "-c", "echo first; echo last; exit 4"], 10, "Tool")
    assert error.value.output == "first\nlast\n"
    assert not error.value.timed_out
    assert error.value.reason == "Tool failed (exit code 4): last"
    with pytest.raises(CannotRun, match="SIGSEGV") as error:
        tool.run(["sh", "-c", "kill -SEGV $$"], 10, "Tool")
    assert error.value.status == FAILED
