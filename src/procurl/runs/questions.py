"""What a teacher asks of a student on the host: the values of tasks.

A compiled update cannot stop to ask anything outside of JAX. So it is traced once with a critic that only records which
tasks it is asked about (`asked_tasks`); the student values them (`answer`); and the update runs on the answers
(`observe_answered`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from procurl.errors import ConfigError, NonFiniteError, cannot_play
from procurl.programs import jit
from procurl.types import Episodes, Rollouts, Task, Teacher

Value = Callable[[Task], Any]


class RecordingCritic:
    """Records the tasks it is asked about. Answers from a list, or with zeros where there is none."""

    def __init__(self, answers: list[Array] | None = None) -> None:
        self.asked: list[Task] = []
        self.answers = answers

    def value(self, tasks: Task) -> Array:
        self.asked.append(tasks)
        return jnp.zeros(tasks.seed.shape) if self.answers is None else self.answers[len(self.asked) - 1]

    def play(self, key: Array, tasks: Task, k: int, when: Array | bool = True) -> Rollouts:
        raise cannot_play()


@jit
def asked_tasks(teacher: Teacher, state: Any, key: Array, episodes: Episodes) -> list[Task]:
    """The tasks whose values `observe` asks for, in order."""
    critic = RecordingCritic()
    teacher.observe(state, key, episodes, critic)
    return critic.asked


def answer(value: Value, tasks: Any) -> np.ndarray:
    """The student's values of some tasks, f32[n], if they are numbers that a teacher can use."""
    try:
        values = np.array(value(tasks), np.float32)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"value gave no numbers for {len(tasks.seed)} tasks: {error}") from error
    if values.shape != tasks.seed.shape:
        raise ConfigError(
            f"value returned shape {values.shape} for {len(tasks.seed)} tasks: expected {tasks.seed.shape}"
        )
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise NonFiniteError(
            f"value returned {values[bad[0]]} for the context {tasks.context[bad[0]].tolist()} ({len(bad)} of "
            f"{len(values)} tasks): expected finite numbers. The teacher has not watched; look at the weights of "
            f"the student."
        )
    return values


@jit
def observe_answered(
    teacher: Teacher, state: Any, key: Array, episodes: Episodes, answers: list[Array]
) -> tuple[Any, list[Task]]:
    """The teacher's next state, and the tasks whose values it took the answers for."""
    critic = RecordingCritic(answers)
    return teacher.observe(state, key, episodes, critic), critic.asked
