"""The student's network: layers shared by policy and value, then layers of their own, then linear heads.

Parameters are a plain dictionary of arrays, so that a seed axis, a checkpoint or a gradient needs nothing
special. Every product is in full float32 unless told otherwise: on a GPU the default (TF32) changes what is learnt.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl.types import Continuous, Discrete

Params = dict[str, Any]
LOG_2PI = 1.8378770664093453
FULL = jax.lax.Precision.HIGHEST


class Heads(NamedTuple):
    """The network's output for a batch of observations."""

    action: Array  # f32[..., a]  mean of a normal, or logits
    value: Array  # f32[...]


def init_params(
    key: Array, obs_size: int, action: Continuous | Discrete, shared: tuple[int, ...], separate: tuple[int, ...]
) -> Params:
    """Weights and biases uniform in +-1/sqrt(fan_in), as in the paper's code; log-std 0."""
    k_shared, k_policy, k_value = jax.random.split(key, 3)
    trunk = shared[-1] if shared else obs_size
    params: Params = {
        "shared": init_layers(k_shared, (obs_size, *shared)),
        "policy": init_layers(k_policy, (trunk, *separate, action.size)),
        "value": init_layers(k_value, (trunk, *separate, 1)),
    }
    if isinstance(action, Continuous):
        params["log_std"] = jnp.zeros(action.size)
    return params


def forward(params: Params, obs: Array) -> Heads:
    """Policy and value of a batch of observations, f32[..., o]."""
    trunk = _relu_layers(params["shared"], obs)
    return Heads(mlp(params["policy"], trunk), mlp(params["value"], trunk)[..., 0])


def value(params: Params, obs: Array) -> Array:
    """The value alone."""
    return mlp(params["value"], _relu_layers(params["shared"], obs))[..., 0]


def policy(params: Params, obs: Array) -> Array:
    """The mean or the logits alone."""
    return mlp(params["policy"], _relu_layers(params["shared"], obs))


def sample_action(params: Params, head: Array, noise: Array) -> Array:
    """A random action from noise that `action_noise` has drawn."""
    if "log_std" in params:
        return head + jnp.exp(params["log_std"]) * noise
    return jnp.argmax(head + noise, axis=-1)


def action_noise(key: Array, shape: tuple[int, ...], params: Params) -> Array:
    """Standard normal noise, or Gumbel noise (whose argmax over logits is a categorical draw)."""
    size = params["policy"][-1]["b"].shape[-1]
    draw = jax.random.normal if "log_std" in params else jax.random.gumbel
    return draw(key, (*shape, size))


def best_action(params: Params, head: Array) -> Array:
    """The most likely action."""
    return head if "log_std" in params else jnp.argmax(head, axis=-1)


def log_prob_and_entropy(params: Params, head: Array, action: Array) -> tuple[Array, Array]:
    """log pi(action) and the entropy of pi, one number per observation."""
    if "log_std" in params:
        log_std = params["log_std"]
        z = (action - head) * jnp.exp(-log_std)
        log_prob = -0.5 * jnp.sum(z * z, axis=-1) - jnp.sum(log_std + 0.5 * LOG_2PI)
        entropy = jnp.sum(log_std + 0.5 * (1.0 + LOG_2PI))
        return log_prob, jnp.broadcast_to(entropy, log_prob.shape)
    log_p = jax.nn.log_softmax(head)
    log_prob = jnp.take_along_axis(log_p, action[..., None], axis=-1)[..., 0]
    return log_prob, -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)


def init_layers(key: Array, widths: tuple[int, ...]) -> list[dict[str, Array]]:
    """Linear layers between these widths."""
    layers = []
    for k, n_in, n_out in zip(jax.random.split(key, len(widths)), widths[:-1], widths[1:], strict=False):
        k_weight, k_bias = jax.random.split(k)
        draw = partial(jax.random.uniform, minval=-(n_in**-0.5), maxval=n_in**-0.5)
        layers.append({"w": draw(k_weight, (n_in, n_out)), "b": draw(k_bias, (n_out,))})
    return layers


def _linear(layer: dict[str, Array], x: Array, precision: Any) -> Array:
    return jnp.dot(x, layer["w"], precision=precision) + layer["b"]


def _relu_layers(layers: list[dict[str, Array]], x: Array, precision: Any = FULL) -> Array:
    for layer in layers:
        x = jax.nn.relu(_linear(layer, x, precision))
    return x


def mlp(layers: list[dict[str, Array]], x: Array, precision: Any = FULL) -> Array:
    """Linear layers with ReLU between them."""
    return _linear(layers[-1], _relu_layers(layers[:-1], x, precision), precision)
