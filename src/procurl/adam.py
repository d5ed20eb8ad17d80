"""Adam with gradient clipping, as small pure functions.

Why not a library's Adam: the usual bias correction is a power of a step counter, which XLA rounds differently for one
seed than for several side by side. Here the powers are kept as running products, so a seed alone equals the same seed
in company to the last bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

B1, B2 = 0.9, 0.999
EPS = 1e-5  # as in Stable-Baselines3's PPO; its SAC has torch's 1e-8


class AdamState(NamedTuple):
    mean: Any  # running mean of the gradient, shaped like the parameters
    square: Any  # running mean of its square
    b1_power: Array  # B1^t
    b2_power: Array  # B2^t


def init(params: Any) -> AdamState:
    zeros = jax.tree.map(jnp.zeros_like, params)
    return AdamState(zeros, zeros, jnp.float32(1.0), jnp.float32(1.0))


def step(params: Any, gradient: Any, state: AdamState, lr: float, eps: float = EPS) -> tuple[Any, AdamState]:
    """theta <- theta - lr m_hat / (sqrt(v_hat) + eps)."""
    mean = jax.tree.map(lambda m, g: B1 * m + (1 - B1) * g, state.mean, gradient)
    square = jax.tree.map(lambda v, g: B2 * v + (1 - B2) * g * g, state.square, gradient)
    b1_power, b2_power = B1 * state.b1_power, B2 * state.b2_power
    rate, spread = lr / (1 - b1_power), 1 / jnp.sqrt(1 - b2_power)
    params = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) * spread + eps), params, mean, square)
    return params, AdamState(mean, square, b1_power, b2_power)


def powers(state: AdamState, n: int) -> tuple[Array, Array]:
    """B1^t and B2^t after each of the next n steps, f32[n]."""
    return state.b1_power * jnp.cumprod(jnp.full(n, B1)), state.b2_power * jnp.cumprod(jnp.full(n, B2))


def clip_to_norm(gradient: Any, limit: float) -> Any:
    """Scale all gradients together down to a global norm."""
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(gradient)))
    scale = jnp.minimum(1.0, limit / (norm + 1e-6))
    return jax.tree.map(lambda g: scale * g, gradient)
