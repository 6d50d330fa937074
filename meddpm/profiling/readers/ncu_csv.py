"""Reads the CSV that Nsight Compute prints: `--page raw`, a row a launch, and `--page details`, a row a metric.

The table stands between lines of ncu and of the profiled program, which may also cut in; several runs may follow each
other in one file. Numbers are written as the machine's locale has them.
"""

import csv
import io
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from meddpm.config import UserError
from meddpm.profiling.readers.ncu_files import (
    BLOCK,
    DEVICE,
    EXPORT,
    GRID,
    SIZES,
    Launch,
    Rule,
    base_unit,
    kernel_name,
    launch_text,
    opened,
    reading,
    rule,
)
from meddpm.profiling.readers.ncu_labels import LABELS
from meddpm.profiling.readers.ncu_numbers import SIZES_APART, SPACES, DecimalMark, plain, value
from meddpm.words import one_line

# Columns that say which launch it is; everything else of a raw table is a metric.
IDENTITY = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Device", "CC")
COLUMNS = frozenset({*IDENTITY, "Kernel Time", "Block Size", "Grid Size"})
WHOLE = ("ID", "Process ID", "Context", "Stream", "Device")
NUMBERED = (*WHOLE, "CC", "Block Size", "Grid Size")
PUSH_POP = "Push/Pop_Range"
START_STOP = "Start/Stop_Range"

# Letters of a line, and lines of a row (a range's name may break it), at most: what is longer is no table.
LONGEST_LINE = 1 << 24
LONGEST_ROW = 20
# Letters of an ID or of a size of the grid at most.
LONGEST_NUMBERED = 100

METRIC = re.compile(r"[\w.:]*\w__[\w.:]+")
NAMED_UNIT = re.compile(r"(.+?) \[([^\]]*)\]")
ROW_START = re.compile(rf"\"\d[\d.,{SPACES}]*\"[,;\t]")
# ID and Process ID, also behind what a program printed.
ROW_INSIDE = re.compile(r"\"\d+\"[,;\t]\"\d+\"[,;\t]\"")
# What ncu prints may follow a row without an end of line.
BANNER = re.compile(r"(?<=\")==(?:PROF|WARNING|ERROR)== ")
DIGITS = re.compile(rf"[\d.,;x(){SPACES}]*")
REFUSED = "ERR_NVGPUCTRPERM"


@dataclass
class _Table:
    """A header and what follows from it."""

    columns: list[str]
    delimiter: str
    quoted: bool
    number: int
    places: dict[str, int] = field(default_factory=dict)
    # Of a raw table: place, name, base unit, power of ten; from the row of units, which old versions do not have.
    metrics: list[tuple[int, str, str, int]] = field(default_factory=list)
    units: dict[str, str] = field(default_factory=dict)
    unit_row: bool = False
    # Whether a row was read.
    begun: bool = False

    def __post_init__(self) -> None:
        for place, name in enumerate(self.columns):
            self.places.setdefault(name, place)
        if not self.by_metric:
            self.set_units([])

    @property
    def by_metric(self) -> bool:
        """Whether a row is a metric (page details) and not a launch (page raw)."""
        return "Metric Name" in self.places

    def set_units(self, units: list[str]) -> None:
        self.metrics.clear()
        self.units.clear()
        for place, column in enumerate(self.columns):
            if column in COLUMNS or not column or PUSH_POP in column or START_STOP in column:
                continue
            named = NAMED_UNIT.fullmatch(column)
            name, unit = (named[1], named[2]) if named else (column, "")
            unit, power = base_unit((units[place].strip() if place < len(units) else "") or unit)
            self.metrics.append((place, name, unit, power))
            if unit:
                self.units[name] = unit

    def cell(self, cells: list[str], name: str) -> str:
        place = self.places.get(name)
        return cells[place].strip() if place is not None and place < len(cells) else ""


