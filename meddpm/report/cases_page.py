"""The page of a dataset's cases: a card each, with pictures, for a person to skim before anything is trained."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import meddpm
from meddpm import files
from meddpm.config import UserError
from meddpm.data import manifest
from meddpm.data.manifest import CaseRow
from meddpm.log import progress
from meddpm.report import case_pictures, case_words, numbers, templates
from meddpm.report.case_pictures import CasePictures
from meddpm.report.upright import label_colour
from meddpm.status import OK

TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True)
class Card:
    """A case that can be used, as the page shows it: `pictures`, or in `fault` a word on why there are none.

    `grids` are the grid of the files, where it is known, and that of what was prepared, one where they are the same;
    `labels` the number, colour and mL of each; `images` the names of its images, where they are known; `alone`: it is a
    label map without an image.
    """

    id: str
    pictures: CasePictures | None
    fault: str
    grids: list[str]
    labels: list[tuple[int, str, str]]
    images: list[str]
    changes: list[str]
    warnings: tuple[str, ...]
    alone: bool

    @property
    def warned(self) -> bool:
        """Whether a person should look at it."""
        return bool(self.warnings or self.fault)


def write(tsv: Path, target: Path, title: str) -> None:
    """Write the page of the cases of the table `tsv` to `target`: one HTML file that needs no other.

    The cases with warnings come first. A case whose files cannot be read has a word on it in place of pictures. Raises
    UserError where the table itself is missing or cannot be read.
    """
    rows = manifest.read_all(tsv)
    usable = [row for row in rows if row.status == OK]
    common = case_words.in_all(rows)
    cards = [_card(tsv, row, common) for row in progress(usable, len(usable), "pictures")]
    context: dict[str, Any] = {
        "title": title,
        "version": meddpm.__version__,
        "summary": case_words.summary(rows),
        "common": common,
        "warnings": manifest.warnings(tsv),
        "refused": [row for row in rows if row.status != OK],
        "cards": sorted(cards, key=lambda card: not card.warned),
        "warned": sum(card.warned for card in cards),
        "unread": sum(bool(card.fault) for card in cards),
    }
    files.write_text(target, templates.environment().get_template("qc.html.j2").render(context))


def _card(tsv: Path, row: CaseRow, common: list[str]) -> Card:
    pictures, fault = None, ""
    try:
        pictures = case_pictures.draw(manifest.load_case(tsv, row))
    except UserError as error:
        fault = str(error)
    except OSError as error:
        fault = f"{error.filename or row.id}: {error.strerror or 'cannot be read'}; mend the file or its permissions."
    return Card(
        row.id,
        pictures,
        fault,
        _grids(row),
        [(label, label_colour(label), case_words.volume(ml)) for label, ml in sorted(row.label_volumes_ml.items())],
        case_words.images(row),
        [change for change in row.changes if change not in common],
        row.warnings,
        alone=not row.image,
    )


def _grids(row: CaseRow) -> list[str]:
    """Shape, spacing and orientation of the files and of what was made of them, in words."""
    grids = [
        (row.original_shape, row.original_spacing_mm, row.original_orientation),
        (row.shape, row.spacing_mm, row.orientation),
    ]
    return list(dict.fromkeys(_grid(*grid) for grid in grids if grid[0]))


def _grid(sides: tuple[int, ...], edges_mm: tuple[float, ...] | None, codes: str) -> str:
    edges = f"{case_words.spacing(edges_mm, TIMES)}{numbers.SPACE}mm" if edges_mm else ""
    return " \N{MIDDLE DOT} ".join(filter(None, (case_words.shape(sides, TIMES), edges, codes)))
