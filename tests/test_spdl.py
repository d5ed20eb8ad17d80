"""SPDL against SciPy's constrained optimum, and on instances that break solvers."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp
from test_teachers import small_space, watched

from procurl.errors import ConfigError
from procurl.programs import jit
from procurl.teachers.spdl import SPDL, normalised, self_paced, usable_values


def random_instance(seed, n=None):
    rng = np.random.default_rng(seed)
    n = n or (8, 20, 30)[seed % 3]  # few sizes, as each compiles anew
    log_q, log_mu = (x - logsumexp(x) for x in rng.normal(0, rng.uniform(0.3, 3), (2, n)))
    return rng.uniform(-0.2, 1.2, n), log_q, log_mu


def kl(log_p, log_q):
    return float(np.sum(np.exp(log_p) * (log_p - log_q)))


def optimum(value, log_q, log_mu, delta, epsilon):
    """The concave dual in (eta, lambda), in float64 (the specification, 5.5). None: infeasible."""

    def solution(x):
        logits = (log_mu + x[1] * log_q + x[0] * value) / (1 + x[1])
        return logits - logsumexp(logits), logsumexp(logits)

    def negative_dual(x):
        log_p, log_z = solution(x)
        p = np.exp(log_p)
        gradient = [delta - p @ value, kl(log_p, log_q) - epsilon]
        return (1 + x[1]) * log_z - x[0] * delta + x[1] * epsilon, -np.array(gradient)

    best = min(
        (
            minimize(negative_dual, start, jac=True, bounds=[(0, 1e6)] * 2, options={"ftol": 1e-15, "gtol": 1e-10})
            for start in ([0.1, 0.1], [1.0, 1.0], [10.0, 10.0])
        ),
        key=lambda r: r.fun,
    )
    return solution(best.x)[0]


def easiest(value, log_q, epsilon):
    """The largest mean value within the trust region, by plain bisection on the tilt."""
    tilt = lambda b: log_q + b * value - logsumexp(log_q + b * value)  # noqa: E731
    low, high = 0.0, 1e7
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if kl(tilt(middle), log_q) <= epsilon else (low, middle)
    return tilt(low)


solved, floored = jax.jit(self_paced), jax.jit(normalised)
begin = jit(lambda teacher: teacher.init(jax.random.key(0)))


def ours(value, log_q, log_mu, delta, epsilon):
    arrays = (np.asarray(x, np.float32) for x in (value, log_q, log_mu))
    return np.asarray(solved(*arrays, delta, epsilon), np.float64)


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(s, marks=pytest.mark.slow) for s in range(12, 40))])
def test_equals_the_constrained_optimum(seed):
    value, log_q, log_mu = random_instance(seed)
    rng = np.random.default_rng(1000 + seed)
    delta, epsilon = rng.uniform(0.0, 0.9), rng.choice([0.02, 0.2, 0.5, 20.0])
    log_p = ours(value, log_q, log_mu, delta, epsilon)
    p = np.exp(log_p)
    assert p.sum() == pytest.approx(1, abs=1e-5)
    assert kl(log_p, log_q) <= epsilon * (1 + 1e-3)
    best = easiest(value, log_q, epsilon)
    if np.exp(best) @ value < delta:  # infeasible: recover
        assert p @ value == pytest.approx(np.exp(best) @ value, abs=1e-4)
    else:
        expected = optimum(value, log_q, log_mu, delta, epsilon)
        assert p @ value >= delta - 1e-4
        assert kl(log_p, log_mu) == pytest.approx(kl(expected, log_mu), abs=1e-4)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
@pytest.mark.filterwarnings("ignore:Values in x were outside bounds")  # the reference solver of an older SciPy
def test_equals_what_a_primal_solver_finds(seed):
    """The oracle above shares its mathematics with the code; SLSQP knows only the problem."""
    value, log_q, log_mu = random_instance(seed, n=8)
    epsilon = 0.3
    p0 = np.exp(easiest(value, log_q, epsilon * 0.9))
    delta = 0.8 * (p0 @ value)

    def divergence(p, log_r):
        return p @ (np.log(np.maximum(p, 1e-300)) - log_r)

    constraints = [
        {"type": "eq", "fun": lambda p: p.sum() - 1},
        {"type": "ineq", "fun": lambda p: p @ value - delta},
        {"type": "ineq", "fun": lambda p: epsilon - divergence(p, log_q)},
    ]
    options = {"maxiter": 500, "ftol": 1e-10}
    primal = minimize(
        divergence, p0, (log_mu,), "SLSQP", bounds=[(1e-12, 1)] * 8, constraints=constraints, options=options
    )
    log_p = ours(value, log_q, log_mu, delta, epsilon)
    assert kl(log_p, log_mu) == pytest.approx(primal.fun, abs=1e-4)


@pytest.mark.parametrize("level", [0.2, 0.5, 0.9])
def test_constant_values_go_as_far_as_they_may_or_stay(level):
    _, log_q, log_mu = random_instance(0)
    log_p = ours(np.full(len(log_q), level), log_q, log_mu, 0.5, 0.1)
    if level < 0.5:
        np.testing.assert_allclose(log_p, log_q, atol=1e-4)
    else:
        assert kl(log_p, log_q) == pytest.approx(min(0.1, kl(log_mu, log_q)), rel=1e-3)


def test_a_wide_trust_region_reaches_the_target_at_once():
    value, log_q, log_mu = random_instance(5)
    np.testing.assert_allclose(ours(value, log_q, log_mu, -1.0, 100.0), log_mu, atol=1e-4)


def test_no_hope_and_a_wide_trust_region_puts_everything_on_the_best_task():
    value, log_q, log_mu = random_instance(6)
    p = np.exp(ours(value, log_q, log_mu, 5.0, 100.0))
    assert p.argmax() == value.argmax() and p.max() > 0.999


def test_one_task():
    assert ours([0.1], [0.0], [0.0], 0.5, 0.5) == pytest.approx(0.0)


def test_a_point_mass_spreads_again():
    """Floors keep a way back: from one task, many updates lead to the target."""
    n = 20
    log_q = np.asarray(floored(np.where(np.arange(n) == 3, 0.0, -np.inf).astype(np.float32)), np.float64)
    log_mu = np.full(n, -np.log(n))
    assert np.isfinite(log_q).all()
    distance = []
    for _ in range(40):
        log_p = ours(np.full(n, 0.9), log_q, log_mu, 0.5, 0.5)
        assert kl(log_p, log_q) <= 0.5 * (1 + 1e-3)
        log_q = log_p
        distance.append(kl(log_q, log_mu))
    assert (np.diff(distance) < 1e-5).all() and distance[-1] < 1e-4


def test_a_target_with_tiny_tails():
    value, log_q, _ = random_instance(7, n=30)
    log_mu = np.asarray(floored(np.linspace(0.0, -1e4, 30, dtype=np.float32)), np.float64)
    assert log_mu.min() == pytest.approx(np.log(1e-12 / 30), abs=1e-2)
    log_p = ours(value, log_q, log_mu, 0.6, 0.3)
    assert kl(log_p, log_mu) == pytest.approx(kl(optimum(value, log_q, log_mu, 0.6, 0.3), log_mu), abs=3e-4)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 300.0, 1e30])
def test_the_scale_of_the_rewards_does_not_matter(scale):
    value, log_q, log_mu = random_instance(8)
    np.testing.assert_allclose(
        ours(scale * value, log_q, log_mu, scale * 0.7, 0.2), ours(value, log_q, log_mu, 0.7, 0.2), atol=2e-3
    )


def test_values_that_are_no_numbers_count_as_the_worst():
    usable = jax.jit(lambda value: usable_values(value, -1.0))
    some = np.array([0.3, np.nan, 0.7, np.inf, -np.inf], np.float32)
    np.testing.assert_allclose(usable(some), [0.3, 0.3, 0.7, 0.3, 0.3])
    np.testing.assert_allclose(usable(np.full(5, np.nan, np.float32)), -1.0)


def test_vmap_gives_what_each_seed_gets_alone():
    instances = [random_instance(seed, n=20) for seed in range(6)]
    deltas = np.linspace(0.2, 1.1, 6, dtype=np.float32)
    value, log_q, log_mu = (np.array(x, np.float32) for x in zip(*instances, strict=True))
    together = jax.jit(jax.vmap(self_paced, in_axes=(0, 0, 0, 0, None)))(value, log_q, log_mu, deltas, 0.3)
    for row, (instance, delta) in enumerate(zip(instances, deltas, strict=True)):
        np.testing.assert_allclose(np.asarray(together)[row], ours(*instance, float(delta), 0.3), atol=1e-4)


class Solved(NamedTuple):
    def value(self, tasks):
        return jnp.full(tasks.seed.shape, 0.9)


def test_the_release_stays_uniform_while_the_student_is_good_enough():
    teacher = SPDL(small_space(), target="uniform")
    np.testing.assert_allclose(watched(teacher, Solved()).log_weights, -np.log(40), atol=1e-5)


def test_the_kernel_density_of_the_target():
    space = small_space()
    log_mu = np.asarray(begin(SPDL(space, bandwidth=0.1)).log_mu)
    pool, targets = (np.asarray(t.context, np.float64) for t in (space.pool, space.targets))
    h = 0.1 * np.sqrt(18.0)
    density = np.array([sum(np.exp(-np.sum((c - t) ** 2) / (2 * h**2)) for t in targets) for c in pool])
    np.testing.assert_allclose(np.exp(log_mu), density / density.sum(), rtol=1e-4)


def test_a_box_without_extent_is_no_problem():
    space = small_space()
    nowhere = space.pool._replace(context=jnp.asarray(np.zeros((40, 2), np.float32)))
    flat = dataclasses.replace(space, low=space.low, high=space.low, pool=nowhere)
    assert np.isfinite(begin(SPDL(flat)).log_mu).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"epsilon": -0.1}, "epsilon = -0.1: expected at least 0"),
        ({"target": "nu"}, "expected 'mu' or 'uniform'"),
        ({"bandwidth": 0.0}, "expected a positive number"),
    ],
)
def test_bad_hyper_parameters_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        SPDL(small_space(), **fields)
