"""procurl's settings as Gymnasium environments: NumPy in and out, a compiled JAX step underneath.

`gymnasium.make("procurl/...")` comes here (see `gymnasium.py`, which also says what a task is); many at once are in
`setting_vector.py`. Step k of an episode uses the key `noise_key(noise_seed, k)`, and everything else that is random
comes from the generator that `reset(seed=...)` seeds.
"""

from __future__ import annotations

from functools import cache
from pkgutil import resolve_name
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium import spaces
from jax import Array
from numpy.typing import NDArray

from procurl import envs
from procurl.envs.catalogue import CATALOGUE
from procurl.envs.host_tasks import KEYS, N_SEEDS, HostTask, TakesTasks, TaskDesk, finite_action, refuse_unknown
from procurl.envs.pictures import Frame, Scene
from procurl.errors import ConfigError, unknown_name
from procurl.programs import jit
from procurl.types import Continuous, Step, Task, TaskSpace

METADATA: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}


class SettingEnv(TakesTasks, gymnasium.Env[NDArray[np.float32], Any]):
    """One environment of a setting.

    Args:
        setting: as in `procurl list`, e.g. "point-mass-2g".
        family: settings must begin with this word ("point-mass"); each id of Gymnasium's registry has one.
        tasks: where a task comes from that is not given: "pool", "targets" or "held_out".
        render_mode: None or "rgb_array".
        fields: of the environment, e.g. `noise=0.0`.
    """

    metadata = METADATA  # of the class as well: `gymnasium.make` looks before it builds

    def __init__(
        self,
        setting: str = "point-mass-1t",
        *,
        family: str = "",
        tasks: str = "pool",
        render_mode: str | None = None,
        **fields: Any,
    ) -> None:
        self.setting = HostSetting(setting, family, tasks, render_mode, fields)
        self.metadata, self.render_mode = self.setting.metadata, render_mode
        self.observation_space, self.action_space = self.setting.spaces()  # type: ignore[assignment]
        self._desk = self.setting.desk()
        self.state: Any = None  # of the JAX environment
        self.noise_seed = np.uint32(0)
        self._t = 0
        self._trail: list[NDArray[np.float32]] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        refuse_unknown(options, KEYS)
        task, self.noise_seed = self.setting.deal(self._desk.pick(options), self.np_random)
        self.state, obs = _begin(self.setting.env, to_jax(task.context, task.seed, task.row))
        self._desk.playing, self._t, self._trail = task, 0, []
        self._leave_trail()
        return np.array(obs), task.info()

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        if self._desk.playing is None:
            raise gymnasium.error.ResetNeeded("step before the first reset: no task has been given yet")
        action = checked_action(action, self.action_space)
        self.state, outcome = _advance(self.setting.env, self.noise_seed, self._t, self.state, action)
        self._t += 1
        self._leave_trail()
        info = self._desk.playing.info() | {"is_success": bool(outcome.success)}
        flags = bool(outcome.terminated), bool(outcome.truncated)
        return np.array(outcome.obs), float(outcome.reward), *flags, info

    def render(self) -> Frame | None:  # type: ignore[override]
        if self.render_mode is None or self.setting.scene is None or self._desk.playing is None:
            return None
        return self.setting.scene.draw(self._trail, self._desk.playing.context)

    def _leave_trail(self) -> None:
        if self.render_mode is not None and self.setting.scene is not None:
            self._trail.append(np.asarray(self.setting.scene.position(self.state)))


