"""Puts the page together: reads the tables, draws and embeds the figures, renders page.html.j2."""

import base64
import csv
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from markupsafe import Markup, escape
from matplotlib.figure import Figure

import meddpm
from meddpm import files, tables
from meddpm.config import EvaluateConfig, ReportConfig, UserError
from meddpm.report import content, figures, notices, numbers, profiles, rows, slices, style, templates
from meddpm.report.inputs import ReportInputs
from meddpm.status import OK
from meddpm.tables import Row

CSS_PIXELS_PER_INCH = 96
# What the page reads of a training.json.
RECORD = ("model", "gpu", "variant", "steps", "batch", "seconds", "device_name", "loss_first", "loss_last")
PROFILERS = ("torch", "nsys", "ncu")
MEDIA_TYPES = {".svg": "image/svg+xml", ".png": "image/png"}


@dataclass(frozen=True)
class Shown:
    """A figure on the page: its bytes as a data URI, words for those who cannot see it, links to its files.

    `width` in CSS pixels is fixed where the figure holds pictures, which scaling would blur.
    """

    source: str
    alternative: str
    svg: str
    png: str
    width: int | None = None


class Page:
    """One page in the making: its inputs, and the folder that its links start from."""

    def __init__(self, inputs: ReportInputs, settings: ReportConfig, target_dir: Path) -> None:
        self.inputs, self.settings, self.target_dir = inputs, settings, target_dir
        self.config_text = inputs.run_config.read_text(encoding="utf-8")
        self.config: dict[str, Any] = yaml.safe_load(self.config_text) or {}
        self.kernels = tables.read("kernels", inputs.kernels)
        self.quality = tables.read("quality", inputs.quality)
        self.environment = tables.read("environment", inputs.environment)
        self.counters, self.priorities, self.claims = (
            tables.read(name, path) if path else []
            for name, path in (
                ("counters", inputs.counters),
                ("priorities", inputs.priorities),
                ("claims", inputs.claims),
            )
        )
        self.timing = tables.read("timing", inputs.timing)
        self.groups = rows.groups(self.timing)
        self.colours = figures.category_colours(one_profiler(self.kernels))

    def link(self, path: Path) -> str:
        """A link to `path`, relative to the page."""
        return quote(Path(os.path.relpath(path, self.target_dir)).as_posix())

    def show(self, figure: Figure, alternative: str, *name: str, raster: bool = False) -> Shown:
        """Save a figure and embed it: as SVG, or as PNG where it holds pictures."""
        svg, png = style.save(figure, self.inputs.figures, *name)
        embedded = png if raster else svg
        data = base64.b64encode(embedded.read_bytes()).decode("ascii")
        source = f"data:{MEDIA_TYPES[embedded.suffix]};base64,{data}"
        width = round(figure.get_figwidth() * CSS_PIXELS_PER_INCH) if raster else None
        return Shown(source, alternative, self.link(svg), self.link(png), width)

    def section(self, group: rows.Group) -> dict[str, Any]:
        """The table, the spread and the figures of one model, GPU and phase."""
        cell = (group.model, group.gpu, group.phase)
        kernels = [row for row in self.kernels if (row["model"], row["gpu"], row["phase"]) == cell]
        return {
            "group": group,
            "phase": content.PHASES[group.phase],
            "step": content.STEPS[group.phase],
            "rows": content.timing_rows(group, self.quality),
            "spread": rows.spread(group),
            "ssim_regions": content.ssim_regions(group, self.quality),
            "figures": self.charts(group, one_profiler(kernels)),
            "not_profiled": profiles.not_profiled(kernels),
        }

    def charts(self, group: rows.Group, kernels: list[Row]) -> list[Shown]:
        """The charts of a group that have something to show."""
        name = (group.model, group.gpu, group.phase)
        where = f"{group.model} on {group.gpu}, {content.PHASES[group.phase]}"
        step = content.STEPS[group.phase]
        found = []
        if group.measured:
            times = "; ".join(f"{row['variant']} {numbers.number(row['step_ms_median'])} ms" for row in group.measured)
            found.append(self.show(figures.timing(group), f"Time of one {step}, {where}: {times}.", "timing", *name))
        if figures.kernel_totals(kernels):
            chart = figures.kernel_shares(kernels, self.colours)
            found.append(
                self.show(chart, f"Share of each kernel category, {where}: {_shares(kernels)}.", "kernels", *name)
            )
        quality = figures.quality(group, self.quality) if group.phase == "sample" else None
        if quality:
            words = f"Difference of each variant's pictures from those of fp32, {where}; the figures are in the table."
            found.append(self.show(quality, words, "quality", *name))
        return found

    def samples(self) -> list[dict[str, Any]]:
        """The grids of slices."""
        found = []
        for grid in slices.grids(self.inputs.samples, self.inputs.cases, self.settings.slices_per_cell):
            words = f"Slices of {grid.model} on {grid.gpu} with {grid.solver}: label map, true image and samples."
            shown = None
            if grid.strips:
                name = ("samples", grid.model, grid.gpu, grid.solver)
                shown = self.show(slices.draw(grid), words, *name, raster=True)
            found.append({"grid": grid, "figure": shown})
        return found

    def trainings(self) -> list[dict[str, Any]]:
        """The training records, each with its loss curve. Raises UserError where one is none."""
        found = []
        for path in self.inputs.training:
            record, curve = _record(path), path.with_name("loss.csv")
            shown = None
            if curve.is_file():
                points = _losses(curve)
                if points:
                    words = f"Loss of {record['model']} over {numbers.count(len(points), 'step')}."
                    name = ("loss", record["model"], record["gpu"], record["variant"])
                    shown = self.show(figures.loss(*map(list, zip(*points, strict=True))), words, *name)
            found.append({"record": record, "figure": shown, "link": self.link(path)})
        return found

    def published(self) -> list[dict[str, Any]]:
        """The GPU tables that come with the repository, where this run had no GPU of its own."""
        folder = self.inputs.published
        if not self.settings.published or folder is None or notices.on_gpu(self.environment):
            return []
        found = []
        for timing in sorted(folder.glob("*/timing.csv")):
            quality = timing.with_name("quality.csv")
            measured = tables.read("quality", quality) if quality.is_file() else []
            sections = [
                {
                    "group": group,
                    "phase": content.PHASES[group.phase],
                    "step": content.STEPS[group.phase],
                    "rows": content.timing_rows(group, measured),
                    "spread": rows.spread(group),
                    "ssim_regions": content.ssim_regions(group, measured),
                    "figures": [],
                    "not_profiled": [],
                }
                for group in rows.groups(tables.read("timing", timing))
            ]
            found.append({"name": timing.parent.name, "sections": sections})
        return found

    def context(self) -> dict[str, Any]:
        """All that the template needs."""
        sections = [self.section(group) for group in self.groups]
        trainings = self.trainings()
        spreads = [section["spread"] for section in sections]
        confidence = (self.config.get("evaluate") or {}).get("confidence", EvaluateConfig.confidence)
        records = [training["record"] for training in trainings]
        return {
            "title": self.settings.title,
            "version": meddpm.__version__,
            "lede": content.lede(
                self.config, self.groups, [spread for spread in spreads if spread], bool(self.quality)
            ),
            "colour_names": style.COLOUR_NAMES,
            "notices": [
                *notices.notices(self.config, records, self.environment, self.groups, self.inputs.datasets),
                *notices.joined(self.inputs.joined, self.inputs.joined_notes),
            ],
            "cards": [content.card(rows.answer(group, self.quality), confidence) for group in self.groups],
            "sections": sections,
            "quality": content.quality_groups(self.quality),
            "quality_count": len(self.quality),
            "truth": content.truth_rows(self.quality),
            "claims": profiles.claim_groups(self.claims),
            "figures_of_profiles": profiles.figure_rows(self.counters, self.timing),
            "counter_groups": profiles.counter_groups(self.counters),
            "roofs": profiles.roof_groups(self.counters),
            "priorities": profiles.priority_groups(self.priorities),
            "not_counted": profiles.not_counted(self.priorities),
            "samples": self.samples(),
            "trainings": trainings,
            "published": self.published(),
            "machines": content.machines(self.environment),
            "config_text": self.config_text,
            "template": notices.uses_template(self.config),
            "commits": rows.unique(row["git_commit"] for row in self.environment if row["git_commit"]),
            "files": {
                path.name: self.link(path)
                for path in (
                    *(self.inputs.timing, self.inputs.kernels, self.inputs.quality, self.inputs.environment),
                    *(self.inputs.counters, self.inputs.priorities, self.inputs.claims),
                    self.inputs.run_config,
                )
                if path
            },
            "sample_files": {"/".join(path.parts[-5:]): self.link(path) for path in self.inputs.samples},
        }


