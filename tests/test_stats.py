"""Statistics against slow, obvious versions; repeatable; ties, single seeds and broken runs reported, not averaged."""

import importlib.util
import math
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from procurl.bench import stats
from procurl.errors import ConfigError

# Few distinct values: ties are common, as among seeds that all fail or all succeed.
SCORES = st.lists(st.sampled_from([-2.0, 0.0, 0.25, 0.5, 1.0, 3.5]), min_size=1, max_size=23).map(np.array)
NUMBERS = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=23).map(np.array)


def seeds(n, seed=0, **more):
    return np.random.default_rng(seed).normal(0.5, 0.3, n, **more)


# --- one number per strategy


def slow_iqm(x):
    kept = sorted(x)
    for _ in range(math.floor(len(x) / 4)):
        kept = kept[1:-1]
    return sum(kept) / len(kept)


@settings(deadline=None)
@given(NUMBERS)
def test_the_interquartile_mean_drops_whole_seeds(x):
    assert stats.iqm(x) == pytest.approx(slow_iqm(x), abs=1e-9)
    assert stats.iqm(x) == pytest.approx(scipy.stats.trim_mean(x, 0.25), abs=1e-9)
    assert stats.iqm(x[::-1]) == pytest.approx(stats.iqm(x), abs=1e-9)


def test_the_interquartile_mean_of_several_columns():
    x = np.random.default_rng(0).normal(size=(11, 3, 2))
    expected = [[slow_iqm(x[:, i, j]) for j in range(2)] for i in range(3)]
    np.testing.assert_allclose(stats.iqm(x), expected)
    x[4, 1, 0] = np.nan
    assert np.isnan(stats.iqm(x)).tolist() == [[False, False], [True, False], [False, False]], "it is not cut off"


def test_mean_and_error_in_closed_form():
    mean, error = stats.mean_and_error(np.array([[1.0, 0.0], [3.0, 0.0], [5.0, 0.0]]))
    np.testing.assert_allclose(mean, [3, 0])
    np.testing.assert_allclose(error, [2 / math.sqrt(3), 0])


@settings(deadline=None)
@given(SCORES, NUMBERS)
def test_a_profile_counts_the_seeds_above_each_threshold(x, thresholds):
    expected = [sum(score > t for score in x) / len(x) for t in thresholds]
    np.testing.assert_allclose(stats.performance_profile(x, thresholds), expected)
    np.testing.assert_allclose(stats.performance_profile(x, x), [sum(s > t for s in x) / len(x) for t in x])


@settings(deadline=None)
@given(SCORES, SCORES)
def test_improvement_is_counted_over_all_pairs_with_half_for_ties(a, b):
    points = sum(1.0 if x > y else 0.5 if x == y else 0.0 for x in a for y in b)
    assert stats.probability_of_improvement(a, b) == pytest.approx(points / (len(a) * len(b)))
    assert stats.probability_of_improvement(a, b) == pytest.approx(1 - stats.probability_of_improvement(b, a))
    assert stats.probability_of_improvement(a, a) == 0.5


# --- learning curves


def slow_area(steps, ret):
    total = 0.0
    for i in range(1, len(steps)):
        total += (steps[i] - steps[i - 1]) * (ret[i] + ret[i - 1]) / 2
    return total / (steps[-1] - steps[0])


def slow_arrival(steps, ret, threshold):
    for step, value in zip(steps, ret, strict=True):
        if value >= threshold:
            return step
    return math.nan


@settings(deadline=None)
@given(st.integers(2, 12), st.integers(0, 2**31))
def test_curves_as_numbers(n, seed):
    rng = np.random.default_rng(seed)
    steps, ret = np.cumsum(rng.integers(1, 50_000, n)), rng.choice([0.0, 0.4, 0.5, 0.9], (3, 2, n))
    area, arrival = stats.area_under_curve(steps, ret), stats.steps_to_threshold(steps, ret, 0.5)
    assert area.shape == arrival.shape == (3, 2)
    for i, j in np.ndindex(3, 2):
        assert area[i, j] == pytest.approx(slow_area(steps, ret[i, j]))
        assert arrival[i, j] == pytest.approx(slow_arrival(steps, ret[i, j], 0.5), nan_ok=True)


def test_an_area_is_in_units_of_return_however_the_evaluations_lie():
    assert stats.area_under_curve([0, 10, 1_000_000], [0.7, 0.7, 0.7]) == pytest.approx(0.7)
    assert stats.area_under_curve([1000, 2000, 5000], [0.0, 1.0, 1.0]) == pytest.approx(3.5 / 4)
    np.testing.assert_array_equal(stats.area_under_curve([500], [[0.2], [0.4]]), [0.2, 0.4])


