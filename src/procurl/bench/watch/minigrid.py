"""MiniG's JAX environment as Gymnasium plays it, with pictures.

`procurl/MiniG-v0` plays in the public package, whose layouts for a new seed are others than ours: here a run's held-out
tasks are the very layouts that it was evaluated on, and nothing but procurl is needed.
"""

from __future__ import annotations

from typing import Any

from procurl.envs.minigrid.render import render
from procurl.integrations.setting_env import SettingEnv


class MiniGridView(SettingEnv):
    """The board, lighter where the student sees it."""

    def __init__(self, tile: int = 24) -> None:
        super().__init__("minigrid")
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 8}
        self.tile = tile

    def render(self) -> Any:
        return render(self.state, self.tile)
