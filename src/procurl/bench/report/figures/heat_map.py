"""Return over two context dimensions, as a table in colours."""

from __future__ import annotations

from typing import Any

import numpy as np

from procurl.bench.report.figures.canvas import panels, plt, words
from procurl.bench.report.style import labels
from procurl.errors import ConfigError
from procurl.runs.store.result import Result


def final_returns(results: list[Result], mastered: float | None = None) -> Any:
    """One heat map per run: the return on the grid of held-out tasks at the last evaluation."""
    figure, grid = panels(len(results), columns=3, height=3.7, beside=1.0, width=3.9)
    space = results[0].config["space"]
    for axes, result, label in zip(grid.flat, results, labels(results), strict=False):
        ret = result.task_ret[~result.failed | result.failed.all(), -1]  # of nobody, NaN: refused below
        mesh = _draw(axes, result.held_out["context"], ret, tuple(space["names"]), results[0].value_range, mastered)
        axes.set_title(f"{label}, {result.steps[-1] / 1e6:g}M steps\n{axes.get_title()}", fontsize=9)
    figure.colorbar(mesh, ax=grid, label="return")
    return figure


def return_heat_map(
    context: np.ndarray,
    ret: np.ndarray,
    names: tuple[str, str],
    value_range: tuple[float, float],
    mastered: float | None = None,
) -> Any:
    """Return on a grid of tasks with two context dimensions, averaged over seeds; tasks may come in any order.

    Args:
        context: f32[n, 2], every combination of some values of the two dimensions.
        ret: f32[n], or f32[S, n] for several seeds.
        names: of the two dimensions.
        value_range: of the colours, the same in every picture of a setting.
        mastered: returns above this are bold, and the title says how many there are.
    """
    figure, axes = plt.subplots(figsize=(6.4, 5.2), layout="constrained")
    figure.colorbar(_draw(axes, context, ret, names, value_range, mastered), label="return")
    return figure


def _draw(axes: Any, context: np.ndarray, ret: np.ndarray, names: Any, value_range: Any, mastered: float | None) -> Any:
    x, column = np.unique(context[:, 0], return_inverse=True)
    y, row = np.unique(context[:, 1], return_inverse=True)
    mean = np.atleast_2d(ret).mean(axis=0)  # f32[n]
    table = np.full((len(y), len(x)), np.nan)
    table[row, column] = mean
    if len(context) != table.size or np.shape(mean) != (table.size,) or np.isnan(table).any():
        raise ConfigError(
            f"{len(context)} tasks with {len(x)} values of {names[0]}, {len(y)} of {names[1]} and {np.size(mean)} "
            f"returns: expected one finite return for every cell of a grid"
        )
    mesh = axes.pcolormesh(table, cmap="viridis", vmin=value_range[0], vmax=value_range[1])
    dark = value_range[0] + 0.6 * (value_range[1] - value_range[0])  # colours below need light writing
    for (j, i), value in np.ndenumerate(table):
        bold = mastered is not None and value > mastered
        axes.text(
            i + 0.5, j + 0.5, f"{value:.0f}", ha="center", va="center", fontsize=8,
            color="white" if value < dark else "black", weight="bold" if bold else "normal",
        )  # fmt: skip
    axes.set_xticks(np.arange(len(x)) + 0.5, [f"{v:.2g}" for v in x])
    axes.set_yticks(np.arange(len(y)) + 0.5, [f"{v:.2g}" for v in y])
    axes.set_xlabel(words(names[0]))
    axes.set_ylabel(words(names[1]))
    share = "" if mastered is None else f", {(np.atleast_2d(ret) > mastered).mean():.0%} above {mastered:g}"
    seeds = f" over {len(ret)} seeds" if np.ndim(ret) == 2 else ""
    axes.set_title(f"mean return {mean.mean():.0f}{seeds}{share}")
    return mesh