def one_profiler(kernels: list[Row]) -> list[Row]:
    """The rows of one profiler for each cell: profilers see the same time, and it must not count twice."""
    chosen: dict[tuple[str, ...], str] = {}
    cell = ("model", "gpu", "variant", "phase")
    for profiler in reversed(PROFILERS):
        for row in kernels:
            if row["profiler"] == profiler and row["status"] == OK:
                chosen[tuple(row[key] for key in cell)] = profiler
    return [row for row in kernels if chosen.get(tuple(row[key] for key in cell)) == row["profiler"]]


def _shares(kernels: list[Row]) -> str:
    words = []
    for variant, categories in figures.kernel_totals(kernels).items():
        total = sum(categories.values()) or 1.0
        ranked = sorted(categories.items(), key=lambda item: -item[1])[:3]
        words.append(f"{variant} " + ", ".join(f"{name} {numbers.percent(time / total)}" for name, time in ranked))
    return "; ".join(words)


def _breakable(name: str) -> Markup:
    """A name that a narrow column may break after an underscore; escaped."""
    return Markup("_<wbr>").join(escape(part) for part in name.split("_"))


def _record(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        missing = [key for key in RECORD if key not in record]
    except (ValueError, TypeError):
        missing = list(RECORD)
    if missing:
        raise UserError(
            f"{path}: is no record of a training as the train stage writes it (it lacks {missing[0]}); delete it and "
            "run the workflow again, which goes on from the last checkpoint"
        )
    return record


def _losses(path: Path) -> list[tuple[int, float]]:
    try:
        with open(path, newline="", encoding="utf-8") as stream:
            return [(int(row["step"]), float(row["loss"])) for row in csv.DictReader(stream)]
    except (ValueError, KeyError, TypeError):
        raise UserError(
            f"{path}: is no list of losses as the train stage writes it; delete it and run the workflow again"
        ) from None


def build(inputs: ReportInputs, settings: ReportConfig, target_dir: Path) -> Path:
    """Write `target_dir`/index.html, and each figure as SVG and PNG to `inputs.figures`. Returns the page's path.

    Raises OSError where a table or the configuration is missing.
    """
    environment = templates.environment()
    environment.filters |= {
        "number": numbers.number,
        "percent": numbers.percent,
        "duration": numbers.duration,
        "breakable": _breakable,
    }
    page = Page(inputs, settings, target_dir)
    target = target_dir / "index.html"
    files.write_text(target, environment.get_template("page.html.j2").render(page.context()))
    return target
