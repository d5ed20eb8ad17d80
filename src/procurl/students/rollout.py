"""The student plays: N environments advance T steps, and each that ends an episode takes the next task.

The queue of N * T proposals can never run dry, since no episode is shorter than a step. What was played is returned
twice: as steps for the student and as episodes for the teacher (`Episodes`). `advance` serves every student; `play` is
PPO's, which adds values and advantages (`Rollout`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl.config import PPO
from procurl.students import nets
from procurl.students.nets import Params
from procurl.types import Env, Episodes, Step, Task


class Envs(NamedTuple):
    """N environments between two iterations, most of them in the middle of an episode."""

    state: Any
    obs: Array  # f32[N, o]
    task: Task  # the task of each running episode
    ret: Array  # f32[N]  its return so far
    length: Array  # i32[N]  its steps so far


class Steps(NamedTuple):
    """T steps of N environments, as they happened."""

    obs: Array  # f32[T, N, o]
    action: Array  # f32[T, N, a] or i32[T, N]
    outcome: Step  # [T, N]  its `obs` at the end of an episode: the last one, not the first of the next episode
    slot: Array  # i32[T, N]  the step's episode: its place in `Episodes`


class Rollout(NamedTuple):
    """T steps of N environments, for PPO."""

    obs: Array  # f32[T, N, o]
    action: Array  # f32[T, N, a] or i32[T, N]
    value: Array  # f32[T, N]  the critic's estimates when the step was played
    advantage: Array  # f32[T, N]
    reward: Array  # f32[T, N]  a truncated episode's last one includes the value of what was cut off
    slot: Array  # i32[T, N]  the step's episode: its place in `Episodes`
    learn: Array | None = None  # bool[T, N]  False: not to be learnt from, see `Task.learn`


def begin(env: Env, task: Task) -> Envs:
    """N environments at the first step of their tasks."""
    state, obs = jax.vmap(env.reset)(task)
    n = obs.shape[0]
    return Envs(state, obs, task, jnp.zeros(n), jnp.zeros(n, jnp.int32))


def play(
    env: Env, params: Params, envs: Envs, proposals: Task, key: Array, config: PPO
) -> tuple[Envs, Rollout, Episodes]:
    """PPO's T = n / N steps in every environment, with the critic's estimates and the advantages."""
    k_act, k_env = jax.random.split(key)
    noise = nets.action_noise(k_act, horizon(envs, proposals), params)

    def act(obs: Array, noise: Array) -> Array:
        return nets.sample_action(params, nets.policy(params, obs), noise)

    running, steps, episodes = advance(env, act, noise, envs, proposals, k_env)
    values = nets.value(params, steps.obs)  # f32[T, N]  one large product is cheaper than T small ones
    next_values = jnp.concatenate([values[1:], nets.value(params, running.obs)[None]])
    outcome = steps.outcome
    reward = outcome.reward
    if env.truncates:  # a truncated episode also earns what the critic expects after its last observation
        cut = outcome.truncated & ~outcome.terminated
        reward = reward + config.gamma * jnp.where(cut, nets.value(params, outcome.obs), 0.0)
    done = outcome.terminated | outcome.truncated
    advantage = gae(reward, values, next_values, done, config.gamma, config.gae_lambda)

    def mean(x: Array) -> Array:
        return _total(x, steps.slot, episodes.steps.shape[0]) / jnp.maximum(episodes.steps, 1)

    episodes = episodes._replace(gae=mean(advantage), abs_gae=mean(jnp.abs(advantage)))
    learn = None if episodes.task.learn is None else episodes.task.learn[steps.slot]
    return running, Rollout(steps.obs, steps.action, values, advantage, reward, steps.slot, learn), episodes


def horizon(envs: Envs, proposals: Task) -> tuple[int, int]:
    """(T, N): the steps of each environment that use up the queue's length, and the number of environments."""
    n_envs = envs.ret.shape[0]
    return proposals.seed.shape[0] // n_envs, n_envs


