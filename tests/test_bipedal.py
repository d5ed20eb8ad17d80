"""Stump Tracks: the terrain against a slow loop, everything else against Gymnasium's walker, and tasks as elsewhere."""

import math
import pickle
import re
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path

import gymnasium
import matplotlib.pyplot as plt
import numpy as np
import pytest
import stable_baselines3.common.env_checker as sb3_checker
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

import procurl
from procurl.envs.bipedal.space import bipedal_space
from procurl.envs.bipedal.track import END, GOAL, GROUND, START, STEP, make_track
from procurl.errors import ConfigError
from procurl.integrations.gymnasium import TaskEnv, ended_tasks

walker = pytest.importorskip("gymnasium.envs.box2d.bipedal_walker", reason="needs Box2D", exc_type=ImportError)
from procurl.envs.bipedal.stump_tracks import StumpTracks  # noqa: E402

STUMP_TRACKS = "procurl/StumpTracks-v0"

# spacing -> (stumps, end of the ground), measured in the benchmark's own environment
MEASURED = [
    (0.0, 177, 93.227), (2 / 3, 75, 93.200), (4 / 3, 47, 92.600), (2.0, 35, 93.200), (8 / 3, 27, 91.267),
    (10 / 3, 23, 92.933), (4.0, 19, 90.200), (14 / 3, 17, 91.933), (16 / 3, 15, 91.000), (6.0, 13, 87.400),
]  # fmt: skip


def begin(context, seed=0, env=None):
    env = env or StumpTracks()
    return env, env.reset(options={"context": context, "task_seed": seed})[0]


def play(env, context, seed, steps=300):
    """Observations and rewards of a task under the random actions that belong to its seed."""
    rng = np.random.default_rng(seed)
    out = [np.append(env.reset(options={"context": context, "task_seed": seed})[0], 0.0)]
    for _ in range(steps):
        obs, reward, terminated, truncated, _ = env.step(rng.uniform(-1, 1, 4))
        out.append(np.append(obs, reward))
        if terminated or truncated:
            break
    return np.array(out)


def corners(body):
    """The corners of a body of the terrain, as Box2D keeps them."""
    return np.array(sorted(tuple(body.transform * v) for v in body.fixtures[0].shape.vertices))


# --- the track


def slow_track(mean, spacing, rng):
    """The benchmark's rule, item by item."""
    w = 14 / 30
    x, stump_next, stumps, ground = 20 * w, True, [], [0.0]
    while x < 200 * w:
        ground.append(x)
        if stump_next:
            stumps.append((x, max(0.05, rng.normal(mean, 0.1)) * w))
            x += w
        else:
            x += max(0.01, spacing)
        stump_next = not stump_next
    return stumps, ground


def test_the_track_follows_the_benchmarks_rule():
    rng = np.random.default_rng(1)
    for seed, context in enumerate(np.float32([*rng.uniform([-3, 0], [3, 6], (300, 2)), [0, 0], [3, 6], [-3, 6]])):
        stumps, ground = slow_track(*context.astype(float), np.random.default_rng(seed))
        track = make_track(context, np.random.default_rng(seed))
        np.testing.assert_array_equal(np.stack([track.stumps, track.heights], axis=1), stumps)
        np.testing.assert_array_equal(track.ground, ground)


@pytest.mark.parametrize(("spacing", "n_stumps", "end"), MEASURED)
def test_stumps_and_the_end_of_the_ground_are_those_of_the_benchmark(spacing, n_stumps, end):
    track = make_track([1.0, spacing], np.random.default_rng(0))
    assert len(track.stumps) == n_stumps
    np.testing.assert_allclose(track.ground[-1], end, atol=5e-4)
    np.testing.assert_allclose(track.stumps, START + np.arange(n_stumps) * (STEP + max(0.01, spacing)), atol=1e-9)


