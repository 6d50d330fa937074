"""What a case is in few words: for the table in a terminal and for the page of pictures."""

from collections.abc import Iterable, Mapping

from meddpm.data.manifest import CaseRow
from meddpm.report import numbers
from meddpm.status import OK


def shape(sides: tuple[int, ...] | None, sign: str = "x") -> str:
    """A shape as 240x240x155; nothing where it is not known."""
    return sign.join(map(str, sides or ()))


def spacing(edges_mm: tuple[float, ...] | None, sign: str = "x") -> str:
    """The edges of a voxel in mm, without the unit, one where it is a cube: 1, 0.94x0.94x1.2."""
    texts = [f"{round(edge, 2):g}" for edge in edges_mm or ()]
    return sign.join(texts[:1] if len(set(texts)) == 1 else texts)


def volume(ml: float) -> str:
    """A volume in mL, without the unit: 1151, 75.1, 0.02."""
    return f"{ml:.0f}" if ml >= 100 else f"{ml:.3g}"


def intensity(ranges: Mapping[str, tuple[float, float]]) -> str:
    """The least and the greatest intensity of the images of a case: 0..1523."""
    if not ranges:
        return ""
    low, high = min(low for low, _ in ranges.values()), max(high for _, high in ranges.values())
    return f"{_intensity(low)}..{_intensity(high)}"


def _intensity(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def images(row: CaseRow) -> list[str]:
    """The names of the images of a case, in their order."""
    return [name for name in row.files if name != "label"]


def in_all(rows: Iterable[CaseRow]) -> list[str]:
    """The changes that were made to every case that can be used, where there are several: told once, not at each."""
    usable = [row for row in rows if row.status == OK]
    if len(usable) < 2:
        return []
    return [change for change in usable[0].changes if all(change in row.changes for row in usable)]


def summary(rows: list[CaseRow]) -> str:
    """How many cases there are, and how many can be used: 35 cases: 32 can be used, 2 with warnings, 3 refused."""
    usable = [row for row in rows if row.status == OK]
    parts = [f"{len(usable):,} can be used"]
    warned = sum(bool(row.warnings) for row in usable)
    if warned:
        parts.append(f"{warned:,} with warnings")
    if len(usable) < len(rows):
        parts.append(f"{len(rows) - len(usable):,} refused")
    return f"{numbers.count(len(rows), 'case')}: {', '.join(parts)}"
