"""Reads what `nsys export --type sqlite` wrote: kernels, copies and fills, and the NVTX ranges that launched them.

Tables and columns are those of the export's schema reference (docs.nvidia.com, Nsight Systems user guide). A table is
there only where the report has such events, and columns came and went: only `start` and `end` are relied on. Times are
in nanoseconds; `globalTid` is a thread and, without its last 24 bits, its process.
"""

import gzip
import os
import re
import shlex
import shutil
import sqlite3
import tempfile
import zlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from meddpm.config import UserError
from meddpm.profiling.readers.demangle import demangle
from meddpm.profiling.trace import Kernel, MarkedRange, Occupied, Trace, occupied
from meddpm.words import counted, one_line, printable

KERNELS, GRAPHS, COPIES, FILLS = (
    f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "GRAPH_TRACE", "MEMCPY", "MEMSET")
)
CALLS, MARKS, STRINGS = "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "StringIds"
GRAPH, UNNAMED, UNKNOWN = "CUDA graph", "(unnamed)", "Unknown"

# Where an export lacks the tables ENUM_CUDA_MEMCPY_OPER and ENUM_CUDA_MEM_KIND. The numbers are nsys' own, not CUPTI's.
COPY_KINDS = dict(
    enumerate(("Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"))
)
COPY_KINDS |= {11: "Unified HtoD", 12: "Unified DtoH", 13: "Unified DtoD"}
MEMORY_KINDS = dict(
    enumerate(("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static", "Unknown"))
)

# Ranges of NVTX_EVENTS: pushed and popped, started and ended.
RANGE_TYPES = "(59, 60)"
# What torch.autograd.profiler.emit_nvtx writes behind an operator's name, another each time.
COUNTERS = re.compile(r", (seq|op_id|sizes|input_op_ids) = .*", re.DOTALL)
# "Host-to-Device", as an export's own table has it.
COPY_LABEL = re.compile(r"\b([A-Z])[a-z]+-to-([A-Z])[a-z]+\b")
RANGES_KEPT = 1000
FOREVER = 2**63 - 1
# Bytes before the first page of a SQLite database (sqlite.org/fileformat2.html).
HEADER = 100
PROCESS = ~0xFFFFFF
# Where a graph's first node runs on the host, CUPTI gives this as its device.
HOST = 2**31 - 1

# A record that CUPTI could not time has zeros; a report cut short may have an end before its start.
TIMED = """typeof(start) = 'integer' AND typeof("end") = 'integer' AND start >= 0 AND "end" >= start AND "end" > 0"""
REPORTS = (".nsys-rep", ".qdrep", ".qdstrm")
# Diagnostics of nsys of this severity are shown, the first few.
ERROR, FAULTS_SHOWN = 3, 3


def read(path: Path | str) -> Trace:
    """The trace of a .sqlite or .sqlite.gz file of `nsys export --type sqlite`; the file is only read.

    Ranges are those of one thread: a range holds the kernels, copies and fills whose launch began within it on its
    thread, as `nsys stats` counts them. The counters that PyTorch writes behind the names of its operators are cut.

    Raises UserError where the file cannot be read, is none of nsys', or has no kernels.
    """
    path = Path(path)
    with _database(path) as file:
        try:
            # Immutable: no lock, no journal, nothing beside the file.
            with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
                connection.text_factory = lambda text: text.decode("utf-8", "replace")
                return _Export(path, connection).trace()
        # SQLite names what is damaged, in letters that may be damaged too.
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise UserError(
                f"{path}: the database is truncated or damaged ({printable(str(error))}); "
                "export it again: nsys export --type sqlite REPORT"
            ) from None


@contextmanager
def _database(path: Path) -> Iterator[Path]:
    """The SQLite database of `path`: itself, or a temporary file where `path` is compressed."""
    name = path.name.removesuffix(".gz")
    if name.endswith(REPORTS):
        quoted = shlex.quote(name)
        mend = f"nsys export --type sqlite {quoted}"
        if name.endswith(".qdstrm"):
            mend = f"QdstrmImporter -i {quoted}, then nsys export --type sqlite REPORT"
        raise UserError(f"{path}: only nsys itself reads its reports; right would be its SQLite export: {mend}")
    try:
        with open(path, "rb") as stream:
            start = stream.read(16)
            if not start.startswith(b"\x1f\x8b"):
                _check(path, start)
                _check_size(path, stream)
                yield path
                return
            stream.seek(0)
            with tempfile.NamedTemporaryFile(prefix="meddpm-", suffix=".sqlite") as temporary:
                _unpack(path, stream, temporary)
                _check_size(path, temporary)
                yield Path(temporary.name)
    except OSError as error:
        raise UserError(f"{path}: the file cannot be read: {error.strerror or error}") from None


