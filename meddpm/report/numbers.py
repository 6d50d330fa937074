"""Numbers as a reader wants them: sensible digits, units, and an en dash for what was not measured."""

import math

SPACE = "\N{NO-BREAK SPACE}"  # a number and its unit stay on one line
NOT_MEASURED = "\N{EN DASH}"
LONG = 1e6  # from here on an amount is shown with a power of ten
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power_of_ten(exponent: int) -> str:
    """10 to the power of `exponent`, as text: 10⁻³."""
    return "10" + str(exponent).translate(SUPERSCRIPTS)


def missing(value: float | None) -> bool:
    """Whether there is no figure: an empty cell, or a number that is none."""
    return value is None or not math.isfinite(value)


def number(value: float | None, digits: int = 3) -> str:
    """`value` with `digits` significant digits; large ones keep all of theirs, tiny ones get a power of ten."""
    if missing(value):
        return NOT_MEASURED
    if value == 0:
        return "0"
    exponent = int(f"{value:.{digits - 1}e}".split("e")[1])
    return _scientific(value, digits) if exponent < -3 else f"{value:,.{max(0, digits - 1 - exponent)}f}"


def amount(value: float | None) -> str:
    """A count or a sum: whole ones with all their digits, from a million on with a power of ten."""
    if missing(value):
        return NOT_MEASURED
    if abs(value) >= LONG:
        return _scientific(value, 3)
    return f"{value:,.0f}" if value == int(value) else number(value)


def _scientific(value: float, digits: int) -> str:
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    return f"{mantissa} \N{MULTIPLICATION SIGN} {power_of_ten(int(exponent))}"


def interval(low: float | None, high: float | None, digits: int = 3) -> str:
    """Two ends of an interval, or nothing if either is missing."""
    return "" if missing(low) or missing(high) else f"{number(low, digits)} to {number(high, digits)}"


def similarities(low: float | None, high: float | None) -> str:
    """Two ends of an interval of an index whose best value is 1, or nothing if either is missing."""
    return "" if missing(low) or missing(high) else f"{similarity(low)} to {similarity(high)}"


def times(value: float | None) -> str:
    """A factor with its sign, as in 6.67 times."""
    return NOT_MEASURED if missing(value) else f"{number(value)}\N{MULTIPLICATION SIGN}"


def percent(value: float | None) -> str:
    """A share of one as a percentage."""
    return NOT_MEASURED if missing(value) else f"{number(100 * value, 2)}{SPACE}%"


def similarity(value: float | None) -> str:
    """An index whose best value is 1: four decimals, or as many as show that it is not quite 1."""
    if missing(value):
        return NOT_MEASURED
    short_of_one = 1 - value
    if not 0 < short_of_one < 1e-4:
        return f"{value:.4f}"
    decimals = math.ceil(-math.log10(short_of_one))
    return f"{value:.{decimals}f}" if decimals <= 7 else "> 0.9999999"


def duration(seconds: float | None) -> str:
    """A time in the unit that suits it."""
    if missing(seconds):
        return NOT_MEASURED
    if seconds < 0.1:
        return f"{number(1000 * seconds)}{SPACE}ms"
    if seconds < 600:
        return f"{number(seconds)}{SPACE}s"
    return f"{number(seconds / 60)}{SPACE}min" if seconds < 7200 else f"{number(seconds / 3600)}{SPACE}h"


def count(amount: int, singular: str, plural: str | None = None) -> str:
    """An amount with its noun: 1 variant, 3 variants."""
    return f"{amount:,} {singular if amount == 1 else plural or singular + 's'}"


def listed(words: list[str]) -> str:
    """Words as a sentence lists them: a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""
