"""An environment of one's own for the JAX engine: stop a sledge on a target far away on ice.

An environment is a dataclass of numbers with two pure functions. The context is the distance to the target and how
exactly to stop there; what counts in the end is a far target with little room.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

import procurl
from procurl.types import Continuous, Step


class State(NamedTuple):
    x: jax.Array
    v: jax.Array
    t: jax.Array
    context: jax.Array  # (distance, room)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sledge:
    """Push or brake for 50 steps; the reward is 1 for standing still on the target."""

    friction: float = 0.05

    obs_size, action, max_steps, truncates = 4, Continuous(1, -1.0, 1.0), 50, False

    def reset(self, task):
        state = State(jnp.float32(0), jnp.float32(0), jnp.int32(0), task.context)
        return state, self.observe(state)

    def step(self, key, state, action):
        v = (1 - self.friction) * state.v + 0.1 * jnp.clip(action[0], -1, 1) + 0.01 * jax.random.normal(key)
        state = state._replace(x=state.x + v, v=v, t=state.t + 1)
        arrived = (jnp.abs(state.x - state.context[0]) < state.context[1]) & (jnp.abs(v) < 0.1)
        ended = arrived | (state.t >= self.max_steps)
        return state, Step(self.observe(state), arrived.astype(jnp.float32), ended, jnp.bool_(False), arrived)

    def observe(self, state):
        return jnp.stack([state.x, state.v, *state.context])


def main(steps: int = 200_000) -> None:
    space = procurl.task_space([0.0, 0.02], [12.0, 2.0], ["distance", "room"], target=[12.0, 0.02], fresh_seeds=False)
    env = Sledge()
    procurl.check_env(env, space)
    for name in ("procurl-target", "iid"):
        result = procurl.train(env, procurl.make_teacher(name, space), seeds=4, steps=steps)
        print(f"{name}: return on the target over training {result.ret.mean(axis=0).round(2)}")


if __name__ == "__main__":
    main()
