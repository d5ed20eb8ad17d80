"""Matrix products that wake no threads: they are small, and on cores that a trainer keeps busy, threads mostly wait."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

F = TypeVar("F", np.float32, np.float64)

QUIET = 200_000  # multiply-adds; OpenBLAS takes further threads from 262,144 on


def product(a: NDArray[F], b: NDArray[F]) -> NDArray[F]:
    """a @ b for a [n, k] and b [k, m], a few rows at a time."""
    n, k = a.shape
    rows = max(1, QUIET // (k * b.shape[1]))
    whole = n - n % rows
    found = np.empty((n, b.shape[1]), a.dtype)
    np.matmul(a[:whole].reshape(-1, rows, k), b, out=found[:whole].reshape(-1, rows, b.shape[1]))
    np.matmul(a[whole:], b, out=found[whole:])
    return found
