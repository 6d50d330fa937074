"""The answer in a terminal: a small table, and where the page is."""

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from meddpm import tables
from meddpm.report import numbers, rows
from meddpm.report.console import LOG_WIDTH
from meddpm.report.rows import BASELINE
from meddpm.status import OK
from meddpm.tables import Row

STYLES = {"ok": "green", "unsupported": "dim", "unavailable": "dim", "failed": "red"}


def summary(timing_rows: list[Row], quality_rows: list[Row]) -> Table:
    """One line a row of the timing table: variant, ms a step, speed-up, SSIM against fp32, status.

    Columns for model, GPU, phase and solver are there where they tell rows apart. The fastest variant is bold.
    """
    keys = [
        (name, heading)
        for name, heading in (("model", "model"), ("gpu", "GPU"), ("phase", "phase"), ("solver", "solver"))
        if len({row[name] for row in timing_rows if row[name]}) > 1
    ]
    phases = {row["phase"] for row in timing_rows}
    step = "step" if len(phases) > 1 else "training step" if phases == {"train"} else "evaluation"
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for _, heading in keys:
        table.add_column(heading)
    table.add_column("variant", overflow="fold")
    table.add_column(f"ms {'an' if step == 'evaluation' else 'a'} {step}", justify="right")
    table.add_column("speed-up", justify="right")
    table.add_column("SSIM vs fp32", justify="right")
    table.add_column("status", overflow="fold")
    for group in rows.groups(timing_rows):
        fastest = rows.answer(group, quality_rows).row
        for row in group.rows:
            cells = [row[name] or numbers.NOT_MEASURED for name, _ in keys] + _cells(row, quality_rows)
            status = Text(row["status"], STYLES[row["status"]])
            if row["reason"]:
                status.append(f"  {row['reason']}", "dim")
            style = "bold" if rows.same_step(row, fastest) else "dim" if row["status"] != OK else ""
            # Text, not str: rich would read square brackets in a name as markup.
            table.add_row(*map(Text, cells), status, style=style)
    return table


def _cells(row: Row, quality_rows: list[Row]) -> list[str]:
    """Variant, time, speed-up and SSIM of one row."""
    ssim = rows.against_fp32(quality_rows, "ssim", row) if row["solver"] else None
    baseline = row["variant"] == BASELINE and row["status"] == OK
    return [
        row["variant"],
        numbers.number(row["step_ms_median"]),
        numbers.times(row["speedup"]),
        "reference" if baseline and row["solver"] else numbers.similarity(ssim["value"] if ssim else None),
    ]


def print_summary(tables_dir: Path | str, report_path: Path | str) -> None:
    """Print the table of `tables_dir`/timing.csv and the quality.csv beside it, if any, and where the page is."""
    folder = Path(tables_dir)
    quality = folder / "quality.csv"
    console = Console()
    if not console.is_terminal:
        console = Console(width=LOG_WIDTH)
    timing_rows = tables.read("timing", folder / "timing.csv")
    quality_rows = tables.read("quality", quality) if quality.is_file() else []
    console.print(summary(timing_rows, quality_rows))
    for group in rows.groups(timing_rows):
        spread = rows.spread(group)
        if spread and spread.jobs > 1:
            where = f"{group.model} on {group.gpu}, {group.phase}"
            share = numbers.percent(spread.relative)
            words = f"{where}: the fp32 medians of {spread.jobs} jobs spread over {share}."
            if spread.relative > rows.STEADY:
                words += " The machine was not steady: the speed-ups are rough."
            console.print(Text(words, "dim"))
    there = Path(report_path).is_file()
    console.print(Text(f"The page: {report_path}" if there else f"{report_path} is not there yet"), soft_wrap=True)