def test_reaching_a_threshold_is_being_at_or_above_it():
    ret = np.array([[0.0, 0.5, 0.2], [0.0, 0.4, 0.4], [0.9, 0.0, 0.0]])
    np.testing.assert_array_equal(stats.steps_to_threshold([0, 10, 20], ret, 0.5), [10, np.nan, 0])


# --- intervals


def slow_interval(scores, point, level, repeats, seed):
    """One resample after the other."""
    rng = np.random.default_rng(seed)
    values = [point([rng.choice(x, len(x)) for x in scores]) for _ in range(repeats)]
    return np.quantile(values, [(1 - level) / 2, (1 + level) / 2])


POINTS = {
    "mean": lambda scores: np.mean([x.mean() for x in scores]),
    "iqm": lambda scores: slow_iqm(np.concatenate(scores)),
}


@pytest.mark.parametrize("name", ["mean", "iqm"])
@pytest.mark.parametrize("sizes", [(12,), (5, 30), (10, 10, 10)])
def test_stratified_intervals_equal_those_of_a_loop(name, sizes):
    scores = [seeds(n, seed=k) + k for k, n in enumerate(sizes)]
    ours = stats.stratified_interval(scores, name, repeats=20_000)
    slow = slow_interval(scores, POINTS[name], 0.95, 4000, seed=1)
    width = slow[1] - slow[0]
    np.testing.assert_allclose(ours, slow, atol=0.1 * width)  # both are random: 4000 resamples leave a few percent
    assert ours[0] < POINTS[name](scores) < ours[1]
    named, function = stats.stratified_interval(scores, name), stats.STATISTICS[name]
    np.testing.assert_array_equal(stats.stratified_interval(scores, function), named)


def test_resampling_keeps_to_its_setting():
    """Settings far apart, seeds of each alike: only a bootstrap that mixes settings would see any variation."""
    scores = [np.full(4, 0.0), np.full(8, 100.0)]
    np.testing.assert_array_equal(stats.stratified_interval(scores, "mean"), [50, 50])
    np.testing.assert_array_equal(stats.stratified_interval(scores, "iqm"), stats.iqm(np.concatenate(scores)))


def test_a_statistic_of_ones_own():
    scores = [seeds(20), seeds(7, seed=1)]

    def best_median(resampled):
        return np.max([np.median(x, axis=0) for x in resampled], axis=0)

    ours = stats.stratified_interval(scores, best_median, repeats=20_000)
    slow = slow_interval(scores, best_median, 0.95, 4000, seed=1)
    np.testing.assert_allclose(ours, slow, atol=0.1 * (slow[1] - slow[0]))

    def both(resampled):
        return np.stack([stats.mean_of_settings(resampled), stats.iqm_of_settings(resampled)])

    together = stats.stratified_interval(scores, both)
    np.testing.assert_array_equal(together[:, 0], stats.stratified_interval(scores, "mean"))
    np.testing.assert_array_equal(together[:, 1], stats.stratified_interval(scores, "iqm"))


def test_profile_and_probability_intervals_equal_those_of_a_loop():
    a, b = np.round(seeds(14), 1), np.round(seeds(9, seed=1) - 0.1, 1)  # with ties
    thresholds = np.array([0.2, 0.5, 0.8])
    rng = np.random.default_rng(1)
    shares = np.array([[(rng.choice(a, 14) > t).mean() for t in thresholds] for _ in range(4000)])
    ours = stats.profile_interval(a, thresholds, repeats=20_000)
    np.testing.assert_allclose(
        ours, np.quantile(shares, [0.025, 0.975], axis=0), atol=1.01 / 14
    )  # shares come in 14ths

    def point(scores):
        x, y = scores
        return np.mean([1.0 if p > q else 0.5 if p == q else 0.0 for p in x for q in y])

    slow = slow_interval([a, b], point, 0.9, 4000, seed=1)
    ours = stats.probability_interval(a, b, level=0.9, repeats=20_000)
    np.testing.assert_allclose(ours, slow, atol=0.02)
    assert ours[0] < stats.probability_of_improvement(a, b) < ours[1]


def test_bootstrap_intervals_of_means_equal_those_of_a_loop():
    a, b = seeds(15), seeds(8, seed=1)
    for ours, slow in [
        (stats.bootstrap_interval(a), slow_interval([a], lambda s: s[0].mean(), 0.95, 4000, 1)),
        (stats.bootstrap_difference(a, b), slow_interval([a, b], lambda s: s[0].mean() - s[1].mean(), 0.95, 4000, 1)),
    ]:
        np.testing.assert_allclose(ours, slow, atol=0.1 * (slow[1] - slow[0]))


