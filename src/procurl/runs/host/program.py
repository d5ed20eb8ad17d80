"""The parts of an iteration on the host that are compiled: the teacher picks and watches, the student learns."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh

from procurl.config import SAC
from procurl.loop import begin_keys, iteration_keys
from procurl.runs.engine import teach_once
from procurl.runs.seeds import over_seeds
from procurl.runs.trace import traced
from procurl.students import trainee
from procurl.students.critic import Overheard
from procurl.students.replay import Experience
from procurl.students.trainee import Trainee
from procurl.students.transitions import as_transitions
from procurl.types import Task


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
        return state, trainee.begin(k_student, *sizes, config), teacher.propose(state, k_pick, config.n_envs)

    def propose(key: Array, state: Any, t: Array, teacher: Any) -> Task:
        k_pick, *_ = iteration_keys(key, t)
        return teacher.propose(state, k_pick, config.n_steps)

    def learn(given: tuple[Array, Array], learner: Trainee, t: Array, teacher: Any) -> Any:
        key, rows = given
        _, _, k_learn, _ = iteration_keys(key, t)
        return trainee.practise(learner, rows, k_learn, config)

    def watch(key: Array, given: Any, t: Array, teacher: Any) -> Any:
        state, episodes, rows, slot, model, losses, networks = given
        *_, k_watch = iteration_keys(key, t)
        critic = Overheard(model)
        state = teacher.observe(state, k_watch, episodes, critic)
        seen = _seen(rows, slot, model.value(episodes.task), sizes[0], config.n_envs)
        return state, traced(teacher.space, episodes, seen, losses, critic.answers, weights=networks, teacher=state)

    def only_teach(key: Array, given: Any, t: Array, teacher: Any) -> Any:
        state, model = given
        return teach_once(teacher, state, model, key, config)

    return HostProgram(
        over_seeds(begin, mesh),
        over_seeds(propose, mesh),
        over_seeds(learn, mesh, donate=True),
        over_seeds(watch, mesh),
        over_seeds(only_teach, mesh),
    )


def _seen(rows: Array, slot: Array, values: Array, obs_size: int, n_envs: int) -> Experience:
    """The steps for `traced`."""
    rows, slot = (jnp.swapaxes(x.reshape(n_envs, -1, *x.shape[1:]), 0, 1) for x in (rows, slot))  # [T, N, ...]
    return Experience(as_transitions(rows, obs_size), jnp.where(slot < 0, 0.0, values[slot]), slot)