def test_the_ground_ends_before_the_goal_for_two_spacings_in_a_hundred():
    spacings = np.linspace(0, 6, 6001)
    short = [d for d in spacings if make_track([0, d], np.random.default_rng(0)).ground[-1] < GOAL]
    assert len(short) / len(spacings) == pytest.approx(0.019, abs=0.001)
    assert min(short) == pytest.approx(4.784, abs=0.002) and max(short) == 6.0


def test_heights_have_a_floor_and_no_ceiling():
    def heights(mean):
        return np.concatenate([make_track([mean, 0], np.random.default_rng(s)).heights for s in range(20)]) / STEP

    np.testing.assert_allclose(heights(-3), 0.05)  # a negative mean is a low bump, not flat ground
    np.testing.assert_allclose(heights(-0.6), 0.05)
    assert np.mean(heights(0) == 0.05) == pytest.approx(0.69, abs=0.03)
    assert (heights(3).mean(), heights(3).std()) == pytest.approx((3.0, 0.1), abs=0.01)


def test_lengths_are_those_of_gymnasiums_walker():
    assert walker.TERRAIN_STEP == STEP and walker.TERRAIN_HEIGHT == GROUND
    assert walker.TERRAIN_STARTPAD * STEP == START and walker.TERRAIN_LENGTH * STEP == END
    assert (walker.TERRAIN_LENGTH - walker.TERRAIN_GRASS) * STEP == GOAL


@pytest.mark.parametrize("context", [[1.5, 3.0], [-3.0, 0.0], [3.0, 6.0]])
def test_the_world_is_built_as_the_track_says(context):
    env, _ = begin(context, seed=5)
    track = make_track(context, np.random.default_rng(5))
    bodies = [corners(body) for body in reversed(env.terrain)]  # in the order of creation
    stumps, edges = bodies[: len(track.stumps)], bodies[len(track.stumps) :]
    for found, left, height in zip(stumps, track.stumps, track.heights, strict=True):
        right, top = left + STEP, GROUND + height
        expected = [(left, GROUND), (left, top), (right, GROUND), (right, top)]
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    for found, left, right in zip(edges, track.ground[:-1], track.ground[1:], strict=True):
        np.testing.assert_allclose(found, [(left, GROUND), (right, GROUND)], rtol=1e-6)
    assert min(s[0, 0] for s in stumps) == pytest.approx(START), "nothing stands on the start pad"
    assert edges[0][1, 0] == pytest.approx(START), "which is one piece"
    for body in env.terrain:
        (fixture,) = body.fixtures
        assert (body.type, fixture.friction, fixture.filterData.categoryBits) == (0, 2.5, 1)
    assert len(env.world.bodies) == len(bodies) + 5, "nothing else is in the world"


# --- the walker


def described(env):
    """All that defines the walker's body."""
    bodies = []
    for body in (env.hull, *env.legs):
        (fixture,) = body.fixtures
        numbers = (fixture.density, fixture.friction, fixture.restitution, fixture.filterData.maskBits)
        bodies.append((body.mass, body.inertia, tuple(body.localCenter), tuple(fixture.shape.vertices), *numbers))
    joints = [(j.lowerLimit, j.upperLimit, j.limitEnabled, j.motorEnabled) for j in env.joints]
    ends = [(env.legs.index(j.bodyB), j.bodyA == env.hull or env.legs.index(j.bodyA)) for j in env.joints]
    return bodies, joints, ends


def test_the_body_is_gymnasiums_and_the_benchmarks():
    env, _ = begin([0, 3])
    plain = walker.BipedalWalker()
    plain.reset(seed=0)
    assert described(env) == described(plain)
    bodies, joints, ends = described(env)
    assert [b[0] for b in bodies] == pytest.approx([5.422223, 0.302222, 0.241778, 0.302222, 0.241778], rel=1e-5)
    assert [b[1] for b in bodies] == pytest.approx([2.001745, 0.034140, 0.026796, 0.034140, 0.026796], rel=1e-4)
    assert bodies[0][2] == pytest.approx((-0.020036, -0.005647), rel=1e-3)
    assert [b[5] for b in bodies] == pytest.approx([0.1, 0.2, 0.2, 0.2, 0.2])
    assert np.array(joints) == pytest.approx(np.array([[-0.8, 1.1, 1, 1], [-1.6, -0.1, 1, 1]] * 2))
    assert ends == [(0, True), (1, 0), (2, True), (3, 2)]
    assert tuple(env.world.gravity) == (0, -10)


