"""The student plays: N environments advance T steps, and each that ends an episode takes the next task.

The queue of N * T proposals can never run dry, since no episode is shorter than a step. What was played is returned
twice: as transitions for the student (`Rollout`) and as episodes for the teacher (`Episodes`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl.config import PPO
from procurl.students import nets
from procurl.students.nets import Params
from procurl.types import Env, Episodes, Task


class Envs(NamedTuple):
    """N environments between two iterations, most of them in the middle of an episode."""

    state: Any
    obs: Array  # f32[N, o]
    task: Task  # the task of each running episode
    ret: Array  # f32[N]  its return so far
    length: Array  # i32[N]  its steps so far


class Rollout(NamedTuple):
    """T steps of N environments, for the student."""

    obs: Array  # f32[T, N, o]
    action: Array  # f32[T, N, a] or i32[T, N]
    value: Array  # f32[T, N]  the critic's estimates when the step was played
    advantage: Array  # f32[T, N]
    reward: Array  # f32[T, N]  a truncated episode's last one includes the value of what was cut off
    slot: Array  # i32[T, N]  the step's episode: its place in `Episodes`


def begin(env: Env, task: Task) -> Envs:
    """N environments at the first step of their tasks."""
    state, obs = jax.vmap(env.reset)(task)
    n = obs.shape[0]
    return Envs(state, obs, task, jnp.zeros(n), jnp.zeros(n, jnp.int32))


def play(
    env: Env, params: Params, envs: Envs, proposals: Task, key: Array, config: PPO
) -> tuple[Envs, Rollout, Episodes]:
    """Advance all environments until the queue's length is used up: T = n / N steps each."""
    n_envs, n_tasks = envs.ret.shape[0], proposals.seed.shape[0]
    horizon = n_tasks // n_envs
    tasks = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), envs.task, proposals)
    k_act, k_env = jax.random.split(key)
    noise = nets.action_noise(k_act, (horizon, n_envs), params)
    env_keys = jax.random.split(k_env, (horizon, n_envs))

    def step(carry: Any, x: Any) -> Any:
        state, obs, slot, taken = carry
        noise, keys = x
        action = nets.sample_action(params, nets.policy(params, obs), noise)
        state, outcome = jax.vmap(env.step)(keys, state, action)

        done = outcome.terminated | outcome.truncated
        next_slot = jnp.where(done, taken + jnp.cumsum(done), slot)  # finishers queue up in order
        fresh_state, fresh_obs = jax.vmap(env.reset)(jax.tree.map(lambda a: a[next_slot], tasks))
        state = jax.tree.map(lambda a, b: _where(done, a, b), fresh_state, state)
        seen = (obs, action, outcome, slot)
        return (state, _where(done, fresh_obs, outcome.obs), next_slot, taken + jnp.sum(done)), seen

    start = (envs.state, envs.obs, jnp.arange(n_envs), jnp.int32(n_envs - 1))
    (state, obs, slot, _), (all_obs, action, outcome, slots) = jax.lax.scan(step, start, (noise, env_keys))

    values = nets.value(params, all_obs)  # f32[T, N]  one large product is cheaper than T small ones
    next_values = jnp.concatenate([values[1:], nets.value(params, obs)[None]])
    reward = outcome.reward
    if env.truncates:  # a truncated episode also earns what the critic expects after its last observation
        cut = outcome.truncated & ~outcome.terminated
        reward = reward + config.gamma * jnp.where(cut, nets.value(params, outcome.obs), 0.0)
    done = outcome.terminated | outcome.truncated
    advantage = gae(reward, values, next_values, done, config.gamma, config.gae_lambda)

    episodes = _episodes(envs, tasks, slots, outcome, advantage)
    running = Envs(
        state, obs, jax.tree.map(lambda a: a[slot], tasks), episodes.ret[slot], episodes.length[slot]
    )  # fmt: skip
    return running, Rollout(all_obs, action, values, advantage, reward, slots), episodes


def gae(reward: Array, value: Array, next_value: Array, done: Array, gamma: float, lam: float) -> Array:
    """Generalised advantage estimation, f32[T, N]: A_t = delta_t + gamma lambda (1 - done_t) A_{t+1}."""
    alive = 1.0 - done.astype(jnp.float32)
    delta = reward + gamma * next_value * alive - value

    def backwards(later: Array, x: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, alive = x
        advantage = delta + gamma * lam * alive * later
        return advantage, advantage

    return jax.lax.scan(backwards, jnp.zeros_like(delta[0]), (delta, alive), reverse=True, unroll=8)[1]


def _episodes(envs: Envs, tasks: Task, slots: Array, outcome: Any, advantage: Array) -> Episodes:
    """Sum the steps of each episode: `slots` says for every step which episode it belongs to."""
    n_envs, n_slots = envs.ret.shape[0], tasks.seed.shape[0]

    def total(x: Array) -> Array:
        return jnp.zeros(n_slots, x.dtype).at[slots].add(x)

    def before(x: Array) -> Array:
        return jnp.zeros(n_slots, x.dtype).at[:n_envs].set(x)

    steps = total(jnp.ones(slots.shape, jnp.int32))
    played = jnp.maximum(steps, 1)
    earlier = before(envs.length)
    return Episodes(
        task=tasks,
        ret=before(envs.ret) + total(outcome.reward),
        length=earlier + steps,
        steps=steps,
        success=total(outcome.success.astype(jnp.int32)) > 0,
        gae=total(advantage) / played,
        abs_gae=total(jnp.abs(advantage)) / played,
        started=(earlier == 0) & (steps > 0),
        finished=total((outcome.terminated | outcome.truncated).astype(jnp.int32)) > 0,
    )


def _where(done: Array, fresh: Array, old: Array) -> Array:
    return jnp.where(done.reshape(done.shape + (1,) * (old.ndim - done.ndim)), fresh, old)
