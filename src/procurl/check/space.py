"""The contract of a task space: bounds, tasks, the target distribution and the projection agree with each other."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from procurl.check.findings import Findings, equal
from procurl.check.numbers import LARGEST, real
from procurl.devices import require_32_bits
from procurl.errors import ConfigError, SpaceError
from procurl.types import Task, TaskSpace

MOST_TASKS = 2**22  # PLR's draws have 32 bits: with more tasks, some could never be drawn
N_DRAWN = 64  # of the target distribution
KINDS = ("pool", "targets", "held_out")


def require_space(space: TaskSpace) -> None:
    """Shapes and bounds: cheap for a million tasks."""
    require_task_space(space)
    basic_findings(space).raise_problems(name_of(space), SpaceError)


def require_task_space(space: TaskSpace) -> None:
    require_32_bits()
    if not isinstance(space, TaskSpace):
        raise ConfigError(f"space = {space!r}: expected a task space, of procurl.make(NAME) or procurl.task_space(...)")


def name_of(space: TaskSpace) -> str:
    return f"task space {space.name!r}" if space.name else "task space"


def basic_findings(space: TaskSpace) -> Findings:
    """The part that is cheap for a million tasks: shapes and bounds."""
    found = Findings()
    low, high = np.asarray(space.low), np.asarray(space.high)
    if low.shape != (space.dim,) or high.shape != (space.dim,):
        found.problem(f"low has shape {low.shape} and high {high.shape}: expected ({space.dim},), as there are names")
    elif not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
        found.problem(f"low = {low} and high = {high}: expected finite bounds with low <= high")
    elif (np.abs(low) > LARGEST).any() or (np.abs(high) > LARGEST).any():
        found.problem(f"low = {low} and high = {high}: expected numbers of at most {LARGEST:g}, as they have 32 bits")
    if not _is_value_range(space.value_range):
        found.problem(
            f"value_range = {space.value_range!r}: expected (V_min, V_max), two numbers with V_min < V_max, different "
            f"in 32 bits, or None to have it learnt"
        )
    last = len(space.labels) - 1
    if space.labels and (space.dim != 1 or low.tolist() != [0] or high.tolist() != [last]):
        found.problem(
            f"{len(space.labels)} labels with low = {low} and high = {high}: expected [0] and [{last}], as a context "
            f"is a label's index; procurl.categorical_space makes such a space"
        )
    if not found.problems:
        for name in KINDS:
            for text in task_problems(name, getattr(space, name), space):
                found.problem(text)
    return found


def _is_value_range(given: Any) -> bool:
    if given is None:
        return True  # learnt
    try:
        v_min, v_max = (real("value", v) for v in given)
    except (TypeError, ValueError):  # a ConfigError is one
        return False
    return bool(np.float32(v_min) < np.float32(v_max))


def task_problems(what: str, tasks: Task, space: TaskSpace) -> list[str]:
    """A batch of tasks that is malformed, empty or out of bounds."""
    context = np.asarray(tasks.context)
    if context.ndim != 2 or context.shape[1] != space.dim:
        return [f"{what}.context has shape {context.shape}: expected (number of tasks, {space.dim})"]
    if len(context) == 0:
        return [f"the {what} is empty: expected at least one task"]
    if len(context) > MOST_TASKS:
        return [f"the {what} has {len(context):,} tasks: expected at most {MOST_TASKS:,}, as draws have 32 bits"]
    if np.shape(tasks.seed) != (len(context),) or np.shape(tasks.row) != (len(context),):
        return [f"{what}: {len(context)} contexts, but seed {np.shape(tasks.seed)} and row {np.shape(tasks.row)}"]
    bad = ~np.asarray(space.inside(context))
    if not bad.any():
        return []
    row, k = np.argwhere(bad)[0]
    low, high = float(space.low[k]), float(space.high[k])
    return [
        f"{what} task {row}: {space.names[k]} = {context[row, k]:g} lies outside [{low:g}, {high:g}] "
        f"({bad.any(axis=1).sum()} of {len(context)} tasks do): widen the bounds, or clip with space.project"
    ]


def space_findings(space: TaskSpace) -> Findings:
    """The whole contract."""
    found = basic_findings(space)
    _names(found, space)
    if found.problems:
        return found
    for name in KINDS:
        tasks = getattr(space, name)
        kinds = [str(jnp.result_type(x)) for x in tasks[:3]]
        if kinds != ["float32", "int32", "int32"]:
            found.problem(f"{name} has context, seed and row of {', '.join(kinds)}: expected float32, int32, int32")
    if not np.array_equal(space.pool.row, np.arange(space.n_pool)):
        found.problem("pool.row: expected 0, 1, 2, ...: a task's row is its place in the pool")
    for name in ("target", "snap", "value_range", "labels", "similarity"):
        with found.within(f"hash({name}), which compiled programs are looked up by,"):
            hash(getattr(space, name))
    with found.within("target.sample(key, n)"):
        _target(found, space)
    with found.within("project"):
        _projection(found, space)
    if space.similarity is not None:
        with found.within("similarity(contexts, targets)"):
            _similarity(found, space)
    _doubtful(found, space)
    return found


def _names(found: Findings, space: TaskSpace) -> None:
    if not isinstance(space.names, tuple) or not all(isinstance(n, str) and n for n in space.names):
        found.problem(f"names = {space.names!r}: expected a tuple of names, one per dimension of the context")
    elif len(set(space.names)) < len(space.names):
        found.problem(f"names = {space.names}: expected different ones")
    if not all(isinstance(n, str) and n for n in space.labels) or len(set(space.labels)) < len(space.labels):
        found.problem(f"labels = {space.labels}: expected different names")


def _target(found: Findings, space: TaskSpace) -> None:
    """mu is a function of the key that draws contexts of the right shape, mostly inside the space."""
    key = jax.random.key(0)
    drawn = space.target.sample(key, N_DRAWN)
    context = np.asarray(drawn.context)
    if context.shape != (N_DRAWN, space.dim) or not np.isfinite(context).all():
        found.problem(
            f"target.sample(key, {N_DRAWN}) draws contexts of shape {context.shape}, finite: "
            f"{bool(np.isfinite(context).all())}; expected ({N_DRAWN}, {space.dim}), finite"
        )
        return
    if not equal(drawn, space.target.sample(key, N_DRAWN)):
        found.problem("target.sample draws something else the second time: expected a function of key and n alone")
    width = np.maximum(np.asarray(space.high) - np.asarray(space.low), 1e-30)
    moved = np.abs(np.asarray(space.sample_target(key, N_DRAWN).context) - context) / width
    share = (moved > 0.1).any(axis=1).mean()
    if share > 0.5:
        k = int(np.argmax(moved.max(axis=0)))
        found.note(
            f"{100 * share:.0f} % of what the target distribution draws lies far outside the space and is moved into "
            f"it, along {space.names[k]}: are the bounds too narrow?"
        )


def _projection(found: Findings, space: TaskSpace) -> None:
    """Contexts from anywhere become playable ones, and playable ones stay."""
    low, high = np.asarray(space.low), np.asarray(space.high)
    width = high - low
    anywhere = jnp.asarray(np.stack([low - width, low, low + 0.3 * width, high, high + width]), jnp.float32)
    once = space.project(anywhere)
    for text in task_problems("project(context) of", _as_tasks(once), space):
        found.problem(text)
    if not np.allclose(once, space.project(once), rtol=1e-5, atol=1e-6):
        found.problem("project moves contexts that it has just returned: expected playable ones to stay")
    for name in KINDS:
        context = np.asarray(getattr(space, name).context)
        playable = np.asarray(space.project(jnp.asarray(context)))
        moved = ~np.isclose(playable, context, rtol=1e-5, atol=1e-5 * width)
        if moved.any():
            row = int(np.argmax(moved.any(axis=1)))
            found.problem(
                f"{name} task {row}, {context[row].tolist()}, is moved by project to "
                f"{playable[row].tolist()}: expected the space's own tasks to be playable"
            )


def _similarity(found: Findings, space: TaskSpace) -> None:
    """K of a few tasks and targets."""
    assert space.similarity is not None
    tasks, targets = space.pool.context[:5], space.targets.context[:3]
    table = np.asarray(space.similarity(tasks, targets))
    if table.shape != (len(tasks), len(targets)) or not np.isfinite(table).all():
        found.problem(
            f"similarity of {len(tasks)} tasks and {len(targets)} targets has shape {table.shape}, finite: "
            f"{bool(np.isfinite(table).all())}; expected ({len(tasks)}, {len(targets)}), finite"
        )


def _as_tasks(context: Any) -> Task:
    number = jnp.arange(len(context), dtype=jnp.int32)
    return Task(context, number, number)


def _doubtful(found: Findings, space: TaskSpace) -> None:
    """What may be intended, but is often a slip."""
    low, high = np.asarray(space.low), np.asarray(space.high)
    for k in np.flatnonzero(low == high):
        found.note(
            f"{space.names[k]} has low = high = {low[k]:g}: it never varies, and a teacher learns nothing from it"
        )
    pool, held_out = (_identities(space, getattr(space, name)) for name in ("pool", "held_out"))
    twice = len(pool) - len(set(pool))
    if twice and not (space.labels and len(set(Counter(pool).values())) == 1):  # labels, all equally often: as intended
        found.note(f"{twice} of {len(pool)} tasks of the pool are there before: equal tasks are drawn more often")
    if not space.fresh_seeds:
        known = set(pool)
        seen = sum(task in known for task in held_out)
        if seen:
            found.note(
                f"{seen} of {len(held_out)} held-out tasks are in the pool too: they measure what was trained on"
            )
    targets = space.targets
    if _as_many(targets, space.held_out) and equal(targets[:2], space.held_out[:2]):
        found.note("held_out holds the very tasks of targets: evaluation measures what the teacher reasons with")
    rows = np.asarray(targets.row)
    pooled = (rows >= 0) & (rows < space.n_pool)
    if not np.array_equal(np.asarray(space.pool.context)[rows[pooled]], np.asarray(targets.context)[pooled]):
        found.note("targets.row names tasks of the pool with other contexts: expected -1 for tasks from elsewhere")


def _as_many(a: Task, b: Task) -> bool:
    return np.shape(a.context) == np.shape(b.context)


def _identities(space: TaskSpace, tasks: Task) -> list[bytes]:
    """A task is its context and seed; where every episode has a new seed, its context alone."""
    context = np.ascontiguousarray(np.asarray(tasks.context, np.float32)) + np.float32(0)  # -0 is 0
    if space.fresh_seeds:
        return [row.tobytes() for row in context]
    return [row.tobytes() + seed.tobytes() for row, seed in zip(context, np.asarray(tasks.seed), strict=True)]
