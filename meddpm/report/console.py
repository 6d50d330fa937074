"""Where the tables of the command line are printed."""

from rich.console import Console

# Columns where the output is no terminal (a log): rich would fold tables at 80.
LOG_WIDTH = 120


def standard_output(width: int = LOG_WIDTH) -> Console:
    """Standard output, `width` columns wide where that is no terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=width)
