"""The command line: python -m meddpm VERB. Each verb is a few lines around one function of the library."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from meddpm import cli_data, cli_model
from meddpm.config import UserError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
app.add_typer(cli_model.app, name="model")
app.add_typer(cli_data.app, name="data")

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


def main() -> None:
    """Run the command line; a fault that the user can mend is one line and exit code 1."""
    try:
        app()
    except UserError as error:
        sys.exit(str(error))
