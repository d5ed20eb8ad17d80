"""Walkers after the first step of an episode, in which they get a push and no torque: a table, `start.npz`.

They stand on the start pad, so that step depends on the push alone, one number. It is the costliest of all, since the
body is created out of joint; and a loop that keeps N environments running resets all of them at every step, only to use
the few that it needs. So the step is looked up: simulated for evenly spaced pushes (`tools/walker_start.py`), and
linear between them, as it is in Box2D to within about 1e-5.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from procurl.envs.bipedal.jax_walker.body import PUSH
from procurl.envs.bipedal.jax_walker.physics import World, advance, placed
from procurl.envs.bipedal.jax_walker.terrain import MOST_STUMPS, Terrain

FILE = Path(__file__).with_name("start.npz")
NODES = 201


def first_step(push: Array) -> World:
    """The step itself, for pushes f32[N]."""
    n = len(push)
    bare = Terrain(jnp.full(n, 10.0), jnp.full(n, 90.0), jnp.zeros((MOST_STUMPS, n)))
    return advance(bare, placed(n), jnp.zeros((4, n)), push)


def started(push: Array) -> World:
    """One walker after a push, f32[], from the table."""
    place = (push + PUSH) / (2 * PUSH) * (NODES - 1)
    low = jnp.clip(place.astype(jnp.int32), 0, NODES - 2)
    share = place - low

    def between(column: Array) -> Array:
        columns = jnp.asarray(column)
        if columns.dtype == jnp.float32:
            return (1 - share) * columns[..., low] + share * columns[..., low + 1]
        return columns[..., jnp.where(share < 0.5, low, low + 1)]  # which points touch: as for the nearer push

    return jax.tree.map(between, table())


@cache
def table() -> World:
    """The first step for NODES pushes from -PUSH to PUSH, in the last axis."""
    structure = jax.tree.structure(jax.eval_shape(lambda: placed(NODES)))
    with np.load(FILE, allow_pickle=False) as arrays:
        return jax.tree.unflatten(structure, [arrays[f"{k:02}"] for k in range(len(arrays))])
