"""The few worlds (setting x teacher x config) that tests train in: a new one compiles for 10 to 25 s.

Tests that can do so share `run()`: its programs are compiled once in a process, and kept on disk for the others.
"""

import dataclasses
from functools import cache
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import procurl
from procurl.config import PPO, Config
from procurl.types import Continuous, Step

SMALL = Config(ppo=PPO(n_steps=256, n_envs=8, batch_size=64, epochs=2, shared=(16,), separate=(16,)), evaluate_every=2)


@cache  # some tests begin a hundred runs in it
def small_setting(setting="point-mass-2g", n_pool=200, n_targets=10, n_held_out=6, **env_fields):
    env, space = procurl.make(setting, **env_fields)
    cut = lambda task, n: jax.tree.map(lambda x: x[:n], task)  # noqa: E731
    return env, dataclasses.replace(
        space, pool=cut(space.pool, n_pool), targets=cut(space.targets, n_targets),
        held_out=cut(space.held_out, n_held_out),
    )  # fmt: skip


def run(teacher="procurl-target", seeds=2, steps=1500, config=SMALL, **options):
    env, space = small_setting()
    return procurl.train(env, procurl.make_teacher(teacher, space), config, seeds=seeds, steps=steps, **options)


class State(NamedTuple):
    x: jax.Array
    t: jax.Array
    context: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Walk:
    """Walk to the context's distance against its wind, in 12 steps: the environment that compiles fastest."""

    obs_size: ClassVar[int] = 3
    action: ClassVar[Continuous] = Continuous(1, -1.0, 1.0)
    max_steps: ClassVar[int] = 12
    truncates: ClassVar[bool] = True

    def reset(self, task):
        state = State(jnp.float32(0), jnp.int32(0), task.context)
        return state, self.seen(state)

    def step(self, key, state, action):
        state = state._replace(x=state.x + self.moved(state, action), t=state.t + 1)
        there = state.x >= state.context[0]
        late = state.t >= self.max_steps
        return state, Step(self.seen(state), there.astype(jnp.float32), there, late & ~there, there)

    def moved(self, state, action):
        return jnp.clip(action[0], -1, 1) - 0.1 * state.context[1]

    def seen(self, state):
        return jnp.concatenate([state.x[None], state.context])


def walk_space(**changed):
    arguments = {"low": [1.0, 0.0], "high": [9.0, 1.0], "names": ["distance", "wind"], "target": [9.0, 0.5]}
    arguments |= {"value_range": (0.0, 1.0), "units": "raw"}
    return procurl.task_space(**{**arguments, "pool_size": 20, "n_targets": 4, "n_held_out": 4, **changed})


def fast(*names, of=None):
    """All teachers (`of`: these), of which only some are in the fast tests: every one compiles anew."""
    return [t if t in names else pytest.param(t, marks=pytest.mark.slow) for t in of or sorted(procurl.TEACHERS)]


def without(*needs):
    """Names of the teachers that do without these needs: "plays", episodes of their own; "withholds", a learner that
    leaves out what it is told to.
    """
    return [name for name, cls in sorted(procurl.TEACHERS.items()) if not any(getattr(cls, n, False) for n in needs)]


def assert_same(a, b):
    """Bitwise."""
    np.testing.assert_array_equal(a.steps, b.steps)
    np.testing.assert_array_equal(a.task_ret, b.task_ret)
    for name in a.trace:
        np.testing.assert_array_equal(a.trace[name], b.trace[name], err_msg=name)
    for name in a.params:
        np.testing.assert_array_equal(a.params[name], b.params[name], err_msg=name)


def assert_same_up_to_rounding(a, b):
    """The same tasks in the same order, and the same numbers but for the last bits.

    Seeds never share randomness or data, but XLA may order the sums of a matrix product by the number of seeds beside
    it. With the paper's network the result is bitwise equal on the processors we have; this is what we promise.
    """
    for name in ("task_row", "task_seed", "started", "finished"):
        np.testing.assert_array_equal(a.trace[name], b.trace[name], err_msg=name)
    np.testing.assert_array_equal(a.task_ret, b.task_ret)
    for name in a.params:
        np.testing.assert_allclose(a.params[name], b.params[name], atol=2e-6, rtol=1e-5, err_msg=name)


def only(result, row):
    cut = lambda arrays: {k: v[row : row + 1] for k, v in arrays.items()}  # noqa: E731
    return dataclasses.replace(
        result, task_ret=result.task_ret[row : row + 1], trace=cut(result.trace), params=cut(result.params)
    )
