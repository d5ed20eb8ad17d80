"""The library's own ProCuRL-Target in the bandit: contexts are the psi(c), their correlation is <psi(c), psi(t)>+.

It works in float32 and knows V alone, with V_max = 1 in place of V*(c), as the paper's general rule does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from procurl.bench.theory.bandit import Bandit, Floats
from procurl.check.teacher import imagined_episodes
from procurl.envs.task_space import task_space
from procurl.students.critic import Overheard
from procurl.teachers.procurl import ProCuRLTarget, inner_product
from procurl.types import Task


def procurl_target(bandit: Bandit, beta: float) -> ProCuRLTarget:
    """The teacher, over the tasks of the bandit as its pool and the bandit's target as its target."""
    bound = np.abs(bandit.psi).max(axis=0)
    space = task_space(
        -bound, bound, target=bandit.psi[bandit.target], pool=bandit.psi, n_targets=1, n_held_out=1, fresh_seeds=False,
        value_range=(0.0, 1.0),
    )  # fmt: skip
    product = inner_product(lambda psi: psi)
    return ProCuRLTarget(space, beta=beta, similarity=lambda c, t: jnp.maximum(product(c, t), 0.0))


@dataclass(frozen=True)
class Student:
    """The critic of a student with parameters theta."""

    bandit: Bandit
    theta: Floats

    def value(self, tasks: Task) -> Array:
        rows = np.asarray(tasks.row)  # beyond the pool: the target
        rows = np.where((rows < 0) | (rows >= len(self.bandit.reward)), self.bandit.target, rows)
        return jnp.asarray(self.bandit.value(self.theta, rows), jnp.float32)


def watched(teacher: ProCuRLTarget, student: Student) -> Any:
    """The teacher's state after it has asked for the student's values. It does not look at episodes."""
    k_begin, k_play, k_watch = jax.random.split(jax.random.key(0), 3)
    episodes = imagined_episodes(k_play, jax.tree.map(lambda x: x[:8], teacher.space.pool))
    return teacher.observe(teacher.init(k_begin), k_watch, episodes, Overheard(student))


def probabilities(teacher: ProCuRLTarget, student: Student) -> Floats:
    """Of every task of the pool, f64[n]."""
    return np.asarray(jax.nn.softmax(teacher.log_weights(watched(teacher, student))), np.float64)
