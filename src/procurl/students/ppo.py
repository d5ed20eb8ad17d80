"""The student learns: Proximal Policy Optimisation, update for update what Stable-Baselines3 does.

Several epochs of shuffled minibatches over one rollout, with the clipped objective, advantages normalised
per minibatch, global gradient clipping and Adam (eps 1e-5). The tests compare it with Stable-Baselines3.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl import adam
from procurl.config import PPO
from procurl.students import nets
from procurl.students.nets import Params
from procurl.students.rollout import Rollout
from procurl.types import Env


class Student(NamedTuple):
    params: Params
    optimiser: adam.AdamState


class Batch(NamedTuple):
    """Transitions, any order, leading axis = transitions."""

    obs: Array
    action: Array
    log_prob: Array  # under the policy that played
    advantage: Array
    ret: Array  # advantage + value: what the critic is fitted to
    learn: Array | None = None  # bool  whether it counts; None: all do


class Losses(NamedTuple):
    policy: Array
    value: Array
    entropy: Array
    kl: Array  # approximate divergence from the policy that played


def init_student(key: Array, env: Env, config: PPO) -> Student:
    params = nets.init_params(key, env.obs_size, env.action, config.shared, config.separate)
    return Student(params, adam.init(params))


def update(student: Student, rollout: Rollout, key: Array, config: PPO) -> tuple[Student, Losses]:
    """One PPO update; the losses are means over all minibatches."""
    batch = as_batch(student.params, rollout)
    n = batch.ret.shape[0]

    def epoch(student: Student, key: Array) -> tuple[Student, Losses]:
        order = shuffled(key, n).reshape(-1, config.batch_size)
        minibatches = jax.tree.map(lambda x: x[order], batch)
        return jax.lax.scan(lambda student, mini: gradient_step(student, mini, config), student, minibatches)

    student, losses = jax.lax.scan(epoch, student, jax.random.split(key, config.epochs))
    return student, jax.tree.map(jnp.mean, losses)


def shuffled(key: Array, n: int) -> Array:
    """The numbers 0 .. n-1 in random order, ten times faster on a CPU than `jax.random.permutation`.

    XLA sorts single words by a fast routine and pairs (random word, index) by a slow one. So the index sits in the
    low bits of the random word; two given numbers draw the same random bits less than once in 2^31 / n shuffles, and
    then keep their order.
    """
    index_bits = jnp.uint32(2 ** (n - 1).bit_length() - 1)
    words = jax.random.bits(key, (n,)) & ~index_bits | jnp.arange(n, dtype=jnp.uint32)
    return (jnp.sort(words) & index_bits).astype(jnp.int32)


def as_batch(params: Params, rollout: Rollout) -> Batch:
    """Flatten T x N steps into transitions."""
    log_prob, _ = nets.log_prob_and_entropy(params, nets.policy(params, rollout.obs), rollout.action)
    ret = rollout.advantage + rollout.value
    batch = Batch(rollout.obs, rollout.action, log_prob, rollout.advantage, ret, rollout.learn)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)


def gradient_step(student: Student, batch: Batch, config: PPO) -> tuple[Student, Losses]:
    """One Adam step on one minibatch; none if nothing in it is to be learnt from."""
    gradient, losses = jax.grad(loss, has_aux=True)(student.params, batch, config)
    gradient = adam.clip_to_norm(gradient, config.max_grad_norm)
    after = Student(*adam.step(student.params, gradient, student.optimiser, config.lr))
    if batch.learn is not None:  # even with a gradient of 0, Adam's momentum would move the weights
        learns = jnp.any(batch.learn)
        after = jax.tree.map(lambda new, old: jnp.where(learns, new, old), after, student)
    return after, losses


def loss(params: Params, batch: Batch, config: PPO) -> tuple[Array, Losses]:
    """L = L_clip + value_coef * L_value - entropy * H."""
    head, value = nets.forward(params, batch.obs)
    log_prob, entropy = nets.log_prob_and_entropy(params, head, batch.action)
    mean, deviation = _over(batch.learn)
    advantage = (batch.advantage - mean(batch.advantage)) / (deviation(batch.advantage) + 1e-8)

    log_ratio = log_prob - batch.log_prob
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
    policy_loss = -mean(jnp.minimum(ratio * advantage, clipped * advantage))
    value_loss = mean((batch.ret - value) ** 2)
    mean_entropy = mean(entropy)
    total = policy_loss + config.value_coef * value_loss - config.entropy * mean_entropy
    return total, Losses(policy_loss, value_loss, mean_entropy, mean(ratio - 1 - log_ratio))


def _over(learn: Array | None) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """Mean and standard deviation over the transitions that count; 0 where there is none."""
    if learn is None:
        return jnp.mean, partial(jnp.std, ddof=1)
    n = jnp.sum(learn)

    def mean(x: Array) -> Array:
        return jnp.sum(jnp.where(learn, x, 0.0)) / jnp.maximum(n, 1)

    def deviation(x: Array) -> Array:
        return jnp.sqrt(jnp.sum(jnp.where(learn, (x - mean(x)) ** 2, 0.0)) / jnp.maximum(n - 1, 1))

    return mean, deviation
