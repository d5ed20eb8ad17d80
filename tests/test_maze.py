"""The maze equals its plain NumPy twin, step for step."""

from functools import cache

import jax
import numpy as np
import pytest
from scipy import stats
from twins import MazeTwin, maze_gap

import procurl
from procurl.envs.maze import HIGH, LOW, Maze
from procurl.types import Task

ENV = Maze()
made = cache(procurl.make)
reset = jax.jit(jax.vmap(ENV.reset))

SIDES = {f"{wall} {axis}{sign}" for wall in ("block", "border") for axis in "xy" for sign in "-+"}
CORNERS = {(f"block x{a}", f"block y{b}") for a in "-+" for b in "-+"}


def tasks(contexts, seeds=None):
    n = len(contexts)
    seeds = np.arange(n) if seeds is None else seeds
    return Task(np.array(contexts, np.float32), np.array(seeds, np.int32), np.full(n, -1, np.int32))


@jax.jit
def step(key, state, action):
    return jax.vmap(ENV.step)(jax.random.split(key, len(action)), state, action)


def contexts_and_actions(n, seed):
    """Goals of all tolerances, and walkers of several kinds: noise, round the block (either way), inwards, outwards."""
    rng = np.random.default_rng(seed)
    contexts = rng.uniform(LOW, HIGH, (n, 3)).astype(np.float32)
    contexts[:, 2] = np.where(rng.random(n) < 0.5, 0.05, 0.05 + rng.exponential(0.5, n))
    style = rng.integers(0, 5, n)

    def act(obs):
        noise = rng.normal(0, 1, (n, 2))
        outwards = obs[:, :2] / np.linalg.norm(obs[:, :2], axis=1, keepdims=True)
        round_ = np.stack([-outwards[:, 1], outwards[:, 0]], axis=1)
        lean = rng.normal(0, 0.7, (n, 1)) * outwards
        choice = np.stack([1.5 * noise, round_ + lean, lean - round_, noise / 2 - outwards, noise / 2 + outwards])
        return choice[style, np.arange(n)].astype(np.float32)

    return contexts, act


def test_equals_the_twin():
    n = 200
    contexts, act = contexts_and_actions(n, seed=1)
    state, obs = reset(tasks(contexts))
    np.testing.assert_array_equal(obs[:, 2:], contexts)
    twins = [MazeTwin(c, start) for c, start in zip(contexts, np.asarray(obs)[:, :2], strict=True)]
    alive = np.ones(n, bool)
    seen = dict.fromkeys(["steps", "successes", "timeouts", "moved freely", *SIDES], 0)

    for t in range(200):
        action = act(np.asarray(obs))
        state, outcome = step(jax.random.key(t), state, action)
        obs, reward, success, terminated, truncated = (
            np.asarray(x) for x in (outcome.obs, outcome.reward, outcome.success, outcome.terminated, outcome.truncated)
        )
        played, expected = np.flatnonzero(alive), []
        for i in played:
            twin_obs, twin_reward, done, touched = twins[i].step(action[i])
            expected.append(twin_obs)
            assert reward[i] == twin_reward and success[i] == bool(twin_reward)
            assert terminated[i] == done and not truncated[i]
            seen["steps"] += 1
            seen["successes"] += int(twin_reward)
            seen["timeouts"] += done and not twin_reward
            seen["moved freely"] += not touched
            for side in touched:
                seen[side] += 1
            alive[i] = not done
        if len(played):
            np.testing.assert_allclose(obs[played], expected, rtol=0, atol=5e-5, err_msg=f"step {t} of {played}")
    assert not alive.any()
    assert seen["steps"] > 10_000, seen
    assert all(count >= 5 for count in seen.values()), f"the comparison must have met every case: {seen}"


