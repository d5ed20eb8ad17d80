"""Pictures of a board, as plain arrays: one state in, one RGB image out. For figures and animations, not for learning.

Shapes are drawn as masks over the unit square, three times finer than asked for, and averaged down.
"""

from __future__ import annotations

from functools import cache

import jax
import numpy as np

from procurl.envs.minigrid.families import walls
from procurl.envs.minigrid.grid import (
    BALL,
    BOX,
    CLOSED,
    DOOR,
    EMPTY,
    GOAL,
    GONE,
    IN_HAND,
    KEY,
    LAVA,
    LOCKED,
    ROW,
    WALL,
    State,
)
from procurl.envs.minigrid.view import SIZE, observe

RED, GREEN, BLUE, PURPLE, YELLOW, GREY = range(6)
COLOURS = np.array(
    [(224, 49, 49), (47, 158, 68), (51, 124, 242), (132, 94, 247), (250, 202, 21), (134, 142, 150)], float
)  # fmt: skip
FLOOR, LINE, ORANGE, AGENT = (33, 37, 41), (60, 66, 72), (253, 126, 20), (255, 107, 107)
FINER = 3


def render(state: State, tile: int = 24, highlight: bool = True) -> np.ndarray:
    """u8[height, width, 3]: the board, the agent with what it carries, and (lighter) the cells that it sees."""
    state = jax.tree.map(np.asarray, state)
    codes = board(state)
    image = np.concatenate([np.concatenate([draw(int(c), tile) for c in column]) for column in codes], axis=1)
    image = image.astype(float)
    if highlight:
        for x, y in seen_cells(state):
            cell = image[y * tile : (y + 1) * tile, x * tile : (x + 1) * tile]
            cell += 0.25 * (255 - cell)
    x, y = int(state.agent) % ROW, int(state.agent) // ROW
    cell = image[y * tile : (y + 1) * tile, x * tile : (x + 1) * tile]
    cell[:] = over(cell, agent_mask(int(state.direction), tile), AGENT)
    for code in state.codes[state.cells == IN_HAND]:  # small, at the agent's place
        small = max(tile // 2, 1)
        mask, colour = shape_of(int(code), small)
        cell[-small:, -small:] = over(np.full((small, small, 3), FLOOR, float), mask, colour)
    return image.round().astype(np.uint8)


def board(state: State) -> np.ndarray:
    """The codes of all cells, i[x, y]."""
    codes = np.where(walls(int(state.family)), WALL, EMPTY)
    for cell, code in zip(state.cells, state.codes, strict=True):
        if cell not in (IN_HAND, GONE):
            codes[cell % ROW, cell // ROW] = code
    return codes


def seen_cells(state: State) -> list[tuple[int, int]]:
    """The cells of the board that the agent sees, read from its observation."""
    seen = np.asarray(observe(state))[: 3 * SIZE * SIZE : 3].reshape(SIZE, SIZE) != 0
    fx, fy = [(1, 0), (0, 1), (-1, 0), (0, -1)][int(state.direction)]
    width, height = walls(int(state.family)).shape
    cells = []
    for vx, vy in np.argwhere(seen):
        far, right = SIZE - 1 - vy, vx - SIZE // 2
        x = int(state.agent) % ROW + fx * far - fy * right
        y = int(state.agent) // ROW + fy * far + fx * right
        if 0 <= x < width and 0 <= y < height:
            cells.append((int(x), int(y)))
    return cells


@cache
def draw(code: int, tile: int) -> np.ndarray:
    """One cell, f[tile, tile, 3]."""
    picture = np.broadcast_to(np.array(FLOOR, float), (tile, tile, 3))
    u, v = unit_square(tile)
    picture = over(picture, coarser((u < 0.04) | (v < 0.04)), LINE)
    mask, colour = shape_of(code, tile)
    return over(picture, mask, colour)


def shape_of(code: int, tile: int) -> tuple[np.ndarray, np.ndarray]:
    """Where a thing covers its cell, f[tile, tile] in 0 .. 1, and its colour."""
    u, v = unit_square(tile)
    kind, colour, door = code & 15, COLOURS[code >> 4 & 7], code >> 7
    nothing = np.zeros_like(u, dtype=bool)
    shapes = {
        KEY: (ring(u - 0.5, v - 0.3, 0.1, 0.19) | box(u, v, 0.46, 0.45, 0.54, 0.88) | box(u, v, 0.54, 0.66, 0.68, 0.72))
        | box(u, v, 0.54, 0.8, 0.68, 0.86),
        BALL: np.hypot(u - 0.5, v - 0.5) < 0.32,
        BOX: frame(u, v, 0.14, 0.07) | box(u, v, 0.14, 0.46, 0.86, 0.54),
        LAVA: np.abs((v * 3) % 1 - 0.5 + 0.22 * np.sin(4 * np.pi * u)) > 0.16,
        DOOR: {
            LOCKED: frame(u, v, 0.04, 0.08) | (frame(u, v, 0.18, 0.32) & ~keyhole(u, v)),
            CLOSED: frame(u, v, 0.04, 0.08) | frame(u, v, 0.18, 0.06) | (np.hypot(u - 0.7, v - 0.5) < 0.06),
        }.get(door, box(u, v, 0.84, 0.0, 1.0, 1.0)),
        WALL & 15: ~nothing,
        GOAL & 15: ~nothing,
    }
    plain = {LAVA: np.array(ORANGE, float)}
    return coarser(shapes.get(kind, nothing)), plain.get(kind, colour)


def agent_mask(direction: int, tile: int) -> np.ndarray:
    """A triangle that points along the direction."""
    u, v = unit_square(tile)
    looking_right = (u > 0.14) & (np.abs(v - 0.5) < 0.36 * (0.88 - u) / 0.74)
    return coarser(np.rot90(looking_right, -direction))


def unit_square(tile: int) -> tuple[np.ndarray, np.ndarray]:
    """u to the right, v down."""
    middle = (np.arange(tile * FINER) + 0.5) / (tile * FINER)
    u, v = np.meshgrid(middle, middle)
    return u, v


def box(u: np.ndarray, v: np.ndarray, left: float, top: float, right: float, bottom: float) -> np.ndarray:
    return (u >= left) & (u < right) & (v >= top) & (v < bottom)


def frame(u: np.ndarray, v: np.ndarray, margin: float, width: float) -> np.ndarray:
    inner = margin + width
    outside = box(u, v, margin, margin, 1 - margin, 1 - margin)
    return outside & ~box(u, v, inner, inner, 1 - inner, 1 - inner)


def ring(u: np.ndarray, v: np.ndarray, inner: float, outer: float) -> np.ndarray:
    distance = np.hypot(u, v)
    return (distance > inner) & (distance < outer)


def keyhole(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return (np.hypot(u - 0.5, v - 0.42) < 0.09) | box(u, v, 0.46, 0.45, 0.54, 0.66)


def coarser(mask: np.ndarray) -> np.ndarray:
    tile = mask.shape[0] // FINER
    return mask.reshape(tile, FINER, tile, FINER).mean(axis=(1, 3))


def over(picture: np.ndarray, mask: np.ndarray, colour: np.ndarray | tuple[int, int, int]) -> np.ndarray:
    return picture + mask[..., None] * (np.asarray(colour, float) - picture)
