"""How far a critic is believed: least squares over the latest episodes, against NumPy and a slow loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import worlds

import procurl
from procurl.students import belief
from procurl.students.belief import COMPARED, ENOUGH, Belief
from procurl.types import Episodes, Task

line = jax.jit(lambda b: jnp.stack(b.line))
compared = jax.jit(belief.compared)


def seen(value, ret):
    """A belief after these episodes, oldest first."""
    b = Belief(np.zeros(COMPARED, np.float32), np.zeros(COMPARED, np.float32), np.int32(len(ret)))
    for k, pair in enumerate(zip(value, ret, strict=True)):
        b.value[k % COMPARED], b.ret[k % COMPARED] = pair
    return b


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("n", [ENOUGH, 100, COMPARED + 50])
def test_the_line_is_that_of_least_squares(n, scale):
    rng = np.random.default_rng(n)
    value = rng.normal(-15, 5, n) * scale  # what SAC's critic said of Pendulum, where returns were a hundred times that
    ret = 80 * value + rng.normal(0, 100, n) * scale
    slope, offset = line(seen(value, ret))
    v, r = value[-COMPARED:], ret[-COMPARED:]
    believed = max(0, 1 - 4 / (len(v) * np.corrcoef(v, r)[0, 1] ** 2))
    wanted = believed * np.polyfit(v, r, 1)[0]
    assert 0.5 < believed < 1
    np.testing.assert_allclose(slope, wanted, rtol=1e-3)
    np.testing.assert_allclose(offset, r.mean() - wanted * v.mean(), rtol=1e-2, atol=1e-3 * np.abs(ret).max())


def test_a_critic_that_says_nothing_or_the_contrary_tells_all_tasks_the_same():
    ret = np.linspace(0.0, 1.0, 50)
    unrelated = np.tile([1.0, -1.0], 25)
    for value in (np.full(50, 500.0), -ret, unrelated):
        np.testing.assert_allclose(line(seen(value, ret)), [0.0, 0.5], atol=1e-5)


def test_with_few_episodes_it_is_taken_at_its_word():
    few = ENOUGH - 1
    np.testing.assert_array_equal(line(seen(np.arange(few), 7.0 * np.arange(few))), [1.0, 0.0])


def test_what_counts_is_the_value_at_the_first_step_of_an_episode_that_ended():
    """Two environments, seven steps: slots 0 and 1 were running before, 4 is still running at the end."""
    slot = np.array([[0, 0, 2, 2, 3, 3, 3], [1, 1, 1, 1, 1, 4, 4]], np.int32).T
    value = np.arange(14, dtype=np.float32).reshape(2, 7).T
    n = 2 + 14
    blank = np.zeros(n, np.float32)
    ended, began = np.isin(np.arange(n), [0, 1, 2, 3]), np.isin(np.arange(n), [2, 3, 4])
    task = Task(np.zeros((n, 1), np.float32), np.zeros(n, np.int32), np.full(n, -1, np.int32))
    ret = np.arange(n, dtype=np.float32)
    ret[3] = np.nan
    episodes = Episodes(task, ret, blank, blank, blank > 0, blank, blank, began, ended)
    after = compared(belief.begin(), value, slot, episodes)
    assert int(after.recorded) == 1  # slot 2 alone: the third's return is NaN
    assert (float(after.value[0]), float(after.ret[0])) == (2.0, 2.0)

    episodes = episodes._replace(ret=np.arange(n, dtype=np.float32))
    after = compared(seen(np.zeros(COMPARED - 1), np.zeros(COMPARED - 1)), value, slot, episodes)
    assert int(after.recorded) == COMPARED + 1
    assert (float(after.value[-1]), float(after.value[0]), float(after.value[1])) == (2.0, 4.0, 0.0)  # round the ring


def test_values_of_an_own_space_are_in_units_of_return():
    """The walk's rewards times 1000, less 600: a critic that has learnt nothing says about 0 of everything."""
    space = worlds.walk_space(value_range=None)
    config = worlds.SMALL
    result = procurl.train(Paid(), procurl.ProCuRLUnif(space), config, seeds=2, steps=8 * 256)
    told, low, high = (result.trace[f"value_{k}"][:, 2:] for k in ("mean", "range_low", "range_high"))
    assert (low == -600).all() and (high == 400).all()
    assert ((told >= -610) & (told < -300)).all(), told  # most walks fail; the critic itself begins at about 0


class Paid(worlds.Walk):
    def step(self, key, state, action):
        state, step = super().step(key, state, action)
        last = step.terminated | step.truncated
        return state, step._replace(reward=jnp.where(last, 1000.0 * step.reward - 600.0, 0.0))


jax.tree_util.register_dataclass(Paid, [], [])
