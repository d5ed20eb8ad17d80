"""The benchmark settings: SETTINGS maps a name to a function that builds (environment, task space)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

from procurl.check.fields import checked_fields
from procurl.devices import require_32_bits
from procurl.envs import maze, minigrid, point_mass
from procurl.envs.bipedal.space import BoxWalker, bipedal_space
from procurl.errors import unknown_name
from procurl.types import TaskSpace

SETTINGS: dict[str, tuple[type, Callable[..., TaskSpace]]] = {
    "point-mass-1t": (point_mass.PointMass, partial(point_mass.space, "1t")),
    "point-mass-2g": (point_mass.PointMass, partial(point_mass.space, "2g")),
    "point-mass-1g": (point_mass.PointMass, partial(point_mass.space, "1g")),
    "maze-plane": (maze.Maze, partial(maze.space, "plane")),
    "maze-1t": (maze.Maze, partial(maze.space, "1t")),
    "maze-1g": (maze.Maze, partial(maze.space, "1g")),
    "maze-2g": (maze.Maze, partial(maze.space, "2g")),
    "minigrid": (minigrid.MiniGrid, minigrid.space),
    "bipedal": (BoxWalker, bipedal_space),
}


def make(name: str, **env_fields: Any) -> tuple[Any, TaskSpace]:
    """A setting's environment (`Env`; of `bipedal`: `HostEnv`) and task space: `make("point-mass-1t", noise=0.0)`."""
    if name not in SETTINGS:
        raise unknown_name("setting", name, SETTINGS)
    env_class, build_space = SETTINGS[name]
    require_32_bits()
    checked_fields(env_class, env_fields)
    return env_class(**env_fields), dataclasses.replace(build_space(), name=name)
