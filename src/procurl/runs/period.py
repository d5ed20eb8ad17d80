"""The episodes between two updates of a teacher, in somebody else's loop: a table that is filled as they end.

The rows are those of `procurl.types.Episodes`: first the episodes that were running already, then a queue of proposals
in the order in which they are handed out. An episode is found by the task object that its player holds, so that a
return cannot end up with another task's context.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from procurl.check.numbers import LARGEST, measured, whole
from procurl.envs.host_tasks import HostTask
from procurl.errors import ConfigError, NonFiniteError
from procurl.types import Episodes, Task

Holders = dict[int, HostTask | Task]  # row -> the object that the caller holds for it


class Period:
    """n_open + n_queue rows.

    Args:
        running: tasks of episodes that go on, with what they have brought so far and how long they are.
        queue: proposals, a `Task` of NumPy arrays.
        n_open: rows for episodes that go on; usually more than there are.
        holders: the objects held for those that go on.
        n_first: how many running tasks to hand out before the queue: in the very first period nobody plays them yet.
    """

    def __init__(
        self,
        running: tuple[Any, np.ndarray, np.ndarray],
        queue: Any,
        n_open: int,
        holders: Holders,
        n_first: int = 0,
    ) -> None:
        task, ret, length = running
        k, n_queue = len(ret), len(queue.seed)

        def rows(x: np.ndarray, y: np.ndarray) -> Any:
            gap = np.zeros((n_open - k, *y.shape[1:]), y.dtype)
            return np.concatenate([x, gap, y])

        n = n_open + n_queue
        blank: Any = np.zeros
        zeros = np.zeros(n_queue)
        self.earlier = rows(length, zeros.astype(np.int32))  # steps that an episode had before this period
        self.episodes: Any = Episodes(  # of NumPy arrays
            task=jax.tree.map(rows, task, queue),
            ret=rows(ret, zeros.astype(np.float32)), length=self.earlier.copy(), steps=blank(n, np.int32),
            success=blank(n, bool), gae=blank(n, np.float32), abs_gae=blank(n, np.float32),
            started=blank(n, bool), finished=blank(n, bool),
        )  # fmt: skip
        self.handed = np.zeros(n, bool) if n_first else np.arange(n) < k
        self.row = 0 if n_first else n_open  # the next one to hand out
        self.n_open, self.n_first, self.holders = n_open, n_first, holders

    @property
    def is_used_up(self) -> bool:
        return self.row >= len(self.handed)

    @property
    def queue(self) -> Any:
        """The proposals, handed out or not."""
        return jax.tree.map(lambda x: x[self.n_open :], self.episodes.task)

    def hand_out(self) -> HostTask:
        row = self.row
        self.handed[row] = True
        self.row += 1
        if self.row == self.n_first:
            self.row = self.n_open
        e = self.episodes.task
        learn = e.learn is None or bool(e.learn[row])
        self.holders[row] = task = HostTask(e.context[row].copy(), int(e.seed[row]), int(e.row[row]), learn)
        return task

    def record(self, row: int, ret: Any, length: Any, success: bool, finished: bool, gae: Any, abs_gae: Any) -> None:
        """What came of the episode in this row; `gae` and `abs_gae` are its advantages, 0 and None if not given."""
        e, earlier = self.episodes, int(self.earlier[row])
        try:
            length = whole("length", plain(length), max(earlier, 1), 2**31 - 1)
        except ConfigError as error:
            raise ConfigError(f"length = {length!r}: expected the number of steps of the whole episode") from error
        ret, gae = self._finite("ret", ret, row), self._finite("advantage", gae, row)
        absolute = abs(gae) if abs_gae is None else self._finite("abs_advantage", abs_gae, row)
        e.ret[row], e.length[row], e.steps[row] = ret, length, length - earlier
        e.success[row], e.started[row], e.finished[row] = success, earlier == 0, finished
        e.gae[row], e.abs_gae[row] = gae, absolute

    def start_over(self, row: int) -> None:
        self.earlier[row] = self.episodes.length[row] = self.episodes.ret[row] = 0

    def running(self) -> tuple[tuple[Any, np.ndarray, np.ndarray], Holders]:
        """The latest episodes that have not ended, for the next period, and who holds them."""
        e = self.episodes
        rows = np.flatnonzero(self.handed & ~e.finished)[-self.n_open :]
        holders = {k: self.holders[row] for k, row in enumerate(rows) if row in self.holders}
        return (jax.tree.map(lambda x: x[rows], e.task), e.ret[rows], e.length[rows]), holders

    def find(self, task: HostTask | Task) -> int:
        """Its row. The same task may be played twice at once, so the object itself counts first, its content second."""
        if not isinstance(task, HostTask | Task) or getattr(task.seed, "ndim", 0) != 0:
            raise ConfigError(f"task = {task!r}: expected one task that next() handed out")
        e = self.episodes
        is_open = self.handed & ~e.finished
        for k, holder in self.holders.items():
            if holder is task and is_open[k]:
                return k
        context, seed, row = np.asarray(task.context, np.float32), task.seed, int(task.row)
        same = is_open & (e.task.seed == seed) & (e.task.row == row) & (e.task.context == context).all(axis=1)
        candidates = sorted(np.flatnonzero(same).tolist(), key=lambda k: k in self.holders)
        if not candidates:
            raise ConfigError(
                f"record: context {context.tolist()}, seed {seed}, row {row} is no task that next() handed out and "
                f"that is still being played"
            )
        self.holders[candidates[0]] = task
        return int(candidates[0])

    def _finite(self, name: str, value: Any, row: int) -> float:
        """Refuse NaN and infinity here, while their cause (an agent that has diverged) is in sight."""
        number = plain(value)
        if isinstance(number, float) and not abs(number) <= LARGEST:  # NaN fails every comparison
            task = self.episodes.task
            raise NonFiniteError(
                f"{name} = {number} of an episode with context {task.context[row].tolist()} and seed "
                f"{int(task.seed[row])}: expected a finite number. Nothing was recorded; an agent or environment that "
                f"has diverged gives such numbers."
            )
        return measured(name, number)


def plain(value: Any) -> Any:
    """An array of one number, JAX's or NumPy's, as that number; anything else as it is."""
    return value.item() if hasattr(value, "item") and np.ndim(value) == 0 else value
