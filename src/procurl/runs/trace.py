"""The record of an iteration: means over its episodes, a few of the tasks, the place of the first NaN or infinity.

It is computed inside the compiled program, so that little has to leave the device. A seed with NaN or infinity has
failed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from procurl.students.replay import Experience
from procurl.students.rollout import Rollout
from procurl.teachers.ranged import RangedState
from procurl.types import Episodes, Task, TaskSpace

AT_END, LEARNABLE = 0.01, 0.05  # shares of the range of values: this near to an end, or this far from both
TASKS_KEPT = 16  # per iteration and seed: enough to draw a curriculum, small enough to keep for 256 seeds


# What is watched for NaN and infinity. A bad gradient is seen in the weights after the update. A teacher's state is
# watched for NaN only: infinity has its uses there (the logarithm of a weight of 0, say).
FINITE = ("reward", "observation", "value", "loss", "gradient", "teacher")


class Place(NamedTuple):
    """Where the first non-finite number appeared, in the order in which the steps were played."""

    step: Array  # i32  -1: in no step
    environment: Array  # i32  which of the N copies, -1 likewise
    task: Task  # of that step, or the first task outside the space, if there is one
    obs: Array  # f32[o]
    action: Array
    reward: Array  # f32
    value: Array  # f32


class Trace(NamedTuple):
    """One iteration, for the record. Means are over episodes; NaN where there was none."""

    task: Task  # the first TASKS_KEPT episodes that began (context NaN, seed and row -1 where fewer did)
    started: Array  # i32  episodes that began
    finished: Array  # i32  episodes that ended
    train_return: Array  # f32  mean return of the episodes that ended
    train_success: Array  # f32
    train_length: Array  # f32
    losses: dict[str, Array]  # f32 each, by name
    values: dict[str, Array]  # f32 each, see `value_numbers`; and the range, where it is learnt
    finite: Array  # bool[6]  see FINITE
    inside: Array  # bool  all tasks that began lie in the space
    place: Place | None  # for the diagnosis of a failure; not kept in the log
    asked: Array | None = None  # i32  environment steps played for the teacher alone, beside the student's own


class Played(NamedTuple):
    """What is watched of a student's T steps in N environments; a `Rollout` or `Experience` has it all."""

    obs: Any  # f32[T, N, o]
    action: Any  # [T, N, ...]
    reward: Any  # f32[T, N]
    value: Any  # f32[T, N]
    slot: Any  # i32[T, N]  the step's episode: its place in `Episodes`, -1 if that is not known


def traced(
    space: TaskSpace,
    episodes: Episodes,
    played: Played | Rollout | Experience,
    losses: Any,
    answers: Sequence[tuple[Task, Array]] = (),
    asked: Array | None = None,
    weights: Any = (),
    teacher: Any = (),
    by_number: bool = False,
) -> Trace:
    """`losses`: a named tuple of numbers. `weights`: the student's, and `teacher`: its state, after the iteration.

    `by_number`: the environment looks tasks up by their number, so that a task without one cannot be played.
    """
    value_range = teacher.range.ends if _learns(teacher) else space.value_range
    n = episodes.started.shape[0]
    kept = jnp.nonzero(episodes.started, size=TASKS_KEPT, fill_value=n)[0]

    def mean_finished(x: Array) -> Array:
        return jnp.sum(jnp.where(episodes.finished, x, 0.0)) / jnp.sum(episodes.finished)

    inside = jnp.all(space.inside(episodes.task.context), axis=1)
    if by_number:
        inside = inside & (episodes.task.row >= 0)
    astray = episodes.started & ~inside
    loss_sum = sum(jax.tree.leaves(losses), jnp.float32(0.0))
    finite = ((episodes.ret, played.reward), played.obs, played.value, loss_sum, weights)
    return Trace(
        task=_tasks_at(episodes.task, kept),
        started=jnp.sum(episodes.started),
        finished=jnp.sum(episodes.finished),
        train_return=mean_finished(episodes.ret),
        train_success=mean_finished(episodes.success.astype(jnp.float32)),
        train_length=mean_finished(episodes.length.astype(jnp.float32)),
        losses=losses._asdict(),
        values={**value_numbers(answers, value_range, space), **_learnt(teacher)},
        finite=jnp.stack([*(_all(jnp.isfinite, x) for x in finite), _all(lambda x: ~jnp.isnan(x), teacher)]),
        inside=~jnp.any(astray),
        place=_first_bad(episodes, played, astray),
        asked=asked,
    )


