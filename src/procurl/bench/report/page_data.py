"""The data of the report's page: statistics, curves and samples of the chosen tasks, as plain JSON.

All estimates are made here, with procurl.bench.stats; the page only draws. Large collections are made to fit: fewer
points of the scatter plots, fewer evaluations, rounded numbers; the page says so.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np

from procurl import __version__
from procurl.bench.report.kinds import kinds_of
from procurl.bench.report.strategies import Strategy
from procurl.bench.report.studies import Collection, Study
from procurl.bench.report.style import COLOURS, OWN_COLOUR
from procurl.bench.stats import (
    Summary,
    bootstrap_difference,
    bootstrap_interval,
    iqm,
    mean_and_error,
    performance_profile,
    probability_of_improvement,
    stratified_interval,
    summarise,
)
from procurl.runs.store.result import range_of

WINDOWS = (1, 3, 5, 9)  # evaluations that a smoothed curve averages over
FRAMES = 40  # positions of the slider over training
POINTS = 120_000  # chosen tasks on the whole page
POINTS_PER_FRAME = (10, 120)  # of each strategy, at least and at most
EVALUATIONS = 200  # of each curve
SEED_NUMBERS = 400_000  # returns of single seeds on the whole page
TARGETS = 400  # distinct held-out contexts
REPEATS = 2000  # of every bootstrap
GRID = 1000  # contexts are rounded to 1 / GRID of the space's width
SPACE = ("names", "low", "high", "value_range", "labels")  # what the page is told of a study's tasks
OTHER_COLOURS = (
    OWN_COLOUR,
    "#882255",
    "#44AA99",
    "#332288",
    "#AA4499",
    "#999933",
)  # Paul Tol's palette, for several teachers of one's own


def page_data(collection: Collection) -> dict[str, Any]:
    """All that the page shows, as plain JSON data; NaN is null."""
    strategies = [strategy for study in collection.studies for strategy in study.strategies]
    budget = _Budget(strategies)
    provenance: dict[str, int] = {}
    studies = [_study(study, budget, provenance) for study in collection.studies]
    return {
        "procurl": __version__,
        "runs": collection.n_runs,
        "cut": collection.n_cut,
        "problems": collection.problems,
        "windows": list(WINDOWS),
        "limits": {"points": budget.points, "seeds": budget.seeds, "evaluations": EVALUATIONS, "grid": GRID},
        "studies": studies,
        "provenance": [json.loads(text) for text in provenance],
    }


class _Budget:
    """How much of a large collection is shown, so that the page stays small."""

    def __init__(self, strategies: list[Strategy]) -> None:
        traced = sum(s.contexts is not None for s in strategies)
        least, most = POINTS_PER_FRAME
        self.points = min(max(POINTS // max(traced * FRAMES, 1), least), most)  # per strategy and frame
        curves = sum(min(len(s.steps), EVALUATIONS) for s in strategies if s.ret is not None)
        self.seeds = max(SEED_NUMBERS // max(curves, 1), 1)  # single seeds drawn, of each strategy


def threshold_of(study: Study) -> float:
    """Half-way between the lowest and the highest return that the setting knows."""
    low, high = _value_range(study)
    return low + 0.5 * (high - low)


def summary_of(strategy: Strategy, threshold: float) -> Summary:
    """The strategy's statistics, of the seeds that were not cut short; NaN where the recorded file does not say."""
    nan = float("nan")
    if strategy.cut.all():
        return Summary(0, 0, nan, nan, nan, (nan, nan), (nan, nan), nan, nan, nan, nan)
    if strategy.ret is not None:
        return summarise(strategy.steps, strategy.ret[~strategy.cut], threshold=threshold)
    final = strategy.final[strategy.complete]
    mean, error = (strategy.mean[-1], strategy.error[-1]) if strategy.mean is not None else mean_and_error(final)  # type: ignore[index]
    intervals = [(nan, nan), (nan, nan)]
    if len(final):
        intervals = [tuple(stratified_interval([final], which).tolist()) for which in ("mean", "iqm")]  # type: ignore[misc]
    area, area_error = strategy.area or (nan, nan)
    return Summary(
        n_seeds=len(strategy.final), n_failed=len(strategy.final) - len(final), mean=float(mean), error=float(error),
        iqm=float(iqm(final)) if len(final) else nan, mean_interval=intervals[0], iqm_interval=intervals[1],
        area=area, area_error=area_error, steps_to_threshold=nan, reached=nan,
    )  # fmt: skip


