"""What was taught, in a few numbers: is there a curriculum at all, and does it move towards the targets?

The numbers are the same for every loop. They are about tasks that were proposed, wherever these came from:

    effective share   exp(-KL(p || uniform over the pool)): 1 for uniform, 0.1 for uniform over a tenth of the pool. For
                      tasks of the pool it is exp(entropy) / (number of tasks). Invented tasks count as the nearest.
    target distance   mean distance to the nearest target, in shares of the box (1: as far as the box is wide)

Few draws from a large pool hit few tasks even if they are uniform, so the divergence is compared with that of as many
uniform draws.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.spatial
import scipy.stats
from numpy.typing import NDArray

from procurl.types import TaskSpace

REPEATS = 20  # uniform samples that a divergence is compared with


class Meter:
    """Numbers about tasks of one space."""

    def __init__(self, space: TaskSpace) -> None:
        self._low = np.asarray(space.low, np.float64)
        span = np.asarray(space.high, np.float64) - self._low
        self._span = np.where(span > 0, span, 1.0)
        self._has_labels = bool(space.labels)
        pool = self._in_box(space.pool.context)
        # Tasks with the same context (layouts of a level) count as one: which of them is played says nothing here.
        places, self._place_of_row = np.unique(pool, axis=0, return_inverse=True)
        self._place_of_row = self._place_of_row.reshape(-1)
        self._pool, self._places = pool, scipy.spatial.cKDTree(places)
        self.share = np.bincount(self._place_of_row) / len(pool)  # f64[places]  of the pool
        self._targets = scipy.spatial.cKDTree(np.unique(self._in_box(space.targets.context), axis=0))
        self._by_chance = lru_cache(maxsize=64)(self._divergence_by_chance)

    def summary(self, context: Any, row: Any) -> dict[str, float]:
        return {
            "effective_share": self.effective_share(context, row),
            "target_distance": self.target_distance(context),
        }

    def over_time(self, context: NDArray[Any], row: NDArray[Any], block: int) -> dict[str, NDArray[np.float32]]:
        """For tasks f32[S, I, k, d] and i32[S, I, k]: f32[S, I] each, over blocks of so many iterations."""
        n_seeds, n_iterations = row.shape[:2]
        both = {k: np.full((n_seeds, n_iterations), np.nan, np.float32) for k in ("effective_share", "box_distance")}
        for s in range(n_seeds):
            for first in range(0, n_iterations, block):
                here = np.s_[s, first : first + block]
                share, distance = self.summary(context[here], row[here]).values()
                both["effective_share"][here], both["box_distance"][here] = share, distance
        return both

    def effective_share(self, context: Any, row: Any = None) -> float:
        """Of n tasks, f32[n, d] and i32[n] (-1, or left out: invented); NaN for none."""
        places = self._places_of(context, row)
        if not len(places):
            return math.nan
        return min(math.exp(self._by_chance(len(places)) - self._divergence(places)), 1.0)

    def target_distance(self, context: Any) -> float:
        """Of n tasks, f32[n, d]; NaN for none. Where tasks are mere labels: the share that are not targets."""
        there = self._in_box(context)
        if not len(there):
            return math.nan
        distance, _ = self._targets.query(there)
        return float(np.mean(distance > 1e-6 if self._has_labels else distance))

    def chance_of_uniform(self, context: Any, row: Any = None) -> float:
        """How likely n uniform tasks are, at most, to be as uneven as these: a p-value.

        The smallest of the p-values of the Kolmogorov-Smirnov test in each dimension and, where tasks are few, of the
        chi-squared test over them, times the number of tests (Bonferroni).
        """
        there = self._in_box(context)
        n, d = there.shape
        if n < 2:
            return 1.0
        p = [scipy.stats.ks_2samp(there[:, k], self._pool[:, k], method="asymp").pvalue for k in range(d)]
        if (n * self.share).min() >= 5:
            counts = np.bincount(self._places_of(context, row), minlength=len(self.share))
            p.append(scipy.stats.chisquare(counts, n * self.share).pvalue)
        return float(min(np.nanmin([1.0, *p]) * len(p), 1.0))

    def weights(self, context: Any, row: Any) -> NDArray[np.float64]:
        """The share of tasks at each row of the pool, f64[rows]; tasks of one context share theirs."""
        counts = np.bincount(self._places_of(context, row), minlength=len(self.share))
        return (counts / max(counts.sum(), 1) / (self.share * len(self._pool)))[self._place_of_row]

    def _places_of(self, context: Any, row: Any) -> NDArray[np.int64]:
        there = self._in_box(context)
        if not len(there):
            return np.empty(0, np.int64)
        rows = np.full(len(there), -1) if row is None else np.asarray(row).reshape(-1)[_is_there(context)]
        elsewhere = (rows < 0) | (rows >= len(self._place_of_row))
        places = self._place_of_row[np.where(elsewhere, 0, rows)].astype(np.int64)
        if elsewhere.any():
            places[elsewhere] = self._places.query(there[elsewhere])[1]
        return places

    def _divergence(self, places: NDArray[Any]) -> float:
        counts = np.bincount(places, minlength=len(self.share))
        played = counts > 0
        p = counts[played] / len(places)
        return float(np.sum(p * np.log(p / self.share[played])))

    def _divergence_by_chance(self, n: int) -> float:
        rng = np.random.default_rng(n)
        samples = (rng.choice(len(self._place_of_row), n) for _ in range(REPEATS))
        return float(np.mean([self._divergence(self._place_of_row[rows]) for rows in samples]))

    def _in_box(self, context: Any) -> NDArray[np.float64]:
        there = np.asarray(context, np.float64).reshape(-1, len(self._low))
        return (there[_is_there(context)] - self._low) / self._span


def _is_there(context: Any) -> NDArray[np.bool_]:
    """Which contexts, f32[..., d], are tasks; a record is padded with NaN. bool[n]"""
    return np.isfinite(np.asarray(context)[..., 0]).reshape(-1)
