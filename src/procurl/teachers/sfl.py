"""SFL, sampling for learnability (Rutherford et al. 2024): of tasks tried out, train on those solved now and then.

Every so many iterations the student plays a sample of the pool for the teacher alone. A task that it solves with
probability p has learnability p (1 - p): most where it succeeds every other time, none where it always or never does.
Those episodes are environment steps like any others, and are counted as such.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl.check.fields import param
from procurl.errors import ConfigError
from procurl.programs import pytree
from procurl.teachers.base import PoolTeacher
from procurl.types import Critic, Episodes, Rollouts


class SFLState(NamedTuple):
    log_weights: Array  # f32[n]  log P(c)
    iteration: Array  # i32
    succeeds: Array  # bool  the student has succeeded at something: success is what counts


@pytree
@dataclass(frozen=True, eq=False)
class SFL(PoolTeacher):
    """A share of the proposals from the tasks that were the most learnable when tried, the rest uniform.

    Every `every` iterations: N tasks of the pool, uniform; k episodes of the student on each; the K tasks with the
    largest p (1 - p) are kept until the next time. A task with p = 0 or 1 is never kept, so there may be fewer.

        P(c) = (1 - rho) / n + rho [c is kept] / (number of those kept)

    p is the share of successes or, as long as there was none (environments without a success flag), the mean return as
    a share of its range.
    """

    plays: ClassVar[bool] = True  # has the student play for it: only loops that can do so accept it
    may_be_uniform: ClassVar[bool] = True  # while no task that was tried is solved now and then

    every: int = param(25, "iterations after which tasks are tried out again", at_least=1)
    n_tried: int = param(200, "tasks tried out each time (N), at most the whole pool", at_least=1, static=True)
    n_episodes: int = param(4, "episodes of each (k)", at_least=2, at_most=10_000, static=True)
    n_kept: int = param(50, "the most learnable of them, which are trained on (K)", at_least=1, static=True)
    rho: float = param(0.5, "share of proposals from the tasks that were kept, 0 to 1", at_least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.rho, int | float) and not self.rho <= 1:
            raise ConfigError(f"SFL: rho = {self.rho}, expected a share between 0 and 1")
        if self.n_kept > self.n_tried:
            raise ConfigError(f"SFL: n_kept = {self.n_kept} of n_tried = {self.n_tried} tasks, expected no more")

    def init(self, key: Array) -> SFLState:
        return SFLState(jnp.zeros(self.space.n_pool), jnp.int32(0), jnp.bool_(False))

    def observe(self, state: SFLState, key: Array, episodes: Episodes, critic: Critic) -> SFLState:
        k_rows, k_seed, k_play = jax.random.split(key, 3)
        n = self.space.n_pool
        is_due = state.iteration % self.every == 0
        rows = jax.random.permutation(k_rows, n)[: self.n_tried]
        rollouts = critic.play(k_play, self.space.from_pool(k_seed, rows), self.n_episodes, when=is_due)
        succeeds = state.succeeds | jnp.any(episodes.success) | (is_due & jnp.any(rollouts.success > 0))
        log_weights = self._log_weights(rows, self._learnability(rollouts, succeeds))
        return SFLState(jnp.where(is_due, log_weights, state.log_weights), state.iteration + 1, succeeds)

    def _learnability(self, rollouts: Rollouts, succeeds: Array) -> Array:
        """p (1 - p) of each task that was tried, f32[N]."""
        low, high = self.space.known_range
        by_return = jnp.clip((rollouts.ret - low) / (high - low), 0.0, 1.0)
        p = jnp.where(succeeds, rollouts.success, by_return)
        return p * (1.0 - p)

    def _log_weights(self, rows: Array, learnability: Array) -> Array:
        """log P(c), f32[n]."""
        n = self.space.n_pool
        best, place = jax.lax.top_k(learnability, min(self.n_kept, rows.shape[0]))
        kept = jnp.zeros(n).at[rows[place]].set(best > 0)  # f32[n]  0 or 1
        number = jnp.sum(kept)
        rho = jnp.where(number > 0, self.rho, 0.0)
        return jnp.log((1.0 - rho) / n + rho * kept / jnp.maximum(number, 1.0))
