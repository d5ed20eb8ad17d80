"""The points of a sweep as a table in colours: two fields a map, a map for every value of the others."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from procurl.bench.report.figures.canvas import panels, words
from procurl.bench.report.sweeps import MEASURES, score
from procurl.errors import ConfigError
from procurl.runs.sweep.sweep import Sweep


def sweep_maps(sweep: Sweep) -> Any:
    """The mean return over training and the final return of every point, with their 95 % intervals.

    Each of the two has colours of its own, from the lowest point to the highest.
    """
    if not sweep.results:
        raise ConfigError("a sweep without results: expected at least one point that has ended")
    *others, across = sweep.over
    down = others.pop() if others else None
    rows = sweep.over[down] if down else [None]
    fixed = [dict(zip(others, values, strict=True)) for values in itertools.product(*(sweep.over[o] for o in others))]
    size = {"width": 1.6 + 1.15 * len(sweep.over[across]), "height": 1.5 + 0.62 * len(rows)}
    figure, grid = panels(len(MEASURES) * len(fixed), columns=len(MEASURES), beside=0.0, **size)
    scores = {measure: [score(result, measure) for result in sweep.results] for measure in MEASURES}
    for axes, (values, measure) in zip(grid.flat, itertools.product(fixed, MEASURES), strict=False):
        known = [s.mean for s in scores[measure] if np.isfinite(s.mean)] or [0.0]
        low, high = min(known), max(max(known), min(known) + 1e-6)
        cells = np.full((len(rows), len(sweep.over[across])), np.nan)
        for point, s in zip(sweep.points, scores[measure], strict=True):
            if values.items() <= point.items():
                j = rows.index(point[down]) if down else 0
                i = sweep.over[across].index(point[across])
                cells[j, i] = s.mean
                interval = f"\n{s.low:.2f} to {s.high:.2f}" if np.isfinite(s.low) else ""
                axes.text(
                    i + 0.5, j + 0.5, f"{s.mean:.3f}{interval}", ha="center", va="center", fontsize=8,
                    color="white" if s.mean < 0.4 * low + 0.6 * high else "black",
                )  # fmt: skip
        axes.pcolormesh(cells, cmap="viridis", vmin=low, vmax=high)
        axes.set_xticks(np.arange(cells.shape[1]) + 0.5, [_shown(v) for v in sweep.over[across]])
        axes.set_yticks(np.arange(cells.shape[0]) + 0.5, [_shown(v) for v in rows] if down else [""])
        axes.set_xlabel(words(across))
        axes.set_ylabel(words(down or ""))
        where = "".join(f", {name} = {_shown(value)}" for name, value in values.items())
        axes.set_title(f"{MEASURES[measure]}{where}", fontsize=9)
    return figure


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
