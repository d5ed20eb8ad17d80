"""SAC's updates on an NVIDIA GPU as seven kernels each, where XLA makes a hundred.

An update is a few small products after one another, and XLA gives each of them, and most of what is between them, a
kernel of its own that takes longer to start and to write its result down than to compute it. Here a kernel passes a
few rows of the minibatch through whole networks and back (`kernels.py`, `passes.py`), each of which is one matrix
(`matrix.py`):

    act, look_ahead     what the policy does now and next, and what the slow critics expect of the latter
    judge, stepped      the critics' errors and, through their gradients, their next weights
    slope               what these critics say of the policy's actions, and how that changes with them
    improve, stepped    and so the policy's next weights

The factors of all products are bfloat16 and sums are float32, as for `SAC(precision="bf16")` elsewhere. Minibatches,
noise and the formulas are those of `sac.py`, with which the tests compare each update.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from procurl import adam
from procurl.config import SAC
from procurl.students import replay, sac
from procurl.students.replay import Replay
from procurl.students.sac import Losses, Networks, Student
from procurl.students.sac_kernels.matrix import Layout, Matrices, packed, unpacked

ON = False  # until they have been measured; `benchmarks/sac_in_loop.py --kernels` turns them on


def usable(config: SAC) -> bool:
    """Whether an update can be made of kernels here, and may be."""
    possible = config.precision == "bf16" and len(config.hidden) == 2 and jax.default_backend() == "gpu"
    return ON and possible and find_spec("jax.experimental.pallas.triton") is not None


def learn(
    student: Student, buffer: Replay, n: int, key: Array, config: SAC, low: Any = jnp.bfloat16, interpret: bool = False
) -> tuple[Student, Losses]:
    """`sac.learn` by kernels. `low`: the type of the products' factors; `interpret` runs them without a GPU."""
    from procurl.students.sac_kernels.kernels import CRITIC_ERRORS, LOG_PROB, NOW, POLICY_LOSS, Kernels

    actor = student.networks.actor
    obs_size, action_size = actor[0]["w"].shape[0], actor[-1]["b"].shape[0] // 2
    kernels = Kernels(config, Layout(obs_size, action_size, *config.hidden), low, interpret)
    batches = _batches(student, buffer, n, key, kernels)
    fixed = jnp.exp(student.log_entropy)

    def one(t: Array, carry: Any) -> Any:
        policy, critics, log_entropy, entropy_optimiser, told, alphas = carry
        step, alpha = t[None], jnp.exp(log_entropy) if config.learn_entropy else fixed
        acted = kernels.act(step, policy.low_weights, batches)
        next_q = kernels.look_ahead(step, critics.low_slow, batches, acted)
        slopes, told = kernels.judge(step, critics.low_weights, batches, acted, next_q, alpha, told)
        critics = kernels.stepped(step, critics, slopes, batches, is_policy=False)
        q, slope = kernels.slope(step, critics.low_weights, batches, acted)
        slopes, told = kernels.improve(step, policy.low_weights, batches, acted, q, slope, alpha, told)
        policy = kernels.stepped(step, policy, slopes, batches, is_policy=True)
        if config.learn_entropy:
            mean = jnp.mean(acted.log_prob[NOW, : config.batch_size])
            log_entropy, entropy_optimiser = sac.entropy_step(log_entropy, mean, entropy_optimiser, action_size, config)
            alphas = alphas.at[t].set(alpha)
        return policy, critics, log_entropy, entropy_optimiser, told, alphas

    start = (*_matrices(student, kernels), student.log_entropy, student.entropy_optimiser)
    to_tell = jnp.zeros((n, 4, kernels.rows)), jnp.full(n, fixed)
    *learnt, told, alphas = jax.lax.fori_loop(0, n, one, (*start, *to_tell))
    mean = told[..., : config.batch_size].mean(axis=-1)
    critic_loss = 0.5 * sum(mean[:, error] for error in CRITIC_ERRORS)
    losses = Losses(mean[:, POLICY_LOSS], critic_loss, alphas, mean[:, LOG_PROB])
    return _student(student, learnt, n, kernels.at), losses


