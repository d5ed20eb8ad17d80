"""Uniform draws among what is free, without rejections: a number below the count, then the item with that number.

`chance` is always a random number uniform in [0, 1).
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array


def below(n: int | Array, chance: Array) -> Array:
    """One of 0 .. n - 1."""
    return jnp.floor(n * chance).astype(jnp.int32)


def random_bit(mask: Array, chance: Array) -> Array:
    """The place of one of the set bits of an i32, all of them below the sign bit."""
    return nth_bit(mask, below(jax.lax.population_count(mask), chance))


def nth_bit(mask: Array, n: Array) -> Array:
    """The place of set bit number n, by bisection on bit counts."""
    place = jnp.int32(0)
    for half in (16, 8, 4, 2, 1):
        lower = jax.lax.population_count(mask & (2**half - 1))
        higher = n >= lower
        n = jnp.where(higher, n - lower, n)
        mask = jnp.where(higher, mask >> half, mask)
        place = jnp.where(higher, place + half, place)
    return place


def nth_other(n: Array, taken: Sequence[Array]) -> Array:
    """Number n of the integers 0, 1, ... that are not taken."""
    m = n
    for _ in taken:  # each turn skips at least one more taken integer, or has arrived
        m = n + sum((t <= m).astype(jnp.int32) for t in taken)
    return m
