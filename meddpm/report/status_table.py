"""The state of a run in a terminal: a line a cell, below it what is to be said of it, and how many there are."""

import re
import textwrap
from collections import Counter
from itertools import groupby, pairwise

from rich.console import Console
from rich.text import Text

from meddpm.report import numbers
from meddpm.report.console import standard_output
from meddpm.runs import state
from meddpm.runs.names import name
from meddpm.runs.plan import Plan
from meddpm.runs.state import CellState
from meddpm.status import FAILED, UNAVAILABLE, UNSUPPORTED
from meddpm.words import printable

# Cells of these stages are lines of the table, in this order.
STAGES = ("prepare", "train", "sample", "bench", "profile", "counters", "timeline", "evaluate")
HEADINGS = ("stage", "model, data", "GPU", "variant", "phase, solver", "state", "SLURM")
STATE_COLUMN = HEADINGS.index("state")
STYLES = {
    state.DONE: "green",
    state.RUNNING: "cyan",
    state.QUEUED: "blue",
    state.NOT_STARTED: "dim",
    state.STOPPED: "yellow",
    UNSUPPORTED: "dim",
    UNAVAILABLE: "dim",
    FAILED: "red",
}
# Nothing is to be done about these.
SETTLED = {state.DONE, UNSUPPORTED, UNAVAILABLE}
# Of these a line says how many there are, not which, where there are many.
FOLDED = {*SETTLED, state.NOT_STARTED, state.QUEUED, state.STOPPED}
# The program in a command, which its process knows by its whole path.
PROGRAM = re.compile(r"^/.*?/snakemake(/__main__\.py)?(?= |$)")
GAP, INDENT = "  ", "    "
# What a column takes at least, where the terminal is narrow.
LEAST = 6
# More cells than these are folded: a line for those of a GPU that are in the same state.
MANY = 60


def print_status(
    plan: Plan,
    cells: list[CellState],
    unsettled_only: bool = False,
    every_cell: bool = False,
    console: Console | None = None,
) -> None:
    """Print the state of a run: its `cells`, the other jobs in short, and how many are in which state.

    `unsettled_only` leaves out what is done or does not run here; `every_cell` folds nothing. `console` None: standard
    output, `LOG_WIDTH` columns wide where that is no terminal.
    """
    console = console or standard_output()
    living = state.lives(plan.host, plan.pid, plan.since)
    now = {True: ", still running", False: ", has ended", None: ""}[living]
    command = PROGRAM.sub("snakemake", plan.command)
    _say(console, f"run of {plan.time} on {plan.host}, process {plan.pid}{now}: {command}", "bold")
    console.print()
    of_stages = sorted((cell for cell in cells if cell.rule in STAGES), key=_place)
    others = [cell for cell in cells if cell.rule not in STAGES]
    in_short = (state.DONE, state.NOT_STARTED)
    shown = [*of_stages, *(cell for cell in others if cell.state not in in_short)]
    if unsettled_only:
        shown = [cell for cell in shown if cell.state not in SETTLED]
    _print_table(console, _lines(shown, fold=len(shown) > MANY and not every_cell))
    for each in in_short:
        names = [name(cell.rule, cell.wildcards) for cell in others if cell.state == each]
        if names and not (unsettled_only and each in SETTLED):
            _say(console, f"other jobs {each}: {', '.join(names)}", STYLES[each])
    counts = Counter(cell.state for cell in of_stages)
    parts = [f"{counts[each]} {each}" for each in state.STATES if counts[each]]
    _say(console, f"{numbers.count(len(of_stages), 'cell')}{': ' if parts else ''}{', '.join(parts)}", "bold")


def _place(cell: CellState) -> tuple[int, tuple[str, ...]]:
    """Where a cell stands in the table: by its stage, then by its names."""
    return STAGES.index(cell.rule) if cell.rule in STAGES else len(STAGES), _names(cell)


