"""Matrix products that wake no threads: they are small, and on cores that a trainer keeps busy, threads mostly wait.

Threads would also add up in an order of their own: with another number of them, a resumed run could deal other prompts.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

F = TypeVar("F", np.float32, np.float64)

QUIET = 200_000  # multiply-adds; OpenBLAS takes further threads from 262,144 on
ROWS = 4  # that are multiplied together at least: a single one is slow, and OpenBLAS takes threads for it sooner
LONGEST = 4096  # columns; products of vectors have threads from 10,000 on


def product(a: NDArray[F], b: NDArray[F]) -> NDArray[F]:
    """a @ b for a [n, k] and b [k, m], a few rows at a time, of long ones some columns at a time."""
    deep = min(LONGEST, max(1, QUIET // (ROWS * b.shape[1])))
    found = _in_rows(a[:, :deep], b[:deep])
    for first in range(deep, a.shape[1], deep):
        found += _in_rows(a[:, first : first + deep], b[first : first + deep])
    return found


def _in_rows(a: NDArray[F], b: NDArray[F]) -> NDArray[F]:
    n, k = a.shape
    rows = max(1, QUIET // (k * b.shape[1]))
    whole = n - n % rows
    found = np.empty((n, b.shape[1]), a.dtype)
    np.matmul(a[:whole].reshape(-1, rows, k), b, out=found[:whole].reshape(-1, rows, b.shape[1]))
    np.matmul(a[whole:], b, out=found[whole:])
    return found
