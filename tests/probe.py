"""An environment whose rewards tell under which context it is really played. A file of its own: workers import it."""

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
