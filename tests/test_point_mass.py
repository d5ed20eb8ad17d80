"""The environment equals its plain NumPy twin, step for step."""

import jax
import numpy as np
import pytest
from scipy import stats
from twins import PointMassTwin

import procurl
from procurl.envs.point_mass import HIGH, LOW, PointMass
from procurl.programs import jit
from procurl.types import Task

QUIET = PointMass(noise=0.0)


def tasks(contexts):
    n = len(contexts)
    return Task(np.array(contexts, np.float32), np.zeros(n, np.int32), np.full(n, -1, np.int32))


@jit
def reset(env, tasks):
    return jax.vmap(env.reset)(tasks)


@jit
def step(env, key, state, action):
    return jax.vmap(env.step)(jax.random.split(key, len(action)), state, action)


def contexts_and_actions(n, seed):
    """Random contexts, and policies of several kinds: noise, dive at the gate, dive and come back up."""
    rng = np.random.default_rng(seed)
    contexts = rng.uniform(LOW, HIGH, (n, 3)).astype(np.float32)
    contexts[: n // 4, 1] = 0.5
    style = rng.integers(0, 4, n)

    def act(t, obs):
        noise = rng.normal(0, 6, (n, 2))
        dive = np.stack([3 * (contexts[:, 0] - obs[:, 0]) - obs[:, 1], np.full(n, -4.0)], axis=1)
        bounce = np.stack([noise[:, 0] / 6, np.where((t // 12) % 2 == 0, -9.0, 9.0) + noise[:, 1] / 6], axis=1)
        to_goal = np.stack([-2 * obs[:, 0] - obs[:, 1], -2 * (obs[:, 2] + 3) - obs[:, 3]], axis=1)
        choice = np.stack([2 * noise, dive, bounce, np.where(obs[:, 2:3] > 0, dive, to_goal)])
        return choice[style, np.arange(n)].astype(np.float32)

    return contexts, act


def test_equals_the_twin_without_noise():
    n = 300
    contexts, act = contexts_and_actions(n, seed=1)
    state, obs = reset(QUIET, tasks(contexts))
    twins = [PointMassTwin(c) for c in contexts]
    alive = np.ones(n, bool)
    seen = {"steps": 0, "hits": 0, "successes": 0, "downward": 0, "upward": 0, "timeouts": 0, "border": 0}

    for t in range(100):
        action = act(t, np.asarray(obs))
        above = np.array([twin.state[2] for twin in twins])
        state, outcome = step(QUIET, jax.random.key(t), state, action)
        outcome, hits = jax.tree.map(np.asarray, outcome), np.asarray(state.hit)  # element by element, JAX is slow
        obs, played, expected = outcome.obs, np.flatnonzero(alive), []
        for i in played:
            twin_obs, reward, done, hit = twins[i].step(action[i])
            expected.append(twin_obs)
            assert bool(outcome.terminated[i]) == done and float(outcome.reward[i]) == reward
            assert bool(outcome.success[i]) == bool(reward) and bool(hits[i]) == hit
            assert not bool(outcome.truncated[i])
            seen["steps"] += 1
            seen["hits"] += hit
            seen["successes"] += int(reward)
            seen["timeouts"] += done and not hit and not reward
            seen["downward"] += not hit and above[i] > 0 > twins[i].state[2]
            seen["upward"] += not hit and above[i] < 0 < twins[i].state[2]
            seen["border"] += abs(twins[i].state[0]) == 4 or abs(twins[i].state[2]) == 4
            alive[i] = not done
        if len(played):
            np.testing.assert_allclose(obs[played], expected, rtol=2e-4, atol=2e-3, err_msg=f"step {t} of {played}")
    assert not alive.any()
    assert seen["steps"] > 5000, seen
    assert all(count >= 5 for count in seen.values()), f"the comparison must have met every case: {seen}"


def test_single_crossings_are_exact():
    """At the gate's very edge, in both directions, from starts placed by hand."""
    crossings = [
        (0.0, 1.0, 0.499, 0.05, -6.0, False),
        (0.0, 1.0, 0.501, 0.05, -6.0, True),
        (2.0, 0.5, 1.751, -0.05, 6.0, False),
        (2.0, 0.5, 1.749, -0.05, 6.0, True),
        (-3.0, 0.5, -3.0, 0.0, -6.0, False),  # starts on the line
    ]
    gate, width, x, y, vy, _ = np.float32(crossings).T
    state, _ = reset(QUIET, tasks(np.stack([gate, width, 0 * gate], axis=1)))
    after, outcome = step(QUIET, jax.random.key(0), state._replace(x=x, y=y, vy=vy), np.zeros((5, 2), np.float32))
    obs, stopped, terminated = (np.asarray(a) for a in (outcome.obs, after.hit, outcome.terminated))
    for i, (gate, width, x, y, vy, hits) in enumerate(crossings):
        twin = PointMassTwin([gate, width, 0.0])
        twin.state = [x, 0.0, y, vy]
        expected, _, _, hit = twin.step(np.zeros(2))
        assert hit == hits == stopped[i] == terminated[i]
        np.testing.assert_allclose(obs[i], expected, atol=1e-5)


def test_noise_has_the_moments_of_the_twin():
    n = 20_000
    env = PointMass()
    state, _ = reset(env, tasks(np.tile([[0.0, 8.0, 2.0]], (n, 1))))
    action = np.tile(np.float32([3.0, -1.0]), (n, 1))
    for t in range(3):
        state, _ = step(env, jax.random.key(t), state, action)
    rng = np.random.default_rng(0)
    finals = []
    for _ in range(4000):
        twin = PointMassTwin([0.0, 8.0, 2.0], noise=lambda: rng.normal(0, 0.05))
        for _ in range(3):
            twin.step([3.0, -1.0])
        finals.append(twin.state)
    ours, theirs = np.stack([state.x, state.vx, state.y, state.vy], axis=1), np.array(finals)
    for k in range(4):
        standard_error = np.sqrt(ours[:, k].var() / n + theirs[:, k].var() / len(theirs))
        # the mean may also differ by float32 rounding, which is far below the spread
        assert abs(ours[:, k].mean() - theirs[:, k].mean()) < 4 * standard_error + 1e-5
        assert 0.93 < ours[:, k].std() / theirs[:, k].std() < 1.07
    correlation = np.corrcoef(ours[:, 1], ours[:, 3])[0, 1]
    assert abs(correlation) < 4 / np.sqrt(n), "the two axes have noise of their own"


@pytest.mark.parametrize(
    ("dimension", "a", "b"),
    [("gate_position", [0.0, 0.5, 1.0], [2.0, 0.5, 1.0]), ("gate_width", [1.0, 0.5, 1.0], [1.0, 8.0, 1.0]),
     ("friction", [0.0, 0.5, 1.0], [0.0, 0.5, 3.0])],
)  # fmt: skip
def test_every_context_dimension_matters(dimension, a, b):
    state, _ = reset(QUIET, tasks([a, b]))
    for t in range(12):
        state, _ = step(QUIET, jax.random.key(t), state, np.tile(np.float32([0.0, -8.0]), (2, 1)))
    finals = np.stack([state.x, state.vx, state.y, state.vy], axis=1)
    assert not np.allclose(*finals, atol=1e-2), f"{dimension} changes nothing"


@pytest.mark.parametrize("setting", ["point-mass-1t", "point-mass-2g", "point-mass-1g"])
def test_spaces_are_as_specified(setting):
    env, space = procurl.make(setting)
    procurl.check_env(env, space, steps=env.max_steps)
    assert space.n_pool == 20_000 and space.targets.seed.shape == (400,) and space.held_out.seed.shape == (100,)
    pool, targets = np.asarray(space.pool.context), np.asarray(space.targets.context)
    for k in range(3):
        assert stats.kstest(pool[:, k], "uniform", (LOW[k], HIGH[k] - LOW[k])).pvalue > 1e-3
    if setting == "point-mass-1t":
        assert np.allclose(targets, [0.9, 0.5, 3.5])
        return
    narrow = targets[:, 1] == 0.5
    assert 0.4 < narrow.mean() < 0.6, "clipping puts about half of the widths at 0.5 exactly"
    assert stats.kstest(targets[:, 2], "uniform", (0, 4)).pvalue > 1e-3
    left = targets[:, 0] < 0
    assert (0.4 < left.mean() < 0.6) if setting == "point-mass-2g" else not left.any()
    assert abs(np.abs(targets[:, 0]).mean() - 3.9) < 0.02


def test_the_same_setting_has_the_same_tasks_every_time():
    a, b = procurl.make("point-mass-2g")[1], procurl.make("point-mass-2g")[1]
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(a.pool.context, procurl.make("point-mass-1t")[1].pool.context)
