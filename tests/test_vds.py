"""VDS against a slow NumPy version of its networks, its Adam and its choice."""

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
from procurl.teachers.vds import VDS

KEY = jax.random.key(2)
N = 64


def vds(space=None, **fields):
    smaller = {"updates": 3, "batch_size": 16, "memory": 100, "hidden": (8, 6)}
    return VDS(small_space() if space is None else space, **{**smaller, **fields})


@jit
def proposed(teacher, state, key):
    return teacher.propose(state, key, 4000)


def random_episodes(seed):
    rng = np.random.default_rng(seed)
    return rng.uniform(0, 3, (N, 2)), rng.uniform(size=N), rng.uniform(size=N) < 0.7


def slow_value(layers, x):
    """One network, one place; and what each layer was given."""
    given = []
    for i, (w, b) in enumerate(layers):
        given.append(x)
        x = w.T @ x + b
        if i < len(layers) - 1:
            x = np.maximum(x, 0)
    return x[0], given


def slow_gradient(layers, places, targets):
    """Back-propagation, one episode at a time."""
    total = [(np.zeros_like(w), np.zeros_like(b)) for w, b in layers]
    for x, y in zip(places, targets, strict=True):
        v, given = slow_value(layers, x)
        back = np.array([2 * (v - y) / len(places)])
        for i in reversed(range(len(layers))):
            total[i] = (total[i][0] + np.outer(given[i], back), total[i][1] + back)
            back = (layers[i][0] @ back) * (given[i] > 0)
    return total


def test_networks_learn_as_slow_ones_do():
    teacher = vds()
    state = begun(teacher, KEY)
    nets = [[(np.array(w[k], float), np.array(b[k], float)) for w, b in state.nets] for k in range(3)]
    first = [[[np.zeros_like(x) for x in layer] for layer in net] for net in nets]
    second = [[[np.zeros_like(x) for x in layer] for layer in net] for net in nets]
    ring, seen, count = {}, 0, 0
    for t in range(3):
        context, ret, ended = random_episodes(t)
        key = jax.random.fold_in(KEY, t)
        state = after(teacher, state, key, episodes(context, ended, ret)._replace(finished=jnp.asarray(ended)))
        for c, r in zip(context[ended], ret[ended], strict=True):
            ring[seen % 100] = (2 * c / 3 - 1, r)
            seen += 1
        for k_step in jax.random.split(key, 3):
            rows = np.asarray(jax.random.randint(k_step, (3, 16), 0, len(ring)))
            count += 1
            for k in range(3):
                batch = [ring[row] for row in rows[k]]
                gradient = slow_gradient(nets[k], *zip(*batch, strict=True))
                for i, layer in enumerate(gradient):
                    moved = []
                    for j, g in enumerate(layer):
                        first[k][i][j] = 0.9 * first[k][i][j] + 0.1 * g
                        second[k][i][j] = 0.999 * second[k][i][j] + 0.001 * g**2
                        m, v = first[k][i][j] / (1 - 0.9**count), second[k][i][j] / (1 - 0.999**count)
                        moved.append(nets[k][i][j] - 1e-3 * m / (np.sqrt(v) + 1e-8))
                    nets[k][i] = tuple(moved)
    assert int(state.memory.seen) == seen > 100, "the ring went round"
    for k in range(3):
        for (w, b), (slow_w, slow_b) in zip(state.nets, nets[k], strict=True):
            np.testing.assert_allclose(w[k], slow_w, atol=2e-4)
            np.testing.assert_allclose(b[k], slow_b, atol=2e-4)
    spread = [np.std([slow_value(nets[k], 2 * c / 3 - 1)[0] for k in range(3)]) for c in pool_of(teacher)]
    rows = np.asarray(proposed(teacher, state, KEY).row)
    expected = 4000 * np.array(spread) / np.sum(spread)
    assert stats.chisquare(np.bincount(rows, minlength=40), expected).pvalue > 1e-4


def pool_of(teacher):
    return np.asarray(teacher.space.pool.context, float)


def test_before_the_first_episode_all_tasks_are_alike():
    teacher = vds()
    rows = np.asarray(proposed(teacher, begun(teacher, KEY), KEY).row)
    assert stats.chisquare(np.bincount(rows, minlength=40)).pvalue > 1e-4


def test_a_large_pool_is_sampled():
    teacher = vds(n_candidates=5)
    tasks = proposed(teacher, begun(teacher, KEY), KEY)
    assert len(np.unique(tasks.row)) <= 5
    np.testing.assert_array_equal(tasks.context, np.asarray(teacher.space.pool.context)[np.asarray(tasks.row)])


def test_more_episodes_than_there_is_room_for_leave_the_latest():
    teacher = vds(memory=10)
    context, ret, _ = random_episodes(0)
    state = after(teacher, begun(teacher, KEY), KEY, episodes(context, ret > 2, ret))
    np.testing.assert_allclose(np.sort(state.memory.ret), np.sort(ret[-10:]), atol=1e-6)


@pytest.mark.slow
def test_it_learns_what_returns_are():
    teacher = vds(updates=300, batch_size=32, memory=100)
    context, _, _ = random_episodes(0)
    ret = (context[:, 0] < 1.5).astype(float)
    state = after(teacher, begun(teacher, KEY), KEY, episodes(context, ret > 2, ret))
    nets = [[(np.array(w[k], float), np.array(b[k], float)) for w, b in state.nets] for k in range(3)]
    found = [np.mean([slow_value(net, 2 * c / 3 - 1)[0] for net in nets]) for c in context]
    assert np.corrcoef(found, ret)[0, 1] > 0.8


def test_a_place_that_is_no_number_stops_the_seed():
    teacher = vds(memory=N)
    context, ret, _ = random_episodes(0)
    context[:] = np.nan
    state = after(teacher, begun(teacher, KEY), KEY, episodes(context, ret > 2, ret))
    assert np.isnan(np.asarray(proposed(teacher, state, KEY).context)).all()


def test_what_is_refused():
    for fields, message in (
        ({"n_networks": 1}, "n_networks = 1: expected at least 2"),
        ({"hidden": (0,)}, "hidden, a layer's width = 0: expected at least 1"),
        ({"hidden": None}, "hidden = None: expected widths of layers"),
        ({"learning_rate": -1.0}, "learning_rate = -1.0: expected at least 0"),
        ({"memory": 0}, "memory = 0: expected at least 1"),
    ):
        with pytest.raises(ConfigError, match=message):
            vds(**fields)
    with pytest.raises(ConfigError, match="VDS: it compares tasks by distance"):
        VDS(procurl.categorical_space(["a", "b"], target="b"))
