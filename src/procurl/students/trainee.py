"""SAC over the iterations of a run: what is played goes into the replay buffer, and the updates for it follow."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl.config import SAC
from procurl.students import replay, sac, sac_kernels
from procurl.students.replay import Replay
from procurl.students.sac import Losses, Student


class Trainee(NamedTuple):
    """A student and the steps that it learns from."""

    student: Student
    buffer: Replay


def begin(key: Array, obs_size: int, action_size: int, config: SAC) -> Trainee:
    """Nothing has been played yet."""
    return Trainee(sac.init(key, obs_size, action_size, config), replay.empty(config.capacity, obs_size, action_size))


def practise(trainee: Trainee, rows: Array, key: Array, config: SAC) -> tuple[Trainee, Losses]:
    """An iteration's steps, f32[n_steps, 2 o + a + 2], go into the buffer, and the updates for them follow.

    Losses are means over the updates.
    """
    buffer = replay.add(trainee.buffer, rows)
    learn = sac_kernels.learn if sac_kernels.usable(config) else sac.learn
    student, losses = learn(trainee.student, buffer, config.n_steps // config.every, key, config)
    return Trainee(student, buffer), jax.tree.map(jnp.mean, losses)
