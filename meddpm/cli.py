"""The command line: python -m meddpm VERB. Each verb is a few lines around one function of the library."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from meddpm import cli_data, cli_model, cli_slurm
from meddpm.config import UserError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
app.add_typer(cli_model.app, name="model")
app.add_typer(cli_data.app, name="data")
app.add_typer(cli_slurm.app, name="slurm")

Results = Annotated[Path, typer.Option(help="The folder that the workflow wrote.")]


@app.callback()
def _verbs() -> None:
    """What Med-DDPM costs on a GPU, which optimisation pays, and whether the picture stays the same."""


@app.command()
def summary(results: Results = Path("results")) -> None:
    """Print the small table of a finished study and where its report lies."""
    from meddpm.report.summary import print_summary

    tables = results / "tables"
    if not (tables / "timing.csv").is_file():
        raise UserError(f"{tables}/timing.csv is not there: run the workflow first, with `make demo`")
    print_summary(tables, results / "report" / "index.html")


@app.command()
def status(
    folder: Annotated[Path, typer.Option(help="The folder of the run, where results/ lies.")] = Path("."),
    failed: Annotated[bool, typer.Option("--failed", help="Only what failed or has not ended.")] = False,
    every: Annotated[bool, typer.Option("--all", help="A line for every cell, also where they are many.")] = False,
) -> None:
    """Say how far a run is: every cell, on a cluster the SLURM job behind it, and why what failed did.

    Exit code 1 if a cell or another job failed.
    """
    from meddpm.report.status_table import print_status
    from meddpm.runs import plan, state
    from meddpm.slurm import queue

    planned = plan.read(folder)
    if planned is None:
        raise UserError(
            f"{folder}: no run was started in this folder; start one with `snakemake --profile local` on one machine, "
            "or `snakemake --profile slurm` on a cluster"
        )
    cells = state.states(planned, folder, queue.jobs(folder))
    print_status(planned, cells, unsettled_only=failed, every_cell=every)
    if any(cell.state == state.FAILED for cell in cells):
        raise typer.Exit(1)


def main() -> None:
    """Run the command line; a fault that the user can mend is one line and exit code 1."""
    try:
        app()
    except UserError as error:
        sys.exit(str(error))
