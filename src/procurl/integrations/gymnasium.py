"""Gymnasium: `TaskEnv` makes any environment take tasks, and procurl's own environments join Gymnasium's registry.

    import gymnasium, procurl.integrations.gymnasium
    env = gymnasium.make("procurl/PointMass-v0")

Importing this module registers them and does not import JAX, so that workers which wrap another environment stay
light. (Gymnasium 1.0 gave up plugins that register themselves: a package has to be imported once, or named in the id,
as in "procurl.integrations.gymnasium:procurl/PointMass-v0".)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, SupportsFloat

import numpy as np
from numpy.typing import ArrayLike, NDArray

from procurl.envs.catalogue import CATALOGUE
from procurl.envs.host_tasks import KEYS, N_SEEDS, HostTask, TakesTasks, TaskDesk, refuse_unknown
from procurl.errors import ConfigError, needs_extra

with needs_extra("gymnasium", "procurl.integrations.gymnasium needs {}", "gymnasium"):
    import gymnasium
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

if TYPE_CHECKING:
    from procurl.types import TaskSpace

Apply = Callable[[gymnasium.Env[Any, Any], NDArray[np.float32]], object]

# id -> (what its settings' names begin with, the default setting), for the environments that play in JAX
REGISTERED = {
    e.gymnasium_id: (e.name, next(iter(e.settings))) for e in CATALOGUE if e.gymnasium_id and not e.gymnasium_class
}


class TaskEnv(TakesTasks, gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Any Gymnasium environment as one that takes tasks.

    A task is a context and a seed. The context is applied by your function, before the wrapped environment's `reset`;
    the seed is handed to that `reset`, so that the first state is a function of the task alone. Where the next task
    comes from, in this order:

    1. `reset(options={"context": ..., "task_seed": ...})`, for this episode;
    2. the task set beforehand with `set_next_task`, which is used once: the way through automatic resets;
    3. the context of the previous episode, or `default` in the first one. Without either, `reset` raises.

    A task without a seed gets `reset`'s own `seed`, or else a new one. `info` names the task of its episode in every
    `reset` and `step`: "context", "task_seed" and "task_row" (its place in the teacher's pool, where you gave it).

    Args:
        env: the environment to wrap.
        space: the bounds of the context: a `procurl.TaskSpace`, or a `gymnasium.spaces.Box` of one dimension.
        apply: `apply(env, context)` changes the environment (most often `env.unwrapped`). Without it, context and
            seed travel on in the options of the wrapped environment's `reset`.
        default: the context to play before any other is known.
        observe: True appends the context to a vector, and gives a Dict the key "context". For a picture, say which:
            "dict" makes a Dict of "observation", the picture as it is, and "context"; "flat" makes one vector of the
            picture's numbers and the context.
        names: of the context's dimensions, for messages; a `TaskSpace` brings its own.
        pass_options: keys of `options` that are meant for the wrapped environment; others are refused.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        space: TaskSpace | spaces.Box,
        apply: Apply | None = None,
        *,
        default: ArrayLike | None = None,
        observe: bool | Literal["dict", "flat"] = False,
        names: Sequence[str] | None = None,
        pass_options: Sequence[str] = (),
    ) -> None:
        names = names if names is not None else getattr(space, "names", None)
        self._desk = TaskDesk(space.low, space.high, names)
        box = spaces.Box(self._desk.low, self._desk.high, dtype=np.float32)  # no pool: workers stay free of JAX
        RecordConstructorArgs.__init__(
            self, space=box, apply=apply, default=default, observe=observe, names=names, pass_options=pass_options
        )
        gymnasium.Wrapper.__init__(self, env)
        self._apply, self._observe, self._pass_options = apply, observe, tuple(pass_options)
        self._default = None if default is None else self._desk.task(default)
        self._instances = np.random.default_rng()  # seeds of tasks that come without one
        self.context_space = box
        if observe:
            self.observation_space = _with_context(env.observation_space, box, observe)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        refuse_unknown(options, (*KEYS, *self._pass_options))
        task = self._with_seed(self._desk.pick(options) or self._fallback(), seed)
        passed = {key: value for key, value in (options or {}).items() if key in self._pass_options}
        if self._apply is None:
            passed |= {"context": task.context.copy(), "task_seed": task.seed}
            obs, info = self.env.reset(seed=seed, options=passed)
        else:
            self._apply(self.env, task.context.copy())
            obs, info = self.env.reset(seed=task.seed, options=passed or None)
        self._desk.playing = task
        return self._seen(obs, task), {**info, **task.info()}

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        task = self._desk.playing
        if task is None:
            raise gymnasium.error.ResetNeeded("step before the first reset: no task has been given yet")
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self._seen(obs, task), reward, terminated, truncated, {**info, **task.info()}

    def _fallback(self) -> HostTask:
        last = self._desk.playing or self._default
        if last is None:
            raise ConfigError(
                "reset without a task: give options={'context': ...}, call set_next_task before, "
                "or construct TaskEnv(..., default=context)"
            )
        return last._replace(seed=None, row=-1)  # the same context, another instance

    def _with_seed(self, task: HostTask, seed: int | None) -> HostTask:
        """With `default` alone, `reset(seed=s)` is then the wrapped environment's own `reset(seed=s)`."""
        if seed is not None:
            self._instances = np.random.default_rng(seed)
        if task.seed is not None:
            return task
        return task._replace(
            seed=seed if seed is not None and seed < N_SEEDS else int(self._instances.integers(N_SEEDS))
        )

    def _seen(self, obs: Any, task: HostTask) -> Any:
        if not self._observe:
            return obs
        if isinstance(obs, dict):
            return {**obs, "context": task.context.copy()}
        if self._observe == "dict":
            return {"observation": obs, "context": task.context.copy()}
        return np.concatenate([np.ravel(obs), task.context]).astype(self.observation_space.dtype)


