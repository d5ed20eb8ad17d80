"""What all figures share: a canvas without a screen, letters and lines for print, panels, and files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from procurl.bench.report.style import MARKERS, OWN_MARKER, Look

matplotlib.use("Agg")  # files only: works without a screen
import matplotlib.pyplot as plt

TEXT_WIDTH = 7.0  # inches: both columns of a conference page
MARKS = 8  # along a curve
# For the figures of a paper: small letters, thin lines.
PRINT: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 8,
    "lines.linewidth": 1.2,
    "lines.markersize": 4.5,
    "axes.linewidth": 0.6,
}
published = matplotlib.rc_context(PRINT)  # a decorator for the functions that draw them


def save(figure: Any, *paths: Path, dpi: int = 150) -> list[Path]:
    """Write a figure and forget it. Fonts are embedded in a PDF as TrueType, which publishers ask for."""
    for path in paths:
        dated = {"CreationDate": None} if path.suffix == ".pdf" else None  # no date: the same figure is the same file
        with matplotlib.rc_context({"pdf.fonttype": 42}):
            figure.savefig(path, dpi=dpi, metadata=dated)
    plt.close(figure)
    return list(paths)


def draw(axes: Any, x: np.ndarray, y: np.ndarray, low: np.ndarray, high: np.ndarray, look: Look, label: str) -> None:
    """A curve and its band. Where marks begin depends on the strategy, so that they rarely cover each other."""
    every = max(1, len(x) // MARKS)
    marks = [*MARKERS.values(), OWN_MARKER]
    first = marks.index(look.marker) * every // len(marks)
    size = plt.rcParams["lines.markersize"] * (1.7 if look.marker == "*" else 1.0)  # stars are mostly air
    axes.plot(
        x, y, color=look.colour, linestyle=look.line, label=label,
        marker=look.marker, markersize=size, markevery=(first, every), markeredgecolor="white", markeredgewidth=0.3,
    )  # fmt: skip
    axes.fill_between(x, low, high, color=look.colour, alpha=0.18, linewidth=0)


def finish(axes: Any, x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)


def shared_legend(figure: Any, grid: Any, looks: dict[str, Look]) -> None:
    """One legend below all panels: strategies in the order of `looks`, as far as they are drawn, then other lines."""
    handles: dict[str, Any] = {}
    for axes in grid.flat:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    shown = [label for label in looks if label in handles] + [label for label in handles if label not in looks]
    columns, _ = legend_shape(shown, figure.get_figure(root=True).get_figwidth())
    figure.legend([handles[k] for k in shown], shown, loc="outside lower center", ncols=columns, frameon=False)


def legend_shape(labels: Sequence[str], width: float) -> tuple[int, float]:
    """As many columns, at most four, as fit `width` inches, and the height in inches that it takes."""
    for columns in (4, 3, 2, 1):
        parts = [max(map(len, part)) for part in np.array_split(list(labels), min(columns, len(labels)))]
        if sum(0.06 * letters + 0.5 for letters in parts) <= width:  # inches a letter, and the line before them
            break
    return columns, 0.17 * -(-len(labels) // columns) + 0.15


def panels(n: int, *, columns: int, height: float, beside: float, width: float = 3.0) -> tuple[Any, Any]:
    """A figure and its grid of n panels, `beside` inches wider for a scale or a legend; places left over are empty."""
    columns = min(columns, n)
    rows = -(-n // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(width * columns + beside, height * rows), layout="constrained", squeeze=False,
        sharey=True,
    )  # fmt: skip
    empty_places(grid, n)
    return figure, grid


def empty_places(grid: Any, n: int) -> None:
    for axes in grid.flat[n:]:
        axes.set_axis_off()


def words(name: str) -> str:
    return name.replace("_", " ")
