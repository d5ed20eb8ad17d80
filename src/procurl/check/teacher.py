"""The contract of a teacher, under critics from sensible to absurd and records from plausible to extreme."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from procurl.check.findings import (
    Findings,
    close,
    differing_leaves,
    equal,
    is_same_when_traced_again,
    note_weak_types,
    require_pytree,
    told,
)
from procurl.check.space import task_problems
from procurl.loop import require_said
from procurl.programs import jit
from procurl.runs.store.state import load_state, save_state
from procurl.students.critic import Overheard
from procurl.teachers.ranged import in_range
from procurl.types import Episodes, Rollouts, Task, TaskSpace, Teacher


class _Imagined(NamedTuple):
    """A critic with an opinion but no student behind it. Its numbers are data: one compiled program serves all."""

    mixed: float
    constant: float
    slope: float

    def value(self, tasks: Task) -> Array:
        x = jnp.sum(tasks.context, axis=-1)
        return self.mixed * jax.nn.sigmoid(x) + self.constant + self.slope * x

    def play(self, key: Array, tasks: Task, k: int, when: Array | bool = True) -> Rollouts:
        value = jnp.where(when, self.value(tasks), 0.0)
        return Rollouts(value, jnp.clip(value, 0.0, 1.0), jnp.where(when, jnp.int32(k * value.shape[0]), 0))


CRITICS = {
    "mixed": _Imagined(1.0, 0.0, 0.0),
    "all failed": _Imagined(0.0, 0.0, 0.0),
    "all solved": _Imagined(0.0, 1.0, 0.0),
    "constant": _Imagined(0.0, 0.5, 0.0),
    "NaN": _Imagined(0.0, float("nan"), 0.0),
    "huge": _Imagined(0.0, 0.0, 1e30),
}


def teacher_findings(teacher: Teacher, n: int) -> Findings:
    found = Findings()
    for name in ("init", "propose", "observe"):
        if not callable(getattr(teacher, name, None)):
            found.problem(f"it has no method `{name}`: expected what procurl.types.Teacher lists")
    if found.problems or not require_pytree(found, teacher):
        return found
    if teacher.space.value_range is None:  # learnt in a run; here any will do
        teacher = in_range(teacher, (0.0, 1.0))
    key = jax.random.key(0)
    # One function object each for the program and for the second trace: JAX remembers those that it has seen.
    init = jit(lambda teacher, key: teacher.init(key))
    propose = jit(lambda teacher, state, key: teacher.propose(state, key, n))
    observe = jit(lambda teacher, state, key, episodes, critic: teacher.observe(state, key, episodes, critic))
    try:
        state = init(teacher, key)
    except Exception as error:
        found.problem(f"init(key) fails: {told(error)}")
        return found
    if not is_same_when_traced_again(init.trace(teacher, key), lambda t, k: t.init(k), teacher, key):
        found.problem("init gives another state for the same key")
    try:
        tasks = propose(teacher, state, key)
    except Exception as error:
        found.problem(f"propose(state, key, {n}) fails: {told(error)}")
        return found
    shape_problems = _shapes(teacher.space, tasks, n)
    if shape_problems:
        found.problem(shape_problems)
        return found
    check_state(found, "before anybody has played", teacher, state)
    _proposals(found, "before anybody has played", teacher.space, state, tasks)
    if not equal(tasks, propose(teacher, state, key)) or not is_same_when_traced_again(
        propose.trace(teacher, state, key), lambda t, s, k: t.propose(s, k, n), teacher, state, key
    ):
        found.problem("propose gives other tasks for the same state and key")
    with found.within("propose(state, key, 1)"):
        alone = jax.eval_shape(lambda teacher, state, key: teacher.propose(state, key, 1), teacher, state, key)
        if text := _shapes(teacher.space, alone, 1):
            found.problem(text)
    with (
        found.within("saving the state with procurl.save_state, and loading it,"),
        tempfile.TemporaryDirectory() as home,
    ):
        path = save_state(Path(home) / "state.safetensors", state)
        if not equal(state, load_state(path, state)):
            found.problem("the state is not the same after saving and loading it")
    _observe(found, teacher, state, key, propose, observe)
    with found.within("observe(state, key, episodes, critic)"):
        _declared(teacher, state, key, imagined_episodes(key, tasks))
    with found.within("init and propose under vmap"):
        _side_by_side(found, teacher, key, n)
    return found


def _observe(found: Findings, teacher: Teacher, state: Any, key: Array, propose: Any, observe: Any) -> None:
    for mood, critic in CRITICS.items():
        watched = state
        for turn in range(3):
            turn_key = jax.random.fold_in(key, turn)
            played = imagined_episodes(turn_key, propose(teacher, watched, key))
            after = _watched(found, f"critic {mood!r}", teacher, watched, key, played, critic, observe)
            if after is None:
                return  # the same for every critic
            with_others = observe(teacher, watched, key, _with_other_unplayed(played), critic)
            if not equal(after, with_others):
                found.problem(f"critic {mood!r}: proposals that were not played leave a trace in the state")
            if not equal(after, observe(teacher, watched, key, played, critic)):
                found.problem("observe gives another state for the same state, key and episodes")
            watched = after
            if mood != "NaN":
                check_state(found, f"critic {mood!r}", teacher, watched)
            _proposals(found, f"critic {mood!r}", teacher.space, watched, propose(teacher, watched, turn_key))
    played = imagined_episodes(key, propose(teacher, state, key))
    first = observe.trace(teacher, state, key, played, CRITICS["mixed"])
    if not is_same_when_traced_again(
        first, lambda t, s, k, e, c: t.observe(s, k, e, c), teacher, state, key, played, CRITICS["mixed"]
    ):
        found.problem("observe gives another state for the same state, key and episodes")
    after = observe.eval_shape(teacher, state, key, played, CRITICS["mixed"])
    note_weak_types(found, ("init", "observe"), state, after)
    for what, episodes in odd_records(played).items():
        watched = state
        for turn in range(2):
            after = _watched(found, what, teacher, watched, key, episodes, CRITICS["mixed"], observe)
            if after is None:
                return
            watched = after
            turn_key = jax.random.fold_in(key, turn)
            _proposals(found, what, teacher.space, watched, propose(teacher, watched, turn_key))


def _declared(teacher: Teacher, state: Any, key: Array, played: Episodes) -> None:
    """A teacher that has the student play, or withholds tasks from it, must say so, as in `loop.iteration`."""

    def steps_asked(teacher: Teacher, state: Any, played: Episodes) -> Array | None:
        critic = Overheard(CRITICS["mixed"], CRITICS["mixed"])  # type: ignore[arg-type]  # a player, imagined as well
        teacher.observe(state, key, played, critic)
        return critic.steps

    asked = jax.eval_shape(steps_asked, teacher, state, played)
    require_said(teacher, plays=asked is not None, withholds=played.task.learn is not None)


def _watched(
    found: Findings, what: str, teacher: Teacher, state: Any, key: Array, episodes: Episodes, critic: Any, observe: Any
) -> Any:
    """The next state, or None if it has another shape or there is none."""
    try:
        after = observe(teacher, state, key, episodes, critic)
    except Exception as error:
        found.problem(f"observe(state, key, episodes, critic) fails: {told(error)}")
        return None
    difference = differing_leaves(state, after)
    if difference:
        found.problem(f"{what}: observe returns a state of another shape than init: {difference}")
        return None
    return after


@jit
def odd_records(plausible: Episodes) -> dict[str, Episodes]:
    """Iterations that happen, though seldom; all of the same shapes."""
    nothing = jnp.zeros_like(plausible.steps)
    nobody = jnp.zeros_like(plausible.finished)
    zero = jnp.zeros_like(plausible.ret)
    huge = jnp.where(plausible.finished, jnp.float32(1e30), 0.0)
    unplayed = plausible._replace(
        ret=zero, length=nothing, steps=nothing, success=nobody, gae=zero, abs_gae=zero, started=nobody, finished=nobody
    )
    return {
        "no finished episode": plausible._replace(finished=nobody, success=nobody),
        "nothing played": unplayed,
        "one finished episode": plausible._replace(finished=nobody.at[0].set(True)),
        "episodes of one step": plausible._replace(
            length=jnp.minimum(plausible.length, 1), steps=jnp.minimum(plausible.steps, 1)
        ),
        "returns of 1e30": plausible._replace(ret=huge, gae=huge, abs_gae=huge),
        "returns of -1e30": plausible._replace(ret=-huge, gae=-huge, abs_gae=huge),
        "equal returns": plausible._replace(ret=jnp.where(plausible.finished, jnp.float32(0.5), 0.0)),
    }


def _side_by_side(found: Findings, teacher: Teacher, key: Array, n: int) -> None:
    def first_tasks(teacher: Teacher, k: Array) -> Task:
        return teacher.propose(teacher.init(k), k, n)

    keys = jax.random.split(key, 3)
    batched = jit(jax.vmap(first_tasks, in_axes=(None, 0)))(teacher, keys)
    alone = jit(first_tasks)(teacher, keys[1])
    if not close(jax.tree.map(lambda x: x[1], batched), alone):
        found.problem("vmap over keys changes what is proposed")


@partial(jit, static_argnames="n_running")
def imagined_episodes(key: Array, proposals: Task, n_running: int = 4) -> Episodes:
    """A plausible iteration: a few running episodes, about a third of the proposals played."""
    tasks = jax.tree.map(lambda x: jnp.concatenate([x[:n_running], x]), proposals)
    n = tasks.seed.shape[0]
    n_played = n_running + n // 3
    k_ret, k_gae, k_length = jax.random.split(key, 3)
    played = jnp.arange(n) < n_played
    finished = jnp.arange(n) < n_played - n_running
    success = jax.random.bernoulli(k_ret, 0.5, (n,)) & finished
    gae = jnp.where(played, jax.random.normal(k_gae, (n,)), 0.0)
    steps = jnp.where(played, jax.random.randint(k_length, (n,), 1, 50), 0)
    return Episodes(
        tasks, success.astype(jnp.float32), steps, steps, success, gae, jnp.abs(gae),
        started=played & (jnp.arange(n) >= n_running), finished=finished,
    )  # fmt: skip


@jit
def _with_other_unplayed(episodes: Episodes) -> Episodes:
    """The same record with other tasks in the places that were not played."""
    unplayed = episodes.steps == 0
    flip = jax.tree.map(lambda x: jnp.flip(x, axis=0), episodes.task)
    other = jax.tree.map(lambda a, b: jnp.where(unplayed.reshape(-1, *(1,) * (a.ndim - 1)), b, a), episodes.task, flip)
    return episodes._replace(task=other)


def _shapes(space: TaskSpace, tasks: Any, n: int) -> str | None:
    if not isinstance(tasks, Task):
        return f"propose({n}) gives {type(tasks).__name__}: expected a procurl.Task of {n} tasks"
    expected = [
        f"float32[{n}, {space.dim}]",
        f"int32[{n}]",
        f"int32[{n}]",
        *([f"bool[{n}]"] * (tasks.learn is not None)),
    ]
    found = tasks.arrays().values()
    given = [f"{x.dtype}{list(x.shape)}" if hasattr(x, "dtype") else type(x).__name__ for x in found]
    return None if given == expected else f"propose({n}) gives {', '.join(given)}: expected {', '.join(expected)}"


def check_state(found: Findings, when: str, teacher: Teacher, state: Any) -> None:
    """No NaN in it; and where a teacher gives the pool's tasks `probabilities(state)`, they are probabilities."""
    floats = [x for x in jax.tree.leaves(state) if jnp.issubdtype(jnp.asarray(x).dtype, jnp.floating)]
    if any(np.isnan(np.asarray(x)).any() for x in floats):
        found.problem(f"{when}: NaN in the state, which stops the seed: mark what is not known by a mask or infinity")
    if hasattr(teacher, "probabilities"):
        p = np.asarray(teacher.probabilities(state))
        if p.shape != (teacher.space.n_pool,):
            found.problem(f"{when}: probabilities of shape {p.shape}: expected ({teacher.space.n_pool},)")
        elif not (np.isfinite(p).all() and (p >= 0).all() and abs(float(p.sum()) - 1) < 1e-3):
            found.problem(
                f"{when}: probabilities from {p.min():g} to {p.max():g} with sum {p.sum():g}: expected none below 0, "
                f"and a sum of 1"
            )


