"""The pass rate of every prompt, played or not: a Beta posterior with forgetting, shared between similar prompts.

    p_i ~ Beta(kappa_i m_i + a_i, kappa_i (1 - m_i) + b_i)

a_i and b_i are the passes and failures of the prompt itself; each counts half as much after a half-life. m_i is the
mean that the shared regression gives to prompts like it, and kappa_i how much that is worth: the prior strength, less
where the regression itself is in doubt. A student that got better at prompts like it has got better at the prompt, too:
the prompt's own results are moved, in logits, as m_i has moved since. Half-life and strength need no tuning: several
values of each are kept side by side, every pair predicts each group before it is counted, and the pair that has
predicted best so far (here, too, with forgetting) is believed.

Time is counted in calls of `observe`: one step of the student's training each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from procurl.prompts.features import F64, Features
from procurl.prompts.regression import Regressions, logistic

HALF_LIVES = (8.0, 32.0, 128.0, 512.0)  # calls
STRENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)  # samples that the shared mean is worth
FIRST_HALF_LIFE, FIRST_STRENGTH = 32.0, 4.0  # believed before anything was seen
SCORE_HALF_LIFE = 256.0  # calls after which a prediction counts half in the choice of half-life and strength
LEAST_STRENGTH = 0.5
SURE = 1e-4  # pass rates closer to 0 or 1 are not told apart


class Posterior(NamedTuple):
    """Beta distributions of k prompts."""

    a: F64
    b: F64

    @property
    def mean(self) -> F64:
        return self.a / (self.a + self.b)

    def sample(self, rng: np.random.Generator) -> F64:
        return rng.beta(self.a, self.b)


class PassRates:
    """The model of n prompts."""

    def __init__(self, n: int, features: Features, half_lives: tuple[float, ...] = HALF_LIVES) -> None:
        self.half_lives, self.features = half_lives, features
        self.time = 0  # calls of `observe`
        self.seen_at: NDArray[np.int64] = np.full(n, -1, np.int64)  # when a prompt was last played; -1: never
        self.passes: F64 = np.zeros((len(half_lives), n))  # as they counted then
        self.fails: F64 = np.zeros((len(half_lives), n))
        self.levels: F64 = np.zeros((len(half_lives), n))  # logits of the shared mean after that
        self.regressions = Regressions(features.prior_variance, half_lives)
        self.scores: F64 = -0.1 * (  # log-likelihoods; a slight lead for what is believed first
            np.abs(np.log2(np.array(half_lives) / FIRST_HALF_LIFE))[:, None]
            + np.abs(np.log2(np.array(STRENGTHS) / FIRST_STRENGTH))
        )

    @property
    def believed(self) -> tuple[int, int]:
        """Which half-life and which strength predicted best."""
        best = int(np.argmax(self.scores))
        return best // len(STRENGTHS), best % len(STRENGTHS)

    def posterior(self, rows: NDArray[np.int64] | None, features: F64) -> Posterior:
        """Of prompts with these features. rows None: they are not ours, so that only the shared model knows them."""
        half_life, strength = self.believed
        mean, variance = self.regressions.predict(features, half_life)
        a, b = self._beta(half_life, rows, mean[0], variance[0], np.array([STRENGTHS[strength]]))
        return Posterior(a[:, 0], b[:, 0])

    def observe(self, rows: NDArray[np.int64], features: F64, passes: F64, trials: F64) -> None:
        """Count groups: passes[k] of trials[k] samples of the prompt rows[k], which may occur several times."""
        mean, variance = self.regressions.predict(features)
        self._score(rows, mean, variance, passes, trials)
        strength = STRENGTHS[self.believed[1]]
        # Samples of one prompt are alike: they say less about prompts like it than as many samples of different ones.
        worth = (strength + 1) / (strength + trials)
        self.time += 1
        distinct, first = np.unique(rows, return_index=True)
        for k in range(len(self.half_lives)):
            a, b = prior(mean[k, first], variance[k, first], np.array([strength]))
            moved = self._moved_counts(k, distinct, mean[k, first], a + b)
            self.passes[k, distinct], self.fails[k, distinct] = moved[0][:, 0], moved[1][:, 0]
            np.add.at(self.passes[k], rows, passes)
            np.add.at(self.fails[k], rows, trials - passes)
        self.seen_at[distinct] = self.time
        self.regressions.update(features, passes * worth, trials * worth)
        self.levels[:, distinct] = logit(self.regressions.predict(features[first])[0])

    def _score(self, rows: NDArray[np.int64], mean: F64, variance: F64, passes: F64, trials: F64) -> None:
        """How well each half-life and strength predicted these groups: log-likelihoods of Beta-binomials."""
        self.scores *= 0.5 ** (1 / SCORE_HALF_LIFE)
        for k in range(len(self.half_lives)):
            a, b = self._beta(k, rows, mean[k], variance[k], np.array(STRENGTHS))
            after = log_beta(a + passes[:, None], b + (trials - passes)[:, None])
            self.scores[k] += np.sum(after - log_beta(a, b), axis=0)

    def _beta(
        self, k: int, rows: NDArray[np.int64] | None, mean: F64, variance: F64, strengths: F64
    ) -> tuple[F64, F64]:
        """The posterior by half-life k and each strength, f64[n, strengths], for the regression's mean and variance."""
        a, b = prior(mean, variance, strengths)
        if rows is None:
            return a, b
        passes, fails = self._moved_counts(k, rows, mean, a + b)
        return a + passes, b + fails

    def _moved_counts(self, k: int, rows: NDArray[np.int64], mean: F64, strength: F64) -> tuple[F64, F64]:
        """Passes and failures f64[n, strengths] as if the prompts had been played now, not when they were."""
        passes, fails = (counts[:, None] for counts in self._counts(k, rows))
        shared = logistic(self.levels[k, rows])[:, None]  # then
        # A mean over prompts that differ moves less than each of them does, in logits (MacKay's approximation again).
        spread = np.maximum(mean * (1 - mean), 0.05)[:, None] * (strength + 1)
        shift = (logit(mean) - self.levels[k, rows])[:, None] * np.sqrt(1 + np.pi / 8 / spread)
        total = strength + passes + fails
        moved = total * moved_by(shift, (strength * shared + passes) / total) - strength * moved_by(shift, shared)
        moved = np.clip(moved, 0, passes + fails)
        return moved, passes + fails - moved

    def _counts(self, half_life: int, rows: NDArray[np.int64]) -> tuple[F64, F64]:
        """Passes and failures of prompts as they count now."""
        age = self.time - self.seen_at[rows]
        share = 0.5 ** (age / self.half_lives[half_life])
        return self.passes[half_life, rows] * share, self.fails[half_life, rows] * share


