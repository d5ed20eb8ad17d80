"""The same gradients by automatic differentiation of the policy, to hold the closed forms of `bandit` against.

Starts from the features and the softmax, and knows nothing of psi or Z.
"""

from __future__ import annotations

import jax
import numpy as np
from jax import Array

from procurl.bench.theory.bandit import Bandit, Floats
from procurl.programs import jit


def _value(theta: Array, features: Array, optimal: Array, reward: Array) -> Array:
    return reward * jax.nn.softmax(features @ theta)[optimal]


_gradients = jit(jax.vmap(jax.grad(_value), in_axes=(None, 0, 0, 0)))


def value_gradients(bandit: Bandit, theta: Floats) -> Floats:
    """grad V(c) of every task, f64[n, d], in double precision whatever JAX's global flag says."""
    with jax.enable_x64(True):
        return np.asarray(_gradients(theta, bandit.features, bandit.optimal, bandit.reward))


def alignments(bandit: Bandit, theta: Floats) -> Floats:
    """<g(c), g(target)> of every task, f64[n]."""
    gradients = value_gradients(bandit, theta)
    return gradients @ gradients[bandit.target]
