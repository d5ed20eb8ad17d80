"""ALP-GMM against slow NumPy versions of its two halves, and with a student that makes progress in one place."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from test_path import after, begun, episodes
from test_teachers import small_space

import procurl
from procurl.errors import ConfigError
from procurl.programs import jit
from procurl.teachers.alp_gmm import ALPGMM
from procurl.teachers.mixture import MEANS_ROUNDS, RIDGE, Mixture, best_mixture, spread_rows

KEY = jax.random.key(2)
N = 64


def alp_gmm(space=None, **fields):
    smaller = {"fit_every": 100, "history": 150, "max_gaussians": 3, "em_rounds": 5}
    return ALPGMM(small_space() if space is None else space, **{**smaller, **fields})


@jit
def proposed(teacher, state, key):
    return teacher.propose(state, key, 4000)


def test_an_episodes_progress_is_its_change_from_the_nearest_earlier_one():
    teacher = alp_gmm(fit_every=1000, history=1000)
    rng = np.random.default_rng(0)
    state, seen = begun(teacher, KEY), []
    for _ in range(3):
        context = rng.integers(0, 9, (150, 2)) * 3 / 8  # many of them again: then the latest counts
        ret = rng.normal(size=150)
        played = episodes(context, ret > 0, ret)
        ended = rng.uniform(size=150) < 0.7
        state = after(teacher, state, KEY, played._replace(finished=jnp.asarray(ended)))
        for c, r in zip(context[ended], ret[ended].astype(np.float32), strict=True):
            apart = [np.sum((c - other) ** 2) for other, _, _ in seen]
            best = max(range(len(seen)), key=lambda j: (-apart[j], j)) if seen else None
            seen.append((c, r, 0.0 if best is None else abs(r - seen[best][1])))
    assert int(state.history.seen) == len(seen) > 250
    np.testing.assert_allclose(np.asarray(state.history.alp)[: len(seen)], [alp for _, _, alp in seen], atol=1e-6)


def test_what_is_older_than_the_history_is_forgotten():
    teacher = alp_gmm(fit_every=N, history=N)
    here, there = np.full((N, 2), 0.25), np.full((N, 2), 3.0)
    state = after(teacher, begun(teacher, KEY), KEY, episodes(here, np.zeros(N, bool), np.zeros(N)))
    state = after(teacher, state, KEY, episodes(there, np.zeros(N, bool), np.full(N, 0.5)))
    state = after(teacher, state, KEY, episodes(here, np.zeros(N, bool), np.full(N, 0.75)))
    alp = np.asarray(state.history.alp)
    assert alp[0] == 0.25 and (alp[1:] == 0).all(), "compared with the return over there"


def slow_mixture(x, rows, k, rounds):
    """k-means and EM in loops; weights, means, covariances and AIC."""
    centre = x[rows[:k]].copy()
    for _ in range(MEANS_ROUNDS + 1):
        nearest = np.argmin([[np.sum((p - c) ** 2) for c in centre] for p in x], axis=1)
        belongs = np.eye(k)[nearest]
        for g in range(k):
            if (nearest == g).any():
                centre[g] = x[nearest == g].mean(axis=0)
    for t in range(rounds + 1):
        n = belongs.sum(axis=0)
        mean = [sum(b * p for b, p in zip(belongs[:, g], x, strict=True)) / n[g] for g in range(k)]
        covariance = [
            sum(b * np.outer(p - mean[g], p - mean[g]) for b, p in zip(belongs[:, g], x, strict=True)) / n[g]
            + RIDGE * np.eye(x.shape[1])
            for g in range(k)
        ]
        density = np.stack(
            [n[g] / len(x) * stats.multivariate_normal(mean[g], covariance[g]).pdf(x) for g in range(k)], axis=1
        )
        if t < rounds:
            belongs = density / density.sum(axis=1, keepdims=True)
    d = x.shape[1]
    free = k * (d + d * (d + 1) / 2) + k - 1
    return n / len(x), np.array(mean), np.array(covariance), 2 * free - 2 * np.log(density.sum(axis=1)).sum()


@jit
def fitted(key, x):
    return spread_rows(key, x, 4), best_mixture(key, x, 4, 6)


@pytest.mark.parametrize(("places", "found"), [(2, 2), (3, 3)])
def test_the_best_mixture_is_that_of_slow_em(places, found):
    rng = np.random.default_rng(1)
    centre = np.array([[0.2, 0.3, 0.1], [0.7, 0.8, 0.5], [0.2, 0.9, 0.3]])[:places]
    x = (centre[rng.integers(0, places, 100)] + rng.normal(size=(100, 3)) * 0.05).astype(np.float32)
    rows, mixture = fitted(KEY, x)
    slow = {k: slow_mixture(x.astype(float), np.asarray(rows), k, 6) for k in (2, 3, 4)}
    best = min(slow, key=lambda k: slow[k][-1])
    weight, mean, covariance, _ = slow[best]
    assert best == found and (np.asarray(mixture.weight) > 0).sum() == best
    np.testing.assert_allclose(mixture.weight[:best], weight, rtol=1e-3)
    np.testing.assert_allclose(mixture.mean[:best], mean, atol=1e-4)
    factor = np.asarray(mixture.factor[:best])
    np.testing.assert_allclose(factor @ factor.transpose(0, 2, 1), covariance, atol=1e-5)


def test_points_that_are_all_alike_have_a_mixture():
    _, mixture = fitted(KEY, np.full((100, 3), 0.5, np.float32))
    assert all(np.isfinite(part).all() for part in mixture)
    there = np.asarray(mixture.weight) > 0
    np.testing.assert_allclose(np.asarray(mixture.mean)[there], 0.5, atol=1e-6)


def test_gaussians_are_chosen_by_their_mean_progress():
    teacher = alp_gmm(random_share=0.2)
    state = begun(teacher, KEY)
    mean = jnp.array([[0.25, 0.25, 0.1], [0.75, 0.25, 0.3], [0.5, 0.5, 0.9]])
    factor = jnp.broadcast_to(0.01 * jnp.eye(3), (3, 3, 3))
    state = state._replace(
        history=state.history._replace(seen=jnp.int32(100)),
        chance=jnp.array([0.1, 0.3, 0.0]),
        mixture=Mixture(jnp.array([0.5, 0.5, 0.0]), mean, factor),
    )
    tasks = proposed(teacher, state, KEY)
    share = np.asarray(tasks.context) / 3
    near = [(np.abs(share - np.asarray(m[:2])) < 0.05).all(axis=1).sum() for m in mean]
    anywhere = 4000 * 0.2 * 0.01  # of the uniform ones in such a square
    expected = [800 + anywhere, 2400 + anywhere, anywhere]
    assert stats.chisquare([*near, 4000 - sum(near)], [*expected, 4000 - sum(expected)]).pvalue > 1e-4
    there = share[(np.abs(share - 0.25) < 0.05).all(axis=1)]
    np.testing.assert_allclose(there.std(axis=0), 0.01, rtol=0.15)


def test_before_the_first_fit_contexts_come_from_the_whole_box():
    teacher = alp_gmm()
    share = np.asarray(proposed(teacher, begun(teacher, KEY), KEY).context) / 3
    assert stats.kstest(share[:, 0], "uniform").pvalue > 1e-4 and stats.kstest(share[:, 1], "uniform").pvalue > 1e-4


def test_it_goes_where_the_student_makes_progress():
    """Left, returns rise with time; right, all is known already, or hopeless."""
    teacher = alp_gmm(fit_every=60, max_gaussians=4)
    state = begun(teacher, KEY)
    for t in range(8):
        key = jax.random.fold_in(KEY, t)
        context = np.asarray(proposed(teacher, state, key).context)[:N]
        ret = np.where(context[:, 0] < 1.0, 0.1 * t, context[:, 1] > 1.5)
        state = after(teacher, state, key, episodes(context, ret > 0.99, ret))
    left = np.asarray(proposed(teacher, state, KEY).context)[:, 0] < 1.0
    assert left.mean() > 0.6, "a third of the box"


def test_a_place_that_is_no_number_stops_the_seed():
    teacher = alp_gmm(fit_every=N, history=N)
    context = np.random.default_rng(0).uniform(0, 3, (N, 2))
    context[7] = np.nan
    state = after(teacher, begun(teacher, KEY), KEY, episodes(context, np.zeros(N, bool), context[:, 0]))
    assert np.isnan(np.asarray(proposed(teacher, state, KEY).context)).any(axis=1).mean() > 0.7


def test_what_is_refused():
    with pytest.raises(ConfigError, match="history = 50, expected at least fit_every = 100"):
        alp_gmm(history=50)
    with pytest.raises(ConfigError, match="random_share = 1.5: expected"):
        alp_gmm(random_share=1.5)
    with pytest.raises(ConfigError, match="max_gaussians = 1: expected at least 2"):
        alp_gmm(max_gaussians=1)
    with pytest.raises(ConfigError, match="ALPGMM: it compares tasks by distance"):
        ALPGMM(procurl.categorical_space(["a", "b"], target="b"))
    assert dataclasses.fields(ALPGMM)[1].default == 250, "as in the authors' code"