def test_the_first_observation_is_the_benchmarks(monkeypatch):
    monkeypatch.setattr(walker, "INITIAL_RANDOM", 0)  # no push
    env, obs = begin([-3, 6])
    expected = [
        0.00275, 0, 0, -0.016, 0.09215, 0, 0.86028, 0.00387, 1, 0.03256, 0, 0.85374, 0, 1,
        0.44081, 0.44582, 0.46142, 0.48955, 0.5341, 0.60246, 0.70915, 0.88593, 1, 1,
    ]  # fmt: skip
    np.testing.assert_allclose(obs, expected, atol=6e-6)
    assert tuple(env.hull.position) == pytest.approx((4.663645, 5.684341), abs=2e-6)


def test_only_the_terrain_differs_from_gymnasiums_walker():
    """Gymnasium's class on the same track, built here by hand, gives the same numbers to the last bit."""

    class ByHand(walker.BipedalWalker):
        def _generate_terrain(self, hardcore):
            stumps, ground = slow_track(*self.context, self.np_random)
            for x, height in stumps:
                self._build(self.fd_polygon, [(x, GROUND), (x, GROUND + height), (x + STEP, GROUND),
                                              (x + STEP, GROUND + height)])  # fmt: skip
            for i in range(len(ground) - 1):
                self._build(self.fd_edge, [(ground[i], GROUND), (ground[i + 1], GROUND)])
            self.terrain_poly = []

        def _build(self, fixture, vertices):
            fixture.shape.vertices = vertices
            body = self.world.CreateStaticBody(fixtures=fixture)
            self.terrain.append(body)

        def _generate_clouds(self):
            self.cloud_poly = []

    tasks = [([0.5, 0.5], 11), ([-3.0, 2.0], 12), ([2.0, 4.5], 13)]
    for context, seed in tasks:
        by_hand, env, rng = ByHand(), StumpTracks(), np.random.default_rng(seed)
        by_hand.context = context
        np.testing.assert_array_equal(by_hand.reset(seed=seed)[0], begin(context, seed, env)[1])
        for t in range(1, 301):
            action = rng.uniform(-1.5, 1.5, 4)  # beyond the bounds too: the torque is clipped
            theirs, ours = by_hand.step(action), env.step(action)
            np.testing.assert_array_equal(theirs[0], ours[0])
            assert theirs[1:3] == ours[1:3], t
            if ours[2]:
                break
        assert t > 30


def distance_to_terrain(track, origin, direction):
    """The nearest point of ground or stumps along a ray; both are made of horizontal and vertical lines."""
    lines = [((a, GROUND), (b, GROUND)) for a, b in zip(track.ground[:-1], track.ground[1:], strict=True)]
    for left, height in zip(track.stumps, track.heights, strict=True):
        box = [(left, GROUND), (left, GROUND + height), (left + STEP, GROUND + height), (left + STEP, GROUND)]
        lines += list(zip(box, [*box[1:], box[0]], strict=True))
    nearest = np.inf
    for a, b in [(a, b) for a, b in lines if a[0] < origin[0] + 6 and b[0] > origin[0] - 1]:
        along = np.subtract(b, a)
        matrix = np.stack([direction, -along], axis=1)
        if abs(np.linalg.det(matrix)) > 1e-12:
            t, s = np.linalg.solve(matrix, np.subtract(a, origin))
            if t >= 0 and -1e-9 <= s <= 1 + 1e-9:
                nearest = min(nearest, t)
    return nearest


