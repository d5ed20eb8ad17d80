"""How sure are we: standard errors and bootstrap intervals over seeds. Plain NumPy, seeded."""

from __future__ import annotations

import numpy as np


def mean_and_error(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over the first axis (seeds); the error of a single seed is NaN, not 0."""
    n = len(x)
    error = np.std(x, axis=0, ddof=1) / np.sqrt(n) if n > 1 else np.full(np.shape(x)[1:], np.nan)
    return np.mean(x, axis=0), error


def bootstrap_interval(x: np.ndarray, *, level: float = 0.95, repeats: int = 10_000, seed: int = 0) -> np.ndarray:
    """Percentile interval of the mean over the first axis: f64[2, ...]."""
    return _percentiles(_resampled_means(x, repeats, np.random.default_rng(seed)), level)


def bootstrap_difference(
    a: np.ndarray, b: np.ndarray, *, level: float = 0.95, repeats: int = 10_000, seed: int = 0
) -> np.ndarray:
    """Percentile interval of mean(a) - mean(b), seeds resampled independently in each: f64[2, ...]."""
    rng = np.random.default_rng(seed)
    return _percentiles(_resampled_means(a, repeats, rng) - _resampled_means(b, repeats, rng), level)


def _resampled_means(x: np.ndarray, repeats: int, rng: np.random.Generator) -> np.ndarray:
    """Means of resampled rows. How often each row is drawn is multinomial, which makes it one matrix product."""
    x = np.asarray(x, np.float64)
    counts = rng.multinomial(len(x), np.full(len(x), 1 / len(x)), size=repeats)
    return np.tensordot(counts / len(x), x, axes=1)


def _percentiles(means: np.ndarray, level: float) -> np.ndarray:
    return np.asarray(np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=0))
