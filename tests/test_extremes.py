"""Teachers and task spaces with extreme values: what they propose is valid, or they are refused and say the limit.

Teachers are pure functions and pytrees, so one compiled program per strategy serves all examples: their shapes are the
same. The examples are drawn from lists of extremes rather than from all numbers, as the trouble lies at the ends.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import procurl
from procurl.check.space import MOST_TASKS
from procurl.check.teacher import imagined_episodes
from procurl.errors import ConfigError, SpaceError
from procurl.programs import jit
from procurl.targets import Point
from procurl.teachers.base import cumulative
from procurl.teachers.nadaraya_watson import estimate
from procurl.teachers.success_buffer import latest, search_samples
from procurl.teachers.transport import NARROWEST, WIDEST
from procurl.types import Task, TaskSpace

N_POOL, N_TARGETS, N_DRAWN = 16, 4, 32
SMALL = {
    "currot": {"n_particles": 12, "n_candidates": 4, "update_after": 3},
    "gradient": {"n_particles": 12, "n_stages": 3},
    "alp-gmm": {"fit_every": 8, "history": 20, "max_gaussians": 3, "em_rounds": 3},
    "vds": {"updates": 2, "memory": 20, "hidden": (16,)},
}
MEASURES_DISTANCES = ("procurl-target", "spdl", "currot", "gradient")
EVERY = st.sampled_from([1e-30, 1e-20, 1e-7, 1e-6, 1e-3, 1.0, 1e6, 1e15, 1e16, 1e20, 1e30])
NUMBERS = st.sampled_from([0.0, 1.0, 0.5, -1.0, 1e-30, -1e-30, 1e30, -1e30, 3e38, -3e38, np.inf, -np.inf, np.nan])


def few(examples):
    """A profile for programs that compile once: no deadline, and the same examples every time."""
    return settings(
        max_examples=examples, deadline=None, derandomize=True, database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )  # fmt: skip


class Opinion(NamedTuple):
    """A critic that knows the values by heart; pool and targets are told apart by their number."""

    pool: jax.Array
    targets: jax.Array

    def value(self, tasks):
        return self.pool if tasks.seed.shape == self.pool.shape else self.targets


def tasks(context):
    """Arrays of JAX by way of NumPy, which compiles nothing."""
    numbers = np.arange(len(context), dtype=np.int32)
    return Task(*map(jnp.asarray, (np.asarray(context, np.float32), numbers, numbers)))


def extreme_space(scales, offset, identical, rng):
    """A box of these widths, `offset` widths away from 0; its tasks at the corners and in between, or all alike."""
    wide = np.array(scales, np.float32)
    low = (offset * wide).astype(np.float32)
    high = low + wide
    places = rng.choice([0.0, 1.0, 0.5, 1e-7, 0.3], (N_POOL + N_TARGETS, 2)).astype(np.float32)
    if identical:
        places[:] = places[0]
    contexts = np.clip(low + places * (high - low), low, high)
    targets = tasks(contexts[N_POOL:])
    return TaskSpace(
        jnp.asarray(low), jnp.asarray(high), tasks(contexts[:N_POOL]), targets, targets, names=("a", "b"),
        target=Point((0.0, 0.0)),
    )  # fmt: skip


@st.composite
def lives(draw):
    """A space, and what a student is worth and earns in it."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    width = draw(EVERY)
    space = extreme_space(
        (width, draw(st.sampled_from([width, 1e-30, 1.0]))), draw(st.sampled_from([0.0, 1.0, -2.0, 1e3])),
        draw(st.booleans()), rng,
    )  # fmt: skip
    kinds = draw(st.lists(NUMBERS, min_size=1, max_size=3))
    numbers = lambda n: rng.choice(np.array(kinds, np.float32), n)  # noqa: E731
    return space, Opinion(numbers(N_POOL), numbers(N_TARGETS)), numbers, draw(st.integers(0, 2**16))


@functools.cache
def programs():
    return (
        jit(lambda teacher, key: teacher.init(key)),
        jit(lambda teacher, state, key: teacher.propose(state, key, N_DRAWN)),
        jit(lambda teacher, state, key, episodes, critic: teacher.observe(state, key, episodes, critic)),
        jit(imagined_episodes),
        jit(cumulative),
    )


def assert_valid(space, proposed):
    context, row = np.asarray(proposed.context), np.asarray(proposed.row)
    assert np.isfinite(context).all(), "NaN or infinity"
    assert (context >= np.asarray(space.low)).all() and (context <= np.asarray(space.high)).all(), "outside"
    assert ((row >= -1) & (row < space.n_pool)).all()
    pooled = row >= 0
    assert np.array_equal(context[pooled], np.asarray(space.pool.context)[row[pooled]])