def test_the_observation_is_made_of_what_the_specification_says():
    env, _ = begin([1.5, 1.0], seed=3)
    track = make_track([1.5, 1.0], np.random.default_rng(3))
    rng, seen = np.random.default_rng(0), set()
    move(env, START - 6.0)  # where there is something to see
    for _ in range(60):
        obs, _, terminated, _, _ = env.step(rng.uniform(-1, 1, 4))
        if terminated:
            break
        hull, joints, feet = env.hull, env.joints, (env.legs[1], env.legs[3])
        angles = [(joints[k].angle, joints[k + 1].angle + 1) for k in (0, 2)]
        speeds = [(joints[k].speed / 4, joints[k + 1].speed / 6) for k in (0, 2)]
        expected = [hull.angle, hull.angularVelocity / 25, 0.12 * hull.linearVelocity.x, 0.08 * hull.linearVelocity.y]
        for (hip, knee), (hip_speed, knee_speed), foot in zip(angles, speeds, feet, strict=True):
            expected += [hip, hip_speed, knee, knee_speed, float(foot.ground_contact)]
            seen.add(foot.ground_contact)
        np.testing.assert_allclose(obs[:14], expected, rtol=1e-5, atol=1e-6)
        rays = [(math.sin(0.15 * i), -math.cos(0.15 * i)) for i in range(10)]
        lidar = [min(1.0, distance_to_terrain(track, hull.position, ray) * 30 / 160) for ray in rays]
        np.testing.assert_allclose(obs[14:], lidar, atol=1e-4)
    assert seen == {True, False} and obs.shape == (24,) and obs.dtype == np.float32


# --- reward and the end of an episode


def move(env, distance):
    for body in (env.hull, *env.legs):
        body.position = (body.position.x + distance, body.position.y)


def shaping(env):
    return 130 * env.hull.position.x / 30 - 5 * abs(env.hull.angle)


def test_reward_until_the_fall():
    env, _ = begin([-3, 3], seed=2)
    rng, total, before = np.random.default_rng(4), 0.0, shaping(env)
    for _ in range(2000):
        action = rng.uniform(-1.3, 1.3, 4)
        _, reward, terminated, truncated, info = env.step(action)
        expected = shaping(env) - before - 0.028 * np.minimum(np.abs(action), 1).sum()
        before, total = shaping(env), total + reward
        assert not truncated and info["is_success"] == (total > 230)
        if terminated:
            break
        assert reward == pytest.approx(expected, abs=1e-9)
    assert terminated and reward == -100.0 and env.game_over


def test_zero_actions_tip_over():
    """Measured in the benchmark on a trivial task with a small push: 175 steps and a return of -92."""
    env, _ = begin([-3, 6], seed=1)
    total, steps, terminated = 0.0, 0, False
    while not terminated:
        _, reward, terminated, _, _ = env.step(np.zeros(4))
        total, steps = total + reward, steps + 1
    assert 60 < steps < 400 and -115 < total < -85


def test_walking_back_off_the_track_is_a_fall_and_the_goal_is_not():
    env, _ = begin([-3, 5.0])
    move(env, -4.6)
    assert not env.step(np.zeros(4))[2]
    move(env, -0.2)
    _, reward, terminated, _, _ = env.step(np.zeros(4))
    assert env.hull.position.x < 0 and terminated and reward == -100

    for context in ([-3, 5.0], [-3, 6.0]):  # at spacing 6 there is no ground under the finishing line
        env, _ = begin(context)
        move(env, GOAL - env.hull.position.x - 0.05)
        assert not env.step(np.zeros(4))[2]
        for body in (env.hull, *env.legs):
            body.linearVelocity = (4.0, 0.0)
        _, reward, terminated, truncated, _ = env.step(np.zeros(4))
        assert env.hull.position.x > GOAL and terminated and not truncated
        assert 0 < reward < 1, "progress, and no bonus"
        if context[1] == 6.0:
            assert max(corners(b)[-1, 0] for b in env.terrain) < GOAL


