"""Mixtures of Gaussians, fitted by expectation-maximisation (EM) inside a compiled program: for ALP-GMM.

Shapes are fixed: in a mixture of fewer Gaussians than there is room for, the rest have weight 0, and mixtures of all
sizes are fitted side by side. EM runs for a fixed number of rounds, starting where k-means ends.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import logsumexp

from procurl.teachers.base import draw
from procurl.teachers.transport import squared_distances

FEWEST = 2  # Gaussians
MEANS_ROUNDS = 10  # of k-means, from which EM begins
RIDGE = 1e-6  # added to variances, as scikit-learn does: a Gaussian must not shrink to a point
EXACT = jax.lax.Precision.HIGHEST


class Mixture(NamedTuple):
    weight: Array  # f32[k]  0: this Gaussian is not there
    mean: Array  # f32[k, D]
    factor: Array  # f32[k, D, D]  lower Cholesky factor of the covariance


def best_mixture(key: Array, x: Array, most: int, rounds: int) -> Mixture:
    """The mixture of 2 .. `most` Gaussians that has the smallest AIC for points x, f32[n, D]."""
    centre = x[spread_rows(key, x, most)]
    sizes = jnp.arange(FEWEST, most + 1)
    mixtures, aic = jax.vmap(lambda k: fitted_mixture(x, centre, jnp.arange(most) < k, rounds))(sizes)
    best = jnp.argmin(jnp.where(jnp.isnan(aic), jnp.inf, aic))  # where all of them are NaN, so is the first
    return Mixture(*(part[best] for part in mixtures))


def spread_rows(key: Array, x: Array, k: int) -> Array:
    """k rows of x to start from, each drawn by its squared distance from the ones before it (k-means++), i32[k]."""
    k_first, *keys = jax.random.split(key, k)
    rows = [jax.random.randint(k_first, (1,), 0, len(x))]
    apart = jnp.full(len(x), jnp.inf)
    for k_row in keys:
        apart = jnp.minimum(apart, squared_distances(x, x[rows[-1]])[:, 0])
        rows.append(draw(k_row, jnp.cumsum(jnp.where(jnp.max(apart) > 0, apart, 1.0)), 1))
    return jnp.concatenate(rows)


def fitted_mixture(x: Array, centre: Array, is_used: Array, rounds: int) -> tuple[Mixture, Array]:
    """EM starting from k-means, for the Gaussians that are used, bool[k]; and the AIC."""

    def nearest(centre: Array) -> Array:
        return jax.nn.one_hot(
            jnp.argmin(jnp.where(is_used, squared_distances(x, centre), jnp.inf), axis=1), len(is_used)
        )

    def move(_: int, centre: Array) -> Array:
        belongs = nearest(centre)
        n = jnp.sum(belongs, axis=0)[:, None]
        return jnp.where(n > 0, jnp.matmul(belongs.T, x, precision=EXACT) / jnp.maximum(n, 1.0), centre)

    def improve(_: int, mixture: Mixture) -> Mixture:
        return maximised(x, jax.nn.softmax(log_joint(mixture, x), axis=1))

    mixture = maximised(x, nearest(jax.lax.fori_loop(0, MEANS_ROUNDS, move, centre)))
    mixture = jax.lax.fori_loop(0, rounds, improve, mixture)
    d, k = x.shape[1], jnp.sum(is_used)
    n_parameters = k * (d + d * (d + 1) // 2) + k - 1
    return mixture, 2 * n_parameters - 2 * jnp.sum(logsumexp(log_joint(mixture, x), axis=1))


def maximised(x: Array, belongs: Array) -> Mixture:
    """The mixture to which points x, f32[n, D], belong with these probabilities, f32[n, k]."""
    n = jnp.sum(belongs, axis=0)  # f32[k]
    share = belongs / jnp.maximum(n, 1e-6)
    mean = jnp.matmul(share.T, x, precision=EXACT)
    apart = x[:, None] - mean  # f32[n, k, D]
    covariance = jnp.einsum("nk,nki,nkj->kij", share, apart, apart, precision=EXACT)
    factor = jax.vmap(_cholesky)(covariance + RIDGE * jnp.eye(x.shape[1]))
    return Mixture(n / len(x), mean, factor)


def log_joint(mixture: Mixture, x: Array) -> Array:
    """log(weight_k N(x_i | mean_k, covariance_k)), f32[n, k]; -inf for a Gaussian that is not there."""

    def one(weight: Array, mean: Array, factor: Array) -> Array:
        apart = _solved(factor, (x - mean).T)
        log_scale = jnp.sum(jnp.log(jnp.diagonal(factor))) + 0.5 * len(mean) * jnp.log(2 * jnp.pi)
        return jnp.log(weight) - log_scale - 0.5 * jnp.sum(apart**2, axis=0)

    return jax.vmap(one, out_axes=1)(*mixture)


# Small triangular systems, written out. The LAPACK routine behind `jax.scipy.linalg.solve_triangular` never returns
# inside a loop that runs on two CPU devices at a time (jaxlib 0.10.2).


def _cholesky(matrix: Array) -> Array:
    """The lower triangular L with L L^T = matrix, f32[D, D]: column by column. NaN where there is none."""
    size = len(matrix)
    factor = jnp.zeros_like(matrix)
    for j in range(size):
        rest = matrix[:, j] - jnp.sum(factor[:, :j] * factor[j, :j], axis=1)
        column = rest / jnp.sqrt(rest[j])
        factor = factor.at[:, j].set(jnp.where(jnp.arange(size) >= j, column, 0.0))
    return factor


def _solved(factor: Array, right: Array) -> Array:
    """y with factor y = right, f32[D, n], for a lower triangular factor: row by row."""
    rows: list[Array] = []
    for j in range(len(factor)):
        known = sum((factor[j, i] * row for i, row in enumerate(rows)), jnp.zeros_like(right[j]))
        rows.append((right[j] - known) / factor[j, j])
    return jnp.stack(rows)
