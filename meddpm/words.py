"""Texts from outside (files, logs, what a cluster says) as words that a table and a terminal can show. Floor 0."""

# Letters of a line at most.
LIMIT = 300


def printable(text: str, keep: str = "") -> str:
    """The text with a question mark for each letter that a terminal would obey; those of `keep` stay."""
    return "".join(letter if letter.isprintable() or letter in keep else "?" for letter in text)


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """As 1 volume, 2 volumes."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def one_line(text: str, limit: int = LIMIT) -> str:
    """The text as one printable line of at most `limit` letters."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= limit else line[: limit - 3] + "..."
