"""The student learns: Soft Actor-Critic, update for update what Stable-Baselines3 does.

Two critics Q(s, a) with slow copies as targets, and a policy that is a normal squashed by tanh, so that actions lie in
[-1, 1]; `in_bounds` scales them to an environment's. Everything here is a pure function of explicit state; transitions
come from `replay.py`. The tests compare it with Stable-Baselines3.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl import adam
from procurl.config import LOG_STD, SAC
from procurl.programs import jit
from procurl.students import nets, replay
from procurl.students.replay import Replay
from procurl.students.transitions import Transitions

EPS = 1e-8  # torch's Adam
PRECISION = {
    "float32": nets.FULL,
    "tf32": jax.lax.DotAlgorithmPreset.TF32_TF32_F32,
    "bf16": jax.lax.DotAlgorithmPreset.BF16_BF16_F32,
}

Layers = list[dict[str, Array]]


class Networks(NamedTuple):
    """The policy and its critics."""

    actor: Layers  # o -> 2 a: mean and log-std
    critics: tuple[Layers, Layers]  # o + a -> 1, each


class Student(NamedTuple):
    networks: Networks
    targets: tuple[Layers, Layers]  # slow copies of the critics
    log_entropy: Array  # f32[]  log alpha; constant unless it is learnt
    actor_optimiser: adam.AdamState
    critic_optimiser: adam.AdamState
    entropy_optimiser: adam.AdamState
    updates: Array  # i32[]  made so far


class Losses(NamedTuple):
    actor: Array
    critic: Array
    entropy: Array  # alpha in this update
    log_prob: Array  # mean log-probability of the policy's actions: minus its entropy


def init(key: Array, obs_size: int, action_size: int, config: SAC) -> Student:
    """Weights and biases uniform in +-1/sqrt(fan_in), as in torch."""
    k_actor, k_first, k_second = jax.random.split(key, 3)
    actor = nets.init_layers(k_actor, (obs_size, *config.hidden, 2 * action_size))
    critic_widths = (obs_size + action_size, *config.hidden, 1)
    critics = (nets.init_layers(k_first, critic_widths), nets.init_layers(k_second, critic_widths))
    log_entropy = jnp.log(jnp.float32(config.entropy))
    return Student(
        Networks(actor, critics), critics, log_entropy,
        adam.init(actor), adam.init(critics), adam.init(log_entropy), jnp.int32(0),
    )  # fmt: skip


@jit
def act(networks: Networks, obs: Array, key: Array | None = None) -> Array:
    """Actions in [-1, 1], f32[..., a]: random with a key, the most likely ones, tanh(mean), without."""
    if key is None:
        return most_likely(networks.actor, obs)
    noise = jax.random.normal(key, (*obs.shape[:-1], networks.actor[-1]["b"].shape[-1] // 2))
    return sampled(networks.actor, obs, noise)


def sampled(actor: Layers, obs: Array, noise: Array) -> Array:
    """tanh(mean + std noise), f32[..., a]."""
    return squashed(*_policy(actor, obs), noise)[0]


def most_likely(actor: Layers, obs: Array) -> Array:
    """tanh(mean), f32[..., a]."""
    return jnp.tanh(_policy(actor, obs)[0])


def in_bounds(action: Any, low: Any, high: Any) -> Any:
    """From [-1, 1] to [low, high]."""
    return (low + high) / 2 + (high - low) / 2 * action


@jit
def value(networks: Networks, obs: Array) -> Array:
    """V(s) = min(Q1, Q2)(s, tanh(mean(s))), f32[...]: discounted, entropy bonus included."""
    return _smaller_q(networks.critics, obs, jnp.tanh(_policy(networks.actor, obs)[0]))


@partial(jit, static_argnames=("n", "config"))
def learn(student: Student, buffer: Replay, n: int, key: Array, config: SAC) -> tuple[Student, Losses]:
    """n updates with minibatches from the buffer, in one program (compiled anew for every n); losses f32[n].

    Minibatches and noise are functions of the key and of the number of updates so far: one key serves them all.
    """
    k_draw, k_noise = jax.random.split(key)
    obs_size = student.networks.actor[0]["w"].shape[-2]

    def one(student: Student, _: None) -> tuple[Student, Losses]:
        k_batch = jax.random.fold_in(k_draw, student.updates)
        return update(student, replay.sample(buffer, k_batch, config.batch_size, obs_size), k_noise, config)

    return jax.lax.scan(one, student, length=n)


def update(student: Student, batch: Transitions, key: Array, config: SAC) -> tuple[Student, Losses]:
    """One step of critics and policy, and of the entropy coefficient if it is learnt; then the targets follow.

        y         = r + gamma (1 - terminated) (min_i Q_target_i(s', a') - alpha log pi(a'|s'))
        L_critic  = 1/2 sum_i mean (Q_i(s, a) - y)^2
        L_actor   = mean (alpha log pi(a~|s) - min_i Q_i(s, a~))         with the critics just updated
        L_entropy = -log alpha * mean (log pi(a~|s) + target entropy)
        target   <- (1 - tau) target + tau critic

    a~ and a' come from the policy before its step, and alpha is the one before its step throughout: that is why the
    coefficient can be updated last, when log pi(a~|s) is at hand, while Stable-Baselines3 does so first. The noise is a
    function of the key and of the number of updates so far: one key serves them all.
    """
    precision = PRECISION[config.precision] if jax.default_backend() == "gpu" else nets.FULL  # CPUs have no other
    policy = partial(_policy, precision=precision)
    both_q = partial(_both_q, precision=precision)
    smaller_q = partial(_smaller_q, precision=precision)
    actor, critics = student.networks
    alpha = jnp.exp(student.log_entropy)
    noise, next_noise = jax.random.normal(jax.random.fold_in(key, student.updates), (2, *batch.action.shape))

    next_action, next_log_prob = squashed(*policy(actor, batch.next_obs), next_noise)
    next_value = smaller_q(student.targets, batch.next_obs, next_action) - alpha * next_log_prob
    target = batch.reward + config.gamma * (1 - batch.terminated) * next_value  # f32[B]

    def critic_loss(critics: tuple[Layers, Layers]) -> Array:
        first, second = both_q(critics, batch.obs, batch.action)
        return 0.5 * (jnp.mean((first - target) ** 2) + jnp.mean((second - target) ** 2))

    def actor_loss(actor: Layers, critics: tuple[Layers, Layers]) -> tuple[Array, Array]:
        action, log_prob = squashed(*policy(actor, batch.obs), noise)
        return jnp.mean(alpha * log_prob - smaller_q(critics, batch.obs, action)), jnp.mean(log_prob)

    loss_critic, gradient = jax.value_and_grad(critic_loss)(critics)
    critics, critic_optimiser = adam.step(critics, gradient, student.critic_optimiser, config.lr, EPS)
    (loss_actor, log_prob), gradient = jax.value_and_grad(actor_loss, has_aux=True)(actor, critics)
    actor, actor_optimiser = adam.step(actor, gradient, student.actor_optimiser, config.lr, EPS)

    entropy = student.log_entropy, student.entropy_optimiser
    if config.learn_entropy:
        entropy = entropy_step(student.log_entropy, log_prob, student.entropy_optimiser, batch.action.shape[-1], config)

    log_entropy, entropy_optimiser = entropy
    targets = jax.tree.map(lambda slow, fast: (1 - config.tau) * slow + config.tau * fast, student.targets, critics)
    updated = Student(
        Networks(actor, critics), targets, log_entropy,
        actor_optimiser, critic_optimiser, entropy_optimiser, student.updates + 1,
    )  # fmt: skip
    return updated, Losses(loss_actor, loss_critic, alpha, log_prob)


def entropy_step(
    log_entropy: Array, log_prob: Array, optimiser: adam.AdamState, action_size: int, config: SAC
) -> tuple[Array, adam.AdamState]:
    """The coefficient after a step towards the entropy that is wanted; log_prob: the mean over the minibatch."""
    wanted = -float(action_size) if config.target_entropy is None else config.target_entropy
    return adam.step(log_entropy, -(log_prob + wanted), optimiser, config.lr, EPS)


def squashed(mean: Array, log_std: Array, noise: Array) -> tuple[Array, Array]:
    """a = tanh(mean + std noise) and its log-probability, f32[...].

    log pi(a) = sum_j [-noise_j^2 / 2 - log std_j - log(2 pi) / 2 - log(1 - a_j^2 + 1e-6)]; the last term is what tanh
    does to the density.
    """
    action = jnp.tanh(mean + jnp.exp(log_std) * noise)
    log_prob = -0.5 * noise * noise - log_std - 0.5 * nets.LOG_2PI - jnp.log(1 - action * action + 1e-6)
    return action, jnp.sum(log_prob, axis=-1)


def _policy(actor: Layers, obs: Array, precision: Any = nets.FULL) -> tuple[Array, Array]:
    """Mean and log-std before tanh, f32[..., a] each."""
    mean, log_std = jnp.split(nets.mlp(actor, obs, precision), 2, axis=-1)
    return mean, jnp.clip(log_std, *LOG_STD)


def _both_q(
    critics: tuple[Layers, Layers], obs: Array, action: Array, precision: Any = nets.FULL
) -> tuple[Array, Array]:
    seen = jnp.concatenate([obs, action], axis=-1)
    first, second = (nets.mlp(critic, seen, precision)[..., 0] for critic in critics)
    return first, second


def _smaller_q(critics: tuple[Layers, Layers], obs: Array, action: Array, precision: Any = nets.FULL) -> Array:
    return jnp.minimum(*_both_q(critics, obs, action, precision))