def _unpack(path: Path, packed: Any, target: Any) -> None:
    try:
        with gzip.open(packed) as stream:
            start = stream.read(16)
            _check(path, start)
            target.write(start)
            shutil.copyfileobj(stream, target, 1 << 20)
        target.flush()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        what = "truncated" if isinstance(error, EOFError) else "damaged"
        raise UserError(f"{path}: the compressed file is {what}; compress the database again") from None


def _check(path: Path, start: bytes) -> None:
    if not start:
        raise UserError(f"{path}: the file is empty; export it again: nsys export --type sqlite REPORT")
    if start != b"SQLite format 3\0":
        raise UserError(
            f"{path}: the file is no SQLite database; right would be one of nsys export --type sqlite REPORT"
        )


def _check_size(path: Path, stream: Any) -> None:
    """Refuse a database that is shorter than its header says: an immutable one is not checked by SQLite."""
    stream.seek(0)
    header = stream.read(HEADER)
    size = stream.seek(0, os.SEEK_END)
    page, pages = int.from_bytes(header[16:18]), int.from_bytes(header[28:32])
    # 64 KiB do not fit the field. The count is good only where the same version wrote it that changed the file last.
    if (header[24:28] == header[92:96] and size < (65536 if page == 1 else page) * pages) or len(header) < HEADER:
        raise UserError(f"{path}: the database is truncated; export it again: nsys export --type sqlite REPORT")


