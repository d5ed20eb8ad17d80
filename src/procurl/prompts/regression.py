"""What similar prompts have in common: Bayesian logistic regressions on their features, with forgetting.

The weights are believed to be Gaussian, w ~ N(mean, precision^-1). A batch of groups moves the mean to the most
probable weights (Newton's method) and adds to the precision (Laplace's approximation). Before each batch the precision
shrinks towards the prior's: the student changes, and old groups say less about it. H regressions, one for each
half-life, are kept in one array.
"""

from __future__ import annotations

import numpy as np

from procurl.prompts.features import F64
from procurl.prompts.products import product

NEWTON_STEPS = 2
LEVEL_HALF_LIFE = 8.0  # batches, for the constant: a student gets better at everything faster than at some of it
LONGEST_STEP = 3.0  # in logits: a full Newton step can overshoot when a batch is a surprise
FURTHEST = 15.0  # logits; beyond, a pass rate is 0 or 1


class Regressions:
    def __init__(self, prior_variance: F64, half_lives: tuple[float, ...]) -> None:
        h = len(half_lives)
        # Share of the precision that is left after a batch, f64[H, size, size]: less of the constant's.
        kept = np.repeat(0.5 ** (1 / np.array(half_lives))[:, None], len(prior_variance), axis=1)
        kept[:, 0] = np.minimum(kept[:, 0], 0.5 ** (1 / LEVEL_HALF_LIFE))
        self.kept: F64 = np.sqrt(kept[:, :, None] * kept[:, None, :])
        self.prior: F64 = np.broadcast_to(np.diag(1 / prior_variance), (h, *2 * prior_variance.shape))
        self.mean: F64 = np.zeros((h, len(prior_variance)))
        self.precision: F64 = self.prior.copy()
        self._covariance: F64 | None = None

    def predict(self, features: F64, only: int | None = None) -> tuple[F64, F64]:
        """Mean pass rates f64[H, n] and variances of their logits f64[H, n], of features f64[n, size].

        `only`: by this regression alone, and H is 1.
        """
        if self._covariance is None:
            self._covariance = inverse(self.precision)
        these = slice(None) if only is None else slice(only, only + 1)
        stacked = np.concatenate([self._covariance[these], self.mean[these, None, :]], axis=1)  # f64[H, size + 1, size]
        both = np.ascontiguousarray(stacked.reshape(-1, features.shape[1]).T)
        found = product(features, both).reshape(len(features), *stacked.shape[:2])
        variance = np.einsum("nhi,ni->hn", found[..., :-1], features)
        # The mean of a logistic function of a Gaussian, by MacKay's approximation.
        return logistic(found[..., -1].T / np.sqrt(1 + np.pi / 8 * variance)), variance

    def update(self, features: F64, passes: F64, trials: F64) -> None:
        """Forget a little and learn from groups of `passes` out of `trials`, which need not be whole numbers."""
        precision = self.kept * self.precision + (1 - self.kept) * self.prior
        before, mean = self.mean, self.mean.copy()
        for _ in range(NEWTON_STEPS):
            rate = logistic(product(features, mean.T).T)  # f64[H, n]
            slope = np.einsum("hij,hj->hi", precision, mean - before) + product(trials * rate - passes, features)
            step = np.einsum("hij,hj->hi", inverse(precision + _information(features, trials, rate)), slope)
            longest = np.abs(product(features, step.T)).max(axis=0)[:, None]
            mean -= step * np.minimum(1.0, LONGEST_STEP / np.maximum(longest, 1e-12))
        self.put(mean, precision + _information(features, trials, logistic(product(features, mean.T).T)))

    def put(self, mean: F64, precision: F64) -> None:
        """Continue from this belief."""
        self.mean, self.precision, self._covariance = mean, precision, None


def _information(features: F64, trials: F64, rate: F64) -> F64:
    """What groups add to the precision, f64[H, size, size]."""
    weighted = features.T * (trials * rate * (1 - rate))[:, None, :]  # f64[H, size, n]
    return product(weighted.reshape(-1, len(features)), features).reshape(len(rate), *2 * features.shape[1:])


def inverse(matrices: F64) -> F64:
    """Of positive definite matrices, f64[H, size, size], by Gauss-Jordan elimination, all at once.

    Not LAPACK's: on matrices as small as these, its threads wait for one another many times, which takes a hundred
    times longer on cores that a trainer keeps busy.
    """
    a = matrices.copy()
    for k in range(a.shape[1]):
        pivot = a[:, k, k].copy()
        row, column = a[:, k, :] / pivot[:, None], a[:, :, k].copy()
        column[:, k] = 0.0
        a -= column[:, :, None] * row[:, None, :]
        a[:, k, :] = row
        a[:, :, k] = -column / pivot[:, None]
        a[:, k, k] = 1 / pivot
    return a


def logistic(x: F64) -> F64:
    return 1 / (1 + np.exp(-np.clip(x, -FURTHEST, FURTHEST)))
