"""Environments whose rewards tell under which context they are really played. A file of its own: workers import it."""

import gymnasium
import numpy as np
from gymnasium import spaces

from procurl.integrations.gymnasium import TaskEnv


class Probe(gymnasium.Env):
    """Every step pays the level that was set when the episode began; episodes last one to four steps."""

    observation_space, action_space = spaces.Box(0, 1e4, (1,), np.float32), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.playing, self.left = self.level, 1 + seed % 4
        return np.float32([self.playing]), {}

    def step(self, action):
        self.left -= 1
        return np.float32([self.playing]), float(self.playing), self.left == 0, False, {}


def set_level(env, context):
    env.unwrapped.level = float(context[0])


def make_probe():
    env = TaskEnv(Probe(), spaces.Box(np.float32([0.0]), np.float32([1e4])), set_level)
    return gymnasium.wrappers.RecordEpisodeStatistics(env)  # tasks must reach through other wrappers


class Echo(gymnasium.Env):
    """Pays its context at the end of the episode: whoever records it under another context is found out."""

    observation_space = spaces.Box(-1.0, 1.0, (2,))
    context = np.zeros(2)

    def __init__(self, continuous=False):
        self.action_space = spaces.Box(-1.0, 1.0, (1,)) if continuous else spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.length = 0, 1 + int(self.np_random.integers(6))
        self.start = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.start, {}

    def step(self, action):
        self.t += 1
        ended = self.t == self.length
        reward = float(self.context.sum()) if ended else 0.0
        return self.start * (1 - self.t / 7), reward, ended and self.length % 2 == 0, ended and self.length % 2 == 1, {}


def set_context(env, context):
    env.unwrapped.context = context


def member(space, continuous=False):
    return TaskEnv(Echo(continuous), space, set_context, observe=True)
