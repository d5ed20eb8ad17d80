"""ADR, automatic domain randomization (OpenAI et al. 2019): a box that grows where the student does well at its sides.

It begins as a small box around a start context. Half of the tasks lie on one of its sides; a side moves outwards when
the student does well on it, and inwards when it does badly. It knows nothing of a target distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from procurl.check.fields import check_fields, param
from procurl.check.numbers import real
from procurl.errors import ConfigError
from procurl.programs import pytree
from procurl.teachers.base import in_box
from procurl.teachers.quantities import require_quantities
from procurl.types import Critic, Episodes, Task, TaskSpace, random_seeds


class ADRState(NamedTuple):
    """In each array, first the lower sides, then the upper ones."""

    side: Array  # f32[2, d]  as shares of the space's box
    total: Array  # f32[2, d]  of the returns on a side since it was last judged
    n: Array  # i32[2, d]  how many those are


@pytree
@dataclass(frozen=True, eq=False)
class ADR:
    """Contexts drawn uniformly from a box; half of them have one component on one of its sides.

        mean performance on a side >= t_high: it moves by `step` outwards
        mean performance on a side <= t_low:  it moves by `step` inwards, not closer than one step to the start

    A side is judged once `buffer` episodes have ended on it, and then starts counting again. Performance is the return
    as a share of its range.
    """

    invents: ClassVar[bool] = True  # contexts that are not in the pool: see `base.OnPool`
    may_be_uniform: ClassVar[bool] = True  # once the box is the whole space
    space: TaskSpace
    start: tuple[float, ...] | None = param(None, "context to begin with; None: the middle of the space", static=True)
    boundary_share: float = param(0.5, "share of tasks on one of the sides", at_least=0, at_most=1)
    step: float = param(0.05, "by which a side moves, as a share of the space's width", at_least=1e-4, at_most=1)
    buffer: int = param(20, "episodes after which a side is judged", at_least=1)
    t_low: float = param(0.3, "a side with at most this mean performance moves inwards")
    t_high: float = param(0.6, "a side with at least this mean performance moves outwards")

    def __post_init__(self) -> None:
        check_fields("ADR: ", self, is_pytree=True)
        both = self.t_low, self.t_high
        if all(isinstance(t, int | float) for t in both) and not self.t_low < self.t_high:
            raise ConfigError(f"ADR: t_low = {self.t_low}, expected less than t_high = {self.t_high}")
        require_quantities("ADR", self.space)
        if self.start is not None and isinstance(self.space, TaskSpace):
            self._check_start()

    def _check_start(self) -> None:
        given = self.start.tolist() if isinstance(self.start, np.ndarray | jax.Array) else self.start
        if not isinstance(given, tuple | list) or len(given) != self.space.dim:
            raise ConfigError(f"ADR: start = {self.start!r}, expected a context, {self.space.dim} numbers")
        object.__setattr__(self, "start", tuple(real("ADR: start", x) for x in given))
        low, high = self.space.low, self.space.high
        if isinstance(low, jax.core.Tracer) or not isinstance(low, jax.Array | np.ndarray) or low.ndim != 1:
            return  # no values to look at
        start = np.array(self.start, np.float32)  # as the bounds are: the space's own edge lies inside
        if not bool(np.all((np.asarray(low) <= start) & (start <= np.asarray(high)))):
            raise ConfigError(f"ADR: start = {self.start}, expected a context inside the space")

    @property
    def _first(self) -> Array:
        """The smallest box, f32[2, d]."""
        dim = self.space.dim
        middle = (
            jnp.full(dim, 0.5, jnp.float32)
            if self.start is None
            else in_box(self.space, jnp.array(self.start, jnp.float32))
        )
        return jnp.clip(jnp.stack([middle - self.step, middle + self.step]), 0.0, 1.0)

    def init(self, key: Array) -> ADRState:
        shape = 2, self.space.dim
        return ADRState(self._first, jnp.zeros(shape), jnp.zeros(shape, jnp.int32))

    def propose(self, state: ADRState, key: Array, n: int) -> Task:
        k_place, k_boundary, k_upper, k_dim, k_seed = jax.random.split(key, 5)
        low, high = state.side
        share = low + jax.random.uniform(k_place, (n, self.space.dim)) * (high - low)
        is_upper = jax.random.bernoulli(k_upper, 0.5, (n, 1))
        dim = jax.random.randint(k_dim, (n, 1), 0, self.space.dim)
        is_boundary = jax.random.uniform(k_boundary, (n, 1)) < self.boundary_share
        on_side = is_boundary & (dim == jnp.arange(self.space.dim))
        share = jnp.where(on_side, jnp.where(is_upper, high, low), share)
        return Task(self._playable(share), random_seeds(k_seed, (n,)), jnp.full(n, -1, jnp.int32))

    def observe(self, state: ADRState, key: Array, episodes: Episodes, critic: Critic) -> ADRState:
        counts = self._on_side(state.side, episodes.task.context) & episodes.finished  # bool[2, d, episodes]
        v_min, v_max = self.space.known_range
        ret = jnp.clip(jnp.nan_to_num(episodes.ret, nan=v_min), v_min, v_max)  # in units of return: the range may grow
        total = state.total + jnp.sum(jnp.where(counts, ret, 0.0), axis=-1)
        n = state.n + jnp.sum(counts, axis=-1, dtype=jnp.int32)
        performance = (total / jnp.maximum(n, 1) - v_min) / (v_max - v_min)
        is_due = n >= self.buffer
        outwards = jnp.where(performance >= self.t_high, 1.0, jnp.where(performance <= self.t_low, -1.0, 0.0))
        moved = state.side + jnp.where(is_due, outwards, 0.0) * self.step * jnp.array([[-1.0], [1.0]])
        first = self._first
        side = jnp.stack([jnp.clip(moved[0], 0.0, first[0]), jnp.clip(moved[1], first[1], 1.0)])
        is_lost = jnp.any(episodes.finished & ~jnp.all(jnp.isfinite(episodes.task.context), axis=1))
        return ADRState(
            jnp.where(is_lost, jnp.nan, side),  # a context that is not finite stops the seed
            jnp.where(is_due, 0.0, total),
            jnp.where(is_due, 0, n),
        )

    def _on_side(self, side: Array, context: Array) -> Array:
        """Which contexts, f32[m, d], lie within half a step of which sides, or beyond them, bool[2, d, m].

        Episodes do not say which side they were meant for. Where contexts move to a discrete set, so do the sides.
        """
        share = in_box(self.space, context)
        if self.space.snap is None:
            low, high = jnp.broadcast_to(side[:, None], (2, *share.shape))
        else:

            def moved(bound: Array, k: Array) -> Array:  # f32[m]  of dimension k, all else being as it was
                return in_box(self.space, self._playable(share.at[:, k].set(bound[k])))[:, k]

            dims = jnp.arange(self.space.dim)
            low, high = (jax.vmap(moved, (None, 0), 1)(bound, dims) for bound in side)
        slack = 0.5 * self.step
        return jnp.stack([(share <= low + slack).T, (share >= high - slack).T])

    def _playable(self, share: Array) -> Array:
        return self.space.project(self.space.low + share * (self.space.high - self.space.low))
