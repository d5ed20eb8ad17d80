"""The student as its teacher sees it: a value for every task, and nothing else."""

from __future__ import annotations

from typing import NamedTuple

import jax
from jax import Array

from procurl.programs import innermost_trace
from procurl.students import nets
from procurl.students.nets import Params
from procurl.types import Critic, Env, Task

BLOCK = 2048  # tasks valued at once: with several seeds side by side, more would fall out of a CPU's cache


class StudentCritic(NamedTuple):
    """V(task): the critic at the task's first observation (the context is part of it)."""

    env: Env
    params: Params

    def value(self, tasks: Task) -> Array:
        def value_of_one(task: Task) -> Array:
            return nets.value(self.params, self.env.reset(task)[1])

        return jax.lax.map(value_of_one, tasks, batch_size=min(BLOCK, tasks.seed.shape[0]))


class Overheard:
    """A critic whose answers are kept, for the record of what a teacher was told."""

    def __init__(self, critic: Critic) -> None:
        self._critic, self._here = critic, innermost_trace()
        self.answers: list[tuple[Task, Array]] = []

    def value(self, tasks: Task) -> Array:
        value = self._critic.value(tasks)
        if innermost_trace() == self._here:  # what is asked inside a loop of the teacher's own cannot leave that loop
            self.answers.append((tasks, value))
        return value
