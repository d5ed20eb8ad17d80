"""The contextual bandit of Proposition 1: one state, two actions, an episode of one step.

In task c one action is right and earns r(c), the other earns nothing. The student is a softmax policy over features,
pi(a | c) proportional to exp <theta, phi(c, a)>. With psi(c) = phi(c, right) - phi(c, wrong) all that matters is
x(c) = <theta, psi(c)>:

    pi_opt = sigmoid(x),   V = r pi_opt,   V* = r,   Z = V / V* (V* - V),   grad V = Z psi

Every method takes the tasks it is asked about, as an index, an array of them or a slice; without, all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from procurl.errors import ConfigError

Floats = NDArray[np.float64]
Tasks = int | slice | NDArray[np.int64]
ALL = slice(None)


@dataclass(frozen=True, eq=False)
class Bandit:
    """n tasks, one of them the target."""

    features: Floats  # f64[n, 2, d]  phi(c, a)
    optimal: NDArray[np.int64]  # i64[n]  the right action
    reward: Floats  # f64[n]  r(c), in (0, 1]
    target: int  # which task is the target

    def __post_init__(self) -> None:
        n = len(self.features)
        if self.features.ndim != 3 or self.features.shape[1] != 2 or n == 0:
            raise ConfigError(f"Bandit: features of shape {self.features.shape}, expected (tasks, 2 actions, features)")
        if self.optimal.shape != (n,) or self.reward.shape != (n,):
            raise ConfigError(
                f"Bandit: {n} tasks, but optimal {self.optimal.shape} and reward {self.reward.shape}: expected one each"
            )
        if not np.isfinite(self.features).all():
            raise ConfigError("Bandit: NaN or infinity in the features, expected finite numbers")
        if not np.isin(self.optimal, (0, 1)).all():
            raise ConfigError("Bandit: an optimal action other than 0 and 1, expected one of the two")
        if not ((self.reward > 0) & (self.reward <= 1)).all():
            raise ConfigError("Bandit: a reward outside (0, 1], expected one that can be earned")
        if not 0 <= self.target < n:
            raise ConfigError(f"Bandit: target = {self.target}, expected a task between 0 and {n - 1}")

    @cached_property
    def psi(self) -> Floats:
        """What the right action has over the wrong one, f64[n, d]."""
        rows = np.arange(len(self.features))
        return self.features[rows, self.optimal] - self.features[rows, 1 - self.optimal]

    @cached_property
    def correlation(self) -> Floats:
        """<psi(c), psi(target)> of every task, f64[n]."""
        return self.psi @ self.psi[self.target]

    def policy(self, theta: Floats, tasks: Tasks = ALL) -> Floats:
        """pi(a | c), f64[..., 2]."""
        logits = self.features[tasks] @ theta
        odds = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return odds / odds.sum(axis=-1, keepdims=True)

    def value(self, theta: Floats, tasks: Tasks = ALL) -> Floats:
        """V = r pi_opt."""
        return self.reward[tasks] * expit(self.psi[tasks] @ theta)

    def optimal_value(self, tasks: Tasks = ALL) -> Floats:
        """V* = r: the right action every time."""
        return self.reward[tasks]

    def gap(self, theta: Floats, tasks: Tasks = ALL) -> Floats:
        """V* - V = r sigmoid(-x). Not taken as a difference: that would be 0, or noise, below 1e-16."""
        return self.reward[tasks] * expit(-(self.psi[tasks] @ theta))

    def potential(self, theta: Floats, tasks: Tasks = ALL) -> Floats:
        """The learning potential Z = V / V* (V* - V) = r pi_opt (1 - pi_opt): at most r / 4, half-way."""
        x = self.psi[tasks] @ theta
        return self.reward[tasks] * expit(x) * expit(-x)

    def gradient(self, theta: Floats, tasks: Tasks = ALL) -> Floats:
        """g = grad V = Z psi, f64[..., d]."""
        return self.potential(theta, tasks)[..., None] * self.psi[tasks]


def random_bandit(
    rng: np.random.Generator, n_tasks: int = 2000, n_features: int = 8, rewards: tuple[float, float] = (1.0, 1.0)
) -> Bandit:
    """Tasks in all directions: psi of random direction, with a length uniform in [0, 1]; the first is the target, e_1.

    Rewards are uniform between the two given. What both actions share in their features is random and changes nothing.
    """
    if n_tasks < 1 or n_features < 1:
        raise ConfigError(f"random_bandit: {n_tasks} tasks of {n_features} features, expected at least one of each")
    psi = rng.normal(size=(n_tasks, n_features))
    psi *= rng.random((n_tasks, 1)) / np.linalg.norm(psi, axis=1, keepdims=True)
    psi[0] = np.eye(n_features)[0]
    optimal = rng.integers(2, size=n_tasks)
    sign = np.where(np.arange(2) == optimal[:, None], 0.5, -0.5)  # f64[n, 2]
    shared = rng.normal(size=(n_tasks, 1, n_features))
    features = shared + sign[..., None] * psi[:, None]
    return Bandit(features, optimal, rng.uniform(*rewards, n_tasks), target=0)
