"""Figures: learning curves, the curriculum each teacher produced (one colour per teacher everywhere), heat maps."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import scipy.ndimage

from procurl.bench.stats import bootstrap_interval, mean_and_error
from procurl.errors import ConfigError
from procurl.result import Result, steps_per_iteration

matplotlib.use("Agg")  # files only: works without a screen
import matplotlib.pyplot as plt

# Okabe and Ito's palette, which people with colour-blindness can tell apart.
COLOURS = {
    "ProCuRLTarget": "#D55E00",
    "ProCuRLUnif": "#E69F00",
    "SPDL": "#CC79A7",
    "CURROT": "#0072B2",
    "PLR": "#56B4E9",
    "GRADIENT": "#009E73",
    "IID": "#000000",
    "Target": "#999999",
}
# MiniG's families from the target to those that have least in common with it.
FAMILY_COLOURS = {
    "blocked-unlock-pickup": "#D55E00",
    "unlock-pickup": "#E69F00",
    "unlock": "#F0E442",
    "four-rooms": "#56B4E9",
    "crossing": "#009E73",
    "dynamic-obstacles": "#0072B2",
}
NAMES = {"ProCuRLTarget": "ProCuRL-Target", "ProCuRLUnif": "ProCuRL-Unif"}


def save_all(results: list[Result], out: Path, *, band: str = "se", suffix: str = "png") -> list[Path]:
    """Learning curves per setting, then pictures of the curricula."""
    by_setting: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        by_setting[result.config["setting"] or "custom"].append(result)
    written = []
    for setting, runs in by_setting.items():
        pictures = {"curves": learning_curves(runs, band=band), **curriculum(setting, runs)}
        for kind, figure in pictures.items():
            path = out / f"{setting}-{kind}.{suffix}"
            figure.savefig(path, dpi=150)
            plt.close(figure)
            written.append(path)
    return written


def learning_curves(results: list[Result], *, band: str = "se") -> Any:
    """Mean return on the held-out target tasks, with the standard error ("se") or the 95 % interval ("ci")."""
    figure, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    for result, label in zip(results, labels(results), strict=True):
        mean, error = mean_and_error(result.ret)
        low, high = bootstrap_interval(result.ret) if band == "ci" else (mean - error, mean + error)
        colour = colour_of(result)
        axes.plot(result.steps / 1e6, mean, color=colour, label=label, linewidth=1.8)
        axes.fill_between(result.steps / 1e6, low, high, color=colour, alpha=0.18, linewidth=0)
    _finish(axes, "environment steps (millions)", "return on target tasks")
    axes.set_title(_title(results, "95 % interval" if band == "ci" else "standard error"))
    axes.legend(frameon=False, fontsize=9)
    return figure


def curriculum(setting: str, results: list[Result]) -> dict[str, Any]:
    """What was taught, in the pictures that suit a setting's contexts."""
    if setting == "minigrid":  # eight bits, six of 256 combinations
        return {"curriculum": family_shares(results)}
    return {"curriculum": curriculum_scatter(results), "distance": distance_to_target(results)}


def curriculum_scatter(results: list[Result]) -> Any:
    """Contexts chosen over training in the first two dimensions, brighter = later; crosses are targets."""
    figure, grid = _panels(len(results), columns=4, height=3.2, beside=1.0)
    space = results[0].config["space"]
    for axes, result, label in zip(grid.flat, results, labels(results), strict=False):
        context = result.trace["task_context"]  # f32[S, iterations, k, d]
        steps = np.broadcast_to(_iteration_steps(result)[None, :, None], context.shape[:3]) / 1e6
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
        axes.set_xlabel(_words(space["names"][0]))
        margin = 0.03 * (np.array(space["high"]) - np.array(space["low"]))
        axes.set_xlim(space["low"][0] - margin[0], space["high"][0] + margin[0])
    for axes in grid[:, 0]:
        axes.set_ylabel(_words(space["names"][1 % len(space["names"])]))
    figure.colorbar(dots, ax=grid, label="steps (millions)")
    return figure


