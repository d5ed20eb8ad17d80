"""MiniG on the public `minigrid` package: the setting of `procurl.make("minigrid")` for Gymnasium and its libraries.

`gymnasium.make("procurl/MiniG-v0")` comes here (see `gymnasium.py`, which also says what a task is). The package plays;
nothing here computes with JAX. On the pool's tasks every step equals that of the JAX environment. For any other seed
the two draw different layouts, from the same distribution; and the obstacles' moves are the package's, which are a
function of the seed and the actions.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from procurl.envs.host_tasks import KEYS, N_SEEDS, HostTask, TakesTasks, TaskDesk, integer, refuse_unknown
from procurl.envs.minigrid.families import BITS, BLOCKED, SKILLS, nearest_family
from procurl.envs.minigrid.pool import FAMILY_OF_SEED
from procurl.errors import ConfigError, needs_extra, unknown_name

with needs_extra("minigrid", "procurl.integrations.minigrid needs {}", "minigrid"):
    from procurl.envs.minigrid import package

HIGHEST = np.array([255] * 147 + [3] + [1] * 8, np.float32)  # the view as the package declares it, direction, skills


class MiniG(TakesTasks, gymnasium.Env[NDArray[np.float32], Any]):
    """Six missions; the eight skill bits of a task say which one, and its seed is handed to the package.

    Skills that no mission has are replaced by those of the nearest one, in the observation and in `info` as well.

    Args:
        tasks: where a task comes from that is not given: "pool", the 1000 training tasks, or "targets", a new layout
            of Blocked Unlock Pickup every time.
        render_mode: None or "rgb_array": the package's own pictures.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 (Gymnasium declares it so)

    def __init__(self, *, tasks: str = "pool", render_mode: str | None = None) -> None:
        if tasks not in ("pool", "targets"):
            raise unknown_name("set of tasks", tasks, ("pool", "targets"))
        if render_mode not in (None, "rgb_array"):
            raise ConfigError(f"render_mode = {render_mode!r}: expected None or rgb_array")
        self.tasks, self.render_mode = tasks, render_mode
        self.observation_space = spaces.Box(np.zeros_like(HIGHEST), HIGHEST)
        self.action_space = spaces.Discrete(7)
        self._desk = TaskDesk(np.zeros(len(SKILLS)), np.ones(len(SKILLS)), SKILLS)
        self._missions: dict[int, package.MiniGridEnv] = {}  # by family, made when first played
        self._family = BLOCKED

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        refuse_unknown(options, KEYS)
        task = self._desk.pick(options) or self._draw()
        self._family = int(nearest_family(task.context))  # type: ignore[arg-type]  # NumPy's will do
        task_seed = int(self.np_random.integers(N_SEEDS)) if task.seed is None else task.seed
        self._desk.playing = HostTask(BITS[self._family], task_seed, task.row)
        if self._family not in self._missions:
            self._missions[self._family] = package.make(self._family, render_mode=self.render_mode)
        obs, _ = self._missions[self._family].reset(seed=task_seed)
        return package.observation(self._family, obs), self._desk.playing.info()

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        if self._desk.playing is None:
            raise gymnasium.error.ResetNeeded("step before the first reset: no task has been given yet")
        action = integer("action", action, 0, 7)
        obs, given, terminated, truncated, _ = self._missions[self._family].step(action)
        reward = package.reward(float(given))
        info = self._desk.playing.info() | {"is_success": reward > 0}
        return package.observation(self._family, obs), reward, terminated, truncated, info

    def render(self) -> NDArray[np.uint8] | None:  # type: ignore[override]
        return None if self._desk.playing is None else self._missions[self._family].render()

    def _draw(self) -> HostTask:
        if self.tasks == "targets":
            return HostTask(BITS[BLOCKED], None, -1)
        row = int(self.np_random.integers(len(FAMILY_OF_SEED)))
        return HostTask(BITS[FAMILY_OF_SEED[row]], row, row)
