"""The walker as an environment: what a student sees, what it is paid for, and when an episode ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl.check.fields import check_fields, param
from procurl.envs.bipedal.jax_walker.body import BY_ACTION, CENTRE, HULL, PUSH, TORQUE
from procurl.envs.bipedal.jax_walker.collision import rotate
from procurl.envs.bipedal.jax_walker.lanes import alone, lanes
from procurl.envs.bipedal.jax_walker.lidar import lidar
from procurl.envs.bipedal.jax_walker.physics import World, advance
from procurl.envs.bipedal.jax_walker.picture import picture
from procurl.envs.bipedal.jax_walker.start import started
from procurl.envs.bipedal.jax_walker.terrain import Terrain, draw_terrain
from procurl.envs.bipedal.track import GOAL, MASTERED, MAX_STEPS
from procurl.envs.pictures import Frame
from procurl.programs import pytree
from procurl.types import Continuous, Step, Task

TORQUE_COST = 0.00035 * TORQUE  # of an action of 1


class State(NamedTuple):
    world: World
    terrain: Terrain
    shaping: Array  # f32  what the position is worth
    ret: Array  # f32  return so far
    steps: Array  # i32


@pytree
@dataclass(frozen=True)
class JaxWalker:
    """The walker on Stump Tracks, simulated in JAX as Box2D would."""

    max_steps: int = param(MAX_STEPS, "length of the longest episode, which is then truncated", static=True, at_least=1)

    obs_size: ClassVar[int] = 24
    action: ClassVar[Continuous] = Continuous(4, -1.0, 1.0)
    truncates: ClassVar[bool] = True
    render_fps: ClassVar[int] = 50

    def __post_init__(self) -> None:
        check_fields("env.", self, is_pytree=True)

    def reset(self, task: Task) -> tuple[State, Array]:
        k_heights, k_push = jax.random.split(jax.random.key(task.seed))
        push = jax.random.uniform(k_push, minval=-PUSH, maxval=PUSH)
        return begin(draw_terrain(task.context, k_heights), push)

    def step(self, key: Array, state: State, action: Array) -> tuple[State, Step]:
        world = alone(advance)(state.terrain, state.world, action, jnp.float32(0.0))
        obs, x, shaping = alone(observe)(state.terrain, world)
        torque = jnp.minimum(jnp.abs(action), 1.0).sum()
        falls = world.fallen | (x < 0)
        reward = jnp.where(falls, -100.0, shaping - state.shaping - TORQUE_COST * torque)
        ret, steps = state.ret + reward, state.steps + 1
        terminated = falls | (x > GOAL)
        truncated = (steps >= self.max_steps) & ~terminated
        after = State(world, state.terrain, shaping, ret, steps)
        return after, Step(obs, reward, terminated, truncated, ret > MASTERED)

    def render(self, state: State) -> Frame:
        """A picture of one walker."""
        return picture(state.world.pose, state.terrain)


def begin(terrain: Terrain, push: Array) -> tuple[State, Array]:
    """The first state and observation on a track, after a push in newtons."""
    world = started(push)
    obs, _, shaping = alone(observe)(terrain, world)
    return State(world, terrain, shaping, jnp.float32(0.0), jnp.int32(0)), obs


@lanes
def observe(terrain: Terrain, world: World) -> tuple[Array, Array, Array]:
    """What the student sees, f32[24, N]; where the hull is, and what that is worth, f32[N] each.

    The hull's place is not its centre of mass but the origin of the frame in which its corners are given.
    """
    (centre_x, centre_y, angle), (speed_x, speed_y, spin) = world.pose, world.velocity
    back_x, back_y = rotate(jnp.cos(angle[HULL]), jnp.sin(angle[HULL]), *CENTRE)
    x, y = centre_x[HULL] - back_x, centre_y[HULL] - back_y
    seen = [angle[HULL], 2 * spin[HULL] / 50, 0.12 * speed_x[HULL], 0.08 * speed_y[HULL]]
    for joint in BY_ACTION:
        is_knee = joint.a != HULL
        seen.append(angle[joint.b] - angle[joint.a] - joint.reference + (1.0 if is_knee else 0.0))
        seen.append((spin[joint.b] - spin[joint.a]) / joint.speed)
        if is_knee:
            seen.append(world.feet[joint.action // 2].astype(jnp.float32))
    obs = jnp.concatenate([jnp.stack(seen), lidar(terrain, x, y)])
    return obs, x, 130 / 30 * x - 5 * jnp.abs(angle[HULL])
