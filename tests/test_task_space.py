"""A user's own task space: `procurl.task_space`."""

import functools

import jax
import numpy as np
import pytest
from worlds import fast

import procurl
from procurl.errors import ConfigError, SpaceError
from procurl.targets import Mixture, Point, Uniform

SIZES = dict.fromkeys(("pool_size", "n_targets", "n_held_out"), 2000)  # all alike: each new one compiles anew


def box(**changed):
    arguments = {"low": [0.0, -1.0], "high": [4.0, 1.0], "names": ["width", "angle"], "target": [3.0, 0.5]}
    return procurl.task_space(**{**arguments, **SIZES, **changed})


def contexts(tasks):
    return np.asarray(tasks.context)


def test_one_call_makes_a_sound_space():
    space = box(n_targets=7, n_held_out=9, value_range=(-5.0, 20.0))
    procurl.check_space(space)
    assert (space.n_pool, len(contexts(space.targets)), len(contexts(space.held_out))) == (2000, 7, 9)
    assert space.names == ("width", "angle") and space.value_range == (-5.0, 20.0) and space.target == Point((3.0, 0.5))
    assert (contexts(space.held_out) == [3.0, 0.5]).all()
    pool = contexts(space.pool)
    assert abs(pool.mean(axis=0) - [2.0, 0.0]).max() < 0.2 and pool.min(axis=0)[0] < 0.1 and pool.max(axis=0)[0] > 3.9


def test_the_same_arguments_give_the_same_tasks_and_another_seed_gives_others():
    a, b, c = box(), box(), box(seed=1)
    assert np.array_equal(contexts(a.pool), contexts(b.pool)) and np.array_equal(a.pool.seed, b.pool.seed)
    assert not np.array_equal(contexts(a.pool), contexts(c.pool))


def test_every_kind_of_target():
    rows = np.array([[1.0, 0.0], [2.0, 0.5], [4.0, 1.0]])
    samples = contexts(box(target=rows).held_out)
    assert {tuple(x) for x in samples} == {tuple(x) for x in rows}
    assert abs((samples == rows[0]).all(axis=1).mean() - 1 / 3) < 0.08

    def sampler(rng, n):
        return np.column_stack([rng.uniform(3.0, 4.0, n), np.full(n, 0.25)])

    drawn = contexts(box(target=sampler).held_out)
    assert (drawn[:, 1] == 0.25).all() and drawn[:, 0].min() >= 3.0 and abs(drawn[:, 0].mean() - 3.5) < 0.06

    mixed = contexts(box(target=[(3, [0.0, 0.0]), (1, sampler)]).held_out)
    assert abs((mixed == 0.0).all(axis=1).mean() - 0.75) < 0.04 and (mixed[:, 0] >= 3.0).any()

    assert (contexts(box(target=Uniform((1.0, 0.0), (1.0, 1.0))).held_out)[:, 0] == 1.0).all()
    far = Mixture(low=((9.0, 0.0),), high=((9.0, 0.0),), std=((0.1, 0.1),))  # beyond the bounds: clipped
    assert (contexts(box(target=far).held_out)[:, 0] == 4.0).all()


def test_discrete_and_mixed_contexts():
    space = box(values={"width": (0, 1, 4)}, target=[4, 0.5])
    width = contexts(space.pool)[:, 0]
    assert set(width) == {0.0, 1.0, 4.0} and abs((width == 4.0).mean() - 1 / 3) < 0.06
    assert len(set(contexts(space.pool)[:, 1])) > 1900, "the other dimension stays continuous"
    invented = jax.jit(space.project)(np.array([[2.4, 0.3], [2.6, 0.3], [9.0, 0.3]], np.float32))
    assert np.asarray(invented)[:, 0].tolist() == [1.0, 4.0, 4.0]
    assert np.allclose(np.asarray(invented)[:, 1], 0.3)


@functools.cache
def mixed():
    """With a mixture of a sampler and a point, and a discrete dimension."""
    target = [(1, lambda rng, n: np.column_stack([rng.uniform(3, 4, n), rng.uniform(-1, 1, n)])), (1, [4.0, 0.5])]
    return box(values={"width": range(5)}, target=target)


# IID and SPDL draw from the pool with the same lines as ProCuRL-Unif, and invent nothing.
@pytest.mark.parametrize("name", fast("target", "procurl-unif", "procurl-target", "plr", "gradient"))
def test_every_teacher_works_in_it(name):
    curriculum = procurl.Curriculum(procurl.make_teacher(name, mixed()), every=10, unit="episodes")
    for _ in range(2):
        while not curriculum.due:
            task = curriculum.next()
            assert task.context[0] in range(5)
            curriculum.record(task, ret=float(task.context[1] > 0), length=5, advantage=0.1)
        curriculum.observe(value=lambda tasks: tasks.context[:, 1] / 2 + 0.5)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"low": [0.0]}, "as many finite numbers"),
        ({"low": [5.0, -1.0]}, "dimension 0: low = 5 is above high = 4"),
        ({"high": [np.inf, 1.0]}, "finite"),
        ({"names": ["width"]}, "expected 2 different"),
        ({"names": ["width", "width"]}, "expected 2 different"),
        ({"pool_size": 0}, "pool_size = 0: expected at least 1"),
        ({"target": [3.0]}, r"target has shape \(1,\): expected contexts of 2 numbers"),
        ({"target": [9.0, 0.0]}, r"width = 9 lies outside \[0, 4\]"),
        ({"target": [[1.0, 0.0], [1.0, -2.0]]}, r"angle = -2 lies outside .*1 of 2 contexts"),
        ({"target": [np.nan, 0.0]}, "width = nan lies outside"),
        ({"target": "hard"}, "expected a context, an array of contexts, a function"),
        ({"target": lambda rng, n: rng.uniform(0, 9, (n, 2))}, "what it draws: .*lies outside"),
        ({"target": lambda rng, n: np.zeros((3, 2))}, "gave 3 contexts when asked for"),
        ({"target": Point((1.0,))}, "draws contexts of 1 numbers: expected 2"),
        ({"target": [(-1, [1.0, 0.0]), (2, [2.0, 0.0])]}, "expected positive numbers"),
        ({"values": {"width": (0, 7)}}, r"expected numbers in \[0, 4\]"),
        ({"values": {"width": (0, 1)}}, r"not allowed: the nearest is \[1.0, 0.5\]"),
        ({"values": {"widht": (0, 1)}}, "Did you mean width"),
        ({"pool": [[1.0, 5.0]]}, "pool: angle = 5 lies outside"),
        ({"value_range": (1.0, 1.0)}, "V_min < V_max"),
    ],
)
def test_bad_arguments_are_refused(changed, message):
    with pytest.raises((SpaceError, ConfigError), match=message):
        box(**changed)


def test_a_pool_of_ones_own():
    pool = [[1.0, 0.0], [2.0, 0.5]]
    assert contexts(box(pool=pool).pool).tolist() == pool