@dataclass
class _Open:
    """A launch of the page details, of which more rows may come."""

    table: _Table
    cells: list[str]
    metrics: dict[str, float] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    rules: list[Rule] = field(default_factory=list)
    seen: set[tuple[str, str]] = field(default_factory=set)
    # The header that its last row stands under.
    last: int = 0


class _Said:
    """What the lines beside the table say, for the message where there is no launch."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.refused = self.nvprof = self.text_page = self.table = self.summary = False
        # Rows that end too early, and other lines that begin like a row and cannot be read.
        self.cut = self.lost = 0

    def hear(self, line: str) -> None:
        if "==ERROR==" in line or "No kernels were profiled" in line:
            words = one_line(line.partition("== ")[2] or line, 200)
            if len(self.lines) < 3 and words not in self.lines:
                self.lines.append(words)
        elif "NVPROF is profiling" in line or re.match(
            r'==\d+== Profiling (result|application)|"Type","Time\(%\)"', line
        ):
            self.nvprof = True
        elif line.lstrip().startswith("Section: "):
            self.text_page = True
        self.refused = self.refused or REFUSED in line

    def missing(self) -> list[str]:
        """Words on the rows that were left out."""
        words = []
        if self.cut:
            which = "a row is" if self.cut == 1 else f"{self.cut} rows are"
            words.append(f"{which} cut short and left out")
        if self.lost:
            which = "a line of the table is" if self.lost == 1 else f"{self.lost} lines of the table are"
            words.append(f"{which} left out, because no launch can be read there")
        return words


def launches(path: Path, wanted: frozenset[str] | None, notes: list[str]) -> Iterator[Launch]:
    """The launches of a CSV, in its order, with the metrics that are `wanted` (None: all) and their rules.

    Words for the reader go to `notes`. Raises UserError where there is no launch.
    """
    mark, doubt = _decimal_mark(path, wanted)
    said = _Said()
    count, flat, unitless = 0, False, False
    for launch, table, was_flat in _all(path, wanted, mark, said):
        count += 1
        flat = flat or was_flat
        unitless = unitless or not (table.by_metric or table.unit_row or table.units)
        yield launch
    if not count:
        _refuse(path, said)
    if flat:
        notes.append("the file tells only how many blocks and threads a launch had: they are written as if all along x")
    if unitless:
        notes.append("the file names no units: numbers are taken in base units, times in ns")
    if doubt:
        notes.append(doubt)
    notes.extend(said.missing())
    notes.extend(f"Nsight Compute said: {line}" for line in said.lines)


def _all(path: Path, wanted: frozenset[str] | None, mark: str, said: _Said) -> Iterator[tuple[Launch, _Table, bool]]:
    """Launches, each with its table and whether only the sizes of grid and block are known."""
    found: dict[tuple[str, ...], _Open] = {}
    # A key may come again, in a second run: its first launch is kept here.
    done: list[_Open] = []
    last = None
    for number, (table, cells) in enumerate(_rows(path, said)):
        if not table.by_metric:
            metrics = {}
            for place, name, _, power in table.metrics:
                if place < len(cells) and (wanted is None or name in wanted):
                    found_value = value(plain(cells[place]), mark, power)
                    if found_value is not None:
                        metrics[name] = found_value
            launch, flat = _launch(table, cells, number, metrics, table.units, ())
            yield launch, table, flat
            continue
        key = tuple(table.cell(cells, name) for name in IDENTITY)
        section, name = table.cell(cells, "Section Name"), table.cell(cells, "Metric Name")
        launch_rows = found.get(key)
        again = launch_rows is not None and bool(name) and (section, name) in launch_rows.seen
        if again and (key != last or launch_rows.last != table.number or not key[0]):
            launch_rows = None
        if launch_rows is None:
            launch_rows = found[key] = _Open(table, cells)
            done.append(launch_rows)
        launch_rows.last, last = table.number, key
        _add(launch_rows, table, cells, mark, wanted)
    for number, rows in enumerate(done):
        launch, flat = _launch(rows.table, rows.cells, number, rows.metrics, rows.units, tuple(rows.rules))
        yield launch, rows.table, flat


def _add(rows: _Open, table: _Table, cells: list[str], mark: str, wanted: frozenset[str] | None) -> None:
    """One row of the page details: a metric, a rule, or both."""
    section, label = table.cell(cells, "Section Name"), table.cell(cells, "Metric Name")
    if label:
        rows.seen.add((section, label))
        name, unit, power = _metric(table, cells)
        found = value(plain(table.cell(cells, "Metric Value")), mark, power)
        if name in rows.metrics and name == label and rows.metrics[name] != found:
            name = f"{section}: {label}"
        if found is not None and (wanted is None or name in wanted):
            rows.metrics.setdefault(name, found)
            if unit:
                rows.units.setdefault(name, unit)
    name = table.cell(cells, "Rule Name")
    if name and wanted is None:
        advice = rule(
            name,
            table.cell(cells, "Rule Type"),
            table.cell(cells, "Rule Description"),
            table.cell(cells, "Estimated Speedup Type"),
            value(plain(table.cell(cells, "Estimated Speedup")), mark, 0),
        )
        if advice:
            rows.rules.append(advice)


def _metric(table: _Table, cells: list[str]) -> tuple[str, str, int]:
    """Of a row of the page details: the metric's name, base unit and power of ten."""
    label = table.cell(cells, "Metric Name")
    unit, power = base_unit(table.cell(cells, "Metric Unit"))
    named = METRIC.search(label)
    return named[0] if named else LABELS.get((label, unit), label), unit, power


