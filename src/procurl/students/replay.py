"""The replay buffer of an off-policy student: one array with a row of numbers per transition, on the device.

Adding and drawing are pure functions, so that a buffer is saved, batched over seeds and put on a GPU like any state.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl.errors import ConfigError
from procurl.students.transitions import Transitions, as_transitions, row_width


class Replay(NamedTuple):
    """The latest `capacity` transitions; when it is full, the oldest make room."""

    rows: Array  # f32[capacity, 2 o + a + 2]  see `transitions.py`
    added: Array  # i32[]  transitions ever added: the next goes to row added % capacity


def empty(capacity: int, obs_size: int, action_size: int) -> Replay:
    if min(capacity, obs_size, action_size) < 1:
        raise ConfigError(
            f"capacity = {capacity}, obs_size = {obs_size}, action_size = {action_size}: expected positive numbers"
        )
    return Replay(jnp.zeros((capacity, row_width(obs_size, action_size))), jnp.int32(0))


def add(replay: Replay, rows: Array) -> Replay:
    """The buffer after n more transitions, f32[n, 2 o + a + 2] (see `as_rows`)."""
    capacity, width = replay.rows.shape
    if rows.shape[1:] != (width,) or len(rows) > capacity:
        raise ConfigError(f"rows of shape {rows.shape}: expected at most {capacity} of {width} numbers (2 o + a + 2)")
    places = (replay.added + jnp.arange(len(rows))) % capacity
    return Replay(replay.rows.at[places].set(rows, unique_indices=True), replay.added + len(rows))


def sample(replay: Replay, key: Array, n: int, obs_size: int) -> Transitions:
    """n transitions, uniform and with replacement."""
    places = jax.random.randint(key, (n,), 0, jnp.minimum(replay.added, len(replay.rows)))
    return as_transitions(replay.rows[places], obs_size)


def as_rows(steps: Transitions) -> Array:
    """The inverse of `as_transitions`."""
    obs, action, reward, next_obs, terminated = (jnp.asarray(x, jnp.float32) for x in steps)
    return jnp.concatenate([obs, action, reward[..., None], next_obs, terminated[..., None]], axis=-1)
