"""Short loops over rows and obstacles: a real loop on a CPU, written out on an accelerator.

The compiler makes one expression of a loop that is written out, and computes it again for each cell that uses it. A CPU
core computes cells one after the other: there a real loop is ten times faster (measured). A GPU has a thread for each
cell, while each turn of a real loop would cost it a launch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax


def short_scan(turn: Callable[[Any, Any], tuple[Any, Any]], start: Any, xs: Any, reverse: bool = False) -> Any:
    """`jax.lax.scan`, with the same numbers on every device."""

    def loop(start: Any, xs: Any, unroll: bool = False) -> Any:
        return jax.lax.scan(turn, start, xs, reverse=reverse, unroll=unroll or 1)

    def written_out(start: Any, xs: Any) -> Any:
        return loop(start, xs, unroll=True)

    return jax.lax.platform_dependent(start, xs, cpu=loop, default=written_out)
