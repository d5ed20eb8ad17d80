"""What is remembered of a run: a few numbers and a few tasks per iteration, and every evaluation.

`trace.py` reduces an iteration to its record inside the compiled program; `Log` gathers the records on the host.
Neither alters a run. A seed with NaN or infinity in its record has failed (`diagnosis.py`).
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.spatial

from procurl.config import Config
from procurl.errors import NonFiniteError
from procurl.presets import SETTINGS
from procurl.runs import provenance
from procurl.runs.diagnosis import blanked, blanked_trace, error_of, failure_in_evaluation, failure_in_trace
from procurl.runs.evaluation import Scores
from procurl.runs.idle import IdleWatch
from procurl.runs.store import failure
from procurl.runs.store.failure import Failure
from procurl.runs.store.result import Result
from procurl.runs.store.state import named
from procurl.runs.taught import Meter
from procurl.runs.trace import Trace, is_sound, stacked, unstacked
from procurl.teachers.base import says
from procurl.types import Env, HostEnv, Teacher

logger = logging.getLogger("procurl")

TAUGHT_OVER = 32  # iterations whose tasks are summed up together: a single one keeps too few
SEEDS_SUMMED_UP = 16  # while training


@dataclass(frozen=True)
class Progress:
    """What a callback sees after every chunk of iterations."""

    steps: int  # environment steps played by each seed
    total_steps: int
    ret: np.ndarray  # f32[S]  mean return of each seed on the held-out target tasks; NaN if it has failed
    steps_per_second: float  # all seeds together, evaluation included, compilation not
    seconds_left: float
    teacher_share: float | None  # of an iteration's time; the teacher's functions compiled and timed alone
    seeds: tuple[int, ...] = ()  # of `ret`; an engine that trains seeds one by one shows one at a time
    training: Trace | None = None  # the latest iteration of each seed, NumPy with a leading axis of seeds
    failed: tuple[int, ...] = ()  # seeds that have stopped: their numbers are NaN
    taught: dict[str, np.ndarray] = field(default_factory=dict)  # f64[S] by name, see `runs/taught.py`

    @property
    def mean_return(self) -> float:
        """Of the seeds that have not failed; NaN if there is none."""
        sound = self.ret[~np.isnan(self.ret)]
        return float(sound.mean()) if len(sound) else float("nan")


class Chunk(NamedTuple):
    """Wall time of the iterations between two evaluations, and of the evaluation after them."""

    iterations: int  # the run's first one is not among them: it compiles
    seconds: float
    evaluation_seconds: float


class Log:
    """Everything the host knows of a run while it goes on."""

    def __init__(
        self,
        env: Env | HostEnv,
        teacher: Teacher,
        config: Config,
        seeds: tuple[int, ...],
        n_iterations: int,
        title: str = "",
        origin: dict[str, Any] | None = None,
        strict: bool = False,
    ) -> None:
        """`title`: put before warnings, where there are several runs. `origin`: more for the provenance."""
        # The paper's presets idle until the first successes, and are known to do so.
        self._watch = None if teacher.space.name in SETTINGS else IdleWatch(teacher, strict)
        self.title, self.origin = title, origin or {}
        self.env, self.teacher, self.config, self.seeds = env, teacher, config, seeds
        self.n_iterations = n_iterations  # that its steps pay for, if none of them are played for the teacher alone
        self.plays = says(teacher, "plays")  # has the student play for the teacher alone
        self._asked = [0.0]  # steps of that kind after 0, 1, 2, ... iterations: the mean over the seeds
        self.iterations = 0
        self.status = "running"  # then finished, stopped, interrupted or failed
        self.chunks: list[Chunk] = []
        self.compile_seconds = 0.0  # up to the end of the first iteration, evaluation at step 0 included
        self.teacher_seconds: float | None = None
        self.resumed_at: list[int] = []  # iterations at which the run went on from a checkpoint
        self.saves = 0
        self.saving_seconds = 0.0
        self.failures: dict[int, Failure] = {}  # by the seed's place among the seeds, in the order of discovery
        self._traces: list[Trace] = []
        self._on_device: list[Trace] = []
        self._evaluations: list[tuple[int, Scores]] = []
        self._began = time.time()
        self._last_lap = time.perf_counter()
        self._iterating_seconds = 0.0
        self._untimed = 0  # iterations that are in no chunk: the first after a start compiles
        self._compiled = self._compiled_evaluation = False  # in this process

    @property
    def evaluation_is_due(self) -> bool:
        return self.is_due_after(self.iterations)

    def is_due_after(self, iterations: int) -> bool:
        """Evaluations are due every few iterations, counted from the start of the run wherever it was cut, and at its
        end.
        """
        if self._evaluations and self._evaluations[-1][0] == iterations:
            return False
        return iterations % self.config.evaluate_every == 0 or self.steps_after(iterations) >= self.total_steps

    def iterated(self, trace: Trace) -> None:
        self._on_device.append(trace)
        self.iterations += 1
        if isinstance(trace.finite, np.ndarray):  # already on the host
            self._gather()
        if not self._compiled:
            jax.block_until_ready(trace)
            self.compile_seconds += self._lap()
            self._compiled, self._untimed = True, self._untimed + 1

    def fetch(self) -> None:
        """Wait for the device, bring its traces to the host and see which seeds have failed."""
        self._gather()
        self._iterating_seconds = self._lap()

    def _gather(self) -> None:
        for on_device in self._on_device:
            trace = jax.tree.map(lambda x: np.asarray(x)[: len(self.seeds)], on_device)
            failed_before = self._failed
            for s in np.flatnonzero(~is_sound(trace)):
                if s not in self.failures:
                    where = self.seeds[s], len(self._traces), self.config.student.n_steps
                    self._stop(int(s), failure_in_trace(trace, int(s), *where))
            finite = blanked(failed_before, trace.finite, False)
            self._traces.append(blanked_trace(self._failed, trace._replace(finite=finite, place=None)))
            if self._watch is not None:
                self._look_at(self._watch, self._traces[-1])
        self._on_device = []

    def _look_at(self, watch: IdleWatch, trace: Trace) -> None:
        """All seeds together: a warning is about a curriculum that does nothing in any of them."""
        values = {k: float(np.nanmean(v)) for k, v in trace.values.items() if np.isfinite(v).any()}
        learnt = values.pop("range_low", 0.0), values.pop("range_high", 1.0)
        given = self.teacher.space.value_range or learnt
        tasks = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), trace.task)
        watch.saw(tasks, values, trace.train_return, given)

    @property
    def taught(self) -> dict[str, np.ndarray]:
        """Numbers about the latest tasks of each seed, f64[S]; NaN beyond the first few seeds, to save time."""
        latest = self._traces[-TAUGHT_OVER:]
        numbers = {name: np.full(len(self.seeds), np.nan) for name in ("effective_share", "target_distance")}
        for s in range(min(len(self.seeds), SEEDS_SUMMED_UP) if latest else 0):
            context, row = (np.concatenate([getattr(t.task, k)[s] for t in latest]) for k in ("context", "row"))
            for name, number in self._meter.summary(context, row).items():
                numbers[name][s] = number
        return numbers

    @cached_property
    def _meter(self) -> Meter:
        return Meter(self.teacher.space) if self._watch is None else self._watch.meter

    def _stop(self, s: int, found: Failure) -> None:
        """Nothing that a failed seed does from here on counts. The run has failed when no seed is left."""
        self.failures[s] = found
        left = len(self.seeds) - len(self.failures)
        others = f"{left} go on" if left else "and no other is left"
        logger.warning("%s%s. This seed stops, %s.", self.title and f"{self.title}, ", found, others)
        if left == 0:
            self.status = "failed"

    @property
    def _failed(self) -> np.ndarray:
        """bool[S]"""
        return np.isin(np.arange(len(self.seeds)), list(self.failures))

    def evaluated(self, scores: Scores) -> None:
        for s in np.flatnonzero(~np.isfinite(scores.ret).all(axis=1)):
            if s not in self.failures:
                where = self.seeds[s], self.iterations, self.config.student.n_steps
                self._stop(int(s), failure_in_evaluation(scores, int(s), self.teacher.space.held_out, *where))
        self._evaluations.append((self.iterations, Scores(*(blanked(self._failed, x) for x in scores))))
        seconds = self._lap()
        if not self._compiled_evaluation:
            self._compiled_evaluation, self.compile_seconds, seconds = True, self.compile_seconds + seconds, 0.0
        if self.iterations > 0:
            known = self._untimed + sum(chunk.iterations for chunk in self.chunks)
            self.chunks.append(Chunk(self.iterations - known, self._iterating_seconds, seconds))
        self._end_if_done()

    @property
    def _is_evaluated(self) -> bool:
        return bool(self._evaluations) and self._evaluations[-1][0] == self.iterations

    def _end_if_done(self) -> None:
        if self.status == "running" and self._is_evaluated and self.steps_done >= self.total_steps:
            self.status = "finished"

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """All of it, for a checkpoint: plain numbers and arrays."""
        failed, places = failure.flatten(self.failures.values())
        counters = {
            "failures": failed,
            "iterations": self.iterations,
            "began": self._began,
            "compile_seconds": self.compile_seconds,
            "teacher_seconds": self.teacher_seconds,
            "saves": self.saves,
            "saving_seconds": self.saving_seconds,
            "resumed_at": self.resumed_at,
            "chunks": [list(chunk) for chunk in self.chunks],
            "software": provenance.software_and_hardware(),
        }
        scores = [s for _, s in self._evaluations]
        arrays = {
            "evaluated_at": np.array([i for i, _ in self._evaluations]),
            **{f"score_{k}": np.stack([getattr(s, k) for s in scores], axis=1) for k in Scores._fields if scores},
            **{f"trace_{k}": v for k, v in (stacked(self._traces) if self._traces else {}).items()},
            **places,
        }
        return counters, arrays

    def restore(self, counters: dict[str, Any], arrays: dict[str, Any]) -> None:
        """The inverse of `state`, in a new process."""
        self.iterations = int(counters["iterations"])
        self._began = float(counters["began"])
        self.compile_seconds = float(counters["compile_seconds"])
        self.teacher_seconds = counters["teacher_seconds"]
        self.saves, self.saving_seconds = int(counters["saves"]), float(counters["saving_seconds"])
        self.resumed_at = [*counters["resumed_at"], self.iterations]
        self.chunks = [Chunk(*chunk) for chunk in counters["chunks"]]
        self._untimed = self.iterations - sum(chunk.iterations for chunk in self.chunks)
        self._evaluations = [
            (int(i), Scores(*(arrays[f"score_{k}"][:, e] for k in Scores._fields)))
            for e, i in enumerate(arrays["evaluated_at"])
        ]
        traces = {k.removeprefix("trace_"): v for k, v in arrays.items() if k.startswith("trace_")}
        self._traces, self._asked = unstacked(traces, self.iterations), [0.0]
        found = failure.unflatten(counters.get("failures", []), arrays, "the checkpoint")
        self.failures = {self.seeds.index(f.seed): f for f in found}
        if len(found) == len(self.seeds):
            self.status = "failed"
        self._end_if_done()
        self._lap()

    def timed_teacher(self, seconds: float) -> None:
        self.teacher_seconds = seconds
        self._lap()  # measuring is not training time

    def saved(self, seconds: float) -> None:
        self.saves += 1
        self.saving_seconds += seconds
        self._lap()  # not training time either

    def progress(self) -> Progress:
        steps_an_iteration = self.steps_done / self.iterations if self.iterations else self.config.student.n_steps
        iterations = sum(c.iterations for c in self.chunks)
        seconds = sum(c.seconds for c in self.chunks)
        evaluating = sum(c.evaluation_seconds for c in self.chunks)
        if iterations == 0:  # only the first iteration so far: its time, compilation included, is the best estimate
            iterations, seconds = 1, seconds + self.compile_seconds
        rate = iterations / (seconds + evaluating)
        return Progress(
            steps=self.steps_done,
            total_steps=self.total_steps,
            ret=np.mean(self._evaluations[-1][1].ret, axis=1),
            steps_per_second=rate * steps_an_iteration * len(self.seeds),
            seconds_left=max(self.total_steps - self.steps_done, 0) / steps_an_iteration / rate,
            teacher_share=None if self.teacher_seconds is None else self.teacher_seconds * iterations / seconds,
            seeds=self.seeds,
            training=self._traces[-1] if self._traces else None,
            failed=tuple(f.seed for f in self.failures.values()),
            taught=self.taught,
        )

    @property
    def failures_of_results(self) -> list[list[Failure]]:
        """For each of `results`."""
        return [list(self.failures.values())]

    def failure(self) -> NonFiniteError:
        """The error when no seed is left."""
        return error_of(self.failures.values(), self.teacher, len(self.seeds))

    def results(self, params: Any) -> list[Result]:
        """All the results of this run: one."""
        return [self.result(params)]

    def result(self, params: Any) -> Result:
        scores = [s for _, s in self._evaluations]
        now = self.progress()
        timing = {
            "began": self.began,
            "compile_seconds": round(self.compile_seconds, 3),
            "iterating_seconds": round(sum(c.seconds for c in self.chunks), 3),
            "evaluating_seconds": round(sum(c.evaluation_seconds for c in self.chunks), 3),
            "steps_per_second": round(now.steps_per_second, 1),
            "teacher_share_timed_alone": now.teacher_share,
            "saves": self.saves,
            "saving_seconds": round(self.saving_seconds, 3),
            "resumed_at_steps": [self.steps_after(i) for i in self.resumed_at],
        }
        return Result(
            config=provenance.describe(self.env, self.teacher, self.config, self.seeds, self.total_steps),
            provenance={"status": self.status, **provenance.software_and_hardware(), **self.origin},
            timing=timing,
            seeds=np.array(self.seeds),
            steps=np.array([self.steps_after(i) for i, _ in self._evaluations]),
            task_ret=np.stack([s.ret for s in scores], axis=1),
            task_success=np.stack([s.success for s in scores], axis=1),
            held_out={k: np.asarray(v) for k, v in self.teacher.space.held_out.arrays().items()},
            trace=self._trace_arrays(),
            params={k: blanked(self._failed, v) for k, v in named(params).items()},
            failures=tuple(self.failures.values()),
        )

    @property
    def began(self) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._began))

    @property
    def steps_done(self) -> int:
        """Environment steps played by each seed, see `steps_after`."""
        return self.steps_after(self.iterations)

    @property
    def total_steps(self) -> int:
        return self.n_iterations * self.config.student.n_steps

    def steps_after(self, iterations: int) -> int:
        """Environment steps of so many iterations. Those that the teacher asked for count as well, and seeds may have
        played different numbers of them: then it is the mean over the seeds, rounded.
        """
        if not self.plays:
            return iterations * self.config.student.n_steps
        self._gather()
        for trace in self._traces[len(self._asked) - 1 :]:
            self._asked.append(self._asked[-1] + (0.0 if trace.asked is None else float(np.mean(trace.asked))))
        return iterations * self.config.student.n_steps + round(self._asked[iterations])

    def _trace_arrays(self) -> dict[str, np.ndarray]:
        """Leading axes (seed, iteration)."""
        if not self._traces:
            return {}
        traces = stacked(self._traces)
        if self.plays:  # then each seed has its own count of steps
            asked = np.cumsum(traces["asked"], axis=1, dtype=np.int64)
            traces["steps"] = asked + self.config.student.n_steps * np.arange(1, asked.shape[1] + 1)
        targets = np.asarray(self.teacher.space.targets.context)
        traces["target_distance"] = distance_to_nearest(traces["task_context"], targets)
        return traces | self._meter.over_time(traces["task_context"], traces["task_row"], TAUGHT_OVER)

    def _lap(self) -> float:
        now = time.perf_counter()
        lap, self._last_lap = now - self._last_lap, now
        return lap


def distance_to_nearest(context: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Mean |context - nearest target| per dimension, f32[S, iterations, d], over the tasks kept (a fair sample)."""
    kept = np.isfinite(context[..., 0])
    _, nearest = scipy.spatial.cKDTree(targets).query(context[kept])
    gap = np.full(context.shape, np.nan, np.float32)
    gap[kept] = np.abs(context[kept] - targets[nearest])
    with np.errstate(invalid="ignore"):  # an iteration in which nothing began has no distance: 0 / 0
        return np.nansum(gap, axis=2) / kept.sum(axis=2, keepdims=True)
