"""The command line: python -m meddpm VERB. Each verb is a few lines around one function of the library."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from meddpm import cli_data, cli_model, cli_slurm
from meddpm.config import UserError
from meddpm.log import REFUSED, refusal

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
app.add_typer(cli_model.app, name="model")
app.add_typer(cli_data.app, name="data")
app.add_typer(cli_slurm.app, name="slurm")


def _named(text: str) -> Path:
    """A folder that was named: an empty name (of a variable that is not set) is not the current folder."""
    if not text:
        raise UserError("the name of a folder is empty; name it (. is the current folder)")
    return Path(text)


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


@app.command()
def merge(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR", parser=_named, help="Folders of results, or checkouts.")
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", parser=_named, help="Where to: a folder that is not there yet.")
    ],
    prefer: Annotated[
        list[Path] | None,
        typer.Option(
            "--prefer",
            metavar="DIR",
            parser=_named,
            help="Where figures differ, take those of this one of the folders.",
        ),
    ] = None,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Draw the page from the joined tables.")] = True,
) -> None:
    """Join the results of several runs: a study that ran in parts, on several machines or days."""
    from meddpm import merging
    from meddpm.merging.printed import print_merged

    print_merged(merging.merge(folders, out, prefer or [], page))


@app.command()
def kernels(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="A trace, report or export of a profiler.")],
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write every kernel as CSV too.")] = None,
    top: Annotated[int, typer.Option("--top", metavar="N", min=0, help="Kernels that are printed at most.")] = 20,
) -> None:
    """Say where the time of a file of a profiler goes, or of two files what changed from the first to the second.

    Files of torch.profiler, Nsight Compute and Nsight Systems; docs/profiling.md says how to make them.
    """
    from meddpm.log import show_progress
    from meddpm.profiling import kernel_csv
    from meddpm.profiling.readers import reading
    from meddpm.report.kernel_table import print_files
    from meddpm.words import printable

    if out is not None:
        kernel_csv.check(out)
    with show_progress():
        found = [(file, reading.read(file)) for file in files]
    if out is not None:
        kernel_csv.write(out, found)
    print_files(found, top)
    if out is not None:
        typer.echo(f"Every kernel with its whole name: {printable(str(out))}")


def main() -> None:
    """Run the command line; a fault that the user can mend is one line and exit code 1."""
    from meddpm.report.console import allow_any_letter

    allow_any_letter()
    try:
        app()
    except UserError as error:
        sys.exit(str(error))
    except OSError as error:
        if error.errno not in REFUSED:
            raise
        text = refusal(error, "the output")
        # What is left in the buffer would be refused once more, as a traceback at the end of the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(text)
