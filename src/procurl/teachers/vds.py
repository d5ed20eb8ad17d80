"""VDS, value disagreement sampling (Zhang et al. 2020): play what the values are unsure about.

A small ensemble of networks learns the return of a task from finished episodes. Where they agree, a task is known to be
easy or known to be hopeless; where they disagree, it lies at the edge of what the student can do. The ensemble belongs
to the teacher and is part of its state, so that any student can be taught.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl import adam
from procurl.adam import AdamState
from procurl.check.fields import check_fields, param
from procurl.programs import pytree
from procurl.teachers.base import draw, in_box
from procurl.teachers.quantities import require_quantities
from procurl.types import Critic, Episodes, Task, TaskSpace

EXACT = jax.lax.Precision.HIGHEST  # so that all processors multiply alike
EPS = 1e-8  # Adam's, as in torch


class Memory(NamedTuple):
    """The latest episodes that ended, in a ring."""

    place: Array  # f32[m, d]  contexts, from -1 to 1 over the box
    ret: Array  # f32[m]
    seen: Array  # i32  episodes so far


class VDSState(NamedTuple):
    memory: Memory
    nets: list[tuple[Array, Array]]  # weights f32[k, in, out] and biases f32[k, out] of each layer, for k networks
    optimiser: AdamState


@pytree
@dataclass(frozen=True, eq=False)
class VDS:
    """Random candidates from the pool, each chosen in proportion to the ensemble's disagreement about it.

    P(c) proportional to  std_k V_k(c),    V_1 .. V_K: networks from context to return, each with batches of its own
    """

    may_be_uniform: ClassVar[bool] = True  # until the first episode has ended, and where all networks agree
    space: TaskSpace
    n_networks: int = param(3, "networks in the ensemble", static=True, at_least=2, at_most=100)
    n_candidates: int = param(1000, "tasks of the pool that a proposal chooses from", static=True, at_least=1)
    learning_rate: float = param(1e-3, "of the networks (Adam)", at_least=0)
    updates: int = param(16, "steps of Adam in an iteration", static=True, at_least=1)
    batch_size: int = param(128, "episodes in a step of Adam", static=True, at_least=1, at_most=1_000_000)
    memory: int = param(1000, "latest episodes to learn from", static=True, at_least=1, at_most=1_000_000)
    hidden: tuple[int, ...] = param((64, 64), "widths of the networks' hidden layers", static=True)

    def __post_init__(self) -> None:
        check_fields("VDS: ", self, is_pytree=True)
        require_quantities("VDS", self.space)

    def init(self, key: Array) -> VDSState:
        widths = (self.space.dim, *self.hidden, 1)
        nets = []
        for k_layer, m, n in zip(jax.random.split(key, len(widths) - 1), widths, widths[1:], strict=False):
            w = jax.random.normal(k_layer, (self.n_networks, m, n)) * jnp.sqrt(2.0 / m)  # He's, for relu
            nets.append((w, jnp.zeros((self.n_networks, n))))
        memory = Memory(jnp.zeros((self.memory, self.space.dim)), jnp.zeros(self.memory), jnp.int32(0))
        return VDSState(memory, nets, adam.init(nets))

    def propose(self, state: VDSState, key: Array, n: int) -> Task:
        k_candidates, k_row, k_seed = jax.random.split(key, 3)
        n_pool = self.space.n_pool
        rows = jnp.arange(n_pool)
        if n_pool > self.n_candidates:  # drawn with replacement, in time that does not grow with the pool
            rows = jax.random.randint(k_candidates, (self.n_candidates,), 0, n_pool)
        spread = jnp.std(values(state.nets, self._place(self.space.pool.context[rows])), axis=0)
        alike = (state.memory.seen == 0) | (jnp.max(spread) == 0)  # before any episode, disagreement is mere chance
        chosen = draw(k_row, jnp.cumsum(jnp.where(alike, 1.0, spread)), n)
        return self.space.from_pool(k_seed, jnp.where(chosen < 0, -1, rows[chosen]))

    def observe(self, state: VDSState, key: Array, episodes: Episodes, critic: Critic) -> VDSState:
        state = state._replace(memory=self._remembered(state.memory, episodes))
        low, high = self.space.known_range
        target = jnp.clip((state.memory.ret - low) / (high - low), 0.0, 1.0)
        known = jnp.minimum(state.memory.seen, self.memory)

        def step(state: VDSState, key: Array) -> tuple[VDSState, None]:
            rows = jax.random.randint(key, (self.n_networks, self.batch_size), 0, jnp.maximum(known, 1))
            gradient = jax.grad(loss)(state.nets, state.memory.place[rows], target[rows])
            nets, optimiser = adam.step(state.nets, gradient, state.optimiser, self.learning_rate, EPS)
            return state._replace(nets=nets, optimiser=optimiser), None

        trained, _ = jax.lax.scan(step, state, jax.random.split(key, self.updates))
        return jax.tree.map(lambda new, old: jnp.where(known > 0, new, old), trained, state)

    def _place(self, context: Array) -> Array:
        return 2 * in_box(self.space, context) - 1

    def _remembered(self, memory: Memory, episodes: Episodes) -> Memory:
        """The memory with the episodes that ended, in order; with the latest if there is no room for all."""
        low, high = self.space.known_range
        number = jnp.cumsum(episodes.finished, dtype=jnp.int32)  # of those that ended, from 1
        n = number[-1]
        is_kept = episodes.finished & (number > n - self.memory)
        row = jnp.where(is_kept, (memory.seen + number - 1) % self.memory, self.memory)  # beyond the end: dropped
        ret = jnp.clip(jnp.nan_to_num(episodes.ret, nan=low), low, high)  # in units of return: the range may yet grow
        return Memory(
            memory.place.at[row].set(self._place(episodes.task.context), mode="drop"),
            memory.ret.at[row].set(ret, mode="drop"),
            memory.seen + n,
        )


def values(nets: list[tuple[Array, Array]], place: Array) -> Array:
    """Each network's values, f32[k, n], for inputs f32[n, d] that all share or f32[k, n, d]."""
    x = jnp.broadcast_to(place, (len(nets[0][1]), *place.shape[-2:]))
    for w, b in nets[:-1]:
        x = jax.nn.relu(jnp.matmul(x, w, precision=EXACT) + b[:, None])
    w, b = nets[-1]
    return (jnp.matmul(x, w, precision=EXACT) + b[:, None])[..., 0]


def loss(nets: list[tuple[Array, Array]], place: Array, target: Array) -> Array:
    """The networks' mean squared errors, added up: no network's weights affect another's."""
    return jnp.sum(jnp.mean((values(nets, place) - target) ** 2, axis=1))
