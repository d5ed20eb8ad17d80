"""The range of values, learnt from what is played: for spaces with `value_range=None`.

Strategies read a value as a share of the range of returns, and few people know that range beforehand. `Ranged` wraps a
strategy, watches the returns of the episodes, and hands the strategy a space with the range seen so far.

Only returns count: they are facts, while a critic that has learnt nothing yet may say anything. One absurd return must
not spoil the range for good, so an extreme counts only up to three times the width of the middle nine tenths beyond
them. The range never shrinks: a strategy's own records stay comparable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from procurl.programs import pytree
from procurl.types import Critic, Episodes, Task, TaskSpace, Teacher

RECENT = 1000  # episodes whose middle says what is absurd
BEYOND = 3.0  # widths of that middle


class Range(NamedTuple):
    low: Array  # f32  inf before the first episode
    high: Array  # f32  -inf before the first episode
    recent: Array  # f32[RECENT]  the latest returns, in a ring; inf where there was none yet
    next: Array  # i32  where the next one goes

    @property
    def ends(self) -> tuple[Array, Array]:
        """(V_min, V_max). While all returns are the same, that return counts as the worst."""
        some = self.low <= self.high
        low = jnp.where(some, self.low, 0.0)
        width = jnp.where(some, self.high - self.low, 0.0)
        size = jnp.where(low == 0, 1.0, jnp.abs(low))  # any width will do, as long as it has the returns' scale
        return low, low + jnp.where(width > 0, width, size)


class RangedState(NamedTuple):
    inner: Any  # the strategy's own
    range: Range


@pytree
@dataclass(frozen=True, eq=False)
class Ranged:
    """A strategy in a space whose range of values is learnt."""

    teacher: Any

    @property
    def space(self) -> TaskSpace:
        return self.teacher.space

    def init(self, key: Array) -> RangedState:
        nothing = Range(
            jnp.float32(jnp.inf), jnp.float32(-jnp.inf), jnp.full(RECENT, jnp.inf, jnp.float32), jnp.int32(0)
        )
        return RangedState(self.teacher.init(key), nothing)

    def propose(self, state: RangedState, key: Array, n: int) -> Task:
        return in_range(self.teacher, state.range.ends).propose(state.inner, key, n)

    def observe(self, state: RangedState, key: Array, episodes: Episodes, critic: Critic) -> RangedState:
        seen = widened(state.range, episodes)
        inner = in_range(self.teacher, seen.ends).observe(state.inner, key, episodes, critic)
        return RangedState(inner, seen)


def ranged(teacher: Teacher) -> Teacher:
    """The strategy itself, or with a learnt range if its space names none."""
    return teacher if teacher.space.value_range is not None else Ranged(teacher)


def widened(seen: Range, episodes: Episodes) -> Range:
    """The range with the episodes that ended in this iteration."""
    counts = episodes.finished & jnp.isfinite(episodes.ret)
    row = jnp.where(counts, (seen.next + jnp.cumsum(counts) - 1) % RECENT, RECENT)  # beyond the end: dropped
    recent = seen.recent.at[row].set(episodes.ret, mode="drop")
    ordered = jnp.sort(recent)
    n = jnp.sum(jnp.isfinite(recent))
    lower, upper = ordered[n // 20], ordered[jnp.maximum(n - 1 - n // 20, 0)]
    slack = jnp.where(upper > lower, BEYOND * (upper - lower), jnp.inf)
    low = jnp.maximum(jnp.min(jnp.where(counts, episodes.ret, jnp.inf)), lower - slack)
    high = jnp.minimum(jnp.max(jnp.where(counts, episodes.ret, -jnp.inf)), upper + slack)
    anything = jnp.any(counts)
    return Range(
        jnp.where(anything, jnp.minimum(seen.low, low), seen.low),
        jnp.where(anything, jnp.maximum(seen.high, high), seen.high),
        recent,
        (seen.next + jnp.sum(counts, dtype=jnp.int32)) % RECENT,
    )


def in_range(teacher: Any, ends: tuple[Any, Any]) -> Any:
    """The same strategy in a space with this range of values; one that wraps another passes it on."""
    inner = getattr(teacher, "teacher", None)
    if inner is not None:
        return replace(teacher, teacher=in_range(inner, ends))
    return replace(teacher, space=replace(teacher.space, value_range=ends))
