"""The rows of a table that the workflow wrote."""

import csv
from pathlib import Path


def rows(path: Path) -> list[dict[str, str]]:
    """Each row as its columns."""
    with open(path, newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))
