"""The common case of a teacher: weights over the pool, and a draw from them.

A strategy that overrides nothing is IID. ProCuRL and SPDL change the weights in `observe`; strategies with
a state of their own (PLR, CURROT, GRADIENT) implement the three methods of `procurl.types.Teacher` directly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl.config import check_lower_bounds
from procurl.types import Critic, Episodes, Task, TaskSpace


class PoolState(NamedTuple):
    log_weights: Array  # f32[n]  unnormalised log-probabilities over the pool


@dataclass(frozen=True, eq=False)
class PoolTeacher:
    """Draws tasks from the pool by weight; the weights start uniform and stay so."""

    space: TaskSpace

    def __post_init__(self) -> None:
        check_lower_bounds(f"{type(self).__name__}: ", self)

    def init(self, key: Array) -> Any:
        return PoolState(jnp.zeros(self.space.n_pool))

    def propose(self, state: Any, key: Array, n: int) -> Task:
        k_row, k_seed = jax.random.split(key)
        return self.space.from_pool(k_seed, draw(k_row, cumulative(state.log_weights), n))

    def observe(self, state: Any, key: Array, episodes: Episodes, critic: Critic) -> Any:
        return state


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
