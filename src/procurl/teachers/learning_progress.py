"""Learning progress over a grid of cells (Kanitscheider et al. 2021): play where success rates change.

The box is cut into cells. Each has a fast and a slow moving average of how well its tasks are done; where the two
differ, the student learns or forgets. Both directions count, and changes of small rates more than those of large ones.
In a space of labels every label is a cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl.check.fields import param
from procurl.errors import ConfigError
from procurl.programs import pytree
from procurl.teachers.base import PoolTeacher, in_box
from procurl.teachers.quantities import require_quantities
from procurl.types import Critic, Episodes, TaskSpace

CELLS = 256  # in a grid, at most; except that every dimension is cut at least once
PER_DIMENSION = 16  # cells, at most
MOST_DIMENSIONS = 16


class ProgressState(NamedTuple):
    """Averages over g cells, of successes and of returns."""

    log_weights: Array  # f32[n]
    fast: Array  # f32[2, g]
    slow: Array  # f32[2, g]
    seen: Array  # bool[g]  an episode ended there
    any_success: Array  # bool  ever, anywhere


@pytree
@dataclass(frozen=True, eq=False)
class LearningProgress(PoolTeacher):
    """Cells are drawn by the change of their success rates, and all tasks of a cell are equally likely.

        fast <- a m + (1 - a) fast,   slow <- a fast + (1 - a) slow       m: an iteration's mean outcome in a cell
        f(p) = (1 - theta) p / (p + theta (1 - 2 p)),   LP = |f(fast) - f(slow)|
        P(cell) proportional to sigmoid((LP - mean) / std), over the cells with some progress or success

    Outcomes are successes or, as long as none has ever been seen, returns as shares of their range.
    """

    may_be_uniform: ClassVar[bool] = True  # while nothing changes
    alpha: float = param(0.1, "weight of an iteration in the averages", at_least=0, at_most=1)
    theta: float = param(0.1, "below 0.5: changes of small rates count more; between 0 and 1")
    random_share: float = param(0.2, "share of tasks drawn uniformly from the pool", at_least=0, at_most=1)
    per_dimension: int | None = param(
        None, "cells along a dimension; None: at most 16, and 256 in all", static=True, at_least=1, at_most=65_536
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.theta, int | float) and not 0 < self.theta < 1:
            raise ConfigError(
                f"LearningProgress: theta = {self.theta}, expected a number between 0 and 1, without them"
            )
        if not isinstance(self.space, TaskSpace):
            return  # JAX also builds instances with placeholders
        if not self.space.labels:
            require_quantities("LearningProgress", self.space)
        if self.n_cells > 2**MOST_DIMENSIONS:
            raise ConfigError(
                f"LearningProgress: {self._cut} cells along each of {self.space.dim} dimensions, expected at most "
                f"{2**MOST_DIMENSIONS:,} cells in all: give a smaller per_dimension"
            )

    @property
    def n_cells(self) -> int:
        return int(self._cut**self.space.dim)

    @property
    def _cut(self) -> int:
        """Cells along a dimension."""
        if self.space.labels:
            return len(self.space.labels)
        if self.per_dimension is not None:
            return self.per_dimension
        return max(2, *(k for k in range(1, PER_DIMENSION + 1) if k**self.space.dim <= CELLS))

    def init(self, key: Array) -> ProgressState:
        nothing = jnp.zeros((2, self.n_cells))
        never = jnp.zeros(self.n_cells, bool)
        return ProgressState(jnp.zeros(self.space.n_pool), nothing, nothing, never, jnp.bool_(False))

    def observe(self, state: ProgressState, key: Array, episodes: Episodes, critic: Critic) -> ProgressState:
        state = self._averaged(state, episodes)
        is_lost = jnp.any(episodes.finished & ~jnp.all(jnp.isfinite(episodes.task.context), axis=1))
        weights = jnp.where(is_lost, jnp.nan, self._probabilities(state))  # a context that is not finite stops the seed
        return state._replace(log_weights=jnp.log(weights))

    def cell(self, context: Array) -> Array:
        """The number of each context's cell, f32[..., d] -> i32[...]."""
        place = context - self.space.low + 0.5 if self.space.labels else in_box(self.space, context) * self._cut
        index = jnp.clip(jnp.floor(place), 0, self._cut - 1).astype(jnp.int32)
        return jnp.sum(index * self._cut ** jnp.arange(self.space.dim), axis=-1)

    def _averaged(self, state: ProgressState, episodes: Episodes) -> ProgressState:
        low, high = self.space.known_range
        ret = jnp.clip(jnp.nan_to_num(episodes.ret, nan=low), low, high)  # in units of return: the range may yet grow
        outcome = jnp.stack([episodes.success.astype(jnp.float32), ret])
        cell = jnp.where(episodes.finished, self.cell(episodes.task.context), self.n_cells)  # beyond the end: dropped
        n = jnp.zeros(self.n_cells).at[cell].add(1.0, mode="drop")
        total = jnp.zeros((2, self.n_cells)).at[:, cell].add(outcome, mode="drop")
        mean = total / jnp.maximum(n, 1.0)
        fast = jnp.where(state.seen, self.alpha * mean + (1 - self.alpha) * state.fast, mean)
        slow = jnp.where(state.seen, self.alpha * fast + (1 - self.alpha) * state.slow, mean)
        return state._replace(
            fast=jnp.where(n > 0, fast, state.fast),
            slow=jnp.where(n > 0, slow, state.slow),
            seen=state.seen | (n > 0),
            any_success=state.any_success | jnp.any(episodes.success & episodes.finished),
        )

    def _probabilities(self, state: ProgressState) -> Array:
        """The probability of each task in the pool, f32[n]."""
        n_pool, own = self.space.n_pool, self.cell(self.space.pool.context)
        n_tasks = jnp.zeros(self.n_cells).at[own].add(1.0)
        rate = self._rate(state, state.fast)
        progress = jnp.abs(self._reweighted(rate) - self._reweighted(self._rate(state, state.slow)))
        counts = state.seen & (n_tasks > 0) & ((progress > 0) | (rate > 0))
        n = jnp.maximum(jnp.sum(counts), 1)
        mean = jnp.sum(jnp.where(counts, progress, 0.0)) / n
        spread = jnp.sqrt(jnp.sum(jnp.where(counts, progress - mean, 0.0) ** 2) / n)
        chance = jnp.where(counts, jax.nn.sigmoid((progress - mean) / jnp.where(spread == 0, 1.0, spread)), 0.0)
        by_cell = chance / jnp.where(jnp.any(counts), jnp.sum(chance), 1.0) / jnp.maximum(n_tasks, 1.0)
        mixed = (1 - self.random_share) * by_cell[own] + self.random_share / n_pool
        return jnp.where(jnp.any(counts), mixed, 1.0 / n_pool)

    def _rate(self, state: ProgressState, average: Array) -> Array:
        low, high = self.space.known_range
        share = jnp.clip((average[1] - low) / (high - low), 0.0, 1.0)
        return jnp.where(state.any_success, average[0], share)

    def _reweighted(self, p: Array) -> Array:
        return (1 - self.theta) * p / (p + self.theta * (1 - 2 * p))
