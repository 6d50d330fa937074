"""The look of the figures, and how they are saved.

Figures are 468 points wide with text of 10 to 12 points, so that they read both beside each other on a wide page and
scaled down to a phone's width.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from meddpm.files import replacing

# Okabe and Ito (2008), told apart with any colour vision; black and yellow left out, which vanish in text or on white.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#7F7F7F")
COLOUR_NAMES = dict(zip(PALETTE, ("blue", "orange", "green", "pink", "light blue", "red", "grey"), strict=True))
OTHER = "#C9CED6"
# Categories of kernels.csv that often take long; the gradients are shades of the forward convolution's blue.
CATEGORY_COLOURS = {
    "convolution forward": "#0072B2",
    "convolution input gradient": "#4A9CCB",
    "convolution weight gradient": "#8FC3E0",
    "convolution backward": "#4A9CCB",
    "normalisation": "#CC79A7",
    "elementwise": "#009E73",
    "copy and cast": "#E69F00",
    "layout conversion": "#D55E00",
    "fused": "#6A4C93",
    "matrix product": "#7F7F7F",
}
INK, MUTED, RULE = "#1B2430", "#667080", "#DDE2E9"
BASELINE_BAR, BAR = "#8A94A3", "#0072B2"
WIDTH = 6.5
ROW_HEIGHT = 0.38
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.edgecolor": RULE,
    "axes.labelsize": 10,
    "axes.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": INK,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "legend.frameon": False,
    # Names come from files: a dollar sign is a dollar sign.
    "text.parse_math": False,
    # Without these two the bytes of an SVG differ from run to run, or with the fonts of the reader's machine.
    "svg.hashsalt": "meddpm",
    "svg.fonttype": "path",
}


@contextmanager
def applied() -> Iterator[None]:
    """The look of every figure, and of nothing else: matplotlib's own settings are left as they were."""
    with rc_context(STYLE):
        yield


def save(figure: Figure, directory: Path, *name: str) -> tuple[Path, Path]:
    """Write `figure` as SVG and PNG under `directory`; the words of `name` make the file name. Returns both paths.

    The metadata is fixed, so that the same figure gives the same bytes.
    """
    # Words are joined by a sign that no name has: two cells never share a file.
    stem = "+".join(re.sub(r"[^A-Za-z0-9_.-]", "-", word) for word in name)
    svg, png = directory / f"{stem}.svg", directory / f"{stem}.png"
    with applied():
        with replacing(svg) as temporary:
            figure.savefig(temporary, metadata={"Date": None, "Creator": None})
        with replacing(png) as temporary:
            figure.savefig(temporary, dpi=150, metadata={"Software": None})
    return svg, png


def bar_axes(labels: list[str], title: str, extra_height: float = 0.9) -> tuple[Figure, Axes]:
    """A figure with one horizontal line for each label, the first on top."""
    figure = Figure(figsize=(WIDTH, extra_height + ROW_HEIGHT * max(2, len(labels))), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.tick_params(length=0)
    axes.grid(visible=True, axis="x")
    axes.spines["bottom"].set_visible(False)
    return figure, axes


def ink_on(colour: str) -> str:
    """Black or white, whichever reads better on `colour` (W3C relative luminance)."""
    linear = [
        channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4 for channel in to_rgb(colour)
    ]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return INK if luminance > 0.25 else "white"


def shortened(text: str, length: int = 26) -> str:
    return text if len(text) <= length else text[: length - 1] + "\N{HORIZONTAL ELLIPSIS}"
