"""The walker in JAX against the walker in Box2D: the same body, the same tracks, and the same next step."""

import importlib.util
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import procurl
from procurl.envs.bipedal.jax_walker import body, start
from procurl.envs.bipedal.jax_walker.body import HULL
from procurl.envs.bipedal.jax_walker.collision import collide
from procurl.envs.bipedal.jax_walker.env import JaxWalker
from procurl.envs.bipedal.jax_walker.lidar import RAY_X, RAY_Y, lidar
from procurl.envs.bipedal.jax_walker.terrain import MOST_STUMPS, Terrain, draw_terrain, terrain_of
from procurl.envs.bipedal.track import GOAL, GROUND, START, STEP, make_track
from procurl.runs.evaluation import evaluate
from procurl.types import Step, Task

Box2D = pytest.importorskip("Box2D", reason="needs Box2D", exc_type=ImportError)
from procurl.envs.bipedal.stump_tracks import StumpTracks  # noqa: E402

FILE = Path(__file__).parent.parent / "benchmarks/beside_box2d.py"
spec = importlib.util.spec_from_file_location("beside_box2d", FILE)
beside = sys.modules["beside_box2d"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(beside)

ENV = JaxWalker()
KEY = np.array([0, 0], np.uint32)  # the walker draws nothing in a step


def box2d(context, seed=0):
    env = StumpTracks()
    env.reset(options={"context": context, "task_seed": seed})
    return env


def tasks_of(context, first=0):
    n = len(context)
    seeds = jnp.arange(first, first + n, dtype=jnp.int32)
    return Task(jnp.asarray(context, jnp.float32), seeds, jnp.full(n, -1, jnp.int32))


reset = jax.jit(jax.vmap(ENV.reset))
step = jax.jit(jax.vmap(ENV.step, in_axes=(None, 0, 0)))


# --- the body and the track


def test_the_body_is_box2ds():
    env = box2d([0, 3])
    parts = (env.hull, *env.legs)
    np.testing.assert_allclose(body.MASS[:, 0], [b.mass for b in parts], rtol=1e-6)
    about_centre = [b.inertia - b.mass * b.localCenter.lengthSquared for b in parts]  # Box2D tells it about the origin
    np.testing.assert_allclose(body.INERTIA[:, 0], about_centre, rtol=1e-5)
    np.testing.assert_allclose(body.CENTRE, env.hull.localCenter, atol=1e-7)
    ground = env.terrain[0].fixtures[0].friction
    np.testing.assert_allclose(
        body.FRICTION[:, 0], [np.sqrt(ground * b.fixtures[0].friction) for b in parts], rtol=1e-6
    )
    for k, part in enumerate(parts):
        corners = {tuple(np.round(np.subtract(v, part.localCenter), 5)) for v in part.fixtures[0].shape.vertices}
        table = np.stack([body.FACES.begin_x[:, k, 0], body.FACES.begin_y[:, k, 0]], axis=1)
        assert {tuple(c) for c in np.round(table.astype(float), 5)} == corners


def test_the_joints_are_box2ds():
    env = box2d([0, 3])
    parts = [env.hull, *env.legs]
    for hinge, joint in zip(body.BY_ACTION, env.joints, strict=True):
        assert (parts.index(joint.bodyA), parts.index(joint.bodyB)) == (hinge.a, hinge.b)
        assert hinge.lower - hinge.reference == pytest.approx(joint.lowerLimit, abs=1e-6)
        assert hinge.upper - hinge.reference == pytest.approx(joint.upperLimit, abs=1e-6)
        angle = joint.bodyB.angle - joint.bodyA.angle - hinge.reference
        assert angle == pytest.approx(joint.angle, abs=1e-6), "the hidden angle from which a joint counts"
        anchors = [(hinge.anchor_a, joint.bodyA, joint.anchorA), (hinge.anchor_b, joint.bodyB, joint.anchorB)]
        for ours, part, theirs in anchors:
            np.testing.assert_allclose(part.GetWorldPoint(part.localCenter + ours), theirs, atol=1e-5)


def test_tracks_have_the_benchmarks_shape():
    contexts = np.float32([*np.random.default_rng(1).uniform([-3, 0], [3, 6], (200, 2)), [0, 0], [3, 6], [1, 5.15]])
    keys = jax.random.split(jax.random.key(0), len(contexts))
    drawn = jax.tree.map(np.asarray, jax.jit(jax.vmap(draw_terrain))(contexts, keys))
    for k, context in enumerate(contexts):
        track = make_track(context, np.random.default_rng(k))
        n = len(track.stumps)
        assert np.count_nonzero(drawn.heights[k]) == n and np.all(drawn.heights[k][:n] > 0)
        np.testing.assert_allclose(START + drawn.pitch[k] * np.arange(n), track.stumps, atol=5e-5)
        np.testing.assert_allclose(drawn.end[k], track.ground[-1], atol=5e-5)
    assert len(make_track([0, 0], np.random.default_rng(0)).stumps) == MOST_STUMPS


def test_heights_have_the_benchmarks_distribution():
    def heights(mean):
        keys = jax.random.split(jax.random.key(1), 50)
        return np.asarray(jax.jit(jax.vmap(lambda k: draw_terrain(jnp.array([mean, 0.0]), k).heights))(keys)) / STEP

    np.testing.assert_allclose(heights(-3), 0.05, rtol=1e-6)
    assert np.mean(np.isclose(heights(0), 0.05)) == pytest.approx(0.69, abs=0.03)
    assert (heights(3).mean(), heights(3).std()) == pytest.approx((3.0, 0.1), abs=0.01)


# --- contacts and the lidar


def test_contacts_are_box2ds():
    """A foot anywhere around a stump: whether they touch, at how many points, and whose face is the reference."""
    rng, n, height = np.random.default_rng(0), 1500, 0.4
    terrain = Terrain(jnp.full(n, 2.0), jnp.full(n, 90.0), jnp.zeros((MOST_STUMPS, n)).at[0].set(height))
    pose = np.full((3, 5, n), 50.0, np.float32)
    foot = np.float32(rng.uniform([START - 0.6, GROUND + 0.6, -1.6], [START + 1.1, GROUND + 1.1, 1.6], (n, 3)).T)
    pose[:, body.LEFT_FOOT] = foot
    found = jax.tree.map(np.asarray, jax.jit(collide)(terrain, pose))
    active = found.active[:, :, body.LEFT_FOOT]  # bool[K, 2, n]
    stump = [(START, GROUND), (START + STEP, GROUND), (START + STEP, GROUND + height), (START, GROUND + height)]
    box = (0.8 * body.LEG_WIDTH / 2, body.LEG_LENGTH / 2)
    touching = 0
    for k in range(n):
        world = Box2D.b2World()
        world.CreateStaticBody(shapes=Box2D.b2PolygonShape(vertices=stump))
        x, y, angle = foot[:, k].tolist()
        world.CreateDynamicBody(position=(x, y), angle=angle, shapes=Box2D.b2PolygonShape(box=box))
        world.Step(0, 1, 1)
        manifolds = [contact.manifold for contact in world.contacts if contact.touching]
        assert active[:, :, k].sum() == sum(m.pointCount for m in manifolds), foot[:, k]
        for manifold in manifolds:
            assert found.on_body[0, body.LEFT_FOOT, k] == (manifold.type_ == 2), foot[
                :, k
            ]  # 2: face of the second body
            touching += 1
    assert touching > 100


def test_the_lidar_sees_what_box2ds_rays_hit():
    """Hulls anywhere over all kinds of tracks, also beyond the end of the ground; stumps are up to 1.6 m high."""
    rng, n = np.random.default_rng(2), 300
    contexts = np.float32([*rng.uniform([-3, 0], [3, 6], (8, 2)), [2, 0], [1, 6]])
    see = jax.jit(lidar)
    for seed, context in enumerate(contexts):
        env = box2d(context, seed)
        terrain = terrain_of(make_track(context, np.random.default_rng(seed)))
        x = np.float32(rng.uniform(0, 95, n))
        y = np.float32(GROUND + rng.uniform(1.7, 4.5, n))
        many = jax.tree.map(lambda a: jnp.repeat(a[..., None], n, axis=-1), terrain)
        seen = np.asarray(see(many, x, y)).T
        for k in range(n):
            px, py = float(x[k]), float(y[k])
            for i, ray in enumerate(env.lidar):
                ray.fraction = 1.0
                env.world.RayCast(ray, (px, py), (px + float(RAY_X[i, 0]), py + float(RAY_Y[i, 0])))
            wrong = np.abs(seen[k] - [ray.fraction for ray in env.lidar]) > 1e-4
            assert wrong.sum() <= 1, (context, x[k], y[k])  # a rounding error can decide whether a corner is hit


# --- steps


def held(rng, n, share=0.2):
    """Random actions that are held for some steps, so that the walker gets somewhere."""
    action = rng.uniform(-1, 1, (n, 4))

    def policy(obs):
        action[:] = np.where(rng.random((n, 1)) < share, rng.uniform(-1, 1, (n, 4)), action)
        return action.copy()

    return policy


@pytest.fixture(scope="module")
def both():
    """Random walkers on tracks of all heights and spacings, from the start and amid the stumps."""
    rng, n, steps = np.random.default_rng(0), 24, 60
    contexts = np.float32(rng.uniform([-3, 0], [3, 6], (n, 2)))
    low = np.float32(rng.uniform([-1, 0], [1, 1.5], (n, 2)))  # where a leg can be over several stumps at a time
    made = [beside.record(contexts, held(rng, n), steps), beside.record(low, held(rng, n), steps, ahead=6.5)]
    return [(recorded, jax.tree.map(np.asarray, beside.repeat(recorded))) for recorded in made]


@pytest.mark.slow
def test_the_first_observation_is_box2ds(both):
    for recorded, repeated in both:
        np.testing.assert_allclose(repeated.first_obs, recorded.first_obs, atol=2e-5)


@pytest.mark.slow
def test_one_step_ahead_of_box2d(both):
    """The bounds of benchmarks/bipedal_jax.py, and far tighter ones without stumps."""
    for k, (recorded, repeated) in enumerate(both):
        there = recorded.played
        there[0] &= k == 0  # who was moved amid the stumps has just lost its contacts
        error = np.abs(repeated.obs - recorded.obs)
        assert there.sum() > 900
        numbers = np.delete(error[there], beside.FLAGS, axis=1)
        assert np.percentile(numbers, 95, axis=0).max() < 1e-3
        assert np.percentile(numbers, 90, axis=0).max() < 1e-4
        assert np.mean(error[there][:, beside.FLAGS] < 0.5) > 0.99
        reward = np.abs(repeated.reward - recorded.reward)[there]
        assert np.percentile(reward, 95) < 1e-3
        np.testing.assert_array_equal(repeated.terminated[there], recorded.terminated[there])
    free = both[0][0].played & ~both[0][0].on_stump
    assert np.percentile(np.abs(both[0][1].obs - both[0][0].obs)[free], 99) < 1e-4
    assert sum(r.on_stump.sum() for r, _ in both) > 200 and sum(r.terminated.sum() for r, _ in both) > 5


@pytest.mark.slow
def test_the_table_of_first_steps_is_the_step_itself():
    push = np.float32(np.random.default_rng(0).uniform(-5, 5, 16))
    looked_up = jax.jit(jax.vmap(start.started, out_axes=-1))(push)
    simulated = jax.jit(start.first_step)(push)
    for a, b in zip(jax.tree.leaves(looked_up), jax.tree.leaves(simulated), strict=True):
        np.testing.assert_allclose(np.float64(a), np.float64(b), atol=2e-5)


@pytest.mark.slow
def test_a_walker_does_not_know_its_neighbours():
    """In another order, and with fewer others under two nested maps: the same steps."""
    n = 6
    contexts = np.float32(np.random.default_rng(3).uniform([-3, 0], [1, 2], (n, 2)))
    state, _ = reset(tasks_of(contexts))
    order = np.array([3, 0, 5, 1, 4, 2])
    other = jax.tree.map(lambda a: a[order], state)
    few = jax.tree.map(lambda a: a[:3, None], state)
    nested = jax.jit(jax.vmap(jax.vmap(ENV.step, in_axes=(None, 0, 0)), in_axes=(None, 0, 0)))
    for action in np.float32(np.random.default_rng(4).uniform(-1, 1, (25, n, 4))):
        state, outcome = step(KEY, state, action)
        other, in_order = step(KEY, other, action[order])
        few, of_few = nested(KEY, few, action[:3, None])
        np.testing.assert_allclose(in_order.obs, outcome.obs[order], atol=1e-4)
        np.testing.assert_allclose(of_few.obs[:, 0], outcome.obs[:3], atol=1e-4)


# --- an episode


def moved(state, x, y=0.0):
    return state._replace(world=state.world._replace(pose=state.world.pose + jnp.array([x, y, 0.0])[:, None]))


def origin(state):
    """Where Box2D says a hull is: not its centre of mass."""
    x, _, angle = np.moveaxis(np.asarray(state.world.pose[:, :, HULL]), 1, 0)
    return x - np.cos(angle) * body.CENTRE[0] + np.sin(angle) * body.CENTRE[1]


def test_reward_and_the_end_of_an_episode():
    """Progress, torque, -100 for leaving on the left, no bonus at the goal, truncation, and success above 230."""
    state, _ = reset(tasks_of([[-3, 5]] * 6))
    far = np.float32([0.0, -4.7, GOAL - 4.6, 0.0, 52.9, 53.5])
    state = jax.vmap(moved)(state, far)
    state = state._replace(steps=jnp.int32([0, 0, 0, ENV.max_steps - 1, 0, 0]))
    action = np.zeros((6, 4), np.float32)
    action[0] = [1.5, -0.5, 0, 0]
    after, outcome = step(KEY, state, action)
    np.testing.assert_array_equal(outcome.terminated, [False, True, True, False, False, False])
    np.testing.assert_array_equal(outcome.truncated, [False, False, False, True, False, False])
    np.testing.assert_array_equal(outcome.success, [False, False, True, False, False, True])
    assert outcome.reward[1] == -100 and 360 < outcome.reward[2] < 368
    for k, torque in ((0, 1.5), (3, 0.0)):
        progress = 130 / 30 * (origin(after)[k] - origin(state)[k])
        tilt = np.abs(after.world.pose[k, 2, HULL]) - np.abs(state.world.pose[k, 2, HULL])
        expected = float(progress - 5 * tilt - 0.028 * torque)
        assert float(outcome.reward[k]) == pytest.approx(expected, abs=1e-4), "torque is paid up to 1"
    np.testing.assert_allclose(after.ret, outcome.reward)


def test_states_keep_their_types():
    task = jax.tree.map(lambda a: a[0], tasks_of([[0, 3]]))
    first, _ = jax.eval_shape(ENV.reset, task)
    later, outcome = jax.eval_shape(ENV.step, jax.random.key(0), first, jnp.zeros(4))
    assert jax.tree.map(lambda a: (a.shape, a.dtype, a.weak_type), first) == jax.tree.map(
        lambda a: (a.shape, a.dtype, a.weak_type), later
    )
    assert outcome.obs.shape == (24,) and outcome.obs.dtype == jnp.float32


def test_who_walks_off_the_end_of_the_ground_falls_and_who_lies_stays():
    """At spacing 6 the ground ends before the goal; and nothing becomes NaN, however deep a walker is put."""
    state, _ = reset(tasks_of([[-3, 6]] * 6))
    end = float(state.terrain.end[0])
    assert end < GOAL
    state = jax.vmap(moved)(state, np.float32([end - 3.6, 0, 0, 20, 60, 7]), np.float32([0, 0, -1.5, -4, 3, -0.4]))
    low = []
    for _ in range(40):
        state, outcome = step(KEY, state, np.zeros((6, 4), np.float32))
        low.append(np.asarray(state.world.pose[:, 1, HULL]))
        assert np.isfinite(outcome.obs).all() and np.isfinite(outcome.reward).all()
    assert low[-1][0] < GROUND - 0.5, "no ground there"
    assert low[-1][1] > GROUND + 1, "ground here"


@pytest.mark.slow
def test_no_nan_in_many_random_steps():
    n, rng = 256, np.random.default_rng(0)
    state, _ = reset(tasks_of(rng.uniform([-3, 0], [3, 6], (n, 2))))
    state = jax.vmap(moved)(state, np.float32(rng.uniform(0, 60, n)), np.float32(rng.uniform(0, 1, n)))
    for _ in range(400):  # on and on, whoever has fallen
        state, outcome = step(KEY, state, np.float32(rng.uniform(-1, 1, (n, 4))))
        assert np.isfinite(outcome.obs).all()
    apart = []
    for hinge in body.HINGES:
        pose = np.asarray(state.world.pose)

        def anchor(k, local, pose=pose):
            x, y, a = pose[:, 0, k], pose[:, 1, k], pose[:, 2, k]
            return np.stack(
                [x + np.cos(a) * local[0] - np.sin(a) * local[1], y + np.sin(a) * local[0] + np.cos(a) * local[1]]
            )

        apart.append(np.linalg.norm(anchor(hinge.a, hinge.anchor_a) - anchor(hinge.b, hinge.anchor_b), axis=0))
    assert np.percentile(apart, 95) < 0.01 and np.max(apart) < 0.2, "joints hold together"


# --- the setting


def test_the_setting_is_bipedals():
    env, space = procurl.make("bipedal-jax", max_steps=7)
    theirs = procurl.make("bipedal")[1]
    assert isinstance(env, JaxWalker) and env.max_steps == 7 and space.name == "bipedal-jax"
    np.testing.assert_array_equal(space.held_out.context, theirs.held_out.context)
    np.testing.assert_array_equal(space.pool.context, theirs.pool.context)
    config, original = procurl.preset("bipedal-jax").sac, procurl.preset("bipedal").sac
    assert config.n_envs == 128 and config.every == original.every and config.n_steps % config.n_envs == 0
    assert procurl.presets.SETTINGS["bipedal-jax"].teachers == procurl.presets.SETTINGS["bipedal"].teachers


class TellsItsSeed:
    """An environment of one step, which pays the task's seed."""

    action, max_steps = JaxWalker.action, 1

    def reset(self, task):
        return task.seed, jnp.zeros(24)

    def step(self, key, state, action):
        no, yes = jnp.bool_(False), jnp.bool_(True)
        return state, Step(jnp.zeros(24), state.astype(jnp.float32), yes, no, no)


def test_tests_are_played_on_the_same_tracks_every_time():
    """And a task's further episodes on others, which are the same for every key, too."""
    space = procurl.make("bipedal-jax")[1]
    assert space.fresh_seeds and space.fixed_tests
    actor = {"actor": [{"w": np.zeros((24, 8), np.float32), "b": np.zeros(8, np.float32)}]}

    @jax.jit
    def seeds(key):
        scores = evaluate(TellsItsSeed(), actor, space.held_out, key, 3, fresh_seeds=True, fixed_tests=True)
        return scores.ret

    for key in (0, 1):  # seeds k, k + 100 and k + 200 of task k
        np.testing.assert_array_equal(seeds(jax.random.key(key)), np.arange(100) + 100)


def test_a_picture_shows_the_walker_on_its_track():
    states, _ = reset(tasks_of([[1.0, 2.0]]))
    state = jax.tree.map(lambda x: np.asarray(x[0]), states)
    picture = ENV.render(state)
    assert picture.shape == (400, 400, 3) and picture.dtype == np.uint8
    colours = {tuple(c) for c in picture.reshape(-1, 3).tolist()}
    assert {(86, 96, 196), (228, 118, 40)} <= colours, "hull and near leg"
    ahead = state._replace(world=state.world._replace(pose=state.world.pose + np.float32([[START - 4], [0], [0]])))
    assert (150, 158, 170) in {tuple(c) for c in ENV.render(ahead).reshape(-1, 3).tolist()}, "a stump"
