"""Where the time goes, in a terminal: the kernels of a file of a profiler, or what changed from one to another."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from meddpm.profiling import comparing, trace
from meddpm.profiling.comparing import Change, Sum
from meddpm.profiling.names import short
from meddpm.profiling.taxonomy import OTHER
from meddpm.profiling.trace import Trace
from meddpm.report.console import standard_output
from meddpm.report.numbers import NOT_MEASURED, SPACE, count, listed, missing, times
from meddpm.words import one_line, printable

PROFILERS = {"torch": "torch.profiler", "ncu": "Nsight Compute", "nsys": "Nsight Systems"}
# From so many columns on a kernel is one line, without and with its launch shape; else its name has a line of its own.
WIDE, WIDEST = 110, 150
GAP, INDENT = "  ", "  "
# Letters of the first column at least, of words in another column at most.
LEAST, LONGEST_WORDS = 16, 28
RANGES, NAMED = 10, 3
# Milliseconds: a smaller change is none.
UNCHANGED = 0.0005
CHANGE_HEADS = ("before, ms", "after, ms", "saved, ms", "before/after", "calls")
ONLY_BEFORE, ONLY_AFTER = "only before", "only after"

Cell = str | Text


def print_files(found: Sequence[tuple[Path, Trace]], top: int, console: Console | None = None) -> None:
    """Print one file, or what changed from the first of two files to the second, or more files one after another.

    `top` is the number of rows of a table of kernels at most. `console` None: standard output, `LOG_WIDTH` columns wide
    where that is no terminal.
    """
    console = console or standard_output()
    if len(found) == 2:
        _print_comparison(console, found, top)
        return
    for path, seen in found:
        _print_file(console, path, seen, top)
    if len(found) > 2:
        _say(console, f"{len(found)} files one after another; name two of them to see what changed", "bold")


def _print_file(console: Console, path: Path, seen: Trace, top: int) -> None:
    rows, whole = trace.rows(seen), comparing.total(seen)
    _print_facts(console, str(path), seen)
    console.print()
    table = [[name, *_sums(part, whole)] for name, part in comparing.by_category(seen).items()]
    _print_table(console, ("category", _kinds(seen), "calls", "ms", "share"), [*table, ["all", *_sums(whole, whole)]])
    _print_kernels(console, seen, rows[:top])
    if len(rows) > top:
        rest = sum(row["time_ms"] for row in rows[top:])
        share = _share(rest / whole.time_ms) if whole.time_ms else NOT_MEASURED
        words = f"{len(rows) - top:,} more, {_ms(rest)}{SPACE}ms ({share})"
        _say(console, f"{words}; --top {len(rows)} prints all, --out FILE writes all with their whole names", "dim")
    if seen.ranges:
        longest = sorted(seen.ranges, key=lambda each: -each.time_ms)
        console.print()
        table = []
        for each in longest[:RANGES]:
            of_range = Sum(each.kernels, each.calls, each.time_ms)
            table.append([printable(each.name), *_sums(of_range, whole)])
        _print_table(console, ("marked range (they nest)", "launches", "calls", "ms", "share"), table)
        if len(longest) > RANGES:
            _say(console, f"{count(len(longest) - RANGES, 'range')} more", "dim")
    console.print()
    _say(console, _unclassified(seen, whole), "yellow" if OTHER in comparing.by_category(seen) else "dim")
    console.print()


def _print_facts(console: Console, name: str, seen: Trace) -> None:
    """What is said of a file before its tables."""
    whole = comparing.total(seen)
    device = f", on {seen.device}" if seen.device else ""
    _say(console, f"{name}: {PROFILERS.get(seen.profiler, seen.profiler)}{device}", "bold")
    if seen.on_gpu:
        what = "kernels" if seen.profiler == "ncu" else "kernels, copies and fills"
        launches = count(whole.calls, "launch", "launches")
        _say(console, f"{what}: {_ms(whole.time_ms)}{SPACE}ms in {launches}")
    else:
        words = "no work of a GPU: operators of the CPU, each with its own time without that of those it calls"
        _say(console, f"{words}; {_ms(whole.time_ms)}{SPACE}ms in {count(whole.calls, 'call')}")
    busy = seen.occupied
    if busy:
        idle = busy.span_ms - busy.busy_ms
        words = f"GPU busy {_ms(busy.busy_ms)} of {_ms(busy.span_ms)}{SPACE}ms"
        if busy.span_ms:
            words += f" ({_share(busy.busy_ms / busy.span_ms)}), idle {_ms(idle)}{SPACE}ms in {count(busy.gaps, 'gap')}"
        if busy.gaps:
            words += f", median {_ms(busy.gap_ms_median)}{SPACE}ms, longest {_ms(busy.gap_ms_longest)}{SPACE}ms"
        _say(console, words)
    elif seen.on_gpu:
        _say(console, "how busy the GPU was is not in the file")
    for words in filter(None, (comparing.overlap(seen), *seen.notes)):
        _say(console, f"note: {one_line(words, 1000)}", "yellow")


def _print_kernels(console: Console, seen: Trace, rows: list[trace.Row]) -> None:
    if not rows:
        return
    console.print()
    words = ["category", "precision", "detail", "launch"]
    words = [word for word in words if any(row[word] for row in rows)]
    wide = console.width >= WIDEST
    table = []
    for row in rows:
        share = NOT_MEASURED if row["share"] is None else _share(row["share"])
        own = [printable(row[word] or "") for word in words]
        name = printable(short(row["kernel"]))
        table.append([*_named(wide, name, own), f"{row['calls']:,}", _ms(row["time_ms"]), share])
    heads = _heads(wide, "kernel" if seen.on_gpu else "operator", words)
    _print_table(console, (*heads, "calls", "ms", "share"), table, numbers=3)


def _unclassified(seen: Trace, whole: Sum) -> str:
    """How much of the time no rule of the taxonomy knows."""
    part = comparing.by_category(seen).get(OTHER)
    if part is None:
        return "unclassified: nothing"
    rows = [row["kernel"] for row in trace.rows(seen) if row["category"] == OTHER]
    names = list(dict.fromkeys(one_line(short(name), 60) for name in rows))
    shown = names[:NAMED] + ([f"{len(names) - NAMED} more"] if len(names) > NAMED else [])
    share = f"{_share(part.time_ms / whole.time_ms)} of the time, " if whole.time_ms else ""
    return f"unclassified (category {OTHER}): {share}{listed(shown)}"


def _print_comparison(console: Console, found: Sequence[tuple[Path, Trace]], top: int) -> None:
    (old_path, old), (new_path, new) = found
    changes = comparing.compare(old, new)
    _print_facts(console, f"before: {old_path}", old)
    _print_facts(console, f"after: {new_path}", new)
    for words in changes.warnings:
        _say(console, f"warning: {words}", "bold yellow")
    console.print()
    table = []
    for figure in changes.figures:
        write = _ms if figure.name.endswith("ms") else _whole
        table.append([figure.name, write(figure.before), write(figure.after), _ratio(figure.before, figure.after)])
    _print_table(console, ("", "before", "after", "before/after"), table)
    console.print()
    table = [[change.name, *_change(change)] for change in changes.categories]
    _print_table(console, ("category", *CHANGE_HEADS), table)
    # Where no name has types or launch shapes, both tables are one.
    if len(changes.families) < len(changes.kernels):
        _print_changes(console, "kind", changes.families, top, exact=False)
    what = "kernel" if old.on_gpu or new.on_gpu else "operator"
    _print_changes(console, what, changes.kernels, top, exact=True)
    console.print()


def _print_changes(console: Console, what: str, changes: Sequence[Change], top: int, exact: bool) -> None:
    """The `top` largest changes, the most time saved first."""
    real = [change for change in changes if abs(change.saved_ms) >= UNCHANGED]
    largest = {id(change) for change in sorted(real, key=lambda change: -abs(change.saved_ms))[:top]}
    shown = [change for change in real if id(change) in largest]
    console.print()
    words = ["launch", "category"] if any(change.launch for change in shown) else ["category"]
    wide = console.width >= (WIDEST if len(words) > 1 else WIDE)
    numbers = CHANGE_HEADS if console.width >= WIDE else CHANGE_HEADS[:-1]
    table = []
    for change in shown:
        own = [printable(getattr(change, word) or "") for word in words]
        name = printable(short(change.name) if exact else change.name)
        table.append([*_named(wide, name, own), *_change(change)[: len(numbers)]])
    if shown:
        _print_table(console, (*_heads(wide, what, words), *numbers), table, numbers=len(numbers))
    if len(changes) > len(shown):
        rest = sum(change.saved_ms for change in changes if id(change) not in largest)
        words = f"save {_ms(rest)}{SPACE}ms" if rest > 0 else f"take {_ms(-rest)}{SPACE}ms longer"
        more = f"{count(len(changes) - len(shown), what)} {'more ' if shown else ''}with smaller changes or none"
        _say(console, f"{more}, which together {words if abs(rest) >= UNCHANGED else 'change nothing'}", "dim")


def _named(wide: bool, name: str, words: list[str]) -> list[Cell]:
    """The first cells of a kernel: its name and each of the words, or one of two lines, the name and all words."""
    if wide:
        return [name, *words]
    return [Text.assemble(name, "\n", (INDENT + ", ".join(filter(None, words)), "dim"))]


def _heads(wide: bool, what: str, words: list[str]) -> list[Cell]:
    return [what, *words] if wide else [", ".join([what, *words])]


def _change(change: Change) -> list[Cell]:
    """The cells under `CHANGE_HEADS`."""
    old, new = change.before, change.after
    saved = Text(_ms(change.saved_ms), "green" if change.saved_ms > 0 else "red" if change.saved_ms < 0 else "")
    ratio = ONLY_BEFORE if old else ONLY_AFTER
    if old and new:
        ratio = _ratio(old.time_ms, new.time_ms)
    calls = [side.calls if side else 0 for side in (old, new)]
    said = f"{calls[0]:,}" if calls[0] == calls[1] else f"{calls[0]:,} to {calls[1]:,}"
    return [*(_ms(side.time_ms) if side else NOT_MEASURED for side in (old, new)), saved, ratio, said]


def _ratio(before: float | None, after: float | None) -> str:
    """`before` over `after`: above 1 where the second is faster."""
    return times(before / after) if before is not None and after else NOT_MEASURED


def _sums(part: Sum, whole: Sum) -> list[Cell]:
    share = _share(part.time_ms / whole.time_ms) if whole.time_ms else NOT_MEASURED
    return [f"{part.kernels:,}", f"{part.calls:,}", _ms(part.time_ms), share]


def _kinds(seen: Trace) -> str:
    return "kernels" if seen.on_gpu else "operators"


def _whole(value: float | None) -> str:
    return NOT_MEASURED if missing(value) else f"{value:,.0f}"


def _ms(value: float | None) -> str:
    """Milliseconds to the microsecond, so that a column is aligned."""
    if missing(value):
        return NOT_MEASURED
    return "< 0.001" if 0 < value < 0.0005 else f"{value:,.3f}".replace("-0.000", "0.000")


def _share(value: float) -> str:
    """A share of one in percent, to a tenth."""
    return f"< 0.1{SPACE}%" if 0 < value < 0.0005 else f"{100 * value:.1f}{SPACE}%"


def _say(console: Console, words: str, style: str = "") -> None:
    """Print words, wrapped between words where there is room for one."""
    for line in textwrap.wrap(printable(words, keep=SPACE), console.width, break_on_hyphens=False):
        # Text, not str: rich would read square brackets in a name as markup.
        console.print(Text(line, style), soft_wrap=True)


def _print_table(console: Console, heads: Sequence[Cell], rows: Sequence[Sequence[Cell]], numbers: int = 0) -> None:
    """Print a table of which the last columns (`numbers`; 0: all but the first) are numbers.

    The first column is as wide as there is room, and what does not fit is cut; where there is hardly any, the last
    columns are left out. Where its cell has two lines, the first has the whole width, the numbers stand in the second.
    """
    words = len(heads) - (numbers or len(heads) - 1)
    lines: list[list[Text]] = []
    for row in (heads, *rows):
        first, *others = (cell if isinstance(cell, Text) else Text(cell) for cell in row)
        *above, first = first.split("\n")
        lines += [[line] for line in above]
        lines.append([first, *others])
    columns = zip(*(line for line in lines if len(line) > 1), strict=True)
    widths = [max(cell.cell_len for cell in column) for column in columns]
    for place in range(1, words):
        widths[place] = min(widths[place], LONGEST_WORDS)
    first = widths[0]
    while True:
        room = console.width - sum(widths[1:]) - len(GAP) * (len(widths) - 1)
        if room >= min(first, LEAST) or len(widths) <= words + 1:
            break
        widths.pop()
    widths[0] = min(first, max(LEAST, room))
    for number, line in enumerate(lines):
        if len(line) == 1:
            line[0].truncate(console.width, overflow="ellipsis")
        else:
            line = line[: len(widths)]
            for place, (cell, width) in enumerate(zip(line, widths, strict=True)):
                cell.truncate(width, overflow="ellipsis")
                cell.align("right" if place >= words else "left", width)
        text = Text(GAP).join(line)
        if number == 0:
            text.stylize("bold")
        console.print(text, soft_wrap=True)
