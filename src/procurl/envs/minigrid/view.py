"""What the student sees: the 7 x 7 cells before the agent, as far as walls and doors let it see, as 156 numbers.

View coordinates (vx, vy) run left to right and far to near; the agent is at (3, 6) and looks towards smaller vy. The
order of the numbers is that of MiniGrid's image, so that a policy trained here can play there, and vice versa.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from procurl.envs.minigrid.families import BITS, DYNAMIC
from procurl.envs.minigrid.grid import (
    DOOR,
    OPEN,
    ROW,
    WALL,
    State,
    ahead,
    carried,
    colour_of,
    look,
    object_of,
    state_of,
)
from procurl.envs.minigrid.loops import short_scan

SIZE = 7
OBS_SIZE = SIZE * SIZE * 3 + 1 + BITS.shape[1]


def observe(state: State) -> Array:
    """f32[156]: (object, colour, state) of cell (vx, vy) at 3 (7 vx + vy), then the direction, then the skills."""
    fx, fy = ahead(state.direction)
    far = SIZE - 1 - jnp.arange(SIZE)[:, None]  # cells ahead, of row vy
    right = jnp.arange(SIZE)[None, :] - SIZE // 2  # cells to the right, of column vx
    x = state.agent % ROW + fx * far - fy * right
    y = state.agent // ROW + fy * far + fx * right
    code = look(state, x, y)
    # At its own place the agent sees what it holds. (Nothing that can be held or stood on blocks the view.)
    code = jnp.where((far == 0) & (right == 0), carried(state), code)
    code = seen_of(code, everything=state.family == DYNAMIC).T  # i32[vx, vy]; that family sees through walls

    image = jnp.stack([object_of(code), colour_of(code), state_of(code)], axis=-1)
    rest = jnp.concatenate([state.direction[None].astype(jnp.float32), jnp.asarray(BITS)[state.family]])
    return jnp.concatenate([image.reshape(-1).astype(jnp.float32), rest])


def seen_of(code: Array, everything: Array) -> Array:
    """The codes i32[vy, vx] as far as they are in sight, 0 elsewhere.

    MiniGrid's rule: row by row away from the agent, first rightwards and then leftwards, a cell that is seen and clear
    reveals its next neighbour in that sense, and the two cells beyond them in the next row. In a row packed into an
    integer (column vx in bit vx), a run of clear cells fills in three steps, as carries do in an adder; bits beyond the
    view are never clear, and so lead nowhere.
    """
    place = jnp.arange(SIZE)

    def one_row(seen: Array, code: Array) -> tuple[Array, Array]:
        opaque = (code == WALL) | (object_of(code) == DOOR) & (state_of(code) != OPEN)
        clear = jnp.sum(jnp.where(opaque, 0, 1 << place))
        rightwards = fill(seen & clear, clear, 1)
        seen = seen | rightwards << 1
        leftwards = fill(seen & clear, clear, -1)
        seen = seen | leftwards >> 1
        beyond = rightwards | rightwards << 1 | leftwards | leftwards >> 1
        return beyond, jnp.where((seen >> place & 1 == 1) | everything, code, 0)

    own_cell = jnp.int32(1 << SIZE // 2)
    return short_scan(one_row, own_cell, code, reverse=True)[1]


def fill(seen: Array, clear: Array, sense: int) -> Array:
    """All clear cells that a run of clear cells joins to a seen one on its left (sense 1) or right (-1)."""
    for distance in (1, 2, 4):
        seen = seen | clear & shift(seen, sense * distance)
        clear = clear & shift(clear, sense * distance)
    return seen


def shift(row: Array, by: int) -> Array:
    return row << by if by > 0 else row >> -by
