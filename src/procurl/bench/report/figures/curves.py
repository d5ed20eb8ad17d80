"""How well students do: learning curves of one setting, the paper's Figure 2 for several, and performance profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from procurl.bench.report.figures.canvas import (
    TEXT_WIDTH,
    draw,
    empty_places,
    finish,
    legend_shape,
    plt,
    published,
    shared_legend,
)
from procurl.bench.report.style import TITLES, Look, labels, looks, looks_of
from procurl.bench.stats import bootstrap_interval, mean_and_error, performance_profile, profile_interval
from procurl.errors import ConfigError
from procurl.runs.store.result import Result

STEPS = "environment steps (millions)"


class Curve(NamedTuple):
    """What is drawn of a run. Recorded comparisons keep just this, not the run; E evaluations."""

    label: str
    teacher: str  # class, which decides the colour
    steps: np.ndarray  # i[E]
    mean: np.ndarray  # f[E]
    low: np.ndarray  # f[E]  the band
    high: np.ndarray  # f[E]
    n_seeds: int  # in the mean
    n_failed: int = 0  # seeds with NaN or infinity: left out


def learning_curve(result: Result, label: str, *, band: str = "se", smooth: int = 1) -> Curve:
    """Mean return on the held-out target tasks, with the standard error ("se") or the 95 % interval ("ci").

    `smooth` is how many evaluations, up to and with each one, are averaged.
    """
    sound = result.ret[np.isfinite(result.ret).all(axis=1)]
    n_failed = len(result.ret) - len(sound)
    teacher = result.config["teacher"]["class"]
    if len(sound) == 0:
        nothing = np.full(len(result.steps), np.nan)
        return Curve(label, teacher, result.steps, nothing, nothing, nothing, 0, n_failed)
    ret = trailing_mean(sound, smooth)
    mean, error = mean_and_error(ret)
    low, high = bootstrap_interval(ret) if band == "ci" else (mean - error, mean + error)
    return Curve(label, teacher, result.steps, mean, low, high, len(sound), n_failed)


def learning_curves(results: list[Result], *, band: str = "se") -> Any:
    """One setting: mean return on the held-out target tasks and its band, see `learning_curve`."""
    figure, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    curves = [learning_curve(r, label, band=band) for r, label in zip(results, labels(results), strict=True)]
    look = looks_of(results)
    for c in curves:
        draw(axes, c.steps / 1e6, c.mean, c.low, c.high, look[c.label], c.label)
    finish(axes, STEPS, "return on target tasks")
    setting, kind = results[0].config["setting"] or "custom", "95 % interval" if band == "ci" else "standard error"
    title = f"{setting}: mean and {kind} over {_seeds(curves)}"
    axes.set_title(title, fontsize=None if len(title) < 60 else 9)  # failed seeds make it long
    axes.legend(frameon=False, fontsize=9)
    return figure


@published
def figure_two(results_by_setting: Mapping[str, Sequence[Result | Curve]], *, smooth: int = 2) -> Any:
    """The paper's Figure 2: mean return +- one standard error on the target tasks, a panel per setting, one legend.

    Args:
        results_by_setting: setting -> runs of the strategies; a strategy may be missing from some settings.
        smooth: evaluations averaged up to each one; 2 in the paper. Recorded curves are drawn as they are.
    """
    _check_settings(results_by_setting)
    curves = {setting: _as_curves(runs, smooth) for setting, runs in results_by_setting.items()}
    look = looks((c.teacher, c.label) for row in curves.values() for c in row)
    figure, grid = _setting_panels(len(curves), look)
    for axes, letter, (setting, row) in zip(grid.flat, "abcdefghijklmnopqrstuvwxyz", curves.items(), strict=False):
        for c in row:
            draw(axes, c.steps / 1e6, c.mean, c.low, c.high, look[c.label], c.label)
        finish(axes, STEPS, "return on target tasks" if axes in grid[:, 0] else "")
        axes.set_title(f"({letter}) {TITLES.get(setting, setting)}, {_seeds(row)}")
    shared_legend(figure, grid, look)
    return figure


@published
def performance_profiles(results_by_setting: Mapping[str, Sequence[Result]]) -> Any:
    """Share of seeds whose final return is above a threshold, over all thresholds; band: pointwise 95 % interval."""
    _check_settings(results_by_setting)
    pairs = {setting: list(zip(runs, labels(runs), strict=True)) for setting, runs in results_by_setting.items()}
    look = looks((r.config["teacher"]["class"], label) for row in pairs.values() for r, label in row)
    figure, grid = _setting_panels(len(pairs), look)
    for axes, letter, (setting, row) in zip(grid.flat, "abcdefghijklmnopqrstuvwxyz", pairs.items(), strict=False):
        lowest, highest = row[0][0].value_range
        thresholds = np.linspace(lowest, highest, 201)
        for result, label in row:
            final = result.ret[np.isfinite(result.ret).all(axis=1), -1]
            if len(final):
                low, high = profile_interval(final, thresholds)
                draw(axes, thresholds, performance_profile(final, thresholds), low, high, look[label], label)
        finish(axes, "final return $r$", "share of seeds above $r$" if axes in grid[:, 0] else "")
        axes.set_ylim(-0.02, 1.02)
        axes.set_title(f"({letter}) {TITLES.get(setting, setting)}, {_seeds(_as_curves([r for r, _ in row], 1))}")
    shared_legend(figure, grid, look)
    return figure


def trailing_mean(x: np.ndarray, n: int) -> np.ndarray:
    """Each evaluation f[..., E] averaged with the n - 1 before it, as far as there are any."""
    if n < 1:
        raise ConfigError(f"smooth = {n}: expected how many evaluations to average, 1 for none")
    total = np.cumsum(x, axis=-1, dtype=np.float64)
    total[..., n:] -= total[..., :-n].copy()
    return total / np.minimum(np.arange(1, x.shape[-1] + 1), n)


def _as_curves(runs: Sequence[Result | Curve], smooth: int) -> list[Curve]:
    names = iter(labels([r for r in runs if isinstance(r, Result)]))
    return [r if isinstance(r, Curve) else learning_curve(r, next(names), smooth=smooth) for r in runs]


def _setting_panels(n: int, look: dict[str, Look]) -> tuple[Any, Any]:
    columns = 2 if n in (2, 4) else 3
    rows = -(-n // columns)
    width = TEXT_WIDTH if n > 1 else TEXT_WIDTH / 2  # a single panel fills one column of the page
    _, legend = legend_shape(list(look), width)
    size = width, 1.9 * rows + legend
    figure, grid = plt.subplots(rows, min(n, columns), figsize=size, layout="constrained", squeeze=False)
    empty_places(grid, n)
    return figure, grid


def _seeds(curves: Sequence[Curve]) -> str:
    """How many seeds are in the means, and how many are not."""
    low, high = min(c.n_seeds for c in curves), max(c.n_seeds for c in curves)
    n_failed = sum(c.n_failed for c in curves)
    failed = f" ({n_failed} failed, left out)" if n_failed else ""
    return f"{low} to {high} seeds{failed}" if low < high else f"{low} seed{'s' if low != 1 else ''}{failed}"


def _check_settings(results_by_setting: Mapping[str, Sequence[Any]]) -> None:
    empty = [setting for setting, runs in results_by_setting.items() if not runs]
    if empty or not results_by_setting:
        raise ConfigError(f"no runs{' of ' + ', '.join(empty) if empty else ''}: expected at least one per setting")
