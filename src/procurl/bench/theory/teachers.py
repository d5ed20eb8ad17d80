"""Who picks the next task. Frozen dataclasses whose `pick` is a function of the bandit, theta and a generator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import softmax

from procurl.bench.theory.bandit import Bandit, Floats


class Teacher(Protocol):
    def pick(self, bandit: Bandit, theta: Floats, rng: np.random.Generator) -> int: ...


@dataclass(frozen=True)
class Alignment:
    """argmax_c <g(c), g(target)>: the first-order approximation of the expected improvement."""

    def pick(self, bandit: Bandit, theta: Floats, rng: np.random.Generator) -> int:
        return int(np.argmax(bandit.gradient(theta) @ bandit.gradient(theta, bandit.target)))


@dataclass(frozen=True)
class ProductRule:
    """argmax_c Z(c) Z(target) <psi(c), psi(target)>: the same by Proposition 1, and the rule of ProCuRL-Target."""

    def pick(self, bandit: Bandit, theta: Floats, rng: np.random.Generator) -> int:
        return int(np.argmax(product(bandit, theta)))


@dataclass(frozen=True)
class Softmax:
    """ProCuRL-Target: draws c with probability proportional to exp(beta Z(c) Z(target) <psi(c), psi(target)>+)."""

    beta: float = 130.0

    def probabilities(self, bandit: Bandit, theta: Floats) -> Floats:
        return softmax(self.beta * np.maximum(product(bandit, theta), 0.0))

    def pick(self, bandit: Bandit, theta: Floats, rng: np.random.Generator) -> int:
        cdf = np.cumsum(self.probabilities(bandit, theta))
        return int(np.searchsorted(cdf, rng.random() * cdf[-1], side="right"))


@dataclass(frozen=True)
class TargetOnly:
    """No curriculum: the target, always."""

    def pick(self, bandit: Bandit, theta: Floats, rng: np.random.Generator) -> int:
        return bandit.target


@dataclass(frozen=True)
class Uniform:
    """Any task, all equally likely."""

    def pick(self, bandit: Bandit, theta: Floats, rng: np.random.Generator) -> int:
        return int(rng.integers(len(bandit.psi)))


# In the order of the tables. The product rule is left out: it picks what alignment picks.
TEACHERS: dict[str, Teacher] = {
    "gradient alignment": Alignment(),
    "ProCuRL-Target": Softmax(),
    "target only": TargetOnly(),
    "uniform": Uniform(),
}


def product(bandit: Bandit, theta: Floats) -> Floats:
    """Z(c) Z(target) <psi(c), psi(target)> of every task, f64[n]."""
    z = bandit.potential(theta)
    return z * z[bandit.target] * bandit.correlation
