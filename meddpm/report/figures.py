"""The charts: each function takes table rows and returns a matplotlib Figure, which `style.save` writes."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from meddpm.report import numbers, rows, style
from meddpm.report.style import BAR, BASELINE_BAR, INK, MUTED, OTHER, PALETTE, ROW_HEIGHT, WIDTH
from meddpm.status import OK
from meddpm.tables import Row

MARKERS = "osD^vP"
# A curve of a hundred thousand steps would be a figure of megabytes.
LOSS_POINTS = 2000
# A loss that falls by more than this is drawn on a logarithmic scale.
WIDE_RANGE = 5
UNITS = {"sample": "one evaluation", "train": "one training step"}
# Metric, what is drawn of it, and how the axis is named. Both are 0 where nothing changed.
DIFFERENCES = (("relative_error", "relative error"), ("ssim", "1 \N{MINUS SIGN} SSIM"))


def one_bar_each(group: rows.Group) -> list[tuple[str, Row]]:
    """The bars of a group with their labels: one a variant, or one a variant and solver where ranges do not meet."""
    by_variant: dict[str, list[Row]] = {}
    for row in group.rows:
        by_variant.setdefault(row["variant"], []).append(row)
    bars = []
    for variant, found in by_variant.items():
        if len({row["status"] for row in found}) == 1 and _meet(found):
            bars.append((variant, found[0]))
        else:
            bars += [(f"{variant}, {row['solver']}", row) for row in found]
    return bars


def _meet(found: list[Row]) -> bool:
    """Whether the ranges from the 5th to the 95th percentile of all rows have a time in common."""
    medians = [row["step_ms_median"] for row in found]
    if any(numbers.missing(median) for median in medians):
        return True
    ends = [
        [median if numbers.missing(row[name]) else row[name] for row, median in zip(found, medians, strict=True)]
        for name in ("step_ms_p05", "step_ms_p95")
    ]
    return max(ends[0]) <= min(ends[1])


def timing(group: rows.Group) -> Figure:
    """Milliseconds a step of every variant, with whiskers from the 5th to the 95th percentile and the speed-up."""
    bars = one_bar_each(group)
    unit = UNITS[group.phase]
    with style.applied():
        figure, axes = style.bar_axes([style.shortened(label) for label, _ in bars], f"Time of {unit}")
        axes.set_xlabel("ms: median, whiskers from p05 to p95", loc="left")
        ends = [max(row["step_ms_median"], row["step_ms_p95"] or 0) for row in group.measured]
        longest = max(ends, default=1.0)
        axes.set_xlim(0, longest * 1.42)
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        for position, (_, row) in enumerate(bars):
            if row["status"] != OK or numbers.missing(row["step_ms_median"]):
                axes.text(longest * 0.01, position, row["status"], va="center", color=MUTED, style="italic")
                continue
            _timing_bar(axes, position, row, longest)
    return figure


def _timing_bar(axes: Axes, position: int, row: Row, longest: float) -> None:
    median, low, high = (row[f"step_ms_{name}"] for name in ("median", "p05", "p95"))
    baseline = row["variant"] == rows.BASELINE
    axes.barh(position, median, height=0.62, color=BASELINE_BAR if baseline else BAR)
    end = median
    if not (numbers.missing(low) or numbers.missing(high)):
        whisker = [[max(0.0, median - low)], [max(0.0, high - median)]]
        axes.errorbar(median, position, xerr=whisker, color=INK, capsize=3, linewidth=1.2)
        end = max(median, high)
    label = numbers.number(median)
    if not baseline and not numbers.missing(row["speedup"]):
        label += f"   {numbers.times(row['speedup'])}"
    axes.text(end + longest * 0.02, position, label, va="center", fontsize=10.5)


def kernel_totals(kernels: list[Row]) -> dict[str, dict[str, float]]:
    """Time by variant and category, ms, of the rows of one model, GPU and phase that have a time."""
    totals: dict[str, dict[str, float]] = {}
    for row in kernels:
        if row["status"] == OK and not numbers.missing(row["time_ms"]):
            categories = totals.setdefault(row["variant"], {})
            categories[row["category"]] = categories.get(row["category"], 0.0) + row["time_ms"]
    return totals


def category_colours(kernels: list[Row]) -> dict[str, str]:
    """A colour for each category, the same in every report; the largest come first, those without one share grey."""
    totals: dict[str, float] = {}
    for shares in kernel_totals(kernels).values():
        for category, time_ms in shares.items():
            totals[category] = totals.get(category, 0.0) + time_ms
    ranked = sorted(totals, key=lambda category: (-totals[category], category))
    return {category: style.CATEGORY_COLOURS.get(category, OTHER) for category in ranked}


def kernel_shares(kernels: list[Row], colours: dict[str, str]) -> Figure:
    """Where the time goes: the share of each category, one bar a variant, with the total kernel time at its end."""
    totals = kernel_totals(kernels)
    shown = {category for shares in totals.values() for category, share in shares.items() if share > 0}
    named = [(category, colour) for category, colour in colours.items() if colour != OTHER and category in shown]
    if any(colours[category] == OTHER for category in shown):
        named.append(("others", OTHER))
    with style.applied():
        legend_lines = math.ceil(len(named) / 2)
        labels = [style.shortened(variant) for variant in totals]
        figure, axes = style.bar_axes(labels, "Where the time goes", extra_height=0.95 + 0.24 * legend_lines)
        axes.set_xlim(0, 1.2)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100"])
        axes.set_xlabel("% of the kernel time profiled; at the end its ms", loc="left")
        for position, shares in enumerate(totals.values()):
            total = sum(shares.values())
            left = 0.0
            for category, colour in colours.items():
                share = shares.get(category, 0.0) / total if total > 0 else 0.0
                axes.barh(position, share, left=left, height=0.66, color=colour, edgecolor="white", linewidth=0.8)
                if share >= 0.08:
                    axes.text(
                        left + share / 2,
                        position,
                        f"{100 * share:.0f}",
                        ha="center",
                        va="center",
                        fontsize=10,
                        color=style.ink_on(colour),
                    )
                left += share
            axes.text(1.02, position, numbers.number(total), va="center", fontsize=10.5)
        handles = [Patch(color=colour) for _, colour in named]
        figure.legend(
            handles, [style.shortened(name, 30) for name, _ in named], loc="outside lower left", ncols=2, fontsize=10
        )
    return figure


def difference(row: Row, metric: str) -> tuple[float, float | None, float | None]:
    """Value and interval of a quality row as a distance from fp32: an error as it is, an index as 1 - index."""
    value, low, high = row["value"], row["ci_low"], row["ci_high"]
    if metric == "relative_error":
        return value, low, high
    return 1 - value, None if low is None else 1 - high, None if high is None else 1 - low


def quality(group: rows.Group, quality_rows: list[Row]) -> Figure | None:
    """Distance of each variant's pictures from those of fp32 on a log axis, with intervals; None without any row.

    A distance of exactly 0 cannot stand on a log axis: it is written at the axis's left end.
    """
    variants = [name for name in rows.unique(row["variant"] for row in group.rows) if name != rows.BASELINE]
    solvers = group.solvers
    found = {
        metric: [
            (row, match)
            for row in group.rows
            if row["variant"] != rows.BASELINE and (match := rows.against_fp32(quality_rows, metric, row))
        ]
        for metric, _ in DIFFERENCES
    }
    panels = [(metric, name) for metric, name in DIFFERENCES if found[metric]]
    if not panels:
        return None
    with style.applied():
        height = 1.2 + ROW_HEIGHT * max(2, len(variants)) * (1 + 0.25 * (len(solvers) - 1))
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        for number, (metric, name) in enumerate(panels, 1):
            axes = figure.add_subplot(1, len(panels), number)
            points = [(row, *difference(match, metric)) for row, match in found[metric]]
            _distance_panel(axes, points, variants, solvers)
            region = next(match["region"] for _, match in found[metric])
            if number == 1:
                _say_why_not(axes, group, variants, {row["variant"] for row, *_ in points})
            axes.set_xlabel(f"{name}, {'inside the mask' if region == 'mask' else 'whole volume'}")
            if number > 1:
                axes.set_yticklabels([])
        figure.get_layout_engine().set(wspace=0.12)
        figure.suptitle("Difference from fp32, same noise and mask", x=0.01, ha="left", fontsize=12, fontweight="bold")
        if len(solvers) > 1:
            handles = [
                axes.plot([], [], MARKERS[i % len(MARKERS)], color=PALETTE[i % len(PALETTE)])[0]
                for i in range(len(solvers))
            ]
            figure.legend(
                handles, [style.shortened(name, 24) for name in solvers], loc="outside lower left", ncols=4, fontsize=10
            )
    return figure


def _say_why_not(axes: Axes, group: rows.Group, variants: list[str], shown: set[str]) -> None:
    """A word in place of the points of a variant that has none."""
    status = {row["variant"]: row["status"] for row in group.rows}
    for position, variant in enumerate(variants):
        if variant not in shown:
            word = "not measured" if status[variant] == OK else status[variant]
            place = axes.get_yaxis_transform()
            axes.text(0.02, position, word, transform=place, va="center", color=MUTED, style="italic")


def _distance_panel(
    axes: Axes,
    points: list[tuple[Row, float, float | None, float | None]],
    variants: list[str],
    solvers: list[str],
) -> None:
    positive = [end for _, *ends in points for end in ends if not numbers.missing(end) and end > 0]
    low = 10.0 ** math.floor(math.log10(min(positive, default=1e-3)) - 0.3)
    high = 10.0 ** math.ceil(math.log10(max(positive, default=1.0)) + 0.1)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(LogLocator(numticks=6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: numbers.power_of_ten(round(math.log10(x)))))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(range(len(variants)), [style.shortened(name, 24) for name in variants])
    axes.set_ylim(len(variants) - 0.4, -0.6)
    axes.tick_params(which="both", length=0)
    axes.grid(visible=True, axis="x")
    axes.spines["bottom"].set_visible(False)
    for row, value, ci_low, ci_high in points:
        solver = solvers.index(row["solver"])
        # Solvers of one variant stand a little apart, so that equal values do not hide each other.
        position = variants.index(row["variant"]) + (solver - (len(solvers) - 1) / 2) * 0.5 / len(solvers)
        colour = PALETTE[solver % len(PALETTE)]
        if value <= 0:
            axes.text(low * (high / low) ** 0.02, position, "0: identical", va="center", fontsize=10, color=MUTED)
            continue
        if not (numbers.missing(ci_low) or numbers.missing(ci_high)):
            ends = [max(ci_low, low), max(ci_high, low)]
            axes.plot(ends, [position, position], color=colour, linewidth=1.6)
        axes.plot([value], [position], MARKERS[solver % len(MARKERS)], color=colour, markersize=6)


def loss(steps: list[int], losses: list[float]) -> Figure:
    """The training loss over the steps and its mean over a twentieth of the run; logarithmic if it falls far."""
    stride = max(1, len(losses) // LOSS_POINTS)
    window = max(1, len(losses) // 20)
    with style.applied():
        figure = Figure(figsize=(WIDTH, 2.7), layout="constrained")
        axes = figure.add_subplot()
        axes.set_title("Training loss")
        axes.set_xlabel("optimiser step")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if min(losses) > 0 and max(losses) > WIDE_RANGE * min(losses):
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.yaxis.set_minor_formatter(NullFormatter())
        else:
            axes.set_ylim(bottom=0, top=1.05 * max(losses))
        every = "each step" if stride == 1 else f"one step in {stride}"
        axes.plot(steps[::stride], losses[::stride], color=OTHER, linewidth=1, label=every)
        if window > 1:
            means = np.convolve(losses, np.ones(window) / window, mode="valid")
            ends = steps[window - 1 :]
            axes.plot(ends[::stride], means[::stride], color=BAR, linewidth=2, label=f"mean of {window} steps")
            axes.legend(loc="upper right", fontsize=10)
        axes.margins(x=0.01)
        axes.grid(visible=True, axis="y", which="both")
        axes.tick_params(length=0)
    return figure
