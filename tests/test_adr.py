"""ADR against a slow NumPy version, and with a student that does well up to a line."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_path import after, begun, episodes
from test_teachers import small_space

import procurl
from procurl.errors import ConfigError
from procurl.programs import jit
from procurl.teachers.adr import ADR

KEY = jax.random.key(2)
N = 64


def adr(space=None, **fields):
    return ADR(small_space() if space is None else space, **{"start": (0.3, 1.5), **fields})


@jit
def proposed(teacher, state, key):
    return teacher.propose(state, key, 4000)


def test_sides_move_as_slow_ones_do():
    teacher = adr(step=0.1, buffer=15)
    state = begun(teacher, KEY)
    first = {(0, 0): 0.0, (0, 1): 0.4, (1, 0): 0.2, (1, 1): 0.6}
    side, kept = dict(first), {where: [] for where in first}
    moves = set()
    for t in range(40):
        key = jax.random.fold_in(KEY, t)
        context = np.asarray(proposed(teacher, state, key).context, float)[:N]
        ended = np.random.default_rng(t).uniform(size=N) < 0.8
        ret = np.where((context[:, 0] < 1.3) & ((t < 20) | (context[:, 1] > 1.0)), 1.0, 0.1)
        state = after(teacher, state, key, episodes(context, ret > 2, ret)._replace(finished=jnp.asarray(ended)))
        for (upper, k), bound in list(side.items()):
            for c, r in zip(context[ended, k] / 3, ret[ended], strict=True):
                if (c >= bound - 0.05) if upper else (c <= bound + 0.05):
                    kept[upper, k].append(r)
            if len(kept[upper, k]) >= 15:
                mean = np.mean(kept[upper, k])
                outwards = 1 if mean >= 0.6 else -1 if mean <= 0.3 else 0
                moves.add(outwards)
                bound += outwards * (0.1 if upper else -0.1)
                side[upper, k] = np.clip(bound, first[1, k], 1) if upper else np.clip(bound, 0, first[0, k])
                kept[upper, k] = []
        for (upper, k), bound in side.items():
            np.testing.assert_allclose(state.side[upper, k], bound, atol=1e-5)
            assert int(state.n[upper, k]) == len(kept[upper, k])
    assert moves >= {1, -1}
    assert 0.3 < side[1, 0] < 0.7, "up to the line at 1.3 / 3"


def test_half_of_the_tasks_lie_on_a_side_and_each_alike():
    teacher = adr()
    state = begun(teacher, KEY)._replace(side=jnp.array([[0.1, 0.2], [0.5, 0.9]]))
    share = np.asarray(proposed(teacher, state, KEY).context) / 3
    on = [np.isclose(share[:, k], bound, atol=1e-6).mean() for k, bound in ((0, 0.1), (0, 0.5), (1, 0.2), (1, 0.9))]
    np.testing.assert_allclose(on, 0.125, atol=0.02)
    assert (share.min(axis=0) >= [0.1 - 1e-6, 0.2 - 1e-6]).all() and (
        share.max(axis=0) <= [0.5 + 1e-6, 0.9 + 1e-6]
    ).all()


def test_it_begins_in_the_middle_or_where_it_is_told():
    np.testing.assert_allclose(begun(adr(start=None), KEY).side, [[0.45, 0.45], [0.55, 0.55]], atol=1e-6)
    np.testing.assert_allclose(begun(adr(), KEY).side, [[0.05, 0.45], [0.15, 0.55]], atol=1e-6)
    assert adr(start=np.array([0.3, 1.5])).start == adr(start=[0.3, 1.5]).start == (0.3, 1.5)
    edge = procurl.task_space([0.1], [3.0], target=[3.0], pool_size=5)  # 0.1 is larger in 32 bits
    np.testing.assert_allclose(begun(ADR(edge, start=(0.1,)), KEY).side, [[0.0], [0.05]], atol=1e-6)


@pytest.mark.parametrize("on_pool", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_discrete_set_and_a_pool_grow_too(on_pool):
    coarse = procurl.task_space(
        [0, 0], [8, 8], target=[8, 8], values={"c0": range(9), "c1": range(9)}, value_range=(0, 1)
    )
    dense = small_space(n_pool=400)
    teacher = procurl.make_teacher("adr", dense if on_pool else coarse, on_pool=on_pool, start=(1.0, 1.0))
    state = begun(teacher, KEY)
    for t in range(60):
        context = np.asarray(proposed(teacher, state, jax.random.fold_in(KEY, t)).context)[:N]
        state = after(teacher, state, KEY, episodes(context, np.ones(N, bool)))
    np.testing.assert_allclose(state.side, [[0, 0], [1, 1]], atol=1e-6)


def test_a_place_that_is_no_number_stops_the_seed():
    teacher = adr()
    context = np.full((N, 2), 1.0)
    context[3] = np.nan
    state = after(teacher, begun(teacher, KEY), KEY, episodes(context, np.ones(N, bool)))
    assert np.isnan(np.asarray(proposed(teacher, state, KEY).context)).any(axis=1).all()


def test_what_is_refused():
    for fields, message in (
        ({"t_low": 0.7}, "t_low = 0.7, expected less than t_high = 0.6"),
        ({"start": (1.0,)}, "expected a context, 2 numbers"),
        ({"start": (1.0, 4.0)}, "expected a context inside the space"),
        ({"step": 0.0}, "step = 0.0: expected at least 0.0001"),
        ({"buffer": 0}, "buffer = 0: expected at least 1"),
        ({"boundary_share": 2.0}, "boundary_share = 2.0: expected"),
    ):
        with pytest.raises(ConfigError, match=message):
            adr(**fields)
    with pytest.raises(ConfigError, match="ADR: it compares tasks by distance"):
        ADR(procurl.categorical_space(["a", "b"], target="b"))