def _launch(
    table: _Table,
    cells: list[str],
    number: int,
    metrics: dict[str, float],
    units: dict[str, str],
    rules: tuple[Rule, ...],
) -> tuple[Launch, bool]:
    shape = launch_text(_sizes(table.cell(cells, "Grid Size")), _sizes(table.cell(cells, "Block Size")))
    if shape is None:
        shape = launch_text((metrics.get(name) for name in GRID), (metrics.get(name) for name in BLOCK))
    flat = shape is None and all(metrics.get(name) for name in SIZES)
    if flat:
        grid, block = (metrics[name] for name in SIZES)
        shape = launch_text((grid, 1, 1), (block, 1, 1))
    digits = re.sub(r"\D", "", table.cell(cells, "ID"))
    launch = Launch(
        int(digits) if digits else number,
        kernel_name(table.cell(cells, "Kernel Name")),
        shape,
        one_line(table.cell(cells, DEVICE)) or None,
        _range(next((table.cell(cells, name) for name in table.places if PUSH_POP in name), "")),
        metrics,
        units,
        rules,
    )
    return launch, flat


def _sizes(text: str) -> list[int]:
    """The three numbers of "(128, 1, 1)"; none where the text is something else."""
    inside = text.strip("() ")
    parts = SIZES_APART.split(inside)
    if len(parts) == 1:
        parts = inside.split(",")
    digits = [re.sub(r"\D", "", part) for part in parts]
    return [int(part) for part in digits] if len(digits) == 3 and all(digits) else []


def _range(text: str) -> str | None:
    """The innermost range of a thread id and, from the outermost, '"DOMAIN:NAME:' and six more words each, '"'."""
    entries = re.sub(r"^\d+\s+", "", text.strip()).strip().removeprefix('"').removesuffix('"')
    stack = [entry for entry in re.split(r'"\s+"', entries) if entry]
    if not stack:
        return None
    name = stack[-1].partition(":")[2]
    parts = name.rsplit(":", 6)
    # A name may have colons of its own, so that the six are counted from the end.
    return one_line(parts[0] if len(parts) == 7 else name.partition(":")[0]) or None


