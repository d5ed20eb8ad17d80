"""The logs of runs that share a program: one engine trains all their seeds, and each log is told about its own."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from procurl.errors import NonFiniteError
from procurl.runs.evaluation import Scores
from procurl.runs.log import Log, Progress
from procurl.runs.store.failure import Failure
from procurl.runs.store.result import Result
from procurl.runs.trace import Trace


class Logs:
    """A `Log` for each point, all with the same number of seeds; to the loop and to a folder they look like one.

    A point fails when none of its seeds is left, and the others go on.
    """

    def __init__(self, logs: list[Log]) -> None:
        self.each = logs
        self.config = logs[0].config
        self.n_seeds = len(logs[0].seeds)
        self._on_device: list[Trace] = []

    @property
    def status(self) -> str:
        """running while any of them is, failed when all of them have."""
        statuses = [log.status for log in self.each]
        ended = [status for status in statuses if status != "failed"]
        return "running" if "running" in statuses else ended[0] if ended else "failed"

    @status.setter
    def status(self, status: str) -> None:
        for log in self.each:
            if log.status == "running":
                log.status = status

    @property
    def iterations(self) -> int:
        return self.each[0].iterations + len(self._on_device)

    @property
    def steps_done(self) -> int:
        return self.each[0].steps_done

    @property
    def evaluation_is_due(self) -> bool:
        if self.each[0].plays:  # then every point has its own program, see `sweep`
            self._tell()
        return self.each[0].is_due_after(self.iterations)

    @property
    def teacher_seconds(self) -> float | None:
        return self.each[0].teacher_seconds

    @property
    def failures_of_results(self) -> list[list[Failure]]:
        return [list(log.failures.values()) for log in self.each]

    def iterated(self, trace: Trace) -> None:
        self._on_device.append(trace)
        if self.each[0].iterations == 0:
            self._tell()  # the first one compiles, and its time is counted separately

    def fetch(self) -> None:
        self._tell()
        for log in self.each:
            log.fetch()

    def _tell(self) -> None:
        for on_device in self._on_device:
            trace = jax.tree.map(np.asarray, on_device)
            for k, log in enumerate(self.each):
                log.iterated(self.rows(trace, k))
        self._on_device = []

    def rows(self, tree: Any, k: int) -> Any:
        """The seeds of point k, from arrays that hold those of all points."""
        mine = slice(k * self.n_seeds, (k + 1) * self.n_seeds)
        return jax.tree.map(lambda x: x[mine], tree)

    def evaluated(self, scores: Scores) -> None:
        for k, log in enumerate(self.each):
            log.evaluated(self.rows(scores, k))

    def timed_teacher(self, seconds: float) -> None:
        for log in self.each:
            log.timed_teacher(seconds / len(self.each))

    def saved(self, seconds: float) -> None:
        for log in self.each:
            log.saved(seconds)

    def progress(self) -> Progress:
        """Of all points together."""
        parts = [log.progress() for log in self.each]
        first = parts[0]
        return Progress(
            steps=first.steps,
            total_steps=first.total_steps,
            ret=np.concatenate([p.ret for p in parts]),
            steps_per_second=sum(p.steps_per_second for p in parts),
            seconds_left=first.seconds_left,
            teacher_share=None if first.teacher_share is None else first.teacher_share * len(parts),
            seeds=tuple(seed for p in parts for seed in p.seeds),
            failed=tuple(seed for p in parts for seed in p.failed),
        )

    def failure(self) -> NonFiniteError:
        """When no seed of any point is left."""
        return self.each[0].failure()

    def results(self, params: Any) -> list[Result]:
        return [log.result(self.rows(params, k)) for k, log in enumerate(self.each)]

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """For a checkpoint, as `Log.state`; counters and arrays of point k are under its number."""
        states = [log.state() for log in self.each]
        counters = {"iterations": self.iterations, "points": [counters for counters, _ in states]}
        arrays = {f"{k}_{name}": x for k, (_, arrays) in enumerate(states) for name, x in arrays.items()}
        return counters, {"evaluated_at": states[0][1]["evaluated_at"], **arrays}

    def restore(self, counters: dict[str, Any], arrays: dict[str, Any]) -> None:
        """The inverse of `state`."""
        for k, (log, own) in enumerate(zip(self.each, counters["points"], strict=True)):
            prefix = f"{k}_"
            log.restore(own, {name.removeprefix(prefix): x for name, x in arrays.items() if name.startswith(prefix)})
