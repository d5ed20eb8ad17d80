"""The vocabulary of procurl: what a teacher, a student and an environment say to each other.

Read this file after `loop.py`. Everything here is data or a protocol; nothing here computes.
Four facts shape it:

1. A task is (context, seed). `reset(task)` depends on the task alone, so V(task) is well defined.
2. Propose reads, observe writes: proposals that are never played leave no trace.
3. The critic belongs to `observe`; `propose` is a plain sampler that works before any critic exists.
4. Episode records carry their own task, so a return cannot be paired with a neighbour's context.

Shapes: T steps, N environments, n tasks, d context dimensions, S seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from procurl.errors import ConfigError
from procurl.programs import pytree


class Task(NamedTuple):
    """One task, or a batch of tasks along a leading axis."""

    context: Array  # f32[..., d]  what teachers reason about
    seed: Array  # i32[...]  which instance of the context (a layout, a start position)
    row: Array  # i32[...]  its number in the space (`TaskSpace.numbered`): its place in the pool; -1: an invented task
    learn: Array | None = None  # bool[...]  False: it is played, but the student does not learn from it; None: it does

    def arrays(self) -> dict[str, Array]:
        """The fields that are there, by name."""
        return {name: x for name, x in self._asdict().items() if x is not None}


class Episodes(NamedTuple):
    """What happened in one iteration: first the N episodes already running, then the n proposals in order.

    The length N + n is fixed; `steps == 0` marks a proposal that was not played.
    """

    task: Task
    ret: Array  # f32  return of the episode so far, earlier iterations included
    length: Array  # i32  steps of the episode so far, earlier iterations included
    steps: Array  # i32  steps played in this iteration
    success: Array  # bool
    gae: Array  # f32  mean advantage over this iteration's steps
    abs_gae: Array  # f32  mean absolute advantage over this iteration's steps
    started: Array  # bool  began in this iteration
    finished: Array  # bool  ended in this iteration


class Rollouts(NamedTuple):
    """What became of tasks that a teacher had the student play."""

    ret: Array  # f32[n]  mean return of each task's episodes
    success: Array  # f32[n]  share of them that succeeded
    steps: Array  # i32  environment steps that they took, all together


class Step(NamedTuple):
    """The outcome of one environment step."""

    obs: Array  # f32[o]
    reward: Array  # f32
    terminated: Array  # bool  the episode is over and worth nothing more
    truncated: Array  # bool  the episode was cut; the student bootstraps from `obs`
    success: Array  # bool


class Continuous(NamedTuple):
    """Actions in [low, high]^size; the environment clips what lies outside."""

    size: int
    low: float
    high: float


class Discrete(NamedTuple):
    """Actions 0 .. size - 1."""

    size: int


class Env(Protocol):
    """A task family as pure functions: no automatic reset and no curriculum inside."""

    obs_size: int
    action: Continuous | Discrete
    max_steps: int  # no episode is longer
    truncates: bool  # False promises that no step is ever `truncated`

    def reset(self, task: Task) -> tuple[Any, Array]:
        """The first state and observation of one task: a function of the task alone."""
        ...

    def step(self, key: Array, state: Any, action: Array) -> tuple[Any, Step]:
        """The next state and what the student sees of it."""
        ...


@runtime_checkable
class HostEnv(Protocol):
    """A task family outside of JAX, played by worker processes (`procurl.runs.host`)."""

    obs_size: int
    action: Continuous | Discrete
    max_steps: int  # no episode is longer

    def maker(self) -> Callable[[], Any]:
        """A function that makes a Gymnasium environment which takes tasks by `reset(options=...)`, as
        `procurl.integrations.gymnasium.TaskEnv` does. It is sent to other processes, so it must be picklable, and an
        episode must be a function of its task and actions alone.
        """
        ...


class TargetDistribution(Protocol):
    """The paper's mu: where the final skill is measured."""

    def sample(self, key: Array, n: int) -> Task:
        """n independent target tasks, not projected into the space."""
        ...


