"""The student: REINFORCE, as one draw or in expectation, and what a step on one task does for the target.

The gradient estimate of one episode is R grad log pi(a | c). Only the right action earns a reward, so a step is either
eta r (1 - pi_opt) psi, with probability pi_opt, or nothing; on average it is eta Z psi.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import expit

from procurl.bench.theory.bandit import Bandit, Floats


class StepSize(Protocol):
    def __call__(self, bandit: Bandit, theta: Floats, task: int) -> float: ...


@dataclass(frozen=True)
class Constant:
    """The same eta at every step."""

    eta: float = 1.0

    def __call__(self, bandit: Bandit, theta: Floats, task: int) -> float:
        return self.eta


@dataclass(frozen=True)
class OverPotential:
    """eta / Z(c_t): makes up for a gradient that vanishes with the learning potential of the task that is played."""

    eta: float = 1.0

    def __call__(self, bandit: Bandit, theta: Floats, task: int) -> float:
        return self.eta / float(bandit.potential(theta, task))


class Learner(Protocol):
    def __call__(self, bandit: Bandit, theta: Floats, task: int, eta: float, rng: np.random.Generator) -> Floats: ...


def expected_step(bandit: Bandit, theta: Floats, task: int, eta: float, rng: np.random.Generator) -> Floats:
    """theta + eta g(c): the average over what the student may do. Draws nothing."""
    return theta + eta * bandit.gradient(theta, task)


def sampled_step(bandit: Bandit, theta: Floats, task: int, eta: float, rng: np.random.Generator) -> Floats:
    """One episode: draw an action, and follow R grad log pi(a | c)."""
    action = int(rng.random() >= bandit.policy(theta, task)[0])
    if action != bandit.optimal[task]:
        return theta
    return theta + eta * bandit.reward[task] * score(bandit, theta, task, action)


def score(bandit: Bandit, theta: Floats, task: int, action: int) -> Floats:
    """grad log pi(a | c) = phi(c, a) - sum_b pi(b | c) phi(c, b), f64[d]."""
    return bandit.features[task, action] - bandit.policy(theta, task) @ bandit.features[task]


def expected_improvement(bandit: Bandit, theta: Floats, eta: float) -> Floats:
    """I(c) of every task, f64[n]: how much V(target) rises on average by one sampled step on c. Exact.

    pi_opt(c) (V(target; theta + eta r (1 - pi_opt) psi(c)) - V(target; theta)), the other outcome being no step.
    """
    x = bandit.psi @ theta
    target = bandit.target
    shift = eta * bandit.reward * expit(-x) * bandit.correlation
    return expit(x) * bandit.reward[target] * sigmoid_difference(x[target], shift)


def improvement_of_mean(bandit: Bandit, theta: Floats, eta: float) -> Floats:
    """The same for the expected step, f64[n]: V(target; theta + eta g(c)) - V(target; theta).

    It rises with Z(c) <psi(c), psi(target)> for every eta: here the product rule is the greedy one, not only nearly so.
    """
    x = bandit.psi[bandit.target] @ theta
    shift = eta * bandit.potential(theta) * bandit.correlation
    return bandit.reward[bandit.target] * sigmoid_difference(x, shift)


def sigmoid_difference(x: Floats, shift: Floats) -> Floats:
    """sigmoid(x + shift) - sigmoid(x) without cancellation: sigmoid(x + s) sigmoid(-x) (1 - e^-s)."""
    return -expit(x + shift) * expit(-x) * np.expm1(-shift)
