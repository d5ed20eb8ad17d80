"""CURROT's memory: the contexts in which the student did well, and those in which it did not.

The success buffer first collects the better half of what it sees; once its median is good enough, it only takes
successes, and once it is full of them, it keeps those that match the target distribution best.
All arrays have a fixed length, of which the first `size` entries count.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl.check.numbers import LARGEST
from procurl.teachers.base import draw, once_if
from procurl.teachers.transport import assign, squared_distances
from procurl.types import Episodes

Scalar = float | Array


class Pairs(NamedTuple):
    """Contexts and the returns that the student earned there."""

    context: Array  # f32[k, d]
    ret: Array  # f32[k]  finite where it counts, -inf beyond
    size: Array  # i32

    @property
    def valid(self) -> Array:
        return jnp.arange(self.ret.shape[0]) < self.size


def no_pairs(k: int, d: int) -> Pairs:
    return Pairs(jnp.zeros((k, d)), jnp.full(k, -jnp.inf, jnp.float32), jnp.int32(0))


def latest(episodes: Episodes, k: int, v_min: float) -> Pairs:
    """The last k finished episodes, oldest first. A return that is not finite counts as `v_min`.

    Returns are clipped to what can be subtracted and summed in 32 bits; an infinite difference would lose its particle.
    """
    finished = episodes.finished
    skipped = jnp.maximum(jnp.sum(finished) - k, 0)
    place = jnp.cumsum(finished) - 1 - skipped
    place = jnp.where(finished & (place >= 0), place, k)  # k: outside, dropped
    rows = jnp.zeros(k, jnp.int32).at[place].set(jnp.arange(finished.shape[0], dtype=jnp.int32), mode="drop")
    size = (jnp.sum(finished) - skipped).astype(jnp.int32)
    ret = jnp.where(jnp.isfinite(episodes.ret), jnp.clip(episodes.ret, -LARGEST, LARGEST), v_min)[rows]
    return Pairs(episodes.task.context[rows], jnp.where(jnp.arange(k) < size, ret, -jnp.inf), size)


def absorb(old: Pairs, new: Pairs, delta_reached: Array, delta: Scalar, targets: Array) -> tuple[Pairs, Array, Array]:
    """The success buffer after a batch; whether its median has reached delta; which new pairs were not kept.

    Args:
        old: the buffer, best first while `delta_reached` is False.
        new: fewer pairs than the buffer can hold.
        delta_reached: of the buffer, before the batch.
        delta: the return that counts as success.
        targets: as many fresh samples of the target distribution as the buffer can hold, f32[n, d].
    """
    n, k = old.ret.shape[0], new.ret.shape[0]
    merged = Pairs(jnp.concatenate([new.context, old.context]), jnp.concatenate([new.ret, old.ret]), old.size)
    (rows_a, size_a, reached), (rows_b, size_b) = better_half(old, new, delta), successes(old, new, delta, targets)
    rows, size = jnp.where(delta_reached, rows_b, rows_a), jnp.where(delta_reached, size_b, size_a)

    counts = jnp.arange(n) < size
    buffer = Pairs(merged.context[rows], jnp.where(counts, merged.ret[rows], -jnp.inf), size)
    kept = jnp.zeros(k, bool).at[jnp.where(counts, rows, k)].set(True, mode="drop")  # rows from k on are old ones
    return buffer, delta_reached | reached, new.valid & ~kept


def better_half(old: Pairs, new: Pairs, delta: Scalar) -> tuple[Array, Array, Array]:
    """Before delta is reached: new pairs as good as the median push out the worst old ones.

    Rows of (new, old), best first, how many of them count, and whether the old median was above delta. An empty
    buffer behaves like one entry of return -infinity.
    """
    n = old.ret.shape[0]
    m = old.size // 2
    median = old.ret[old.size - 1 - m]  # place m from the worst; beyond the end, where the buffer is empty: -inf
    accepted = new.valid & (new.ret >= median)
    dropped = jnp.minimum(jnp.sum(accepted), m + 1)
    survives = jnp.arange(n) < old.size - dropped
    score = jnp.where(jnp.concatenate([accepted, survives]), jnp.concatenate([new.ret, old.ret]), -jnp.inf)
    size = jnp.minimum(jnp.sum(accepted) + jnp.sum(survives), n).astype(jnp.int32)
    return jnp.argsort(-score)[:n], size, median > delta


def successes(old: Pairs, new: Pairs, delta: Scalar, targets: Array) -> tuple[Array, Array]:
    """After delta is reached: successes replace failures, and then those far from the target distribution.

    Rows of (new, old) and how many of them count.
    """
    n = old.ret.shape[0]
    accepted = new.valid & (new.ret >= delta)
    n_accepted = jnp.sum(accepted)
    below = jnp.sum(old.valid & (old.ret < delta))

    rank = jnp.argsort(jnp.argsort(jnp.where(old.valid, old.ret, jnp.inf)))
    stays = jnp.concatenate([accepted, old.valid & (rank >= jnp.minimum(n_accepted, below))])
    replaced = jnp.argsort(~stays)[:n]  # new pairs first, then the survivors
    size = jnp.minimum(jnp.sum(stays), n).astype(jnp.int32)

    full_of_successes = (old.size == n) & (below == 0) & (n_accepted > 0)
    context, counts = jnp.concatenate([new.context, old.context]), jnp.concatenate([accepted, old.valid])

    def nearest(_: Array, targets: Array, context: Array, counts: Array) -> Array:
        cost = jnp.where(counts, squared_distances(targets, context), jnp.inf)
        # If one seed of a program asks for this, all of them compute it: the others get a problem of equal costs.
        return assign(jnp.where(full_of_successes, cost, 0.0))

    rows = once_if(full_of_successes, nearest, replaced.astype(jnp.int32), targets, context, counts)
    return rows, jnp.where(full_of_successes, n, size)


def remember(old: Pairs, new: Pairs, chosen: Array) -> Pairs:
    """First in, first out: the chosen new pairs go in front, the oldest fall off the end."""
    n = old.ret.shape[0]
    valid = jnp.concatenate([chosen, old.valid])
    rows = jnp.argsort(~valid)[:n]
    size = jnp.minimum(jnp.sum(valid), n).astype(jnp.int32)
    counts = jnp.arange(n) < size
    context = jnp.where(counts[:, None], jnp.concatenate([new.context, old.context])[rows], 0.0)
    ret = jnp.where(counts, jnp.concatenate([new.ret, old.ret])[rows], -jnp.inf)
    return Pairs(context, ret, size)


def search_samples(
    key: Array,
    buffer: Pairs,
    delta_reached: Array,
    delta: Scalar,
    epsilon: Scalar,
    r_min: Array,
    box: tuple[Array, Array],
) -> Array:
    """n contexts around the successes, f32[n, d]: the further a return is below delta, the wider the search.

        std_i = 0.005 epsilon + clip(delta - R_i, 0) / (delta - R_min) (high - low) / 4

    Before delta is reached, entries of the better half are drawn by how much they exceed the worse half; afterwards
    every entry is used once, and some again until there are n.
    """
    n, d = buffer.context.shape
    low, high = box
    k_row, k_again, k_noise = jax.random.split(key, 3)

    place = jnp.arange(n)
    m = buffer.size // 2
    worse = buffer.ret[jnp.clip(buffer.size - m, 0, jnp.maximum(buffer.size - 1, 0))]  # the best of the worse half
    gain = jnp.where(place < buffer.size - m, buffer.ret - worse, 0.0)
    gain = jnp.where(jnp.any(gain > 0), gain, (place < buffer.size - m).astype(jnp.float32))
    better = draw(k_row, jnp.cumsum(gain), n)
    again = jax.random.randint(k_again, (n,), 0, jnp.maximum(buffer.size, 1))
    rows = jnp.where(delta_reached, jnp.where(place < buffer.size, place, again), better)

    lack = jnp.clip((delta - buffer.ret[rows]) / jnp.maximum(delta - r_min, 1e-6), 0.0, 1.0)
    std = 0.005 * epsilon + lack[:, None] * (high - low) / 4
    tries = buffer.context[rows] + std * jax.random.normal(k_noise, (11, n, d))  # the first try and ten more
    inside = jnp.all((tries >= low) & (tries <= high), axis=-1)
    first = jnp.argmax(inside, axis=0)  # 0 if none is: then the first is clipped
    return jnp.clip(jnp.take_along_axis(tries, first[None, :, None], axis=0)[0], low, high)
