"""Names: what may be an id, and how names stand in a message."""

import os
import re
from pathlib import Path

from meddpm.config import UserError

# An id becomes part of file names.
ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def shown(text: str | Path) -> str:
    """A name with control characters, and bytes that are no text, escaped."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in str(text))


def below(path: Path, root: Path) -> str:
    """The path of a file below `root`, parted by /, as `shown`."""
    return shown(Path(os.path.relpath(path, root)).as_posix())


def some(names: list[str], most: int = 3) -> str:
    """The first of many names."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(shown, names[:most])) + more


def require_images(where: str, images: tuple[str, ...] | None, there: list[str]) -> None:
    """Raise UserError where one of `images` is not `there`."""
    missing = [name for name in images or () if name not in there]
    if missing:
        known = f"`images` can name {', '.join(map(shown, there))}" if there else "it has none at all"
        raise UserError(f"{where} has no image {', '.join(map(shown, missing))}; {known}.")
