"""The walker in JAX beside the walker in Box2D: episodes recorded there, and each of their steps repeated here.

Every step begins where Box2D's step began: positions, angles, velocities and contact flags are Box2D's. The impulses
with which a solver begins its iterations are internal to Box2D, so each simulator keeps its own from one step to the
next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from procurl.envs.bipedal.jax_walker.env import JaxWalker, State, begin, observe
from procurl.envs.bipedal.jax_walker.lanes import alone
from procurl.envs.bipedal.jax_walker.terrain import Terrain, terrain_of
from procurl.envs.bipedal.stump_tracks import StumpTracks
from procurl.envs.bipedal.track import make_track
from procurl.types import Step

FLAGS = [8, 13]  # observations that are contact flags


class Recorded(NamedTuple):
    """T steps of E episodes in Box2D; entries after an episode's end are zero."""

    terrain: Terrain  # [E, ...]
    push: np.ndarray  # f32[E]  newtons in the first step
    pose: np.ndarray  # f32[T, E, 3, 5]  before each step
    velocity: np.ndarray  # f32[T, E, 3, 5]
    feet: np.ndarray  # bool[T, E, 2]
    action: np.ndarray  # f32[T, E, 4]
    obs: np.ndarray  # f32[T, E, 24]  after each step
    reward: np.ndarray  # f32[T, E]
    terminated: np.ndarray  # bool[T, E]
    on_stump: np.ndarray  # bool[T, E]  a body touched a stump before or after the step
    played: np.ndarray  # bool[T, E]
    first_obs: np.ndarray  # f32[E, 24]


class Repeated(NamedTuple):
    """The same steps in JAX."""

    obs: np.ndarray  # f32[T, E, 24]
    reward: np.ndarray  # f32[T, E]
    terminated: np.ndarray  # bool[T, E]
    first_obs: np.ndarray  # f32[E, 24]


def bodies(env: StumpTracks) -> tuple[np.ndarray, np.ndarray]:
    """Pose and velocity of the centres of mass, f32[3, 5] each."""
    parts = (env.hull, *env.legs)
    pose = [(*b.worldCenter, b.angle) for b in parts]
    velocity = [(*b.linearVelocity, b.angularVelocity) for b in parts]
    return np.array(pose, np.float32).T, np.array(velocity, np.float32).T


def on_stump(env: StumpTracks) -> bool:
    """Stumps are the only pieces of terrain with four corners."""
    return any(
        edge.contact.touching and len(edge.other.fixtures[0].shape.vertices) == 4
        for body in (env.hull, *env.legs)
        for edge in body.contacts
    )


def record(
    contexts: np.ndarray,
    policy: Callable[[np.ndarray], np.ndarray],
    steps: int,
    *,
    first_seed: int = 0,
    ahead: float = 0,
) -> Recorded:
    """Plays every context once, `ahead` metres further on than usual if that is asked for."""
    n = len(contexts)
    shapes: dict[str, Any] = {
        "pose": ((3, 5), np.float32), "velocity": ((3, 5), np.float32), "feet": ((2,), bool),
        "action": ((4,), np.float32), "obs": ((24,), np.float32), "reward": ((), np.float32),
        "terminated": ((), bool), "on_stump": ((), bool), "played": ((), bool),
    }  # fmt: skip
    kept = {name: np.zeros((steps, n, *shape), kind) for name, (shape, kind) in shapes.items()}
    envs, terrains, pushes, first = [], [], [], []
    for k, context in enumerate(contexts):
        env = StumpTracks()
        obs, _ = env.reset(options={"context": context, "task_seed": first_seed + k})
        rng = np.random.default_rng(first_seed + k)
        terrains.append(terrain_of(make_track(context, rng)))
        pushes.append(rng.uniform(-5, 5))
        first.append(obs)
        if ahead:
            for body in (env.hull, *env.legs):
                body.position = (body.position.x + ahead, body.position.y + 0.5)
        envs.append(env)
    obs, alive = np.array(first), np.ones(n, bool)
    touched = np.array([on_stump(env) for env in envs])
    for t in range(steps):
        actions = np.asarray(policy(obs), np.float32)
        for k in np.flatnonzero(alive):
            env = envs[k]
            kept["pose"][t, k], kept["velocity"][t, k] = bodies(env)
            kept["feet"][t, k] = [env.legs[1].ground_contact, env.legs[3].ground_contact]
            obs[k], reward, terminated, _, _ = env.step(actions[k])
            before, touched[k] = touched[k], on_stump(env)
            for name, value in {
                "action": actions[k], "obs": obs[k], "reward": reward, "terminated": terminated,
                "on_stump": before or touched[k], "played": True,
            }.items():  # fmt: skip
                kept[name][t, k] = value
            alive[k] = not terminated
    terrain = jax.tree.map(lambda *leaves: jnp.stack(leaves), *terrains)
    return Recorded(terrain, np.float32(pushes), first_obs=np.array(first), **kept)


@jax.jit
def repeat(recorded: Recorded) -> Repeated:
    """All steps again, each from Box2D's state before it; the episodes run side by side."""
    env, key = JaxWalker(), jax.random.key(0)

    def step(state: State, box2d: tuple[Array, ...]) -> tuple[State, Step]:
        pose, velocity, feet, action = box2d
        there = state.world._replace(pose=pose, velocity=velocity, feet=feet, fallen=jnp.bool_(False))
        shaping = alone(observe)(state.terrain, there)[2]
        return env.step(key, state._replace(world=there, shaping=shaping), action)

    state, first = jax.vmap(begin)(recorded.terrain, recorded.push)
    steps = (recorded.pose, recorded.velocity, recorded.feet, recorded.action)
    _, outcome = jax.lax.scan(jax.vmap(step), state, steps)
    return Repeated(outcome.obs, outcome.reward, outcome.terminated, first)
