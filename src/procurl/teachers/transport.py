"""Optimal transport between two clouds of equally heavy points, for the teachers that move tasks about.

With equally many points on both sides, an optimal plan is an assignment. On a CPU, SciPy finds it exactly; elsewhere
`matching.py` does, without leaving the device. Both take long when many rows want the same column, as they do when a
cloud is still far from its target, and are fast when the columns come with sensible prices. `prices` finds such prices
with some rounds of Sinkhorn's algorithm, and `hurried_prices` does so for a CPU. Prices change how long the search
takes, and never what it finds.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental.buffer_callback import buffer_callback
from scipy.optimize import linear_sum_assignment

from procurl.errors import ConfigError
from procurl.teachers.matching import match
from procurl.teachers.quantities import require_quantities
from procurl.types import TaskSpace

NARROWEST, WIDEST = 1e-6, 1e15  # of the widest dimension of a space in which distances are measured
ROUNDS, COOLING = 150, 0.91  # of Sinkhorn's algorithm: a GPU runs many rounds faster than it searches
# On a CPU, more would take longer than they save.
TEMPERATURES, HURRIED_COOLING, EXCHANGES = 10, 0.25, 6
STRETCH, STRETCH_WITH_SPARE = 1.5, 1.2


def assign(cost: Array) -> Array:
    """The column of each row at minimum total cost, f32[..., n, m] -> i32[..., n], n <= m, no column twice.

    NaN and infinity mark pairs that are to be avoided; where that is impossible, as few as possible are used.
    """
    n, m = cost.shape[-2:]
    if n > m:
        raise ValueError(f"assign: {n} rows and only {m} columns: expected at least one column for each row")
    return jax.lax.platform_dependent(cost, cpu=_assign_on_host, default=assign_on_device)


def assign_on_device(cost: Array) -> Array:
    """The same by `matching.match`; for a GPU."""
    guess = prices(cost)
    problems = cost.reshape(-1, *cost.shape[-2:]), guess.reshape(-1, guess.shape[-1])
    return jax.vmap(match)(*problems).reshape(cost.shape[:-1])


def _assign_on_host(cost: Array) -> Array:
    """The same by SciPy; for a CPU. All problems of a batch (seeds, under `vmap`) go to the host in one call.

    `jax.pure_callback` copies its operands back to the device before Python sees them, on the very threads that wait
    for the callback: with a megabyte on each of two devices and two cores it never returns (jax-ml/jax#24255).
    `buffer_callback` hands out the buffers as they are, but on a CPU only.
    """

    def fill(context: Any, out: Any, *buffers: Any) -> None:
        np.asarray(out)[...] = _assign_all(*(np.asarray(buffer) for buffer in buffers))

    shape = jax.ShapeDtypeStruct(cost.shape[:-1], jnp.int32)
    guess = hurried_prices(cost)
    return buffer_callback(fill, shape, vmap_method="broadcast_all")(cost, guess)


def squared_distances(a: Array, b: Array) -> Array:
    """|a_i - b_j|^2, f32[n, d], f32[m, d] -> f32[n, m].

    By differences: |a|^2 + |b|^2 - 2ab loses the small distances. The sum over dimensions is written out, which
    lets the compiler vectorise over points.
    """
    squares = [(a[:, k, None] - b[None, :, k]) ** 2 for k in range(a.shape[1])]
    return sum(squares[1:], squares[0])


def require_distances(owner: str, space: TaskSpace) -> None:
    """Refuse a space without distances, or one where their squares do not fit into 32 bits: they would silently be 0
    or infinite.
    """
    require_quantities(owner, space)
    bounds = (space.low, space.high) if isinstance(space, TaskSpace) else (None,)
    if not all(isinstance(x, jax.Array | np.ndarray) and not isinstance(x, jax.core.Tracer) for x in bounds):
        return  # JAX also builds instances without values, which cannot be checked
    span = float(np.max(np.asarray(space.high, np.float64) - np.asarray(space.low, np.float64), initial=0.0))
    if span != 0 and not NARROWEST <= span <= WIDEST:
        raise ConfigError(
            f"{owner}: the contexts span {span:g}, expected between {NARROWEST:g} and {WIDEST:g} (squared distances "
            f"have 32 bits): give the context in other units, e.g. scaled to [0, 1]"
        )


def prices(cost: Array, rounds: int = ROUNDS, cooling: float = COOLING) -> Array:
    """Approximate prices of the columns, f32[..., m]: the potentials of the entropic problem as it cools.

    Every row divides itself among the columns, cheap ones first (T is the temperature); then the columns that too
    many want become dearer, and those that nobody wants cheaper:

        P_ij = softmax_j((g_j - cost_ij) / T),    g_j <- g_j - T log sum_i P_ij

    One more row, of cost 0 and as heavy as there are columns to spare, takes what stays free.
    """
    n, m = cost.shape[-2:]
    finite = jnp.isfinite(cost)
    number = jnp.maximum(jnp.sum(finite, (-2, -1)), 1)
    mean = jnp.sum(jnp.where(finite, cost, 0.0), (-2, -1)) / number
    deviation = jnp.where(finite, cost - mean[..., None, None], 0.0)
    spread = jnp.sqrt(jnp.sum(deviation**2, (-2, -1)) / number)  # f32[...]
    centred = jnp.where(finite, deviation, jnp.inf)
    usable = jnp.any(finite, -2)  # bool[..., m]
    spare = jnp.maximum(jnp.sum(usable, -1) - n, 0).astype(jnp.float32)[..., None]

    def play(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        t, g = carry
        temperature = (spread * cooling**t)[..., None]
        logits = (g[..., None, :] - centred) / temperature[..., None]
        wish = jnp.exp(logits - jnp.max(logits, -1, keepdims=True))  # f32[..., n, m]
        per_row = 1.0 / jnp.sum(wish, -1)
        wanted = jnp.matmul(per_row[..., None, :], wish)[..., 0, :]
        wanted += spare * jax.nn.softmax(jnp.where(usable, g / temperature, -jnp.inf), -1)
        return t + 1, jnp.where(usable, g - temperature * jnp.log(jnp.maximum(wanted, 1e-30)), 0.0)

    choosy = jnp.max(cost, -1) != jnp.min(cost, -1)  # bool[..., n]

    def warm(carry: tuple[Array, Array]) -> Array:
        return (carry[0] < rounds) & jnp.any(choosy)

    _, g = jax.lax.while_loop(warm, play, (jnp.int32(0), jnp.zeros((*cost.shape[:-2], m))))
    return jnp.where(jnp.isfinite(g), g, 0.0)


def hurried_prices(cost: Array) -> Array:
    """The same for a CPU, where exponentials are dear and products cheap, f32[..., m].

    At each of a few temperatures K_ij = exp((f_i + g_j - cost_ij) / T) is computed once, and rows and columns answer
    each other by products with it, each step stretched by up to a half (over-relaxation); thanks to f_i, no row's
    maximum is needed:

        u <- u^(1-w) / (K v)^w,    v <- v^(1-w) / (K'u)^w,    then f <- f + T log u, g <- g + T log v

    All prices stay 0 where SciPy needs no help: where few rows, given the columns to spare, want the same one.
    """
    n, m = cost.shape[-2:]
    finite = jnp.isfinite(cost)
    number = jnp.maximum(_total(finite.astype(jnp.float32)), 1)
    mean = (_total(jnp.where(finite, cost, 0.0)) / number)[..., None]  # f32[..., 1]
    spread = jnp.sqrt(_total(jnp.where(finite, (cost - mean[..., None]) ** 2, 0.0)) / number)[..., None]
    usable = jnp.matmul(jnp.ones(n), finite.astype(jnp.float32)) > 0  # bool[..., m]
    n_usable = jnp.sum(usable, -1)
    spare = jnp.maximum(n_usable - n, 0).astype(jnp.float32)[..., None]
    stretch = jnp.where(spare > 0, STRETCH_WITH_SPARE, STRETCH)

    choosy = jnp.any(cost != cost[..., :1], -1)  # bool[..., n]
    n_choosy = jnp.sum(choosy, -1)
    favourite = jnp.any(choosy[..., None] & (cost == jnp.min(cost, -1, keepdims=True)), -2)
    conflicts = n_choosy - jnp.sum(favourite, -1)
    all_alike = jnp.all(cost == cost[..., :1, :], (-2, -1))
    contested = (conflicts > jnp.minimum(2 * (n_usable - n_choosy), n // 2)) & ~all_alike

    def play(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        turn, f, g = carry
        t = spread * HURRIED_COOLING**turn
        heat = (f[..., :, None] + g[..., None, :] - cost) / t[..., None]
        k = jnp.where(finite, jnp.exp(heat), 0.0)  # f32[..., n, m]
        best = jnp.max(jnp.where(usable, g, -jnp.inf), -1, keepdims=True)
        to_spare = jnp.where(usable, jnp.exp((g - best) / t), 0.0)
        log_u, log_v = jnp.zeros(f.shape), jnp.zeros(g.shape)
        for _ in range(EXCHANGES):
            v = jnp.exp(log_v)
            offered = jnp.matmul(k, v[..., None])[..., 0]
            log_u = (1 - stretch) * log_u - stretch * jnp.log(jnp.clip(offered, 1e-30, 1e30))
            wanted = jnp.matmul(jnp.exp(log_u)[..., None, :], k)[..., 0, :]
            wanted += spare * to_spare / jnp.sum(to_spare * v, -1, keepdims=True)
            log_v = (1 - stretch) * log_v - stretch * jnp.log(jnp.clip(wanted, 1e-20, 1e20))
        return turn + 1, f + t * log_u, jnp.where(usable, g + t * log_v, 0.0)

    def warm(carry: tuple[Array, Array, Array]) -> Array:
        return (carry[0] < TEMPERATURES) & jnp.any(contested)

    start = jnp.int32(0), jnp.broadcast_to(mean, cost.shape[:-1]), jnp.zeros((*cost.shape[:-2], m))
    _, _, g = jax.lax.while_loop(warm, play, start)
    return jnp.where(contested[..., None] & jnp.isfinite(g), g, 0.0)


def _total(x: Array) -> Array:
    """The sum over the last two axes, by products: XLA's own sums are slower on a CPU."""
    n, m = x.shape[-2:]
    return jnp.matmul(jnp.matmul(x, jnp.ones(m)), jnp.ones(n))


def _assign_all(cost: np.ndarray, prices: np.ndarray) -> np.ndarray:
    """On the host, NumPy only. SciPy releases Python's lock, so the problems of a batch share the cores."""
    n, m = cost.shape[-2:]
    problems = cost.reshape(-1, n, m), prices.reshape(-1, m)
    solve = map if len(problems[0]) == 1 else _threads().map
    return np.array(list(solve(_assign_one, *problems)), np.int32).reshape(cost.shape[:-1])


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_name_prefix="assign")


def _assign_one(cost: np.ndarray, price: np.ndarray) -> np.ndarray:
    """Rows that find all columns alike take what the others leave."""
    n, m = cost.shape
    choosy = np.flatnonzero(cost.max(axis=1) != cost.min(axis=1))
    if len(choosy) == n:
        return _assign_choosy(cost, price)
    column = np.empty(n, np.int64)
    column[choosy] = _assign_choosy(cost[choosy], price)
    left = np.ones(m, bool)
    left[column[choosy]] = False
    column[np.setdiff1d(np.arange(n), choosy)] = np.flatnonzero(left)[: n - len(choosy)]
    return column


def _assign_choosy(cost: np.ndarray, price: np.ndarray) -> np.ndarray:
    n, m = cost.shape
    finite = np.isfinite(cost)
    if finite.all():
        return _assign_finite(cost, price)
    usable = np.flatnonzero(finite.any(axis=0))
    if len(usable) < n:
        usable = np.arange(m)
    cost, finite = cost[:, usable], finite[:, usable]
    if not finite.all():
        largest = np.abs(cost[finite]).max(initial=1.0)
        cost = np.where(finite, cost, 3.0 * (n + 1) * np.float64(largest))  # dearer than all the others together
    return usable[_assign_finite(cost, price[usable])]


def _assign_finite(cost: np.ndarray, price: np.ndarray) -> np.ndarray:
    """With prices: the square problem less the prices has the same solutions, with most of the search already done."""
    n, m = cost.shape
    if n and (cost == cost[0]).all():  # as where the target is a single task; SciPy takes very long over such a problem
        return np.argsort(cost[0], kind="stable")[:n]
    if not price.any():
        return linear_sum_assignment(cost)[1]
    reduced = np.zeros((m, m))  # the rows beyond n take the columns that stay free
    np.subtract(cost, price, out=reduced[:n], dtype=np.float64)
    reduced[n:] -= price
    return linear_sum_assignment(reduced)[1][:n]
