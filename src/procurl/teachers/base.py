"""The common case of a teacher: weights over the pool, and a draw from them.

A strategy that overrides nothing is IID. ProCuRL and SPDL change the weights in `observe`; strategies with
a state of their own (PLR, CURROT, GRADIENT) implement the three methods of `procurl.types.Teacher` directly.
`Redrawn` gives such a strategy a new pool from time to time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from procurl.config import check_fields, param
from procurl.errors import ConfigError
from procurl.types import Critic, Episodes, Task, TaskSpace

State = TypeVar("State")


class PoolState(NamedTuple):
    log_weights: Array  # f32[n]  unnormalised log-probabilities over the pool


@dataclass(frozen=True, eq=False)
class PoolTeacher:
    """Draws tasks from the pool by weight; the weights start uniform and stay so."""

    space: TaskSpace

    def __post_init__(self) -> None:
        check_fields(f"{type(self).__name__}: ", self, is_pytree=True)

    def init(self, key: Array) -> Any:
        return PoolState(jnp.zeros(self.space.n_pool))

    def propose(self, state: Any, key: Array, n: int) -> Task:
        k_row, k_seed = jax.random.split(key)
        return self.space.from_pool(k_seed, draw(k_row, cumulative(state.log_weights), n))

    def observe(self, state: Any, key: Array, episodes: Episodes, critic: Critic) -> Any:
        return state


class RedrawnState(NamedTuple):
    inner: Any  # the strategy's own
    context: Array  # f32[n, d]  of the pool
    steps: Array  # i32  environment steps since it was drawn
    is_first: Array  # bool  it is still the space's own pool


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Redrawn:
    """A strategy over a pool that is drawn anew, uniformly from the box, every so many environment steps.

    The strategy then begins again with the new pool, and watches at once: for ProCuRL, whose weights are a function of
    the values alone, nothing is lost.
    """

    teacher: Any
    redraw_every: int = param(2_000_000, "environment steps after which the pool is drawn anew", at_least=1)

    def __post_init__(self) -> None:
        check_fields(f"{type(self.teacher).__name__}: ", self, is_pytree=True)
        if isinstance(self.teacher, PoolTeacher) and self.teacher.space.snap is not None:
            raise ConfigError("redraw_every: this space's contexts are no box to draw from; leave it out")

    @property
    def space(self) -> TaskSpace:
        return self.teacher.space

    def init(self, key: Array) -> RedrawnState:
        return RedrawnState(self.teacher.init(key), self.space.pool.context, jnp.int32(0), jnp.bool_(True))

    def propose(self, state: RedrawnState, key: Array, n: int) -> Task:
        tasks = self._over(state.context).propose(state.inner, key, n)
        return tasks._replace(row=jnp.where(state.is_first, tasks.row, -1))

    def observe(self, state: RedrawnState, key: Array, episodes: Episodes, critic: Critic) -> RedrawnState:
        k_watch, k_pool, k_begin = jax.random.split(key, 3)
        state = state._replace(steps=state.steps + jnp.sum(episodes.steps, dtype=jnp.int32))
        state = once_if(state.steps >= self.redraw_every, lambda _: self._anew(k_pool, k_begin), state)
        return state._replace(inner=self._over(state.context).observe(state.inner, k_watch, episodes, critic))

    def _anew(self, k_pool: Array, k_begin: Array) -> RedrawnState:
        shape = self.space.pool.context.shape
        context = jax.random.uniform(k_pool, shape, minval=self.space.low, maxval=self.space.high)
        return RedrawnState(self._over(context).init(k_begin), context, jnp.int32(0), jnp.bool_(False))

    def _over(self, context: Array) -> Any:
        """The strategy with another pool."""
        pool = self.space.pool._replace(context=context)
        return replace(self.teacher, space=replace(self.space, pool=pool))


def redrawn(teacher: Any, every: int | None) -> Any:
    """The strategy itself, or with a new pool every so many steps."""
    return teacher if every is None else Redrawn(teacher, every)


def once_if(due: Array, update: Callable[[State], State], state: State) -> State:
    """`update(state)` if it is due. Unlike `lax.cond`, nothing is computed under `vmap` where it is due for no seed."""

    def step(carry: tuple[Array, State]) -> tuple[Array, State]:
        return jnp.bool_(False), update(carry[1])

    return jax.lax.while_loop(lambda carry: carry[0], step, (due, state))[1]


def cumulative(log_weights: Array) -> Array:
    """Cumulative probabilities, f32[n], for `draw`."""
    return jnp.cumsum(jax.nn.softmax(log_weights))


def draw(key: Array, cdf: Array, n: int) -> Array:
    """n independent rows by inverse transform, i32[n]: one pass over the pool for the whole queue.

    Scaling by the last entry, and not by 1, keeps float32's rounding of the sum from ever choosing a row
    past the end; rows of probability 0 add nothing to the cdf and are never chosen.
    """
    u = jax.random.uniform(key, (n,)) * cdf[-1]
    rows = jnp.searchsorted(cdf, u, side="right")
    return jnp.minimum(rows, cdf.shape[0] - 1).astype(jnp.int32)
