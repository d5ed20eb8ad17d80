"""Many environments of a setting in one compiled call: `gymnasium.make_vec("procurl/...", num_envs=n)` comes here.

Member i plays exactly what a single environment plays that was reset with the same seed, and `info` has the form that
`gymnasium.vector.SyncVectorEnv` gives it, in all three autoreset modes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jax import Array
from numpy.typing import NDArray

from procurl.envs.host_tasks import KEYS, HostTask, refuse_unknown
from procurl.errors import ConfigError
from procurl.integrations.setting_env import METADATA, Frame, HostSetting, checked_action, noise_key, to_jax
from procurl.programs import jit
from procurl.types import Step, Task

Bools = NDArray[np.bool_]


class SettingVectorEnv(VectorEnv[NDArray[np.float32], Any, NDArray[Any]]):
    """n environments of a setting side by side; the arguments are those of `SettingEnv`.

    `reset`'s options take one context or n, one task seed or n, and Gymnasium's "reset_mask". The next tasks are set
    with `set_next_tasks`, or with the line that also serves Gymnasium's own vector environments,
    `envs.set_attr("next_task", [...])`.
    """

    metadata = METADATA

    def __init__(
        self,
        num_envs: int = 1,
        setting: str = "point-mass-1t",
        *,
        family: str = "",
        tasks: str = "pool",
        render_mode: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        **fields: Any,
    ) -> None:
        self.setting = HostSetting(setting, family, tasks, render_mode, fields)
        self.num_envs, self.render_mode, self.autoreset_mode = num_envs, render_mode, AutoresetMode(autoreset_mode)
        self.metadata = {**self.setting.metadata, "autoreset_mode": self.autoreset_mode}
        self.single_observation_space, self.single_action_space = self.setting.spaces()
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._desks = [self.setting.desk() for _ in range(num_envs)]
        self._rngs: list[np.random.Generator] = [seeding.np_random()[0] for _ in range(num_envs)]
        # of the running episodes:
        self._context = np.zeros((num_envs, self.setting.space.dim), np.float32)  # f32[N, d]
        self._seed, self._row = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64)
        self._noise_seed, self._t = np.zeros(num_envs, np.uint32), np.zeros(num_envs, np.int32)
        self._state: Any = None
        self._obs = np.zeros((num_envs, self.setting.env.obs_size), np.float32)
        self._ended = np.ones(num_envs, bool)
        self._trails: list[list[Any]] = [[] for _ in range(num_envs)]

    def set_next_tasks(self, tasks: Sequence[Sequence[Any] | None]) -> None:
        """For each member (context, task_seed, task_row), e.g. a `procurl.Task`, or None: nothing changes."""
        if len(tasks) != self.num_envs:
            raise ConfigError(f"{len(tasks)} tasks for {self.num_envs} environments: expected one or None for each")
        for desk, task in zip(self._desks, tasks, strict=True):
            if task is not None:
                desk.set_next(*task)

    def set_attr(self, name: str, values: Sequence[Sequence[Any] | None]) -> None:
        """`set_attr("next_task", tasks)` is `set_next_tasks(tasks)`; nothing else can be set."""
        if name != "next_task":
            raise ConfigError(f"cannot set {name!r}: only 'next_task'")
        self.set_next_tasks(values)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        refuse_unknown(options, (*KEYS, "reset_mask"))
        where = self._mask((options or {}).get("reset_mask"))
        if self._state is None and not where.all():
            raise gymnasium.error.ResetNeeded("the first reset must be of all environments: leave out reset_mask")
        seeds: Any = seed if np.ndim(seed) else [None if seed is None else seed + i for i in range(self.num_envs)]  # type: ignore[arg-type, operator]
        if len(seeds) != self.num_envs:
            raise ConfigError(
                f"{len(seeds)} seeds for {self.num_envs} environments: expected one number or one for each"
            )
        for i in _members(where):
            if seeds[i] is not None:
                self._rngs[i] = seeding.np_random(int(seeds[i]))[0]
        self._restart(where, self._per_member(options))
        return self._obs.copy(), self._info(where)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        restarts = self._ended
        if self._state is None or (self.autoreset_mode is AutoresetMode.DISABLED and restarts.any()):
            raise gymnasium.error.ResetNeeded(f"step before a reset of environments {np.flatnonzero(restarts)}")
        action = checked_action(actions, self.action_space)
        noise_seed, t = self._noise_seed.copy(), self._t.copy()  # as in `to_jax`
        self._state, outcome = _advance_all(self.setting.env, noise_seed, t, self._state, action)
        self._t += 1
        self._obs = np.array(outcome.obs)
        reward, success = np.array(outcome.reward, np.float64), np.array(outcome.success)
        terminated, truncated = np.array(outcome.terminated), np.array(outcome.truncated)

        infos: dict[str, Any] = {}
        if self.autoreset_mode is AutoresetMode.NEXT_STEP and restarts.any():
            reward[restarts], terminated[restarts], truncated[restarts] = 0.0, False, False
            self._restart(restarts)
        self._leave_trails(~restarts)
        self._ended = terminated | truncated
        if self.autoreset_mode is AutoresetMode.SAME_STEP and self._ended.any():
            restarts = self._ended
            for i in _members(restarts):  # before the next task takes the place of the one that was played
                final = {**self._task(i).info(), "is_success": bool(success[i])}
                infos = self._add_info(infos, {"final_obs": self._obs[i].copy(), "final_info": final}, i)
            self._restart(restarts)
        infos |= self._info(np.ones(self.num_envs, bool))
        if not restarts.all():
            infos |= {"is_success": success & ~restarts, "_is_success": ~restarts}
        return self._obs.copy(), reward, terminated, truncated, infos

    def render(self) -> tuple[Frame, ...] | None:  # type: ignore[override]
        if self.render_mode is None or self.setting.scene is None or self._state is None:
            return None
        return tuple(self.setting.scene.draw(trail, c) for trail, c in zip(self._trails, self._context, strict=True))

    def _restart(self, where: Bools, options: Sequence[dict[str, Any]] | None = None) -> None:
        """Deal tasks to the members in `where` and put those at their beginnings."""
        picked = {i: self._desks[i].pick(options[i] if options else None) for i in _members(where)}
        for i, named in picked.items():
            task, self._noise_seed[i] = self.setting.deal(named, self._rngs[i])
            self._context[i], self._seed[i], self._row[i] = task.context, task.seed, task.row  # type: ignore[assignment]
        begun, obs = begin_all(self.setting.env, to_jax(self._context, self._seed, self._row))
        self._state = begun if self._state is None else _select(where, begun, self._state)
        self._obs = np.where(where[:, None], obs, self._obs)
        self._t[where] = 0
        self._ended = self._ended & ~where
        for i in _members(where):
            self._trails[i] = []
        self._leave_trails(where)

    def _task(self, i: int) -> HostTask:
        return HostTask(self._context[i], int(self._seed[i]), int(self._row[i]))

    def _info(self, where: Bools) -> dict[str, Any]:
        info = {
            "context": np.where(where[:, None], self._context, np.float32(0)),
            "task_seed": np.where(where, self._seed, 0),
            "task_row": np.where(where, self._row, 0),
        }
        return info | {f"_{key}": where.copy() for key in info}

    def _per_member(self, options: dict[str, Any] | None) -> list[dict[str, Any]]:
        """The options' tasks, one dictionary per member; a single context or seed is for all."""
        given = {key: np.asarray(options[key]) for key in KEYS if options and options.get(key) is not None}
        for key, value in given.items():
            single = 1 if key == "context" else 0  # its dimensions where it is for all
            if value.ndim > single + 1 or (value.ndim == single + 1 and len(value) != self.num_envs):
                raise ConfigError(f"{key} has shape {value.shape}: expected one, or one for each of {self.num_envs}")
            if value.ndim <= single:
                given[key] = np.broadcast_to(value, (self.num_envs, *value.shape))
        return [{key: value[i] for key, value in given.items()} for i in range(self.num_envs)]

    def _mask(self, mask: Any) -> Bools:
        if mask is None:
            return np.ones(self.num_envs, bool)
        given = np.asarray(mask)
        if given.shape != (self.num_envs,) or given.dtype != bool or not given.any():
            raise ConfigError(f"reset_mask = {mask}: expected {self.num_envs} booleans, at least one of them true")
        return given

    def _leave_trails(self, where: Bools) -> None:
        if self.render_mode is not None and self.setting.scene is not None:
            at = np.asarray(self.setting.scene.position(self._state))
            for i in _members(where):
                self._trails[i].append(at[i])


def _members(where: Bools) -> list[int]:
    return [int(i) for i in np.flatnonzero(where)]


@jit
def begin_all(env: Any, tasks: Task) -> tuple[Any, Array]:
    return jax.vmap(env.reset)(tasks)


@jit
def _advance_all(env: Any, noise_seed: Array, t: Array, state: Any, action: Array) -> tuple[Any, Step]:
    return jax.vmap(env.step)(jax.vmap(noise_key)(noise_seed, t), state, action)


@jit
def _select(where: Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(where.reshape(-1, *(1,) * (a.ndim - 1)), a, b), new, old)