def assert_distribution(teacher, state):
    if hasattr(state, "log_weights"):
        cdf = np.asarray(programs()[-1](state.log_weights))
        total = cdf[..., -1].sum()  # of a large pool, every block's by itself
        assert np.isfinite(cdf).all() and (np.diff(cdf) >= 0).all() and total == pytest.approx(1.0, abs=1e-5)


def live(name, life):
    """Propose, play and watch three times; returns and advantages are as extreme as the values."""
    space, critic, numbers, seed = life
    span = float(np.max(np.asarray(space.high, np.float64) - np.asarray(space.low, np.float64)))
    if name in MEASURES_DISTANCES and span != 0 and not NARROWEST <= span <= WIDEST:
        with pytest.raises(ConfigError, match=r"the contexts span .*expected between 1e-06 and 1e\+15.*other units"):
            procurl.make_teacher(name, space, **SMALL.get(name, {}))
        return
    teacher = procurl.make_teacher(name, space, **SMALL.get(name, {}))
    init, propose, observe, imagined, _ = programs()
    key = jax.random.key(seed)
    state = init(teacher, key)
    for turn in range(3):
        key = jax.random.fold_in(key, turn)
        proposed = propose(teacher, state, key)
        assert_valid(space, proposed)
        played = imagined(key, proposed)
        n = played.ret.shape[0]
        played = played._replace(ret=numbers(n), gae=numbers(n), abs_gae=np.abs(numbers(n)))
        state = observe(teacher, state, key, played, critic)
        assert_distribution(teacher, state)
        assert_valid(space, propose(teacher, state, key))


def fast(*names):
    """All strategies, of which only these are in the fast tests: every one compiles anew."""
    return [n if n in names else pytest.param(n, marks=pytest.mark.slow) for n in procurl.TEACHERS]


@pytest.mark.parametrize("name", fast("iid", "procurl-unif", "procurl-target", "plr", "spdl", "gradient"))
@few(12)
@given(lives())
def test_proposals_are_valid_or_the_space_is_refused(name, life):
    live(name, life)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(procurl.TEACHERS))
@few(150)
@given(lives())
def test_proposals_are_valid_or_the_space_is_refused_at_length(name, life):
    live(name, life)


# --- task spaces of a user's own ---


def bounds():
    """Widths from nothing (also by rounding: 1 + 1e-30) to 1e30, anywhere."""
    width = st.sampled_from([0.0, 1e-30, 1e-10, 1e-7, 1.0, 1e10, 1e30])
    return st.tuples(st.sampled_from([0.0, 1.0, -1.0, 1e-30, 1e10, -1e30, 1e30]), width)


def assert_sound(pairs, where, seed):
    low = [low for low, _ in pairs]
    high = [low + width for low, width in pairs]
    target = [a + where * (b - a) for a, b in zip(low, high, strict=True)]
    arguments = {"target": target, "pool_size": 8, "n_targets": 8, "n_held_out": 8, "seed": seed}
    if max(map(abs, high)) > 1e30:
        with pytest.raises(SpaceError, match=r"expected numbers of at most 1e\+30"):
            procurl.task_space(low, high, **arguments)
        return
    space = procurl.task_space(low, high, **arguments)
    for part in (space.pool, space.targets, space.held_out):
        context = np.asarray(part.context)
        assert np.isfinite(context).all()
        assert (context >= np.asarray(space.low)).all() and (context <= np.asarray(space.high)).all()
    procurl.check_space(space)
    far = np.asarray(space.project(np.array([[3e38, -3e38]], np.float32)))
    assert np.array_equal(far[0], [np.asarray(space.high)[0], np.asarray(space.low)[1]])


@few(25)
@given(st.tuples(bounds(), bounds()), st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 2**32 - 1))
def test_spaces_of_any_size_are_sound(pairs, where, seed):
    assert_sound(pairs, where, seed)


@pytest.mark.slow
@few(400)
@given(st.tuples(bounds(), bounds()), st.floats(0.0, 1.0), st.integers(0, 2**32 - 1))
def test_spaces_of_any_size_are_sound_at_length(pairs, where, seed):
    assert_sound(pairs, where, seed)


# --- one task, and a million ---


def line(n):
    """n tasks on [0, 1], one target."""
    one = tasks(np.ones((1, 1)))
    low, high = (jnp.asarray(np.full(1, x, np.float32)) for x in (0.0, 1.0))
    pool = tasks(np.linspace(0.0, 1.0, n, dtype=np.float32)[:, None]) if n > 1 else one
    return TaskSpace(low, high, pool, one, one, names=("a",), target=Point((1.0,)))


def drawn(name, n, value=0.5):
    """After one update: the state, and many proposals. (Few would need one more program.)"""
    teacher = procurl.make_teacher(name, line(n), **SMALL.get(name, {}))
    critic = Opinion(np.full(n, value, np.float32), np.full(1, value, np.float32))
    key = jax.random.key(3)
    init, _, observe, imagined, _ = programs()
    propose = jit(lambda teacher, state, key: teacher.propose(state, key, 20_000))
    state = init(teacher, key)
    state = observe(teacher, state, key, imagined(key, propose(teacher, state, key)), critic)
    assert_distribution(teacher, state)
    many = propose(teacher, state, key)
    assert_valid(teacher.space, many)
    return state, many


