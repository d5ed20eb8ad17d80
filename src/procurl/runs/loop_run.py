"""The run folder of a curriculum in somebody else's loop: the same files as those of `procurl.train`.

The loop is not ours, so some things are missing: there are no weights (the student is not ours either), no losses, and
no end known beforehand. Everything else is there: what was taught, what came of it, evaluations, provenance. A run
whose process was killed goes on from its latest checkpoint when the script that began it makes the curriculum again.
"""

from __future__ import annotations

import atexit
import json
import weakref
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from procurl.errors import CheckpointError, ConfigError, NonFiniteError
from procurl.runs import provenance
from procurl.runs.evaluation import Scores
from procurl.runs.log import Log
from procurl.runs.store.checkpoint import RunFolder, open_run
from procurl.runs.store.result import Result
from procurl.runs.store.state import arranged, named
from procurl.runs.trace import FINITE, TASKS_KEPT, Trace
from procurl.types import Episodes, Task, Teacher

if TYPE_CHECKING:
    from procurl.runs.curriculum import Curriculum

NOTHING = (0, 0)
ENDLESS = 2**53  # steps: somebody else's loop ends when it ends


class LoopConfig:
    """What `Log` asks of a configuration. An iteration is an update of the teacher."""

    evaluate_every = 1

    def __init__(self, every: int) -> None:
        self.student, self.n_steps = self, every


class LoopLog(Log):
    """The log of a loop that itself reports how far it has come."""

    def __init__(self, teacher: Teacher, seed: int, every: int, description: dict[str, Any]) -> None:
        super().__init__(None, teacher, LoopConfig(every), (seed,), 0)  # type: ignore[arg-type]
        self._watch = None  # the curriculum has its own
        self.description, self.engine = description, "a loop of its own"
        self.steps_at: list[int] = []  # environment steps at each evaluation
        self._steps = 0

    @property
    def steps_done(self) -> int:
        return self._steps

    def updated(self, episodes: Episodes, summary: dict[str, float]) -> None:
        """After an update: the episodes since the one before, as NumPy arrays, and what is taught now."""
        self._steps += int(episodes.steps.sum())
        self._traces.append(trace_of(episodes, {**summary, "steps": self.steps_done}))
        self.iterations += 1

    def evaluated_at(self, steps: int, returns: np.ndarray, success: np.ndarray) -> None:
        self.steps_at.append(steps)
        row = [x.astype(np.float32)[None] for x in (returns, success, np.full(len(returns), np.nan))]
        self._evaluations.append((self.iterations, Scores(*row)))  # type: ignore[arg-type]

    @property
    def n_evaluated(self) -> int | None:
        """How many held-out tasks were played at each evaluation; None before the first."""
        return self._evaluations[0][1].ret.shape[1] if self._evaluations else None

    def rewind(self, updates: int) -> None:
        """Forget what came after so many updates: the loop goes on from an earlier state."""
        if updates > self.iterations:
            raise CheckpointError(
                f"this curriculum has had {updates} updates, and its folder knows of {self.iterations}: what happened "
                f"in between is not there. Use another folder"
            )
        kept = sum(at <= updates for at, _ in self._evaluations)
        self._traces, self._evaluations, self.steps_at = (
            self._traces[:updates], self._evaluations[:kept], self.steps_at[:kept],
        )  # fmt: skip
        self.iterations = len(self._traces)
        self._steps = int(self._traces[-1].values["steps"][0]) if self._traces else 0

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        counters, arrays = super().state()
        return {**counters, "steps_at": self.steps_at, "steps_done": self.steps_done}, arrays

    def restore(self, counters: dict[str, Any], arrays: dict[str, Any]) -> None:
        super().restore(counters, arrays)
        self.steps_at, self._steps = [int(s) for s in counters["steps_at"]], int(counters["steps_done"])

    def result(self, params: Any) -> Result:
        """If there was no evaluation, with one that is NaN: the run was never evaluated, and its report says so."""
        if self._evaluations:
            return self._result()
        self.evaluated_at(self.steps_done, np.array([np.nan]), np.array([np.nan]))
        whole = self._result()
        self._evaluations, self.steps_at = [], []
        return whole

    def _result(self) -> Result:
        scores = [s for _, s in self._evaluations]
        n_tasks = scores[0].ret.shape[1]
        held_out = self.teacher.space.held_out.arrays()
        timing: dict[str, Any] = {
            "began": self.began, "steps_per_second": None, "teacher_share_timed_alone": None,
            "saves": self.saves, "saving_seconds": round(self.saving_seconds, 3), "resumed_at_steps": [],
        }  # fmt: skip
        return Result(
            config={**self.description, "steps": max(self.steps_at[-1], 1)},
            provenance={"status": self.status, **provenance.software_and_hardware(), "engine": self.engine},
            timing=timing,
            seeds=np.array(self.seeds),
            steps=np.array(self.steps_at),
            task_ret=np.stack([s.ret for s in scores], axis=1),
            task_success=np.stack([s.success for s in scores], axis=1),
            held_out={k: np.asarray(v)[:n_tasks] for k, v in held_out.items()},
            trace=self._trace_arrays(),
            params={},
        )

    def _trace_arrays(self) -> dict[str, np.ndarray]:
        """With what the curriculum itself found out about its tasks, of which it sees more than are kept here."""
        arrays = super()._trace_arrays()
        for name, found in (
            ("effective_share", "effective_share"),
            ("box_distance", "target_distance"),
            ("steps", "steps"),
        ):
            if f"value_{found}" in arrays:
                arrays[name] = arrays.pop(f"value_{found}")
        return arrays


