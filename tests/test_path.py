"""ProCuRL-Path against brute force, under changes of units, and in spaces with nothing to choose from."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from test_teachers import small_space, tasks

import procurl
from procurl.check.teacher import imagined_episodes
from procurl.errors import ConfigError
from procurl.programs import jit
from procurl.runs.provenance import describe, rebuilt
from procurl.targets import Point, Uniform
from procurl.teachers.base import OnPool
from procurl.teachers.path import ProCuRLPath

KEY = jax.random.key(5)
N = 64  # episodes of an update


@jit
def after(teacher, state, key, episodes):
    return teacher.observe(state, key, episodes, None)


@jit
def begun(teacher, key):
    return teacher.init(key)


def path(space=None, **fields):
    return ProCuRLPath(small_space() if space is None else space, **{"n_pairs": 128, "memory": 200, **fields})


def episodes(context, success, ret=None):
    """Finished episodes in these contexts, with these outcomes."""
    played = jax.tree.map(jnp.asarray, tasks(np.asarray(context, np.float32)))
    imagined = imagined_episodes(KEY, played, 1)
    cut = jax.tree.map(lambda x: x[1:], imagined)
    success = np.asarray(success)
    ret = success.astype(np.float32) if ret is None else np.asarray(ret, np.float32)
    return cut._replace(
        task=played, success=jnp.asarray(success), ret=jnp.asarray(ret), finished=jnp.ones(len(success), bool)
    )


def random_episodes(seed=0, n=N, high=3.0, threshold=1.5):
    """In a square, where what lies left of a line can mostly be done."""
    rng = np.random.default_rng(seed)
    context = rng.uniform(0, high, (n, 2))
    return episodes(context, (context[:, 0] < threshold) ^ (rng.uniform(size=n) < 0.1))


def rate(context, seen, outcome, teacher):
    """The formula, one pair at a time."""
    low, span = np.asarray(teacher.space.low, float), np.asarray(teacher.space.high - teacher.space.low, float)
    total = weights = 0.0
    for c, s in zip(np.asarray(seen, float), outcome, strict=True):
        d = (np.asarray(context, float) - c) / span
        w = np.exp(-0.5 * (d @ d) / teacher.width**2)
        total, weights = total + w * s, weights + w
    assert low.shape == span.shape
    return total / (weights + teacher.doubt)


def test_every_way_ends_where_brute_force_says():
    teacher = path(width=0.1, n_points=7)
    teacher = dataclasses.replace(
        teacher, space=dataclasses.replace(teacher.space, target=Uniform((0.0, 0.0), (3.0, 3.0)))
    )
    played = random_episodes()
    state = after(teacher, begun(teacher, KEY), KEY, played)
    _, k_target = jax.random.split(KEY)
    targets = np.asarray(teacher.space.sample_target(k_target, 128).context)
    far = []
    pool = {tuple(context) for context in np.asarray(teacher.space.pool.context).tolist()}
    for start, target, end, stays in zip(np.asarray(state.start), targets, *map(np.asarray, state[1:3]), strict=True):
        assert tuple(start.tolist()) in pool
        points = [(1 - k / 6) * start + k / 6 * target for k in range(7)]
        rates = [rate(point, played.task.context, np.asarray(played.success), teacher) for point in points]
        if min(abs(r - teacher.delta) for r in rates) < 1e-4:
            continue  # rounding decides
        done = [k for k, r in enumerate(rates) if r >= teacher.delta]
        k = done[-1] if done else 0
        far.append(k)
        np.testing.assert_allclose(end, points[k], rtol=1e-5, atol=1e-6)
        mastered = teacher.stay * (rates[6] - teacher.delta) / (1 - teacher.delta) if k == 6 else 0.0
        np.testing.assert_allclose(stays, mastered, atol=1e-4)
    assert len(far) > 120 and {0, 3, 6} <= set(far)  # all cases were seen


def test_starts_are_drawn_by_their_potential_relative_to_the_best():
    teacher = path(small_space(n_pool=6), width=0.2, n_pairs=20_000)
    played = random_episodes()
    state = after(teacher, begun(teacher, KEY), KEY, played)
    p = np.array(
        [rate(c, played.task.context, np.asarray(played.success), teacher) for c in teacher.space.pool.context]
    )
    z = p * (1 - p)
    expected = np.exp(teacher.b * z / z.max())
    counts = np.bincount(rows_of(state.start, teacher.space), minlength=6)
    assert stats.chisquare(counts, 20_000 * expected / expected.sum()).pvalue > 1e-4
    assert counts.max() > 3 * counts.min()


def rows_of(context, space):
    """The rows of the pool in which these contexts are."""
    pool = {tuple(context): row for row, context in enumerate(np.asarray(space.pool.context).tolist())}
    return np.array([pool[tuple(context)] for context in np.asarray(context).tolist()])


def in_units(teacher, scale, shift):
    """The same space with contexts in other units."""
    moved = lambda task: task._replace(context=task.context * scale + shift)  # noqa: E731
    space = teacher.space
    target = Point(tuple(np.asarray(space.target.context) * scale + shift))
    return dataclasses.replace(teacher, space=dataclasses.replace(
        space, low=space.low * scale + shift, high=space.high * scale + shift, pool=moved(space.pool),
        targets=moved(space.targets), held_out=moved(space.held_out), target=target,
    ))  # fmt: skip


@pytest.mark.exact
@pytest.mark.parametrize(
    ("scale", "shift"),
    [(8.0, 0.0), (0.3, -7.0), *(pytest.param(s, 0.0, marks=pytest.mark.slow) for s in (0.25, 100.0))],
)
def test_units_of_the_context_change_nothing(scale, shift):
    teacher, played = path(width=0.1), random_episodes()
    other = in_units(teacher, scale, shift)
    here = after(teacher, begun(teacher, KEY), KEY, played)
    moved = played._replace(task=played.task._replace(context=played.task.context * scale + shift))
    there = after(other, begun(other, KEY), KEY, moved)
    exact = scale in (8.0, 0.25) and shift == 0
    np.testing.assert_array_equal(rows_of(here.start, teacher.space), rows_of(there.start, other.space))
    ends = np.asarray(here.end) * scale + shift
    if exact:
        np.testing.assert_array_equal(ends, there.end)
        np.testing.assert_array_equal(here.stays, there.stays)
    else:
        same = np.isclose(ends, there.end, rtol=1e-4, atol=1e-4 * scale).all(axis=1)
        assert same.mean() > 0.98  # of a point that is at the edge of what can be done, rounding decides
    a, b = (np.asarray(t.propose(s, KEY, 50).context) for t, s in ((teacher, here), (other, there)))
    assert np.isclose(a * scale + shift, b, rtol=1e-4, atol=1e-4 * scale).all(axis=1).mean() > 0.9


@pytest.mark.exact
@pytest.mark.parametrize("value_range", [(0.0, 4.0), (-1600.0, 0.0)])
def test_returns_count_as_shares_of_their_range(value_range):
    """Where an environment knows no success; shifted and scaled together with the range, they change nothing."""
    low, high = value_range
    rng = np.random.default_rng(1)
    share = rng.integers(0, 9, N) / 8
    context = rng.uniform(0, 3, (N, 2))
    never = np.zeros(N, bool)
    here = path(width=0.1)
    there = path(small_space(value_range=value_range), width=0.1)
    a = after(here, begun(here, KEY), KEY, episodes(context, never, share))
    b = after(there, begun(there, KEY), KEY, episodes(context, never, low + (high - low) * share))
    for part in ("start", "end", "stays"):  # all that is chosen; the memory holds returns as they were
        np.testing.assert_array_equal(getattr(a, part), getattr(b, part))
    assert not np.array_equal(a.end, a.start)  # there is a way at all


def test_on_a_gpu_the_rates_are_the_same_and_stay_apart_from_what_follows(monkeypatch):
    teacher, given = path(), random_episodes()
    state = after(teacher, begun(teacher, KEY), KEY, given)
    context = given.task.context

    def rates():  # a new function, which is traced anew
        return jax.jit(lambda: teacher._rate(state.memory, context))

    expected = rates()()
    assert "optimization_barrier" in rates().trace().lower(lowering_platforms=("cuda",)).as_text()
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *args, cpu, default: default(*args))
    np.testing.assert_allclose(rates()(), expected, rtol=1e-5)


def test_one_success_makes_success_what_counts():
    teacher = path(width=0.1)
    context = np.random.default_rng(1).uniform(0, 3, (N, 2))
    state = after(teacher, begun(teacher, KEY), KEY, episodes(context, np.zeros(N, bool), np.full(N, 0.9)))
    assert not np.array_equal(state.end, state.start)
    state = after(teacher, state, KEY, episodes(context, np.arange(N) == 0, np.full(N, 0.9)))
    ended = np.any(np.asarray(state.end) != np.asarray(state.start), axis=1)
    assert ended.mean() < 0.2  # only ways past that one


def test_without_any_success_tasks_are_uniform_and_stay_at_home():
    teacher = path(n_pairs=20_000)
    context = np.random.default_rng(1).uniform(0, 3, (N, 2))
    state = after(teacher, begun(teacher, KEY), KEY, episodes(context, np.zeros(N, bool)))
    np.testing.assert_array_equal(state.end, state.start)
    counts = np.bincount(rows_of(state.start, teacher.space), minlength=teacher.space.n_pool)
    assert stats.chisquare(counts).pvalue > 1e-4


def test_when_all_is_solved_a_share_stays_at_home():
    teacher = path(small_space(identical_targets=True), width=0.3, doubt=1e-3, stay=0.5)
    context = np.random.default_rng(1).uniform(0, 3, (200, 2))
    state = after(teacher, begun(teacher, KEY), KEY, episodes(context, np.ones(200, bool)))
    np.testing.assert_allclose(state.end, np.broadcast_to([1.0, 2.0], state.end.shape), rtol=1e-6)
    np.testing.assert_allclose(state.stays, 0.5, atol=0.01)
    at_target = np.isclose(np.asarray(teacher.propose(state, KEY, 4000).context), [1.0, 2.0]).all(axis=1)
    assert 0.46 < at_target.mean() < 0.54


def test_the_oldest_episodes_make_room():
    teacher = path(memory=10, n_pairs=4)
    state = begun(teacher, KEY)
    for k in range(5):
        context = np.full((N, 2), 0.1 * k)
        some = episodes(context, np.ones(N, bool))._replace(finished=jnp.arange(N) < 4)
        state = after(teacher, state, KEY, some)
    seen = np.sort(np.asarray(state.memory.place)[:, 0] * 3)
    np.testing.assert_allclose(seen, [0.2] * 2 + [0.3] * 4 + [0.4] * 4, atol=1e-6)


def test_on_the_pool_the_nearest_task_is_played():
    teacher = procurl.make_teacher("procurl-path", small_space(), on_pool=True, width=0.1, n_pairs=128)
    state = after(teacher, begun(teacher, KEY), KEY, random_episodes())
    pool = np.asarray(teacher.space.pool.context)
    k_propose, _, _ = jax.random.split(KEY, 3)
    invented = np.asarray(teacher.teacher.propose(state, k_propose, 200).context)
    proposed = teacher.propose(state, KEY, 200)
    np.testing.assert_array_equal(proposed.context, pool[np.asarray(proposed.row)])
    distances = np.linalg.norm(pool[:, None] - invented, axis=-1)  # f[n, 200]
    np.testing.assert_allclose(distances[np.asarray(proposed.row), np.arange(200)], distances.min(axis=0), atol=1e-6)


def test_on_the_pool_a_bad_context_stays_bad():
    teacher = procurl.make_teacher("procurl-path", small_space(), on_pool=True, n_pairs=4)
    state = begun(teacher, KEY)
    broken = teacher.propose(state._replace(end=state.end * np.nan), KEY, 20)
    assert (np.asarray(broken.row) == -1).all() and np.isnan(np.asarray(broken.context)).all()


@pytest.mark.parametrize("name", ["currot", "procurl-path"])
def test_on_minigrid_the_same_layouts_or_new_ones(name):
    _, space = procurl.make("minigrid")
    layouts = {*np.asarray(space.pool.seed).tolist()}
    for on_pool in (False, True):
        teacher = procurl.make_teacher(name, space, on_pool=on_pool)
        proposed = teacher.propose(begun(teacher, KEY), KEY, 300)
        np.testing.assert_array_equal(space.project(proposed.context), proposed.context)
        assert ({*np.asarray(proposed.seed).tolist()} <= layouts) is on_pool
        if on_pool:  # of a family, any layout
            assert len(np.unique(np.asarray(proposed.row))) > 30


def test_on_the_pool_is_for_strategies_that_leave_it():
    for name in procurl.TEACHERS:
        if name in ("target", "procurl-path", "currot", "gradient", "alp-gmm", "adr"):
            assert procurl.make_teacher(name, small_space(), on_pool=True).space.n_pool == 40
        else:
            with pytest.raises(ConfigError, match=f"{name} plays tasks of the pool anyway"):
                procurl.make_teacher(name, small_space(), on_pool=True)
    with pytest.raises(ConfigError, match="on_pool = 'yes'"):
        procurl.make_teacher("currot", small_space(), on_pool="yes")


def test_a_teacher_on_the_pool_is_made_again_from_its_description():
    env, space = procurl.make("point-mass-1t")
    teacher = procurl.make_teacher("procurl-path", space, on_pool=True)
    description = describe(env, teacher, procurl.Config(), (0,), 5120)
    assert description["teacher"]["class"] == "ProCuRLPath" and description["teacher"]["on_pool"] is True
    _, again, _ = rebuilt(description)
    assert isinstance(again, OnPool) and again.teacher.b == teacher.teacher.b


@pytest.mark.parametrize(("n_pool", "identical"), [(1, True), (2, False)])
def test_one_task_and_one_target(n_pool, identical):
    space = small_space(n_pool=n_pool, n_targets=1, identical_targets=identical)
    narrow = dataclasses.replace(space, high=space.low, target=Point((0.0, 0.0)), pool=tasks(np.zeros((n_pool, 2))))
    for where in (space, narrow):
        teacher = path(where)
        state = after(teacher, begun(teacher, KEY), KEY, random_episodes())
        assert np.isfinite(np.asarray(teacher.propose(state, KEY, 20).context)).all()


def test_nan_returns_count_as_nothing():
    teacher = path(width=0.1)
    context = np.random.default_rng(1).uniform(0, 3, (N, 2))
    state = after(teacher, begun(teacher, KEY), KEY, episodes(context, np.zeros(N, bool), np.full(N, np.nan)))
    assert all(np.isfinite(np.asarray(x)).all() for x in jax.tree.leaves(state))
    np.testing.assert_array_equal(state.end, state.start)


@pytest.mark.parametrize(
    ("field", "value"), [("width", 0.0), ("doubt", 0.0), ("delta", 1.5), ("stay", -0.1), ("n_points", 1), ("b", -1.0)]
)
def test_bad_fields(field, value):
    with pytest.raises(ConfigError, match=field):
        path(**{field: value})