@pytest.mark.parametrize("name", fast("procurl-target"))
def test_one_task_and_one_target(name):
    _, many = drawn(name, 1)
    if name not in ("currot", "gradient", "alp-gmm", "adr"):  # those invent contexts
        assert (np.asarray(many.context) == 1.0).all()


# That all alike are drawn alike is seen in test_teachers.py, too.
@pytest.mark.parametrize("name", fast("procurl-target"))
def test_a_million_tasks(name):
    n = 1_000_000
    state, many = drawn(name, n)
    held = sum(x.nbytes for x in jax.tree.leaves(state))
    assert held <= 40 * n, "the state is a few numbers per task"
    row = np.asarray(many.row)
    if name in ("iid", "procurl-unif", "plr"):  # a critic that finds all alike, and hardly anything seen: uniform
        assert len(np.unique(row)) > 19_000
        assert abs(row.mean() / n - 0.5) < 5 * np.sqrt(1 / 12 / len(row))
        counts, _ = np.histogram(row, bins=20, range=(0, n))
        assert abs(counts - 1000).max() < 5 * np.sqrt(1000)


def test_more_tasks_than_can_be_drawn_are_refused():
    with pytest.raises(SpaceError, match=f"expected at most {MOST_TASKS:,}"):
        procurl.check_space(line(MOST_TASKS + 1))


# --- what went wrong once ---


@jax.jit
def remembered(ret, h):
    """What CURROT keeps of returns, what it makes of them, and where it then looks for places."""
    n = ret.shape[0]
    played = imagined_episodes(jax.random.key(0), tasks(np.full((n, 2), 0.5)), n_running=0)
    kept = latest(played._replace(ret=ret, finished=jnp.ones(n, bool)), n, -1.0)
    box = (jnp.zeros(2), jnp.ones(2))
    found = search_samples(jax.random.key(1), kept, jnp.bool_(False), 0.5, 1e-30, jnp.min(kept.ret), box)
    return kept.ret, estimate([kept], jnp.full((1, 2), 0.5), h), found


def test_returns_at_the_end_of_32_bits_can_be_added_up():
    """CURROT's estimate was infinite where two returns of 3e38 met, and so was what it drew its places by."""
    kept, value, found = remembered(np.array([3e38, 3e38, -3e38, np.nan, 1.0, 3e38], np.float32), 0.1)
    assert np.isfinite(kept).all() and np.abs(kept).max() <= 1e30
    assert np.isfinite(value).all() and np.isfinite(found).all()
    assert np.min(found) >= 0 and np.max(found) <= 1
    kept, value, _ = remembered(np.array([0.25, 0.5, 1.0, 0.0, -2.0, 8.0], np.float32), 0.1)
    assert kept.tolist() == [0.25, 0.5, 1.0, 0.0, -2.0, 8.0] and np.asarray(value)[0] == pytest.approx(7.75 / 6), (
        "others stay"
    )


def test_spdl_where_all_contexts_are_one_huge_number():
    """Contexts were divided by a bandwidth of 1e-9 before they were subtracted: infinity minus infinity."""
    space = extreme_space((0.0, 0.0), 0.0, True, np.random.default_rng(0))
    there = jnp.asarray(np.full(2, 1e30, np.float32))
    move = lambda t: tasks(np.full(t.context.shape, 1e30))  # noqa: E731
    space = TaskSpace(
        there, there, move(space.pool), move(space.targets), move(space.targets), names=("a", "b"), target=space.target
    )
    state = programs()[0](procurl.make_teacher("spdl", space), jax.random.key(0))
    np.testing.assert_allclose(np.exp(state.log_mu), 1 / N_POOL, rtol=1e-5)


def test_the_scale_of_a_space_does_not_change_spdl():
    """Its bandwidth is in diagonals of the box, which used to end at 1e-9."""
    mu = []
    for scale in (2.0**-19, 1.0, 2.0**40):
        space = extreme_space((scale, scale), 0.0, False, np.random.default_rng(1))
        teacher = procurl.make_teacher("spdl", space, bandwidth=2.0**-12)
        mu.append(np.asarray(programs()[0](teacher, jax.random.key(0)).log_mu))
    np.testing.assert_allclose(mu[0], mu[1], rtol=1e-5)
    np.testing.assert_allclose(mu[2], mu[1], rtol=1e-5)


def test_what_is_measured_may_be_as_small_as_it_likes():
    curriculum = procurl.Curriculum(procurl.make_teacher("plr", line(5)), every=2, unit="episodes")
    curriculum.record(curriculum.next(), ret=1e-40, length=1, advantage=np.float32(1e-42))
    assert curriculum.episodes.finished.sum() == 1
