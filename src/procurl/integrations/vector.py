"""A curriculum for Gymnasium's vector environments, in one line:

    envs = CurriculumVectorEnv(envs, curriculum)

It hands every member its tasks and the curriculum its episodes, in all three autoreset modes; your loop only has to
call `envs.observe(value)` now and then.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from procurl.envs.host_tasks import KEYS
from procurl.errors import ConfigError
from procurl.integrations.dealer import Dealer, reported_task
from procurl.integrations.gymnasium import ended_tasks
from procurl.runs.curriculum import Curriculum, Value


class CurriculumVectorEnv(VectorWrapper):
    """A vector environment whose members play what a curriculum picks.

    Args:
        env: of `TaskEnv`s (Sync or Async), or made by `gymnasium.make_vec("procurl/...")`. Make an AsyncVectorEnv with
            `context="forkserver"` or `"spawn"`: a fork copies JAX's threads in the middle of their work, and may hang.
        curriculum: with as many `n_envs` as `env` has.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], curriculum: Curriculum) -> None:
        super().__init__(env)
        self._members: Any = _require_members(env)
        self.curriculum = curriculum
        self._mode = AutoresetMode(env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        self._dealer = Dealer(curriculum, env.num_envs, self._tell, ahead=self._mode is AutoresetMode.SAME_STEP)
        self._ret, self._length = np.zeros(env.num_envs), np.zeros(env.num_envs, np.int64)
        self._over = np.zeros(env.num_envs, bool)  # those whose episode ended in the step before

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        named = [key for key in KEYS if options and key in options]
        if named:
            raise ConfigError(f"options name {named}, but the curriculum picks the tasks")
        where = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)))
        for i in np.flatnonzero(where):
            if self._dealer.ready[i] is None:  # the running episode is cut off
                self._dealer.deal(int(i))
        obs, infos = self.env.reset(seed=seed, options=options)
        self._began(where, infos)
        return obs, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        if self._mode is AutoresetMode.NEXT_STEP and self._over.any():
            restarted = self._over  # this step was their reset
            self._began(restarted, infos)
        else:
            restarted = np.zeros(self.num_envs, bool)
        self._ret += np.where(restarted, 0.0, rewards)
        self._length += ~restarted
        self._over = terminated | truncated
        success = infos.get("final_info", infos).get("is_success", np.zeros(self.num_envs, bool))
        for i, reported in ended_tasks(self._over, infos).items():
            task = self._dealer.ended(i, reported)
            self.curriculum.record(task, ret=float(self._ret[i]), length=int(self._length[i]), success=bool(success[i]))
            self._ret[i], self._length[i] = 0.0, 0
        if self._mode is AutoresetMode.SAME_STEP and self._over.any():
            self._began(self._over, infos)
        return obs, rewards, terminated, truncated, infos

    def observe(self, value: Value | None = None) -> bool:
        """Let the teacher watch, if it is time; `value` as in `Curriculum.observe`. Returns whether it was."""
        for i, task in enumerate(self._dealer.playing):
            if task is not None and self._length[i]:  # its steps so far count
                self.curriculum.record(task, ret=self._ret[i], length=int(self._length[i]), finished=False)
        if not self.curriculum.due:
            return False
        self._dealer.observe(value)
        return True

    def _began(self, where: Any, infos: dict[str, Any]) -> None:
        for i in map(int, np.flatnonzero(where)):
            self._dealer.began(i, reported_task({key: infos[key][i] for key in KEYS if key in infos}))
        self._ret[where], self._length[where] = 0.0, 0

    def _tell(self, i: int, task: Any) -> None:
        self._members.set_attr("next_task", [tuple(task) if k == i else None for k in range(self.env.num_envs)])


def _require_members(env: VectorEnv[Any, Any, Any]) -> Any:
    """What sets the members' tasks: the innermost vector environment, as Gymnasium's wrappers pass nothing on."""
    inner: Any = env.unwrapped
    advice = (
        "every member has to be a procurl.integrations.gymnasium.TaskEnv: make gymnasium.vector.SyncVectorEnv("
        "[make_env] * n) of functions that return one, or gymnasium.make_vec(..., vectorization_mode='sync', "
        "wrappers=[lambda env: TaskEnv(env, space, apply)])"
    )
    if not hasattr(inner, "set_attr"):
        raise ConfigError(f"{type(inner).__name__} is one program for all its members and hands none a task: {advice}")
    if hasattr(inner, "call") and not all(inner.call("has_wrapper_attr", "next_task")):
        raise ConfigError(f"the members of this {type(inner).__name__} take no tasks: {advice}")
    return inner
