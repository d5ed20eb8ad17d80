"""A teacher and a student in the bandit: the gap to the optimum on the target, step after step, and what was picked."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from procurl.bench.theory.bandit import Bandit, Floats
from procurl.bench.theory.learner import Constant, Learner, StepSize, expected_step
from procurl.bench.theory.teachers import Teacher
from procurl.errors import ConfigError

START = -2.0  # <theta_0, psi(target)>: the wrong action is the likely one, V(target) = 0.12


class Run(NamedTuple):
    """T steps: T + 1 states of the student, T picks of the teacher."""

    gap: Floats  # f64[T + 1]  V* - V of the target
    value: Floats  # f64[T + 1]  V of the target
    theta: Floats  # f64[T + 1, d]
    picks: NDArray[np.int64]  # i64[T]
    difficulty: Floats  # f64[T]  1 - V / V* of the picked task, before the step
    correlation: Floats  # f64[T]  <psi(picked), psi(target)>

    @property
    def norm(self) -> Floats:
        """|theta|, f64[T + 1]"""
        return np.linalg.norm(self.theta, axis=1)


def simulate(
    bandit: Bandit,
    teacher: Teacher,
    steps: int,
    rng: np.random.Generator,
    *,
    start: float = START,
    step_size: StepSize | None = None,
    learner: Learner = expected_step,
) -> Run:
    """Algorithm 1 with one task per step, from theta_0 = `start` psi(target) / |psi(target)|²."""
    if steps < 1:
        raise ConfigError(f"simulate: {steps} steps, expected at least one")
    step_size = step_size or Constant()
    target = bandit.psi[bandit.target]
    theta = np.empty((steps + 1, target.size))
    theta[0] = start * target / (target @ target)
    picks, difficulty = np.empty(steps, np.int64), np.empty(steps)
    for t in range(steps):
        task = teacher.pick(bandit, theta[t], rng)
        picks[t], difficulty[t] = task, bandit.gap(theta[t], task) / bandit.reward[task]
        theta[t + 1] = learner(bandit, theta[t], task, step_size(bandit, theta[t], task), rng)
    gap, value = (np.array([of(x, bandit.target) for x in theta]) for of in (bandit.gap, bandit.value))
    return Run(gap, value, theta, picks, difficulty, bandit.correlation[picks])


def steps_to(gap: Floats, epsilon: float) -> float:
    """The first step with a gap of at most epsilon; infinity if there is none."""
    there = np.flatnonzero(gap <= epsilon)
    return float(there[0]) if len(there) else np.inf
