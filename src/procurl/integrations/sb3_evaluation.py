"""A Stable-Baselines3 model on held-out target tasks: what a curriculum is for, while it trains."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm

from procurl.check.numbers import whole
from procurl.envs.host_tasks import KEYS
from procurl.errors import ConfigError
from procurl.integrations.sb3_values import normaliser_of
from procurl.runs.curriculum import Curriculum


class Evaluation:
    """Plays the first n held-out tasks now and then, in an environment of its own.

    Args:
        curriculum: whose folder gets the outcome, if it has one.
        probe: an environment like those of the training.
        every: environment steps between two evaluations.
        n: held-out tasks.
    """

    def __init__(self, curriculum: Curriculum, probe: Any, every: int, n: int) -> None:
        if probe is None:
            raise ConfigError("evaluate_every: the model plays in an environment of its own: give probe=ENV, one more")
        held_out = jax.tree.map(np.asarray, curriculum.teacher.space.held_out)
        self.n = whole("n_evaluated", n, 1)
        self.tasks = [
            dict(zip(KEYS, (context, int(seed), int(row)), strict=True))
            for context, seed, row in list(zip(*held_out[:3], strict=True))[: self.n]
        ]
        self.curriculum, self.probe, self.every = curriculum, probe, every
        self.last = -1  # steps at the last evaluation

    def is_due(self, steps: int) -> bool:
        return steps // self.every > max(self.last, 0) // self.every

    def play(self, model: BaseAlgorithm, steps: int) -> dict[str, float]:
        """Mean return and success, where an environment tells of success."""
        self.last = steps
        ended = [self._episode(model, task) for task in self.tasks]
        returns, success = np.array([ret for ret, _ in ended]), np.array([won for _, won in ended], np.float64)
        if self.curriculum.has_folder:
            self.curriculum.evaluated(steps, returns, success)
        numbers = {"return": float(returns.mean()), "success": float(success.mean())}
        return {name: number for name, number in numbers.items() if np.isfinite(number)}

    def _episode(self, model: BaseAlgorithm, task: dict[str, Any]) -> tuple[float, float | None]:
        normaliser = normaliser_of(model)
        obs, info = self.probe.reset(options=task)
        ret, over = 0.0, False
        while not over:
            seen = obs if normaliser is None else normaliser.normalize_obs(obs)
            action, _ = model.predict(seen, deterministic=True)
            obs, reward, terminated, truncated, info = self.probe.step(action)
            ret, over = ret + float(reward), bool(terminated or truncated)
        return ret, float(info["is_success"]) if "is_success" in info else None