def test_the_interval_covers_the_truth_as_often_as_it_says():
    hits = [
        low <= 0.5 <= high for low, high in (stats.stratified_interval([seeds(40, seed=k)], "mean") for k in range(400))
    ]
    assert 0.90 < np.mean(hits) < 0.98  # a percentile bootstrap of 40 seeds: a little under 0.95


INTERVALS = {
    "stratified mean": lambda x, **k: stats.stratified_interval([x, x + 1], "mean", **k),
    "stratified iqm": lambda x, **k: stats.stratified_interval([x, x + 1], "iqm", **k),
    "mean": stats.bootstrap_interval,
    "difference": lambda x, **k: stats.bootstrap_difference(x, np.arange(9.0), **k),
    "profile": lambda x, **k: stats.profile_interval(x, [0.3, 0.6], **k),
    "probability": lambda x, **k: stats.probability_interval(x, np.arange(9.0) / 9, **k),
}


@pytest.mark.parametrize("interval", INTERVALS.values(), ids=INTERVALS)
def test_every_interval_follows_its_seed_and_its_level(interval):
    x = seeds(21)
    np.testing.assert_array_equal(interval(x, seed=3), interval(x, seed=3))
    assert (interval(x, seed=3, repeats=50) != interval(x, seed=4, repeats=50)).any()
    wide, narrow = interval(x, level=0.99), interval(x, level=0.5)
    assert (wide[0] < narrow[0]).all() and (narrow[0] <= narrow[1]).all() and (narrow[1] < wide[1]).all()


@pytest.mark.parametrize("interval", INTERVALS.values(), ids=INTERVALS)
def test_every_interval_of_one_seed_or_of_a_nan_is_unknown(interval):
    assert np.isnan(interval(np.array([0.5]))).all()
    assert np.isnan(interval(np.array([0.5, np.nan, *seeds(30)]))).all()
    assert np.isfinite(interval(np.array([0.5, 0.5]))).all()


@pytest.mark.parametrize("interval", INTERVALS.values(), ids=INTERVALS)
def test_every_interval_says_what_it_cannot_take(interval):
    x = seeds(5)
    for level in (0, 1, -0.1, 95):
        with pytest.raises(ConfigError, match=f"level = {level}: expected a share between 0 and 1"):
            interval(x, level=level)
    with pytest.raises(ConfigError, match="repeats = 0"):
        interval(x, repeats=0)
    with pytest.raises(ConfigError, match=r"shape \(0,\): expected"):
        interval(np.zeros(0))


# --- summaries


def curves(n=12, n_evaluations=9):
    steps = np.arange(n_evaluations) * 25_600
    rise = np.linspace(0, 1, n_evaluations)
    return steps, rise * seeds(n)[:, None] + 0.01 * seeds((n, n_evaluations), seed=1)


def test_a_summary_is_made_of_the_statistics():
    steps, ret = curves()
    got = stats.summarise(steps, ret, threshold=0.4)
    final = ret[:, -1]
    assert (got.n_seeds, got.n_failed) == (12, 0)
    assert got.mean == pytest.approx(final.mean())
    assert got.error == pytest.approx(scipy.stats.sem(final))
    assert got.iqm == pytest.approx(slow_iqm(final))
    for interval, name in [(got.mean_interval, "mean"), (got.iqm_interval, "iqm")]:
        np.testing.assert_array_equal(interval, stats.stratified_interval([final], name))
    areas = [slow_area(steps, row) for row in ret]
    assert (got.area, got.area_error) == pytest.approx((np.mean(areas), scipy.stats.sem(areas)))
    arrivals = [slow_arrival(steps, row, 0.4) for row in ret]
    assert got.reached == np.mean(np.isfinite(arrivals)) and 0.5 < got.reached < 1
    assert got.steps_to_threshold == np.median(np.nan_to_num(arrivals, nan=np.inf))
    assert stats.summarise(steps, ret, threshold=0.4, seed=0) == got
    assert stats.summarise(steps, ret, threshold=0.4, seed=1).mean_interval != got.mean_interval
    assert all(type(x) in (int, float, tuple) for x in asdict(got).values()), "it can be written as JSON"


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_failed_seeds_are_counted_and_left_out(broken):
    steps, ret = curves()
    whole = asdict(stats.summarise(steps, ret, threshold=0.4))
    bad = np.full((3, len(steps)), 0.9)
    bad[0, 0], bad[1, 4], bad[2, -1] = broken, broken, broken  # at the start only, in the middle, at the end
    got = asdict(stats.summarise(steps, np.concatenate([ret, bad]), threshold=0.4))
    assert (got.pop("n_seeds"), got.pop("n_failed")) == (15, 3)
    assert got == {k: v for k, v in whole.items() if k not in ("n_seeds", "n_failed")}


