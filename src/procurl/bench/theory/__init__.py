"""The paper's analysis as code: where the rule of ProCuRL-Target comes from, and how fast it learns there.

A student learns by REINFORCE in a contextual bandit that is small enough for exact formulas. Read in this order:
`bandit` (the setting of Proposition 1), `learner` (REINFORCE), `teachers` (who picks the next task), `simulation`
(both together), `rates` (Theorem 1), `library` (ProCuRL-Target itself in this bandit), `comparison` and `figure` (what
`procurl theory` shows), `page` (docs/theory.md, filled with numbers).

All of it is NumPy in double precision; JAX's flag for it is set in a local context where gradients are checked
(`autodiff`), and never globally.
"""

from __future__ import annotations

from procurl.bench.theory.bandit import Bandit, random_bandit
from procurl.bench.theory.learner import Constant, OverPotential, expected_improvement, expected_step, sampled_step
from procurl.bench.theory.simulation import Run, simulate, steps_to
from procurl.bench.theory.teachers import TEACHERS, Alignment, ProductRule, Softmax, TargetOnly, Uniform

__all__ = [
    "Bandit", "random_bandit", "expected_step", "sampled_step", "expected_improvement", "Constant", "OverPotential",
    "TEACHERS", "Alignment", "ProductRule", "Softmax", "TargetOnly", "Uniform", "simulate", "Run", "steps_to",
]  # fmt: skip