def test_a_return_above_230_is_a_success():
    env, _ = begin([-3, 5.0])
    for distance, expected in ((52.9, False), (0.5, True)):  # a metre is worth 4.33
        move(env, distance)
        assert env.step(np.zeros(4))[-1]["is_success"] is expected
    assert env.step(np.zeros(4))[-1]["is_success"], "it is the return so far"
    env.reset()
    assert env.step(np.zeros(4))[-1]["is_success"] is False


def test_episodes_are_cut_after_2000_steps():
    env, _ = begin([-3, 5.0])
    env.world.gravity = (0, 0)  # so that nobody falls
    for t in range(1, 2001):
        _, _, terminated, truncated, _ = env.step(np.zeros(4))
        assert not terminated and truncated == (t == 2000)
    short = StumpTracks(max_steps=3)
    for _ in range(2):
        short.reset(seed=0)
        assert [short.step(np.zeros(4))[3] for _ in range(3)] == [False, False, True]


def test_a_fall_in_the_last_step_is_a_fall():
    env = StumpTracks(max_steps=1)
    begin([-3, 5.0], env=env)
    move(env, -6)
    assert env.step(np.zeros(4))[2:4] == (True, False)


# --- tasks


DELICATE = (-2.68564946, 1.2992686), 378  # in step 355, two contacts begin at once


def after_another_episode(env):
    begin([1.0, 2.0], 0, env)
    return play(env, *DELICATE, steps=400)


def test_an_episode_is_a_function_of_its_task():
    fresh = play(StumpTracks(), *DELICATE, steps=400)
    np.testing.assert_array_equal(after_another_episode(StumpTracks()), fresh)


def test_the_test_above_catches_a_world_that_is_used_again():
    class Reuses(StumpTracks):
        _destroy = walker.BipedalWalker._destroy

    again, fresh = after_another_episode(Reuses()), play(StumpTracks(), *DELICATE, steps=400)
    np.testing.assert_array_equal(again[:355], fresh[:355])
    assert (again[355] != fresh[355]).any()


def test_nothing_but_the_task_matters():
    env, options = StumpTracks(), {"context": [0.5, 2.0], "task_seed": 8}
    first, _ = env.reset(seed=1, options=options)
    again, _ = env.reset(seed=2, options=options)
    np.testing.assert_array_equal(first, again)
    assert (first != begin([0.5, 2.0], 9, env)[1]).any(), "another instance: another push"


def test_every_context_feature_and_the_seed_matter():
    env = StumpTracks()
    base = play(env, [0.5, 1.0], 0)

    def differs(other):
        return other.shape != base.shape or not np.allclose(other, base, atol=1e-4)

    assert not differs(play(env, [0.5, 1.0], 0))
    assert differs(play(env, [1.5, 1.0], 0)), "height"
    assert differs(play(env, [0.5, 2.0], 0)), "spacing"
    assert differs(play(env, [0.5, 1.0], 1)), "seed"
    # what a feature changes, and what it does not
    tracks = {c: make_track(c, np.random.default_rng(0)) for c in [(2.0, 1.0), (2.5, 1.0), (2.0, 2.0)]}
    np.testing.assert_array_equal(tracks[2.0, 1.0].stumps, tracks[2.5, 1.0].stumps)
    np.testing.assert_allclose(tracks[2.5, 1.0].heights - tracks[2.0, 1.0].heights, 0.5 * STEP)
    np.testing.assert_array_equal(tracks[2.0, 2.0].heights, tracks[2.0, 1.0].heights[: len(tracks[2.0, 2.0].heights)])


