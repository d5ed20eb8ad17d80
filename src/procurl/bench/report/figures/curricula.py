"""What was taught: contexts over training, their distance to the target, shares of kinds, the paper's Figure 3."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.ndimage

from procurl.bench.report.figures.canvas import (
    TEXT_WIDTH,
    draw,
    finish,
    legend_shape,
    panels,
    plt,
    published,
    shared_legend,
    words,
)
from procurl.bench.report.kinds import Kinds, kinds_of
from procurl.bench.report.style import TITLES, Look, labels, looks_of
from procurl.bench.stats import mean_and_error
from procurl.errors import ConfigError
from procurl.runs.store.result import Result, steps_per_iteration

TARGET_MEAN = "mean of the target"
MOST_TICKS = 30  # labels on an axis


def curriculum(setting: str, results: list[Result]) -> dict[str, Any]:
    """What was taught, in the pictures that suit a setting's contexts."""
    if setting == "minigrid":
        return {"curriculum": family_shares(results)}
    if kinds_of(setting, results[0].config["space"]):
        return {"curriculum": label_shares(results)}
    return {"curriculum": curriculum_scatter(results), "distance": distance_to_target(results)}


def curriculum_scatter(results: list[Result]) -> Any:
    """Contexts chosen over training in the first two dimensions, brighter = later; crosses are targets."""
    figure, grid = panels(len(results), columns=4, height=3.2, beside=1.0)
    space = results[0].config["space"]
    for axes, result, label in zip(grid.flat, results, labels(results), strict=False):
        context = result.trace["task_context"]  # f32[S, iterations, k, d]
        steps = np.broadcast_to(iteration_steps(result)[None, :, None], context.shape[:3]) / 1e6
        # One seed would be an anecdote and all of them a blot: a fixed random subset of every seed's tasks.
        rng = np.random.default_rng(0)
        points, when = context.reshape(-1, context.shape[-1]), steps.reshape(-1)
        kept = np.flatnonzero(np.isfinite(points[:, 0]))
        kept = np.sort(rng.choice(kept, min(4000, len(kept)), replace=False))
        kept = kept[np.argsort(when[kept], kind="stable")]
        dots = axes.scatter(
            points[kept, 0], points[kept, 1 % points.shape[1]], c=when[kept], s=3, cmap="viridis", linewidths=0
        )
        target = result.held_out["context"]
        axes.scatter(
            target[:, 0], target[:, 1 % target.shape[1]], marker="x", s=60, color="#D55E00", linewidths=1.2, zorder=0.5
        )
        axes.set_title(textwrap.fill(label, 36), fontsize=9)
        axes.set_xlabel(words(space["names"][0]))
        margin = 0.03 * (np.array(space["high"]) - np.array(space["low"]))
        axes.set_xlim(space["low"][0] - margin[0], space["high"][0] + margin[0])
    for axes in grid[:, 0]:
        axes.set_ylabel(words(space["names"][1 % len(space["names"])]))
    figure.colorbar(dots, ax=grid, label="steps (millions)")
    return figure


def family_shares(results: list[Result]) -> Any:
    """MiniG: the share of each family among the episodes that began, over training; the target at the bottom."""
    families = kinds_of("minigrid", None)
    assert families is not None
    figure, grid = panels(len(results), columns=3, height=2.3, beside=1.8)
    for axes, result, label in zip(grid.flat, results, labels(results), strict=False):
        shares = np.nan_to_num(_shares_over_training(families, result))
        axes.stackplot(iteration_steps(result) / 1e6, shares, colors=families.colours, labels=families.names)
        axes.set_title(textwrap.fill(label, 36), fontsize=9)
        axes.set(ylim=(0, 1), xmargin=0)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in grid[:, 0]:
        axes.set_ylabel("share of episodes")
    for axes in grid.flat[max(0, len(results) - grid.shape[1]) : len(results)]:
        axes.set_xlabel("steps (millions)")
    handles, names = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles[::-1], names[::-1], loc="outside right center", frameon=False, fontsize=9)
    return figure