def advance(
    env: Env, act: Callable[[Array, Any], Array], noise: Any, envs: Envs, proposals: Task, key: Array
) -> tuple[Envs, Steps, Episodes]:
    """T steps in every environment. `act`: (observations f32[N, o], noise of one step) -> actions.

    `noise` has T rows, one for each step. The episodes' advantages are NaN: they are left to the student.
    """
    n_steps, n_envs = horizon(envs, proposals)
    tasks = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), envs.task, proposals)
    env_keys = jax.random.split(key, (n_steps, n_envs))

    def step(carry: Any, x: Any) -> Any:
        state, obs, slot, taken = carry
        noise, keys = x
        action = act(obs, noise)
        state, outcome = jax.vmap(env.step)(keys, state, action)

        done = outcome.terminated | outcome.truncated
        next_slot = jnp.where(done, taken + jnp.cumsum(done), slot)  # finishers queue up in order
        fresh_state, fresh_obs = jax.vmap(env.reset)(jax.tree.map(lambda a: a[next_slot], tasks))
        state = jax.tree.map(lambda a, b: _where(done, a, b), fresh_state, state)
        seen = Steps(obs, action, outcome, slot)
        return (state, _where(done, fresh_obs, outcome.obs), next_slot, taken + jnp.sum(done)), seen

    start = (envs.state, envs.obs, jnp.arange(n_envs), jnp.int32(n_envs - 1))
    (state, obs, slot, _), steps = jax.lax.scan(step, start, (noise, env_keys))
    episodes = _episodes(envs, tasks, steps)
    running = Envs(
        state, obs, jax.tree.map(lambda a: a[slot], tasks), episodes.ret[slot], episodes.length[slot]
    )  # fmt: skip
    return running, steps, episodes


def gae(reward: Array, value: Array, next_value: Array, done: Array, gamma: float, lam: float) -> Array:
    """Generalised advantage estimation, f32[T, N]: A_t = delta_t + gamma lambda (1 - done_t) A_{t+1}."""
    alive = 1.0 - done.astype(jnp.float32)
    delta = reward + gamma * next_value * alive - value

    def backwards(later: Array, x: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, alive = x
        advantage = delta + gamma * lam * alive * later
        return advantage, advantage

    return jax.lax.scan(backwards, jnp.zeros_like(delta[0]), (delta, alive), reverse=True, unroll=8)[1]


def _episodes(envs: Envs, tasks: Task, played: Steps) -> Episodes:
    """Sum the steps of each episode."""
    n_envs, n_slots = envs.ret.shape[0], tasks.seed.shape[0]
    outcome, unknown = played.outcome, jnp.full(n_slots, jnp.nan)

    def total(x: Array) -> Array:
        return _total(x, played.slot, n_slots)

    def before(x: Array) -> Array:
        return jnp.zeros(n_slots, x.dtype).at[:n_envs].set(x)

    steps = total(jnp.ones(played.slot.shape, jnp.int32))
    earlier = before(envs.length)
    return Episodes(
        task=tasks,
        ret=before(envs.ret) + total(outcome.reward),
        length=earlier + steps,
        steps=steps,
        success=total(outcome.success.astype(jnp.int32)) > 0,
        gae=unknown,
        abs_gae=unknown,
        started=(earlier == 0) & (steps > 0),
        finished=total((outcome.terminated | outcome.truncated).astype(jnp.int32)) > 0,
    )


def _total(x: Array, slot: Array, n_slots: int) -> Array:
    """The sum over the steps of each episode: `slot` says for every step which one it belongs to."""
    return jnp.zeros(n_slots, x.dtype).at[slot].add(x)


def _where(done: Array, fresh: Array, old: Array) -> Array:
    return jnp.where(done.reshape(done.shape + (1,) * (old.ndim - done.ndim)), fresh, old)
