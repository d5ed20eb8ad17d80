"""Whose values are believed: the critic's or the regression's, by how well they predict returns."""

import logging

import numpy as np
import pytest

import procurl
from procurl.envs.host_tasks import HostTask
from procurl.students.trusted import ENOUGH, TrustedValue, skill
from procurl.types import Task

SMALL = {"every": 20, "hidden": (16,), "epochs": 40, "batch_size": 8}


@pytest.fixture(scope="module")
def space():
    return procurl.task_space([0.0], [1.0], target=[1.0], pool_size=20, n_targets=2, n_held_out=2)


def truth(context):
    """Returns of SAC's Pendulum."""
    return -1200.0 - 250.0 * np.asarray(context)[..., 0]


def trusted(space, critic):
    return TrustedValue(space, critic, regressor=procurl.ReturnRegressor(space, **SMALL))


def fed(value, episodes=60, seed=0):
    rng = np.random.default_rng(seed)
    for k in range(episodes):
        context = rng.uniform(0, 1, 1).astype(np.float32)
        value.record(HostTask(context, k, -1), float(truth(context)) + rng.normal(0, 5.0))
    return value


def tasks(n=5):
    return Task(np.linspace(0, 1, n, dtype=np.float32)[:, None], np.zeros(n, np.int32), np.full(n, -1, np.int32))


def test_a_critic_that_is_far_off_gives_way_to_the_returns(space, caplog):
    value = fed(trusted(space, lambda t: -5.0 - 18.0 * t.context[:, 0]))
    with caplog.at_level(logging.INFO, logger="procurl"):
        answered = value(tasks())
    assert value.source == "returns"
    np.testing.assert_allclose(answered, truth(tasks().context), atol=60)
    [told] = [r.message for r in caplog.records]
    assert told.startswith(
        "values now come from the returns of played episodes, which predict the latest returns better"
    )
    assert "critic: error" in told and "offset +1.3" in told and "rank correlation" in told


def test_a_critic_that_predicts_returns_is_believed(space):
    value = fed(trusted(space, lambda t: truth(t.context)))
    np.testing.assert_array_equal(value(tasks()), truth(tasks().context).astype(np.float32))
    assert value.source == "critic" and value.skills["critic"].rank > 0.95 and abs(value.skills["critic"].offset) < 10


def test_before_there_are_episodes_the_critic_is_asked(space):
    value = fed(trusted(space, lambda t: t.context[:, 0]), episodes=ENOUGH - 1)
    np.testing.assert_array_equal(value(tasks()), tasks().context[:, 0])


def test_it_goes_on_from_its_state(space):
    one = fed(trusted(space, lambda t: t.context[:, 0]))
    one(tasks())
    other = trusted(space, lambda t: t.context[:, 0])
    other.load_state_dict(one.state_dict())
    assert other.source == one.source == "returns"
    np.testing.assert_array_equal(other(tasks()), one(tasks()))
    np.testing.assert_array_equal(fed(other, seed=1)(tasks()), fed(one, seed=1)(tasks()))


@pytest.mark.parametrize(
    ("value", "ret", "expected"),
    [
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], (0.0, 0.0, 1.0)),
        ([3.0, 2.0, 1.0], [1.0, 2.0, 3.0], (2.0, 0.0, -1.0)),
        ([5.0, 5.0, 5.0], [1.0, 2.0, 3.0], (4.5, 3.0, 0.0)),
        ([1.0, 1.0], [1.0, 1.0], (0.0, 0.0, 0.0)),
    ],
)
def test_skill(value, ret, expected):
    assert tuple(skill(np.array(value), np.array(ret))) == pytest.approx(expected)


def test_one_that_is_saved_and_loaded_compares_the_same_numbers(space):
    critic = lambda t: truth(t.context) + 100.0 * t.context[:, 0]  # noqa: E731
    value, again = fed(trusted(space, critic)), trusted(space, critic)
    again.load_state_dict(value.state_dict())
    np.testing.assert_array_equal(again(tasks()), value(tasks()))
    assert again.skills == value.skills and set(value.skills) == {"critic", "returns"}
