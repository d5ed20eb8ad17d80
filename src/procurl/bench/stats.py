"""How sure are we: means, interquartile means, bootstrap intervals and curves in one number. Plain NumPy, seeded.

Seeds are the first axis of every array of scores (S seeds, E evaluations). Two rules hold throughout: a NaN among the
scores makes the answer NaN, so that a broken run is never averaged away (`summarise` counts such runs and leaves them
out); and a single seed has no error and no interval, so they are NaN, not 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from procurl.errors import ConfigError, unknown_name
from procurl.runs.means import as_scores, mean_and_error

Statistic = Callable[[list[np.ndarray]], Any]  # list of f[S_k, ...] -> f[...]: reduces the seeds of all settings


@dataclass(frozen=True)
class Summary:
    """A strategy on a setting in a dozen numbers; `final` ones are of the last evaluation. Failed seeds are in none."""

    n_seeds: int  # all of them
    n_failed: int  # seeds with NaN or infinity at any evaluation
    mean: float  # final return
    error: float  # its standard error
    iqm: float  # final return, interquartile mean
    mean_interval: tuple[float, float]  # 95 %
    iqm_interval: tuple[float, float]  # 95 %
    area: float  # mean return over training
    area_error: float  # its standard error
    steps_to_threshold: float  # median over seeds; NaN unless more than half of them reached it
    reached: float  # share of seeds that reached the threshold


def summarise(steps: np.ndarray, ret: np.ndarray, *, threshold: float, seed: int = 0) -> Summary:
    """Learning curves of one strategy, ret f[S, E] at steps i[E], as a row of a table."""
    steps, ret = _curves(steps, ret)
    if ret.ndim != 2:
        raise ConfigError(f"returns of shape {ret.shape}: expected one row per seed and one column per evaluation")
    sound = ret[np.isfinite(ret).all(axis=1)]  # f64[S - n_failed, E]
    if len(sound) == 0:
        nan = float("nan")
        return Summary(len(ret), len(ret), nan, nan, nan, (nan, nan), (nan, nan), nan, nan, nan, nan)
    final = sound[:, -1]
    mean, error = mean_and_error(final)
    area, area_error = mean_and_error(area_under_curve(steps, sound))
    when = steps_to_threshold(steps, sound, threshold)  # f64[S - n_failed]
    # Seeds that never got there are later than all others: a median of the others alone would flatter.
    median = float(np.median(np.where(np.isnan(when), np.inf, when)))
    return Summary(
        n_seeds=len(ret),
        n_failed=len(ret) - len(sound),
        mean=float(mean),
        error=float(error),
        iqm=float(iqm(final)),
        mean_interval=_pair(stratified_interval([final], "mean", seed=seed)),
        iqm_interval=_pair(stratified_interval([final], "iqm", seed=seed)),
        area=float(area),
        area_error=float(area_error),
        steps_to_threshold=median if np.isfinite(median) else float("nan"),
        reached=float(np.isfinite(when).mean()),
    )


def with_error(mean: Any, error: Any) -> str:
    """In words of a table; the mean alone where there is no error, as with a single seed."""
    return f"{mean:.3f} +- {error:.3f}" if np.isfinite(error) else f"{mean:.3f}"


def iqm(x: np.ndarray) -> Any:
    """Interquartile mean over the first axis: the mean without the lowest and the highest quarter.

    As in rliable and `scipy.stats.trim_mean(x, 0.25)`, a quarter of n scores is rounded down: nothing is weighted.
    """
    x = as_scores(x)
    cut = len(x) // 4
    middle = np.sort(x, axis=0)[cut : len(x) - cut].mean(axis=0)
    # Sorting puts NaN last, where it would be cut off unseen.
    return np.where(np.isnan(x).any(axis=0), np.nan, middle)[()]


def mean_of_settings(scores: Sequence[np.ndarray]) -> Any:
    """The mean over settings of the mean over seeds: every setting counts alike."""
    return np.mean([np.mean(x, axis=0) for x in scores], axis=0)


def iqm_of_settings(scores: Sequence[np.ndarray]) -> Any:
    """The interquartile mean of all scores together, as rliable takes it: every seed counts alike."""
    return iqm(np.concatenate(scores))


STATISTICS: dict[str, Statistic] = {"mean": mean_of_settings, "iqm": iqm_of_settings}


def stratified_interval(
    scores: Sequence[np.ndarray],
    statistic: str | Statistic,
    *,
    level: float = 0.95,
    repeats: int = 2000,
    seed: int = 0,
) -> np.ndarray:
    """Percentile interval of a statistic over settings, f64[2]; the seeds of each setting are resampled on their own.

    Args:
        scores: one array f[S_k] per setting.
        statistic: "mean", "iqm", or a function that gets the list of arrays, all resamples at once as f[S_k, repeats],
            and reduces their first axes to f[repeats] (or f[..., repeats]; the interval is then f64[2, ...]).
        level: share of the resamples inside the interval.
    """
    _check_bootstrap(level, repeats)
    compute = _statistic(statistic)
    settings = [_vector(x, f"scores of setting {k}") for k, x in enumerate(scores)]
    if not settings:
        raise ConfigError("no scores: expected one array per setting")
    rng = np.random.default_rng(seed)
    resampled = [x[rng.integers(len(x), size=(len(x), repeats))] for x in settings]
    values = np.asarray(compute(resampled))
    if values.ndim == 0 or values.shape[-1] != repeats:
        raise ConfigError(
            f"the statistic returned shape {values.shape} for arrays of shape (seeds, {repeats}): expected one number "
            f"per resample, ({repeats},). Let it reduce the first axis, as in np.mean(x, axis=0)."
        )
    known = all(len(x) > 1 and not np.isnan(x).any() for x in settings)
    return _percentiles(np.moveaxis(values, -1, 0), level, known)


def bootstrap_interval(x: np.ndarray, *, level: float = 0.95, repeats: int = 10_000, seed: int = 0) -> np.ndarray:
    """Percentile interval of the mean over the first axis: f64[2, ...]."""
    x = as_scores(x)
    _check_bootstrap(level, repeats)
    return _percentiles(_resampled_means(x, repeats, np.random.default_rng(seed)), level, len(x) > 1)


def bootstrap_difference(
    a: np.ndarray, b: np.ndarray, *, level: float = 0.95, repeats: int = 10_000, seed: int = 0
) -> np.ndarray:
    """Percentile interval of mean(a) - mean(b), seeds resampled independently in each: f64[2, ...]."""
    a, b = as_scores(a), as_scores(b)
    _check_bootstrap(level, repeats)
    rng = np.random.default_rng(seed)
    gaps = _resampled_means(a, repeats, rng) - _resampled_means(b, repeats, rng)
    return _percentiles(gaps, level, min(len(a), len(b)) > 1)


def performance_profile(x: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """f64[K]: the share of the scores x f[S] that are above each threshold f[K]."""
    return _above(x, thresholds).mean(axis=0)


def profile_interval(
    x: np.ndarray, thresholds: np.ndarray, *, level: float = 0.95, repeats: int = 2000, seed: int = 0
) -> np.ndarray:
    """Pointwise percentile interval of the performance profile: f64[2, K]."""
    return bootstrap_interval(_above(x, thresholds), level=level, repeats=repeats, seed=seed)


def probability_of_improvement(a: np.ndarray, b: np.ndarray) -> float:
    """P(a > b) + P(a = b) / 2 over all pairs of a score of a, f[A], and one of b, f[B]."""
    return float(_wins(a, b).mean())


def probability_interval(
    a: np.ndarray, b: np.ndarray, *, level: float = 0.95, repeats: int = 2000, seed: int = 0
) -> np.ndarray:
    """Percentile interval of the probability of improvement, seeds resampled independently in each: f64[2]."""
    _check_bootstrap(level, repeats)
    wins = _wins(a, b)  # f64[A, B]
    rng = np.random.default_rng(seed)
    weight_a, weight_b = (_resampling_weights(n, repeats, rng) for n in wins.shape)
    return _percentiles(np.sum((weight_a @ wins) * weight_b, axis=1), level, min(wins.shape) > 1)


def area_under_curve(steps: np.ndarray, ret: np.ndarray) -> np.ndarray:
    """Mean return over training, f64[...]: the trapezoids under ret f[..., E], divided by the range of steps i[E]."""
    steps, ret = _curves(steps, ret)
    if len(steps) == 1:
        return ret[..., 0]
    return np.trapezoid(ret, steps, axis=-1) / (steps[-1] - steps[0])


def steps_to_threshold(steps: np.ndarray, ret: np.ndarray, threshold: float) -> np.ndarray:
    """Steps at the first evaluation with ret f[..., E] at or above the threshold; NaN where there is none: f64[...]."""
    steps, ret = _curves(steps, ret)
    if np.isnan(threshold):
        raise ConfigError("the threshold is NaN: expected a return to reach")
    reached = ret >= threshold
    return np.where(reached.any(axis=-1), steps[reached.argmax(axis=-1)], np.nan)


def _resampled_means(x: np.ndarray, repeats: int, rng: np.random.Generator) -> np.ndarray:
    """Means of resampled rows, as one matrix product."""
    return np.tensordot(_resampling_weights(len(x), repeats, rng), x, axes=1)


def _resampling_weights(n: int, repeats: int, rng: np.random.Generator) -> np.ndarray:
    """f64[repeats, n]: the share of each row in each resample. How often a row is drawn is multinomial."""
    return rng.multinomial(n, np.full(n, 1 / n), size=repeats) / n


def _percentiles(values: np.ndarray, level: float, known: bool) -> np.ndarray:
    """Of resampled values f[repeats, ...]; NaN where there is nothing to know."""
    interval = np.asarray(np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0))
    return interval if known else np.full_like(interval, np.nan)


def _above(x: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """f64[S, K]: 1 where a score is above a threshold, 0 where it is not; NaN for a score that is NaN."""
    x, thresholds = _vector(x, "scores"), _vector(thresholds, "thresholds")
    return np.where(np.isnan(x)[:, None], np.nan, x[:, None] > thresholds)


def _wins(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """f64[A, B]: 1 where a beats b, 1/2 for a tie, 0 otherwise; NaN beside a NaN."""
    a, b = _vector(a, "scores of a")[:, None], _vector(b, "scores of b")
    return np.where(np.isnan(a) | np.isnan(b), np.nan, (a > b) + 0.5 * (a == b))


def _statistic(given: str | Statistic) -> Statistic:
    if callable(given):
        return given
    if given not in STATISTICS:
        raise unknown_name("statistic", given, STATISTICS)
    return STATISTICS[given]


def _pair(interval: np.ndarray) -> tuple[float, float]:
    return float(interval[0]), float(interval[1])


def _vector(x: np.ndarray, what: str) -> np.ndarray:
    x = np.asarray(x, np.float64)
    if x.ndim != 1 or len(x) == 0:
        raise ConfigError(f"{what} of shape {x.shape}: expected one axis with at least one number")
    return x


def _curves(steps: np.ndarray, ret: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Steps f64[E] that increase, and returns f64[..., E] that go with them."""
    steps, ret = _vector(steps, "steps"), np.asarray(ret, np.float64)
    if ret.ndim == 0 or ret.shape[-1] != len(steps):
        raise ConfigError(
            f"returns of shape {ret.shape} at {len(steps)} steps: expected one return per step, last axis"
        )
    if ret.size == 0:
        raise ConfigError(f"returns of shape {ret.shape}: expected at least one seed")
    if not (np.diff(steps) > 0).all():
        raise ConfigError("the steps of a learning curve must increase from each evaluation to the next")
    return steps, ret


def _check_bootstrap(level: float, repeats: int) -> None:
    if not 0 < level < 1:
        raise ConfigError(f"level = {level}: expected a share between 0 and 1, such as 0.95")
    if repeats < 1:
        raise ConfigError(f"repeats = {repeats}: expected at least one resample")