def value_numbers(
    answers: Sequence[tuple[Any, Any]], value_range: tuple[Any, Any] | None, space: TaskSpace, xp: Any = jnp
) -> dict[str, Any]:
    """What a teacher was told of the student's values, in a few numbers; nothing if it did not ask.

    mean, spread (standard deviation); the shares at or beyond the `low` and the `high` end of their range; and the
    shares of tasks of the pool and of other tasks (targets, most often) that can be learnt now. `xp`: NumPy, on
    the host.
    """
    if not answers or value_range is None:
        return {}
    value = xp.concatenate([given for _, given in answers])
    rows = xp.concatenate([tasks.row for tasks, _ in answers])
    of_pool = space.in_pool(rows)
    low, high = value_range
    share = (value - low) / (high - low)
    learnable = (share >= LEARNABLE) & (share <= 1 - LEARNABLE)

    def among(which: Any) -> Any:
        return xp.where(xp.any(which), xp.sum(learnable & which) / xp.maximum(xp.sum(which), 1), xp.nan)

    return {
        "mean": xp.mean(value),
        "spread": xp.std(value),
        "low": xp.mean(share <= AT_END),
        "high": xp.mean(share >= 1 - AT_END),
        "learnable_tasks": among(of_pool),
        "learnable_targets": among(~of_pool),
    }


def _learnt(teacher: Any) -> dict[str, Array]:
    """The range of values, where it is learnt."""
    return dict(zip(("range_low", "range_high"), teacher.range.ends, strict=True)) if _learns(teacher) else {}


def _learns(teacher: Any) -> bool:
    return isinstance(teacher, RangedState)


def is_sound(trace: Trace) -> np.ndarray:
    """Which seeds have not failed in an iteration, bool[S]."""
    return np.all(trace.finite, axis=1) & trace.inside


def stacked(traces: list[Trace]) -> dict[str, np.ndarray]:
    """The traces of a run as named arrays with leading axes (seed, iteration)."""
    both = jax.tree.map(lambda *x: np.stack(x, axis=1), *(trace._replace(values={}) for trace in traces))
    unknown = np.full(traces[0].finite.shape[:1], np.nan, np.float32)  # an earlier version did not look at values
    names = dict.fromkeys(name for trace in traces for name in trace.values)
    values = {f"value_{k}": np.stack([trace.values.get(k, unknown) for trace in traces], axis=1) for k in names}
    rows = {k: v for k, v in both._asdict().items() if isinstance(v, np.ndarray)}
    task = {f"task_{k}": v for k, v in both.task.arrays().items()}
    losses = {f"loss_{k}": v for k, v in both.losses.items()}
    return {**task, **rows, **losses, **values}


def unstacked(arrays: dict[str, Any], iterations: int) -> list[Trace]:
    """The inverse of `stacked`."""

    def part(prefix: str, i: int) -> dict[str, Any]:
        return {k.removeprefix(prefix): v[:, i] for k, v in arrays.items() if k.startswith(prefix)}

    def one(i: int) -> Trace:
        rest = {k: v[:, i] for k, v in arrays.items() if not k.startswith(("task_", "loss_", "value_"))}
        unwatched = len(FINITE) - rest["finite"].shape[1]  # an earlier version watched for less
        rest["finite"] = np.pad(rest["finite"], ((0, 0), (0, unwatched)), constant_values=True)
        return Trace(
            task=Task(**part("task_", i)), losses=part("loss_", i), values=part("value_", i), place=None, **rest
        )

    return [one(i) for i in range(iterations)]


def _all(test: Callable[[Array], Array], tree: Any) -> Array:
    """Whether all floating-point numbers of a tree pass; bool. In one row they need one test, which compiles faster."""
    numbers = [x.ravel() for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
    return jnp.all(test(jnp.concatenate(numbers))) if numbers else jnp.bool_(True)


def _first_bad(episodes: Episodes, played: Played | Rollout | Experience, astray: Array) -> Place:
    """Advantages are left out: computed backwards in time, they spread one bad reward over every step before it."""
    sound = jnp.isfinite(played.reward) & jnp.isfinite(played.value) & jnp.all(jnp.isfinite(played.obs), axis=-1)
    bad = ~sound.ravel()  # bool[T * N]
    first = jnp.argmax(bad)
    step, environment = jnp.divmod(first, sound.shape[1])
    slot = jnp.where(jnp.any(astray), jnp.argmax(astray), played.slot[step, environment])
    slot = jnp.where(slot < 0, episodes.started.shape[0], slot)  # beyond the end: no task

    return Place(
        step=jnp.where(bad[first], step, -1),
        environment=jnp.where(bad[first], environment, -1),
        task=_tasks_at(episodes.task, slot),
        obs=played.obs[step, environment],
        action=played.action[step, environment],
        reward=played.reward[step, environment],
        value=played.value[step, environment],
    )


def _tasks_at(tasks: Task, places: Array) -> Task:
    """Some of the tasks; NaN and -1 beyond the end."""
    fills = (jnp.nan, -1, -1)
    return Task(*(x.at[places].get(mode="fill", fill_value=fill) for x, fill in zip(tasks[:3], fills, strict=True)))