def prior(mean: F64, variance: F64, strengths: F64) -> tuple[F64, F64]:
    """Beta(a, b) before a prompt's own groups, f64[..., strengths] each, for the regression's mean and its doubt."""
    mean = np.clip(mean, SURE, 1 - SURE)[..., None]
    spread = mean * (1 - mean)
    # Prompts differ from those like them, and the regression is itself in doubt: the two variances add up.
    total = spread / (strengths + 1) + spread**2 * variance[..., None]
    strength = np.maximum(spread / total - 1, np.minimum(strengths, LEAST_STRENGTH))
    return strength * mean, strength * (1 - mean)


def logit(p: F64) -> F64:
    p = np.clip(p, SURE, 1 - SURE)
    return np.log(p / (1 - p))


def moved_by(shift: F64, p: F64) -> F64:
    """A pass rate after a shift of its logit."""
    return logistic(logit(p) + shift)


def log_beta(a: F64, b: F64) -> F64:
    """The logarithm of Euler's beta function."""
    return log_gamma(a) + log_gamma(b) - log_gamma(a + b)


def log_gamma(x: F64) -> F64:
    """For x > 0: Stirling's series at x + 8, and the recurrence back from there."""
    product = np.ones_like(x)
    for k in range(8):
        product = product * (x + k)
    y = x + 8
    series = 1 / (12 * y) - 1 / (360 * y**3) + 1 / (1260 * y**5)
    return (y - 0.5) * np.log(y) - y + 0.5 * np.log(2 * np.pi) + series - np.log(product)
