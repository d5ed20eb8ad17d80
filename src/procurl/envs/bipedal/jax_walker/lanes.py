"""Walkers side by side, and how to get fast code for them out of a compiler.

`jax.vmap` puts its axis first, and the physics wants all walkers in one last axis: the compiler vectorises along it,
and one loop for all walkers ends when the last of them is done. So `lanes` gives a function of arrays [..., N] a rule
of its own for `vmap`: any number of nested axes become one, N. And `stage` marks what must not be computed twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_batching import custom_vmap
from jax.experimental.xla_metadata import set_xla_metadata

from procurl.programs import jit

F = TypeVar("F", bound=Callable[..., Any])


def lanes(function: F) -> F:
    """`function`, whose arguments and results all have a last axis of walkers, merges every `vmap` into that axis."""
    batched = custom_vmap(function)

    @batched.def_vmap
    def rule(size: int, is_batched: Any, *args: Any) -> tuple[Any, Any]:
        def merged(x: Array, mapped: bool) -> Array:
            by_lane = jnp.moveaxis(x, 0, -2) if mapped else jnp.repeat(x[..., None, :], size, axis=-2)
            return by_lane.reshape(*by_lane.shape[:-2], -1)

        def parted(y: Array) -> Array:
            return jnp.moveaxis(y.reshape(*y.shape[:-1], size, -1), -2, 0)

        out = batched(*jax.tree.map(merged, args, tuple(is_batched)))
        return jax.tree.map(parted, out), jax.tree.map(lambda _: True, out)

    return batched  # type: ignore[return-value]


def alone(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays [..., N] as one of a single walker, without the last axis."""

    def single(*args: Any) -> Any:
        return jax.tree.map(lambda y: y[..., 0], function(*jax.tree.map(lambda x: jnp.asarray(x)[..., None], args)))

    return single


def stage(function: F) -> F:
    """A part of an iteration that is computed once, however often its result is used.

    On a CPU, XLA's fusion computes a value again in every place that uses it, even along a chain of values, each of
    which uses the one before twice: the solver's loop would be twenty times as slow. Neither a barrier nor a jitted
    function prevents that, but a call that may not be inlined does. Other compilers know better, and get a barrier.
    """
    call = jit(function, inline=False)

    def once(*args: Any) -> Any:
        if jax.default_backend() != "cpu":
            return jax.lax.optimization_barrier(function(*args))
        with set_xla_metadata(inlineable="false"):
            return call(*args)

    return once  # type: ignore[return-value]
