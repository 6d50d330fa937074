"""The published tables: results/tables/*.csv and the per-cell files they are joined from.

Columns, their order and their types come from schemas/<table>.schema.yaml. A value that was not measured is empty.
"""

import csv
import math
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from jsonschema.protocols import Validator

from meddpm.config import UserError, repository_root
from meddpm.files import write_csv
from meddpm.validation import StrictValidator

Row = dict[str, Any]
PYTHON_TYPES = {"string": (str,), "integer": (int,), "number": (int, float), "null": (type(None),)}
# Tables in which a cell that could not run is a row too.
ONE_ROW_AT_LEAST = {"timing", "kernels"}


@cache
def schema(table: str) -> dict[str, Any]:
    """The JSON Schema of one row of `table`."""
    text = (repository_root() / "schemas" / f"{table}.schema.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


@cache
def _validator(table: str) -> Validator:
    return StrictValidator(schema(table))


@cache
def _column(table: str, name: str) -> tuple[Validator, frozenset[type]]:
    """The validator of a column, and the Python types that are all it asks for (none where it asks for more)."""
    asked = schema(table)["properties"][name]
    types = asked.get("type", []) if asked.keys() <= {"type", "description"} else []
    each = [types] if isinstance(types, str) else types
    return StrictValidator(asked), frozenset(kind for word in each for kind in PYTHON_TYPES[word])


def check(table: str, row: Row) -> None:
    """Raise jsonschema.ValidationError where `row` has other columns than `table`, or a value that is none of theirs.

    No schema says anything of two columns at once: each value is looked at by itself, and jsonschema, which takes a
    fraction of a millisecond for one, has only those that a type does not settle.
    """
    if row.keys() != schema(table)["properties"].keys():
        _validator(table).validate(row)
    for name, value in row.items():
        validator, types = _column(table, name)
        if type(value) not in types or (type(value) is float and not math.isfinite(value)):
            validator.validate(value)


def columns(table: str) -> list[str]:
    """The columns of `table`, in their order."""
    return list(schema(table)["properties"])


def write(table: str, rows: Iterable[Row], path: Path | str) -> None:
    """Write `rows` as CSV, atomically. Columns a row lacks are empty; a column or value the schema lacks raises."""
    names = columns(table)
    complete = [{**dict.fromkeys(names), **row} for row in rows]
    for row in complete:
        check(table, row)
    write_csv(path, names, complete)


def read(table: str, path: Path | str) -> list[Row]:
    """Read a CSV of `table`: numbers as int or float; an empty value is None where the column allows it.

    Raises UserError where the columns or values are not those of the table.
    """

    def value(name: str, text: str) -> Any:
        types = schema(table)["properties"][name].get("type", "string")
        if text == "":
            return None if "null" in types else ""
        if "integer" in types:
            return int(text)
        return float(text) if "number" in types else text

    try:
        with open(path, newline="", encoding="utf-8") as stream:
            reader = csv.DictReader(stream, strict=True)
            if list(reader.fieldnames or []) != columns(table):
                raise ValueError("its columns are others")
            rows = [{name: value(name, text) for name, text in row.items()} for row in reader]
        for row in rows:
            check(table, row)
    except (ValueError, TypeError, csv.Error, jsonschema.ValidationError) as error:
        reason = getattr(error, "message", str(error))[:100]
        raise UserError(f"{path}: is no {table} table as this version writes it ({reason}); make it anew") from None
    return rows


def concatenate(table: str, paths: Iterable[Path | str], target: Path | str, key: Iterable[str] = ()) -> None:
    """Join several files of `table` into one; of rows that agree in the columns `key`, if any, the first is kept."""
    rows: list[Row] = []
    for path in paths:
        of_the_cell = read(table, path)
        if not of_the_cell and table in ONE_ROW_AT_LEAST:
            raise UserError(f"{path}: has no row, and every cell has one; make it anew")
        rows += of_the_cell
    names = list(key)
    if names:
        rows = list({tuple(row[name] for name in names): row for row in reversed(rows)}.values())[::-1]
    write(table, rows, target)
