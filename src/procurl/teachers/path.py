"""ProCuRL-Path: the way from what can be learnt now to the target, as far as the student can go.

ProCuRL-Target waits until the student can nearly do a target: until then, Z(t) is 0 for all targets, and the choice is
uniform. This strategy gives guidance from the first success on. How well a task can be done is judged by the episodes
played near it, not by the critic, whose values are discounted and come late:

    p(c) = sum_i w_i s_i / (sum_i w_i + doubt),    w_i = exp(-|c - c_i|^2 / 2 width^2)

over the last episodes, of contexts c_i and outcomes s_i in [0, 1]; distances are in shares of the box. Where nothing
was played, p is 0. At every update, for many pairs at once:

    1. a start, drawn with probability proportional to exp(b Z / max Z), Z = p (1 - p): tasks with learning potential,
       at a temperature relative to the best task of the moment, whatever the scale of p;
    2. a target, drawn from the target distribution;
    3. the task played: the farthest point on the straight line from start to target with p >= delta; the start itself
       if there is none.

Where the way ends at the target and the student does well there, some of the proposals stay at the start: a student
that plays only one task forgets the others. There is no length scale in the context's own units, and no temperature to
be tuned to the scale of the values; docs/research.md says what was tried on the way to these numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl.check.fields import param
from procurl.check.numbers import LARGEST
from procurl.errors import ConfigError
from procurl.programs import pytree
from procurl.teachers.base import PoolTeacher, cumulative, draw, in_box
from procurl.teachers.quantities import require_quantities
from procurl.teachers.transport import squared_distances
from procurl.types import Critic, Episodes, Task, random_seeds


class Memory(NamedTuple):
    """The last episodes that ended, in a ring; in slots still empty, `place` is far beyond all tasks."""

    place: Array  # f32[m, d]  contexts, as shares of the box
    success: Array  # f32[m]  0 or 1
    ret: Array  # f32[m]
    next: Array  # i32  where the next one goes


class PathState(NamedTuple):
    """q paths."""

    start: Array  # f32[q, d]
    end: Array  # f32[q, d]  the farthest point that can be done
    stays: Array  # f32[q]  probability that a proposal is the start
    memory: Memory


BLOCK = 64  # tasks whose success rates are computed at once on a CPU
NOWHERE = 1e6  # shares of the box: a place without weight


@pytree
@dataclass(frozen=True, eq=False)
class ProCuRLPath(PoolTeacher):
    """The farthest points that the student can do on the paths from learnable tasks to targets."""

    invents: ClassVar[bool] = True  # contexts that are not in the pool: see `base.OnPool`
    b: float = param(8.0, "how much the starts prefer learning potential; relative to the best task", at_least=0)
    delta: float = param(0.5, "success rate with which a point on the way counts as done", at_least=0, at_most=1)
    width: float = param(0.05, "how far an episode tells about its neighbours; in shares of the box")
    doubt: float = param(0.5, "imagined failures at every task, so that what was never played counts as not done")
    stay: float = param(
        0.5, "share of the proposals that stay at the start once the target is mastered", at_least=0, at_most=1
    )
    n_pairs: int = param(256, "pairs of start and target", static=True, at_least=1)
    n_points: int = param(9, "points on a way, both ends included", static=True, at_least=2)
    n_starts: int = param(1024, "tasks of the pool that are considered as starts, at most", static=True, at_least=1)
    memory: int = param(1000, "episodes that are remembered", static=True, at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_quantities("ProCuRLPath", self.space)
        for name in ("width", "doubt"):
            value = getattr(self, name)
            if isinstance(value, int | float) and not value > 0:
                raise ConfigError(f"ProCuRLPath: {name} = {value}, expected a positive number")

    def init(self, key: Array) -> PathState:
        row = jax.random.randint(key, (self.n_pairs,), 0, self.space.n_pool)
        start = self.space.pool.context[row]
        nothing = jnp.zeros(self.memory)
        memory = Memory(jnp.full((self.memory, self.space.dim), jnp.float32(NOWHERE)), nothing, nothing, jnp.int32(0))
        return PathState(start, start, jnp.zeros(self.n_pairs), memory)

    def propose(self, state: PathState, key: Array, n: int) -> Task:
        k_pair, k_stay, k_seed = jax.random.split(key, 3)
        pair = jax.random.randint(k_pair, (n,), 0, self.n_pairs)
        stays = jax.random.uniform(k_stay, (n,)) < state.stays[pair]
        context = jnp.where(stays[:, None], state.start[pair], state.end[pair])
        return Task(context, random_seeds(k_seed, (n,)), jnp.full((n,), -1, jnp.int32))

    def observe(self, state: PathState, key: Array, episodes: Episodes, critic: Critic) -> PathState:
        k_start, k_target = jax.random.split(key)
        memory = self._remembered(state.memory, episodes)
        start = self.space.pool.context[self._starts(memory, k_start)]
        way = self._way(start, self.space.sample_target(k_target, self.n_pairs).context)
        beyond = way[:, 1:]  # the start may be played however well it can be done
        rate = self._rate(memory, beyond.reshape(-1, self.space.dim)).reshape(beyond.shape[:2])

        farthest = jnp.max(jnp.where(rate >= self.delta, jnp.arange(1, self.n_points), 0), axis=1)  # 0: none
        at_target = farthest == self.n_points - 1
        end = jnp.take_along_axis(way, farthest[:, None, None], axis=1)[:, 0]
        mastery = jnp.clip((rate[:, -1] - self.delta) / jnp.maximum(1 - self.delta, 1e-6), 0.0, 1.0)
        return PathState(start, end, jnp.where(at_target, self.stay * mastery, 0.0), memory)

    def _starts(self, memory: Memory, key: Array) -> Array:
        """Rows of the pool with learning potential, i32[q]."""
        k_sample, k_draw = jax.random.split(key)
        sample = jnp.arange(self.space.n_pool)
        if self.n_starts < self.space.n_pool:
            sample = jax.random.randint(k_sample, (self.n_starts,), 0, self.space.n_pool)
        rate = self._rate(memory, self.space.pool.context[sample])
        potential = rate * (1 - rate)
        relative = potential / jnp.maximum(jnp.max(potential), 1e-12)
        return sample[draw(k_draw, cumulative(self.b * relative), self.n_pairs)]

    def _way(self, start: Array, target: Array) -> Array:
        """Playable tasks on the way from each start to its target, f32[q, g, d]."""
        part = jnp.linspace(0.0, 1.0, self.n_points)[:, None]
        return self.space.project((1 - part) * start[:, None] + part * target[:, None])

    def _remembered(self, memory: Memory, episodes: Episodes) -> Memory:
        """The memory with the episodes that ended in this iteration in place of the oldest."""
        order = memory.next + jnp.cumsum(episodes.finished) - 1
        row = jnp.where(episodes.finished, order % self.memory, self.memory)  # beyond the end: dropped
        return Memory(
            memory.place.at[row].set(in_box(self.space, episodes.task.context), mode="drop"),
            memory.success.at[row].set(episodes.success.astype(jnp.float32), mode="drop"),
            memory.ret.at[row].set(jnp.nan_to_num(episodes.ret, nan=-LARGEST), mode="drop"),
            (memory.next + jnp.sum(episodes.finished, dtype=jnp.int32)) % self.memory,
        )

    def _rate(self, memory: Memory, context: Array) -> Array:
        """p at each of n contexts, f32[n, d] -> f32[n]. Until the first success, shares of the range of returns count
        instead: where an environment has no notion of success, they always do.
        """
        low, high = self.space.known_range
        share = jnp.clip((memory.ret - low) / (high - low), 0.0, 1.0)
        outcome = jnp.where(jnp.any(memory.success > 0), memory.success, share)
        unit = 2**0.5 * self.width
        place, known = ((x - 0.5) / unit for x in (in_box(self.space, context), memory.place))  # from the box's middle

        def fused(place: Array) -> Array:
            """On a GPU, where a product would first write all weights to memory.

            The barrier: without it, XLA would fuse these sums and the softmax that follows into one kernel, which with
            many seeds it never finishes compiling.
            """
            weight = jnp.exp(-squared_distances(place, known))
            sums = jnp.stack([jnp.sum(weight * outcome, axis=1), jnp.sum(weight, axis=1)], axis=1)
            return jax.lax.optimization_barrier(sums)

        def in_blocks(place: Array) -> Array:
            """On a CPU, where products are faster than sums, as long as a block's weights stay in the cache.

            Distances are products, too: |a - b|^2 = |a|^2 - (2b, -|b|^2) . (a, 1). The rounding error is some
            1e-7 |b|^2, which is little as long as the box is not thousands of widths wide.
            """
            known_and_square = jnp.concatenate([2 * known, -jnp.sum(known**2, axis=1, keepdims=True)], axis=1)
            both = jnp.stack([outcome, jnp.ones_like(outcome)], axis=1)  # f32[m, 2]
            product = partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)

            def one(place: Array) -> Array:
                exponent = product(jnp.append(place, 1.0)[None], known_and_square.T)[0] - jnp.sum(place**2)
                return product(jnp.exp(exponent), both)

            return jax.lax.map(one, place, batch_size=min(BLOCK, place.shape[0]))

        sums = jax.lax.platform_dependent(place, cpu=in_blocks, default=fused)  # f32[n, 2]
        return sums[:, 0] / (sums[:, 1] + self.doubt)
