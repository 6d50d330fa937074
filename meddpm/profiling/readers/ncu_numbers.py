"""Numbers as Nsight Compute prints them: in the machine's locale, with "." or "," before the decimals.

One number does not always tell which: "2,368" is either. So all numbers of a file are looked at first.
"""

import re
from functools import lru_cache

from meddpm.profiling.readers.ncu_files import BLOCK, DURATIONS, GRID, SIZES

# What stands between groups of digits: spaces of any kind, and apostrophes (Switzerland).
SPACES = r"\s'\u2019"
# Letters of a number at most; the largest has 309 digits.
LONGEST = 400
# So many numbers that can be read in one way only settle how a file writes them.
ENOUGH = 500

NUMBER = re.compile(r"([+-]?)(\d[\d.,]*|[.,]\d+)([eE][+-]?\d+)?")
GROUP_SPACE = re.compile(rf"(?<=\d)[{SPACES}](?=\d{{3}}(?!\d))")
GROUPS = {mark: re.compile(rf"\d{{1,3}}(\{mark}\d{{2,3}})*\{mark}\d{{3}}") for mark in ".,"}
UNSETTLED = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")
SIZES_APART = re.compile(r",\s+|;\s*|\s*x\s*")
# Base units of what is counted one by one, where it is a sum.
WHOLE = {"ns", "byte", "inst", "cycle", "sector", "request", "warp", "thread", "block"}
DIMENSIONS = frozenset({*GRID, *BLOCK, *SIZES})
OTHER = {".": ",", ",": "."}


class DecimalMark:
    """Finds the decimal mark of a file from its numbers, of which `see` and its siblings are given each."""

    def __init__(self) -> None:
        # Evidence, the best first: numbers that can be read in one way only; whole numbers, whose mark stands between
        # groups of digits; durations in us or more, which are whole ns, so that three digits are decimals; and lists
        # and cells with ";" between them, as where "," is the decimal mark.
        self.shown, self.whole, self.scaled, self.lists = ({".": 0, ",": 0} for _ in range(4))
        # A number that is needed and can be read in two ways.
        self.doubtful = ""

    def see(self, text: str, name: str, unit: str, power: int, needed: bool) -> None:
        """The cell of a metric, with its base unit and the power of ten that its unit stands for."""
        text = plain(text)
        if not self._seen(text, name in DIMENSIONS or (not power and _is_whole(name, unit))):
            return
        if power and name in DURATIONS:
            self.scaled[_mark(text)] += 1
        if needed:
            self.doubtful = self.doubtful or text

    def see_whole(self, text: str) -> None:
        """A cell that holds a whole number, as an ID."""
        self._seen(text.strip(), True)

    def see_sizes(self, text: str) -> None:
        """A cell such as "(128, 1, 1)"."""
        parts = SIZES_APART.split(text.strip("() "))
        if len(parts) == 3:
            self.lists[","] += ";" in text
            for part in parts:
                self.see_whole(part)

    def see_delimiter(self, delimiter: str) -> None:
        self.lists[","] += delimiter == ";"

    def is_settled(self) -> bool:
        return sum(self.shown.values()) >= ENOUGH

    def found(self) -> tuple[str, str | None]:
        """ "." or ",", and a note for the reader where that is doubtful and matters."""
        mark, sure = ".", False
        for votes in (self.shown, self.whole, self.scaled, self.lists):
            if votes["."] != votes[","]:
                mark = max(votes, key=votes.__getitem__)
                # Durations alone are a good guess, but one that differs from what most files have is worth a word.
                sure = votes is not self.scaled or mark == "." or self.lists[","] > 0
                break
        if sure or not self.doubtful:
            return mark, None
        return mark, (
            f'nothing in the file settles whether "{self.doubtful}" has thousands or decimals: "{mark}" is taken as '
            "the decimal mark; if that is wrong, export again with LC_ALL=C"
        )

    def _seen(self, text: str, whole: bool) -> bool:
        """Count a number; whether it can be read in two ways."""
        shown = number(text, ".")[1]
        if shown:
            self.shown[shown] += 1
        elif UNSETTLED.fullmatch(text):
            if whole:
                self.whole[OTHER[_mark(text)]] += 1
            return True
        return False


def _is_whole(name: str, unit: str) -> bool:
    # Without any units a file has base units. A GPU's clock has no fractions of a ns.
    return name in DURATIONS or (name.endswith(".sum") and unit in WHOLE)


def _mark(text: str) -> str:
    return "," if "," in text else "."


def plain(text: str) -> str:
    """The value of a cell, without those of the instances behind it: "5 (1; 2; 2)"; "" where it is no number's."""
    text = text.strip()
    text = (text.partition("(")[0] if text.endswith(")") else text).rstrip("% ")
    return text if len(text) <= LONGEST else ""


@lru_cache(maxsize=1 << 16)
def value(text: str, mark: str, power: int) -> float | None:
    """The number of a cell times a power of ten; None for "n/a", words, nan and infinities."""
    digits = number(text, mark)[0]
    if digits is None:
        return None
    # The power joins the text, so that 0.001728 ms are 1728 ns and not a hair more.
    found = float(digits) * 10.0**power if "e" in digits.lower() else float(f"{digits}e{power}")
    return found if abs(found) != float("inf") else None


@lru_cache(maxsize=1 << 16)
def number(text: str, mark: str) -> tuple[str | None, str | None]:
    """A number in digits and ".", and the decimal mark that it shows beyond doubt; (None, None) where it is none.

    `mark` decides only what can be read both ways, as "1,234".
    """
    match = NUMBER.fullmatch(GROUP_SPACE.sub("", text))
    if match is None:
        return None, None
    sign, digits, exponent = match[1], match[2], match[3] or ""
    marks = [letter for letter in digits if letter in ".,"]
    shown = None
    if not marks:
        return sign + digits + exponent, None
    if len(set(marks)) == 2:
        shown = marks[-1]
        whole, _, part = digits.rpartition(shown)
        if not GROUPS[marks[0]].fullmatch(whole):
            return None, None
        digits = re.sub(r"[.,]", "", whole) + "." + part
    elif len(marks) > 1:
        if not GROUPS[marks[0]].fullmatch(digits):
            return None, None
        shown = OTHER[marks[0]]
        digits = digits.replace(marks[0], "")
    elif UNSETTLED.fullmatch(digits) and not exponent:
        digits = digits.replace(marks[0], "." if marks[0] == mark else "")
    else:
        shown = marks[0]
        digits = digits.replace(shown, ".")
    return sign + digits + exponent, shown
