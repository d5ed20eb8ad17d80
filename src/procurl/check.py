"""Contracts, as functions anybody can call on their own classes: `check_space`, `check_env`, `check_teacher`.

Each gathers every problem and raises one error that lists them; if the contract holds, it returns notes on what may be
meant, but often is a slip. What is asked is in `procurl.contracts`; `procurl check` is the same on the command line.
`train` calls the cheap part (`require_fit`) before it starts.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from procurl.contracts.env import env_findings
from procurl.contracts.space import basic_findings, space_findings
from procurl.contracts.teacher import CRITICS, imagined_episodes, teacher_findings
from procurl.errors import ProcurlError, SpaceError
from procurl.types import Env, HostEnv, TaskSpace, Teacher

__all__ = [
    "CRITICS", "CheckError", "check_env", "check_space", "check_teacher", "imagined_episodes", "require_fit",
    "require_space",
]  # fmt: skip


class CheckError(ProcurlError, AssertionError):
    """A class that does not keep its contract."""


def require_fit(env: Env | HostEnv, teacher: Teacher) -> None:
    """What must hold before training: a sound task space, and an environment that plays it."""
    require_space(teacher.space)
    if isinstance(env, HostEnv):
        return  # its own processes will say
    task = jax.tree.map(lambda x: x[0], teacher.space.pool)
    obs = jax.eval_shape(env.reset, task)[1]
    if obs.shape != (env.obs_size,) or obs.dtype != jnp.float32:
        raise CheckError(
            f"{type(env).__name__}.reset gives an observation {obs.dtype}{list(obs.shape)}, "
            f"but obs_size says float32[{env.obs_size}]"
        )


def require_space(space: TaskSpace) -> None:
    """Shapes and bounds: cheap for a million tasks."""
    basic_findings(space).raise_problems(_named(space), SpaceError)


def check_space(space: TaskSpace) -> tuple[str, ...]:
    """Bounds, pool, targets, held-out tasks, target distribution and projection agree with each other."""
    found = space_findings(space)
    found.raise_problems(_named(space), SpaceError)
    return tuple(found.notes)


def check_env(env: Env, space: TaskSpace, steps: int = 50) -> tuple[str, ...]:
    """Reset is a function of the task, step is pure, outcomes are finite, and nothing breaks under jit and vmap.

    `steps` are played with random actions; with `env.max_steps` of them the end of an episode is checked as well.
    """
    require_space(space)
    found = env_findings(env, space, steps)
    found.raise_problems(type(env).__name__, CheckError)
    return tuple(found.notes)


def check_teacher(teacher: Teacher, n: int = 64) -> tuple[str, ...]:
    """The contract of `procurl.types.Teacher`, under critics and records from sensible to absurd."""
    require_space(teacher.space)
    found = teacher_findings(teacher, n)
    found.raise_problems(type(teacher).__name__, CheckError)
    return tuple(found.notes)


def _named(space: TaskSpace) -> str:
    return f"task space {space.name!r}" if space.name else "task space"
