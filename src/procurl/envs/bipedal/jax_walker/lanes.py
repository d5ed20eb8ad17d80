"""Walkers side by side: `jax.vmap` puts its axis first, and the physics wants all walkers in one last axis.

The compiler vectorises along the last axis, and one loop for all walkers ends when the last of them is done. So a
function of arrays [..., N] is given a rule of its own for `vmap`: any number of nested axes become one, N.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_batching import custom_vmap


def lanes(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, whose arguments and results all have a last axis of walkers, merges every `vmap` into that axis."""
    batched = custom_vmap(function)

    @batched.def_vmap
    def rule(size: int, is_batched: Any, *args: Any) -> tuple[Any, Any]:
        def merged(x: Array, mapped: bool) -> Array:
            whole = jnp.moveaxis(x, 0, -2) if mapped else jnp.broadcast_to(x[..., None, :], (*x.shape[:-1], size, x.shape[-1]))
            return whole.reshape(*whole.shape[:-2], -1)

        def parted(y: Array) -> Array:
            return jnp.moveaxis(y.reshape(*y.shape[:-1], size, -1), -2, 0)

        out = batched(*jax.tree.map(merged, args, tuple(is_batched)))
        return jax.tree.map(parted, out), jax.tree.map(lambda _: True, out)

    return batched


def alone(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays [..., N] as one of a single walker, without the last axis."""

    def single(*args: Any) -> Any:
        return jax.tree.map(lambda y: y[..., 0], function(*jax.tree.map(lambda x: jnp.asarray(x)[..., None], args)))

    return single
