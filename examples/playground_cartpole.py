"""An environment of another JAX suite for the compiled loop: MuJoCo Playground's cart pole.

    pip install playground && python examples/playground_cartpole.py

The context is the mass of the pole. The adapter is the class `Playground`, and it needs what every such adapter needs:
how a context changes the environment, the suite's first state and its next one without any reset, and a time limit.
"""

import argparse
import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from mujoco_playground import registry

import procurl
from procurl.types import Continuous, Step


class State(NamedTuple):
    inner: Any  # the suite's own
    context: jax.Array
    t: jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Playground:
    """CartpoleBalance; the context is a factor of the pole's mass."""

    max_steps, truncates = 200, True

    def __post_init__(self):
        bare = registry.load("CartpoleBalance", config_overrides={"impl": "jax"})
        attributes = {"bare": bare, "obs_size": bare.observation_size + 1}
        attributes["action"] = Continuous(bare.action_size, -1.0, 1.0)
        self.__dict__.update(attributes)

    def of(self, context):
        """The environment of a context: a copy with another model."""
        changed, model, pole = copy.copy(self.bare), self.bare.mjx_model, -1
        factor = jnp.ones(model.nbody).at[pole].set(context[0])
        inertia = model.body_inertia * factor[:, None]
        changed._mjx_model = model.replace(body_mass=model.body_mass * factor, body_inertia=inertia)
        return changed

    def seen(self, inner, context):
        return jnp.concatenate([inner.obs, context])  # the student knows the task

    def reset(self, task):
        inner = self.of(task.context).reset(jax.random.PRNGKey(task.seed))
        return State(inner, task.context, jnp.int32(0)), self.seen(inner, task.context)

    def step(self, key, state, action):
        inner = self.of(state.context).step(state.inner, jnp.clip(action, -1, 1))
        state = State(inner, state.context, state.t + 1)
        terminated = inner.done > 0
        truncated = (state.t >= self.max_steps) & ~terminated  # cut, not over: the student bootstraps
        return state, Step(self.seen(inner, state.context), inner.reward, terminated, truncated, jnp.bool_(False))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=4)
    args = parser.parse_args()
    space = procurl.task_space([0.5], [10.0], ["pole mass"], target=[10.0], n_held_out=4)
    teacher = procurl.make_teacher("procurl-target", space)
    result = procurl.train(Playground(), teacher, seeds=args.seeds, steps=args.steps)
    print(f"return on the heaviest pole over training: {result.ret.mean(axis=0).round(1)}")


if __name__ == "__main__":
    main()