def _proposals(found: Findings, when: str, space: TaskSpace, state: Any, tasks: Task) -> None:
    """Tasks of the space, and weights that are a distribution."""
    weights = getattr(state, "log_weights", None)
    if weights is not None:
        weights = np.asarray(weights)
        if np.isnan(weights).any() or np.isposinf(weights).any() or not np.isfinite(weights).any():
            what = "NaN" if np.isnan(weights).any() else "infinity" if np.isposinf(weights).any() else "only -infinity"
            found.problem(f"{when}: state.log_weights hold {what}: their softmax is not a distribution over the pool")
    if np.isnan(np.asarray(tasks.context)).any():
        found.problem(
            f"{when}: proposed contexts that are NaN: its weights over the pool are no distribution (NaN, one below 0, "
            f"or all of them 0), or its own contexts are NaN"
        )
        return
    for text in task_problems(f"{when}: proposed", tasks, space):
        found.problem(text)
    row = np.asarray(tasks.row)
    if (row < -1).any() or (row >= space.n_tasks).any():
        found.problem(f"{when}: proposed row {row.min()} .. {row.max()}: expected -1 .. {space.n_tasks - 1}")
    else:
        pooled = space.in_pool(row)
        if not np.array_equal(np.asarray(tasks.context)[pooled], np.asarray(space.pool.context)[row[pooled]]):
            found.problem(f"{when}: a proposal's context is not that of its row in the pool")
        seeds = np.asarray(space.pool.seed)[row[pooled]]
        if not space.fresh_seeds and not np.array_equal(np.asarray(tasks.seed)[pooled], seeds):
            found.problem(f"{when}: a proposal's seed is not that of its row in the pool, and fresh_seeds is False")
    if (np.asarray(tasks.seed) < 0).any():
        found.problem(f"{when}: proposed seeds below 0: expected 0 .. 2^31 - 1")
