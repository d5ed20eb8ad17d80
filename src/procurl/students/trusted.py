"""Which values to believe, a critic's or those of a regression on the returns: whichever predicts returns better.

A critic is a poor judge of tasks while it has learnt little, where it discounts what the returns do not, or where it
does not see the context; a regression knows only what was played, and knows it late. Both are compared with the returns
of the latest episodes, which neither has learnt from yet, and the better one answers:

    value = procurl.TrustedValue(space, my_critic)
    value.record(task, ret)             # after every episode
    curriculum.observe(value=value)
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any, NamedTuple

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from procurl.students.regressor import ReturnRegressor
from procurl.types import Task, TaskSpace

logger = logging.getLogger("procurl")

COMPARED = 64  # of the latest episodes
ENOUGH = 16  # below that, the critic is asked
CLEARLY = 0.9  # the other one takes over if its error is at most this share of the present one's
SOURCES = ("critic", "returns")
REGRESSION: dict[str, Any] = {"every": 50, "hidden": (64, 64), "epochs": 60}  # small: it is fitted again and again


class Skill(NamedTuple):
    """How well values predicted returns."""

    error: float  # mean absolute error, relative to that of the best constant
    offset: float  # median of value - return
    rank: float  # Spearman's rank correlation

    def __str__(self) -> str:
        return f"error {self.error:.2f}, offset {self.offset:+.3g}, rank correlation {self.rank:.2f}"


class TrustedValue:
    """V(task) from a critic or from returns, whichever has predicted the latest returns better.

    Args:
        space: of the contexts.
        critic: a function of a `Task` of NumPy arrays that returns n values, in units of return.
        regressor: for the second opinion; a small `ReturnRegressor` if not given.
    """

    def __init__(self, space: TaskSpace, critic: Any, *, regressor: ReturnRegressor | None = None) -> None:
        self.critic = critic
        self.regressor = regressor if regressor is not None else ReturnRegressor(space, **REGRESSION)
        self.source = "critic"
        self.skills: dict[str, Skill] = {}
        self._dim = space.dim
        self._episodes: deque[tuple[Any, ...]] = deque(
            maxlen=COMPARED
        )  # context, seed, row, return, regression's value

    def record(self, task: Any, ret: float) -> None:
        """The return of an episode; `task` is as `Curriculum.next` handed it out."""
        context = np.asarray(task.context, np.float32)
        predicted = self.regressor(_tasks([(context, task.seed, task.row)]))[0]  # before it learns of this one
        known = float(predicted) if self.regressor.fits else np.nan
        self.regressor.record(context, ret)
        kept = float(np.float32(ret))  # as in a state on disk: a resumed run must compare the same numbers
        self._episodes.append((context, int(task.seed), int(task.row), kept, known))

    def __call__(self, tasks: Task) -> NDArray[np.float32]:
        """f32[n]: the values of tasks, in units of return."""
        self._compare()
        return np.asarray(self.critic(tasks) if self.source == "critic" else self.regressor(tasks), np.float32)

    def _compare(self) -> None:
        episodes = list(self._episodes)
        if len(episodes) < ENOUGH:
            return
        ret = np.array([e[3] for e in episodes])
        of_critic = np.asarray(self.critic(_tasks([e[:3] for e in episodes])), np.float64)
        of_returns = np.array([e[4] for e in episodes])
        self.skills = {"critic": skill(of_critic, ret)}
        known = np.isfinite(of_returns)
        if known.sum() >= ENOUGH:
            self.skills["returns"] = skill(of_returns[known], ret[known])
        present = self.skills.get(self.source)
        other = next(s for s in SOURCES if s != self.source)
        challenger = self.skills.get(other)
        if present is not None and challenger is not None and challenger.error <= CLEARLY * present.error:
            self.source = other
            reasons = "; ".join(f"{name}: {self.skills[name]}" for name in SOURCES)
            logger.info(
                "values now come from the %s, which predict the latest returns better (%s)", _words(other), reasons
            )

    def state_dict(self) -> dict[str, Any]:
        """All that determines what comes next, as a tree of arrays; the critic is not part of it."""
        rows = list(self._episodes)
        return {
            "regressor": self.regressor.state_dict(),
            "source": np.array(SOURCES.index(self.source), np.int32),
            "contexts": np.array([e[0] for e in rows], np.float32).reshape(-1, self._dim),
            "numbers": np.array([e[1:3] for e in rows], np.int32).reshape(-1, 2),
            "returns": np.array([e[3:] for e in rows], np.float32).reshape(-1, 2),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of `state_dict`, for one that was made in the same way."""
        self.regressor.load_state_dict(state["regressor"])
        self.source = SOURCES[int(state["source"])]
        rows = zip(state["contexts"], state["numbers"], state["returns"], strict=True)
        self._episodes.clear()
        for context, (seed, row), (ret, predicted) in rows:
            self._episodes.append((np.array(context, np.float32), int(seed), int(row), float(ret), float(predicted)))


def skill(value: NDArray[Any], ret: NDArray[Any]) -> Skill:
    """How well these values predicted these returns."""
    spread = float(np.mean(np.abs(ret - np.median(ret))))
    error = float(np.mean(np.abs(value - ret)))
    alike = np.ptp(value) == 0 or np.ptp(ret) == 0
    rank = 0.0 if alike else float(scipy.stats.spearmanr(value, ret).statistic)
    return Skill(error / spread if spread > 0 else float(error > 0), float(np.median(value - ret)), rank)


def _tasks(rows: list[Any]) -> Any:
    contexts, seeds, numbers = zip(*rows, strict=True)
    given: Any = np.array(contexts, np.float32), np.array(seeds, np.int32), np.array(numbers, np.int32)
    return Task(*given)


def _words(source: str) -> str:
    return "returns of played episodes" if source == "returns" else "critic's estimates"
