"""One environment on the host, played by a SAC student in plain NumPy. Knows no JAX: worker processes stay light.

What happens depends on the tasks, the weights and the generator alone, and each environment is played by itself: how
many processes share the work changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from procurl.config import LOG_STD
from procurl.envs.host_tasks import HostTask
from procurl.students.transitions import as_transitions, row_width

Floats = NDArray[np.float32]
Actor = list[dict[str, Floats]]  # layers of weights "w" and biases "b"; the last gives mean and log-std


class Steps(NamedTuple):
    """T steps of one environment, and the episodes they belong to: first the one that was running, then new ones."""

    rows: Floats  # f32[T, 2 o + a + 2]  see students/transitions.py
    ret: list[float]  # of each whole episode so far
    length: list[int]
    steps: list[int]  # of them, played now
    success: list[bool]
    finished: list[bool]


class Score(NamedTuple):
    """One whole episode."""

    ret: float
    success: bool
    length: int


class Member:
    """An environment that stands in the middle of an episode between two calls."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.env = make()
        low, high = self.env.action_space.low, self.env.action_space.high
        self._middle, self._half = (low + high) / 2, (high - low) / 2
        self.obs: Floats = np.zeros(0, np.float32)
        self.ret, self.length = 0.0, 0

    def begin(self, task: HostTask, actions: Sequence[Floats] = ()) -> None:
        """Start an episode and repeat the actions already taken in it: this is how a running one is restored."""
        options = {"context": task.context, "task_seed": task.seed, "task_row": task.row}
        self.obs, _ = self.env.reset(options=options)
        self.ret, self.length = 0.0, 0
        for action in actions:
            self._step(action)

    def play(self, actor: Actor, tasks: Sequence[HostTask], n: int, key: Sequence[int], at_random: bool) -> Steps:
        """n steps; whenever an episode ends, the next of the tasks begins. `key` seeds the actions' noise.

        A non-finite reward or observation ends it there: there is no telling what an environment would do with further
        actions. The remaining rows stay 0.
        """
        rng, o, a = np.random.default_rng(key), len(self.obs), len(self._half)
        noise = (rng.uniform(-1, 1, (n, a)) if at_random else rng.standard_normal((n, a))).astype(np.float32)
        played = Steps(np.zeros((n, row_width(o, a)), np.float32), [], [], [], [], [])
        row = as_transitions(played.rows, o)  # views
        before = self.length
        for t, drawn in enumerate(noise):
            row.obs[t] = self.obs
            row.action[t] = action = drawn if at_random else sampled(actor, self.obs, drawn)
            row.reward[t], row.terminated[t], truncated, success = self._step(action)
            row.next_obs[t] = self.obs
            if not np.isfinite(played.rows[t]).all():
                break
            if row.terminated[t] or truncated:
                self._note(played, before, success, finished=True)
                self.begin(tasks[len(played.ret) - 1])
                before = 0
        self._note(played, before, success=False, finished=False)
        return played

    def episode(self, actor: Actor, task: HostTask) -> Score:
        """A whole episode with the most likely actions; a non-finite observation ends it, with NaN as its return."""
        self.begin(task)
        ended = False
        while not ended:
            _, terminated, truncated, success = self._step(most_likely(actor, self.obs))
            ended = terminated or truncated
            if not np.isfinite(self.obs).all() and not ended:
                return Score(float("nan"), False, self.length)
        return Score(self.ret, success, self.length)

    def _step(self, action: Floats) -> tuple[float, bool, bool, bool]:
        self.obs, reward, terminated, truncated, info = self.env.step(self._middle + self._half * action)
        self.ret += float(reward)
        self.length += 1
        return float(reward), bool(terminated), bool(truncated), bool(info.get("is_success", False))

    def _note(self, played: Steps, before: int, success: bool, finished: bool) -> None:
        played.ret.append(self.ret)
        played.length.append(self.length)
        played.steps.append(self.length - before)
        played.success.append(success)
        played.finished.append(finished)


def sampled(actor: Actor, obs: Floats, noise: Floats) -> Floats:
    """tanh(mean + std noise), as in `sac.act`."""
    mean, log_std = np.split(_head(actor, obs), 2)
    return np.tanh(mean + np.exp(np.clip(log_std, *LOG_STD)) * noise)


def most_likely(actor: Actor, obs: Floats) -> Floats:
    """tanh(mean)."""
    return np.tanh(np.split(_head(actor, obs), 2)[0])


def _head(actor: Actor, obs: Floats) -> Floats:
    x = obs
    for layer in actor[:-1]:
        x = np.maximum(x @ layer["w"] + layer["b"], 0)
    return x @ actor[-1]["w"] + actor[-1]["b"]
