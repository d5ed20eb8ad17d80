"""Target distributions: the paper's mu, as small hashable objects with one method, `sample`.

A setting clips or snaps what is drawn here into its own task space, so these stay plain mathematics.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from procurl.types import Task, random_seeds


@dataclass(frozen=True)
class Point:
    """All mass on one context (the paper's PM-s:1T)."""

    context: tuple[float, ...]

    def sample(self, key: Array, n: int) -> Task:
        return _tasks(key, jnp.broadcast_to(jnp.array(self.context, jnp.float32), (n, len(self.context))))


@dataclass(frozen=True)
class Uniform:
    """Uniform in a box; equal bounds fix a dimension (the paper's SGR plane)."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    def sample(self, key: Array, n: int) -> Task:
        k_context, k_seed = jax.random.split(key)
        low, high = jnp.array(self.low, jnp.float32), jnp.array(self.high, jnp.float32)
        return _tasks(k_seed, jax.random.uniform(k_context, (n, len(self.low)), minval=low, maxval=high))


@dataclass(frozen=True)
class Mixture:
    """An equal mixture of axis-aligned modes; each dimension of a mode is normal or uniform.

    A mode is (low, high, std): the dimension is U[low, high] plus N(0, std^2) noise, so low = high gives
    a plain normal and std = 0 a plain uniform (the paper's PM-s:2G has both kinds).
    """

    low: tuple[tuple[float, ...], ...]  # modes x d
    high: tuple[tuple[float, ...], ...]
    std: tuple[tuple[float, ...], ...]

    def sample(self, key: Array, n: int) -> Task:
        k_mode, k_uniform, k_normal, k_seed = jax.random.split(key, 4)
        mode = jax.random.randint(k_mode, (n,), 0, len(self.low))
        low, high, std = (jnp.array(x, jnp.float32)[mode] for x in (self.low, self.high, self.std))
        centre = low + (high - low) * jax.random.uniform(k_uniform, low.shape)
        return _tasks(k_seed, centre + std * jax.random.normal(k_normal, low.shape))


def _tasks(key: Array, context: Array) -> Task:
    n = context.shape[0]
    return Task(context, random_seeds(key, (n,)), jnp.full((n,), -1, jnp.int32))
