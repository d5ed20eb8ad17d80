"""Assignments against SciPy called directly: alone, in batches, under jit, vmap and shard_map."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec
from scipy.optimize import linear_sum_assignment

from procurl.teachers.matching import _begun, _extended
from procurl.teachers.transport import assign, assign_on_device, hurried_prices, prices, squared_distances

costs, priced = jax.jit(squared_distances), jax.jit(prices)
SOLVERS = {"as here": assign, "as on a GPU": assign_on_device}
COMPILED = {name: jax.jit(solve) for name, solve in SOLVERS.items()}


@pytest.fixture(params=SOLVERS)
def solver(request):
    return request.param


@pytest.fixture
def assigned(solver):
    return COMPILED[solver]


def clouds(seed, n, m, d=3, spread=1.0):
    rng = np.random.default_rng(seed)
    points, targets = rng.uniform(0, 4, (n, d)), 2.0 + spread * rng.normal(size=(m, d))
    return points.astype(np.float32), targets.astype(np.float32)


def total(cost, columns):
    return np.asarray(cost, np.float64)[np.arange(len(cost)), columns].sum()


def assert_optimal(cost, columns):
    columns = np.asarray(columns)
    assert columns.dtype == np.int32 and len(set(columns.tolist())) == len(columns), "no column twice"
    exact = np.asarray(cost, np.float64)
    assert total(cost, columns) == pytest.approx(exact[linear_sum_assignment(exact)].sum(), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 5), (7, 7), (30, 30), (30, 41), (120, 200)])
@pytest.mark.parametrize("spread", [0.05, *(pytest.param(s, marks=pytest.mark.slow) for s in (0.0, 2.0))])
def test_equals_scipy(n, m, spread, solver, assigned):
    for seed in range(3):
        cost = np.asarray(costs(*clouds(seed, n, m, spread=spread)))
        assert_optimal(cost, assigned(cost))
        if (n, m) == (7, 7):  # the steps one by one, each of which compiles anew for other sizes
            assert_optimal(cost, SOLVERS[solver](jnp.asarray(cost)))


def test_any_cost_will_do(assigned):
    rng = np.random.default_rng(0)
    for cost in (rng.normal(size=(30, 41)), np.zeros((1, 5)), np.full((7, 7), -3.0), 1e6 * rng.random((7, 7))):
        assert_optimal(cost.astype(np.float32), assigned(cost.astype(np.float32)))
    assert_optimal(np.zeros((30, 41), np.float32), assigned(np.zeros((30, 41), np.float32)))


@pytest.mark.parametrize("choosy", [0, 3, 12, 29])
def test_rows_that_do_not_care_take_what_is_left(choosy, assigned):
    rng = np.random.default_rng(choosy)
    cost = rng.random((30, 41)).astype(np.float32)
    cost[rng.permutation(30)[choosy:]] = 0.5
    assert_optimal(cost, assigned(cost))


def test_rows_that_are_all_alike_take_the_cheapest_columns(assigned):
    rng = np.random.default_rng(0)
    cost = np.tile(rng.random(41).astype(np.float32), (30, 1))
    assert_optimal(cost, assigned(cost))


def test_batches_and_vmap_give_what_each_problem_gets_alone(solver, assigned):
    cost = np.stack([costs(*clouds(s, 30, 41)) for s in range(6)])
    alone = np.stack([assigned(c) for c in cost])
    np.testing.assert_array_equal(assigned(cost), alone)
    np.testing.assert_array_equal(jax.jit(jax.vmap(SOLVERS[solver]))(cost), alone)
    twice = jax.jit(jax.vmap(jax.vmap(SOLVERS[solver])))(cost.reshape(2, 3, 30, 41))
    np.testing.assert_array_equal(np.asarray(twice).reshape(6, 30), alone)


def test_devices_side_by_side_do_not_wait_for_each_other_for_ever():
    """Large arguments from both devices at once, many times: a callback that deadlocks, deadlocks here."""
    devices = jax.local_devices()
    cost = np.random.default_rng(0).random((2 * len(devices), 300, 400)).astype(np.float32)
    spread = jax.jit(
        jax.shard_map(
            jax.vmap(assign),
            mesh=Mesh(np.array(devices), ("seeds",)),
            in_specs=PartitionSpec("seeds"),
            out_specs=PartitionSpec("seeds"),
            check_vma=False,
        )
    )
    for turn in range(5):
        columns = spread(cost + np.float32(turn))
    for c, column in zip(cost, np.asarray(columns), strict=True):
        assert_optimal(c, column)


def test_forbidden_pairs_are_avoided_where_possible(assigned):
    rng = np.random.default_rng(0)
    cost = rng.random((12, 20)).astype(np.float32)
    cost[:, 5:9] = np.inf
    cost[rng.random(cost.shape) < 0.2] = np.nan
    columns = np.asarray(assigned(cost))
    exact = np.where(np.isfinite(cost), cost, 1e6).astype(np.float64)
    assert np.isfinite(cost[np.arange(12), columns]).all()
    assert total(exact, columns) == pytest.approx(exact[linear_sum_assignment(exact)].sum())

    cost[2:5] = np.nan  # three rows have no choice: the other nine still get their best
    columns = np.asarray(assigned(cost))
    assert len(set(columns.tolist())) == 12
    assert np.isfinite(cost[np.arange(12), columns]).sum() == 9
    for hopeless in (np.nan, np.inf, -np.inf):
        assert sorted(np.asarray(assigned(np.full((7, 7), hopeless, np.float32))).tolist()) == list(range(7))


def test_large_problems_are_optimal_in_few_phases():
    """As CURROT has them: particles and targets, some of them alike, columns that nobody can have."""
    points, targets = clouds(3, 200, 260, spread=0.05)
    targets[:100] = targets[0]
    cost = np.array(costs(points, targets))
    cost[:, 200:230] = np.inf
    cost[:40] = 1.0
    columns = np.asarray(COMPILED["as on a GPU"](cost))
    exact = np.where(np.isfinite(cost), cost, 1e6).astype(np.float64)
    assert len(set(columns.tolist())) == 200
    assert total(exact, columns) == pytest.approx(exact[linear_sum_assignment(exact)].sum(), rel=1e-6)


def test_rows_that_are_alike_do_not_wait_for_each_other():
    """As CURROT has them where there is a single target: they took a phase each, and a GPU a second for an update."""
    n, m = 40, 60
    places = clouds(1, n, m)[1]
    cost = costs(np.zeros((n, 3), np.float32), places)
    choosy = jnp.ones(n, bool)
    plan = jax.jit(lambda: _extended(_begun(cost, priced(cost), choosy, jnp.isfinite(cost)), cost, choosy))()
    assert_optimal(cost, plan.column)


def test_prices_are_finite_and_ask_more_for_what_everybody_wants():
    points, targets = clouds(0, 30, 45, spread=0.0)
    cost = costs(targets[:30], np.vstack([points, points[:15] + np.float32(9.0)]))
    price = np.asarray(priced(cost))
    assert np.isfinite(price).all()
    assert np.argsort(price).tolist() != sorted(range(45)), "not constant"
    assert price[:30].max() < price[30:].min(), "potentials fall where demand is high"


def test_on_a_cpu_prices_are_asked_for_only_where_rows_are_in_each_others_way():
    hurried = jax.jit(hurried_prices)
    points, targets = clouds(0, 30, 41, spread=0.05)
    crowded = np.asarray(hurried(costs(points, targets)))
    assert np.isfinite(crowded).all() and crowded.any()
    assert not np.asarray(hurried(costs(points, points))).any(), "everybody has a favourite of their own"
    unlike = np.stack([costs(points, targets), costs(points, np.vstack([points, points[:11] + np.float32(9.0)]))])
    batch = np.asarray(hurried(unlike))
    assert not batch[1].any(), "each problem of a batch for itself"
    np.testing.assert_allclose(batch[0], crowded, atol=1e-4)


def test_too_few_columns_are_refused():
    with pytest.raises(ValueError, match="3 rows and only 2 columns"):
        assign(np.zeros((3, 2), np.float32))


def test_small_distances_are_exact():
    a = np.array([[3.9, 0.5, 2.0]], np.float32)
    assert float(costs(a, a + np.array([[1e-3, 0.0, 0.0]], np.float32))[0, 0]) == pytest.approx(1e-6, rel=1e-2)
