"""A tiny environment on the host, in a module of its own: worker processes import it."""

import os
import signal
from functools import partial
from typing import ClassVar

import gymnasium
import numpy as np

from procurl.types import Continuous


class Pays(gymnasium.Env):
    """Every step pays the context's first number; an episode lasts 3 + seed % 5 steps, and is then cut, or ends."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-2.0, 4.0, (2,), np.float32)

    def __init__(self, dies_at=None, fails_at=None, victim=None, poison="reward"):
        self.dies_at, self.fails_at, self.total = dies_at, fails_at, 0
        self.victim, self.poison = victim, poison  # the seed of a task, and what is NaN in its first step

    def reset(self, *, seed=None, options=None):
        self.context, self.seed = np.asarray(options["context"]), options["task_seed"]
        self.t, self.last = 0, np.zeros(2)
        return self._seen(), {}

    def step(self, action):
        assert self.action_space.contains(action.astype(np.float32))
        self.t, self.last, self.total = self.t + 1, action, self.total + 1
        if self.total == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.total == self.fails_at:
            raise ValueError("the floor gave way")
        over = self.t == 3 + self.seed % 5
        hit = self.t == 1 and self.seed == self.victim
        return (
            self._seen() + np.float32(np.nan if hit and self.poison == "sight" else 0),
            np.nan if hit and self.poison == "reward" else float(self.context[0]),
            over and self.seed % 2 == 0,
            over and self.seed % 2 == 1,
            {"is_success": over and self.seed % 3 == 0},
        )

    def _seen(self):
        return np.array([self.t, *self.last], np.float32)


class PaysOnHost:
    """`Pays` for `procurl.train`."""

    obs_size: ClassVar[int] = 3
    action: ClassVar[Continuous] = Continuous(2, -2.0, 4.0)
    max_steps: ClassVar[int] = 8

    def __init__(self, **accidents):
        self._accidents = accidents

    def maker(self):
        return partial(Pays, **self._accidents)
