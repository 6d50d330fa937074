"""The verbs python -m meddpm model VERB, each a few lines around one function of the library."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from meddpm.model.formats.conversion import Converted

app = typer.Typer(
    no_args_is_help=True, pretty_exceptions_enable=False, help="What a file of weights is, and its format."
)


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A file of weights.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="Where to: .safetensors, .pt or .pth.")],
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it is there.")] = False,
) -> None:
    """Write weights in the other format, without loss: .pt to .safetensors or .safetensors to .pt."""
    from meddpm.model.formats import conversion

    _say(target, conversion.convert(source, target, force))


@app.command()
def halve(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A file of weights.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="Where to: .safetensors.")],
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it is there.")] = False,
) -> None:
    """Write weights in fp16: half the size of fp32, and rounded."""
    from meddpm.model.formats import conversion

    _say(target, conversion.halve(source, target, force))


def _say(target: Path, done: "Converted") -> None:
    from meddpm.report.weights import megabytes

    fits = f"the preset {done.preset}" if done.preset else "no preset"
    typer.echo(f"{target}: {megabytes(target.stat().st_size)}, holds {done.kept}; the weights fit {fits}")


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of weights.")],
    against: Annotated[str | None, typer.Option(metavar="PRESET", help="Say whether it fits this preset.")] = None,
    shapes: Annotated[bool, typer.Option("--shapes", help="List every weight with its shape.")] = False,
) -> None:
    """Print what a file of weights is, which preset it fits, and what does not fit."""
    from meddpm.model.formats import inspection
    from meddpm.report.weights import print_inspection, print_verdict

    facts = inspection.inspect(file)
    misfits = inspection.misfits(facts, against) if against else []
    print_inspection(file, facts, shapes)
    if against:
        print_verdict(against, misfits)
        if misfits:
            raise typer.Exit(1)