def label_shares(results: list[Result]) -> Any:
    """Tasks that are names: the share of each among the episodes that began, over training; targets are marked."""
    tasks = kinds_of(None, results[0].config["space"])
    if tasks is None:
        raise ConfigError("these runs' tasks have no labels: draw curriculum_scatter(results)")
    n = len(tasks.names)
    shown = range(0, n, -(-n // MOST_TICKS))
    figure, grid = panels(len(results), columns=3, height=1.5 + 0.2 * len(shown), beside=1.0)
    for axes, result, label in zip(grid.flat, results, labels(results), strict=False):
        shares = _shares_over_training(tasks, result)
        mesh = axes.pcolormesh(
            iteration_edges(result) / 1e6, np.arange(n + 1) - 0.5, shares, vmin=0, vmax=1, cmap="viridis"
        )
        is_target = tasks.are_targets(result.held_out["context"])
        axes.set_yticks(shown, [f"{tasks.names[k]} (target)" if is_target[k] else tasks.names[k] for k in shown])
        axes.set_title(textwrap.fill(label, 36), fontsize=9)
        axes.set_xlabel("steps (millions)")
    figure.colorbar(mesh, ax=grid, label="share of episodes")
    return figure


def _shares_over_training(kinds: Kinds, result: Result) -> np.ndarray:
    """f64[kinds, iterations]: shares among the episodes that began."""
    context = result.trace["task_context"]  # f32[S, iterations, k, d], NaN where no episode began
    began = np.nonzero(np.isfinite(context[..., 0]))
    return smoothed(kinds.shares(context[began], began[1], context.shape[1]).T)


def distance_to_target(results: list[Result]) -> Any:
    """Mean distance of the chosen contexts to the nearest target, one panel per context dimension."""
    names = results[0].config["space"]["names"]
    figure, grid = plt.subplots(1, len(names), figsize=(3.4 * len(names), 3.2), layout="constrained", squeeze=False)
    _draw_distances(grid[0], results, looks_of(results))
    for axes, name in zip(grid[0], names, strict=True):
        finish(axes, "environment steps (millions)", f"{words(name)}: distance to target")
    grid[0, 0].legend(frameon=False, fontsize=8)
    return figure


@published
def figure_three(results: Sequence[Result], *, moments: int = 4) -> Any:
    """The paper's Figure 3, for the runs of one setting: what each strategy taught, and when.

    Above: mean distance of the chosen contexts to the nearest target per context dimension; where there is a third
    dimension (the maze's tolerance), its mean over training. Bands are one standard error over seeds.
    Below: the contexts chosen at a few moments of training in the first two dimensions, a row per strategy; crosses are
    targets. A space with one dimension has no such rows.
    """
    _check_runs(results)
    look, setting = looks_of(results), results[0].config["setting"] or "custom"
    d = len(results[0].config["space"]["names"])
    _, legend = legend_shape([*look, TARGET_MEAN], TEXT_WIDTH)
    above, below = 1.9 + legend, 1.15 * len(results) + 0.5
    figure = plt.figure(figsize=(TEXT_WIDTH, above + below * (d > 1)), layout="constrained")
    parts = figure.subfigures(2 if d > 1 else 1, 1, height_ratios=[above, below][: min(d, 2)], squeeze=False)
    grid = parts[0, 0].subplots(1, d + (d > 2), squeeze=False)
    _draw_distances(grid[0], results, look)
    names = [words(name) for name in results[0].config["space"]["names"]]
    if d > 2:
        _draw_mean_context(grid[0, d], results, look, dimension=2)
        names.append(names[2])
    for k, (axes, letter, name) in enumerate(zip(grid[0], "abcdefghijklmnopqrstuvwxyz", names, strict=False)):
        axes.set_title(f"({letter}) {TITLES.get(setting, setting)}: {name}")
        finish(axes, "steps (millions)", {0: "distance to target", d: "mean of the tasks"}.get(k, ""))
    shared_legend(parts[0, 0], grid, look)
    if d > 1:
        _draw_moments(parts[1, 0], moments, results, look)
    return figure


def iteration_steps(result: Result) -> np.ndarray:
    """Steps played before each iteration's tasks were chosen, f[I]."""
    return iteration_edges(result)[:-1]


def iteration_edges(result: Result) -> np.ndarray:
    """Steps where the iterations begin, and where the last one ends, f[I + 1]."""
    if "steps" in result.trace:  # counted: a loop of somebody's own, or a teacher for whom the student also plays
        return np.append(0, result.trace["steps"].mean(axis=0))
    n = result.trace["started"].shape[1]
    return np.arange(n + 1) * steps_per_iteration(result.config)


def smoothed(x: np.ndarray, window: int = 5) -> np.ndarray:
    """Moving average over iterations, the last axis, of the values that are there; NaN where a window has none."""
    window = min(window, x.shape[-1])
    known = np.isfinite(x)

    def mean(values: np.ndarray) -> np.ndarray:
        return scipy.ndimage.uniform_filter1d(values.astype(np.float64), window, axis=-1, mode="nearest")

    share = mean(known)
    enough = share > 0.5 / window  # less than one value: 0 up to rounding
    return np.where(enough, mean(np.where(known, x, 0.0)) / np.where(enough, share, 1.0), np.nan)


def _draw_distances(row: Any, results: Sequence[Result], look: dict[str, Look]) -> None:
    """One panel per context dimension."""
    for k, axes in enumerate(row[: results[0].trace["target_distance"].shape[-1]]):
        for result, label in zip(results, labels(results), strict=True):
            mean, error = mean_and_error(smoothed(result.trace["target_distance"][..., k]))
            draw(axes, iteration_steps(result) / 1e6, mean, mean - error, mean + error, look[label], label)
        axes.set_ylim(bottom=-0.03 * axes.get_ylim()[1])


def _draw_mean_context(axes: Any, results: Sequence[Result], look: dict[str, Look], dimension: int) -> None:
    """Mean of one context dimension over the chosen tasks, and over the target's."""
    for result, label in zip(results, labels(results), strict=True):
        chosen = result.trace["task_context"][..., dimension]  # f32[S, iterations, k], NaN where no episode began
        known = np.isfinite(chosen)
        with np.errstate(invalid="ignore"):  # an iteration in which nothing began has no mean: 0 / 0
            per_seed = np.where(known, chosen, 0.0).sum(axis=2) / known.sum(axis=2)
        mean, error = mean_and_error(smoothed(per_seed))
        draw(axes, iteration_steps(result) / 1e6, mean, mean - error, mean + error, look[label], label)
    target = results[0].held_out["context"][:, dimension].mean()
    axes.axhline(target, color="black", linewidth=0.8, linestyle="--", label=TARGET_MEAN)


def _draw_moments(part: Any, moments: int, results: Sequence[Result], look: dict[str, Look]) -> None:
    """Contexts in the first two dimensions, within a twentieth of training at each moment."""
    space, rng = results[0].config["space"], np.random.default_rng(0)
    grid = part.subplots(len(results), moments, sharex=True, sharey=True, squeeze=False)
    legend_order = sorted(zip(labels(results), results, strict=True), key=lambda pair: [*look].index(pair[0]))
    for i, (row, (label, result)) in enumerate(zip(grid, legend_order, strict=True)):
        context = result.trace["task_context"]  # f32[S, iterations, k, d]
        n = context.shape[1]
        window = max(1, n // 20)
        for axes, first in zip(row, np.linspace(0, n - window, moments).round().astype(int), strict=True):
            points = context[:, first : first + window].reshape(-1, context.shape[-1])
            points = points[np.isfinite(points[:, 0])]
            points = points[rng.permutation(len(points))[:300]]  # of all seeds; more would be a blot
            axes.scatter(*result.held_out["context"][:, :2].T, marker="x", s=14, color="#666666", linewidths=0.7)
            axes.scatter(points[:, 0], points[:, 1], s=5, color=look[label].colour, alpha=0.6, linewidths=0)
            if i == 0:
                axes.set_title(f"{100 * first / n:.0f} to {100 * (first + window) / n:.0f} % of training")
        row[0].set_ylabel(textwrap.fill(label, 20, break_long_words=False), fontsize=7 if len(label) < 20 else 6)
    part.supxlabel(words(space["names"][0]), fontsize=8)
    part.supylabel(words(space["names"][1]), fontsize=8)
    margin = 0.04 * (np.array(space["high"]) - np.array(space["low"]))
    grid[0, 0].set_xlim(space["low"][0] - margin[0], space["high"][0] + margin[0])
    grid[0, 0].set_ylim(space["low"][1] - margin[1], space["high"][1] + margin[1])


def _check_runs(results: Sequence[Result]) -> None:
    if not results:
        raise ConfigError("no runs: expected at least one")
    if kinds_of(None, results[0].config["space"]):
        raise ConfigError(
            "these runs' tasks are labels, which have no distance to a target: draw label_shares(results)"
        )
    settings = sorted({str(r.config["setting"]) for r in results})
    if len(settings) > 1:
        raise ConfigError(f"runs of {', '.join(settings)} in one figure: expected those of one setting")
