"""MiniG (the paper's fourth setting): six MiniGrid missions, eight skill bits as context, one hard target family.

A task is (skill bits, seed). With a seed of the pool and its family's bits the episode starts where the public
package starts with that seed; any other seed gives a new layout from our own generators. Reward 1 for a success, 0
otherwise; an episode that takes too long is cut, and the student bootstraps. Paper: Section 4 and Appendix C.1.

Unlike in the released code, the obstacles' moves are random, and not a function of seed and actions; the observation
always carries a family's own skills, even for contexts that were projected to it; and evaluation has 100 layouts, the
same every time and for every strategy, where the release never plays a layout twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from procurl.envs.minigrid.families import BITS, BLOCKED, FAMILIES, SKILLS, nearest_bits, nearest_family
from procurl.envs.minigrid.grid import State, move_obstacles, play
from procurl.envs.minigrid.layouts import new_layout
from procurl.envs.minigrid.pool import FAMILY_OF_SEED, first_states
from procurl.envs.minigrid.view import OBS_SIZE, observe
from procurl.programs import pytree
from procurl.targets import Point
from procurl.types import Discrete, Step, Task, TaskSpace

DATA_SEED = 20240805  # of targets and held-out tasks: the same for every run
TARGET = Point(tuple(float(bit) for bit in FAMILIES[BLOCKED].skills))


@pytree
@dataclass(frozen=True)
class MiniGrid:
    """One environment for all six families; the context says which one an episode is."""

    obs_size: ClassVar[int] = OBS_SIZE
    action: ClassVar[Discrete] = Discrete(7)
    max_steps: ClassVar[int] = max(f.max_steps for f in FAMILIES)  # of the longest family
    truncates: ClassVar[bool] = True

    def reset(self, task: Task) -> tuple[State, Array]:
        family = nearest_family(task.context)
        fresh = new_layout(jax.random.key(task.seed), family)
        # The pool is a constant of the compiled program: it takes 80 kB and never changes.
        pooled = State(**{name: jnp.asarray(rows)[task.seed] for name, rows in first_states().items()})
        in_pool = (task.seed >= 0) & (task.seed < len(FAMILY_OF_SEED)) & (pooled.family == family)
        state = jax.tree.map(lambda a, b: jnp.where(in_pool, a, b), pooled, fresh)
        return state, observe(state)

    def step(self, key: Array, state: State, action: Array) -> tuple[State, Step]:
        state, outcome = play(state, action, move_obstacles(key, state))
        reward = outcome.success.astype(jnp.float32)
        return state, Step(observe(state), reward, outcome.terminated, outcome.truncated, outcome.success)


def space(n_targets: int = 400, n_held_out: int = 100) -> TaskSpace:
    """1000 training tasks of six families; targets and held-out tasks are new layouts of Blocked Unlock Pickup."""
    k_targets, k_held_out = jax.random.split(jax.random.key(DATA_SEED))
    rows = jnp.arange(len(FAMILY_OF_SEED), dtype=jnp.int32)
    pool = Task(jnp.asarray(BITS[FAMILY_OF_SEED]), seed=rows, row=rows)
    return TaskSpace(
        jnp.zeros(len(SKILLS)), jnp.ones(len(SKILLS)), pool,
        targets=TARGET.sample(k_targets, n_targets), held_out=TARGET.sample(k_held_out, n_held_out),
        names=SKILLS, target=TARGET, snap=nearest_bits,
    )  # fmt: skip
