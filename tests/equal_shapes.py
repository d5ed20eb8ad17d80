"""Sends many classes of equal shape through the public entries and prints which of them got a wrong answer.

    python tests/equal_shapes.py CLASSES ENTRY ...

Every class has a number, which is no field: only the right program knows it. Registered as a user would, with JAX's own
decorator. A program of its own, since which classes jaxlib 0.10 takes for each other depends on addresses.
"""

import dataclasses
import json
import sys
from functools import cache
from typing import ClassVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

import procurl
from procurl.errors import CheckError
from procurl.integrations.setting_env import SettingEnv
from procurl.integrations.setting_vector import SettingVectorEnv
from procurl.teachers.base import Redrawn
from procurl.types import Continuous, Step, Task

LARGEST = 1000


@cache
def space_of_numbers():
    arguments = {"value_range": (0, 2 * LARGEST), "pool_size": 8, "n_targets": 2, "n_held_out": 1}
    return procurl.task_space([0.0], [LARGEST], ["number"], target=[LARGEST], **arguments)


def teacher_number(k):
    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class Numbered:
        """Proposes the context k; its state is k before it has watched and 2 k from then on."""

        space: procurl.TaskSpace
        weight: float = 1.0

        def init(self, key):
            return jnp.float32(k)

        def propose(self, state, key, n):
            return Task(jnp.full((n, 1), k, jnp.float32), jnp.zeros(n, jnp.int32), jnp.full(n, -1, jnp.int32))

        def observe(self, state, key, episodes, critic):
            critic.value(Task(jnp.full((1, 1), k, jnp.float32), jnp.zeros(1, jnp.int32), jnp.full(1, -1, jnp.int32)))
            return jnp.float32(2 * k)

    return Numbered(space_of_numbers())


def env_number(k):
    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class State:
        steps: jax.Array
        context: jax.Array

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class Numbered:
        """Observes k at first and 2 k afterwards; an episode lasts two steps, each with reward k."""

        scale: float = 1.0
        max_steps: int = dataclasses.field(default=2, metadata={"static": True})
        obs_size: ClassVar[int] = 1
        action: ClassVar[Continuous] = Continuous(1, -1.0, 1.0)
        truncates: ClassVar[bool] = False
        state_class: ClassVar[type] = State

        def reset(self, task):
            return State(jnp.int32(0), task.context), jnp.full(1, k, jnp.float32)

        def step(self, key, state, action):
            ends = state.steps == 1
            outcome = Step(jnp.full(1, 2 * k, jnp.float32), jnp.float32(k), ends, jnp.bool_(False), jnp.bool_(False))
            return State(state.steps + 1, state.context), outcome

    return Numbered()


def entered(name, env):
    """A setting of one's own, and the environments of it that Gymnasium gets."""
    procurl.SETTINGS[name] = (type(env), space_of_numbers)


def through_curriculum(k, wrap=lambda teacher: teacher):
    asked = []

    def value(tasks):
        asked.extend(tasks.context[:, 0].tolist())
        return np.zeros(len(tasks.seed))

    # Updated after every step, it has one program for its first task and for those after it.
    curriculum = procurl.Curriculum(wrap(teacher_number(k)), every=1)
    first = curriculum.next()
    curriculum.record(first, ret=0.0, length=1)
    curriculum.observe(value)
    state = curriculum.state_dict()["teacher"]
    state = state.inner if hasattr(state, "inner") else state
    return [first.context[0], asked[0], state / 2]


def through_nested_curriculum(k):
    return through_curriculum(k, lambda teacher: Redrawn(teacher, 1000))


def through_gymnasium(k):
    entered(f"equal-{k}", env_number(k))
    env = SettingEnv(f"equal-{k}")
    first, _ = env.reset(seed=0)
    later, reward, *_ = env.step(np.zeros(1, np.float32))
    return [first[0], later[0] / 2, reward, k if type(env.state) is type(env.setting.env).state_class else -1]


def through_gymnasium_vector(k):
    entered(f"equal-{k}", env_number(k))
    envs = SettingVectorEnv(2, f"equal-{k}", autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP)
    first, _ = envs.reset(seed=0)
    later, reward, *_ = envs.step(np.zeros((2, 1), np.float32))
    envs.reset(options={"reset_mask": np.array([True, False])})
    state = k if type(envs._state) is type(envs.setting.env).state_class else -1
    return [first[0, 0], later[1, 0] / 2, reward[0], state]


def through_train(k):
    ppo = procurl.PPO(n_envs=2, n_steps=8, batch_size=4, epochs=1, shared=(), separate=(2,))
    result = procurl.train(env_number(k), teacher_number(k), procurl.Config(ppo=ppo, evaluate_every=1), steps=8)
    return [*(result.ret / 2).ravel(), result.trace["task_context"].ravel()[0]]


def through_check_teacher(k):
    """Those with an odd number propose beyond the space, and the check says so of them alone."""
    teacher = teacher_number(k if k % 2 == 0 else LARGEST + k)
    return [k if is_refused(procurl.check_teacher, teacher, 4) == bool(k % 2) else -1]


def through_check_env(k):
    """Those with an odd number observe NaN."""
    env = env_number(k if k % 2 == 0 else np.nan)
    return [k if is_refused(procurl.check_env, env, space_of_numbers()) == bool(k % 2) else -1]


def is_refused(check, *args):
    try:
        check(*args)
    except CheckError:
        return True
    return False


ENTRIES = {name.removeprefix("through_"): fn for name, fn in list(globals().items()) if name.startswith("through_")}


def is_wrong(through, k):
    try:
        return any(answer != k for answer in through(k))
    except Exception:  # another class's program may also fit nowhere
        return True


if __name__ == "__main__":
    n, *entries = sys.argv[1:]
    numbers = range(1, int(n) + 1)
    print(json.dumps({entry: [k for k in numbers if is_wrong(ENTRIES[entry], k)] for entry in entries or ENTRIES}))
