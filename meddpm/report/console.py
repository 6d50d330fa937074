"""Where the tables of the command line are printed."""

import codecs
import io
import sys
import unicodedata

from rich.console import Console

# Columns where the output is no terminal (a log): rich would fold tables at 80.
LOG_WIDTH = 120
# What writes letters that an encoding lacks, and signs: each as wide as it was, so that columns stay aligned.
PLAIN = "meddpm_plain"
PLAIN_LETTERS = {
    "\N{EN DASH}": "-",
    "\N{MULTIPLICATION SIGN}": "x",
    "\N{HORIZONTAL ELLIPSIS}": "~",
    "\N{MIDDLE DOT}": ".",
}


def standard_output(width: int = LOG_WIDTH) -> Console:
    """Standard output, `width` columns wide where that is no terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=width)


def allow_any_letter() -> None:
    """From now on standard output writes a letter that its encoding lacks as a plain one, or as a question mark."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # none where it is closed
        codecs.register_error(PLAIN, _plain)
        sys.stdout.reconfigure(errors=PLAIN)


def _plain(error: UnicodeError) -> tuple[str, int]:
    """The letters that an encoding lacks, in ASCII, and where it goes on."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_plain_letter, error.object[error.start : error.end])), error.end


def _plain_letter(letter: str) -> str:
    plain = PLAIN_LETTERS.get(letter) or unicodedata.normalize("NFKD", letter)[0]
    return plain if plain.isascii() else "?"
