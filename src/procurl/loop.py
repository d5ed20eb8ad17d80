"""The paper's Algorithm 1: a teacher picks tasks, a student plays and learns, the teacher watches.

`iteration` is the algorithm, and the first thing to read in this package. `runs/engine.py` compiles it for all seeds at
once, and `runs/train.py` repeats it. The keys at the end of this file guarantee that everything random in iteration
t is a function of (seed, t), whoever runs the algorithm.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from jax import Array

from procurl.config import Config
from procurl.errors import ConfigError
from procurl.students import rollout
from procurl.students.critic import Overheard, Player
from procurl.students.learners import learner_of
from procurl.students.rollout import Envs
from procurl.teachers.base import says
from procurl.types import Env, Episodes, Task, Teacher


class Carry(NamedTuple):
    """Everything that carries over from one iteration to the next."""

    teacher: Any
    student: Any
    envs: Envs


class Happened(NamedTuple):
    """What happened in an iteration, for the record (`runs/trace.py`)."""

    episodes: Episodes
    played: Any  # steps, as the student sees them
    losses: Any  # of its update, a named tuple of numbers
    answers: list[tuple[Task, Array]]  # tasks that the teacher asked about, with the student's values
    asked: Array | None  # i32  steps that the student played for the teacher alone; None: the teacher asks for none


def begin(key: Array, env: Env, teacher: Teacher, config: Config) -> Carry:
    """Before anything is played: a new student faces the teacher's first tasks. `key` is the seed's."""
    k_teacher, k_student, k_pick = begin_keys(key)
    teacher_state = teacher.init(k_teacher)
    first_tasks = teacher.propose(teacher_state, k_pick, config.student.n_envs)
    student = learner_of(config.student, teacher.space).begin(k_student, env, teacher.space)
    return Carry(teacher_state, student, rollout.begin(env, first_tasks))


def iteration(
    carry: Carry, key: Array, t: Array | int, env: Env, teacher: Teacher, config: Config
) -> tuple[Carry, Happened]:
    """One round of Algorithm 1: iteration t, counted from 0."""
    teacher_state, student, envs = carry
    k_pick, k_play, k_learn, k_watch = iteration_keys(key, t)
    learner = learner_of(config.student, teacher.space)  # PPO or SAC

    tasks = teacher.propose(teacher_state, k_pick, config.student.n_steps)  # 1. the teacher picks
    student, envs, played, episodes = learner.play(student, env, envs, tasks, k_play)  # 2. the student plays
    learnt, losses = learner.learn(student, played, episodes, k_learn, t)  # 3. the student learns
    watched = learnt if config.watch_after_update else student
    player = Player(env, watched.params, teacher.space.fresh_seeds)
    critic = Overheard(learner.critic(watched, env), player)
    teacher_state = teacher.observe(teacher_state, k_watch, episodes, critic)  # 4. the teacher watches

    require_said(teacher, plays=critic.steps is not None, withholds=tasks.learn is not None)
    return Carry(teacher_state, learnt, envs), Happened(episodes, played, losses, critic.answers, critic.steps)


def require_said(teacher: Teacher, **does: bool) -> None:
    """Refuse what a teacher does without declaring it: steps would go uncounted, or a learner would not heed it."""
    how = {"plays": "a teacher that calls critic.play", "withholds": "a teacher that gives tasks with `learn`"}
    for what, is_so in does.items():
        if is_so and not says(teacher, what):
            raise ConfigError(f"{how[what]} must say so: {what}: ClassVar[bool] = True in its class")


def begin_keys(key: Array) -> Array:
    """Keys for the teacher's first state, the student's first weights and the first tasks."""
    return jax.random.split(jax.random.fold_in(key, 0), 3)


def iteration_keys(key: Array, t: Array | int) -> Array:
    """Keys to pick, play, learn and watch in iteration t."""
    return jax.random.split(jax.random.fold_in(key, 2 * t + 1), 4)


def evaluation_key(key: Array, t: Array | int) -> Array:
    """The key to evaluate the student after t iterations."""
    return jax.random.fold_in(key, 2 * t + 2)