def test_where_the_task_comes_from():
    env = gymnasium.make(STUMP_TRACKS)
    env.get_wrapper_attr("set_next_task")([1.0, 2.0], 7, 3)
    _, info = env.reset(seed=0, options={"context": [2.0, 3.0], "task_seed": 4, "task_row": 5})
    assert (list(info["context"]), info["task_seed"], info["task_row"]) == ([2, 3], 4, 5)
    _, info = env.reset()
    assert (list(info["context"]), info["task_seed"], info["task_row"]) == ([1, 2], 7, 3)
    env.unwrapped.next_task = ([0.5, 0.5], 1, 2)
    assert env.step(np.zeros(4, np.float32))[-1]["task_seed"] == 7, "the running episode keeps its task"
    assert env.reset()[1]["task_row"] == 2 and env.unwrapped.next_task is None
    infos = [env.reset(seed=6)[1], *(env.reset()[1] for _ in range(200))]  # nobody named one: anywhere in the box
    contexts = np.array([i["context"] for i in infos])
    assert (contexts.min(axis=0) < [-2.8, 0.2]).all() and (contexts.max(axis=0) > [2.8, 5.8]).all()
    assert len({i["task_seed"] for i in infos}) == len(infos) and {i["task_row"] for i in infos} == {-1}
    again = env.reset(seed=6)[1]
    np.testing.assert_array_equal(again["context"], contexts[0])
    assert again["task_seed"] == infos[0]["task_seed"]


