"""The replay buffer of an off-policy student: plain NumPy on the host, since its environments live there too.

A transition is one row of numbers: a minibatch is gathered in one go, and the buffer is saved as one array.
Minibatch i depends on the seed, on i and on what the buffer holds: there is no hidden generator to save.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from procurl.errors import ConfigError

Numbers = Any  # NumPy's or JAX's


class Transitions(NamedTuple):
    """Steps of environments, any leading axes."""

    obs: Numbers  # f32[..., o]
    action: Numbers  # f32[..., a]  in [-1, 1]
    reward: Numbers  # f32[...]
    next_obs: Numbers  # f32[..., o]  at the end of an episode: its last, not the first of the next one
    terminated: Numbers  # f32[...]  1: nothing comes after. 0 when time ran out, since the task would have gone on


class ReplayBuffer:
    """The latest `capacity` transitions; draws are uniform, with replacement.

    Args:
        capacity: transitions to keep; when it is full, the oldest make room. Memory is taken as it fills.
        obs_size: numbers in an observation.
        action_size: numbers in an action.
        seed: of the draws.
    """

    def __init__(self, capacity: int, obs_size: int, action_size: int, seed: int = 0) -> None:
        if min(capacity, obs_size, action_size) < 1:
            raise ConfigError(
                f"capacity = {capacity}, obs_size = {obs_size}, action_size = {action_size}: expected positive numbers"
            )
        widths = (obs_size, action_size, 1, obs_size, 1)
        self._cuts = np.cumsum(widths)[:-1]
        self._rows = np.zeros((capacity, sum(widths)), np.float32)  # untouched pages of zeros cost no memory
        self.capacity, self.seed = capacity, seed
        self.added = 0  # transitions ever added: the next goes to row added % capacity
        self.drawn = 0  # minibatches ever drawn

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(
        self, obs: ArrayLike, action: ArrayLike, reward: ArrayLike, next_obs: ArrayLike, terminated: ArrayLike
    ) -> None:
        """One step of n environments: obs [n, o], action [n, a], reward [n], next_obs [n, o], terminated [n].

        A truncated episode goes on as far as values are concerned, so `terminated` must not include truncation.
        """
        columns = [np.asarray(x, np.float32) for x in (obs, action, reward, next_obs, terminated)]
        n = len(columns[0])
        rows = np.concatenate([x.reshape(n, -1) for x in columns], axis=1)  # f32[n, 2 o + a + 2]
        if rows.shape[1] != self._rows.shape[1]:
            raise ConfigError(f"transitions of {rows.shape[1]} numbers: expected {self._rows.shape[1]} (2 o + a + 2)")
        if n > self.capacity:
            raise ConfigError(f"{n} transitions at once: the buffer holds {self.capacity}")
        self._rows[(self.added + np.arange(n)) % self.capacity] = rows
        self.added += n

    def sample(self, k: int, batch_size: int) -> Transitions:
        """k minibatches, stacked: leading axes [k, batch_size]."""
        if not len(self):
            raise ConfigError("the replay buffer is empty: add transitions before drawing from it")
        places = np.stack([self._draw(self.drawn + i, batch_size) for i in range(k)])  # i64[k, batch_size]
        self.drawn += k
        obs, action, reward, next_obs, terminated = np.split(self._rows[places], self._cuts, axis=-1)
        return Transitions(obs, action, reward[..., 0], next_obs, terminated[..., 0])

    def _draw(self, number: int, batch_size: int) -> NDArray[np.int64]:
        return np.random.default_rng([self.seed, number]).integers(len(self), size=batch_size)

    def state_dict(self) -> dict[str, Any]:
        """All that determines what comes next, as arrays; only the rows that are filled."""
        return {
            "rows": self._rows[: len(self)].copy(),
            "added": np.array(self.added, np.int64),
            "drawn": np.array(self.drawn, np.int64),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of `state_dict`, in a buffer that was made in the same way."""
        rows, added = np.asarray(state["rows"], np.float32), int(state["added"])
        if rows.shape != (min(added, self.capacity), self._rows.shape[1]):
            raise ConfigError(
                f"saved rows of shape {rows.shape} after {added} transitions: they do not fit a buffer of capacity "
                f"{self.capacity} and rows of {self._rows.shape[1]} numbers"
            )
        self._rows[: len(rows)] = rows
        self.added, self.drawn = added, int(state["drawn"])
