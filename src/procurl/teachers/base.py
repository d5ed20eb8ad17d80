"""The common case of a teacher: weights over the pool, and a draw from them.

A strategy that overrides nothing is IID. ProCuRL and SPDL change the weights in `observe`; strategies with
a state of their own (PLR, CURROT, GRADIENT) implement the three methods of `procurl.types.Teacher` directly.
`Redrawn` gives a strategy over the pool a new pool from time to time; `OnPool` confines a strategy that invents
contexts to the tasks of the pool.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from procurl.check.fields import check_fields, param
from procurl.errors import ConfigError
from procurl.programs import pytree
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
    inner: Any  # the strategy's own state
    context: Array  # f32[n, d]  of the pool
    steps: Array  # i32  environment steps since it was drawn
    is_first: Array  # bool  it is still the space's own pool


@pytree
@dataclass(frozen=True, eq=False)
class Redrawn:
    """A strategy over a pool that is drawn anew, uniformly from the box, every so many environment steps.

    The strategy then starts again with the new pool, and observes at once: for ProCuRL, whose weights are a function
    of the values alone, nothing is lost.
    """

    invents: ClassVar[bool] = True  # the tasks of a later pool have no numbers
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


@pytree
@dataclass(frozen=True, eq=False)
class OnPool:
    """A strategy that invents contexts, held to a fixed list of tasks: the pool's nearest one is played instead.

    Distances are in shares of the box; of several tasks that are equally near (layouts of one family), any may be
    played. Every proposal is compared with the whole pool: meant for lists of levels, not for pools of a hundred
    thousand.
    """

    teacher: Any
    on_pool: bool = param(True, "play the pool's nearest task instead of a new one", static=True)

    def __post_init__(self) -> None:
        check_fields(f"{type(self.teacher).__name__}: ", self, is_pytree=True)

    @property
    def space(self) -> TaskSpace:
        return self.teacher.space

    def init(self, key: Array) -> Any:
        return self.teacher.init(key)

    def propose(self, state: Any, key: Array, n: int) -> Task:
        k_propose, k_row, k_seed = jax.random.split(key, 3)
        context = self.teacher.propose(state, k_propose, n).context
        keys = jax.random.split(k_row, n)
        rows = jax.lax.map(lambda args: self._nearest_row(*args), (context, keys), batch_size=min(n, 64))
        return self.space.from_pool(k_seed, jnp.where(jnp.all(jnp.isfinite(context), axis=1), rows, -1))

    def observe(self, state: Any, key: Array, episodes: Episodes, critic: Critic) -> Any:
        return self.teacher.observe(state, key, episodes, critic)

    def _nearest_row(self, context: Array, key: Array) -> Array:
        gap = in_box(self.space, self.space.pool.context) - in_box(self.space, context)
        square = jnp.sum(gap**2, axis=1)
        return jnp.argmax(jnp.where(square <= jnp.min(square), jax.random.uniform(key, square.shape), -1.0))


def says(teacher: Any, what: str) -> bool:
    """Whether a strategy, or the one inside it, declares that it `plays` or `withholds`: see SFL and Robust PLR."""
    return getattr(teacher, what, False) or (hasattr(teacher, "teacher") and says(teacher.teacher, what))


def in_box(space: TaskSpace, context: Array) -> Array:
    """Contexts as shares of the box, f32[..., d]."""
    span = space.high - space.low
    return (context - space.low) / jnp.where(span > 0, span, 1.0)


def level(space: TaskSpace, given: float | None, share: float) -> Any:
    """A return to compare with: the given one, or a share of the way from the smallest to the largest."""
    if given is not None:
        return given
    low, high = space.known_range
    return low + share * (high - low)


def wrapped(teacher: Any, redraw_every: int | None = None, on_pool: bool = False) -> Any:
    """The strategy as it is, or given a new pool every so many steps, or confined to its pool."""
    if redraw_every is not None:
        return Redrawn(teacher, redraw_every)
    return OnPool(teacher) if on_pool else teacher


def once_if(due: Array, update: Callable[..., State], state: State, *given: Any) -> State:
    """`update(state, *given)` if it is due. Unlike with `lax.cond`, nothing is computed under `vmap` where it is due
    for no seed.

    Pass as `given` what the update uses besides the state: XLA moves whatever depends on nothing in the loop out of the
    loop, and then it is always computed.
    """

    def step(carry: tuple[Array, State]) -> tuple[Array, State]:
        _, held = jax.lax.optimization_barrier((carry[0], given))
        return jnp.bool_(False), update(carry[1], *held)

    return jax.lax.while_loop(lambda carry: carry[0], step, (due, state))[1]


def computed_where(
    chosen: Array, found: Callable[..., Array], given: tuple[Array, ...], otherwise: Array, block: int
) -> Array:
    """`jnp.where(chosen, found(*given), otherwise)` for rows, bool[n], where only those of chosen rows are computed,
    a block at a time.
    """
    so_far = jnp.cumsum(chosen)

    def one_block(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        done, result = carry
        rows = jnp.searchsorted(so_far, done + jnp.arange(1, block + 1))  # beyond the last of them: no row, dropped
        return done + block, result.at[rows].set(found(*(x[rows] for x in given)), mode="drop")

    return jax.lax.while_loop(lambda carry: carry[0] < so_far[-1], one_block, (jnp.int32(0), otherwise))[1]


LARGE = 2**16  # rows; with more, float32 can hardly tell one cumulative probability from the next


def cumulative(log_weights: Array) -> Array:
    """Cumulative probabilities for `draw`, f32[n]; for a large pool f32[blocks, size], each block on its own."""
    probabilities = jax.nn.softmax(log_weights)
    n = probabilities.shape[0]
    if n <= LARGE:
        return jnp.cumsum(probabilities)
    size = math.isqrt(n - 1) + 1
    padding = -n % size
    return jnp.cumsum(jnp.pad(probabilities, (0, padding)).reshape(-1, size), axis=1)


def draw(key: Array, cdf: Array, n: int) -> Array:
    """n independent rows by inverse transform, i32[n]: one pass over the pool for the whole queue.

    Scaling by the last entry, and not by 1, keeps float32's rounding of the sum from ever choosing a row
    past the end; rows of probability 0 add nothing to the cdf and are never chosen.

    If the weights are not a distribution (NaN, a negative probability, all of them 0), all rows are -1:
    `TaskSpace.from_pool` turns these into NaN contexts, which stop the seed. The check is here because all teachers
    with weights draw here.
    """
    if cdf.ndim == 2:
        return _draw_from_blocks(key, cdf, n)
    u = jax.random.uniform(key, (n,)) * cdf[-1]
    rows = jnp.searchsorted(cdf, u, side="right")
    rows = jnp.minimum(rows, cdf.shape[0] - 1).astype(jnp.int32)
    return jnp.where(is_distribution(cdf), rows, -1)


def _draw_from_blocks(key: Array, cdf: Array, n: int) -> Array:
    """First a block, then a row of it by bisection: both sums are short, and so exact enough."""
    k_block, k_row = jax.random.split(key)
    size = cdf.shape[1]
    block = draw(k_block, jnp.cumsum(cdf[:, -1]), n)
    u = jax.random.uniform(k_row, (n,)) * cdf[block, -1]

    def halve(_: int, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) // 2
        is_later = cdf[block, middle] <= u
        return jnp.where(is_later, middle + 1, low), jnp.where(is_later, high, middle)

    start = jnp.zeros(n, jnp.int32), jnp.full(n, size - 1, jnp.int32)
    row, _ = jax.lax.fori_loop(0, size.bit_length(), halve, start)
    return jnp.where(block < 0, -1, block * size + row)


def is_distribution(cdf: Array) -> Array:
    """Whether cumulative weights, f32[n], rise from 0 or more to a finite sum above 0, up to rounding."""
    total = cdf[-1]
    rises = jnp.all(jnp.diff(cdf, prepend=0.0) >= -1e-5 * total)  # a comparison with NaN is False
    return (total > 0) & jnp.isfinite(total) & rises
