"""A teacher of one's own in one file: play what succeeded about half of the time lately.

It keeps a running success rate for every task of the pool, so it needs no critic. `check_teacher` says whether it
keeps the contract; then it trains like any other, in the JAX engine and in `procurl.Curriculum`.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

import procurl
from procurl.config import param
from procurl.teachers.base import PoolTeacher


class Rates(NamedTuple):
    log_weights: jax.Array  # f32[n]  the base class draws from these
    success: jax.Array  # f32[n]  running success rate of each task


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class HalfMastered(PoolTeacher):
    """P(task) proportional to exp(beta s (1 - s)), s the task's running success rate."""

    beta: float = param(20.0, "inverse temperature; 0 is uniform", at_least=0)
    memory: float = param(0.7, "how much of the old rate stays after an episode", at_least=0)

    def init(self, key):
        half = jnp.full(self.space.n_pool, 0.5, jnp.float32)  # 0.5 alone would leave the type open
        return Rates(jnp.zeros(self.space.n_pool), half)

    def observe(self, state, key, episodes, critic):
        row = jnp.where(episodes.finished, episodes.task.row, self.space.n_pool)  # others fall off the end
        total = jnp.zeros(self.space.n_pool).at[row].add(episodes.success.astype(jnp.float32), mode="drop")
        count = jnp.zeros(self.space.n_pool).at[row].add(1.0, mode="drop")
        latest = total / jnp.maximum(count, 1.0)
        success = jnp.where(count > 0, self.memory * state.success + (1 - self.memory) * latest, state.success)
        return Rates(self.beta * success * (1 - success), success)


def main(steps: int = 100_000) -> None:
    env, space = procurl.make("point-mass-2g")
    teacher = HalfMastered(space)
    for note in procurl.check_teacher(teacher):
        print("note:", note)
    result = procurl.train(env, teacher, procurl.preset("point-mass-2g"), seeds=2, steps=steps)
    print("training success per iteration:", result.trace["train_success"].mean(axis=0).round(2))


if __name__ == "__main__":
    main()
