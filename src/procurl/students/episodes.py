"""Whole episodes of given tasks, to see how the student does: for evaluation, and for teachers that ask for it."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl.students.acting import Acting
from procurl.types import Env, Task

MOST_AT_ONCE = 1_000_000  # episodes


class Outcomes(NamedTuple):
    """One row per episode."""

    ret: Array  # f32[n]
    success: Array  # bool[n]
    length: Array  # f32[n]


def most_each(n: int) -> int:
    """How many episodes each of n tasks may have, as all are played side by side."""
    return max(MOST_AT_ONCE // max(n, 1), 1)


def play_out(
    env: Env, policy: Acting, tasks: Task, key: Array, at_random: bool = True, when: Array | bool = True
) -> Outcomes:
    """An episode of every task, all side by side, until the last one has ended.

    `at_random`: actions as in training; else the most likely ones. `when`: False plays nothing.
    """
    n = tasks.seed.shape[0]
    state, obs = jax.vmap(env.reset)(tasks)

    def playing(carry: Any) -> Array:
        t, *_, alive = carry
        return (t < env.max_steps) & jnp.any(alive)

    def step(carry: Any) -> Any:
        t, state, obs, ret, success, length, alive = carry
        k_act, k_env = jax.random.split(jax.random.fold_in(key, t))
        action = policy.sample(obs, policy.noise(k_act, alive.shape)) if at_random else policy.best(obs)
        state, outcome = jax.vmap(env.step)(jax.random.split(k_env, alive.shape[0]), state, action)
        ret = ret + jnp.where(alive, outcome.reward, 0.0)
        success = success | (alive & outcome.success)
        length = length + alive
        alive = alive & ~(outcome.terminated | outcome.truncated)
        return t + 1, state, outcome.obs, ret, success, length, alive

    zeros, nobody = jnp.zeros(n), jnp.zeros(n, bool)
    start = (jnp.int32(0), state, obs, zeros, nobody, zeros, ~nobody & when)
    _, _, _, ret, success, length, _ = jax.lax.while_loop(playing, step, start)
    return Outcomes(ret, success, length)
