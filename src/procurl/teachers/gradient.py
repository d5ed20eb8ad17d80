"""GRADIENT (Huang et al. 2022): move the tasks in stages along the shortest path from easy to target.

The path is the Wasserstein geodesic between a source sample S (uniform over the space) and a target sample T.
Between two samples of the same size it is McCann's interpolation: match them once at the least total squared
distance, and move every particle of S in a straight line to its partner in T.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl.check.fields import check_fields, param
from procurl.programs import pytree
from procurl.teachers.base import level
from procurl.teachers.transport import assign, require_distances, squared_distances
from procurl.types import Critic, Episodes, Task, TaskSpace, random_seeds


class GradientState(NamedTuple):
    source: Array  # f32[p, d]  particles at stage 0
    target: Array  # f32[p, d]  the partner of each at the last stage
    stage: Array  # i32  0 .. n_stages
    steps: Array  # i32  environment steps played in this stage


@pytree
@dataclass(frozen=True, eq=False)
class GRADIENT:
    """Uniform over the particles of a stage; stages follow the geodesic from the source to the target.

        X_i = (1 - alpha_i) S + alpha_i T_sigma,   alpha_i = i / n_stages,   i = 0 .. n_stages
        sigma = argmin sum_k |S_k - T_sigma(k)|^2

    A stage ends when the mean return of an iteration's finished episodes reaches the threshold, or when its
    steps are used up; the last stage never ends. The original evaluates the student on the stage's tasks to find
    that mean, at a cost in environment steps; here the training episodes serve, as they play just such tasks.
    Only those drawn from the stage itself count: after a switch, episodes of the old stage are still running, and
    their returns would end the new stage before it has been tried at all.

    The assignment is made once, for all stages: along a geodesic it stays optimal.
    """

    invents: ClassVar[bool] = True  # contexts that are not in the pool: see `base.OnPool`
    may_be_uniform: ClassVar[bool] = True  # its first stage is uniform, and ends by itself
    space: TaskSpace
    n_stages: int = param(
        10,
        "stages after the first, which is the source; the last is the target",
        static=True,
        at_least=1,
        at_most=10_000,
    )
    max_steps_per_stage: int = param(100_000, "environment steps after which a stage ends anyway", at_least=1)
    threshold: float | None = param(
        None, "mean return of an iteration's episodes that ends a stage; in units of return; None: see threshold_share"
    )
    threshold_share: float = param(0.8, "without a threshold: as a share of the range of values", at_least=0, at_most=1)
    n_particles: int = param(500, "tasks in the samples of source and target", static=True, at_least=1, at_most=5000)

    def __post_init__(self) -> None:
        check_fields("GRADIENT: ", self, is_pytree=True)
        require_distances("GRADIENT", self.space)

    def init(self, key: Array) -> GradientState:
        k_source, k_target = jax.random.split(key)
        shape = (self.n_particles, self.space.dim)
        source = jax.random.uniform(k_source, shape, minval=self.space.low, maxval=self.space.high)
        target = self.space.sample_target(k_target, self.n_particles).context
        sigma = assign(squared_distances(self.space.scaled(source), self.space.scaled(target)))  # i32[p]
        return GradientState(source, target[sigma], jnp.int32(0), jnp.int32(0))

    def propose(self, state: GradientState, key: Array, n: int) -> Task:
        k_particle, k_seed = jax.random.split(key)
        particle = jax.random.randint(k_particle, (n,), 0, self.n_particles)
        context = self.space.project(self.particles(state)[particle])
        return Task(context, self._seeds(state, k_seed, n), jnp.full(n, -1, jnp.int32))

    def observe(self, state: GradientState, key: Array, episodes: Episodes, critic: Critic) -> GradientState:
        counts = episodes.finished & (episodes.steps > 0) & self._of_stage(state, episodes.task)
        n_counts = jnp.sum(counts)
        mean_return = jnp.sum(jnp.where(counts, episodes.ret, 0.0)) / jnp.maximum(n_counts, 1)
        steps = state.steps + jnp.sum(episodes.steps, dtype=jnp.int32)

        threshold = level(self.space, self.threshold, self.threshold_share)
        mastered = (n_counts > 0) & (mean_return >= threshold)
        ends = (mastered | (steps >= self.max_steps_per_stage)) & (state.stage < self.n_stages)
        return state._replace(stage=state.stage + ends, steps=jnp.where(ends, 0, steps))

    def particles(self, state: GradientState) -> Array:
        """X_i, f32[p, d]: exactly the source sample at stage 0, exactly the target sample at the last."""
        alpha = jnp.linspace(0.0, 1.0, self.n_stages + 1)[state.stage]  # i / n_stages may compile to i * (1 / n_stages)
        return (1.0 - alpha) * state.source + alpha * state.target

    # Every stage has its own block of seeds, so that an episode's task says which stage drew it. (Whether it
    # `started` in this iteration is only a rough guide: long episodes span many iterations.)

    def _seeds(self, state: GradientState, key: Array, n: int) -> Array:
        return state.stage * self._block + random_seeds(key, (n,)) % self._block

    def _of_stage(self, state: GradientState, task: Task) -> Array:
        return task.seed // self._block == state.stage

    @property
    def _block(self) -> int:
        return (2**31 - 1) // (self.n_stages + 1)
