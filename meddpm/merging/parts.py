"""The folders that are joined: where their tables lie, and what is in them."""

import csv
import gzip
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from meddpm import tables
from meddpm.config import ConfigError, UserError
from meddpm.merging.target import shown
from meddpm.profiling import counters
from meddpm.tables import Row
from meddpm.validation import read_yaml, with_text_keys
from meddpm.words import one_line, printable

# The tables that are joined (claims are made anew): the columns that make a cell, and those that, beside them, make one
# of several rows of it that stand by themselves.
CELL = {
    "timing": ("model", "gpu", "variant", "phase", "solver"),
    "kernels": ("model", "gpu", "variant", "phase", "profiler"),
    "quality": ("model", "gpu", "variant", "solver"),
    "environment": ("model", "gpu", "environment"),
    "counters": ("model", "gpu", "variant", "phase"),
    "priorities": ("model", "gpu", "variant", "phase"),
}
ROW = {"quality": ("metric", "region", "reference")}
# Rows of a cell are of one run: shares, ranks and totals belong together.
TOGETHER = {"kernels", "counters", "priorities"}
# What the counters of a cell come from: Nsight Compute, or a trace of torch.profiler.
NCU, TORCH = "ncu", "torch"
# Where tables lie in what may be named: they themselves, a folder of results, a checkout.
PLACES = (".", "tables", "results/tables")
ANEW = "make it anew, or leave the folder out"


@dataclass(frozen=True)
class Part:
    """One of the folders: its `name` for the terminal, the rows of its tables, its configuration (None: has none).

    `places` are the folder as it was given, the one with its tables, and the one that it is the `tables` of. `own` is
    the folder of results, as far as it was named: nothing else is in it, while a checkout may hold what is merged too.
    """

    name: str
    places: tuple[Path, ...]
    own: Path
    tables: dict[str, list[Row]]
    config: dict[str, Any] | None


def read(folders: Sequence[Path]) -> list[Part]:
    """The parts in `folders`. Raises UserError where one is no folder of published tables, or named twice."""
    parts: list[Part] = []
    seen: dict[str, Part] = {}
    for folder in folders:
        part = _read_part(folder)
        # Two that agree are two runs, not one that was named twice.
        first = seen.setdefault(os.path.realpath(part.places[1]), part)
        if first is not part:
            raise UserError(f"{part.name}: is the folder {first.name}, which is joined already; name each folder once")
        parts.append(part)
    return parts


def number(given: Sequence[Part], folder: Path) -> int:
    """Which of the parts `folder` is. Raises UserError where it is none."""
    for index, part in enumerate(given):
        if os.path.realpath(folder) in {os.path.realpath(place) for place in part.places}:
            return index
    raise UserError(f"--prefer: {shown(folder)} is none of the folders; right would be {given[0].name}, say")


def _read_part(folder: Path) -> Part:
    name = shown(folder)
    if os.path.isfile(folder):
        raise UserError(f"{name}: is a file; name the folder of results, of an archive the one that it was unpacked to")
    if not os.path.isdir(folder):
        raise UserError(f"{name}: is no folder; name one of results, or a checkout that has one")
    there = [folder / place for place in PLACES if _tables_in(folder / place)]
    if not there:
        raise UserError(
            f"{name}: has no published table (timing.csv and the like), nor have tables/ and results/tables/ in it; "
            "run the workflow there first, or name another folder"
        )
    if there[1:]:
        raise UserError(f"{name}: has tables in {shown(there[0])} and in {shown(there[1])}; name one of these")
    found = {table: _read_table(table, path) for table, path in _tables_in(there[0]).items()}
    inner = Path(os.path.abspath(there[0]))
    outer = [inner.parent] if inner.name == "tables" else []
    configs = [place / "run_config.yaml" for place in [inner, *outer]]
    config = next((path for path in configs if os.path.lexists(path)), None)
    own = there[0].parent if there[0] == folder / "results/tables" else folder
    return Part(name, (folder, inner, *outer), own, found, _read_config(config) if config else None)


def _tables_in(folder: Path) -> dict[str, Path]:
    """The published tables in a folder, whatever they are; one that is not there may be there gzipped."""
    paths = {table: [folder / f"{table}.csv", folder / f"{table}.csv.gz"] for table in CELL}
    there = {table: [path for path in of_table if os.path.lexists(path)] for table, of_table in paths.items()}
    return {table: of_table[0] for table, of_table in there.items() if of_table}


