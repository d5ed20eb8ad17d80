"""The six families of MiniG: their skills (the context), their boards, and which family a context means.

The numbers 0 .. 5 of the families are in the order in which the released code breaks ties between equally near
families, so that `argmin` does the same. Paper: Section 4 and Appendix C.1.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

SKILLS = (
    "navigation", "goal_reaching", "lava_avoidance", "obstacle_avoidance",
    "key_picking", "door_unlocking", "object_picking", "door_unblocking",
)  # fmt: skip
CROSSING, DYNAMIC, UNLOCK, FOUR_ROOMS, BLOCKED, PICKUP = range(6)
NOWHERE = -1  # no inner wall: outside the board, where all is wall anyway


class Family(NamedTuple):
    name: str
    skills: tuple[int, ...]  # the eight bits
    width: int  # of the board, border included
    height: int
    wall_x: int  # column of an inner wall
    wall_y: int  # row of an inner wall
    max_steps: int


FAMILIES = (
    Family("crossing", (1, 1, 1, 0, 0, 0, 0, 0), 9, 9, NOWHERE, NOWHERE, 324),
    Family("dynamic-obstacles", (1, 1, 0, 1, 0, 0, 0, 0), 9, 9, NOWHERE, NOWHERE, 324),
    Family("unlock", (1, 0, 0, 0, 1, 1, 0, 0), 13, 7, 6, NOWHERE, 784),
    Family("four-rooms", (1, 0, 0, 0, 0, 0, 0, 0), 19, 19, 9, 9, 100),  # as released: goal reaching is not set
    Family("blocked-unlock-pickup", (1, 0, 0, 0, 1, 1, 1, 1), 13, 7, 6, NOWHERE, 784),
    Family("unlock-pickup", (1, 0, 0, 0, 1, 1, 1, 0), 13, 7, 6, NOWHERE, 784),
)
BITS = np.array([f.skills for f in FAMILIES], np.float32)  # f32[6, 8]


def of_all(field: str) -> np.ndarray:
    """This field of every family, to be indexed by a family's number."""
    return np.array([getattr(f, field) for f in FAMILIES], np.int32)


def walls(family: int) -> np.ndarray:
    """The cells of a family's board that are wall before anything stands on it, bool[x, y]."""
    _, _, width, height, wall_x, wall_y, _ = FAMILIES[family]
    x, y = np.meshgrid(np.arange(width), np.arange(height), indexing="ij")
    return (x == 0) | (y == 0) | (x == width - 1) | (y == height - 1) | (x == wall_x) | (y == wall_y)


def nearest_family(context: Array) -> Array:
    """i32[...] from f32[..., 8]: round every skill (half to even), then the family at the smallest distance.

    Only methods are called on the array, so that NumPy's works as well as JAX's.
    """
    gaps = context.round()[..., None, :] != BITS  # bool[..., 6, 8]
    return gaps.sum(axis=-1).argmin(axis=-1).astype(np.int32)


def nearest_bits(context: Array) -> Array:
    """The skills of the nearest family, f32[..., 8]."""
    return jnp.asarray(BITS)[nearest_family(context)]
