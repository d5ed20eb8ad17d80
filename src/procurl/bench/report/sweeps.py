"""What a sweep says: a table of its points with intervals, and the best of them in words."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from procurl.bench.report.tables import text_table
from procurl.bench.stats import area_under_curve, bootstrap_interval
from procurl.runs.store.result import Result
from procurl.runs.sweep.sweep import Sweep


class Score(NamedTuple):
    """A number of a point: its mean over the seeds that did not fail, and the 95 % interval of that mean."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        interval = f" [{self.low:.3f}, {self.high:.3f}]" if np.isfinite(self.low) else ""
        return f"{self.mean:.3f}{interval}"


MEASURES = {"area": "mean return over training", "final": "final return"}


def score(result: Result, measure: str) -> Score:
    """`measure`: a name of MEASURES. NaN if no seed is left."""
    ret = result.ret[~result.failed]
    if not len(ret):
        return Score(float("nan"), float("nan"), float("nan"))
    of_seeds = ret[:, -1] if measure == "final" else area_under_curve(result.steps, ret)
    low, high = bootstrap_interval(of_seeds)
    return Score(float(np.mean(of_seeds)), float(low), float(high))


def table(sweep: Sweep) -> str:
    """A row per point, in Markdown, with 95 % intervals."""
    rows = []
    for point, result in zip(sweep.points, sweep.results, strict=True):
        seeds = f"{(~result.failed).sum()} of {len(result.seeds)}" if result.failures else f"{len(result.seeds)}"
        scores = [str(score(result, measure)) for measure in MEASURES]
        rows.append([*(_shown(point[name]) for name in sweep.over), seeds, *scores])
    return text_table([*sweep.over, "seeds", *(f"{words}, 95 %" for words in MEASURES.values())], rows)


def best_in_words(sweep: Sweep) -> str:
    """Which point has the largest mean return over training, and which others may be as good."""
    scores = [score(result, "area") for result in sweep.results]
    ranked = sorted((k for k, s in enumerate(scores) if np.isfinite(s.mean)), key=lambda k: -scores[k].mean)
    if not ranked:
        return "No point has ended with a seed that did not fail."
    best, *others = ranked
    as_good = [k for k in others if not scores[k].high < scores[best].low]
    said = f"Largest mean return over training: {_values(sweep.points[best])} with {scores[best]}."
    if not np.isfinite(scores[best].low):
        return f"{said} One seed says nothing about chance."
    if not as_good:
        return f"{said} The intervals of all other points lie below."
    return f"{said} Not settled: the intervals of {len(as_good)} other points reach into its own."


def _values(point: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {_shown(value)}" for name, value in point.items())


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
