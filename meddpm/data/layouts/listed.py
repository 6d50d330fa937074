"""Cases that a list names: a TSV with a line each."""

import csv
import os
from pathlib import Path

from meddpm.config import UserError
from meddpm.data.layouts.drafts import Draft
from meddpm.data.layouts.names import ID_PATTERN, require_images, shown
from meddpm.data.layouts.walk import split_extension

_ID, _LABEL = "id", "label"


def read(path: Path, images: tuple[str, ...] | None) -> list[Draft]:
    """The cases of the list `path`, tab-separated with a header in UTF-8.

    Column `label` has the path of the label map, `id` the case's name (without it, or where it is empty: the name of
    the label map), and every other column the path of the image that it is called by. `images` are those that are
    taken, None: all. Paths are absolute or relative to the list; an empty cell says that there is no such file.

    What is wrong with one line is a fault of its case. Raises UserError where the list cannot be read, has no line, has
    no column `label`, or lacks one of `images`.
    """
    header, lines = _lines(path)
    there = _images(path, header)
    require_images(f"{shown(path)}:", images, there)
    if not lines:
        raise UserError(f"{shown(path)}: names no case; give each a line below the header.")
    return [_draft(path, number, header, cells, images or tuple(there)) for number, cells in lines]


def _lines(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The cells of the header, and of each line that is not empty with its number."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream, delimiter="\t")
            rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
    except UnicodeDecodeError:
        raise UserError(f"{shown(path)}: is not UTF-8 text; save it as a tab-separated list in UTF-8.") from None
    except csv.Error as error:
        raise UserError(f"{shown(path)}: cannot be read as a tab-separated list ({error}); mend it.") from None
    except OSError as error:
        raise UserError(f"{shown(path)}: cannot be read ({error.strerror}); check the file and its mode.") from None
    rows = [(number, row) for number, row in rows if any(row)]
    return (rows[0][1], rows[1:]) if rows else ([], [])


def _images(path: Path, header: list[str]) -> list[str]:
    """The columns that are images."""
    lower = [name.lower() for name in header]
    if _LABEL not in lower:
        columns = ", ".join(f"'{shown(name)}'" for name in header) or "none"
        raise UserError(f"{shown(path)}: has no column label; its columns, parted by tabs, are: {columns}.")
    twice = sorted({name for name in lower if lower.count(name) > 1})
    bad = [name for name in header if not ID_PATTERN.fullmatch(name)]
    if twice or bad:
        fault = f"twice '{shown(twice[0])}'" if twice else f"a column '{shown(bad[0])}'"
        rule = "letters of A to Z, digits, dots, dashes and underscores"
        raise UserError(f"{shown(path)}: has {fault}; give each column a name of its own, of {rule}.")
    return [name for name in header if name.lower() not in (_ID, _LABEL)]


def _draft(path: Path, number: int, header: list[str], cells: list[str], images: tuple[str, ...]) -> Draft:
    where = f"{shown(path)}, line {number}"
    faults = []
    values = dict(zip(header, [*cells, *[""] * len(header)], strict=False))
    plain = {name.lower(): value for name, value in values.items()}
    label = plain[_LABEL]
    name = plain.get(_ID) or split_extension(Path(label).name)[0] or f"line-{number}"
    if len(cells) != len(header):
        fault = f"{where}: has {len(cells)} cells where the header has {len(header)}; part them by tabs."
        # The cells may be anything: of them only an id is taken.
        return Draft(name if ID_PATTERN.fullmatch(name) else f"line-{number}", where, {}, [], [fault], line=True)
    files = {image: [path.parent / values[image]] if values[image] else [] for image in images}
    labels = [path.parent / label] if label else []
    for file in [*labels, *(file for paths in files.values() for file in paths)]:
        try:
            os.lstat(file)
        except PermissionError:
            faults.append(f"{where}: {shown(file)} cannot be looked at; mend the permissions of its folder.")
        except (OSError, ValueError):
            faults.append(f"{where}: there is no file {shown(file)}; mend the path (from the list's folder on).")
    return Draft(name, where, files, labels, faults, line=True)
