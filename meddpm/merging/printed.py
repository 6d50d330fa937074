"""What was joined, in a terminal: a line a folder, a column a table, and what is to be said of it."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from meddpm.merging import Merged
from meddpm.merging.target import shown
from meddpm.report.console import standard_output
from meddpm.words import one_line

# The notes that are printed; merged.json has all.
NOTES = 20


def print_merged(merged: Merged, console: Console | None = None) -> None:
    """Print how many rows of each table were taken of each folder. `console` None: standard output."""
    console = console or standard_output()
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("rows taken of", overflow="fold")
    for name in merged.counts:
        table.add_column(name, justify="right", no_wrap=True)
    for number, folder in enumerate(merged.folders):
        # Text, not str: rich would read square brackets in a name as markup.
        table.add_row(Text(folder), *(str(of_parts[number]) for of_parts in merged.counts.values()))
    table.add_row(Text("all"), *(str(sum(of_parts)) for of_parts in merged.counts.values()), style="bold")
    console.print(table)
    shown_notes = merged.notes[:NOTES]
    if len(merged.notes) > NOTES:
        shown_notes.append(f"... and {len(merged.notes) - NOTES} more, in {shown(merged.out)}/merged.json")
    for note in shown_notes:
        console.print(Text(one_line(note, 1000), "yellow"), soft_wrap=True)
    what = f"The tables: {shown(merged.out)}/tables"
    console.print(Text(f"{what}; the page: {shown(merged.page)}" if merged.page else what), soft_wrap=True)