class _Export:
    """An open database of nsys."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.rows = connection.execute
        self.columns: dict[str, set[str]] = {}
        for table, kind in self.rows("SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view')").fetchall():
            try:
                self.columns[table] = {name for (name,) in self.rows("SELECT name FROM pragma_table_info(?)", (table,))}
            except sqlite3.OperationalError:
                # A view of what is not there, which somebody made; damage is another error.
                if kind != "view":
                    raise

    def has(self, table: str, *columns: str) -> bool:
        return table in self.columns and self.columns[table].issuperset(columns)

    def column(self, table: str, name: str, otherwise: str = "NULL") -> str:
        """The column for a query; `otherwise` where this export has none of that name."""
        return f'"{name}"' if self.has(table, name) else otherwise

    def trace(self) -> Trace:
        graphs = self.graphs()
        kernels = self.kernels() + graphs
        if not kernels:
            raise UserError(f"{self.path}: {self.why_none()}")
        kernels += self.copies() + self.fills()
        kernels.sort(key=lambda kernel: (-kernel.time_ms, kernel.name, kernel.launch or ""))
        busy, device, notes = self.devices()
        if graphs:
            notes.append(
                "CUDA graphs were traced as wholes: the kernels inside are not in the table, and a graph counts as "
                "busy from its start to its end; to see them, profile again with nsys profile --cuda-graph-trace=node"
            )
        ranges = self.ranges()
        if len(ranges) > RANGES_KEPT:
            notes.append(f"{len(ranges)} names of marked ranges: the {RANGES_KEPT} with most time are kept")
            least = sorted((marked.time_ms for marked in ranges), reverse=True)[RANGES_KEPT - 1]
            ranges = [marked for marked in ranges if marked.time_ms >= least][:RANGES_KEPT]
        notes += self.untimed() + [f"nsys said: {fault}" for fault in self.faults()]
        return Trace("nsys", tuple(kernels), True, busy, tuple(ranges), device, tuple(notes))

    def why_none(self) -> str:
        """Why the file has no kernels, and the mend."""
        marks = ("TARGET_INFO_", "META_DATA_", "CUPTI_ACTIVITY_", "ANALYSIS_", "ENUM_")
        if not self.has(STRINGS) or not any(name.startswith(marks) for name in self.columns):
            return "the database is none of nsys; right would be one of nsys export --type sqlite REPORT"
        fault = next((f" (nsys said: {fault})" for fault in self.faults()), "")
        return (
            f"the report has no kernels{fault}; profile again a program that uses the GPU, with nsys profile "
            "--trace=cuda,nvtx, and with --capture-range=cudaProfilerApi only if it calls cudaProfilerStart"
        )

    # What the GPU did

    def valid(self, table: str) -> str:
        """Which rows of a table of GPU work count."""
        whole = "correlationId"
        if table != GRAPHS or not self.has(GRAPHS, whole) or not self.has(KERNELS, whole, "graphNodeId"):
            return TIMED
        # A graph whose nodes were traced as well: they are kernels with the correlation of its launch.
        process = "globalPid" if self.has(GRAPHS, "globalPid") and self.has(KERNELS, "globalPid") else "0"
        key = f"coalesce({process}, 0), coalesce(correlationId, 0)"
        return f"{TIMED} AND ({key}) NOT IN (SELECT {key} FROM {KERNELS} WHERE graphNodeId IS NOT NULL)"

    def work(self) -> str:
        """A query for all work: process, device, correlation, start, end (0 where the export does not say)."""
        parts = []
        for table in (KERNELS, GRAPHS, COPIES, FILLS):
            if self.has(table, "start", "end"):
                names = {"process": "globalPid", "device": "deviceId", "correlation": "correlationId"}
                keys = [
                    f"CAST(coalesce({self.column(table, name, '0')}, 0) AS INTEGER) AS {key}"
                    for key, name in names.items()
                ]
                parts.append(f'SELECT {", ".join(keys)}, start, "end" AS stop FROM {table} WHERE {self.valid(table)}')
        return " UNION ALL ".join(parts)

    def sums(self, table: str, *names: str) -> Iterable[tuple[Any, ...]]:
        """The values of the columns `names` (None for one that is not there), calls and ns of each combination.

        The ns are a float: those of damaged records may add up to more than a whole number of SQLite holds.
        """
        if not self.has(table, "start", "end"):
            return ()
        keys = ", ".join(self.column(table, name) for name in names)
        places = ", ".join(str(place + 1) for place in range(len(names)))
        return self.rows(
            f'SELECT {keys}, count(*), total("end" - start) FROM {table} WHERE {self.valid(table)} GROUP BY {places}'
        )

    def kernels(self) -> list[Kernel]:
        names = ("demangledName", "shortName", "mangledName")
        sizes = tuple(f"{level}{axis}" for level in ("grid", "block") for axis in "XYZ")
        strings = self.strings(KERNELS, *names)

        def timed() -> Iterator[Timed]:
            for *keys, calls, time in self.sums(KERNELS, *names, *sizes):
                name = next((strings[key] for key in keys[:3] if strings.get(key)), UNNAMED)
                launch = None if None in keys[3:] else "({},{},{})x({},{},{})".format(*keys[3:])
                yield demangle(name) if name.startswith("_Z") else name, launch, calls, time

        return _added(timed())

    def graphs(self) -> list[Kernel]:
        return _added((GRAPH, None, calls, time) for _, calls, time in self.sums(GRAPHS, "graphId"))

    def copies(self) -> list[Kernel]:
        kinds, memory = COPY_KINDS | self.labels("ENUM_CUDA_MEMCPY_OPER"), self.memory_kinds()
        ends = self.has(COPIES, "srcKind", "dstKind")

        def timed() -> Iterator[Timed]:
            for kind, source, target, calls, time in self.sums(COPIES, "copyKind", "srcKind", "dstKind"):
                # "Unified Host-to-Device" is "Unified HtoD".
                name = "Memcpy " + COPY_LABEL.sub(r"\1to\2", kinds.get(kind, UNKNOWN))
                if ends:
                    name += f" ({memory.get(source, UNKNOWN)} -> {memory.get(target, UNKNOWN)})"
                yield name, None, calls, time

        return _added(timed())

    def fills(self) -> list[Kernel]:
        memory = self.memory_kinds()
        return _added(
            (f"Memset ({memory.get(kind, UNKNOWN)})", None, calls, time)
            for kind, calls, time in self.sums(FILLS, "memKind")
        )

    def memory_kinds(self) -> dict[int, str]:
        return MEMORY_KINDS | self.labels("ENUM_CUDA_MEM_KIND")

    def labels(self, table: str) -> dict[int, str]:
        """The words for the numbers of an enumeration; empty where the export has no such table."""
        if not self.has(table, "id", "label"):
            return {}
        return {number: str(label) for number, label in self.rows(f"SELECT id, label FROM {table}") if label}

    def strings(self, table: str, *columns: str) -> dict[int, str]:
        """The texts that the columns of a table name by their number."""
        present = [name for name in columns if self.has(table, name)]
        if not present or not self.has(STRINGS, "id", "value"):
            return {}
        used = " UNION ".join(f"SELECT {name} FROM {table}" for name in present)
        rows = self.rows(f"SELECT id, value FROM {STRINGS} WHERE id IN ({used})")
        return {number: str(text) for number, text in rows if text}

    # Where it ran

    def devices(self) -> tuple[Occupied | None, str | None, list[str]]:
        """How busy the busiest GPU was, its name, and a note where there are several."""
        physical = self.physical()
        calls: Counter[Any] = Counter()
        processes = set()
        # Of each GPU the stretches in which something ran; what ran at once is one stretch, so that few are held.
        starts: dict[Any, array[int]] = defaultdict(lambda: array("q"))
        ends: dict[Any, array[int]] = defaultdict(lambda: array("q"))
        for process, device, _, start, end in self.rows(f"{self.work()} ORDER BY start"):
            key = physical.get((process, device), (False, device))
            processes.add(process)
            calls[key] += 1
            if ends[key] and start <= ends[key][-1]:
                ends[key][-1] = max(end, ends[key][-1])
            else:
                starts[key].append(start)
                ends[key].append(end)
        if not calls:
            return None, None, []
        # Floats: of damaged records the sum may be more than 64 bits hold.
        busy = {key: float(np.subtract(ends[key], starts[key]).sum(dtype=float)) for key in calls}
        key = max(busy, key=lambda key: (busy[key], key))
        # From the first start: a count of ns since 1970 is more than a float holds.
        first = starts[key][0]
        own = [(np.frombuffer(side[key], np.int64) - first) / 1e6 for side in (starts, ends)]
        notes = []
        if len(calls) > 1 or len(processes) > 1:
            last = max(calls)
            each = ", ".join(f"GPU {_gpu(key)} with {calls[key]}" for key in sorted(calls))
            notes.append(
                f"the table adds up {counted(len(calls), 'GPU')} and {counted(len(processes), 'process', 'processes')} "
                f"({each} {'row' if calls[last] == 1 else 'rows'} of work); "
                f"how busy the GPU was is told of GPU {_gpu(key)}, which worked longest"
            )
        return occupied(*own), self.names().get(key), notes

    def physical(self) -> dict[tuple[int, int], tuple[bool, int]]:
        """(True, number of the GPU in the machine) for a process and the number by which that process knows it."""
        table = "TARGET_INFO_CUDA_DEVICE"
        if not self.has(table, "gpuId", "cudaId", "pid"):
            return {}
        rows = self.rows(f"SELECT gpuId, cudaId, pid FROM {table}")
        found = {(pid, number): (True, gpu) for gpu, number, pid in rows if isinstance(gpu, int)}
        pairs = self.rows(f"SELECT DISTINCT process, device FROM ({self.work()})").fetchall()
        known = {(process, device): found.get((process >> 24 & 0xFFFFFF, device)) for process, device in pairs}
        return {pair: gpu for pair, gpu in known.items() if gpu}

    def names(self) -> dict[tuple[bool, int], str]:
        """The name of each GPU, by its number in the machine and by its number for CUDA."""
        found: dict[tuple[bool, int], str] = {}
        # The first is that of exports before 2021.
        for table in ("TARGET_INFO_CUDA_GPU", "TARGET_INFO_GPU"):
            if self.has(table, "name"):
                own = self.column(table, "id", self.column(table, "deviceId"))
                cuda = self.column(table, "cuDevice", own)
                for number, ordinal, name in self.rows(f"SELECT {own}, coalesce({cuda}, {own}), name FROM {table}"):
                    if name:
                        found |= {(True, number): str(name), (False, ordinal): str(name)}
        return found

    # What marked it

    def ranges(self) -> list[MarkedRange]:
        """The ranges that launched something, by name, in the order of their first starts."""
        if not self.has(MARKS, "start", "end", "eventType", "globalTid") or not self.has(
            CALLS, "start", "globalTid", "correlationId"
        ):
            return []
        launches = self.launches()
        names: dict[str, int] = {}
        calls: Counter[int] = Counter()
        # Of each thread that launched work the ranges as (name, start, end). Of ranges of one name that overlap (an
        # operator that calls itself) their union, so that nothing counts twice.
        spans = {thread: tuple(array("q") for _ in range(3)) for thread in launches}
        last: dict[tuple[int, int], int] = {}
        for thread, start, end, text in self.marks():
            if thread in spans:
                name = names.setdefault(text, len(names))
                calls[name] += 1
                which, starts, ends = spans[thread]
                place = last.get((thread, name))
                if place is not None and start <= ends[place]:
                    ends[place] = max(end, ends[place])
                else:
                    last[thread, name] = len(which)
                    for column, value in zip((which, starts, ends), (name, start, end), strict=True):
                        column.append(value)
        kernels, times = np.zeros(len(names)), np.zeros(len(names))
        for thread, (at, time) in launches.items():
            which, starts, ends = (np.frombuffer(column, np.int64) for column in spans[thread])
            if which.size:
                order = np.argsort(np.frombuffer(at, np.int64))
                at, time = np.frombuffer(at, np.int64)[order], np.frombuffer(time, np.int64)[order]
                until = np.concatenate([[0.0], np.cumsum(time, dtype=float)])
                first, behind = np.searchsorted(at, starts, "left"), np.searchsorted(at, ends, "right")
                kernels += np.bincount(which, behind - first, len(names))
                times += np.bincount(which, until[behind] - until[first], len(names))
        return [
            MarkedRange(text, calls[name], int(kernels[name]), float(times[name]) / 1e6)
            for text, name in names.items()
            if kernels[name]
        ]

    def marks(self) -> Iterator[tuple[int, int, int, str]]:
        """Thread, start, end and name of each range, in the order of their starts."""
        strings = self.strings(MARKS, "textId")
        text, number = self.column(MARKS, "text"), self.column(MARKS, "textId")
        for thread, start, end, given, registered in self.rows(
            f'SELECT globalTid, start, "end", {text}, {number} FROM {MARKS} '
            f"WHERE eventType IN {RANGE_TYPES} AND typeof(start) = 'integer' ORDER BY start"
        ):
            # One that was open when the profiler stopped has no end.
            open_still = not isinstance(end, int) or end < start
            name = COUNTERS.sub("", str(given or strings.get(registered) or UNNAMED))
            yield thread, start, FOREVER if open_still else end, name

    def launches(self) -> dict[int, tuple["array[int]", "array[int]"]]:
        """Of each thread when it launched work, and how long that ran: ns and ns, in no order.

        Both sides are read in the order of (process, correlation) and merged, so that neither is held.
        """
        # An export whose kernels name no process has but one.
        process = f"globalTid & {PROCESS}" if self.has(KERNELS, "globalPid") or self.has(GRAPHS, "globalPid") else "0"
        calls = self.rows(
            f"SELECT {process} AS process, correlationId, start, globalTid FROM {CALLS} "
            "WHERE (typeof(start), typeof(correlationId), typeof(globalTid)) = ('integer', 'integer', 'integer') "
            "AND correlationId != 0 ORDER BY 1, 2, 3"
        )
        found: dict[int, tuple[array[int], array[int]]] = {}
        call = next(calls, None)
        for process, _, correlation, start, end in self.rows(f"{self.work()} ORDER BY process, correlation"):
            while call is not None and call[:2] < (process, correlation):
                call = next(calls, None)
            if call is not None and call[:2] == (process, correlation):
                _, _, at, thread = call
                when, time = found.setdefault(thread, (array("q"), array("q")))
                when.append(at)
                time.append(end - start)
        return found

    # What to say of it

    def untimed(self) -> list[str]:
        """A note of the records that have no times."""
        count = 0
        for table in (KERNELS, GRAPHS, COPIES, FILLS):
            if self.has(table, "start", "end"):
                count += next(self.rows(f"SELECT count(*) FROM {table} WHERE ({TIMED}) IS NOT TRUE"))[0]
        return [f"{counted(count, 'record')} without times {'was' if count == 1 else 'were'} left out"] if count else []

    def faults(self) -> list[str]:
        """What nsys itself said went wrong, the first few."""
        table = "DIAGNOSTIC_EVENT"
        if not self.has(table, "severity", "text"):
            return []
        rows = self.rows(f"SELECT DISTINCT text FROM {table} WHERE severity = {ERROR} LIMIT {FAULTS_SHOWN}")
        return [one_line(str(text)) for (text,) in rows]


Timed = tuple[str, str | None, int, float]


def _added(timed: Iterable[Timed]) -> list[Kernel]:
    """Kernels of (name, launch, calls, ns), those of one name and launch added up."""
    found: dict[tuple[str, str | None], tuple[int, float]] = {}
    for name, launch, calls, time in timed:
        before = found.get((name, launch), (0, 0.0))
        found[name, launch] = (before[0] + calls, before[1] + time)
    return [Kernel(name, launch, calls, time / 1e6) for (name, launch), (calls, time) in found.items()]


def _gpu(key: tuple[bool, int]) -> str:
    return "of the host" if key[1] == HOST else str(key[1])