def _read_config(path: Path) -> dict[str, Any]:
    try:
        if not os.path.isfile(path):
            raise ValueError("no file")
        config = read_yaml(path.read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            raise ValueError("no mapping of keys")
        return with_text_keys(config)
    except (OSError, ValueError, RecursionError, ConfigError, yaml.YAMLError) as error:
        reason = one_line(getattr(error, "strerror", None) or str(error), 200)
        raise UserError(
            f"{shown(path)}: is no configuration as the workflow writes it ({reason}); write it anew with "
            "`snakemake results/run_config.yaml`, or remove it"
        ) from None


def _read_table(table: str, path: Path) -> list[Row]:
    """The rows of a table, each once. One of an older version may lack columns that can be empty.

    Raises UserError where it is no such table, and where a cell is in it twice.
    """
    try:
        if not os.path.isfile(path):
            raise ValueError("it is no file")
        opened = gzip.open if path.suffix == ".gz" else open
        # Programs for tables put a mark before the first column.
        with opened(path, "rt", newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream, strict=True)
            names = next(reader, [])
            _check_columns(table, names)
            rows = [_row(table, names, cells, reader.line_num) for cells in reader if cells]
    except UnicodeDecodeError:
        raise UserError(f"{shown(path)}: is no {table} table (it is no text in UTF-8); {ANEW}") from None
    except (OSError, EOFError, ValueError, csv.Error, zlib.error) as error:
        reason = one_line(getattr(error, "strerror", None) or str(error), 150)
        raise UserError(f"{shown(path)}: is no {table} table of this version ({reason}); {ANEW}") from None
    rows = list({tuple(row.values()): row for row in rows}.values())
    if table not in TOGETHER:
        seen: dict[tuple[Any, ...], Row] = {}
        for row in rows:
            key = cell(table, row) + row_of_cell(table, row)
            if key in seen:
                raise UserError(f"{shown(path)}: has other rows too for {in_words(key)}; {ANEW}")
            seen[key] = row
    return rows


def _check_columns(table: str, names: list[str]) -> None:
    known = tables.schema(table)["properties"]
    unknown = [name for name in names if name not in known]
    missing = [name for name in known if name not in names and "null" not in known[name].get("type", [])]
    if not names:
        raise ValueError("it is empty")
    if len(unknown) == len(names):
        raise ValueError("it is no CSV with such columns")
    if missing:
        raise ValueError(f"it lacks the column {missing[0]}")
    if unknown:
        raise ValueError(f"it has the column {printable(unknown[0])}, which this version does not know")
    if len(set(names)) < len(names):
        raise ValueError("it has a column twice")


def _row(table: str, names: list[str], cells: list[str], line: int) -> Row:
    """One row with all columns of the table, in their order; numbers as int or float."""
    if len(cells) != len(names):
        raise ValueError(f"line {line} has {len(cells)} columns of {len(names)}")
    texts = dict(zip(names, cells, strict=True))
    try:
        row = {name: _value(table, name, texts.get(name, "")) for name in tables.columns(table)}
        tables.check(table, row)
    except (ValueError, jsonschema.ValidationError) as error:
        raise ValueError(f"line {line}: {getattr(error, 'message', error)}") from None
    return row


def _value(table: str, name: str, text: str) -> Any:
    types = tables.schema(table)["properties"][name].get("type", "string")
    if text == "":
        return None if "null" in types else ""
    if "integer" in types:
        return int(text)
    return float(text) if "number" in types else text


def cell(table: str, row: Row) -> tuple[Any, ...]:
    """Which cell a row of `table` is of; counters of two profilers are two cells."""
    key = tuple(row[name] for name in CELL[table])
    return (*key, NCU if row["metric"] in _of_ncu() else TORCH) if table == "counters" else key


@cache
def _of_ncu() -> frozenset[str]:
    return frozenset({"launches", *(counter.name for counter in counters.counters())})


def row_of_cell(table: str, row: Row) -> tuple[Any, ...]:
    """Which of the rows of its cell a row of `table` is; () where a cell is one row, or its rows belong together."""
    return tuple(row[name] for name in ROW.get(table, ()))


def in_words(key: Sequence[Any]) -> str:
    """A cell for the terminal."""
    return one_line("/".join("-" if value in (None, "") else str(value) for value in key))