WRONG = [
    ({"context": [0.0]}, "shape (1,): expected (2,), which is (stump_height, stump_spacing)"),
    ({"context": [3.5, 1.0]}, "stump_height = 3.5 lies outside [-3, 3]"),
    ({"context": [0.0, np.nan]}, "stump_spacing = nan lies outside [0, 6]"),
    ({"context": [0.0, 1.0], "task_seed": -1}, "task_seed = -1: expected an integer from 0"),
    ({"contxt": [0.0, 1.0]}, "Did you mean context?"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_wrong_tasks_are_refused(options, message):
    with pytest.raises(ConfigError) as error:
        StumpTracks().reset(options=options)
    assert message in str(error.value)


def test_other_mistakes_have_clear_messages():
    env = StumpTracks()
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros(4))
    env.reset(seed=0)
    for action, message in [(np.zeros(5), "expected \\(4,\\)"), ([0, np.nan, 0, 0], "finite")]:
        with pytest.raises(ConfigError, match=message):
            env.step(action)


def test_without_box2d_the_extra_is_named():
    code = "import sys; sys.modules['Box2D'] = None; import gymnasium, procurl.integrations.gymnasium; "
    code += f"gymnasium.make('{STUMP_TRACKS}')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "MissingExtraError" in done.stderr
    assert "needs Box2D" in done.stderr and "pip install 'procurl[box2d]'" in done.stderr


def test_neither_jax_nor_box2d_is_imported_before_it_is_needed():
    code = f"""
import sys, gymnasium, procurl.integrations.gymnasium
assert "jax" not in sys.modules and "Box2D" not in sys.modules
gymnasium.make("{STUMP_TRACKS}").reset(seed=0)
assert "jax" not in sys.modules
import procurl.envs.bipedal.space
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# --- in Gymnasium and Stable-Baselines3


def test_both_checkers_pass():
    env = gymnasium.make(STUMP_TRACKS, render_mode="rgb_array")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(env.unwrapped)
        sb3_checker.check_env(env)
    unexpected = [str(w.message) for w in caught if "different from the unwrapped" not in str(w.message)]
    assert not unexpected


def test_a_copy_is_a_copy():
    env = StumpTracks(max_steps=7)
    begin([1.0, 2.0], 3, env)
    copy = pickle.loads(pickle.dumps(env))  # noqa: S301
    assert (copy.max_steps, copy.render_mode) == (7, None)
    np.testing.assert_array_equal(begin([1.0, 2.0], 3, copy)[1], begin([1.0, 2.0], 3, env)[1])
    for task_env in (TaskEnv(StumpTracks(), bipedal_space()), gymnasium.make(STUMP_TRACKS)):
        obs, info = task_env.reset(seed=1, options={"context": [1.0, 2.0], "task_seed": 3})
        np.testing.assert_array_equal(obs, begin([1.0, 2.0], 3)[1])
        assert info["task_seed"] == 3


make_short = partial(StumpTracks, max_steps=3)


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_an_episode_is_recorded_under_the_task_it_was_played_with(kind, mode):
    """The lidar knows where the first stump stands, or how high: the task in the record gives the same last view."""
    options = {"context": "forkserver"} if kind is AsyncVectorEnv else {}
    envs, alone, tasks, n = kind([make_short] * 2, autoreset_mode=mode, **options), make_short(), iter(range(100)), 0

    def pick():
        k = next(tasks)
        return np.float32([-3 + 0.05 * k, 0.05 * k]), 10 + k, k

    envs.set_attr("next_task", [pick(), pick()])
    envs.reset(seed=0)
    envs.set_attr("next_task", [pick(), pick()])
    for _ in range(16):
        obs, _, terminated, truncated, infos = envs.step(np.ones((2, 4), np.float32))
        ended = terminated | truncated
        for i, task in ended_tasks(ended, infos).items():
            assert task.seed == 10 + task.row and task.context[1] == pytest.approx(0.05 * task.row)
            alone.reset(options={"context": task.context, "task_seed": task.seed})
            views = [alone.step(np.ones(4, np.float32))[0] for _ in range(3)]
            np.testing.assert_array_equal(
                infos["final_obs"][i] if mode is AutoresetMode.SAME_STEP else obs[i], views[-1]
            )
            n += 1
        envs.set_attr("next_task", [pick() if e else None for e in ended])
    envs.close()
    assert n >= 8


@pytest.mark.parametrize("kind", [DummyVecEnv, pytest.param(SubprocVecEnv, marks=pytest.mark.slow)])
def test_stable_baselines3_workers(kind):
    envs = kind([make_short] * 2, **({"start_method": "forkserver"} if kind is SubprocVecEnv else {}))
    for i in range(2):
        envs.env_method("set_next_task", [1.0, i + 1.0], i, 5 + i, indices=[i])
    np.testing.assert_array_equal(envs.reset(), [begin([1.0, i + 1.0], i)[1] for i in range(2)])
    for i in range(2):
        envs.env_method("set_next_task", [2.0, i + 2.0], i, 7 + i, indices=[i])
    for _ in range(3):
        _, _, done, infos = envs.step(np.zeros((2, 4), np.float32))
        assert [info["task_row"] for info in infos] == [5, 6] and [info["context"][0] for info in infos] == [1, 1]
    assert done.all() and all(info["TimeLimit.truncated"] for info in infos)
    assert [info["task_row"] for info in envs.reset_infos] == [7, 8]
    envs.close()


# --- the setting


def test_the_setting_is_the_benchmarks():
    space = bipedal_space()
    procurl.check_space(space)
    assert (space.name, space.names, space.value_range) == ("bipedal", ("stump_height", "stump_spacing"), (-150, 350))
    assert list(space.low) == [-3, 0] and list(space.high) == [3, 6] and space.fresh_seeds
    for tasks, n in ((space.pool, 1000), (space.targets, 500)):  # uniform, as mu is
        context = np.asarray(tasks.context)
        assert context.shape == (n, 2)
        np.testing.assert_allclose(context.mean(axis=0), [0, 3], atol=0.3)
        np.testing.assert_allclose(context.std(axis=0), 6 / math.sqrt(12), atol=0.1)
    assert list(space.pool.row) == list(range(1000)) and len(set(space.pool.seed.tolist())) == 1000
    again = bipedal_space()
    np.testing.assert_array_equal(space.pool.context, again.pool.context)


def test_the_test_grid_is_the_benchmarks():
    grid = bipedal_space().held_out
    expected = {(round(h / 3, 5), round(2 * d / 3, 5)) for h in range(10) for d in range(10)}
    assert {(round(float(h), 5), round(float(d), 5)) for h, d in grid.context} == expected
    assert len(grid.context) == 100 and len(set(grid.seed.tolist())) == 100 and set(grid.row.tolist()) == {-1}
    env = StumpTracks()
    for context, seed in zip(np.asarray(grid.context), np.asarray(grid.seed), strict=True):
        env.set_next_task(context, seed)
        env.reset()


def test_the_settings_teachers_work():
    """ProCuRL-Target on the space, with values in units of return."""
    teacher = procurl.ProCuRLUnif(bipedal_space(pool_size=100, n_targets=20), beta=90.0)
    curriculum, env = procurl.Curriculum(teacher, seed=0, every=50, unit="episodes"), StumpTracks(max_steps=1)

    def play_fifty():
        for _ in range(50):
            env.next_task = task = curriculum.next()
            _, info = env.reset()
            assert (info["task_row"], info["task_seed"]) == (task.row, task.seed)
            _, ret, _, _, info = env.step(np.zeros(4))
            curriculum.record(task, ret=ret, length=1, success=info["is_success"])
            yield task.context[0]

    first = np.array(list(play_fifty()))
    assert 0.2 < np.mean(first > 0) < 0.8, "nobody has watched yet"
    curriculum.observe(value=lambda tasks: np.where(tasks.context[:, 0] < 0, 350.0, 100.0))
    assert np.mean(np.array(list(play_fifty())) > 0) > 0.9, "what is mastered is not chosen"


# --- pictures


def test_pictures_show_the_track(monkeypatch):
    for screen in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(screen, raising=False)  # none is needed
    env = StumpTracks(render_mode="rgb_array")
    pictures = []
    for context in ([-3.0, 6.0], [3.0, 1.0]):
        begin(context, env=env)
        move(env, 12.0)
        env.step(np.zeros(4))
        pictures.append(env.render())
    assert all(p.shape == (400, 600, 3) and p.dtype == np.uint8 for p in pictures)
    easy, hard = ((p == 255).all(axis=-1).mean() for p in pictures)
    assert hard > 0.02 > 0.005 > easy, "stumps are white"
    assert ((pictures[0] == (102, 153, 76)).all(axis=-1)).mean() > 0.2, "earth"


def test_the_heat_map():
    from procurl.bench.report.figures import return_heat_map

    grid = bipedal_space().held_out
    context = np.asarray(grid.context)
    ret = 300 - 100 * context[:, 0] + 10 * context[:, 1]
    shuffled = np.random.default_rng(0).permutation(100)
    figure = return_heat_map(context[shuffled], ret[shuffled], ("stump_height", "stump_spacing"), (-150, 350), 230)
    axes = figure.axes[0]
    (mesh,) = axes.collections
    np.testing.assert_allclose(mesh.get_array().reshape(10, 10), ret.reshape(10, 10).T)  # spacing goes upwards
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("stump height", "stump spacing")
    shown = [t.get_text() for t in axes.texts]
    assert shown[0] == "300" and len(shown) == 100
    bold = [t.get_weight() == "bold" for t in axes.texts]
    assert sum(bold) == (ret > 230).sum()
    assert f"{(ret > 230).mean():.0%} above 230" in axes.get_title() and f"{ret.mean():.0f}" in axes.get_title()
    seeds = return_heat_map(context, np.stack([ret, ret + 2]), ("a", "b"), (-150, 350))
    np.testing.assert_allclose(seeds.axes[0].collections[0].get_array().reshape(10, 10), ret.reshape(10, 10).T + 1)
    with pytest.raises(ConfigError, match="99 tasks.*grid"):
        return_heat_map(context[1:], ret[1:], ("a", "b"), (0, 1))
    plt.close("all")


@pytest.mark.slow
def test_the_page_runs_as_printed():
    page = (Path(__file__).parent.parent / "docs/settings/bipedal.md").read_text()
    names: dict = {}
    for snippet in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(snippet, names)
    assert int(names["student"].updates) > 0, "the student must have learnt"
