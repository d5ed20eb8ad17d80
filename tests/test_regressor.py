"""Values from returns: `procurl.ReturnRegressor`."""

import jax
import numpy as np
import pytest

import procurl
from procurl.errors import ConfigError, NonFiniteError

SMALL = {"hidden": (32,), "epochs": 30}  # the same everywhere: up to 20 episodes are then fitted by one program


@pytest.fixture(scope="module")
def space():
    return procurl.task_space([0.0, -10.0], [1.0, 10.0], target=[1.0, 10.0], value_range=(-100.0, 300.0), pool_size=64)


def truth(context):
    """A cliff in the first dimension, a slope in the second: in units of return."""
    return np.where(context[..., 0] > 0.5, 200.0, -50.0) + 5.0 * context[..., 1]


def played(space, n, seed=0):
    return np.random.default_rng(seed).uniform(np.asarray(space.low), np.asarray(space.high), (n, 2)).astype(np.float32)


def tasks(context):
    return procurl.Task(context, np.zeros(len(context), np.int32), np.full(len(context), -1, np.int32))


@pytest.mark.parametrize("scale", [True, False])
def test_it_learns_returns_from_episodes(space, scale):
    value = procurl.ReturnRegressor(space, every=400, scale=scale, epochs=40)
    context = played(space, 400)
    assert (value(tasks(context)) == -100.0).all(), "before the first fit no task stands out"
    noise = np.random.default_rng(1).normal(0, 10, 400)
    for c, ret in zip(context, truth(context) + noise, strict=True):
        value.record(c, ret)
    assert value.fits == 1
    fresh = played(space, 500, seed=2)
    error = value(tasks(fresh)) - truth(fresh)
    assert np.sqrt(np.mean(error**2)) < 0.35 * truth(fresh).std()


def test_only_the_episodes_since_the_last_fit_count(space):
    value = procurl.ReturnRegressor(space, every=50, first=20, **SMALL)
    for c in played(space, 20):
        value.record(c, 0.0)
    assert value.fits == 1 and abs(value(tasks(played(space, 9)))).max() < 40
    for c in played(space, 50):
        value.record(c, 250.0)
    assert value.fits == 2 and value(tasks(played(space, 9))).min() > 200


def test_it_stands_in_for_a_critic(space):
    value = procurl.ReturnRegressor(space, every=10, **SMALL)
    curriculum = procurl.Curriculum(procurl.make_teacher("procurl-target", space), every=20, unit="episodes")
    for _ in range(3):
        while not curriculum.due:
            task = curriculum.next()
            ret = float(truth(task.context))
            curriculum.record(task, ret=ret, length=1)
            value.record(task.context, ret)
        curriculum.observe(value=value)
    assert value.fits == 6


def test_saving_goes_on_exactly(space, tmp_path):
    def new():
        return procurl.ReturnRegressor(space, every=20, **SMALL)

    one, context = new(), played(space, 100)
    for c in context[:50]:
        one.record(c, float(truth(c)))
    procurl.save_state(tmp_path / "r.safetensors", one.state_dict())
    other = new()
    other.load_state_dict(procurl.load_state(tmp_path / "r.safetensors", like=one.state_dict()))
    for c in context[50:]:
        one.record(c, float(truth(c)))
        other.record(c, float(truth(c)))
    assert one.fits == other.fits == 5
    jax.tree.map(np.testing.assert_array_equal, one.state_dict(), other.state_dict())


def test_bad_input(space):
    with pytest.raises(ConfigError, match="every = 2: expected at least 5"):
        procurl.ReturnRegressor(space, every=2)
    with pytest.raises(ConfigError, match="every = 0"):
        procurl.ReturnRegressor(space, every=0)
    with pytest.raises(NonFiniteError, match="expected a finite return"):
        procurl.ReturnRegressor(space).record([0.0, 0.0], float("nan"))
    with pytest.raises(ConfigError, match="0 episodes since the last fit"):
        procurl.ReturnRegressor(space).fit()
