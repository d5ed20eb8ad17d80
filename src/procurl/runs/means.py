"""The mean over seeds and its standard error. `procurl.bench.stats` has the other statistics, and this one too."""

from __future__ import annotations

import numpy as np

from procurl.errors import ConfigError


def mean_and_error(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over the first axis (seeds); the error of a single seed is NaN, not 0."""
    x = as_scores(x)
    n = len(x)
    error = np.std(x, axis=0, ddof=1) / np.sqrt(n) if n > 1 else np.full(np.shape(x)[1:], np.nan)
    return np.mean(x, axis=0), error


def as_scores(x: np.ndarray) -> np.ndarray:
    """As f64[S, ...]: at least one seed."""
    x = np.asarray(x, np.float64)
    if x.ndim == 0 or len(x) == 0:
        raise ConfigError(f"scores of shape {x.shape}: expected at least one seed, along the first axis")
    return x
