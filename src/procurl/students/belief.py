"""A critic is believed as far as it predicts returns.

Teachers read a value as a share of the range of returns, but a critic speaks of discounted rewards, and while it has
learnt little it may say anything. So where that range is learnt (`value_range=None`), the line that leads from the
critic's values to returns is learnt, too, by least squares over the latest episodes:

    E[R | V] = mean R + slope (V - mean V),    slope = cov(V, R) / var V * max(0, 1 - 4 / (n r^2)) if r > 0, else 0

The last factor discounts what chance alone would bring: the correlation r of n unrelated pairs is seldom above
2 / sqrt(n). A critic whose word says nothing about returns gets the slope 0. All tasks are then alike to the teacher,
which is told nothing wrong, and a curriculum that comes to nothing says so (`runs/idle.py`).
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from procurl.types import Episodes, Task, Values

COMPARED = 64  # of the latest episodes: it was another critic that spoke of earlier ones
ENOUGH = 16  # below that, the critic is taken at its word
BY_CHANCE = 4.0  # n r^2 of unrelated pairs is seldom more


class Belief(NamedTuple):
    """What the critic said of the latest episodes when they began, and what came of them; in a ring."""

    value: Array  # f32[COMPARED]
    ret: Array  # f32[COMPARED]
    recorded: Array  # i32[]

    @property
    def line(self) -> tuple[Array, Array]:
        """(slope, offset)."""
        n = jnp.minimum(self.recorded, COMPARED)
        counts = jnp.arange(COMPARED) < n

        def mean(x: Array) -> Array:
            return jnp.sum(jnp.where(counts, x, 0.0)) / jnp.maximum(n, 1)

        value, ret = (_scaled(jnp.where(counts, x - mean(x), 0.0)) for x in (self.value, self.ret))
        covariance, variance = mean(value.x * ret.x), jnp.maximum(mean(value.x**2), 1e-12)
        evidence = n * covariance**2 / (variance * jnp.maximum(mean(ret.x**2), 1e-12))  # n r^2
        by_chance = BY_CHANCE / jnp.maximum(evidence, BY_CHANCE)
        slope = jnp.maximum(covariance, 0.0) / variance * (1 - by_chance) * ret.unit / value.unit
        slope = jnp.where(n < ENOUGH, 1.0, slope)
        return slope, jnp.where(n < ENOUGH, 0.0, mean(self.ret) - slope * mean(self.value))


class Scaled(NamedTuple):
    x: Array
    unit: Array


def _scaled(x: Array) -> Scaled:
    """Scaled to at most 1 in size, since squares of large numbers overflow; zeros stay zeros."""
    unit = jnp.max(jnp.abs(x))
    unit = jnp.where(unit > 0, unit, 1.0)
    return Scaled(x / unit, unit)


class Believed(NamedTuple):
    """A critic in units of return."""

    critic: Values
    belief: Belief

    def value(self, tasks: Task) -> Array:
        slope, offset = self.belief.line
        return offset + slope * self.critic.value(tasks)


def begin() -> Belief:
    return Belief(jnp.zeros(COMPARED), jnp.zeros(COMPARED), jnp.int32(0))


def compared(belief: Belief, value: Array, slot: Array, episodes: Episodes) -> Belief:
    """The belief with the episodes that began and ended in this iteration; `value` and `slot` [T, N]: of its steps."""
    before = jnp.concatenate([jnp.full_like(slot[:1], -1), slot[:-1]])
    n_slots = episodes.ret.shape[0]
    first = jnp.zeros(n_slots).at[jnp.where(slot != before, slot, n_slots)].set(value, mode="drop")  # f32[n + N]

    counts = episodes.started & episodes.finished & jnp.isfinite(episodes.ret) & jnp.isfinite(first)
    nth, n = jnp.cumsum(counts) - 1, jnp.sum(counts, dtype=jnp.int32)
    row = jnp.where(counts & (nth >= n - COMPARED), (belief.recorded + nth) % COMPARED, COMPARED)  # beyond: dropped
    return Belief(
        belief.value.at[row].set(first, mode="drop"),
        belief.ret.at[row].set(episodes.ret, mode="drop"),
        belief.recorded + n,
    )