class LoopRun:
    """A run folder that a curriculum owns: opened with it, written while it goes on."""

    def __init__(self, curriculum: Curriculum, out: str | Path, save_share: float = 0.005) -> None:
        description = describe(curriculum)
        self.log = LoopLog(curriculum.teacher, curriculum.seed, curriculum.every, description)
        self._curriculum = weakref.ref(curriculum)
        self._open = ExitStack()
        folder = self._open.enter_context(open_run(out, {**description, "steps": ENDLESS}, "auto", save_share))
        assert isinstance(folder, RunFolder)
        self.folder, self.resumed = folder, folder.found is not None
        if folder.found:
            folder.restore(self, self.log)  # type: ignore[arg-type]
            self.log.status = "running"
        self._written = NOTHING  # updates and evaluations that the last result covers
        weakref.finalize(curriculum, self._open.close)
        atexit.register(_closed_at_exit, weakref.ref(self))

    # What `RunFolder` asks of an engine, whose carry is the curriculum itself.

    def saved(self, curriculum: Curriculum) -> dict[str, np.ndarray]:
        return named(curriculum.state_dict())

    def restored(self, tensors: dict[str, np.ndarray], where: str) -> None:
        curriculum = self._curriculum()
        assert curriculum is not None
        curriculum.load_state_dict(arranged(tensors, curriculum.state_dict(), where))

    def keep(self) -> None:
        """Save if it is time to."""
        self.folder.keep(self, self._curriculum(), self.log)  # type: ignore[arg-type]

    def save(self) -> None:
        """A checkpoint of this very moment."""
        self.folder.save(self, self._curriculum(), self.log)  # type: ignore[arg-type]

    def write(self, status: str) -> None:
        """The result so far, in place of an earlier one."""
        from procurl.runs.store import result

        self.log.status = status
        self.save()
        result.remove_result(self.folder.path)
        self.folder.finish([self.log.result({})])
        self.log.status = "running"
        self._written = self._so_far

    def close(self, status: str) -> None:
        if self._so_far not in (self._written, NOTHING) or status == "finished":
            self.write(status)
        self._open.close()

    @property
    def _so_far(self) -> tuple[int, int]:
        return self.log.iterations, len(self.log.steps_at)


def _closed_at_exit(run: Any) -> None:
    """A curriculum that was never closed was interrupted, unless its last result covers all that happened."""
    alive = run()
    if alive is not None and alive._curriculum() is not None and alive._curriculum()._run is alive:
        alive.close("interrupted")


def describe(curriculum: Curriculum) -> dict[str, Any]:
    """All that is known of a run in somebody else's loop, as plain JSON data."""
    teacher = provenance.describe_teacher(curriculum.teacher)
    options = {"n_steps": curriculum.every, "unit": curriculum.unit, "n_envs": curriculum.n_envs}
    row = {
        "setting": curriculum.teacher.space.name or None,
        "env": {"class": "a loop of its own"},
        **teacher,
        "action": {},
        "config": {"loop": options},
        "seeds": [curriculum.seed],
    }
    plain: dict[str, Any] = json.loads(json.dumps(row))
    return plain


def trace_of(episodes: Episodes, summary: dict[str, float]) -> Trace:
    """The record of an update, with a leading axis of one seed: the host's counterpart of `trace.traced`.

    An update here may span many more episodes, so tasks are kept from all along it, where `traced` keeps the first.
    """
    begun, ended = np.flatnonzero(episodes.started), np.asarray(episodes.finished)
    kept = begun[np.linspace(0, len(begun) - 1, TASKS_KEPT).astype(int)] if len(begun) > TASKS_KEPT else begun
    missing = TASKS_KEPT - len(kept)

    def tasks(x: Any, fill: float) -> Any:
        return np.concatenate([x[kept], np.full((missing, *x.shape[1:]), fill, x.dtype)])[None]

    def mean(x: Any) -> Any:
        return np.array([np.mean(x[ended]) if ended.any() else np.nan], np.float32)

    numbers: Any = {
        "task": Task(*(tasks(x, fill) for x, fill in zip(episodes.task[:3], (np.nan, -1, -1), strict=True))),
        "started": np.array([len(begun)], np.int32),
        "finished": np.array([ended.sum()], np.int32),
        **{f"train_{k}": mean(getattr(episodes, k)) for k in ("success", "length")},
        "train_return": mean(episodes.ret),
        "losses": {},
        "values": {k.removeprefix("value_"): np.array([v], np.float64) for k, v in summary.items()},
        "finite": np.ones((1, len(FINITE)), bool),
        "inside": np.ones(1, bool),
        "place": None,
    }
    return Trace(**numbers)


def checked_scores(returns: Any, success: Any, n_before: int | None, n_held_out: int) -> tuple[Any, Any]:
    """Returns and successes of held-out tasks, f32[n] each; the same tasks every time."""
    try:
        ret = np.asarray(returns, np.float64)
        won = np.full(ret.shape, np.nan) if success is None else np.asarray(success, np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"returns = {returns!r}: expected a number for each held-out task") from error
    if ret.ndim != 1 or not 1 <= len(ret) <= n_held_out or (n_before is not None and len(ret) != n_before):
        expected = f"{n_before}, as before" if n_before is not None else f"1 to {n_held_out}"
        raise ConfigError(
            f"returns of shape {ret.shape}: expected {expected}: one for each of the first tasks of space.held_out, in "
            f"order"
        )
    if won.shape != ret.shape:
        raise ConfigError(f"success of shape {won.shape}: expected {ret.shape}, one for each return")
    if not np.isfinite(ret).all():
        raise NonFiniteError(f"returns[{int(np.argmax(~np.isfinite(ret)))}] is not finite: nothing was recorded")
    return ret, won
