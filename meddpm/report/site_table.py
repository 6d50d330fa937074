"""What was checked, in a terminal: a line a row, and below the table what is wrong."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from meddpm.report.console import standard_output
from meddpm.slurm.check import CheckedRow
from meddpm.words import printable

# A table of few columns.
LOG_WIDTH = 80


def print_check(rows: list[CheckedRow], console: Console | None = None) -> None:
    """Print the rows, then their findings, each one line however long. `console` None: standard output."""
    console = console or standard_output(LOG_WIDTH)
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("row", "partition", "asks for"):
        table.add_column(heading, overflow="fold")
    table.add_column("", no_wrap=True)
    for row in rows:
        verdict = Text("wrong", "red") if row.findings else Text("ok", "green")
        # Text, not str: rich would read square brackets in a name as markup.
        table.add_row(*(Text(printable(cell)) for cell in (row.name, row.partition, row.asks)), verdict)
    console.print(table)
    if any(row.findings for row in rows):
        console.print()
    for finding in (finding for row in rows for finding in row.findings):
        console.print(Text(printable(finding), "red"), soft_wrap=True)
