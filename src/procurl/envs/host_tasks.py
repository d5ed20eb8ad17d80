"""Tasks on the host: which one an environment is playing, which one comes next, and which ones are valid.

Vector environments reset their members by themselves, without options, so the next task has to be ready before the
episode ends. A `TaskDesk` holds it. A desk also remembers the task being played and writes that one into `info`: an
episode's record cannot name a task that an automatic reset has put in its place.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from procurl.errors import ConfigError, unknown_name

KEYS = ("context", "task_seed", "task_row")  # of `options` and `info`
N_SEEDS = 2**31  # a task's seed is an int32


class HostTask(NamedTuple):
    """The NumPy twin of `procurl.Task`."""

    context: NDArray[np.float32]  # f32[d]
    seed: int | None  # which instance of the context; None until somebody picks one
    row: int  # its number in the space, -1 for an invented task
    learn: bool = True  # False: play it, but do not learn from it (Robust PLR)

    def info(self) -> dict[str, Any]:
        return {"context": self.context.copy(), "task_seed": self.seed, "task_row": self.row}


class TaskDesk:
    """The task being played and the next one, of one environment."""

    def __init__(self, low: ArrayLike, high: ArrayLike, names: Sequence[str] | None = None) -> None:
        self.low, self.high = np.asarray(low, np.float32), np.asarray(high, np.float32)  # f32[d]
        if self.low.ndim != 1 or self.low.shape != self.high.shape or not (self.low <= self.high).all():
            raise ConfigError(
                f"low = {low!r} and high = {high!r}: expected two vectors of the same length with low <= high"
            )
        self.names = tuple(names) if names is not None else tuple(f"context[{k}]" for k in range(self.low.size))
        if len(self.names) != self.low.size:
            raise ConfigError(f"names = {self.names}: expected {self.low.size}, one per dimension of the context")
        self.playing: HostTask | None = None
        self.next: HostTask | None = None

    def task(self, context: ArrayLike, task_seed: Any = None, task_row: Any = -1, learn: Any = None) -> HostTask:
        """A checked task; the context is clipped to the bounds where it is outside only by rounding."""
        try:
            given = np.array(context, np.float32)  # f32[d]  a copy: the caller may reuse the array
        except (TypeError, ValueError) as error:
            raise ConfigError(f"context = {context!r}: expected {self.low.size} numbers") from error
        if given.shape != self.low.shape:
            names = ", ".join(self.names)
            raise ConfigError(f"context has shape {given.shape}: expected ({self.low.size},), which is ({names})")
        with np.errstate(invalid="ignore"):  # unbounded dimensions have a tolerance of inf or NaN: no bound, no check
            tolerance = np.nan_to_num(1e-5 * (self.high - self.low), nan=0.0, posinf=0.0)
        bad = ~np.isfinite(given) | (given < self.low - tolerance) | (given > self.high + tolerance)
        if bad.any():
            k = int(np.flatnonzero(bad)[0])
            raise ConfigError(
                f"{self.names[k]} = {given[k]:g} lies outside [{self.low[k]:g}, {self.high[k]:g}]: "
                f"give a context within the bounds, or clip it with space.project"
            )
        seed = None if task_seed is None else integer("task_seed", task_seed, 0, N_SEEDS)
        row = integer("task_row", task_row, -1, N_SEEDS)
        return HostTask(np.clip(given, self.low, self.high), seed, row, learn is None or bool(learn))

    def set_next(self, context: ArrayLike, task_seed: Any = None, task_row: Any = -1, learn: Any = None) -> None:
        self.next = self.task(context, task_seed, task_row, learn)

    def pick(self, options: Mapping[str, Any] | None) -> HostTask | None:
        """The task for this reset: the one in the options, else the one that is ready, else None.

        A task in the options does not use up the one that is ready.
        """
        named = {key: options[key] for key in KEYS if options and options.get(key) is not None}
        if named and "context" not in named:
            raise ConfigError(f"options name {' and '.join(named)} but no context: a task is a context and a seed")
        if named:
            return self.task(**named)
        task, self.next = self.next, None
        return task


class TakesTasks:
    """For an environment with a desk: the next task, as its caller sees it."""

    _desk: TaskDesk

    def set_next_task(
        self, context: ArrayLike, task_seed: int | None = None, task_row: int = -1, learn: bool | None = None
    ) -> None:
        """The task of the next episode. Does not touch the running one; a second call replaces the first.

        `learn` changes nothing here: it goes with the task, for a learner that asks what is being played.
        """
        self._desk.set_next(context, task_seed, task_row, learn)

    @property
    def next_task(self) -> HostTask | None:
        """The task set for the next episode, or None.

        Assigning a task, e.g. a `procurl.Task`, is `set_next_task(*task)`, and assigning None changes nothing. So
        one line serves all members of a vector environment:
        `envs.set_attr("next_task", [pick() if ended else None for ended in terminated | truncated])`.
        """
        return self._desk.next

    @next_task.setter
    def next_task(self, task: Sequence[Any] | None) -> None:
        if task is not None:
            self._desk.set_next(*task)


def refuse_unknown(options: Mapping[str, Any] | None, known: Sequence[str]) -> None:
    """Refuse unknown options: a misspelt one would silently train on the wrong task."""
    for key in options or {}:
        if key not in known:
            raise unknown_name("option of reset", str(key), known)


def integer(name: str, value: Any, low: int, high: int) -> int:
    try:
        number = operator.index(np.asarray(value).item())  # a 0-d array of JAX or NumPy is fine, a float is not
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} = {value!r}: expected an integer") from error
    if not low <= number < high:
        raise ConfigError(f"{name} = {number}: expected an integer from {low} to {high - 1}")
    return number


def finite_action(action: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """The action, checked: JAX would silently broadcast a wrong shape, and a NaN would spread through a simulator."""
    given = np.asarray(action)
    if given.shape != shape:
        raise ConfigError(f"action has shape {given.shape}: expected {shape}")
    if not np.isfinite(given).all():
        raise ConfigError(f"action = {action}: expected finite numbers")
    return given
