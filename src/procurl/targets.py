"""Target distributions: the paper's mu, as small hashable objects with one method, `sample`.

A setting clips or snaps what is drawn here into its own task space, so these stay plain mathematics.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from procurl.types import TargetDistribution, Task, random_seeds


@dataclass(frozen=True)
class Point:
    """All mass on one context (the paper's PM-s:1T)."""

    context: tuple[float, ...]

    rounds_alike: ClassVar[bool] = True  # in one compiled program as step by step: see envs/box_space.py

    def sample(self, key: Array, n: int) -> Task:
        return _tasks(key, jnp.broadcast_to(jnp.array(self.context, jnp.float32), (n, len(self.context))))


@dataclass(frozen=True)
class Uniform:
    """Uniform in a box; equal bounds fix a dimension (the paper's SGR plane)."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    rounds_alike: ClassVar[bool] = True

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


class Samples:
    """Given contexts, f32[n, d], all equally likely. Two of the same contexts are equal."""

    def __init__(self, contexts: NDArray[np.float32]) -> None:
        self.contexts = np.array(contexts, np.float32)

    def sample(self, key: Array, n: int) -> Task:
        k_row, k_seed = jax.random.split(key)
        rows = jax.random.randint(k_row, (n,), 0, len(self.contexts))
        return _tasks(k_seed, jnp.asarray(self.contexts)[rows])

    @cached_property
    def _digest(self) -> str:
        return hashlib.sha256(self.contexts.tobytes()).hexdigest()[:16]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Samples) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        n, d = self.contexts.shape
        return f"Samples({n} contexts of {d} numbers, sha256 {self._digest})"


@dataclass(frozen=True)
class Blend:
    """A mixture of any target distributions."""

    parts: tuple[TargetDistribution, ...]
    weights: tuple[float, ...]  # they sum to 1

    def sample(self, key: Array, n: int) -> Task:
        k_part, *k_parts = jax.random.split(key, len(self.parts) + 1)
        part = jax.random.choice(k_part, len(self.parts), (n,), p=jnp.array(self.weights))
        drawn = [p.sample(k, n) for p, k in zip(self.parts, k_parts, strict=True)]
        return jax.tree.map(lambda *x: jnp.stack(x)[part, jnp.arange(n)], *drawn)


def _tasks(key: Array, context: Array) -> Task:
    n = context.shape[0]
    return Task(context, random_seeds(key, (n,)), jnp.full((n,), -1, jnp.int32))
