"""Learning progress against a slow NumPy version, and with a student that makes progress in one place."""

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
from procurl.teachers.learning_progress import LearningProgress

KEY = jax.random.key(2)
N = 64


def progress(space=None, **fields):
    return LearningProgress(small_space() if space is None else space, **{"per_dimension": 4, **fields})


@jit
def proposed(teacher, state, key):
    return teacher.propose(state, key, 4000)


def cell_of(context):
    """In a square of side 3 with 4 x 4 cells."""
    a, b = (min(int(np.float32(x) / 3 * 4), 3) for x in context)
    return a + 4 * b


def slow_probabilities(batches, pool, teacher, use_success):
    fast, slow = {}, {}
    for context, success, ret in batches:
        outcome = success if use_success else np.clip(ret, 0, 1)
        cells = [cell_of(c) for c in context]
        for cell in set(cells):
            m = np.mean([o for o, c in zip(outcome, cells, strict=True) if c == cell])
            fast[cell] = teacher.alpha * m + (1 - teacher.alpha) * fast[cell] if cell in fast else m
            slow[cell] = teacher.alpha * fast[cell] + (1 - teacher.alpha) * slow[cell] if cell in slow else m
    f = lambda p: (1 - teacher.theta) * p / (p + teacher.theta * (1 - 2 * p))  # noqa: E731
    own = [cell_of(c) for c in pool]
    lp = {c: abs(f(fast[c]) - f(slow[c])) for c in fast if c in own}
    lp = {c: x for c, x in lp.items() if x > 0 or fast[c] > 0}
    values = np.array(list(lp.values()))
    chance = 1 / (1 + np.exp(-(values - values.mean()) / (values.std() or 1)))
    chance = dict(zip(lp, chance / chance.sum(), strict=True))
    return np.array(
        [(1 - teacher.random_share) * chance.get(c, 0) / own.count(c) + teacher.random_share / len(own) for c in own]
    )


@pytest.mark.parametrize("use_success", [True, False])
def test_weights_are_those_of_the_slow_version(use_success):
    teacher = progress(alpha=0.3)
    rng = np.random.default_rng(0)
    state, batches = begun(teacher, KEY), []
    for t in range(4):
        context = rng.uniform(0, 3, (N, 2))
        ret = np.clip(rng.normal(0.1 * t, 0.3, N), -0.2, 1.2)
        success = (rng.uniform(size=N) < 0.2 + 0.2 * t * (context[:, 0] < 1.5)) & use_success & (context[:, 1] > 0.75)
        ended = rng.uniform(size=N) < 0.8
        played = episodes(context, success, ret)._replace(finished=jnp.asarray(ended))
        state = after(teacher, state, KEY, played)
        batches.append((context[ended], success[ended], ret[ended]))
    pool = np.asarray(teacher.space.pool.context)
    expected = slow_probabilities(batches, pool, teacher, use_success)
    np.testing.assert_allclose(np.exp(state.log_weights), expected, rtol=2e-3, atol=1e-6)
    assert expected.sum() == pytest.approx(1) and expected.max() > 2 * expected.min()
    rows = np.asarray(proposed(teacher, state, KEY).row)
    assert stats.chisquare(np.bincount(rows, minlength=40), 4000 * expected).pvalue > 1e-4


def test_it_goes_where_the_student_makes_progress():
    """Left, success rates rise; right, all is known already, or hopeless."""
    teacher = progress()
    state = begun(teacher, KEY)
    left = np.asarray(teacher.space.pool.context)[:, 0] < 1.5
    for t in range(8):
        context = np.asarray(proposed(teacher, state, jax.random.fold_in(KEY, t)).context)[:N]
        ret = np.where(context[:, 0] < 1.5, 0.1 * t, context[:, 1] > 1.5)
        state = after(teacher, state, KEY, episodes(context, np.zeros(N, bool), ret))
    chosen = np.asarray(proposed(teacher, state, KEY).context)[:, 0] < 1.5
    assert chosen.mean() > left.mean() + 0.1


def test_without_any_progress_the_choice_is_uniform():
    teacher = progress()
    nothing = np.zeros(N, bool)
    state = after(teacher, begun(teacher, KEY), KEY, episodes(np.random.default_rng(0).uniform(0, 3, (N, 2)), nothing))
    np.testing.assert_allclose(np.exp(state.log_weights), 1 / 40, rtol=1e-6)


@pytest.mark.parametrize(("dim", "cut"), [(1, 16), (2, 16), (3, 6), (4, 4), (5, 3), (8, 2), (11, 2)])
def test_cells_by_the_number_of_dimensions(dim, cut):
    space = procurl.task_space([0.0] * dim, [1.0] * dim, target=[1.0] * dim, pool_size=5)
    teacher = LearningProgress(space)
    assert teacher.n_cells == cut**dim
    corners = np.asarray(teacher.cell(jnp.stack([jnp.zeros(dim), jnp.full(dim, 0.999), jnp.ones(dim)])))
    assert corners.tolist() == [0, cut**dim - 1, cut**dim - 1]


def test_every_label_is_a_cell():
    space = procurl.categorical_space([f"level {k}" for k in range(7)], target="level 6")
    cells = LearningProgress(space).cell(jnp.arange(7.0)[:, None])
    assert np.asarray(cells).tolist() == list(range(7))


def test_a_place_that_is_no_number_stops_the_seed():
    teacher = progress()
    context = np.full((N, 2), 1.0)
    context[3] = np.nan
    state = after(teacher, begun(teacher, KEY), KEY, episodes(context, np.zeros(N, bool), np.ones(N)))
    assert np.isnan(np.asarray(proposed(teacher, state, KEY).context)).all()


def test_what_is_refused():
    for theta in (0.0, 1.0):
        with pytest.raises(ConfigError, match=f"theta = {theta}, expected a number between 0 and 1"):
            progress(theta=theta)
    with pytest.raises(ConfigError, match="alpha = 1.5: expected"):
        progress(alpha=1.5)
    with pytest.raises(ConfigError, match="300 cells along each of 2 dimensions, expected at most 65,536"):
        progress(per_dimension=300)
    assert dataclasses.replace(progress(), per_dimension=None).n_cells == 256
