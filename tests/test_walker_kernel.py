"""Loops of the walker's solver as kernels for a GPU: here they are interpreted, and lowered for CUDA."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gpus import an_h200

import procurl
from procurl.envs.bipedal.jax_walker import impacts, kernel, physics
from procurl.envs.bipedal.jax_walker.collision import collide
from procurl.envs.bipedal.jax_walker.physics import World

N = 6  # walkers
ITERATIONS = 3
MASS = np.array([[1.0], [2.0], [4.0]], np.float32)


def settled(x, done, limit):
    """A bit of everything that the physics does."""

    def step(carry):
        i, x, done = carry
        first, second, third = x
        swapped = jnp.stack([second, jnp.where(limit > 0, first, -first), third.clip(-1, 1)])
        after = 0.5 * swapped + MASS * jnp.concatenate([x[1:], x[:1]]) / 8
        return i + 1, jnp.where(done, x, after), done | (jnp.abs(after).max(0) < 0.3)

    def busy(carry):
        return (carry[0] < 9) & ~carry[2].all()

    def more(_, y):
        return y + y.min(0, keepdims=True) * (limit == 2)

    _, x, done = jax.lax.while_loop(busy, step, (jnp.int32(0), x, done))
    x = jax.lax.cond((limit > 0).any(), lambda x: 2 * x, lambda x: x, jax.lax.fori_loop(0, 2, more, x))
    return {"x": x, "done": done}


def test_a_kernel_computes_what_the_function_does():
    rng = np.random.default_rng(0)
    x, limit = np.float32(np.geomspace(1, 1e4, N) * rng.normal(size=(3, N))), np.array([-1, 0, 1, 2, 0, 1], np.int32)
    args = (x, rng.random(N) < 0.3, limit)
    columns = [jax.tree.map(lambda a, k=k: a[..., k : k + 1], args) for k in range(N)]
    alone = [jax.jit(settled)(*column) for column in columns]  # each walker's loops end when it is done
    expected = jax.tree.map(lambda *parts: np.concatenate(parts, axis=-1), *alone)
    found = jax.jit(lambda *args: kernel.as_kernel(settled, *args, interpret=True))(*args)
    assert found["done"].dtype == bool and found["x"].dtype == np.float32
    np.testing.assert_array_equal(found["done"], expected["done"])
    np.testing.assert_allclose(found["x"], expected["x"], rtol=1e-5, atol=1e-6)
    assert 0 < expected["done"].sum() < N


def test_a_cpu_runs_the_function_itself():
    assert kernel.in_one_kernel(lambda x: x)("unchanged") == "unchanged"


@cache
def loops():
    """Every loop with arguments from walkers that have fallen about for a while."""
    env, space = procurl.make("bipedal-jax")
    state, _ = jax.jit(jax.vmap(env.reset))(space.from_pool(jax.random.key(0), jnp.arange(N)))

    def step(state, key):
        action = jax.random.uniform(key, (N, 4), minval=-1.0)
        return jax.vmap(env.step, in_axes=(None, 0, 0))(key, state, action)[0], None

    state, _ = jax.jit(lambda state, keys: jax.lax.scan(step, state, keys))(
        state, jax.random.split(jax.random.key(1), 40)
    )

    @jax.jit
    def prepared(world, terrain):
        manifolds = collide(terrain, world.pose)
        action = jnp.full((4, N), 0.5)
        slots, ready, v = physics.prepared(world, manifolds, action, world.limit, world.pull)
        by_joint = [physics.JointImpulse(world.pull[j], world.motor[j]) for j in range(4)]
        contact = list(world.contact.normal), list(world.contact.tangent)
        begin, end = world.pose, world.pose + 0.05 * world.velocity
        pieces = impacts.collision.nearby(terrain, impacts.collision.turned(begin).x.min(0))
        met = manifolds.active.any((0, 1))
        return {
            "iterated_velocities": (slots, ready, (physics.by_body(v), by_joint, *contact)),
            "iterated_positions": (manifolds, end, list(world.limit)),
            "searched": (pieces, begin, end, impacts.distances(pieces, begin)),
            "moved_out": (manifolds, end, met),
            "slowed": (slots, world.velocity, met),
        }

    world, terrain = jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), (state.world, state.terrain))
    assert isinstance(world, World)
    return prepared(world, terrain)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["iterated_velocities", "iterated_positions", "searched", "moved_out", "slowed"])
def test_every_loop_of_the_solver_is_one_kernel_with_the_same_results(name, monkeypatch):
    for module in (physics, impacts):
        monkeypatch.setattr(module, "VELOCITY_ITERATIONS", ITERATIONS)  # interpreted, each takes seconds
        monkeypatch.setattr(module, "POSITION_ITERATIONS", ITERATIONS)
    function = getattr(physics, name, None) or getattr(impacts, name)
    args = loops()[name]
    with an_h200():
        traced = jax.jit(lambda *args: kernel.as_kernel(function, *args)).trace(*args)
        assert "triton" in traced.lower(lowering_platforms=("cuda",)).as_text()
    found = jax.jit(lambda *args: kernel.as_kernel(function, *args, interpret=True))(*args)
    expected = jax.jit(lambda *args: function(*args))(*args)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=1e-4, atol=1e-4)
