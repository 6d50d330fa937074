"""Slices of every sample: one grid a model, GPU and solver, upright whatever the order of the axes on disk.

A row of the grid is one plane of one case and seed; its columns are the label map, the true image if there is one,
and the sample of each variant. All pictures of a case are cut at the same place.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from meddpm.config import UserError
from meddpm.data import manifest
from meddpm.report import style
from meddpm.report.rows import BASELINE, unique
from meddpm.report.upright import LABEL_COLOURS, PLANES, centre, cut, grey, label_colour, read_upright
from meddpm.status import OK

CELL = 1.25  # inches
NOT_RUN = ("", "")


@dataclass(frozen=True)
class Picture:
    """One column of one case and seed: three planes, or a word on why there are none."""

    title: str
    planes: dict[str, np.ndarray]
    aspect: dict[str, float]
    note: str = ""
    labels: bool = False


@dataclass(frozen=True)
class Strip:
    """One case and seed: its pictures, from the label map to the last variant."""

    case: str
    seed: str
    pictures: list[Picture]


@dataclass(frozen=True)
class Grid:
    """What one model, GPU and solver drew. `shown` of `drawn` pairs of case and seed are in `strips`."""

    model: str
    gpu: str
    solver: str
    strips: list[Strip]
    drawn: int
    images: int

    @property
    def shown(self) -> int:
        """Number of pairs of case and seed in the grid."""
        return len(self.strips)

    @property
    def colours(self) -> dict[int, str]:
        """The labels that can be seen in the label maps, and the colour of each."""
        maps = [picture for strip in self.strips for picture in strip.pictures if picture.labels]
        seen = {int(label) for each in maps for plane in each.planes.values() for label in np.unique(plane)}
        return {label: label_colour(label) for label in sorted(seen - {0})}


def _column(title: str, path: Path | None, at: tuple[int, int, int] | None, note: str) -> tuple[Picture, int]:
    """The picture of one file cut at `at` (its own centre if None), and the number of images in the file."""
    if path is None:
        return Picture(title, {}, {}, note), 1
    try:
        volume = read_upright(path)
    except UserError:
        return Picture(title, {}, {}, "cannot be read"), 1
    middle = at or tuple(side // 2 for side in volume.array.shape)
    if any(index >= side for index, side in zip(middle, volume.array.shape, strict=True)):
        return Picture(title, {}, {}, "another shape"), volume.images
    planes, aspect = cut(volume, middle)
    return Picture(title, {name: grey(plane) for name, plane in planes.items()}, aspect), volume.images


def read_cases(table: Path) -> dict[str, dict[str, Path]]:
    """The files of each case of a cases.tsv: "label", and "image" where there is one."""
    files = {row.id: {"label": row.label, "image": row.image} for row in manifest.read(table)}
    return {case: {kind: table.parent / name for kind, name in kinds.items() if name} for case, kinds in files.items()}


def read_samples(table: Path) -> dict[tuple[str, str], dict[str, str]]:
    """The rows of a samples.csv by (case, seed). That of a cell that could not run has neither: its key is ("", "")."""
    with open(table, newline="", encoding="utf-8") as stream:
        return {(row["case"], row["seed"]): row for row in csv.DictReader(stream)}


def grids(samples: list[Path], cases: dict[str, Path], limit: int) -> list[Grid]:
    """The grids of all samples.csv, whose paths end in <model>/<gpu>/<variant>/<solver>/samples.csv.

    `cases` gives the cases.tsv of each model. At most `limit` pairs of case and seed are shown in a grid.
    """
    cells: dict[tuple[str, str, str], dict[str, Path]] = {}
    for table in samples:
        model, gpu, variant, solver = table.parts[-5:-1]
        cells.setdefault((model, gpu, solver), {})[variant] = table
    return [
        _grid(model, gpu, solver, tables, read_cases(cases[model]) if model in cases else {}, limit)
        for (model, gpu, solver), tables in cells.items()
    ]


def _grid(
    model: str,
    gpu: str,
    solver: str,
    tables: dict[str, Path],
    cases: dict[str, dict[str, Path]],
    limit: int,
) -> Grid:
    variants = sorted(tables, key=lambda name: name != BASELINE)
    drawn = {name: read_samples(tables[name]) for name in variants}
    pairs = [pair for pair in unique(pair for found in drawn.values() for pair in found) if pair != NOT_RUN]
    strips, images = [], 1
    for case, seed in pairs[:limit]:
        pictures, at = _truth(cases.get(case, {}))
        for name in variants:
            row = drawn[name].get((case, seed)) or drawn[name].get(NOT_RUN)
            path = tables[name].parent / row["file"] if row and row["status"] == OK and row["file"] else None
            picture, held = _column(name, path, at, row["status"] if row else "not drawn")
            pictures.append(picture)
            images = max(images, held)
        strips.append(Strip(case, seed, pictures))
    return Grid(model, gpu, solver, strips, len(pairs), images)


def _truth(files: dict[str, Path]) -> tuple[list[Picture], tuple[int, int, int] | None]:
    """The label map and the true image of a case, and where all its pictures are cut."""
    try:
        label = read_upright(files["label"])
    except (KeyError, UserError):
        return [Picture("label map", {}, {}, "not there")], None
    at = centre(label.array)
    planes, aspect = cut(label, at)
    pictures = [Picture("label map", planes, aspect, labels=True)]
    if "image" in files:
        pictures.append(_column("true image", files["image"], at, "")[0])
    return pictures, at


def draw(grid: Grid) -> Figure:
    """The grid as a figure: a row for each plane of each case and seed, a column for each picture.

    Few pictures of several cases would make a tower: then it lies on its side, a row for each picture.
    """
    titles = unique(picture.title for strip in grid.strips for picture in strip.pictures)
    lines = [(strip, plane) for strip in grid.strips for plane in PLANES]
    lying = len(grid.strips) > 1 and len(titles) < len(lines) / 2
    shape = (len(titles), len(lines)) if lying else (len(lines), len(titles))
    left, top = (1.2, 0.75) if lying else (0.85, 0.5)  # inches, for the names
    with style.applied():
        figure = Figure(figsize=(left + CELL * shape[1], top + CELL * shape[0]), facecolor="white")
        width, height = figure.get_size_inches()
        axes = figure.subplots(*shape, squeeze=False)
        figure.subplots_adjust(left / width, 0.02 / height, 1, 1 - top / height, wspace=0.03, hspace=0.03)
        for panel in axes.flat:
            panel.set_axis_off()
        if lying:
            axes = axes.T  # from here on a line of the grid, then a picture
        for column, title in enumerate(titles):
            _name(axes[0, column], _wrapped(title), beside=lying)
        for line, (strip, plane) in enumerate(lines):
            words = f"{_tail(strip.case)}\nseed {strip.seed}\n" if plane == PLANES[0] else ""
            _name(axes[line, 0], words + plane, beside=not lying)
            for picture in strip.pictures:
                _panel(axes[line, titles.index(picture.title)], picture, plane)
    return figure


def _tail(case: str, width: int = 13) -> str:
    """An id in the room there is: its end, which tells it from others."""
    return case if len(case) <= width else f"\N{HORIZONTAL ELLIPSIS}{case[-width + 1 :]}"


def _name(axes: Axes, words: str, beside: bool) -> None:
    """Words at the left of a panel, or over it."""
    if beside:
        axes.text(-0.08, 0.5, words, transform=axes.transAxes, ha="right", va="center", fontsize=8)
    else:
        axes.set_title(words, fontsize=8.5, loc="center", pad=4)


def _wrapped(title: str, width: int = 15) -> str:
    """A column's title on at most two lines."""
    if len(title) <= width:
        return title
    cut_at = max((title.rfind(mark, 0, width) for mark in "_- ."), default=-1)
    cut_at = cut_at + 1 if cut_at > 0 else width
    return title[:cut_at] + "\n" + style.shortened(title[cut_at:], width)


def _panel(axes: Axes, picture: Picture, plane: str) -> None:
    if not picture.planes:
        axes.text(0.5, 0.5, picture.note, ha="center", va="center", fontsize=8, color=style.MUTED, wrap=True)
        return
    look = {"cmap": "gray", "vmin": 0, "vmax": 255}
    if picture.labels:
        look = {"cmap": LABEL_COLOURS, "vmin": 0, "vmax": LABEL_COLOURS.N - 1}
    axes.imshow(picture.planes[plane], interpolation="nearest", aspect=picture.aspect[plane], **look)
