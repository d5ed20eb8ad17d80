"""From what the members of a seed played to the records of the loop: places in the queue, episodes, steps."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from procurl.envs.host_tasks import HostTask
from procurl.runs.host.member import Steps
from procurl.types import Episodes


class Running(NamedTuple):
    """The episodes that the members are in the middle of, on the host. S seeds, N members each."""

    task: Any  # Task of NumPy arrays, [S, N]
    ret: Any  # f32[S, N]
    length: Any  # i32[S, N]
    actions: Any  # f32[S, N, max_steps, a]  taken so far


class AllSteps(NamedTuple):
    """An iteration of all members, one after the other within each seed. T * N steps."""

    rows: Any  # f32[S, T * N, 2 o + a + 2]  see students/transitions.py
    slot: Any  # i32[S, T * N]  the step's episode: its place in `Episodes`, -1 if the step was not played


def host_tasks(tasks: Any, s: int, places: slice) -> list[HostTask]:
    """Some tasks of seed s, one by one."""
    context, seed, row = (x[s, places] for x in tasks[:3])
    return [HostTask(*task) for task in zip(context, seed.tolist(), row.tolist(), strict=True)]


def episodes_of(running: Running, tasks: Any, played: list[Steps], s: int) -> Any:
    """The record of one seed's iteration, as NumPy arrays: see `Episodes`."""
    n, n_queue = len(played), tasks.seed.shape[1]
    task: Any = jax.tree.map(lambda a, b: np.concatenate([a, b]), of_seed(running.task, s), of_seed(tasks, s))

    def blank(dtype: Any) -> Any:
        return np.zeros(n + n_queue, dtype)

    unknown: Any = np.full(n + n_queue, np.nan, np.float32)
    out = Episodes(
        task=task, ret=blank(np.float32), length=blank(np.int32), steps=blank(np.int32), success=blank(bool),
        gae=unknown, abs_gae=unknown.copy(), started=blank(bool), finished=blank(bool),
    )  # fmt: skip
    for i, steps in enumerate(played):
        places = places_of(steps, i, n)
        for name in ("ret", "length", "steps", "success", "finished"):
            getattr(out, name)[places] = getattr(steps, name)
    out.started[:] = (out.steps > 0) & (out.length == out.steps)  # type: ignore[index]
    return out


def places_of(steps: Steps, i: int, n: int) -> list[int]:
    """Where member i's episodes stand in `Episodes`: the one that was running, then those from the queue."""
    return [i, *range(n + i, n + i + n * (len(steps.ret) - 1), n)]


def of_seed(tree: Any, s: int) -> Any:
    return jax.tree.map(lambda x: x[s], tree)
