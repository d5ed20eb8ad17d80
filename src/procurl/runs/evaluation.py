"""Evaluation: the student's mean return on held-out target tasks.

The paper evaluates PPO's policy as it acts in training, and the walker's benchmark SAC's most likely actions;
`deterministic` chooses one or the other.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl.check.numbers import whole
from procurl.devices import require_32_bits
from procurl.errors import ConfigError
from procurl.students.acting import acting
from procurl.students.episodes import most_each, play_out
from procurl.students.nets import Params
from procurl.types import Env, Task, random_seeds


class Scores(NamedTuple):
    """Means over the episodes of each task."""

    ret: Array  # f32[n]
    success: Array  # f32[n]
    length: Array  # f32[n]


def evaluate(
    env: Env,
    params: Params,
    tasks: Task,
    key: Array,
    episodes: int = 1,
    deterministic: bool | None = None,
    fresh_seeds: bool = False,
    fixed_tests: bool = False,
) -> Scores:
    """Play every task `episodes` times, all at once, until the last episode has ended.

    `deterministic`: take the most likely actions; None: whichever this kind of student is evaluated with in training.
    `fresh_seeds`: every episode is a new instance of its task's context, for settings that are played this way;
    `fixed_tests`: the same instances every time, first the tasks themselves and then others.
    """
    require_32_bits()
    if not isinstance(tasks, Task):
        raise ConfigError(f"tasks = {tasks!r}: expected a procurl.Task of many, e.g. space.held_out")
    if not isinstance(params, dict) or not {"policy", "actor"} & params.keys():
        raise ConfigError(
            "params: expected the layers of one student, e.g. procurl.students.policy.unflatten of one seed of "
            "result.params"
        )
    n = tasks.seed.shape[0]
    episodes = whole("episodes", episodes, 1, most_each(n))
    key, k_seed = jax.random.split(key)
    repeated = jax.tree.map(lambda x: jnp.repeat(x, episodes, axis=0), tasks)
    if fixed_tests:
        repeated = repeated._replace(seed=repeated.seed + n * (jnp.arange(n * episodes) % episodes))
    elif fresh_seeds:
        repeated = repeated._replace(seed=random_seeds(k_seed, repeated.seed.shape))
    policy = acting(params, *env.action[1:])
    at_random = policy.evaluated_at_random if deterministic is None else not deterministic
    outcome = play_out(env, policy, repeated, key, at_random)
    return Scores(*(jnp.mean(x.reshape(n, episodes), axis=1, dtype=jnp.float32) for x in outcome))