def family_shares(results: list[Result]) -> Any:
    """MiniG: the share of each family among the episodes that began, over training; the target at the bottom."""
    from procurl.envs.minigrid.families import FAMILIES, nearest_family

    figure, grid = _panels(len(results), columns=3, height=2.3, beside=1.8)
    numbers = {family.name: k for k, family in enumerate(FAMILIES)}
    for axes, result, label in zip(grid.flat, results, labels(results), strict=False):
        context = result.trace["task_context"]  # f32[S, iterations, k, 8]
        began = np.isfinite(context[..., 0])
        family = np.where(began, nearest_family(np.nan_to_num(context)), -1)  # type: ignore[arg-type]  # as NumPy
        counts = np.stack([(family == numbers[name]).sum(axis=(0, 2)) for name in FAMILY_COLOURS])
        shares = _smooth(counts / np.maximum(began.sum(axis=(0, 2)), 1))  # f64[6, iterations]
        axes.stackplot(_iteration_steps(result) / 1e6, shares, colors=FAMILY_COLOURS.values(), labels=FAMILY_COLOURS)
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


def distance_to_target(results: list[Result]) -> Any:
    """Mean distance of the chosen contexts to the nearest target, one panel per context dimension."""
    names = results[0].config["space"]["names"]
    figure, grid = plt.subplots(1, len(names), figsize=(3.4 * len(names), 3.2), layout="constrained", squeeze=False)
    for k, (axes, name) in enumerate(zip(grid[0], names, strict=True)):
        for result, label in zip(results, labels(results), strict=True):
            distance = _smooth(result.trace["target_distance"][..., k])  # f32[S, iterations]
            mean, error = mean_and_error(distance)
            steps = _iteration_steps(result) / 1e6
            axes.plot(steps, mean, color=colour_of(result), label=label, linewidth=1.5)
            axes.fill_between(steps, mean - error, mean + error, color=colour_of(result), alpha=0.18, linewidth=0)
        _finish(axes, "environment steps (millions)", f"{_words(name)}: distance to target")
        axes.set_ylim(bottom=-0.03 * axes.get_ylim()[1])
    grid[0, 0].legend(frameon=False, fontsize=8)
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
    figure, axes = plt.subplots(figsize=(6.4, 5.2), layout="constrained")
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
    axes.set_xlabel(_words(names[0]))
    axes.set_ylabel(_words(names[1]))
    share = "" if mastered is None else f", {(np.atleast_2d(ret) > mastered).mean():.0%} above {mastered:g}"
    seeds = f" over {len(ret)} seeds" if np.ndim(ret) == 2 else ""
    axes.set_title(f"mean return {mean.mean():.0f}{seeds}{share}")
    figure.colorbar(mesh, label="return")
    return figure


def _panels(n: int, *, columns: int, height: float, beside: float) -> tuple[Any, Any]:
    """A figure and its grid of n panels, `beside` inches wider for a scale or a legend; places left over are empty."""
    columns = min(columns, n)
    rows = -(-n // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(3.0 * columns + beside, height * rows), layout="constrained", squeeze=False, sharey=True
    )
    for axes in grid.flat[n:]:
        axes.set_axis_off()
    return figure, grid


def labels(results: list[Result]) -> list[str]:
    """Teacher names; where two runs share one, what tells them apart is added."""
    plain = [NAMES.get(r.config["teacher"]["class"], r.config["teacher"]["class"]) for r in results]
    out = []
    for name, result in zip(plain, results, strict=True):
        same = [r.config["teacher"] for n, r in zip(plain, results, strict=True) if n == name]
        differing = [k for k in same[0] if any(t.get(k) != same[0].get(k) for t in same)]
        details = ", ".join(f"{k}={result.config['teacher'][k]}" for k in differing)
        out.append(f"{name} ({details})" if details else name)
    return out


def colour_of(result: Result) -> str:
    return COLOURS.get(result.config["teacher"]["class"], "#117733")


def _iteration_steps(result: Result) -> np.ndarray:
    """Steps played before each iteration's tasks were chosen."""
    n = result.trace["started"].shape[1]
    return np.arange(n) * steps_per_iteration(result.config)


def _smooth(x: np.ndarray, window: int = 5) -> np.ndarray:
    """Moving average over iterations."""
    x = np.where(np.isfinite(x), x, np.nanmean(x))
    return scipy.ndimage.uniform_filter1d(x, min(window, x.shape[-1]), axis=-1, mode="nearest")


def _finish(axes: Any, x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)


def _title(results: list[Result], band: str) -> str:
    seeds = sorted({len(r.seeds) for r in results})
    count = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    return f"{results[0].config['setting'] or 'custom'}: mean and {band} over {count} seeds"


def _words(name: str) -> str:
    return name.replace("_", " ")
