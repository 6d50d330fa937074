"""The verbs python -m meddpm slurm VERB, each a few lines around one function of the library."""

from pathlib import Path
from typing import Annotated

import typer

from meddpm.config import ConfigError, repository_root

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="What a SLURM cluster has.")


@app.callback()
def _verbs() -> None:
    """What a SLURM cluster has."""


@app.command("check")
def check_site(
    file: Annotated[
        Path | None,
        typer.Option("--site", metavar="FILE", help="How the cluster is asked.", show_default="slurm/site.yaml"),
    ] = None,
    propose: Annotated[
        bool, typer.Option("--propose", help="Print a proposed FILE also where nothing is wrong.")
    ] = False,
) -> None:
    """Compare what the publication study asks for with what the cluster has; where that differs, propose a FILE.

    Exit code 1 if anything differs.
    """
    from meddpm import study
    from meddpm.report.site_table import print_check
    from meddpm.slurm import check, proposal, site

    root = repository_root()
    files = [root / "config.yaml", root / "study.yaml", file or root / "slurm" / "site.yaml"]
    partitions = site.query()
    block = proposal.propose(partitions)
    try:
        rows = check.check(study.load(study.read(files), root, source=files[-1].name), partitions)
    except ConfigError:
        typer.echo(block)
        raise
    print_check(rows)
    wrong = any(row.findings for row in rows)
    if wrong or propose:
        typer.echo(f"\n{block}", nl=False)
    if wrong:
        raise typer.Exit(1)