def _batches(student: Student, buffer: Replay, n: int, key: Array, kernels: Any) -> Any:
    """The minibatches and the noise of `sac.learn`, for all n updates."""
    from procurl.students.sac_kernels.kernels import Batches

    config, at = kernels.config, kernels.at
    k_draw, k_noise = jax.random.split(key)

    def drawn(update: Array) -> tuple[Any, Array]:
        batch = replay.sample(buffer, jax.random.fold_in(k_draw, update), config.batch_size, at.obs)
        return batch, jax.random.normal(jax.random.fold_in(k_noise, update), (2, *batch.action.shape))

    batch, noise = jax.vmap(drawn)(student.updates + jnp.arange(n))

    def seen(obs: Array) -> Array:
        return _wider(jnp.concatenate([obs, jnp.ones((*obs.shape[:-1], 1))], axis=-1), kernels.rows, at.seen)

    def rates(optimiser: adam.AdamState) -> Array:
        b1_power, b2_power = adam.powers(optimiser, n)
        return jnp.stack([config.lr / (1 - b1_power), 1 / jnp.sqrt(1 - b2_power)], axis=-1)

    return Batches(
        obs=jnp.stack([seen(batch.obs), seen(batch.next_obs)], axis=1).astype(kernels.low),
        action=_wider(batch.action, kernels.rows, at.done).astype(kernels.low),
        noise=_wider(noise, kernels.rows, at.done),
        reward=_wider(batch.reward, kernels.rows),
        discount=_wider(config.gamma * (1 - batch.terminated), kernels.rows),
        rates=jnp.stack([rates(student.actor_optimiser), rates(student.critic_optimiser)], axis=1),
    )


def _wider(x: Array, *sizes: int) -> Array:
    """With zeros behind, so that the last axes have these sizes."""
    missing = [size - held for size, held in zip(sizes, x.shape[x.ndim - len(sizes) :], strict=True)]
    return jnp.pad(x, [(0, 0)] * (x.ndim - len(sizes)) + [(0, n) for n in missing])


def _matrices(student: Student, kernels: Any) -> tuple[Matrices, Matrices]:
    """Of the policy and of the critics. The policy has no slow copy, and keeps itself company."""

    def of(networks: Any, mean: Any, square: Any, slow: Any) -> Matrices:
        weights, *others, slow = (
            jnp.stack([packed(x, kernels.at) for x in each]) for each in (networks, mean, square, slow)
        )
        low = weights.astype(kernels.low), slow.astype(kernels.low)
        return Matrices(weights, others[0], others[1], slow, *low)

    actor, critics = student.networks
    of_actor, of_critics = student.actor_optimiser, student.critic_optimiser
    return (
        of([actor], [of_actor.mean], [of_actor.square], [actor]),
        of(critics, of_critics.mean, of_critics.square, student.targets),
    )


def _student(before: Student, learnt: Any, n: int, at: Layout) -> Student:
    policy, critics, log_entropy, entropy_optimiser = learnt

    def actor(matrices: Array) -> Any:
        return unpacked(matrices[0], at, like=before.networks.actor)

    def both(matrices: Array) -> Any:
        return tuple(unpacked(matrices[c], at, like) for c, like in enumerate(before.networks.critics))

    def optimiser(state: adam.AdamState, mean: Any, square: Any) -> adam.AdamState:
        return adam.AdamState(mean, square, *(power[-1] for power in adam.powers(state, n)))

    return Student(
        Networks(actor(policy.weights), both(critics.weights)), both(critics.slow), log_entropy,
        optimiser(before.actor_optimiser, actor(policy.mean), actor(policy.square)),
        optimiser(before.critic_optimiser, both(critics.mean), both(critics.square)),
        entropy_optimiser, before.updates + n,
    )  # fmt: skip