def _study(study: Study, budget: _Budget, provenance: dict[str, int]) -> dict[str, Any]:
    edges = _frame_edges(study)
    decimals = _decimals(study)
    threshold = threshold_of(study)
    low, high = _value_range(study)
    thresholds = np.linspace(low, high, 51)
    targets = _targets(study)
    strategies = []
    for k, strategy in enumerate(study.strategies):
        final = strategy.final[strategy.complete]
        summary = summary_of(strategy, threshold)
        strategies.append(
            {
                "label": strategy.label,
                "teacher": strategy.teacher,
                "colour": _colour(study, strategy),
                "dash": [s.teacher for s in study.strategies[:k]].count(strategy.teacher),
                "steps": _thin(strategy.steps).tolist(),
                "curves": [_curve(strategy, window, decimals) for window in WINDOWS],
                "seeds": None if strategy.seeds is None else strategy.seeds.tolist(),
                "ret": None if strategy.ret is None else _rounded(_thin(strategy.ret[: budget.seeds]), decimals),
                "final": _rounded(strategy.final, decimals),
                "cut": int(strategy.cut.sum()),
                "planned": strategy.planned,
                "unfinished": strategy.is_unfinished,
                "ranked": not strategy.is_unfinished or bool(strategy.complete.any()),
                "success": _final_success(strategy),
                "summary": {key: _rounded(value, decimals + 1) for key, value in asdict(summary).items()},
                "profile": _rounded(performance_profile(final, thresholds), 3) if len(final) else None,
                "speed": strategy.speed,
                "teacher_share": _rounded(strategy.teacher_share, 4),
                "taught": strategy.taught,
                "curriculum": _curriculum(study, strategy, edges, budget),
                "tasks": _tasks(strategy, targets, decimals),
                "config": _plain(strategy.config),
                "provenance": [_index(p, provenance) for p in strategy.provenance],
                "dates": strategy.dates,
                "notes": strategy.notes,
            }
        )
    space = study.space
    return {
        "title": study.title,
        "setting": study.setting,
        "space": None if space is None else {k: space[k] for k in SPACE if k in space},
        "families": _families(study),
        "decimals": max(decimals - 1, 0),
        "threshold": threshold,
        "value_range": [low, high],
        "thresholds": _rounded(thresholds, decimals),
        "edges": edges.tolist(),
        "targets": None if targets is None else {"contexts": _on_grid(targets[0], study), "counts": targets[2]},
        "pairs": _pairs(study.strategies, decimals),
        "notes": study.notes,
        "strategies": strategies,
    }


def _decimals(study: Study) -> int:
    """Of a return: four digits of the width of its range."""
    low, high = _value_range(study)
    return int(np.clip(4 - math.ceil(math.log10(max(high - low, 1e-9))), 0, 8))


def _value_range(study: Study) -> tuple[float, float]:
    if study.space is None:
        return 0.0, 1.0
    given = study.space["value_range"]
    low, high = (
        range_of(np.concatenate([(s.final if s.ret is None else s.ret).ravel() for s in study.strategies]))
        if given is None
        else given
    )
    return float(low), float(high)


def _colour(study: Study, strategy: Strategy) -> str:
    others = sorted({s.teacher for s in study.strategies} - set(COLOURS))
    if strategy.teacher in COLOURS:
        return COLOURS[strategy.teacher]
    return OTHER_COLOURS[others.index(strategy.teacher) % len(OTHER_COLOURS)]


