"""NumPy functions inside compiled JAX programs: where SciPy is the better tool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.experimental.buffer_callback import buffer_callback


def call_on_host(function: Callable[..., np.ndarray], shape: jax.ShapeDtypeStruct, *arguments: Array) -> Array:
    """`function(*arguments)` with NumPy arrays in and out; under `vmap`, one call for the whole batch."""

    def fill(context: Any, out: Any, *buffers: Any) -> None:
        np.asarray(out)[...] = function(*(np.asarray(buffer) for buffer in buffers))

    def on_cpu(*arguments: Array) -> Array:
        return buffer_callback(fill, shape, vmap_method="broadcast_all")(*arguments)

    def elsewhere(*arguments: Array) -> Array:
        def convert(*given: Any) -> np.ndarray:
            return function(*(np.asarray(x) for x in given))

        return jax.pure_callback(convert, shape, *arguments, vmap_method="broadcast_all")

    # On a CPU, `pure_callback` copies its operands back to the device before Python sees them, on the very threads that
    # wait for the callback: with a megabyte on each of two devices and two cores it never returns (jax-ml/jax#24255).
    # `buffer_callback` hands out the buffers as they are, but on a CPU only.
    return jax.lax.platform_dependent(*arguments, cpu=on_cpu, default=elsewhere)
