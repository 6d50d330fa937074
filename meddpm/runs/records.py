"""The records of a run: JSON that this program wrote whole, and that a crash or a hand may have damaged since."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from meddpm.config import UserError
from meddpm.runs import regular
from meddpm.words import one_line

Record = TypeVar("Record")


def read(path: Path, build: Callable[[Any], Record]) -> Record | None:
    """What `build` makes of the JSON at `path`; None where there is no file. Raises UserError if it is damaged.

    `build` raises ValueError where the JSON is no such record.
    """
    try:
        return build(json.loads(regular.content(path)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"{path}: cannot be read ({one_line(str(error), 150)}); delete it, or start the run again, which writes "
            "another"
        ) from None


def checked(record: object, **fits: Callable[[Any], bool]) -> dict[str, Any]:
    """The record, if it has just these entries and each one fits. Raises ValueError."""
    if not isinstance(record, dict) or record.keys() != fits.keys():
        raise ValueError(f"it should have {', '.join(fits)}")
    for name, fit in fits.items():
        if not fit(record[name]):
            raise ValueError(f"{name} is not what it should be")
    return record


def listed(value: object) -> list[Any]:
    """The value, if it is a list. Raises ValueError."""
    if not isinstance(value, list):
        raise ValueError("it should be a list")
    return value


def is_text(value: object) -> bool:
    """Whether it is a text that a path can have in it."""
    return isinstance(value, str) and "\0" not in value and not any("\ud800" <= letter <= "\udfff" for letter in value)


def is_flag(value: object) -> bool:
    """Whether it is true or false."""
    return isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether it is a whole number from 1 on."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def are_texts(value: object) -> bool:
    """Whether it is a list of texts."""
    return isinstance(value, list) and all(map(is_text, value))


def are_named_texts(value: object) -> bool:
    """Whether it is a mapping of texts to texts."""
    return isinstance(value, dict) and all(map(is_text, [*value, *value.values()]))