def _lines(cells: list[CellState], fold: bool) -> list[tuple[tuple[str, ...], CellState]]:
    """The columns of each line, with the cell that it is about: the first of those that `fold` puts into one."""

    def together(numbered: tuple[int, CellState]) -> object:
        number, cell = numbered
        if not fold or cell.state not in FOLDED:
            return number
        return cell.rule, *_names(cell)[:2], cell.state, cell.detail

    def in_a_row(cell: CellState) -> tuple[object, ...]:
        stage, names = _place(cell)
        return stage, names[:2], state.STATES.index(cell.state), cell.detail, names

    if fold:
        cells = sorted(cells, key=in_a_row)
    lines = []
    for _, group in groupby(enumerate(cells), key=together):
        cell, *more = [each for _, each in group]
        model, gpu, variant, last = _names(cell)
        slurm_id = cell.slurm_id or ""
        if more:
            variant, last, slurm_id = f"{1 + len(more)} cells", "", ""
        columns = (cell.rule, model, gpu, variant, last, cell.state, slurm_id)
        lines.append((tuple(map(printable, columns)), cell))
    return lines


def _names(cell: CellState) -> tuple[str, str, str, str]:
    """The wildcards of a cell, each in its column."""
    of = cell.wildcards
    first, last = (of.get("model") or of.get("dataset", "")), (of.get("solver") or of.get("phase", ""))
    return first, of.get("gpu", ""), of.get("variant", ""), last


def _print_table(console: Console, lines: list[tuple[tuple[str, ...], CellState]]) -> None:
    if not lines:
        return
    # A column that is empty throughout is none.
    used = [number for number in range(len(HEADINGS)) if any(columns[number] for columns, _ in lines)]
    rows = [[columns[number] for number in used] for columns, _ in lines]
    heads = [HEADINGS[number] for number in used]
    widths = _widths(heads, rows, console.width)
    styles = ["dim"] * len(used)
    _print_row(console, heads, widths, styles)
    following = [after for _, (_, after) in pairwise(lines)]
    for row, (_, cell), after in zip(rows, lines, [*following, None], strict=True):
        styles = [STYLES[cell.state] if number == STATE_COLUMN else "" for number in used]
        _print_row(console, row, widths, styles)
        # The same words below many cells are said once.
        if after is None or cell.lines or (after.state, after.detail) != (cell.state, cell.detail):
            _print_words(console, cell)
    console.print()


def _print_words(console: Console, cell: CellState) -> None:
    """What is said below a cell: the reason or progress, and of one that failed the end of its log and its path."""
    _say(console, cell.detail, "red" if cell.state == FAILED else "dim", INDENT)
    if cell.state == FAILED:
        for line in cell.lines:
            _say(console, line, "dim", INDENT + INDENT)
        _say(console, cell.log or "", "", INDENT)


def _say(console: Console, words: str, style: str, indent: str = "") -> None:
    """Print words, wrapped between words where there is room for one, each line behind `indent`."""
    for line in textwrap.wrap(printable(words), console.width - len(indent), break_on_hyphens=False):
        # Text, not str: rich would read square brackets in a log as markup.
        console.print(Text.assemble(indent, (line, style)), soft_wrap=True)


def _widths(heads: list[str], rows: list[list[str]], room: int) -> list[int]:
    """How wide each column is: as its longest text, the widest ones narrower where `room` is short of that."""
    words = [max(head.split(), key=len) for head in heads]
    widths = [max(map(len, column)) for column in zip(words, *rows, strict=True)]
    while sum(widths) + len(GAP) * (len(widths) - 1) > room and max(widths) > LEAST:
        widths[widths.index(max(widths))] -= 1
    return widths


def _print_row(console: Console, row: list[str], widths: list[int], styles: list[str]) -> None:
    """Print one row; what is too long for its column goes on below."""
    wrapped = [textwrap.wrap(text, width) or [""] for text, width in zip(row, widths, strict=True)]
    for number in range(max(map(len, wrapped))):
        line = Text()
        for texts, width, style in zip(wrapped, widths, styles, strict=True):
            line.append((texts[number] if number < len(texts) else "").ljust(width), style)
            line.append(GAP)
        line.rstrip()
        console.print(line, soft_wrap=True)