def _refuse(path: Path, said: _Said) -> NoReturn:
    heard = "; ".join(said.lines)
    if said.refused:
        raise UserError(
            f"{path}: Nsight Compute may not read the counters of this GPU ({heard or REFUSED}); ask for "
            "NVreg_RestrictProfilingToAdminUsers=0 on the machine, or trace with torch.profiler instead"
        )
    if heard:
        raise UserError(f"{path}: no launch in it, Nsight Compute said: {heard}; mend that and profile again")
    if said.nvprof:
        raise UserError(f"{path}: a log of nvprof, which is another tool; profile with ncu, and export with {EXPORT}")
    if said.summary:
        raise UserError(f"{path}: a summary (--print-summary), without the launches; export with {EXPORT}")
    if missing := said.missing():
        raise UserError(f"{path}: no launch in it: {', '.join(missing)}; export with {EXPORT}")
    if said.table:
        raise UserError(f"{path}: the table has no launch; profile again, and see that the range has kernels")
    if said.text_page:
        raise UserError(f"{path}: the printed page and no CSV; export with {EXPORT}")
    raise UserError(f"{path}: no table of Nsight Compute in it; name a .ncu-rep, or export with {EXPORT}")


def _rows(path: Path, said: _Said) -> Iterator[tuple[_Table, list[str]]]:
    """Each row of a launch, with its table. Lines that belong to no table go to `said`."""
    # Values of every instance of a metric may stand in one cell; the limit is the process's, and others rely on it.
    before = csv.field_size_limit()
    csv.field_size_limit(max(before, LONGEST_LINE))
    try:
        yield from _rows_of_any_length(path, said)
    finally:
        csv.field_size_limit(before)


def _rows_of_any_length(path: Path, said: _Said) -> Iterator[tuple[_Table, list[str]]]:
    table: _Table | None = None
    begun: list[str] = []
    for line in _lines(path):
        if begun:
            joined = "\n".join([*begun, line])
            if ROW_START.match(line) or line.startswith("==") or len(begun) >= LONGEST_ROW:
                begun = []
                said.cut += 1
            elif joined.count('"') % 2:
                begun.append(line)
                continue
            else:
                begun, line = [], joined
        header = _header(line, table.number + 1 if table else 0)
        if header is not None:
            said.table = True
            if "Metric Name" in header.places and "Metric Value" not in header.places:
                said.summary, table = True, None
            else:
                table = header
            continue
        if table is None:
            said.hear(line)
            continue
        cells = _cells_of_row(table, line)
        if cells is None and table.quoted and (banner := BANNER.search(line)):
            cells = _cells_of_row(table, line[: banner.start()])
            if cells is not None:
                said.hear(line[banner.start() :])
        if cells is not None:
            table.begun = True
            yield table, cells
        elif table.quoted and ROW_START.match(line) and line.count('"') % 2:
            begun = [line]
        elif not _take_units(table, line):
            said.lost += _is_like_a_row(table, line)
            said.hear(line)
    said.cut += bool(begun)


def _lines(path: Path) -> Iterator[str]:
    """The lines of a text file, gzipped or not, in UTF-8 or, as PowerShell redirects, UTF-16."""
    with reading(path), opened(path) as stream:
        start = stream.read(2)
    encoding = "utf-16" if start in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    with reading(path), opened(path) as stream, io.TextIOWrapper(stream, encoding, errors="replace") as text:
        while line := text.readline(LONGEST_LINE):
            # Files put one behind the other have their marks of UTF-8 inside.
            yield line.strip("\ufeff\r\n")


def _header(line: str, number: int) -> _Table | None:
    if "Kernel Name" not in line:
        return None
    # A program's last line may lack its end.
    start = line.find('"ID"')
    for text in (line, line[start:] if start > 0 else ""):
        for delimiter in ",;\t":
            cells = [cell.strip() for cell in _split(text, delimiter) or []]
            if "Kernel Name" not in cells or (start >= 0 and "ID" not in cells):
                continue
            if {"ID", "Metric Name"} & set(cells) or any("__" in cell for cell in cells):
                return _Table(cells, delimiter, '"Kernel Name"' in text, number)
    return None