def _curve(strategy: Strategy, window: int, decimals: int) -> dict[str, Any]:
    """Mean, standard error and 95 % interval along training, of curves that were smoothed seed by seed."""
    if strategy.ret is None:
        # The error of an average of evaluations is at most the average of their errors.
        rows = [_smooth(strategy.mean, window), _smooth(strategy.error, window), None, None]  # type: ignore[arg-type]
    elif not strategy.drawn.any():
        rows = [None] * 4
    else:
        ret = _smooth(strategy.ret[strategy.drawn], window)
        rows = [*mean_and_error(ret), *bootstrap_interval(ret, repeats=REPEATS)]
    names = ("mean", "error", "low", "high")
    return {
        name: None if row is None else _rounded(_thin(row), decimals) for name, row in zip(names, rows, strict=True)
    }


def _smooth(x: np.ndarray, window: int) -> np.ndarray:
    """Moving average over the last axis; at the ends over what is there."""
    n = x.shape[-1]
    total = np.concatenate([np.zeros((*x.shape[:-1], 1)), np.cumsum(x, axis=-1)], axis=-1)
    first, last = (np.clip(np.arange(n) + shift, 0, n) for shift in (-(window // 2), window // 2 + 1))
    return (total[..., last] - total[..., first]) / (last - first)


def _thin(x: np.ndarray) -> np.ndarray:
    """At most EVALUATIONS of the last axis, evenly, the first and the last among them."""
    n = x.shape[-1]
    return x if n <= EVALUATIONS else x[..., np.round(np.linspace(0, n - 1, EVALUATIONS)).astype(int)]


def _final_success(strategy: Strategy) -> float | None:
    """None also where nobody said which episodes succeeded: a loop of one's own may know returns alone."""
    if strategy.success is None or not strategy.complete.any():
        return None
    success: float | None = _rounded(strategy.success[strategy.complete, -1].mean(), 4)
    return success


def _pairs(strategies: list[Strategy], decimals: int) -> list[list[Any]]:
    """For every two strategies with results: difference of final means, its 95 % interval, P(the first is better)."""
    final = [(k, s.final[s.complete]) for k, s in enumerate(strategies) if s.complete.any()]
    pairs = []
    for n, (i, a) in enumerate(final):
        for j, b in final[n + 1 :]:
            interval = bootstrap_difference(a, b, repeats=REPEATS)
            numbers = [a.mean() - b.mean(), *interval]
            pairs.append([i, j, *_rounded(np.array(numbers), decimals), round(probability_of_improvement(a, b), 3)])
    return pairs


def _frame_edges(study: Study) -> np.ndarray:
    """i64[n + 1]: steps at which the slider's frames begin, and the end; frames hold whole iterations."""
    sizes = [s.iteration_steps for s in study.strategies if s.contexts is not None and s.iteration_steps]
    if not sizes:
        return np.zeros(0, int)
    end = max(int(s.steps[-1]) for s in study.strategies)
    iterations = max(end // min(sizes), 1)
    cuts = np.round(np.linspace(0, iterations, min(FRAMES, iterations) + 1)).astype(int)
    return cuts * min(sizes)


def _curriculum(study: Study, strategy: Strategy, edges: np.ndarray, budget: _Budget) -> dict[str, Any] | None:
    """Per frame: how many tasks are known, a fair sample of them (or the shares of its kinds), the distance."""
    if strategy.contexts is None or strategy.iterations is None or len(edges) == 0:
        return None
    n_frames = len(edges) - 1
    frame = _frame(strategy.iterations * strategy.iteration_steps, edges)
    order = np.random.default_rng(0).permutation(len(frame))
    order = order[np.argsort(frame[order], kind="stable")]
    bounds = np.searchsorted(frame[order], np.arange(n_frames + 1))
    counts = np.diff(bounds)
    distance = None
    if strategy.distance is not None:
        when = _frame(np.arange(len(strategy.distance)) * strategy.iteration_steps, edges)
        groups = [strategy.distance[when == f] for f in range(n_frames)]
        means = [
            g[np.isfinite(g).all(axis=1)].mean(axis=0) if len(g) and np.isfinite(g).any() else None for g in groups
        ]
        distance = [None if m is None else [float(f"{x:.3g}") for x in m] for m in means]
    shown = [order[a : min(a + budget.points, b)] for a, b in itertools.pairwise(bounds)]
    kinds = kinds_of(study.setting, study.space)
    families = None if kinds is None else _rounded(kinds.shares(strategy.contexts, frame, n_frames), 3)
    points = [_on_grid(strategy.contexts[rows], study) for rows in shown] if families is None else None
    return {"counts": counts.tolist(), "points": points, "families": families, "distance": distance}


def _frame(steps: np.ndarray, edges: np.ndarray) -> np.ndarray:
    return np.clip(np.searchsorted(edges, steps, side="right") - 1, 0, len(edges) - 2)


def _families(study: Study) -> dict[str, Any] | None:
    """What kinds of tasks are called, their colours, and which are targets; None where tasks have no kinds."""
    kinds = kinds_of(study.setting, study.space)
    if kinds is None:
        return None
    known = [s.held_out for s in study.strategies if s.held_out is not None]
    targets = kinds.are_targets(known[0]) if known else [False] * len(kinds.names)
    return {"names": kinds.names, "colours": kinds.colours, "targets": targets}


def _targets(study: Study) -> tuple[np.ndarray, np.ndarray, list[int]] | None:
    """Distinct held-out contexts, which of them each held-out task has (-1: not shown), and how many tasks have it."""
    known = [s.held_out for s in study.strategies if s.held_out is not None]
    if not known:
        return None
    distinct, which, counts = np.unique(known[0], axis=0, return_inverse=True, return_counts=True)
    kept = np.sort(np.random.default_rng(0).permutation(len(distinct))[:TARGETS])
    place = np.full(len(distinct), -1)
    place[kept] = np.arange(len(kept))
    return distinct[kept], place[which.reshape(-1)], counts[kept].tolist()


def _tasks(strategy: Strategy, targets: tuple[np.ndarray, np.ndarray, list[int]] | None, decimals: int) -> Any:
    """Final return and success per distinct held-out context."""
    if targets is None or strategy.task_ret is None or strategy.task_success is None:
        return None
    contexts, which, _ = targets
    if len(which) != len(strategy.task_ret):
        return None
    shown = which >= 0
    count = np.bincount(which[shown], minlength=len(contexts))
    ret, success = (
        np.bincount(which[shown], values[shown], minlength=len(contexts)) / count
        for values in (strategy.task_ret, strategy.task_success)
    )
    return {"ret": _rounded(ret, decimals), "success": _rounded(success, 3)}


def _on_grid(contexts: np.ndarray, study: Study) -> list[int]:
    """Whole numbers, GRID = the width of the space; one after the other, d for each context."""
    if study.space is None:
        return []
    low, high = np.array(study.space["low"], float), np.array(study.space["high"], float)
    width = np.where(high > low, high - low, 1.0)
    return np.round((contexts - low) / width * GRID).astype(int).reshape(-1).tolist()


def _index(provenance: dict[str, Any], known: dict[str, int]) -> int:
    return known.setdefault(json.dumps(_plain(provenance), sort_keys=True), len(known))


def _plain(value: Any) -> Any:
    """JSON has no NaN."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _rounded(x: Any, decimals: int) -> Any:
    """Plain nested lists or a number, rounded; what is not finite is None."""
    if x is None or isinstance(x, int):
        return x
    array = np.round(np.asarray(x, float), decimals)
    values = np.array(array + 0.0, dtype=object)  # + 0.0: no minus zero
    values[~np.isfinite(array)] = None
    return values.tolist()
