"""The student as its teacher sees it: a value for every task, episodes on demand, and nothing else."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl.check.numbers import whole
from procurl.errors import ConfigError, cannot_play
from procurl.programs import innermost_trace
from procurl.students import nets
from procurl.students.acting import acting
from procurl.students.episodes import most_each, play_out
from procurl.students.nets import Params
from procurl.types import Env, Rollouts, Task, Values, random_seeds

BLOCK = 2048  # tasks valued at once: with several seeds side by side, more would fall out of a CPU's cache


class StudentCritic(NamedTuple):
    """V(task): the critic at the task's first observation (the context is part of it)."""

    env: Env
    params: Params

    def value(self, tasks: Task) -> Array:
        def value_of_one(task: Task) -> Array:
            return nets.value(self.params, self.env.reset(task)[1])

        return jax.lax.map(value_of_one, tasks, batch_size=min(BLOCK, tasks.seed.shape[0]))


class Player(NamedTuple):
    """The student, playing on demand."""

    env: Env
    params: Any
    fresh_seeds: bool  # every episode is a new instance of its task's context, as in training

    def play(self, key: Array, tasks: Task, k: int, when: Array | bool = True) -> Rollouts:
        k_seed, k_play = jax.random.split(key)
        episodes = jax.tree.map(lambda x: jnp.repeat(x, k, axis=0), tasks)
        if self.fresh_seeds:
            episodes = episodes._replace(seed=random_seeds(k_seed, episodes.seed.shape))
        outcome = play_out(self.env, acting(self.params, *self.env.action[1:]), episodes, k_play, when=when)
        ret, success = (jnp.mean(x.reshape(-1, k), axis=1, dtype=jnp.float32) for x in outcome[:2])
        return Rollouts(ret, success, steps=jnp.sum(outcome.length.astype(jnp.int32)))


class Overheard:
    """What a teacher asks of a student, and what it is told: values and, of a player, episodes.

    The answers are kept for the record, and the steps of those episodes are counted.
    """

    def __init__(self, critic: Values, player: Player | None = None) -> None:
        self._critic, self._player, self._here = critic, player, innermost_trace()
        self.answers: list[tuple[Task, Array]] = []
        self.steps: Array | None = None  # i32  played for the teacher alone; None: it asked for none

    def value(self, tasks: Task) -> Array:
        value = self._critic.value(tasks)
        if innermost_trace() == self._here:  # what is asked inside a loop of the teacher's own cannot leave that loop
            self.answers.append((tasks, value))
        return value

    def play(self, key: Array, tasks: Task, k: int, when: Array | bool = True) -> Rollouts:
        if self._player is None:
            raise cannot_play()
        if innermost_trace() != self._here:
            raise ConfigError(
                "critic.play inside lax.cond, a loop or a vmap of the teacher's own: its steps could not be counted. "
                "Call it outside, with when=... for the iterations in which nothing is to be played"
            )
        k = whole("critic.play: k", k, 1, most_each(len(tasks.seed)))
        rollouts = self._player.play(key, tasks, k, when)
        self.steps = rollouts.steps if self.steps is None else self.steps + rollouts.steps
        return rollouts