@pytree
@dataclass(frozen=True, eq=False)
class TaskSpace:
    """The tasks of a setting. Pool, targets and held-out tasks are drawn once and shared by all seeds."""

    low: Array  # f32[d]
    high: Array  # f32[d]
    pool: Task  # n training tasks, the paper's C_unif
    targets: Task  # samples of mu for the teacher, the paper's C_targ
    held_out: Task  # samples of mu for evaluation only
    names: tuple[str, ...] = field(metadata={"static": True})  # of the context's dimensions
    target: TargetDistribution = field(metadata={"static": True})  # mu itself
    value_range: tuple[Any, Any] | None = field(  # (V_min, V_max); None: learnt from what is played
        default=(0.0, 1.0), metadata={"static": True}
    )
    fresh_seeds: bool = field(default=False, metadata={"static": True})  # every proposal is a new instance
    fixed_tests: bool = field(default=False, metadata={"static": True})  # even then, held-out tasks stay the same
    snap: Callable[[Array], Array] | None = field(default=None, metadata={"static": True})  # to a discrete set
    name: str = field(default="", metadata={"static": True})  # of the setting, where it has one
    units: tuple[float, ...] | None = field(  # of distance, one length per dimension; None: contexts as they are
        default=None, metadata={"static": True}
    )
    labels: tuple[str, ...] = field(default=(), metadata={"static": True})  # tasks without distances: context = index
    similarity: Callable[[Array, Array], Array] | None = field(  # K(contexts, targets), where a space brings its own
        default=None, metadata={"static": True}
    )

    @property
    def dim(self) -> int:
        return len(self.names)

    @property
    def n_pool(self) -> int:
        return self.pool.seed.shape[-1]

    @property
    def n_tasks(self) -> int:
        """The size of pool, targets and held-out tasks together; the numbers in `numbered` are below it."""
        return self.n_pool + self.targets.seed.shape[-1] + self.held_out.seed.shape[-1]

    def numbered(self) -> TaskSpace:
        """The same space with a number for every task: first the pool's, then the targets, then the held-out tasks.

        Tasks that already have one (targets that are in the pool) keep it. An environment can thus look up what belongs
        to a task, e.g. its map of walls in an array with `n_tasks` rows.
        """

        def from_number(first: int, tasks: Task) -> Task:
            given = np.asarray(tasks.row)
            row = np.where(given < 0, first + np.arange(len(given)), given)
            return tasks._replace(row=jnp.asarray(row.astype(np.int32)))

        targets, held_out = from_number(self.n_pool, self.targets), self.held_out
        return replace(self, targets=targets, held_out=from_number(self.n_pool + len(targets.row), held_out))

    def in_pool(self, rows: Any) -> Any:
        """Which of these numbers belong to tasks in the pool."""
        return (rows >= 0) & (rows < self.n_pool)

    def lookup(self, numbers: Array) -> Task:
        """The tasks that have these numbers, the inverse of `numbered`; -1 gives NaN."""
        found = jax.tree.map(lambda *x: jnp.concatenate(x)[numbers], self.pool, self.targets, self.held_out)
        return found._replace(context=jnp.where(numbers[:, None] < 0, jnp.nan, found.context), row=numbers)

    def label(self, context: Any) -> str:
        """The label of one context, in a space made by `procurl.categorical_space`: for your own `apply` function."""
        if not self.labels:
            raise ConfigError(
                "label: this space's tasks have numbers, no labels; make it with procurl.categorical_space"
            )
        given = np.asarray(context, np.float64)
        nearest = np.ceil(given.reshape(-1) - 0.5)  # half-way goes to the lower one, as in `snap`
        if given.size != 1 or not 0 <= nearest[0] < len(self.labels):  # NaN fails every comparison
            raise ConfigError(
                f"context = {given.tolist()}: expected one number from 0 to {len(self.labels) - 1}, a label's index"
            )
        return self.labels[int(nearest[0])]

    def inside(self, context: Any) -> Array:
        """Which components of contexts, f32[..., d], lie within bounds up to rounding, bool[..., d]; NaN never does."""
        tolerance = 1e-5 * (self.high - self.low)
        return (context >= self.low - tolerance) & (context <= self.high + tolerance)

    def project(self, context: Array) -> Array:
        """Any context -> the nearest playable one."""
        inside = jnp.clip(context, self.low, self.high)
        return inside if self.snap is None else self.snap(inside)

    @property
    def known_range(self) -> tuple[Any, Any]:
        """(V_min, V_max): the given range, or the one learnt so far (`teachers/ranged.py`)."""
        if self.value_range is None:
            raise ConfigError(
                "value_range = None: it is learnt in procurl.train and procurl.Curriculum. To call a teacher's own "
                "methods, give task_space(..., value_range=(smallest, largest return))"
            )
        return self.value_range

    def scaled(self, context: Array) -> Array:
        """Contexts in the units in which distances are measured, f32[..., d]."""
        return context if self.units is None else (context - self.low) / jnp.array(self.units, jnp.float32)

    def unscaled(self, place: Array) -> Array:
        """The inverse of `scaled`."""
        return place if self.units is None else self.low + place * jnp.array(self.units, jnp.float32)

    def sample_target(self, key: Array, n: int) -> Task:
        """n playable tasks from the target distribution."""
        task = self.target.sample(key, n)
        return task._replace(context=self.project(task.context))

    def from_pool(self, key: Array, rows: Array) -> Task:
        """The pool's tasks in `rows`, each a new instance where the setting asks for that. Row -1 gives NaN."""
        context = jnp.where(rows[:, None] < 0, jnp.nan, self.pool.context[rows])
        task = Task(context, self.pool.seed[rows], rows.astype(jnp.int32))
        return task._replace(seed=random_seeds(key, rows.shape)) if self.fresh_seeds else task


class Values(Protocol):
    """Anything that can say what tasks are worth to a student."""

    def value(self, tasks: Task) -> Array:
        """The student's estimate of the return from each task's first observation, f32[n], raw."""
        ...


class Critic(Values, Protocol):
    """All that a teacher may ask of a student."""

    def play(self, key: Array, tasks: Task, k: int, when: Array | bool = True) -> Rollouts:
        """k fresh episodes of each task, with the student as it is; it learns nothing from them.

        The steps count like all others: the run's budget pays for them, and its curves show it. Where `when` is False
        nothing is played, and all numbers are 0; use it instead of `lax.cond`, which would hide the steps from the
        run. A teacher that plays declares it, `plays: ClassVar[bool] = True`: only environments in JAX can do that.
        """
        ...


class Teacher(Protocol):
    """A curriculum strategy: a frozen dataclass of hyper-parameters with pure functions of an explicit state."""

    @property
    def space(self) -> TaskSpace: ...

    def init(self, key: Array) -> Any:
        """The state before anything has been played."""
        ...

    def propose(self, state: Any, key: Array, n: int) -> Task:
        """A queue of n tasks. Reads the state and never changes it."""
        ...

    def observe(self, state: Any, key: Array, episodes: Episodes, critic: Critic) -> Any:
        """The state after an iteration's episodes."""
        ...


def random_seeds(key: Array, shape: tuple[int, ...]) -> Array:
    """Fresh instance numbers for tasks."""
    return jax.random.randint(key, shape, 0, 2**31 - 1, dtype=jnp.int32)
