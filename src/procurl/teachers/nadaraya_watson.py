"""CURROT's estimate of the student's return: a local mean of the returns seen nearby (Nadaraya and Watson).

    V(c) = sum_i w_i R_i / sum_i w_i,    w_i = exp(-|c - c_i|^2 / 2h^2) for |c - c_i| <= 3h

With no pair in reach, V(c) is the plain mean of the ten nearest. Until the first return that is not 0 (on Point Mass:
until the first success), V is 0 everywhere, and nothing is computed.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl.teachers.base import computed_where, once_if
from procurl.teachers.success_buffer import Pairs
from procurl.teachers.transport import squared_distances

NEAREST = 10  # pairs that count where none is in reach
CONSULTED = 64  # pairs that a particle looks at, at most
FINE, COARSE = 16, 10  # halvings of the interval in which the tenth nearest is sought: from scratch, from good bounds
LONELY_BLOCK = 64  # places without a pair in reach that are looked after at a time, on a CPU
PIECE = 32  # entries of a row, among which the chosen ones are counted


class Within(NamedTuple):
    """Bounds on the squared distance to the tenth nearest pair."""

    low: Array
    high: Array


def estimate(pairs: list[Pairs], context: Array, h: Array | float) -> Array:
    """V at each of n contexts, f32[n, d] -> f32[n]."""
    known, ret, valid = _together(pairs)

    def values(_: Array, context: Array, known: Array, ret: Array) -> Array:
        square = jnp.where(valid, squared_distances(context, known), jnp.inf)
        return local_mean(square, ret, h, Within(jnp.float32(0.0), jnp.max(jnp.where(valid, square, 0.0))), FINE)

    return once_if(jnp.any(ret != 0), values, jnp.zeros(context.shape[0]), context, known, ret)


class Neighbours(NamedTuple):
    """All pairs in random order: the first that matter to a particle are then a random choice of them."""

    context: Array  # f32[m, d]
    ret: Array  # f32[m]
    valid: Array  # bool[m]


def in_random_order(pairs: list[Pairs], key: Array) -> Neighbours:
    context, ret, valid = _together(pairs)
    order = jax.random.permutation(key, context.shape[0])
    return Neighbours(*jax.lax.optimization_barrier((context[order], ret[order], valid[order])))


def estimate_around(known: Neighbours, centre: Array, places: Array, h: Array | float) -> Array:
    """V at c places around each of n centres, f32[n, d], f32[n, c, d] -> f32[n, c].

    The same as `estimate` wherever at most `CONSULTED` pairs can matter to a centre's places; where more can, a random
    choice of them is consulted (the authors, too, cap the number of pairs, by random choice).
    """
    rows, counts, tenth = consulted(centre, places, known.context, known.valid, h)
    there = known.context[rows]  # f32[n, k, d]
    squares = [(places[:, :, None, i] - there[:, None, :, i]) ** 2 for i in range(places.shape[-1])]
    square = jnp.where(counts[:, None], sum(squares[1:], squares[0]), jnp.inf)  # f32[n, c, k]
    tenth = Within(*(bound[:, None] for bound in tenth))  # the same for all places of a centre
    return local_mean(square, known.ret[rows], h, tenth, COARSE)


def consulted(
    centre: Array, places: Array, known: Array, valid: Array, h: Array | float
) -> tuple[Array, Array, Within]:
    """For each centre the pairs that can matter to its places, i32[n, k], and which of these entries count, bool[n, k].
    Also bounds, f32[n] each, on how far a place's own tenth nearest can be.

    A place is at most `reach` from its centre. Pairs within 3h of it lie within reach + 3h of the centre; its ten
    nearest lie within 2 reach + (the distance of the centre's own tenth). If there are more than k, the first k count.
    """
    m = known.shape[0]
    k = min(CONSULTED, m)
    reach = jnp.sqrt(jnp.max(jnp.sum((places - centre[:, None]) ** 2, axis=-1), axis=-1))  # f32[n]
    square = jnp.where(valid, squared_distances(centre, known), jnp.inf)
    largest = jnp.max(jnp.where(valid, square, 0.0))
    tenth = jnp.sqrt(_tenth_smallest(square, Within(jnp.float32(0.0), largest), FINE))
    radius = jnp.maximum(reach + 3 * h, 1.001 * (2 * reach + tenth))
    matters = jnp.isfinite(square) & (square <= radius[:, None] ** 2)
    so_far = _counted(matters)
    # As a loop: otherwise XLA would repeat the search for every number that depends on it.
    nth = jax.vmap(partial(jnp.searchsorted, v=jnp.arange(1, k + 1), method="scan"))
    rows = jnp.minimum(nth(so_far), m - 1).astype(jnp.int32)

    number = so_far[:, -1]
    some_left_out = number > k  # then the ten nearest of those that are left may be anywhere among them
    low = jnp.where(some_left_out, 0.0, jnp.maximum(0.999 * tenth - reach, 0.0))
    high = jnp.where(some_left_out, radius, 1.001 * tenth) + reach
    return rows, jnp.arange(k) < number[:, None], Within(low**2, high**2)


def local_mean(square: Array, ret: Array, h: Array | float, tenth_within: Within, halvings: int) -> Array:
    """The estimate from squared distances (infinite: does not count) and returns, f32[..., n, k], f32[..., k] ->
    f32[..., n].
    """
    weight = jnp.where(square <= 9 * h**2, jnp.exp(-square / (2 * h**2)), 0.0)
    total, weights = _row_sums(weight, ret), _row_sums(weight)
    lonely = weights == 0

    # What follows is done for lonely places alone, by their numbers among all of them.
    flat = square.reshape(lonely.size, -1)
    low, high = (jnp.broadcast_to(bound, lonely.shape).ravel() for bound in tenth_within)

    def mean_of_nearest(place: Array) -> Array:
        near = flat[place]  # f32[block, k]
        tenth = _tenth_smallest(near, Within(low[place], high[place]), halvings)
        nearest = ((near <= tenth[:, None]) & jnp.isfinite(near)).astype(jnp.float32)
        its_ret = ret.reshape(-1, ret.shape[-1])[place // lonely.shape[-1]]
        return _row_sums(nearest * its_ret) / jnp.maximum(_row_sums(nearest), 1.0)

    place = jnp.arange(lonely.size)
    block = LONELY_BLOCK if jax.default_backend() == "cpu" else lonely.size
    nearby = computed_where(lonely.ravel(), mean_of_nearest, (place,), jnp.zeros(lonely.size), block)
    return jnp.where(lonely, nearby.reshape(lonely.shape), total / jnp.where(lonely, 1.0, weights))


def _tenth_smallest(square: Array, within: Within, halvings: int) -> Array:
    """The radius around ten entries of each row, f32[..., n, k] -> f32[..., n]; infinite if there are fewer.

    By bisection on the count, which is far cheaper than sorting and takes equal entries together.
    """

    def halve(_: int, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) / 2
        enough = _row_sums((square <= middle[..., None]).astype(jnp.float32)) >= NEAREST
        return jnp.where(enough, low, middle), jnp.where(enough, middle, high)

    low, high = (jnp.broadcast_to(jnp.where(jnp.isfinite(x), x, 0.0), square.shape[:-1]) for x in within)
    high = jax.lax.fori_loop(0, halvings, halve, (low, high))[1]
    return jnp.where(_row_sums(jnp.isfinite(square).astype(jnp.float32)) >= NEAREST, high, jnp.inf)


def _counted(chosen: Array) -> Array:
    """How many of each row are chosen so far, bool[n, m] -> i32[n, m]: a `cumsum`; XLA's own is slow on a CPU.

    Within pieces of a row by a product, and then piece by piece; counts are exact in float32.
    """
    n, m = chosen.shape
    pieces = jnp.pad(chosen, ((0, 0), (0, -m % PIECE))).reshape(n, -1, PIECE).astype(jnp.float32)
    within = jnp.matmul(pieces, jnp.triu(jnp.ones((PIECE, PIECE))))
    whole = within[..., -1]
    before = jnp.cumsum(whole, axis=1) - whole
    return (within + before[..., None]).reshape(n, -1)[:, :m].astype(jnp.int32)


def _row_sums(x: Array, weight: Array | None = None) -> Array:
    """Sums over the last axis as a product with a vector: XLA's own reduction is slower on a CPU."""
    vector = jnp.ones(x.shape[-1]) if weight is None else weight
    return jnp.matmul(x, vector[..., None], precision=jax.lax.Precision.HIGHEST)[..., 0]


def _together(pairs: list[Pairs]) -> tuple[Array, Array, Array]:
    """Contexts f32[m, d], returns f32[m] and which count, bool[m]."""
    valid = jnp.concatenate([p.valid for p in pairs])
    ret = jnp.where(valid, jnp.concatenate([p.ret for p in pairs]), 0.0)
    return jnp.concatenate([p.context for p in pairs]), ret, valid
