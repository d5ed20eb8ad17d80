"""Robust PLR (Jiang et al. 2021, Replay-Guided Adversarial Environment Design): learn from replayed tasks alone.

New tasks are played to find out how useful they are, but the student does not learn from them: every single task
that it learns from was chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import jax.numpy as jnp
from jax import Array

from procurl.check.fields import param
from procurl.errors import ConfigError
from procurl.programs import pytree
from procurl.teachers.plr import PLR, PLRState
from procurl.types import Task


@pytree
@dataclass(frozen=True, eq=False)
class RobustPLR(PLR):
    """PLR that draws new tasks at a fixed rate, and marks them "play, do not learn".

    With probability 1 - replay a task never played, all equally likely, with `Task.learn` False; otherwise a seen one
    as PLR would replay it. Before anything is seen all tasks are new, and once all are seen none is.
    By default, the score is the positive value loss, the mean of the positive parts of the advantages.
    """

    withholds: ClassVar[bool] = True  # a learner that learns from all it plays refuses this teacher

    rho: float = param(0.3, "share of replays that go by staleness, 0 to 1; the others go by score", at_least=0)
    score: Literal["abs_gae", "signed_gae", "positive_gae"] = param(
        "positive_gae", "mean advantage of an episode, of its positive part, absolute or as it is: see PLR", static=True
    )
    replay: float = param(0.5, "probability of a replay where there are new tasks too, 0 to 1", at_least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.replay, int | float) and not self.replay <= 1:
            raise ConfigError(f"RobustPLR: replay = {self.replay}, expected a probability between 0 and 1")

    def propose(self, state: PLRState, key: Array, n: int) -> Task:
        tasks = super().propose(state, key, n)
        return tasks._replace(learn=state.seen[tasks.row] & (tasks.row >= 0))

    def _probabilities(self, state: PLRState) -> Array:
        seen = state.seen
        some_new = jnp.where(jnp.any(seen), 1.0 - self.replay, 1.0)
        p_new = jnp.where(jnp.all(seen), 0.0, some_new)
        each_new = p_new / jnp.maximum(jnp.sum(~seen), 1)
        return jnp.where(seen, (1.0 - p_new) * self._replays(state), each_new)
