"""Contracts, as functions anybody can call on their own classes: `check_space`, `check_env`, `check_teacher`.

Each gathers every problem and raises one error that lists them; if the contract holds, it returns notes on what may be
intended, but is often a slip. The contracts are in the other files; `procurl check` does the same on the command line.
`train` calls the cheap part (`require_fit`) before it starts.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from procurl.check.env import env_findings
from procurl.check.space import name_of, require_space, require_task_space, space_findings
from procurl.check.teacher import teacher_findings
from procurl.config import Config
from procurl.devices import require_32_bits
from procurl.errors import CheckError, ConfigError, SpaceError
from procurl.types import Env, HostEnv, TaskSpace, Teacher

__all__ = [
    "check_env", "check_space", "check_teacher",
    "require_env", "require_fit", "require_kinds", "require_teacher",
]  # fmt: skip


def require_kinds(env: Any, teacher: Any, config: Any, callback: Any = None) -> None:
    """The parts of a run are what they should be: a name or a class in place of an object is a common slip."""
    require_teacher(teacher)
    require_env(env)
    if not isinstance(config, Config):
        raise ConfigError(f"config = {config!r}: expected procurl.Config(...), or procurl.preset(NAME)")
    if callback is not None and not callable(callback):
        raise ConfigError(f"callback = {callback!r}: expected a function of one argument, a procurl.Progress")


def require_env(env: Any) -> None:
    require_32_bits()
    if isinstance(env, type) or not (isinstance(env, HostEnv) or (hasattr(env, "reset") and hasattr(env, "step"))):
        raise ConfigError(f"env = {env!r}: expected an environment, e.g. the first of procurl.make(NAME)")


def require_teacher(teacher: Any) -> None:
    require_32_bits()
    methods = all(hasattr(teacher, name) for name in ("init", "propose", "observe"))
    if isinstance(teacher, type) or not methods or not isinstance(getattr(teacher, "space", None), TaskSpace):
        raise ConfigError(f"teacher = {teacher!r}: expected a teacher, e.g. procurl.make_teacher(NAME, space)")


def require_fit(env: Env | HostEnv, teacher: Teacher) -> None:
    """What must hold before training: a sound task space, and an environment that plays it."""
    require_space(teacher.space)
    if isinstance(env, HostEnv):
        return  # its worker processes will find out
    if getattr(env, "by_number", False) and getattr(teacher, "invents", False):
        raise ConfigError(
            f"{type(env).__name__} looks its tasks up by their number (by_number), and {type(teacher).__name__} "
            f"invents contexts, which have none: give make_teacher(..., on_pool=True), leave redraw_every out, or take "
            f"a strategy over the pool, e.g. plr"
        )
    task = jax.tree.map(lambda x: x[0], teacher.space.pool)
    obs = jax.eval_shape(env.reset, task)[1]
    if obs.shape != (env.obs_size,) or obs.dtype != jnp.float32:
        raise CheckError(
            f"{type(env).__name__}.reset gives an observation {obs.dtype}{list(obs.shape)}, "
            f"but obs_size says float32[{env.obs_size}]"
        )


def check_space(space: TaskSpace) -> tuple[str, ...]:
    """Bounds, pool, targets, held-out tasks, target distribution and projection agree with each other."""
    require_task_space(space)
    found = space_findings(space)
    found.raise_problems(name_of(space), SpaceError)
    return tuple(found.notes)


def check_env(env: Env, space: TaskSpace, steps: int | None = None) -> tuple[str, ...]:
    """Reset is a function of the task, step is pure, outcomes are finite, and nothing breaks under jit and vmap.

    One whole episode is played with random actions, on 16 tasks; at most `steps` of it, if they are given.
    """
    require_env(env)
    require_space(space)
    found = env_findings(env, space, steps)
    found.raise_problems(type(env).__name__, CheckError)
    return tuple(found.notes)


def check_teacher(teacher: Teacher, n: int = 64) -> tuple[str, ...]:
    """The contract of `procurl.types.Teacher`, under critics and records from sensible to absurd."""
    require_teacher(teacher)
    require_space(teacher.space)
    found = teacher_findings(teacher, n)
    found.raise_problems(type(teacher).__name__, CheckError)
    return tuple(found.notes)
