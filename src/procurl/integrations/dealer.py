"""Who plays which task: between a curriculum and environments that reset themselves.

An environment that resets itself inside a step needs its next task before its episode ends (`ahead`); others get it
when the episode has ended. Both report the task they play in `info`, and here it is compared with the one they were
given: an episode cannot be recorded under another's context.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from procurl.envs.host_tasks import KEYS, HostTask
from procurl.errors import ConfigError
from procurl.runs.curriculum import Curriculum, Value


class Dealer:
    """The running and the next task of n environments.

    Args:
        curriculum: made for as many environments.
        n_envs: how many there are.
        tell: `tell(i, task)` makes `task` the next one of environment i.
        ahead: whether an environment begins its next episode in the very step that ends the one before.
    """

    def __init__(
        self, curriculum: Curriculum, n_envs: int, tell: Callable[[int, HostTask], Any], ahead: bool = True
    ) -> None:
        if curriculum.n_envs != n_envs:
            raise ConfigError(
                f"the curriculum is for {curriculum.n_envs} environments, this one has {n_envs}: make it with "
                f"procurl.Curriculum(teacher, n_envs={n_envs})"
            )
        self.curriculum, self.tell, self.ahead = curriculum, tell, ahead
        self.playing: list[HostTask | None] = [None] * n_envs
        self.ready: list[HostTask | None] = [None] * n_envs
        self.later: list[HostTask | None] = [None] * n_envs  # to be dealt before new ones are drawn
        for i in range(n_envs):
            self.deal(i)

    def deal(self, i: int) -> None:
        """Environment i gets its next task."""
        task = self.later[i] or self.curriculum.next()
        self.ready[i], self.later[i] = task, None
        self.tell(i, task)

    def began(self, i: int, reported: HostTask) -> None:
        """Environment i has been reset, and took the task that lay ready."""
        if self.playing[i] is not None:  # cut off
            self.curriculum.withdraw(self.playing[i])  # type: ignore[arg-type]
        self._refuse_stranger(i, reported, self.ready[i])
        self.playing[i], self.ready[i] = self.ready[i], None
        if self.ahead:
            self.deal(i)

    def ended(self, i: int, reported: HostTask) -> HostTask:
        """The task whose episode has ended in environment i."""
        task = self.playing[i]
        self._refuse_stranger(i, reported, task)
        assert task is not None
        self.playing[i] = None
        if not self.ahead:
            self.deal(i)
        return task

    def observe(self, value: Value | None) -> None:
        """The teacher watches; tasks that lie ready but have not begun are exchanged for its new ones."""
        waiting = [i for i, task in enumerate(self.ready) if task is not None]
        for i in waiting:
            self.curriculum.withdraw(self.ready[i])  # type: ignore[arg-type]
        self.curriculum.observe(value)
        for i in waiting:
            self.deal(i)

    def _refuse_stranger(self, i: int, reported: HostTask, given: HostTask | None) -> None:
        if given is None or not same(reported, given):
            raise ConfigError(
                f"environment {i} plays context {reported.context}, but was given "
                f"{'none' if given is None else given.context}: does somebody else reset it or set its tasks, or is it "
                f"another environment than the one the curriculum knows?"
            )

    # --- saving ---

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """The tasks of all environments, as arrays; NaN where there is none."""
        d = self.curriculum.teacher.space.dim
        rows = [*self.playing, *self.ready]
        return {
            "context": np.array([np.full(d, np.nan) if t is None else t.context for t in rows], np.float32),
            "seed": np.array([-1 if t is None else t.seed for t in rows], np.int32),
            "row": np.array([-1 if t is None else t.row for t in rows], np.int32),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The environments begin anew, with the tasks they were playing; those that lay ready come after them."""
        rows = zip(state["context"], state["seed"], state["row"], strict=True)
        tasks = [None if s < 0 else HostTask(np.array(c, np.float32), int(s), int(r)) for c, s, r in rows]
        n = len(self.playing)
        for task in tasks[:n]:
            if task is not None:
                self.curriculum.replay(task)
        self.playing = [None] * n
        for i, (played, ready) in enumerate(zip(tasks[:n], tasks[n:], strict=True)):
            self.later[i] = played or ready
            self.deal(i)
            self.later[i] = ready if played else None


def reported_task(info: dict[str, Any]) -> HostTask:
    """The task that an environment names in its `info`."""
    missing = [key for key in KEYS if key not in info]
    if missing:
        raise ConfigError(f"an environment's info lacks {missing}: a wrapper above TaskEnv must pass the info on")
    return HostTask(np.asarray(info["context"], np.float32), int(info["task_seed"]), int(info["task_row"]))


def same(a: HostTask, b: HostTask) -> bool:
    return a.seed == b.seed and a.row == b.row and np.array_equal(a.context, b.context)
