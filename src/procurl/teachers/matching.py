"""Optimal assignments without leaving the device: shortest augmenting paths for all free rows at once.

The Hungarian method adds one row after another, which suits a CPU. Here every phase finds shortest paths from all rows
without a column to all columns (Bellman-Ford: a round is one pass over the costs), turns the distances into better
prices, and extends the assignment along as many paths as do not cross, at most one per row. If the prices are nearly
right to begin with (`transport.prices`), a few phases of some dozen rounds are enough.

Rows to which all columns are alike, together with the columns that stay free, act as one more party: the crowd. It
always holds as many columns as are left over in the end, and may give one up for another that is worth as much.

Invariant: no reduced cost (cost_ij - u_i - v_j, and for the crowd level - v_j) is negative, and those of matched pairs
are 0. So the plan is optimal, up to rounding, as soon as every row has a column.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

FAR = jnp.inf


class Plan(NamedTuple):
    column: Array  # i32[n]  the one each row has; m: none
    crowd: Array  # bool[m]  columns that the crowd holds
    u: Array  # f32[n]  price of each row
    v: Array  # f32[m]  price of each column
    level: Array  # f32  price of the crowd's columns


class Paths(NamedTuple):
    """Shortest paths from the rows without a column to all columns."""

    length: Array  # f32[m]
    row: Array  # i32[m]  the last row on the path; n: the crowd
    entry: Array  # i32  the column through which the crowd is reached


def match(cost: Array, prices: Array) -> Array:
    """The column of each row at minimum total cost, f32[n, m], f32[m] -> i32[n], n <= m, no column twice.

    NaN and infinity mark pairs to be avoided. `prices`: see `transport.prices`; any will do, but good ones are faster.
    """
    n, m = cost.shape
    finite = jnp.isfinite(cost)
    choosy = jnp.max(cost, axis=1) != jnp.min(cost, axis=1)  # bool[n]
    dear = 3.0 * (n + 1) * jnp.maximum(jnp.max(jnp.where(finite, jnp.abs(cost), 0.0)), 1e-30)
    cost = jnp.where(finite, cost, dear)  # dearer than all the others together

    def unfinished(carry: tuple[Plan, Array]) -> Array:
        plan, phase = carry
        return jnp.any(choosy & (plan.column == m)) & (phase < n)  # every phase gives a column to at least one row

    def phase(carry: tuple[Plan, Array]) -> tuple[Plan, Array]:
        return _extended(carry[0], cost, choosy), carry[1] + 1

    plan, _ = jax.lax.while_loop(unfinished, phase, (_begun(cost, prices, choosy, finite), jnp.int32(0)))
    taken = jnp.zeros(m, bool).at[plan.column].set(True, mode="drop")
    left = jnp.argsort(taken)  # the others take what is left, in order
    return jnp.where(plan.column < m, plan.column, left[jnp.cumsum(plan.column == m) - 1]).astype(jnp.int32)


def _begun(cost: Array, prices: Array, choosy: Array, finite: Array) -> Plan:
    """Each choosy row gets the column it likes best at these prices, unless another row or the crowd has it."""
    n, m = cost.shape
    wish = jnp.argmin(cost - prices, axis=1)
    wanted = jnp.zeros(m, bool).at[jnp.where(choosy, wish, m)].set(True, mode="drop")
    worth = jnp.where(jnp.any(finite, axis=0), prices, FAR)  # columns that no row can use go to the crowd
    rank = jnp.argsort(jnp.lexsort((wanted, -worth)))
    crowd = rank < m - jnp.sum(choosy)
    level = jnp.max(jnp.where(crowd, -FAR, prices))
    level = jnp.where(jnp.isfinite(level), level, 0.0)
    v = jnp.where(crowd, level, prices)
    best, wish = jnp.min(cost - v, axis=1), jnp.argmin(cost - v, axis=1).astype(jnp.int32)
    row = jnp.arange(n, dtype=jnp.int32)
    asks = choosy & ~crowd[wish]
    first = jnp.full(m, n, jnp.int32).at[jnp.where(asks, wish, m)].min(row, mode="drop")
    return Plan(jnp.where(asks & (first[wish] == row), wish, m), crowd, best, v, level)


def _extended(plan: Plan, cost: Array, choosy: Array) -> Plan:
    """One phase: some rows get a column, others change theirs, prices follow."""
    n, m = cost.shape
    free = choosy & (plan.column == m)
    open_ = ~plan.crowd.at[plan.column].set(True, mode="drop")  # columns that nobody has
    paths = _paths(plan, cost, choosy, free, open_)
    root = _roots(plan, paths, n)

    # Paths of different rows do not cross, as every party is reached by one path only: each row may go to one column.
    length = jnp.where(open_, paths.length, FAR)
    shortest = jnp.full(n, FAR).at[root].min(length, mode="drop")
    is_end = open_ & (root < n) & (length <= shortest[jnp.minimum(root, n - 1)]) & jnp.isfinite(length)
    numbers = jnp.arange(m, dtype=jnp.int32)
    end = jnp.full(n, m, jnp.int32).at[jnp.where(is_end, root, n)].min(numbers, mode="drop")

    limit = jnp.max(jnp.where(open_, paths.length, -FAR))
    rows, crowd = _reached(plan, paths.length, choosy, free)
    column, held = _walked(plan, paths, end)
    return Plan(
        column, held,
        plan.u - jnp.where(choosy, jnp.minimum(rows, limit), 0.0),
        plan.v + jnp.minimum(paths.length, limit),
        plan.level + jnp.where(jnp.isfinite(crowd), jnp.minimum(crowd, limit), 0.0),
    )  # fmt: skip


def _reached(plan: Plan, length: Array, choosy: Array, free: Array) -> tuple[Array, Array]:
    """How far away rows, f32[n], and the crowd are: as far as the columns that they have and would give up."""
    own = jnp.append(length, 0.0)[plan.column]
    rows = jnp.where(choosy, jnp.where(free, 0.0, own), FAR)
    return rows, jnp.min(jnp.where(plan.crowd, length, FAR))


def _paths(plan: Plan, cost: Array, choosy: Array, free: Array, open_: Array) -> Paths:
    n, m = cost.shape
    # Rounding may leave a reduced cost a little below 0, and paths would then run in circles.
    reduced = jnp.maximum(cost - plan.u[:, None] - plan.v, 0.0)
    reduced_crowd = jnp.maximum(plan.level - plan.v, 0.0)

    def relax(carry: tuple[Array, Array, Array], first: bool = False) -> tuple[Array, Array, Array]:
        length, last, _ = carry
        rows, crowd = _reached(plan, length, choosy, free)
        through = rows[:, None] + reduced
        best = jnp.min(through, axis=0)
        row = _shared_out(through == best, free, open_) if first else jnp.argmin(through, axis=0).astype(jnp.int32)
        row = jnp.where(crowd + reduced_crowd < best, n, row)
        best = jnp.minimum(best, crowd + reduced_crowd)
        # Only shorter paths count, so that there is no circle, and none that is longer than all paths to open columns.
        shorter = (best < length) & (best <= jnp.max(jnp.where(open_, length, -FAR)))
        return jnp.where(shorter, best, length), jnp.where(shorter, row, last), jnp.any(shorter)

    start = jnp.full(m, FAR), jnp.full(m, n + 1, jnp.int32), jnp.bool_(True)
    length, last, _ = jax.lax.while_loop(lambda carry: carry[2], relax, relax(start, first=True))
    entry = jnp.argmin(jnp.where(plan.crowd & (last < n), length, FAR)).astype(jnp.int32)
    return Paths(length, last, entry)


def _shared_out(chosen: Array, free: Array, open_: Array) -> Array:
    """One of the chosen rows for each column, bool[n, m] -> i32[m]. Of several, the k-th open column prefers the k-th
    free row: otherwise all columns would choose the first of rows that are alike, and each row would cost a phase.
    """
    n = chosen.shape[0]
    k_row, k_column = jnp.cumsum(free, dtype=jnp.int32), jnp.cumsum(open_, dtype=jnp.int32)
    turn = (k_row[:, None] - k_column) % n
    return jnp.argmin(jnp.where(chosen, turn, n), axis=0).astype(jnp.int32)


def _before(plan: Plan, paths: Paths, row: Array) -> Array:
    """The column before a row (n: the crowd) on the path to it; m for a row without a column, where the path begins."""
    return jnp.append(plan.column, paths.entry)[jnp.minimum(row, plan.column.shape[0])]


def _roots(plan: Plan, paths: Paths, n: int) -> Array:
    """The row at which the path to each column begins, i32[m]; beyond n where there is none."""
    m = paths.row.shape[0]

    def up(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        row, _, k = carry
        before = _before(plan, paths, row)
        parent = jnp.where((before < m) & (row <= n), paths.row[jnp.minimum(before, m - 1)], row)
        return parent, jnp.any(parent != row), k + 1

    start = paths.row, jnp.bool_(True), jnp.int32(0)
    return jax.lax.while_loop(lambda carry: carry[1] & (carry[2] <= m), up, start)[0]


def _walked(plan: Plan, paths: Paths, end: Array) -> tuple[Array, Array]:
    """Along every path, back from its end, i32[n] (m: none), each party takes the next column and gives up its own."""
    n, m = plan.column.shape[0], paths.row.shape[0]

    def step(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        given, column, crowd, k = carry
        active = given < m
        row = jnp.append(paths.row, n + 1)[given]
        by_crowd = active & (row == n)
        column = column.at[jnp.where(active & (row < n), row, n)].set(given, mode="drop")
        crowd = crowd.at[jnp.where(by_crowd, given, m)].set(True, mode="drop")
        crowd = crowd.at[jnp.where(by_crowd, paths.entry, m)].set(False, mode="drop")
        return jnp.where(active, _before(plan, paths, row), m), column, crowd, k + 1

    start = end, plan.column, plan.crowd, jnp.int32(0)
    _, column, crowd, _ = jax.lax.while_loop(lambda c: jnp.any(c[0] < m) & (c[3] <= m), step, start)
    return column, crowd
