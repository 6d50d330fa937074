"""The published tables: what is looked at by hand says of every value what the JSON Schema says."""

import math

import jsonschema
import pytest

from meddpm import tables
from meddpm.validation import StrictValidator

TABLES = ("timing", "kernels", "quality", "environment", "counters", "priorities", "claims")
VALUES = (None, "", "ok", "text", 0, 1, -1, 1.0, 0.5, -0.5, math.nan, math.inf, True, [], {}, b"")


def says(check) -> bool:
    try:
        check()
    except jsonschema.ValidationError:
        return False
    return True


@pytest.mark.parametrize("table", TABLES)
def test_a_value_is_good_where_the_schema_says_so(table: str) -> None:
    validator = StrictValidator(tables.schema(table))
    answers = set()
    good = {
        name: next(value for value in (*VALUES, *column.get("enum", ())) if StrictValidator(column).is_valid(value))
        for name, column in tables.schema(table)["properties"].items()
    }
    for name in good:
        for value in (*VALUES, good[name]):
            row = good | {name: value}
            expected = validator.is_valid(row)
            assert says(lambda row=row: tables.check(table, row)) is expected, (name, value)
            answers.add(expected)
    assert answers == {True, False}


def test_a_row_has_the_columns_of_its_table() -> None:
    row = {name: None for name in tables.columns("claims")}
    del row["model"]
    with pytest.raises(jsonschema.ValidationError, match="'model' is a required property"):
        tables.check("claims", row)
    with pytest.raises(jsonschema.ValidationError, match="'more' was unexpected"):
        tables.check("claims", {**row, "model": "m", "more": 1})


@pytest.mark.parametrize("table", TABLES)
def test_no_schema_says_anything_of_two_columns_at_once(table: str) -> None:
    assert set(tables.schema(table)) == {
        *("$schema", "title", "description", "type", "additionalProperties", "required", "properties"),
    }