def _cells_of_row(table: _Table, line: str) -> list[str] | None:
    """The cells of a line that is a launch's row, also behind the end of a line of the program; else None."""
    if table.delimiter not in line:
        return None
    cells = _checked(table, line)
    if cells is None and table.quoted and not line.startswith('"'):
        for match in list(ROW_START.finditer(line))[:5]:
            cells = cells or _checked(table, line[match.start() :])
    return cells


def _is_like_a_row(table: _Table, line: str) -> bool:
    """Whether a line that cannot be read as a row seems to be meant as one."""
    if table.quoted:
        return bool(ROW_START.match(line) or ROW_INSIDE.search(line))
    start = line.partition(table.delimiter)[0]
    return bool(table.delimiter in line and table.columns[0] == "ID" and start and DIGITS.fullmatch(start))


def _checked(table: _Table, text: str) -> list[str] | None:
    if table.quoted and not text.startswith('"'):
        return None
    cells = _split(text, table.delimiter)
    while cells and len(cells) > len(table.columns) and not cells[-1].strip():
        cells.pop()
    if not cells or len(cells) > len(table.columns) or not table.cell(cells, "Kernel Name"):
        return None
    # Rows of other tools leave such cells empty, but words stand in none of them.
    numbered = [table.cell(cells, name) for name in NUMBERED]
    if not all(len(text) <= LONGEST_NUMBERED and DIGITS.fullmatch(text) for text in numbered):
        return None
    if "ID" in table.places and not table.cell(cells, "ID"):
        return None
    if table.by_metric:
        has_metric = len(cells) > table.places["Metric Value"] and table.cell(cells, "Metric Name")
        return cells if has_metric or table.cell(cells, "Rule Name") else None
    first = table.metrics[0][0] if table.metrics else len(table.columns) - 1
    if len(cells) < len(table.columns) and not table.quoted:
        cells.pop()  # a number without quotes may be cut anywhere
    return cells if len(cells) > first else None


def _take_units(table: _Table, line: str) -> bool:
    """Whether the line is, or ends with, the row of units below the header of a raw table."""
    if table.by_metric or table.unit_row or table.begun or table.delimiter not in line:
        return False
    cells = _split(line[max(line.find('""'), 0) :] if table.quoted else line, table.delimiter)
    if cells is None or len(cells) != len(table.columns) or any(table.cell(cells, name) for name in COLUMNS):
        return False
    table.unit_row = True
    table.set_units(cells)
    return True


def _split(line: str, delimiter: str) -> list[str] | None:
    try:
        return next(csv.reader(io.StringIO(line, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True))
    except (csv.Error, StopIteration):
        return None


def _decimal_mark(path: Path, wanted: frozenset[str] | None) -> tuple[str, str | None]:
    """ "." or ",", as the numbers of the file tell, and a note where they do not tell and `wanted` ones need it."""
    mark = DecimalMark()
    last = None
    with closing(_rows(path, _Said())) as rows:
        for table, cells in rows:
            if table.number != last:
                mark.see_delimiter(table.delimiter)
                last = table.number
            for name in WHOLE:
                mark.see_whole(table.cell(cells, name))
            for name in ("Grid Size", "Block Size"):
                mark.see_sizes(table.cell(cells, name))
            if table.by_metric:
                name, unit, power = _metric(table, cells)
                mark.see(table.cell(cells, "Metric Value"), name, unit, power, wanted is None or name in wanted)
                mark.see(table.cell(cells, "Estimated Speedup"), "", "%", 0, wanted is None)
            else:
                for place, name, unit, power in table.metrics:
                    if place < len(cells):
                        mark.see(cells[place], name, unit, power, wanted is None or name in wanted)
            if mark.is_settled():
                break
    return mark.found()
