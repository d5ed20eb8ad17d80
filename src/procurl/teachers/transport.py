"""Optimal transport between two clouds of equally heavy points, for the teachers that move tasks about.

With as many points on either side an optimal plan is an assignment, and SciPy finds it exactly. SciPy's method
(shortest augmenting paths) is slow when many rows want the same column, as they do when a cloud is still far from
its target; it is fast when the columns come with sensible prices. `prices` finds such prices with a few rounds of
Sinkhorn's algorithm: they change how long the search takes, and never what it finds.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir
from scipy.optimize import linear_sum_assignment

ROUNDS, COOLING = 16, 0.7  # of Sinkhorn's algorithm: more would take longer than they save


def assign(cost: Array) -> Array:
    """The column of each row at minimum total cost, f32[..., n, m] -> i32[..., n], n <= m, no column twice.

    NaN and infinity mark pairs that are to be avoided; where that is impossible, as few as possible are used.
    All problems of a batch (seeds, under `vmap`) go to SciPy in one call.
    """
    n, m = cost.shape[-2:]
    if n > m:
        raise ValueError(f"assign: {n} rows and only {m} columns: expected at least one column for each row")
    return _assign_on_host.bind(cost, prices(cost))


def squared_distances(a: Array, b: Array) -> Array:
    """|a_i - b_j|^2, f32[n, d], f32[m, d] -> f32[n, m].

    By differences: |a|^2 + |b|^2 - 2ab loses the small distances. The sum over dimensions is written out, which
    lets the compiler vectorise over points.
    """
    squares = [(a[:, k, None] - b[None, :, k]) ** 2 for k in range(a.shape[1])]
    return sum(squares[1:], squares[0])


def prices(cost: Array) -> Array:
    """What each column is worth, nearly, f32[..., m]: the potentials of the entropic problem as it cools.

    Every row divides itself among the columns, cheap ones first (T is the temperature); then the columns that too
    many want become dearer, and those that nobody wants cheaper:

        P_ij = softmax_j((g_j - cost_ij) / T),    g_j <- g_j - T log sum_i P_ij

    One more row of no cost, as heavy as there are columns to spare, takes what stays free.
    """
    n, m = cost.shape[-2:]
    finite = jnp.isfinite(cost)
    number = jnp.maximum(jnp.sum(finite, (-2, -1)), 1)
    mean = jnp.sum(jnp.where(finite, cost, 0.0), (-2, -1)) / number
    deviation = jnp.where(finite, cost - mean[..., None, None], 0.0)
    spread = jnp.sqrt(jnp.sum(deviation**2, (-2, -1)) / number)  # f32[...]  0: nothing to choose, no round is played
    centred = jnp.where(finite, deviation, jnp.inf)
    usable = jnp.any(finite, -2)  # bool[..., m]
    spare = jnp.maximum(jnp.sum(usable, -1) - n, 0).astype(jnp.float32)[..., None]

    def play(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        t, g = carry
        temperature = (spread * COOLING**t)[..., None]
        logits = (g[..., None, :] - centred) / temperature[..., None]
        wish = jnp.exp(logits - jnp.max(logits, -1, keepdims=True))  # f32[..., n, m]
        per_row = 1.0 / jnp.sum(wish, -1)
        wanted = jnp.matmul(per_row[..., None, :], wish)[..., 0, :]
        wanted += spare * jax.nn.softmax(jnp.where(usable, g / temperature, -jnp.inf), -1)
        return t + 1, jnp.where(usable, g - temperature * jnp.log(jnp.maximum(wanted, 1e-30)), 0.0)

    def warm(carry: tuple[Array, Array]) -> Array:
        return (carry[0] < ROUNDS) & jnp.any(spread > 0)

    _, g = jax.lax.while_loop(warm, play, (jnp.int32(0), jnp.zeros((*cost.shape[:-2], m))))
    return jnp.where(jnp.isfinite(g), g, 0.0)


# The call to the host is a primitive of its own and not `jax.pure_callback`. That one first copies its arguments into
# JAX arrays, and for large arguments the copy waits for a thread that may itself be waiting in a callback: with two
# CPU devices on two cores it never returned. Here XLA hands NumPy arrays straight to the function.
_assign_on_host = Primitive("assign_on_host")


def _eagerly(cost: Array, prices: Array) -> Array:
    return jnp.asarray(_assign_all(np.asarray(cost), np.asarray(prices)))


def _shape(cost: Any, prices: Any) -> ShapedArray:
    return ShapedArray(cost.shape[:-1], jnp.int32)


def _all_in_one_call(arguments: Any, axes: Any) -> tuple[Array, int]:
    """Under `vmap`: one call with a further leading axis."""
    size = next(x.shape[axis] for x, axis in zip(arguments, axes, strict=True) if axis is not None)
    leading = [
        jnp.broadcast_to(x, (size, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)
        for x, axis in zip(arguments, axes, strict=True)
    ]
    return _assign_on_host.bind(*leading), 0


def _call_host(context: Any, *arguments: Any) -> Any:
    def call(cost: np.ndarray, prices: np.ndarray) -> tuple[np.ndarray]:
        return (_assign_all(cost, prices),)

    return mlir.emit_python_callback(
        context, call, None, list(arguments), context.avals_in, context.avals_out,
        has_side_effect=False, returns_token=False,
    )[0]  # fmt: skip


_assign_on_host.def_impl(_eagerly)
_assign_on_host.def_abstract_eval(_shape)
batching.primitive_batchers[_assign_on_host] = _all_in_one_call
mlir.register_lowering(_assign_on_host, _call_host)


def _assign_all(cost: np.ndarray, prices: np.ndarray) -> np.ndarray:
    """On the host, NumPy only. One problem after another: SciPy holds Python's lock, so threads would only queue."""
    n, m = cost.shape[-2:]
    problems = zip(cost.reshape(-1, n, m), prices.reshape(-1, m), strict=True)
    return np.array([_assign_one(c, g) for c, g in problems], np.int32).reshape(cost.shape[:-1])


def _assign_one(cost: np.ndarray, price: np.ndarray) -> np.ndarray:
    """The square problem with the prices taken off: the same solutions, and most of the search already done."""
    n = len(cost)
    if (cost == cost[0, 0]).all():  # nothing to choose
        return np.arange(n)
    finite = np.isfinite(cost)
    usable = np.flatnonzero(finite.any(axis=0))
    if len(usable) < n:
        usable = np.arange(cost.shape[1])
    cost, finite = cost[:, usable].astype(np.float64), finite[:, usable]
    if not finite.all():
        largest = np.abs(cost[finite]).max(initial=1.0)
        cost[~finite] = 3.0 * (n + 1) * largest  # dearer than all the other pairs together
    reduced = np.zeros((len(usable), len(usable)))  # the rows beyond n take the columns that stay free
    reduced[:n] = cost
    reduced -= price[usable]
    reduced -= reduced.min(axis=1, keepdims=True)
    reduced -= reduced.min(axis=0)
    owner, column = linear_sum_assignment(reduced.T)
    return usable[owner[np.argsort(column)[:n]]]
