"""A curriculum that does nothing makes a result wrong: say so once, with the reason and what to do.

Two things are looked at after every update. Are the proposals of the last updates any different from uniform draws? And
do the student's values lie within their range, or all at one end of it, where tasks cannot be told apart?
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

import numpy as np

from procurl.errors import IdleError
from procurl.runs.taught import Meter
from procurl.types import Teacher

logger = logging.getLogger("procurl")

PATIENCE = 20  # updates without any sign of a curriculum
SAMPLE = 32  # proposals of each that are looked at: a strategy may hold few tasks at a time, and different ones later
EVEN = 0.9  # proposals count as uniform if their effective share of the pool is at least this, and
BY_CHANCE = 0.01  # their p-value under uniform draws at least this
AT_ONE_END = 0.95  # share of the values
CONTRADICTED = 0.05  # share of the returns, outside the range that was given


class IdleWatch:
    """Watches a curriculum, PATIENCE updates at a time; warns once for each reason, or raises IdleError (`strict`)."""

    def __init__(self, teacher: Teacher, strict: bool = False) -> None:
        self.teacher, self.strict = teacher, strict
        self.meter = Meter(teacher.space)
        self._proposed: list[tuple[np.ndarray, np.ndarray]] = []
        self._values: list[dict[str, float]] = []
        self._returns: deque[float] = deque(maxlen=1000)
        self._warned: set[str] = set()

    def saw(self, proposed: Any, values: dict[str, float], returns: Any, value_range: tuple[float, float]) -> None:
        """After an update.

        Args:
            proposed: a sample of the tasks, a `Task` of NumPy arrays.
            values: numbers about the student's values, see `trace.value_numbers`.
            returns: of episodes that ended since the last update.
            value_range: given or learnt so far.
        """
        self._returns.extend(float(r) for r in np.asarray(returns).reshape(-1) if np.isfinite(r))
        there = np.flatnonzero(np.isfinite(proposed.context[:, 0]))  # a record is padded with NaN
        some = there[np.linspace(0, len(there) - 1, min(SAMPLE, len(there))).astype(int)]  # of all seeds
        self._proposed.append((proposed.context[some], proposed.row[some]))
        self._values.append(values)
        if self.teacher.space.value_range is not None:
            self._compare_returns(value_range)
        if len(self._proposed) == PATIENCE:
            self._judge(value_range)
            self._proposed, self._values = [], []

    def _judge(self, value_range: tuple[float, float]) -> None:
        if self._is_solved(value_range):
            return
        ends = [max(v.get("low", 0.0), v.get("high", 0.0)) for v in self._values]
        if min(ends) >= AT_ONE_END:
            self._say("values", self._about_values(value_range))
        elif not getattr(strategy_of(self.teacher), "may_be_uniform", False):
            context, row = (np.concatenate(x) for x in zip(*self._proposed, strict=True))
            share = self.meter.effective_share(context, row)
            if share >= EVEN and self.meter.chance_of_uniform(context, row) >= BY_CHANCE:
                self._say("uniform", self._about_uniform(share, value_range))

    def _is_solved(self, value_range: tuple[float, float]) -> bool:
        """Nearly all that is played succeeds: there is nothing left to teach."""
        low, high = value_range
        return bool(self._returns) and float(np.mean(self._returns)) >= low + 0.9 * (high - low)

    def _compare_returns(self, value_range: tuple[float, float]) -> None:
        low, high = value_range
        slack = 0.01 * (high - low)
        seen = np.array(self._returns)
        outside = (seen < low - slack) | (seen > high + slack)
        if len(seen) >= 10 and outside.mean() >= CONTRADICTED:
            self._say(
                "range",
                f"{outside.mean():.0%} of the returns lie outside value_range = ({low:g}, {high:g}), for example "
                f"{seen[outside][0]:g}: teachers clip values to this range, so tasks beyond it look alike. Give the "
                f"smallest and largest return, or leave value_range out to have it learnt.",
            )

    def _about_values(self, value_range: tuple[float, float]) -> str:
        low, high = value_range
        values = self._values[-1]
        end = "lower" if values["low"] >= values["high"] else "upper"
        seen = f", while returns were {min(self._returns):g} to {max(self._returns):g}" if self._returns else ""
        if self.teacher.space.value_range is not None:
            advice = "Give the range of your returns, or leave value_range out to have it learnt."
        else:
            advice = "Take values from the returns instead: value=procurl.ReturnRegressor(space), or use procurl-path."
        return (
            f"for {PATIENCE} updates nearly all of the student's values (mean {values['mean']:g}) were at or beyond "
            f"the {end} end of value_range = ({low:g}, {high:g}){seen}: {name_of(self.teacher)} cannot tell tasks "
            f"apart, and teaches nothing. {advice}"
        )

    def _about_uniform(self, share: float, value_range: tuple[float, float]) -> str:
        values = self._values[-1]
        width = value_range[1] - value_range[0]
        if "mean" in values:
            if values["spread"] < 0.01 * width:
                why = (
                    "the student's values are alike on all tasks: does it see the context (Gymnasium: "
                    "TaskEnv(observe=True))?"
                )
            elif values.get("learnable_tasks") == 0:  # not there, or NaN: it asked for none
                why = "no task has a value well within the range: all are hopeless or solved in the student's eyes."
            elif values.get("learnable_targets") == 0:
                why = "no target can be learnt yet, and until then its choice is uniform. procurl-path guides earlier."
            else:
                why = "its temperature is too high for these values: leave beta out, or give a larger one."
        elif len(set(self._returns)) < 2:
            why = (
                "all returns were alike, so that there is nothing to go by: put easier tasks into the space, or report "
                "success (record(..., success=...), info['is_success'])."
            )
        else:
            why = "nothing that it saw made any task stand out. Look at curriculum.preview() and curriculum.summary."
        return (
            f"for {PATIENCE} updates {name_of(self.teacher)} proposed tasks as uniform draws would (effective share "
            f"{share:.2f}). There is no curriculum: {why}"
        )

    def _say(self, reason: str, text: str) -> None:
        if self.strict:
            raise IdleError(text)
        if reason not in self._warned:
            self._warned.add(reason)
            logger.warning("%s", text)


def strategy_of(teacher: Any) -> Any:
    """The strategy inside its wrappers."""
    while hasattr(teacher, "teacher"):
        teacher = teacher.teacher
    return teacher


def name_of(teacher: Any) -> str:
    return type(strategy_of(teacher)).__name__
