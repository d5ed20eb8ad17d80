"""A curriculum for a loop of your own: the same teachers, with NumPy in and out and no knowledge of your agent.

    curriculum = procurl.Curriculum(teacher, seed=0)
    while training:
        task = curriculum.next()                              # 1. the teacher picks
        ret, length = play(task.context, task.seed)           # 2. the student plays
        curriculum.record(task, ret=ret, length=length)
        if curriculum.due:
            curriculum.observe(value=my_critic)               # 4. the teacher watches

Proposals, keys and records are those of `loop.py`, so from the same seed and the same episodes a host loop is offered
the same tasks as the JAX engine.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from procurl.check.contracts import require_teacher
from procurl.check.numbers import path, whole
from procurl.envs.host_tasks import HostTask
from procurl.errors import CheckpointError, ConfigError, NonFiniteError, cannot_play
from procurl.loop import begin_keys, evaluation_key, iteration_keys
from procurl.programs import jit
from procurl.runs.idle import IdleWatch
from procurl.runs.period import Period
from procurl.runs.provenance import describe_teacher
from procurl.runs.questions import Value, answer, asked_tasks, observe_answered
from procurl.runs.store.state import load_state, note, read_notes, save_state
from procurl.runs.trace import value_numbers
from procurl.teachers.base import says
from procurl.teachers.ranged import ranged
from procurl.types import Episodes, Task, Teacher

if TYPE_CHECKING:
    from procurl.runs.loop_run import LoopRun

LONGEST = 10_000_000  # the longest period: a task for every step is drawn in advance
ENOUGH, MOST_SUMMED_UP = 1000, 4096  # proposals that are summed up: at least, at most
LOOKED_AT = 10_000  # proposals from which weights are estimated


class Curriculum:
    """A teacher and its state, for any loop.

    Args:
        teacher: from `procurl.make_teacher`, or your own.
        seed: of the curriculum; the same seed and records give the same tasks.
        every: the period between two updates, the paper's N_pos.
        unit: of `every`: environment steps (of recorded episodes), or finished episodes.
        n_envs: how many episodes run side by side.
        out: folder for what happens, as `procurl.train` writes it, for `procurl report` and `plot`: tasks, returns,
            evaluations (`evaluated`). If it holds this curriculum already, that goes on from its latest checkpoint; the
            agent is yours to restore. Call `close` at the end, or use the curriculum in a `with` block.
        strict: a curriculum that does nothing for 20 updates (proposals like uniform draws, or values outside their
            range) is an error instead of a warning.
    """

    def __init__(
        self,
        teacher: Teacher,
        seed: int = 0,
        *,
        every: int = 5120,
        unit: Literal["steps", "episodes"] = "steps",
        n_envs: int = 1,
        out: str | os.PathLike[str] | None = None,
        strict: bool = False,
    ) -> None:
        require_teacher(teacher)
        if says(teacher, "plays"):
            raise cannot_play()
        seed = whole("seed", seed, 0, 2**32 - 1)
        every, n_envs = whole("every", every, 1, LONGEST), whole("n_envs", n_envs, 1, LONGEST)
        if unit not in ("steps", "episodes"):
            raise ConfigError(f"unit = {unit!r}: expected 'steps' or 'episodes'")
        self.teacher, self.seed, self.every, self.unit, self.n_envs = teacher, seed, every, unit, n_envs
        self._ranged = ranged(teacher)
        self._watch = IdleWatch(teacher, strict)
        self.summary: dict[str, float] = {}
        self.updates = 0
        # A task may be handed out while the episode before it still runs: environments that reset themselves need that.
        self._n_open = 2 * n_envs
        self._n_queue = every if unit == "steps" else every + self._n_open
        self._key = jax.random.key(seed)
        k_teacher, _, k_pick = begin_keys(self._key)
        self._state = _init(self._ranged, k_teacher)
        first = self._proposed(k_pick, n_envs), np.zeros(n_envs, np.float32), np.zeros(n_envs, np.int32)
        self._period = Period(first, self._queue(), self._n_open, {}, n_first=n_envs)
        self._run: LoopRun | None = None
        if out is not None:
            self.write_to(out)

    @property
    def due(self) -> bool:
        """Whether it is time to call `observe`."""
        done = self.episodes.steps.sum() if self.unit == "steps" else self.episodes.finished.sum()
        return bool(done >= self.every)

    def next(self) -> HostTask:
        """The next task to play."""
        if self._period.is_used_up:
            raise ConfigError(
                f"{self._n_queue} tasks were handed out since the last update, as many as can be played until the next "
                f"one: call observe(), and check that episodes are recorded. To look at more tasks without playing "
                f"them: curriculum.preview({self._n_queue + 1})"
            )
        return self._period.hand_out()

    def record(
        self,
        task: HostTask | Task,
        *,
        ret: float,
        length: int,
        success: bool = False,
        advantage: float | None = None,
        abs_advantage: float | None = None,
        finished: bool = True,
    ) -> None:
        """What came of a task that `next` handed out.

        Args:
            task: as it was handed out.
            ret: return of the whole episode.
            length: its number of steps.
            success: whether it reached its goal.
            advantage: mean advantage over its steps since the last update; PLR requires it.
            abs_advantage: mean absolute advantage, by which PLR and Robust PLR score; |advantage| if not given.
            finished: False for an episode that goes on beyond the next update.
        """
        row = self._period.find(task)
        if advantage is None and getattr(self.teacher, "reads_advantages", False):
            raise ConfigError(f"{type(self.teacher).__name__} scores tasks by advantages: record(..., advantage=...)")
        self._period.record(row, ret, length, success, finished, 0.0 if advantage is None else advantage, abs_advantage)

    def withdraw(self, task: HostTask | Task) -> None:
        """Give up a task that was handed out: it will not be played to its end."""
        self._period.handed[self._period.find(task)] = False

    def replay(self, task: HostTask | Task) -> None:
        """Start over a task that is being played: what its first attempt has brought so far is forgotten.

        For agents whose environments cannot be saved in the middle of an episode.
        """
        self._period.start_over(self._period.find(task))

    @property
    def asks_for_values(self) -> bool:
        """Whether this teacher needs `observe(value=...)`."""
        return bool(asked_tasks.eval_shape(self._ranged, self._state, self._key, _device(self.episodes)))

    def observe(self, value: Value | None = None) -> None:
        """Let the teacher watch, and start the next period.

        Args:
            value: the student's values of tasks: takes a `Task` of NumPy arrays (context f32[n, d], seed and row
                i32[n]) and returns n numbers in units of return. Not needed where the teacher asks for none.
        """
        *_, k_watch = iteration_keys(self._key, self.updates)
        watching = self._ranged, self._state, k_watch, _device(self.episodes)
        asked = asked_tasks(*watching)
        if value is not None and not callable(value):
            raise ConfigError(f"value = {value!r}: expected a function of tasks, or a procurl.ReturnRegressor")
        if asked and value is None:
            raise ConfigError(f"{type(self.teacher).__name__} asks for the student's values: call observe(value=...)")
        on_host = [_host(tasks) for tasks in asked]
        answers = [answer(value, tasks) for tasks in on_host] if value is not None else []
        self._state, meant = jax.block_until_ready(observe_answered(*watching, answers))
        if not jax.tree.all(jax.tree.map(np.array_equal, asked, meant)):
            raise ConfigError(
                f"{type(self.teacher).__name__} asks for the values of tasks that depend on values it has just been "
                f"given: on the host it must ask for all of them at once"
            )
        self.updates += 1
        played = self.episodes
        running, holders = self._period.running()
        self._period = Period(running, self._queue(), self._n_open, holders)
        self._sum_up(list(zip(on_host, answers, strict=False)), played.ret[np.asarray(played.finished)])
        if self._run is not None:
            self._run.log.updated(played, self.summary)
            self._run.keep()

    def write_to(self, out: str | os.PathLike[str]) -> None:
        """Own this folder from here on: see `out`."""
        from procurl.runs.loop_run import LoopRun

        if self._run is not None or self.updates:
            raise ConfigError(f"out = {out}: this curriculum {'has a folder' if self._run else 'has begun'} already")
        self._run = LoopRun(self, path("out", out))

    def evaluated(self, step: int, returns: Any, success: Any = None) -> None:
        """Returns on held-out tasks after so many environment steps, for the run folder.

        Args:
            step: environment steps so far.
            returns: of the first n tasks of `space.held_out`, in order; the same n every time.
            success: of each, 0 to 1, where that is known.
        """
        from procurl.runs.loop_run import checked_scores

        if self._run is None:
            raise ConfigError("evaluated: there is no folder to write to: procurl.Curriculum(..., out=FOLDER)")
        log = self._run.log
        step = whole("step", step, log.steps_at[-1] if log.steps_at else 0)
        log.evaluated_at(
            step, *checked_scores(returns, success, log.n_evaluated, len(self.teacher.space.held_out.seed))
        )

    def trained_by(self, program: str) -> None:
        """Note in the folder, for people, which program trains."""
        if self._run is not None:
            self._run.log.engine = program

    @property
    def is_resumed(self) -> bool:
        """Whether it goes on from the checkpoint of a folder."""
        return self._run is not None and self._run.resumed

    @property
    def has_folder(self) -> bool:
        return self._run is not None

    def checkpoint(self) -> None:
        """Save a checkpoint of this moment to the folder, if there is one."""
        if self._run is not None:
            self._run.save()

    def write(self, status: str = "finished") -> None:
        """Write the result so far to the folder, which is then complete; the curriculum may go on all the same."""
        if self._run is not None:
            self._run.write(status)

    def close(self, status: str = "finished") -> None:
        """The same for the last time. Without a folder, nothing happens."""
        run, self._run = self._run, None
        if run is not None:
            run.close(status)

    def __enter__(self) -> Curriculum:
        return self

    def __exit__(self, kind: Any, *error: Any) -> None:
        self.close("finished" if kind is None else "interrupted")

    def _sum_up(self, answers: list[Any], returns: Any) -> None:
        """What the teacher was told and what it proposes now, in a few numbers; and whether that is a curriculum."""
        proposed = jax.tree.map(lambda x: x[:MOST_SUMMED_UP], self._period.queue)
        if len(proposed.seed) < ENOUGH:
            proposed = self.preview(ENOUGH)
        meter, value_range = self._watch.meter, self.value_range
        numbers = value_numbers(answers, value_range, self.teacher.space, np)
        values = {k: float(v) for k, v in numbers.items()}
        self.summary = {
            **meter.summary(proposed.context, proposed.row),
            **{f"value_{k}": v for k, v in values.items()},
        }
        self._watch.saw(proposed, values, returns, value_range)

    @property
    def value_range(self) -> tuple[float, float]:
        """The smallest and largest return: as the space gives them, or as learnt so far."""
        if self.teacher.space.value_range is not None:
            return self.teacher.space.value_range
        low, high = _ends(self._state.range)
        return float(low), float(high)

    def preview(self, n: int = 1000) -> Any:
        """n tasks that would be proposed now, as a `Task` of NumPy arrays; nothing is used up or changed by looking."""
        n = whole("n", n, 1, LONGEST)
        return self._proposed(jax.random.fold_in(evaluation_key(self._key, self.updates), 1), n)

    def weights(self) -> np.ndarray:
        """The probability that each task of the pool is proposed now, f64[n]; estimated where tasks are invented."""
        teacher, state = self.teacher, self._state.inner if self._ranged is not self.teacher else self._state
        exact = getattr(teacher, "log_weights", None)
        if exact is not None or hasattr(state, "log_weights"):
            logits = np.asarray(_log_weights(teacher, state) if exact is not None else state.log_weights, np.float64)
            weights = np.exp(logits - logits.max())
            return weights / weights.sum()
        tasks = self.preview(LOOKED_AT)
        return self._watch.meter.weights(tasks.context, tasks.row)

    def _queue(self) -> Any:
        """Proposals for the next period."""
        k_pick, *_ = iteration_keys(self._key, self.updates)
        return self._proposed(k_pick, self._n_queue)

    def _proposed(self, key: Array, n: int) -> Any:
        tasks = _host(_propose(self._ranged, self._state, key, n))
        if np.isnan(tasks.context).any():
            raise NonFiniteError(
                f"{type(self.teacher).__name__} proposed contexts that are NaN after {self.updates} updates: its "
                f"weights over the pool are no distribution, or its own contexts are NaN. Try procurl.check_teacher."
            )
        return tasks

    # --- saving ---

    @property
    def episodes(self) -> Episodes:
        """The episodes of this period so far, as NumPy arrays: those that were running, then the queue in order."""
        return self._period.episodes  # type: ignore[no-any-return]

    def state_dict(self) -> dict[str, Any]:
        """All that determines what comes next, as a tree of arrays."""
        period = self._period
        return {
            "teacher": self._state, "episodes": period.episodes, "earlier": period.earlier, "handed": period.handed,
            "counters": np.array([self.updates, period.row], np.int32),
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of `state_dict`, in a curriculum that was made in the same way."""
        self._state = jax.tree.map(jnp.asarray, state["teacher"])
        period = self._period
        period.episodes, period.earlier, period.handed = jax.tree.map(
            lambda x: np.array(x), (state["episodes"], state["earlier"], state["handed"])
        )
        self.updates, period.row = (int(x) for x in state["counters"])
        period.n_first, period.holders = (0 if self.updates else self.n_envs), {}
        if self._run is not None:
            self._run.log.rewind(self.updates)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it to one file, as a whole or not at all. Its folder gets a checkpoint, lest the record lag behind."""
        self.checkpoint()
        return save_state(path, self.state_dict(), curriculum=json.dumps(self.description()))

    def load(self, path: str | os.PathLike[str]) -> None:
        """Go on from a file. One that belongs to another teacher, space or seed is refused."""
        from procurl.runs.store.descriptions import differing, listed

        there = note(path, read_notes(path), "curriculum")
        if not isinstance(there, dict):
            raise CheckpointError(f"{path} holds no curriculum")
        differences = differing(there, self.description())
        if differences:
            raise CheckpointError(
                f"{path} is of another curriculum; nothing was loaded. It differs:\n{listed(differences)}"
            )
        self.load_state_dict(load_state(path, like=self.state_dict()))

    def description(self) -> dict[str, Any]:
        """What it was made of, as plain JSON data: curricula with equal ones can go on from each other's state."""
        own = {"seed": self.seed, "every": self.every, "unit": self.unit, "n_envs": self.n_envs}
        return {**describe_teacher(self.teacher), **own}


_init = jit(lambda teacher, key: teacher.init(key))
_ends = jit(lambda seen: seen.ends)
_log_weights = jit(lambda teacher, state: teacher.log_weights(state))
_propose = jit(lambda teacher, state, key, n: teacher.propose(state, key, n), static_argnums=3)


def _host(task: Task) -> Any:
    """A `Task` of NumPy arrays."""
    return jax.tree.map(np.array, task)


def _device(episodes: Episodes) -> Episodes:
    """A copy: JAX on a CPU may keep using a NumPy array's memory, and ours will be overwritten."""
    return jax.tree.map(lambda x: jnp.array(x, copy=True), episodes)
