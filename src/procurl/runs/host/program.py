"""The parts of an iteration on the host that are compiled: the teacher picks and watches, the student learns."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh

from procurl.config import SAC
from procurl.loop import begin_keys, iteration_keys
from procurl.programs import Program
from procurl.runs.engine import teach_once
from procurl.runs.seeds import over_seeds
from procurl.runs.trace import Played, traced
from procurl.students import replay, sac
from procurl.students.critic import Overheard
from procurl.students.replay import Replay
from procurl.students.transitions import as_transitions
from procurl.types import Task


class Learner(NamedTuple):
    """What learns, on the devices, with a leading axis of seeds."""

    student: sac.Student
    buffer: Replay


class HostProgram(NamedTuple):
    """Compiled functions (keys, per-seed tree, t, teacher) -> per-seed tree; `learn` gets ((keys, rows), ...)."""

    begin: Any
    propose: Any
    learn: Any
    watch: Any
    only_teach: Any


@lru_cache(maxsize=8)
def program_for(config: SAC, sizes: tuple[int, int], mesh: Mesh, kind: Any) -> HostProgram:
    """One set of compiled functions per config, devices and kind of teacher."""

    def begin(key: Array, _: None, t: Array, teacher: Any) -> Any:
        k_teacher, k_student, k_pick = begin_keys(key)
        state = teacher.init(k_teacher)
        learner = Learner(sac.init(k_student, *sizes, config), replay.empty(config.capacity, *sizes))
        return state, learner, teacher.propose(state, k_pick, config.n_envs)

    def propose(key: Array, state: Any, t: Array, teacher: Any) -> Task:
        k_pick, *_ = iteration_keys(key, t)
        return teacher.propose(state, k_pick, config.n_steps)

    def learn(given: tuple[Array, Array], learner: Learner, t: Array, teacher: Any) -> Any:
        (key, rows), (student, buffer) = given, learner
        _, _, k_learn, _ = iteration_keys(key, t)
        buffer = replay.add(buffer, rows)
        student, losses = sac.learn(student, buffer, config.n_steps // config.every, k_learn, config)
        return Learner(student, buffer), jax.tree.map(jnp.mean, losses)

    def watch(key: Array, given: Any, t: Array, teacher: Any) -> Any:
        state, episodes, rows, slot, model, losses, networks = given
        *_, k_watch = iteration_keys(key, t)
        critic = Overheard(model)
        state = teacher.observe(state, k_watch, episodes, critic)
        seen = _seen(rows, slot, model.value(episodes.task), sizes[0], config.n_envs)
        return state, traced(teacher.space, episodes, seen, losses, critic.answers, networks, state)

    def only_teach(key: Array, given: Any, t: Array, teacher: Any) -> Any:
        state, model = given
        return teach_once(teacher, state, model, key, config)

    def compiled(fn: Callable[..., Any], donate: bool = False) -> Program:
        @wraps(fn)
        def in_full_precision(*args: Any) -> Any:  # a GPU's default (TF32) changes what is learnt
            with jax.default_matmul_precision("highest"):
                return fn(*args)

        return over_seeds(in_full_precision, mesh, donate)

    return HostProgram(compiled(begin), compiled(propose), compiled(learn, True), compiled(watch), compiled(only_teach))


def _seen(rows: Array, slot: Array, values: Array, obs_size: int, n_envs: int) -> Played:
    """The steps for `traced`; `obs` joins the observations before and after a step."""
    rows, slot = (jnp.swapaxes(x.reshape(n_envs, -1, *x.shape[1:]), 0, 1) for x in (rows, slot))  # [T, N, ...]
    step = as_transitions(rows, obs_size)
    obs = jnp.concatenate([step.obs, step.next_obs], axis=-1)
    return Played(obs, step.action, step.reward, jnp.where(slot < 0, 0.0, values[slot]), slot)