def test_single_steps_from_anywhere_equal_the_twin():
    """From all over the ring, half of the starts exactly on an edge or a corner, with actions also out of bounds."""
    n = 6000
    rng = np.random.default_rng(2)
    position = rng.uniform(-7, 7, (4 * n, 2)).astype(np.float32)
    edge = rng.choice([-7.0, -5.0, 5.0, 7.0], position.shape)
    position = np.where(rng.random(position.shape) < 0.3, edge, position).astype(np.float32)
    corners = 5.0 * rng.choice([-1, 1], (400, 2)) * rng.choice([1.0, 1.01], (400, 2))
    ring = position[np.abs(position).max(axis=1) >= 5]
    position = np.concatenate([corners, ring])[:n].astype(np.float32)
    contexts = rng.uniform(LOW, HIGH, (n, 3)).astype(np.float32)
    action = rng.normal(0, 1.0, (n, 2)).astype(np.float32)
    assert len(position) == n and (np.abs(action) > 1).any()

    state, _ = reset(tasks(contexts))
    _, outcome = step(jax.random.key(0), state._replace(position=position), action)
    obs, reward = np.asarray(outcome.obs), np.asarray(outcome.reward)
    seen, expected = dict.fromkeys([*SIDES, *CORNERS], 0), []
    for i in range(n):
        twin_obs, twin_reward, _, touched = MazeTwin(contexts[i], position[i]).step(action[i])
        expected.append(twin_obs)
        assert reward[i] == twin_reward
        for side in touched:
            seen[side] += 1
            wall, axis, sign = side.split()[0], "xy".index(side[-2]), -1 if side[-1] == "-" else 1
            assert obs[i, axis] == sign * (5 if wall == "block" else 7), "walls are met exactly"
        for corner in CORNERS:
            seen[corner] += touched >= set(corner)
    np.testing.assert_allclose(obs, expected, rtol=0, atol=2e-6)
    assert all(count >= 5 for count in seen.values()), f"the comparison must have met every case: {seen}"
    assert (np.abs(obs[:, :2]).max(axis=1) >= 5).all(), "nobody is inside the block"
    assert (np.abs(obs[:, :2]) <= 7).all()


@pytest.mark.parametrize(
    ("start", "action", "end"),
    [
        ((-6.0, -6.0), (1.0, 0.0), (-5.7, -6.0)),
        ((-6.0, -6.0), (0.5, 0.0), (-5.85, -6.0)),  # a short action is a short step
        ((-6.0, -6.0), (1.0, 1.0), (-6 + 0.3 / np.sqrt(2), -6 + 0.3 / np.sqrt(2))),  # a long one is not a longer step
        ((-6.0, -6.0), (50.0, 1.0), (-6 + 0.3 / np.sqrt(2), -6 + 0.3 / np.sqrt(2))),  # clipped first, then shortened
        ((-6.9, 0.0), (-1.0, 0.0), (-7.0, 0.0)),
        ((-5.1, 0.0), (0.8, 0.6), (-5.0, 0.18)),  # slides up along the block's left side
        ((0.0, 5.1), (0.6, -0.8), (0.18, 5.0)),  # slides along its top
        ((-5.0, -5.0), (1.0, 1.0), (-5.0, -5.0)),  # stuck at its corner
        ((-5.1, -4.9), (1.0, 0.0), (-5.0, -4.9)),
        ((-5.1, -5.0), (1.0, 0.0), (-4.8, -5.0)),  # along its edge one walks freely
    ],
)
def test_steps_worked_out_by_hand(start, action, end):
    state, _ = reset(tasks([[9.0, 9.0, 0.05]]))
    state, outcome = step(jax.random.key(0), state._replace(position=np.float32([start])), np.float32([action]))
    np.testing.assert_allclose(state.position, [end], atol=1e-6)
    assert not outcome.terminated


def test_success_means_closer_than_the_tolerance():
    for tolerance, solved in ((0.5, False), (0.5001, True)):  # the distance is 0.5 exactly
        state, _ = reset(tasks([[-6.0, -5.5, tolerance]]))
        state = state._replace(position=np.float32([[-6.0, -6.0]]))
        _, outcome = step(jax.random.key(0), state, np.zeros((1, 2), np.float32))
        assert bool(outcome.success) == bool(outcome.terminated) == bool(outcome.reward) == solved


def test_starts_are_uniform_and_a_function_of_the_seed_alone():
    n = 5000
    rng = np.random.default_rng(3)
    seeds = rng.integers(0, 2**31 - 1, n)
    one, other = rng.uniform(LOW, HIGH, (2, n, 3))
    starts, again, neighbours = (
        np.asarray(reset(tasks(contexts, given))[1])[:, :2]
        for contexts, given in ((one, seeds), (other, seeds), (one, np.arange(n)))
    )
    np.testing.assert_array_equal(starts, again)
    for axis in range(2):
        assert stats.kstest(starts[:, axis], "uniform", (-7, 2)).pvalue > 1e-3
    assert abs(np.corrcoef(starts.T)[0, 1]) < 4 / np.sqrt(n)
    assert len(np.unique(starts, axis=0)) == n
    x = neighbours[:, 0]
    assert abs(np.corrcoef(x[1:], x[:-1])[0, 1]) < 4 / np.sqrt(n), "seeds in a row are unrelated"


@pytest.mark.parametrize(
    ("dimension", "solved", "unsolved"),
    [("goal_x", [-6.0, 6.0, 1.1], [6.0, 6.0, 1.1]), ("goal_y", [-6.0, 6.0, 1.1], [-6.0, -9.0, 1.1]),
     ("tolerance", [-6.0, 9.0, 2.5], [-6.0, 9.0, 1.5])],  # two units beyond the border
)  # fmt: skip
def test_every_context_dimension_matters(dimension, solved, unsolved):
    lengths = [steps_upwards(context) for context in (solved, unsolved)]
    assert lengths[0] < 60 and lengths[1] == 200, f"{dimension} changes nothing"


