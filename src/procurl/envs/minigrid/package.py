"""The same six families in the public `minigrid` package (extra `[minigrid]`): the original that ours must equal.

MiniG's boards are not all the package's defaults: the rooms are 7 x 7 and the board of Dynamic Obstacles 9 x 9, step
limits follow, and a success is worth 1 whenever it comes. The tool that makes the pool's data, the tests and the
speed benchmark use this file; training does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from minigrid.core.mission import MissionSpace
from minigrid.core.roomgrid import RoomGrid
from minigrid.envs import (
    BlockedUnlockPickupEnv,
    CrossingEnv,
    DynamicObstaclesEnv,
    FourRoomsEnv,
    UnlockEnv,
    UnlockPickupEnv,
)
from minigrid.minigrid_env import MiniGridEnv

from procurl.envs.minigrid.families import BITS, BLOCKED, CROSSING, DYNAMIC, FAMILIES, FOUR_ROOMS, PICKUP, UNLOCK, walls
from procurl.envs.minigrid.grid import EMPTY, GONE, N_THINGS, ROW, WALL

COLOURS = ["blue", "green", "grey", "purple", "red", "yellow"]


def make(family: int, **options: Any) -> MiniGridEnv:
    """One family as the package plays it; `observation` and `reward` translate what it says."""
    return MAKERS[family](max_steps=FAMILIES[family].max_steps, **options)


def observation(family: int, obs: dict[str, Any]) -> np.ndarray:
    """The package's observation as the 156 numbers that the student sees."""
    image = np.asarray(obs["image"], np.float32).reshape(-1)
    return np.concatenate([image, [obs["direction"]], BITS[family]]).astype(np.float32)


def reward(given: float) -> float:
    """The package discounts a success by the time it took and punishes collisions; MiniG gives 1 and 0."""
    return float(given > 0)


def state_arrays(family: int, env: MiniGridEnv) -> dict[str, np.ndarray]:
    """The fields of `grid.State` for the package's environment as it is now (nothing in hand)."""
    shown = env.grid.encode().astype(int)  # [x, y, 3]
    codes = shown[..., 0] + 16 * shown[..., 1] + 128 * shown[..., 2]
    balls = [tuple(ball.cur_pos) for ball in getattr(env, "obstacles", [])]  # first, in the order in which they move
    rest = np.argwhere(codes != np.where(walls(family), WALL, EMPTY)).tolist()
    places = [*balls, *[(x, y) for x, y in rest if (x, y) not in balls]]
    absent = N_THINGS - len(places)
    fields = {
        "family": family,
        "agent": env.agent_pos[0] + ROW * env.agent_pos[1],
        "direction": env.agent_dir,
        "cells": [x + ROW * y for x, y in places] + [GONE] * absent,
        "codes": [codes[x, y] for x, y in places] + [EMPTY] * absent,
        "steps": env.step_count,
    }
    return {name: np.array(value, np.int32) for name, value in fields.items()}


def _two_rooms(env_class: type[RoomGrid], placeholders: list[list[str]]) -> Callable[..., MiniGridEnv]:
    """The package fixes the size of the rooms in the constructor, so that is what must be replaced."""

    class TwoRooms(env_class):  # type: ignore
        def __init__(self, **options: Any) -> None:
            mission = MissionSpace(mission_func=self._gen_mission, ordered_placeholders=placeholders or None)
            RoomGrid.__init__(self, mission_space=mission, num_rows=1, num_cols=2, room_size=7, **options)

    return TwoRooms


MAKERS: dict[int, Callable[..., MiniGridEnv]] = {
    CROSSING: lambda **options: CrossingEnv(size=9, num_crossings=1, **options),
    DYNAMIC: lambda **options: DynamicObstaclesEnv(size=9, n_obstacles=4, **options),
    FOUR_ROOMS: lambda **options: FourRoomsEnv(**options),
    UNLOCK: _two_rooms(UnlockEnv, []),
    PICKUP: _two_rooms(UnlockPickupEnv, [COLOURS]),
    BLOCKED: _two_rooms(BlockedUnlockPickupEnv, [COLOURS, ["box", "key"]]),
}
