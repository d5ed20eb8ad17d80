"""The replay buffer of an off-policy student: one array with a row of numbers per transition, on the device.

Adding and drawing are pure functions, so that a buffer is saved, batched over seeds and put on a GPU like any state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from procurl.errors import ConfigError
from procurl.students.transitions import Transitions, as_transitions, row_width


class Replay(NamedTuple):
    """The latest `capacity` transitions; when it is full, the oldest make room."""

    rows: Array  # f32[capacity, 2 o + a + 2]  see `transitions.py`
    added: Array  # i32[]  transitions ever added: the next goes to row added % capacity


class Experience(NamedTuple):
    """T steps of N environments as an off-policy student sees them, with what the record of an iteration needs."""

    steps: Transitions  # [T, N, ...]
    value: Any  # f32[T, N]  of the step's task
    slot: Any  # i32[T, N]  the step's episode: its place in `Episodes`, -1 if the step was not played

    @property
    def obs(self) -> Array:
        """Before and after a step: both must be finite. f32[T, N, 2 o]"""
        return jnp.concatenate([self.steps.obs, self.steps.next_obs], axis=-1)

    @property
    def action(self) -> Any:
        return self.steps.action

    @property
    def reward(self) -> Any:
        return self.steps.reward


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


# --- on disk, with a leading axis of seeds ----------------------------------------------------------------------------


def trimmed(buffer: Replay) -> Any:
    """On the host: without the rows that have not been filled yet."""
    return buffer._replace(rows=buffer.rows[:, : _filled(buffer.added, buffer.rows.shape[1])])


def trimmed_shape(buffer: Replay, added: Any) -> Any:
    """The shapes and types of a trimmed buffer, from those of a whole one and the number of transitions added."""
    s, capacity, width = buffer.rows.shape
    rows: Any = jax.ShapeDtypeStruct((s, _filled(added, capacity), width), buffer.rows.dtype)
    return buffer._replace(rows=rows)


def widened(buffer: Any, capacity: int) -> Any:
    """The inverse of `trimmed`."""
    s, filled, width = buffer.rows.shape
    rows = np.zeros((s, capacity, width), np.float32)
    rows[:, :filled] = buffer.rows
    return buffer._replace(rows=rows)


def _filled(added: Any, capacity: int) -> int:
    return min(int(np.max(added)), capacity)
