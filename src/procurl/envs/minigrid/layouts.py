"""New layouts of the six families: what MiniGrid's generators draw, in distribution, without a single rejected draw.

MiniGrid draws a cell until one is free. Here every draw is a number below the count of the free cells, turned into the
cell of that number, so that a reset is a fixed and short computation. Eight random numbers serve whichever family is
asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from procurl.envs.minigrid.draws import below, nth_bit, nth_other, random_bit
from procurl.envs.minigrid.families import BLOCKED, CROSSING, DYNAMIC, FOUR_ROOMS, UNLOCK
from procurl.envs.minigrid.grid import (
    BALL,
    BOX,
    DOOR,
    EMPTY,
    GOAL,
    GONE,
    KEY,
    LAVA,
    LOCKED,
    N_OBSTACLES,
    N_THINGS,
    OBSTACLE,
    ROW,
    State,
)

CORNER, GOAL_CELL = 1 + ROW, 7 + ROW * 7  # start and goal of the two families on a board of 9 x 9
DOOR_X, ROOM = 6, 5  # of the two rooms of 5 x 5; the second begins right of the door

# A room's 25 cells as bits of a word: cell (x, y) is bit (x - 1) + 5 (y - 1).
WHOLE_ROOM = 2**25 - 1
FIRST_COLUMN = sum(1 << 5 * y for y in range(ROOM))
LAST_COLUMN = FIRST_COLUMN << ROOM - 1
# MiniGrid keeps things away from where the agent provisionally stands while it builds: the middle of the right room.
AROUND_MIDDLE = sum(1 << bit for bit in (7, 11, 12, 13, 17))


def new_layout(key: Array, family: Array) -> State:
    """The first state of a new instance of a family."""
    chance = jax.random.uniform(key, (8,))
    one_of = {CROSSING: crossing(chance), DYNAMIC: dynamic_obstacles(chance), FOUR_ROOMS: four_rooms(chance)}
    agent, direction, cells, codes = rooms(chance, family)  # the three families with a door
    for number, (agent_n, direction_n, cells_n, codes_n) in one_of.items():
        chosen = family == number
        agent = jnp.where(chosen, agent_n, agent)
        direction = jnp.where(chosen, direction_n, direction)
        cells = jnp.where(chosen, cells_n, cells)
        codes = jnp.where(chosen, codes_n, codes)
    return State(family, agent, direction, cells, codes, jnp.int32(0))


def crossing(chance: Array) -> tuple[Array, ...]:
    """A river of lava along one of six lines, with one opening."""
    river, opening = below(6, chance[0]), 1 + below(7, chance[1])
    along = jnp.arange(1, 8)
    line = 2 + 2 * (river % 3)
    lava = jnp.where(river < 3, line + ROW * along, along + ROW * line)
    lava = jnp.where(along == opening, GONE, lava)
    return things(CORNER, 0, [*lava, GOAL_CELL], [LAVA] * 7 + [GOAL])


def dynamic_obstacles(chance: Array) -> tuple[Array, ...]:
    """Four balls anywhere but on the start, the goal and each other."""
    places: list[Array] = []  # 0 .. 48, row by row; 0 is the start and 48 the goal
    for k in range(N_OBSTACLES):
        places.append(nth_other(1 + below(47 - k, chance[k]), places))
    balls = [1 + place % 7 + ROW * (1 + place // 7) for place in places]
    return things(CORNER, 0, [*balls, GOAL_CELL], [OBSTACLE] * N_OBSTACLES + [GOAL])


def four_rooms(chance: Array) -> tuple[Array, ...]:
    """Four gaps in the cross of walls; agent and goal on two of the 256 cells in the rooms and 4 in the gaps."""
    near, far = [1 + below(8, c) for c in chance[:2]], [10 + below(8, c) for c in chance[2:4]]
    gaps = [9 + ROW * near[0], near[1] + ROW * 9, far[0] + ROW * 9, 9 + ROW * far[1]]

    def cell(place: Array) -> Array:
        x, y = place % 16, place // 16
        inside = 1 + x + (x >= 8) + ROW * (1 + y + (y >= 8))
        return jnp.select([place == 256 + k for k in range(4)], gaps, inside)

    start = below(260, chance[4])
    goal = nth_other(below(259, chance[6]), [start])
    return things(cell(start), below(4, chance[5]), [*gaps, cell(goal)], [EMPTY] * 4 + [GOAL])


def rooms(chance: Array, family: Array) -> tuple[Array, ...]:
    """Two rooms and a locked door, its key on the left; by family, a box on the right and a ball before the door."""
    row = below(5, chance[0])
    door_colour, box_colour, ball_colour = (16 * below(6, c) for c in chance[1:4])
    before_door = 1 << ROOM - 1 + ROOM * row  # the cell left of the door

    ball = jnp.where(family == BLOCKED, before_door, 0)
    key_place = random_bit(WHOLE_ROOM & ~ball, chance[4])
    box_place = random_bit(jnp.int32(WHOLE_ROOM & ~AROUND_MIDDLE), chance[5])
    agent, direction = start_in_room(1 << key_place | ball, before_door, chance[6])

    def cell(place: Array, x: int = 1) -> Array:
        return x + place % ROOM + ROW * (1 + place // ROOM)

    door = DOOR_X + ROW * (1 + row)
    box = jnp.where(family == UNLOCK, GONE, cell(box_place, DOOR_X + 1))
    ball = jnp.where(family == BLOCKED, door - 1, GONE)
    codes = [DOOR + 128 * LOCKED + door_colour, KEY + door_colour, BOX + box_colour, BALL + ball_colour]
    return things(cell(agent), direction, [door, cell(key_place), box, ball], codes)


def start_in_room(occupied: Array, before_door: Array, chance: Array) -> tuple[Array, Array]:
    """Place and direction, uniform over the pairs in which the agent stands on a free cell and faces no thing.

    MiniGrid draws both anew until the front cell is empty or a wall, which is the same.
    """
    faces_thing = [
        (occupied & ~FIRST_COLUMN) >> 1 | before_door,  # looking right: the thing is one place further on
        occupied >> ROOM,
        (occupied & ~LAST_COLUMN) << 1,
        occupied << ROOM,
    ]
    allowed = [WHOLE_ROOM & ~occupied & ~facing for facing in faces_thing]
    counts = [jax.lax.population_count(mask) for mask in allowed]
    n = below(sum(counts), chance)
    direction, mask = jnp.int32(0), allowed[0]
    for d in range(1, 4):
        further = (direction == d - 1) & (n >= counts[d - 1])
        n = jnp.where(further, n - counts[d - 1], n)
        direction, mask = jnp.where(further, d, direction), jnp.where(further, allowed[d], mask)
    return nth_bit(mask, n), direction


def things(agent: Array | int, direction: Array | int, cells: Sequence[Any], codes: Sequence[Any]) -> tuple[Array, ...]:
    """As arrays; unused places are GONE."""
    absent = N_THINGS - len(cells)
    return (
        jnp.int32(agent),
        jnp.int32(direction),
        jnp.stack([jnp.int32(c) for c in [*cells, *[GONE] * absent]]),
        jnp.stack([jnp.int32(c) for c in [*codes, *[EMPTY] * absent]]),
    )
