"""What was found in a dataset, in a terminal: a line a case, and below it what is to be said of the case."""

import textwrap
from pathlib import Path

from rich.console import Console
from rich.text import Text

from meddpm.data.manifest import CaseRow
from meddpm.report import case_words
from meddpm.report.console import standard_output
from meddpm.report.rows import unique
from meddpm.status import OK
from meddpm.words import printable

HEADINGS = ("case", "shape", "voxel, mm", "axes", "intensity", "labels, mL")
GAP, INDENT = "  ", "    "
# What the first and the last column may take at least, where the terminal is narrow.
LEAST_FIRST, LEAST_LAST = 10, 12
# An id that is longer than this makes the column no wider, if few are.
LONG_ID = 24
# Volumes of a label that differ by less are the same: another grid changes them a little.
NEAR = 0.02


def print_cases(
    found_layout: str,
    path: Path,
    rows: list[CaseRow],
    dataset_warnings: list[str],
    asked: str = "",
    console: Console | None = None,
) -> None:
    """Print what was found at `path`: the cases, what was done to them, warnings, refusals, and how many there are.

    Shapes, voxels, axes, intensities (of all images of a case) and labels are those of the files; where a preparation
    was tried and its labels are others, they stand below. `dataset_warnings` belong to no case. `asked` says what the
    cases are held against. `console` None: standard output, `LOG_WIDTH` columns wide where that is no terminal. Nothing
    is cut off: what is too long is wrapped.
    """
    console = console or standard_output()
    images = unique(name for row in rows for name in case_words.images(row))
    taken = f", images {', '.join(images)}" if images else ", label maps alone" if rows else ""
    _say(console, f"{path}: layout {found_layout}{taken}", "bold")
    _say(console, f"checked {asked}" if asked else "", "dim")
    common = case_words.in_all(rows)
    lines = [_cells(row) for row in rows]
    widths = _widths(lines, console.width)
    if rows:
        _print_line(console, HEADINGS, widths, "dim")
    for row, cells in zip(rows, lines, strict=True):
        _print_line(console, cells, widths, "red" if row.status != OK else "yellow" if row.warnings else "")
        remarks = [change for change in row.changes if change not in common]
        if row.label_volumes_ml and not _near(row.original_label_volumes_ml, row.label_volumes_ml):
            remarks.append(f"labels then: {_labels(row.label_volumes_ml)}")
        _say(console, "; ".join(remarks), "dim", INDENT)
        for warning in row.warnings:
            _say(console, f"warning: {warning}", "yellow", INDENT)
        if row.status != OK:
            _say(console, f"refused: {row.reason}", "red", INDENT)
    console.print()
    if common:
        _say(console, f"Every case: {'; '.join(common)}", "dim")
    for warning in dataset_warnings:
        _say(console, f"warning: {warning}", "yellow")
    _say(console, case_words.summary(rows), "bold")


def _say(console: Console, words: str, style: str, indent: str = "") -> None:
    """Print words, wrapped between words where there is room for one, each line behind `indent`."""
    for line in textwrap.wrap(printable(words), console.width - len(indent), break_on_hyphens=False):
        # Text, not str: rich would read square brackets in a name as markup.
        console.print(Text.assemble(indent, (line, style)), soft_wrap=True)


def _cells(row: CaseRow) -> tuple[str, ...]:
    """The cells of a case under `HEADINGS`."""
    return (
        printable(row.id),
        case_words.shape(row.original_shape),
        case_words.spacing(row.original_spacing_mm),
        row.original_orientation,
        case_words.intensity(row.original_intensity_ranges),
        _labels(row.original_label_volumes_ml),
    )


def _labels(volumes: dict[int, float]) -> str:
    return " ".join(f"{label}={case_words.volume(ml)}" for label, ml in sorted(volumes.items()))


def _near(before: dict[int, float], after: dict[int, float]) -> bool:
    """Whether the labels are the same, and their volumes near enough."""
    return before.keys() == after.keys() and all(abs(after[label] - ml) <= NEAR * ml for label, ml in before.items())


def _widths(lines: list[tuple[str, ...]], room: int) -> list[int]:
    """How wide each column is: as its longest text, but for the first and the last where `room` is short of that."""
    longest = [max(map(len, column)) for column in zip(HEADINGS, *lines, strict=True)]
    first, *middle, last = longest
    ids = sorted(len(cells[0]) for cells in lines)
    if ids:
        usual = max(LONG_ID, ids[3 * len(ids) // 4])
        first = max([len(HEADINGS[0]), *(length for length in ids if length <= usual)])
    free = room - sum(middle) - len(GAP) * (len(longest) - 1)
    first = min(first, max(LEAST_FIRST, free - min(last, LEAST_LAST)))
    return [first, *middle, max(LEAST_FIRST, min(last, free - first))]


def _print_line(console: Console, cells: tuple[str, ...], widths: list[int], style: str) -> None:
    """Print one line of the table, its first cell in `style`. A long id gets a line before it, long labels more."""
    name, *middle, labels = cells
    if len(name) > widths[0]:
        _say(console, name, style)
        name = ""
    labels, *more = textwrap.wrap(labels, widths[-1]) or [""]
    rest = GAP.join(cell.ljust(width) for cell, width in zip((*middle, labels), widths[1:], strict=True)).rstrip()
    head = name.ljust(widths[0]) + GAP if rest else name
    console.print(Text.assemble((head, style), (rest, "dim" if cells is HEADINGS else "")), soft_wrap=True)
    before = " " * (sum(widths[:-1]) + len(GAP) * (len(widths) - 1))
    for line in more:
        console.print(Text(before + line), soft_wrap=True)
