"""What a file of weights is, in a terminal."""

import json
import re
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from meddpm.model.formats import architecture, fit
from meddpm.model.formats import card as cards
from meddpm.model.formats.inspection import Inspection
from meddpm.model.presets import PRESETS
from meddpm.report.console import standard_output

LISTED = 5
"""Differences that are shown of a preset that does not fit."""


def print_inspection(path: Path | str, facts: Inspection, every_shape: bool = False) -> None:
    """Print the facts of a file: a line each, then the parts of the network or, on demand, every weight's shape."""
    console = standard_output()
    console.print(Text(str(path), "bold"), soft_wrap=True)
    _print_rows(console, _rows(facts))
    console.print()
    (_print_shapes if every_shape else _print_parts)(console, facts)
    for fault in facts.faults:
        console.print(Text(f"\nA job would refuse it: {fault}", "red"))


def print_verdict(preset: str, misfits: list[str]) -> None:
    """Print whether the weights fit the preset of this name, and if not, why."""
    console = standard_output()
    if not misfits:
        console.print(Text(f"\nThe weights fit {preset}.", "green"))
        return
    console.print(Text(f"\nThe weights do not fit {preset}:", "red"))
    for line in _shortened(misfits):
        console.print(Text(f"  {line}"))


def _rows(facts: Inspection) -> list[tuple[str, list[str]]]:
    """The facts in words: label and lines of each."""
    rows = [
        ("format", [f"{facts.kind}, {megabytes(facts.size)}"]),
        ("sha256", [facts.sha256]),
    ]
    if facts.entries:
        rows.append(("holds", [", ".join(map(_clean, facts.entries)) + f" (the weights are those of {facts.section})"]))
    if facts.step is not None:
        rows.append(("trained", [f"{facts.step:,} steps"]))
    types = sorted(set(facts.types.values()))
    count = architecture.parameters(facts.shapes)
    rows.append(("weights", [f"{len(facts.shapes)} tensors of {', '.join(types) or '-'}, {count:,} parameters"]))
    if facts.diffusion_steps is not None:
        rows.append(("schedule", [f"{facts.diffusion_steps} diffusion steps"]))
    rows.append(("fits", _fits(facts)))
    read = architecture.read_off(facts.shapes)
    if read and not facts.preset:
        rows.append(("as a row", [read.row()]))
    return rows + _card_rows(facts.card)


def _fits(facts: Inspection) -> list[str]:
    """The preset that fits, or the closest one and the first differences."""
    if facts.preset:
        return [f"preset {facts.preset}, every key and shape"]
    near = fit.closest(facts.shapes)
    wanted = fit.shapes(PRESETS[near])
    different = fit.differences(facts.shapes, wanted)
    lines = [f"no preset; the closest is {near}, from which {len(different)} of {len(wanted)} weights differ:"]
    return lines + _shortened(different)


def _card_rows(card: dict[str, Any] | None) -> list[tuple[str, list[str]]]:
    """What a card says: the model that the weights were trained for, and the data."""
    if card is None:
        return [("card", ["none: size, label values and prediction are not in the file"])]
    rows = []
    model = cards.configuration(card)
    if model:
        size = "x".join(map(str, model.size))
        labels = ", ".join(map(str, model.condition_labels))
        low, high = model.condition_range
        guess = " (a guess, by the shapes)" if cards.FOUND_BY_SHAPES.items() <= card.items() else ""
        rows.append(
            ("model", [f"{size} voxels, labels {labels} in {low:g} and {high:g}, predicts {model.prediction}{guess}"])
        )
    known = {"dataset": "data", "cases": "cases", "note": "note"}
    rows += [(label, [_clean(str(card[key]))]) for key, label in known.items() if card.get(key)]
    return rows or [("card", [_clean(json.dumps(card))])]


def _print_rows(console: Console, rows: list[tuple[str, list[str]]]) -> None:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, lines in rows:
        # Text, not str: rich would read square brackets as markup.
        table.add_row(Text(f"  {label}"), Text("\n".join(lines)))
    console.print(table)


def _print_parts(console: Console, facts: Inspection) -> None:
    """The parts of the network: how many tensors and numbers each has."""
    parts: dict[str, dict[str, tuple[int, ...]]] = {}
    for key, shape in facts.shapes.items():
        parts.setdefault(key.partition(".")[0], {})[key] = shape
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("  part")
    table.add_column("tensors", justify="right")
    table.add_column("parameters", justify="right")
    for name, inside in sorted(parts.items(), key=lambda part: _natural(part[0])):
        table.add_row(Text(f"  {_clean(name)}"), f"{len(inside):,}", f"{architecture.parameters(inside):,}")
    console.print(table)


def _print_shapes(console: Console, facts: Inspection) -> None:
    """Every weight: key, shape and type."""
    for key in sorted(facts.shapes, key=_natural):
        line = f"  {_clean(key):44} {list(facts.shapes[key])!s:24} {facts.types[key]}"
        console.print(Text(line), soft_wrap=True)


def _shortened(lines: list[str]) -> list[str]:
    more = [f"and {len(lines) - LISTED} more"] if len(lines) > LISTED else []
    return lines[:LISTED] + more


def _natural(key: str) -> list[Any]:
    """Sorts the parts from the input to the output, and block 10 behind block 9."""
    order = ("time_embed", "input_blocks", "middle_block", "output_blocks", "out")
    first, *rest = key.split(".")
    place = order.index(first) if first in order else len(order)
    return [place, first, *([int(part), part] if re.fullmatch("[0-9]{1,9}", part) else [-1, part] for part in rest)]


def _clean(text: str) -> str:
    """A text of the file without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:500])


def megabytes(size: int) -> str:
    """A number of bytes, in words."""
    return f"{size / 1e6:.1f} MB"