def first_observations(probe: gymnasium.Env[Any, Any], tasks: Any) -> Any:
    """The first observation of each task of a batch, in an environment that takes tasks and is not being played.

    A `Task` of NumPy arrays gives an array with a leading axis of tasks, or a dictionary of those.
    """
    each = zip(tasks.context, tasks.seed, tasks.row, strict=True)
    first = [probe.reset(options=dict(zip(KEYS, (c, int(s), int(r)), strict=True)))[0] for c, s, r in each]
    return (
        {key: np.stack([obs[key] for obs in first]) for key in first[0]}
        if isinstance(first[0], dict)
        else np.stack(first)
    )


def ended_tasks(ended: ArrayLike, infos: dict[str, Any]) -> dict[int, HostTask]:
    """Member -> (context, seed, row) of the episode that ended in this step of a vector environment.

    Right in every autoreset mode. Reading `infos["context"]` is not: where a member resets within the step, that is
    already the next episode's context.
    """
    last = infos.get("final_info", infos)
    return {
        int(i): HostTask(last["context"][i], int(last["task_seed"][i]), int(last["task_row"][i]))
        for i in np.flatnonzero(ended)
    }


def _with_context(observation_space: spaces.Space[Any], context: spaces.Box, observe: Any) -> spaces.Space[Any]:
    """The space of observations that tell the context."""
    if observe not in (True, "dict", "flat"):
        raise ConfigError(f"observe = {observe!r}: expected False, True, 'dict' or 'flat'")
    if isinstance(observation_space, spaces.Dict):
        if "context" in observation_space.spaces:
            raise ConfigError(f"the observation already has a key 'context': leave out observe={observe!r}")
        return spaces.Dict({**observation_space.spaces, "context": context})
    if observe == "dict":
        return spaces.Dict({"observation": observation_space, "context": context})
    if not isinstance(observation_space, spaces.Box):
        raise ConfigError(
            f"observe={observe!r} needs observations in a Box or a Dict, not {observation_space}: wrap the environment "
            f"in gymnasium.wrappers.FlattenObservation first, take observe='dict', or leave it out"
        )
    if observe is True and _is_picture(observation_space):
        raise ConfigError(
            f"observe=True: the observation is a picture, {observation_space}, and a context cannot be appended to it. "
            f"Choose observe='dict', which keeps the picture for a convolutional network (MultiInputPolicy of "
            f"Stable-Baselines3), or observe='flat', one vector of all its numbers and the context"
        )
    wide = observation_space.dtype == np.float64
    low = np.concatenate([observation_space.low.ravel(), context.low])
    high = np.concatenate([observation_space.high.ravel(), context.high])
    return spaces.Box(low, high, dtype=np.float64 if wide else np.float32)


def _is_picture(box: spaces.Box) -> bool:
    return len(box.shape) >= 3 or (len(box.shape) == 2 and box.dtype == np.uint8)


def register() -> None:
    """Put procurl's environments into Gymnasium's registry; a second call does nothing."""
    for entry in CATALOGUE:
        env_id = entry.gymnasium_id
        if env_id is None or env_id in gymnasium.registry:
            continue
        if entry.gymnasium_class is not None:
            gymnasium.register(env_id, entry_point=entry.gymnasium_class)
            continue
        family, setting = REGISTERED[env_id]
        gymnasium.register(
            env_id,
            entry_point="procurl.integrations.setting_env:SettingEnv",
            vector_entry_point="procurl.integrations.setting_vector:SettingVectorEnv",
            kwargs={"setting": setting, "family": family},
        )


register()
