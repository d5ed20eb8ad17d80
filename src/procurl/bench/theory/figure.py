"""Two figures: the gap under each teacher beside what each picks, and the rates behind Theorem 1.

A picture carries the numbers that it was drawn from, so that one on a page can be held against the code that made it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from procurl.bench.report.figures.canvas import draw, finish, plt, published
from procurl.bench.report.style import COLOURS, MARKERS, Look
from procurl.bench.theory.comparison import HIGH, LOW, Comparison
from procurl.bench.theory.rates import improvement_rates, least_gap
from procurl.bench.theory.simulation import Run
from procurl.bench.theory.teachers import Softmax

LOOKS = {
    "gradient alignment": Look(COLOURS["ProCuRLTarget"], MARKERS["ProCuRLTarget"], "-"),
    "ProCuRL-Target": Look(COLOURS["ProCuRLTarget"], MARKERS["ProCuRLTarget"], "--"),
    "target only": Look(COLOURS["Target"], MARKERS["Target"], "-"),
    "uniform": Look(COLOURS["IID"], MARKERS["IID"], "-"),
}
LABELS = {"ProCuRL-Target": f"ProCuRL-Target, beta = {Softmax().beta:g}"}
POINTS = 60  # along a curve
PICKS = 120  # shown of each teacher
LOWEST = 1e-17  # of the gap that is drawn


@published
def overview(comparison: Comparison) -> Any:
    """Left: the gap over steps, median and band over seeds. Right: difficulty and correlation of what was picked."""
    figure = plt.figure(figsize=(9.0, 3.9), layout="constrained")
    grid = figure.add_gridspec(2, 4, width_ratios=(1.1, 1.1, 1, 1))
    curves = figure.add_subplot(grid[:, :2])
    for name, look in LOOKS.items():
        gaps = comparison.gaps(name)
        t = moments(gaps.shape[1] - 1)
        low, middle, high = np.quantile(gaps[:, t], (LOW, 0.5, HIGH), axis=0)
        draw(curves, t, middle, low, high, look, LABELS.get(name, name))
    curves.set(xscale="log", yscale="log", xlim=(1, None), ylim=(LOWEST, 2), title="How far from the optimum")
    finish(curves, "steps", "gap V* - V of the target")
    curves.legend(frameon=False, loc="lower left")

    planes = np.array([figure.add_subplot(grid[k // 2, 2 + k % 2]) for k in range(4)])
    for axes, name in zip(planes, LOOKS, strict=True):
        dots = _plane(axes, comparison.runs[name][0])
        axes.set_title(name)
    for k, axes in enumerate(planes):  # labels once: below and at the left
        axes.tick_params(labelbottom=k >= 2, labelleft=k % 2 == 0)
        axes.set(xlabel=axes.get_xlabel() if k >= 2 else "", ylabel=axes.get_ylabel() if k % 2 == 0 else "")
    figure.colorbar(dots, ax=planes.tolist(), label="step", shrink=0.8)
    return figure


@published
def rates_figure(comparison: Comparison) -> Any:
    """Left: gaps over the root of the steps, where exp(-c sqrt t) is a line. Right: beta_t, which Theorem 1 bounds."""
    figure, (gaps, betas) = plt.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained")
    solid = {name: comparison.runs[name][0] for name in ("gradient alignment", "target only")}
    for name, run in solid.items():
        _line(gaps, np.arange(len(run.gap)), run.gap, LOOKS[name], name)
        beta = improvement_rates(run.gap)
        _line(betas, np.arange(1, len(beta) + 1), beta, LOOKS[name], name)
    for name, run in comparison.scaled.items():
        look = LOOKS[name]._replace(line=":")
        _line(gaps, np.arange(len(run.gap)), run.gap, look, f"{name}, eta / Z")
        beta = improvement_rates(run.gap)
        _line(betas, np.arange(1, len(beta) + 1), beta, look, f"{name}, eta / Z")
    first = solid["target only"]
    t = np.arange(len(first.gap))
    bound = least_gap(comparison.bandit, 1.0, first.norm[0], t[-1])
    some = moments(t[-1])
    gaps.plot(
        some, bound[some], color="black", linewidth=0.8, linestyle="-.", label="bound for all teachers, constant eta"
    )
    gaps.set(yscale="log", ylim=(LOWEST, 2), title="A line is exp(-c sqrt t)")
    gaps.set_xscale("function", functions=(lambda x: np.sqrt(np.maximum(x, 0)), np.square))
    gaps.set_xlim(0, t[-1])
    gaps.set_xticks([round(t[-1] * share) for share in (0, 0.01, 0.1, 0.3, 0.6, 1)])
    finish(gaps, "steps (root scale)", "gap V* - V of the target")
    betas.set(xscale="log", yscale="log", title="beta_t: the share of the gap that a step closes")
    finish(betas, "step", "beta_t")
    figure.legend(*gaps.get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    return figure


def moments(last: int) -> Any:
    """Steps 0 .. last, ever further apart, i64."""
    return np.unique(np.concatenate([[0], np.geomspace(1, max(last, 1), POINTS).round()]).astype(int).clip(0, last))


def _line(axes: Any, x: Any, y: Any, look: Look, label: str) -> None:
    some = moments(len(x) - 1)
    draw(axes, x[some], y[some], y[some], y[some], look, label)


def _plane(axes: Any, run: Run) -> Any:
    """Picks in the order of the steps, over a shade of Z <psi, psi> for a reward of 1."""
    difficulty, correlation = np.linspace(0, 1, 101), np.linspace(-1, 1, 101)
    score = (difficulty * (1 - difficulty))[None] * correlation[:, None]
    axes.imshow(
        np.maximum(score, 0), extent=(0, 1, -1, 1), origin="lower", aspect="auto", cmap="Greys", vmax=0.5, zorder=0,
    )  # fmt: skip
    some = np.unique(np.geomspace(1, len(run.picks), PICKS).round().astype(int)) - 1
    dots = axes.scatter(
        run.difficulty[some], run.correlation[some], c=some + 1, s=7, cmap="viridis", norm="log", linewidths=0,
    )  # fmt: skip
    axes.set(xlim=(0, 1), ylim=(-1, 1.1))
    finish(axes, "difficulty 1 - V/V*", "correlation")
    return dots


def drawn(figure: Any) -> list[list[float]]:
    """The numbers in a figure: x and y of every curve, band and dot, to four digits."""
    found = []
    for axes in figure.axes:
        found += [line.get_xydata() for line in axes.lines]
        for collection in axes.collections:
            dots = collection.get_offsets()
            found += [dots] if len(dots) > 1 else [path.vertices for path in collection.get_paths()]
    return [[float(f"{x:.4g}") for x in np.ravel(part)] for part in found]


def save_both(comparison: Comparison, folder: Path) -> list[Path]:
    pictures = {"theory.png": overview(comparison), "theory-rates.png": rates_figure(comparison)}
    return [save(figure, folder / name) for name, figure in pictures.items()]


def save(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=150, metadata={"Numbers": json.dumps(drawn(figure))})
    plt.close(figure)
    return path


def carried(path: Path) -> list[list[float]]:
    """The numbers that a saved picture carries."""
    from PIL import Image

    with Image.open(path) as picture:
        return json.loads(picture.info["Numbers"])
