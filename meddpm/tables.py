"""The published tables: results/tables/*.csv and the per-cell files they are joined from.

Columns, their order and their types come from schemas/<table>.schema.yaml. A value that was not measured is empty.
"""

import csv
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from meddpm.config import repository_root
from meddpm.files import replacing

Row = dict[str, Any]


@cache
def schema(table: str) -> dict[str, Any]:
    """The JSON Schema of one row of `table`."""
    text = (repository_root() / "schemas" / f"{table}.schema.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


def columns(table: str) -> list[str]:
    """The columns of `table`, in their order."""
    return list(schema(table)["properties"])


def write(table: str, rows: Iterable[Row], path: Path | str) -> None:
    """Write `rows` as CSV, atomically. Columns a row lacks are empty; a column or value the schema lacks raises."""
    names = columns(table)
    complete = [{**dict.fromkeys(names), **row} for row in rows]
    validator = jsonschema.Draft202012Validator(schema(table))
    for row in complete:
        validator.validate(row)
    with replacing(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(complete)


def read(table: str, path: Path | str) -> list[Row]:
    """Read a CSV of `table`: numbers as int or float; an empty value is None where the column allows it."""

    def value(name: str, text: str) -> Any:
        types = schema(table)["properties"][name].get("type", "string")
        if text == "":
            return None if "null" in types else ""
        if "integer" in types:
            return int(text)
        return float(text) if "number" in types else text

    with open(path, newline="", encoding="utf-8") as stream:
        return [{name: value(name, text) for name, text in row.items()} for row in csv.DictReader(stream)]


def concatenate(table: str, paths: Iterable[Path | str], target: Path | str, key: Iterable[str] = ()) -> None:
    """Join several files of `table` into one; of rows that agree in the columns `key`, if any, the first is kept."""
    rows = [row for path in paths for row in read(table, path)]
    names = list(key)
    if names:
        rows = list({tuple(row[name] for name in names): row for row in reversed(rows)}.values())[::-1]
    write(table, rows, target)
