"""What similar prompts have in common: a Bayesian logistic regression on their features that forgets.

The weights are believed to be Gaussian, w ~ N(mean, precision^-1). A batch of groups moves the mean to the most
probable weights (Newton's method) and adds to the precision (Laplace's approximation). Before each batch the precision
shrinks towards what it was beforehand: the student changes, and old groups say less about it.
"""

from __future__ import annotations

import numpy as np

from procurl.prompts.features import F64

NEWTON_STEPS = 3
LONGEST_STEP = 3.0  # in logits: a full step of Newton's can overshoot when a batch surprises
FURTHEST = 15.0  # logits; beyond, a pass rate is 0 or 1


class Regression:
    def __init__(self, prior_variance: F64) -> None:
        self.prior_precision = 1 / prior_variance
        self.mean: F64 = np.zeros(len(prior_variance))
        self.precision: F64 = np.diag(self.prior_precision)
        self._root: F64 | None = None

    def predict(self, features: F64) -> tuple[F64, F64]:
        """The mean pass rate f64[k] and the variance of its logit f64[k] for features f64[k, size]."""
        if self._root is None:
            self._root = np.linalg.inv(np.linalg.cholesky(self.precision)).T
        variance = np.sum((features @ self._root) ** 2, axis=1)
        # The mean of a logistic function of a Gaussian, by MacKay's approximation.
        return logistic(features @ self.mean / np.sqrt(1 + np.pi / 8 * variance)), variance

    def put(self, mean: F64, precision: F64) -> None:
        """Go on from a belief that was saved."""
        self.mean, self.precision, self._root = mean.copy(), precision.copy(), None

    def forget(self, share: float) -> None:
        """Keep this share of what was learnt."""
        self.precision = share * self.precision + (1 - share) * np.diag(self.prior_precision)
        self._root = None

    def update(self, features: F64, passes: F64, trials: F64) -> None:
        """Learn from groups with `passes` out of `trials`, which need not be whole numbers."""
        before, mean = self.mean, self.mean.copy()
        for _ in range(NEWTON_STEPS):
            rate = logistic(features @ mean)
            slope = self.precision @ (mean - before) + features.T @ (trials * rate - passes)
            curvature = self.precision + (features.T * (trials * rate * (1 - rate))) @ features
            step = np.linalg.solve(curvature, slope)
            mean -= step * min(1.0, LONGEST_STEP / max(float(np.abs(features @ step).max()), 1e-12))
        rate = logistic(features @ mean)
        self.mean = mean
        self.precision = self.precision + (features.T * (trials * rate * (1 - rate))) @ features
        self._root = None


def logistic(x: F64) -> F64:
    return 1 / (1 + np.exp(-np.clip(x, -FURTHEST, FURTHEST)))