def steps_upwards(context):
    """The length of an episode that walks up the left corridor."""
    state, _ = reset(tasks([context]))
    for t in range(ENV.max_steps):
        state, outcome = step(jax.random.key(t), state, np.float32([[0.0, 1.0]]))
        if outcome.terminated:
            assert bool(outcome.success) == (t < ENV.max_steps - 1)
            return t + 1
    raise AssertionError("an episode without an end")


@pytest.mark.parametrize("setting", ["maze-plane", "maze-1t", "maze-1g", "maze-2g"])
def test_spaces_are_as_specified(setting):
    env, space = made(setting)
    procurl.check_env(env, space, steps=env.max_steps)
    assert space.n_pool == 10_000 and space.targets.seed.shape == (100,) and space.held_out.seed.shape == (100,)
    assert space.fresh_seeds and space.value_range == (0.0, 1.0)
    pool, targets, held_out = (np.asarray(t.context) for t in (space.pool, space.targets, space.held_out))
    uniform, pool_targets = pool[:9900], pool[9900:]
    for k in range(3):
        assert stats.kstest(uniform[:, k], "uniform", (LOW[k], HIGH[k] - LOW[k])).pvalue > 1e-3

    for context in (*pool_targets, *held_out):
        assert maze_gap(context[:2]) < context[2], "an infeasible task"
        assert 5 <= np.abs(context[:2]).max() <= 7
    many = np.asarray(jax.jit(lambda key: space.sample_target(key, 5000).context)(jax.random.key(0)))
    if setting == "maze-1t":
        for sample in (pool_targets, targets, held_out, many):
            np.testing.assert_array_equal(sample, np.tile(np.float32([6, 6, 0.05]), (len(sample), 1)))
        return
    for k in range(2):
        assert stats.kstest(many[:, k], "uniform", (-9, 18)).pvalue > 1e-3
        assert stats.kstest(targets[:, k], "uniform", (-9, 18)).pvalue > 1e-3
    feasible = np.mean([maze_gap(context[:2]) < context[2] for context in targets])
    assert 0.15 < feasible < 0.5, "the teacher's targets include infeasible ones: the ring is 30 % of the plane"
    assert not np.isin(held_out, targets).all(axis=1).any() and not np.isin(held_out, pool).all(axis=1).any()
    check_tolerances(setting, [pool_targets[:, 2], targets[:, 2], held_out[:, 2]], many[:, 2])


def check_tolerances(setting, samples, many):
    low = np.float32(0.05)
    assert all((sample >= low).all() for sample in (*samples, many))
    if setting == "maze-plane":
        assert all((sample == low).all() for sample in (*samples, many))
        return
    modes = [0.06] if setting == "maze-1g" else [0.06, 0.12]
    rng = np.random.default_rng(0)
    expected = np.maximum(rng.choice(modes, 50_000) + rng.normal(0, 0.01, 50_000), 0.05)
    for sample in (*samples, many):
        above = sample[sample > low]
        assert stats.kstest(above, expected[expected > 0.05]).pvalue > 1e-3
        assert abs((sample == low).mean() - (expected == 0.05).mean()) < 4 * 0.37 / np.sqrt(len(sample))


def test_the_same_setting_has_the_same_tasks_every_time():
    a, b = procurl.make("maze-2g")[1], procurl.make("maze-2g")[1]
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(a.pool.context[:9900], made("maze-plane")[1].pool.context[:9900])


def test_every_proposal_has_a_start_of_its_own():
    space = made("maze-plane")[1]
    proposed = jax.jit(space.from_pool)(jax.random.key(0), np.full(50, 7, np.int32))
    assert len(np.unique(proposed.seed)) == 50
    np.testing.assert_array_equal(proposed.context, np.tile(space.pool.context[7], (50, 1)))


@pytest.mark.parametrize("setting", ["maze-plane", "maze-1t", "maze-1g", "maze-2g"])
def test_presets(setting):
    config, space = procurl.preset(setting), made(setting)[1]
    assert config.ppo == procurl.PPO(batch_size=256, entropy=0.0, shared=(64,), separate=(32,))
    assert config.evaluation_episodes == 10
    assert procurl.make_teacher("procurl-unif", space).beta == 90.0
    paper, release = (procurl.make_teacher("procurl-target", space, variant=v) for v in ("paper", "release"))
    assert (paper.beta, paper.pairing, paper.resample_targets, paper.n_targets) == (90.0, "pair", False, None)
    assert (release.beta, release.pairing, release.resample_targets, release.n_targets) == (90.0, "max", True, 400)