def test_nothing_is_known_when_all_seeds_failed():
    got = asdict(stats.summarise([0, 10], [[0.0, np.nan], [np.nan, 1.0]], threshold=0.5))
    assert (got.pop("n_seeds"), got.pop("n_failed")) == (2, 2)
    assert np.isnan(np.hstack(list(got.values()))).all()


def test_one_seed_has_no_error():
    got = stats.summarise([0, 10], [[0.0, 1.0]], threshold=0.5)
    assert (got.mean, got.iqm, got.area, got.steps_to_threshold, got.reached) == (1.0, 1.0, 0.5, 10.0, 1.0)
    assert np.isnan([got.error, got.area_error, *got.mean_interval, *got.iqm_interval]).all()
    two = stats.summarise([0, 10], [[0.0, 1.0], [0.0, np.nan]], threshold=0.5)
    assert two.n_failed == 1 and math.isnan(two.error), "one sound seed is one seed"


def test_a_median_arrival_needs_more_than_half_of_the_seeds():
    steps, early, never = [0, 10, 20], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0]
    for n_early, n_never, expected in [(3, 2, 10.0), (2, 2, math.nan), (2, 3, math.nan), (0, 2, math.nan)]:
        got = stats.summarise(steps, [early] * n_early + [never] * n_never, threshold=0.5)
        assert got.steps_to_threshold == pytest.approx(expected, nan_ok=True)
        assert got.reached == n_early / (n_early + n_never)


# --- what cannot be used


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stats.iqm([]), "at least one seed"),
        (lambda: stats.iqm(1.0), "at least one seed"),
        (lambda: stats.mean_and_error(np.zeros((0, 3))), r"shape \(0, 3\): expected at least one seed"),
        (lambda: stats.performance_profile([], [0.5]), "scores of shape"),
        (lambda: stats.performance_profile([0.5], []), "thresholds of shape"),
        (lambda: stats.performance_profile(np.zeros((2, 2)), [0.5]), r"scores of shape \(2, 2\)"),
        (lambda: stats.probability_of_improvement([0.5], []), "scores of b of shape"),
        (lambda: stats.probability_of_improvement([], [0.5]), "scores of a of shape"),
        (lambda: stats.stratified_interval([], "mean"), "no scores"),
        (lambda: stats.stratified_interval([np.ones(2), np.ones((2, 2))], "mean"), r"setting 1 of shape \(2, 2\)"),
        (lambda: stats.stratified_interval([np.ones(2)], "mena"), "unknown statistic 'mena'. Did you mean mean"),
        (lambda: stats.stratified_interval([np.ones(2)], lambda x: np.mean(x[0])), "one number per resample"),
        (lambda: stats.area_under_curve([0, 1], [[1.0, 2.0, 3.0]]), r"shape \(1, 3\) at 2 steps"),
        (lambda: stats.area_under_curve([0, 0], [1.0, 2.0]), "must increase"),
        (lambda: stats.area_under_curve([], []), "steps of shape"),
        (lambda: stats.steps_to_threshold([0, 5, 3], [1.0, 2.0, 3.0], 1.0), "must increase"),
        (lambda: stats.steps_to_threshold([0, 1], [1.0, 2.0], math.nan), "threshold is NaN"),
        (lambda: stats.summarise([0, 1], np.zeros((0, 2)), threshold=1), "at least one seed"),
        (lambda: stats.summarise([0, 1], np.zeros(2), threshold=1), "one row per seed"),
    ],
)
def test_errors_say_what_was_given_and_what_was_expected(call, message):
    with pytest.raises(ConfigError, match=message):
        call()


def test_nan_is_passed_on():
    x = np.array([0.5, np.nan, 1.0])
    assert np.isnan(stats.performance_profile(x, [0.2, 0.8])).all()
    assert math.isnan(stats.probability_of_improvement(x, [0.5]))
    assert math.isnan(stats.probability_of_improvement([0.5], x))
    assert math.isnan(stats.area_under_curve([0, 1, 2], x))


def test_the_script_that_compares_with_rliable_says_what_it_needs(capsys):
    spec = importlib.util.spec_from_file_location("check_stats", Path(__file__).parent.parent / "tools/check_stats.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    if importlib.util.find_spec("rliable") is None:
        assert script.main() == 2 and "pip install" in capsys.readouterr().err
    else:
        assert script.main() == 0