class HostSetting:
    """A setting on the host: what the single and the vector environment have in common."""

    def __init__(self, setting: str, family: str, tasks: str, render_mode: str | None, fields: dict[str, Any]) -> None:
        settings = [name for name in envs.SETTINGS if name.startswith(family)]
        if setting not in settings:
            raise unknown_name("setting", setting, settings)
        if tasks not in ("pool", "targets", "held_out"):
            raise unknown_name("set of tasks", tasks, ("pool", "targets", "held_out"))
        self.env, self.space = _make(setting, tuple(sorted(fields.items())))
        where = next((entry.scene for entry in CATALOGUE if setting in entry.settings), None)  # None: one's own
        self.scene: Scene | None = resolve_name(where) if where else None
        if render_mode not in (None, *(["rgb_array"] if self.scene else [])):
            raise ConfigError(f"render_mode = {render_mode!r}: expected None{' or rgb_array' if self.scene else ''}")
        self.tasks = _on_host(setting, tasks)
        self.low, self.high = np.asarray(self.space.low), np.asarray(self.space.high)
        self.metadata = {**METADATA, "render_fps": self.scene.fps} if self.scene else {"render_modes": []}

    def spaces(self) -> tuple[spaces.Box, spaces.Box | spaces.Discrete]:
        """Of observations and actions."""
        reach = np.full(self.env.obs_size, np.inf, np.float32)
        low, high = -reach, reach.copy()
        if self.scene is not None:
            n = len(self.scene.reach)
            low[:n], high[:n] = -np.array(self.scene.reach), self.scene.reach
            low[n:], high[n:] = self.low, self.high
        action = self.env.action
        if isinstance(action, Continuous):
            return spaces.Box(low, high), spaces.Box(action.low, action.high, (action.size,), np.float32)
        return spaces.Box(low, high), spaces.Discrete(action.size)

    def desk(self) -> TaskDesk:
        return TaskDesk(self.low, self.high, self.space.names)

    def deal(self, task: HostTask | None, rng: np.random.Generator) -> tuple[HostTask, np.uint32]:
        """The episode's task and the seed of its noise; a task that is not given is drawn from `tasks`."""
        # drawn first: the noise of an episode then depends on the seed of `reset` and not on the task
        noise_seed = rng.integers(2**32, dtype=np.uint32)
        if task is None:
            i = int(rng.integers(len(self.tasks.context)))
            seed = None if self.space.fresh_seeds else int(self.tasks.seed[i])
            task = HostTask(np.asarray(self.tasks.context[i]), seed, int(self.tasks.row[i]))
        return task if task.seed is not None else task._replace(seed=int(rng.integers(N_SEEDS))), noise_seed


def noise_key(noise_seed: Any, step: Any) -> Array:
    """The key of an episode's step, counted from 0."""
    return jax.random.fold_in(jax.random.key(noise_seed), step)


# The environment is an argument: all instances of a setting share one compiled program.
@jit
def _begin(env: Any, task: Task) -> tuple[Any, Array]:
    return env.reset(task)


@jit
def _advance(env: Any, noise_seed: Array, t: Array, state: Any, action: Array) -> tuple[Any, Step]:
    return env.step(noise_key(noise_seed, t), state, action)


def to_jax(context: Any, seed: Any, row: Any) -> Task:
    """Copies: on a CPU, JAX keeps using the memory of a NumPy array, and the caller goes on to write into it."""
    return Task(np.array(context, np.float32), np.array(seed, np.int32), np.array(row, np.int32))  # type: ignore[arg-type]


@cache
def _make(setting: str, fields: tuple[tuple[str, Any], ...]) -> tuple[Any, TaskSpace]:
    return envs.make(setting, **dict(fields))


@cache
def _on_host(setting: str, tasks: str) -> Task:
    return jax.tree.map(np.asarray, getattr(_make(setting, ())[1], tasks))


def checked_action(action: Any, space: spaces.Space[Any]) -> Any:
    """JAX would clamp a discrete action that does not exist in silence."""
    if isinstance(space, spaces.Box):
        return finite_action(action, space.shape).astype(np.float32)
    given = np.asarray(action)
    if given.shape != space.shape:
        raise ConfigError(f"action has shape {given.shape}: expected {space.shape}")
    if not space.contains(given.astype(space.dtype)):
        raise ConfigError(f"action = {action}: expected one of {space}")
    return given.astype(np.int32)
