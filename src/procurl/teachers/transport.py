"""Optimal transport between two samples: an assignment on squared distances, solved by SciPy on the host."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental.buffer_callback import buffer_callback
from scipy.optimize import linear_sum_assignment


def assign(cost: Array) -> Array:
    """The column of each row in the cheapest assignment, f32[..., n, m] with n <= m -> i32[..., n].

    One call to the host for all seeds: under `vmap` the callback sees the whole batch.

    On a CPU, `pure_callback` copies its operands back to the device before Python sees them, on the very threads
    that wait for the callback: with a megabyte of costs on each of two devices and two cores it never returns
    (jax-ml/jax#24255). `buffer_callback` hands out the buffers as they are, but on a CPU only.
    """
    shape = jax.ShapeDtypeStruct(cost.shape[:-1], jnp.int32)

    def on_cpu(cost: Array) -> Array:
        return buffer_callback(_fill, shape, vmap_method="broadcast_all")(cost)

    def elsewhere(cost: Array) -> Array:
        return jax.pure_callback(_assign, shape, cost, vmap_method="broadcast_all")

    return jax.lax.platform_dependent(cost, cpu=on_cpu, default=elsewhere)


def squared_distances(a: Array, b: Array) -> Array:
    """|a_i - b_j|^2, f32[n, d], f32[m, d] -> f32[n, m]; by differences, which keeps small distances exact."""
    squares = [(a[:, k, None] - b[None, :, k]) ** 2 for k in range(a.shape[1])]
    return sum(squares[1:], squares[0])


def _fill(context: Any, columns: Any, cost: Any) -> None:
    np.asarray(columns)[...] = _assign(cost)


def _assign(cost: Any) -> np.ndarray:
    costs = np.asarray(cost)  # NumPy in and out, no JAX inside
    columns = np.empty(costs.shape[:-1], np.int32)
    for batch in np.ndindex(costs.shape[:-2]):
        columns[batch] = linear_sum_assignment(costs[batch])[1]
    return columns
