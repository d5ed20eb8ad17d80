"""The rules of the grid: what stands where, and what an action does. MiniGrid's own, cell for cell.

There is no array of cells. A board is the family's walls plus at most eight things, each with a cell and a code; to
look at a cell is to compare eight numbers. So a state is twenty small integers, no cell is ever scattered or gathered,
and a batch of thousands of boards runs as plain vector arithmetic.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl.envs.minigrid.draws import random_bit
from procurl.envs.minigrid.families import DYNAMIC, UNLOCK, of_all
from procurl.envs.minigrid.loops import short_scan

LEFT, RIGHT, FORWARD, PICK_UP, DROP, TOGGLE, DONE = range(7)

# A code is what MiniGrid shows of a cell, in one number: object + 16 colour + 128 state.
EMPTY, DOOR, KEY, BALL, BOX, LAVA = 1, 4, 5, 6, 7, 9
WALL, GOAL = 2 + 16 * 5, 8 + 16 * 1  # grey, green
OBSTACLE = BALL + 16 * 2  # blue
OPEN, CLOSED, LOCKED = 0, 1, 2  # states of a door

# A cell is x + 32 y: rows so long that no cell within sight of the board is taken for another one.
ROW = 32
IN_HAND, GONE = 1000, 1001  # cells beyond all boards: of the thing that is carried, and of things that are not there
N_THINGS, N_OBSTACLES = 8, 4


class State(NamedTuple):
    family: Array  # i32
    agent: Array  # i32  its cell
    direction: Array  # i32  0 right, 1 down, 2 left, 3 up
    cells: Array  # i32[8]  where the things are; obstacles that move come first
    codes: Array  # i32[8]  what they are; an EMPTY thing is a gap in a wall
    steps: Array  # i32


class Outcome(NamedTuple):
    success: Array  # bool
    terminated: Array  # bool
    truncated: Array  # bool


def object_of(code: Array) -> Array:
    return code & 15


def colour_of(code: Array) -> Array:
    return code >> 4 & 7


def state_of(code: Array) -> Array:
    return code >> 7


def ahead(direction: Array) -> tuple[Array, Array]:
    """One step (x, y) in a direction."""
    vertical = direction % 2
    return (1 - vertical) * (1 - direction), vertical * (2 - direction)


def look(state: State, x: Array, y: Array) -> Array:
    """The codes of cells, any shape, even off the board (which is wall). The agent is not a thing."""
    board = ("width", "height", "wall_x", "wall_y")
    width, height, wall_x, wall_y = (jnp.asarray(of_all(field))[state.family] for field in board)
    wall = (x <= 0) | (y <= 0) | (x >= width - 1) | (y >= height - 1) | (x == wall_x) | (y == wall_y)
    code = jnp.where(wall, WALL, EMPTY)
    for k in range(N_THINGS):  # unrolled: the compiler sees one row of comparisons
        code = jnp.where(x + ROW * y == state.cells[k], state.codes[k], code)
    return code


def carried(state: State) -> Array:
    """The code of the thing in hand, EMPTY with empty hands."""
    return jnp.max(jnp.where(state.cells == IN_HAND, state.codes, EMPTY))


def move_obstacles(key: Array, state: State) -> Array:
    """Where the things are after the obstacles have moved: each in turn, to a free cell around it, if any.

    Only Dynamic Obstacles has any. MiniGrid draws cells until one is free; that is uniform over the free ones.
    """
    chance = jax.random.uniform(key, (N_OBSTACLES,))
    place = jnp.arange(9)
    dx, dy = place % 3 - 1, place // 3 - 1

    def move_one(cells: Array, x: tuple[Array, Array, Array]) -> tuple[Array, None]:
        k, cell, chance = x
        around = cell + dx + ROW * dy
        free = (look(state._replace(cells=cells), around % ROW, around // ROW) == EMPTY) & (around != state.agent)
        free = jnp.sum(jnp.where(free, 1 << place, 0))
        choice = random_bit(free, chance)
        target = jnp.where(free != 0, cell + choice % 3 - 1 + ROW * (choice // 3 - 1), cell)
        return jnp.where(jnp.arange(N_THINGS) == k, target, cells), None

    order = jnp.arange(N_OBSTACLES)
    moved, _ = short_scan(move_one, state.cells, (order, state.cells[:N_OBSTACLES], chance))
    return jnp.where(state.family == DYNAMIC, moved, state.cells)


def play(state: State, action: Array, moved: Array) -> tuple[State, Outcome]:
    """One step. `moved` are the things' cells after the obstacles' move, which comes before the agent's."""
    with_obstacles = state.family == DYNAMIC
    action = jnp.where(with_obstacles & (action > FORWARD), LEFT, action)
    fx, fy = ahead(state.direction)
    x, y = state.agent % ROW + fx, state.agent // ROW + fy
    front = x + ROW * y

    # Walking into what stood there before the obstacles moved is a collision, even if it has moved away since.
    seen = look(state, x, y)
    collides = with_obstacles & (action == FORWARD) & (seen != EMPTY) & (seen != GOAL)
    state = state._replace(cells=moved)
    seen = look(state, x, y)
    kind, hand = object_of(seen), carried(state)
    here, in_hand = state.cells == front, state.cells == IN_HAND  # bool[8]

    way_is_free = (seen == EMPTY) | (seen == GOAL) | (seen == LAVA) | (kind == DOOR) & (state_of(seen) == OPEN)
    enters = (action == FORWARD) & way_is_free
    picks = (action == PICK_UP) & (hand == EMPTY) & ((kind == KEY) | (kind == BALL) | (kind == BOX))
    drops = (action == DROP) & (seen == EMPTY)
    breaks = (action == TOGGLE) & (kind == BOX)  # boxes are empty, and vanish
    state_of_door, has_key = state_of(seen), hand == KEY + 16 * colour_of(seen)
    turns = (action == TOGGLE) & (kind == DOOR)
    opens = turns & ((state_of_door == CLOSED) | (state_of_door == LOCKED) & has_key)
    closes = turns & (state_of_door == OPEN)

    cells = jnp.where(here & picks, IN_HAND, jnp.where(here & breaks, GONE, state.cells))
    after = State(
        state.family,
        jnp.where(enters, front, state.agent),
        (state.direction + jnp.where(action == LEFT, 3, jnp.where(action == RIGHT, 1, 0))) % 4,
        jnp.where(in_hand & drops, front, cells),
        jnp.where(here & opens, seen - 128 * state_of_door, jnp.where(here & closes, seen + 128 * CLOSED, state.codes)),
        state.steps + 1,
    )
    success = (enters & (seen == GOAL)) | (picks & (kind == BOX)) | (opens & (state.family == UNLOCK))
    terminated = success | (enters & (seen == LAVA)) | collides
    truncated = after.steps >= jnp.asarray(of_all("max_steps"))[state.family]
    return after, Outcome(success, terminated, truncated)
