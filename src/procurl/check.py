"""Contracts, as functions anybody can call on their own classes: `check_space`, `check_env`, `check_teacher`.

Each gathers every finding and raises one error that lists them; silence means the contract holds. `train` calls
the cheap part (`require_fit`) before it starts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from procurl.arguments import LARGEST, real
from procurl.config import Config
from procurl.errors import ConfigError, ProcurlError, SpaceError
from procurl.types import Continuous, Env, Episodes, HostEnv, Task, TaskSpace, Teacher

MOST_TASKS = 2**22  # a uniform draw of 32 bits has twice as many values: with more tasks, some could never be drawn


class CheckError(ProcurlError, AssertionError):
    """A class that does not keep its contract."""


def require_kinds(env: Any, teacher: Any, config: Any, callback: Any = None) -> None:
    """The parts of a run are what they should be: a name or a class in place of an object is a common slip."""
    require_teacher(teacher)
    require_env(env)
    if not isinstance(config, Config):
        raise ConfigError(f"config = {config!r}: expected procurl.Config(...), or procurl.preset(NAME)")
    if callback is not None and not callable(callback):
        raise ConfigError(f"callback = {callback!r}: expected a function of one argument, a procurl.Progress")


def require_env(env: Any) -> None:
    if isinstance(env, type) or not (isinstance(env, HostEnv) or (hasattr(env, "reset") and hasattr(env, "step"))):
        raise ConfigError(f"env = {env!r}: expected an environment, e.g. the first of procurl.make(NAME)")


def require_teacher(teacher: Any) -> None:
    methods = all(hasattr(teacher, name) for name in ("init", "propose", "observe"))
    if isinstance(teacher, type) or not methods or not isinstance(getattr(teacher, "space", None), TaskSpace):
        raise ConfigError(f"teacher = {teacher!r}: expected a teacher, e.g. procurl.make_teacher(NAME, space)")


def require_fit(env: Env | HostEnv, teacher: Teacher) -> None:
    """What must hold before training: a sound task space, and an environment that plays it."""
    check_space(teacher.space)
    if isinstance(env, HostEnv):
        return  # its own processes will say
    task = jax.tree.map(lambda x: x[0], teacher.space.pool)
    obs = jax.eval_shape(env.reset, task)[1]
    if obs.shape != (env.obs_size,) or obs.dtype != jnp.float32:
        raise CheckError(
            f"{type(env).__name__}.reset gives an observation {obs.dtype}{list(obs.shape)}, "
            f"but obs_size says float32[{env.obs_size}]"
        )


def check_space(space: TaskSpace) -> None:
    """Bounds, pool, targets and held-out tasks agree with each other."""
    if not isinstance(space, TaskSpace):
        raise ConfigError(f"space = {space!r}: expected a task space, of procurl.make(NAME) or procurl.task_space(...)")
    low, high = np.asarray(space.low), np.asarray(space.high)
    findings = []
    if low.shape != (space.dim,) or high.shape != (space.dim,):
        findings.append(f"low has shape {low.shape} and high {high.shape}: expected ({space.dim},), as there are names")
    elif not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
        findings.append(f"low = {low} and high = {high}: expected finite bounds with low <= high")
    elif (np.abs(low) > LARGEST).any() or (np.abs(high) > LARGEST).any():
        findings.append(f"low = {low} and high = {high}: expected numbers of at most {LARGEST:g}, as they have 32 bits")
    findings += _value_range_findings(space.value_range)
    if not findings:
        for name in ("pool", "targets", "held_out"):
            findings += _task_findings(name, getattr(space, name), space.names, low, high)
    _raise_if(findings, f"task space {space.name!r}" if space.name else "task space", SpaceError)


def _value_range_findings(value_range: Any) -> list[str]:
    try:
        v_min, v_max = (real("value", v) for v in value_range)
        if np.float32(v_min) < np.float32(v_max):
            return []
    except (TypeError, ValueError):  # a ConfigError is one
        pass
    return [
        f"value_range = {value_range!r}: expected (V_min, V_max) with V_min < V_max, two numbers that differ in 32 bits"
    ]


def _task_findings(what: str, tasks: Task, names: tuple[str, ...], low: Any, high: Any) -> list[str]:
    context = np.asarray(tasks.context)
    if context.ndim != 2 or context.shape[1] != len(names):
        return [f"{what}.context has shape {context.shape}: expected (number of tasks, {len(names)})"]
    if len(context) == 0:
        return [f"the {what} is empty: expected at least one task"]
    if len(context) > MOST_TASKS:
        return [f"the {what} has {len(context):,} tasks: expected at most {MOST_TASKS:,}, as draws have 32 bits"]
    if np.shape(tasks.seed) != (len(context),) or np.shape(tasks.row) != (len(context),):
        return [f"{what}: {len(context)} contexts, but seed {np.shape(tasks.seed)} and row {np.shape(tasks.row)}"]
    tolerance = 1e-5 * (high - low)
    bad = ~np.isfinite(context) | (context < low - tolerance) | (context > high + tolerance)
    if not bad.any():
        return []
    row, k = np.argwhere(bad)[0]
    return [
        f"{what} task {row}: {names[k]} = {context[row, k]:g} lies outside [{low[k]:g}, {high[k]:g}] "
        f"({bad.any(axis=1).sum()} of {len(context)} tasks do): widen the bounds, or clip with space.project"
    ]


def check_env(env: Env, space: TaskSpace, steps: int = 50) -> None:
    """Reset is a function of the task, step is pure, outcomes are finite, and nothing breaks under jit and vmap."""
    require_env(env)
    check_space(space)
    findings = []
    n = min(8, space.n_pool)
    tasks = jax.tree.map(lambda x: x[:n], space.pool)
    reset, step = jax.jit(jax.vmap(env.reset)), jax.jit(jax.vmap(env.step))
    state, obs = reset(tasks)
    if obs.shape != (n, env.obs_size) or obs.dtype != jnp.float32:
        findings.append(f"reset gives observations {obs.dtype}{list(obs.shape)}: expected float32[{n}, {env.obs_size}]")
    if not _equal(reset(tasks), (state, obs)):
        findings.append("reset gives something else the second time: it must be a function of the task alone")
    if not _equal(jax.tree.map(lambda x: x[0], (state, obs)), env.reset(jax.tree.map(lambda x: x[0], tasks))):
        findings.append("reset of one task differs from the same task in a batch")

    shape: tuple[int, ...] = (n, env.action.size) if isinstance(env.action, Continuous) else (n,)
    length = np.zeros(n, int)
    alive = np.ones(n, bool)
    for t in range(min(steps, env.max_steps)):
        k_act, k_env = jax.random.split(jax.random.key(t))
        if isinstance(env.action, Continuous):
            action = jax.random.uniform(k_act, shape, minval=env.action.low, maxval=env.action.high)
        else:
            action = jax.random.randint(k_act, shape, 0, env.action.size)
        keys = jax.random.split(k_env, n)
        new_state, outcome = step(keys, state, action)
        if not _equal(step(keys, state, action), (new_state, outcome)):
            findings.append(f"step {t} gives something else the second time: it must be a function of its arguments")
        for name in ("obs", "reward"):
            if not np.isfinite(np.asarray(getattr(outcome, name))[alive]).all():
                findings.append(f"step {t}: NaN or infinity in {name}")
        if jax.tree.map(jnp.shape, new_state) != jax.tree.map(jnp.shape, state):
            findings.append("step returns a state of another shape than reset")
        if np.any(np.asarray(outcome.truncated)) and not env.truncates:
            findings.append(f"step {t} was truncated, but the class says truncates = False")
        length += alive
        alive &= ~(np.asarray(outcome.terminated) | np.asarray(outcome.truncated))
        state = new_state
        if findings:
            break
    if alive.any() and steps >= env.max_steps:
        findings.append(f"an episode is longer than max_steps = {env.max_steps}")
    _raise_if(findings, type(env).__name__, CheckError)


class _Imagined(NamedTuple):
    """A critic with an opinion but no student behind it. Its numbers are data: one compiled program serves all."""

    mixed: float
    constant: float
    slope: float

    def value(self, tasks: Task) -> Array:
        x = jnp.sum(tasks.context, axis=-1)
        return self.mixed * jax.nn.sigmoid(x) + self.constant + self.slope * x


CRITICS = {
    "mixed": _Imagined(1.0, 0.0, 0.0),
    "all failed": _Imagined(0.0, 0.0, 0.0),
    "all solved": _Imagined(0.0, 1.0, 0.0),
    "constant": _Imagined(0.0, 0.5, 0.0),
    "NaN": _Imagined(0.0, float("nan"), 0.0),
    "huge": _Imagined(0.0, 0.0, 1e30),
}


def check_teacher(teacher: Teacher, n: int = 64) -> None:
    """The contract of `procurl.types.Teacher`, under critics from sensible to absurd."""
    require_teacher(teacher)
    check_space(teacher.space)
    findings = []
    key = jax.random.key(0)
    init = jax.jit(lambda teacher, key: teacher.init(key))
    propose = jax.jit(lambda teacher, state, key: teacher.propose(state, key, n))
    state = init(teacher, key)
    tasks = propose(teacher, state, key)
    findings += _proposal_findings("before anybody has played", teacher.space, tasks, n)
    if not _equal(tasks, propose(teacher, state, key)):
        findings.append("propose gives other tasks for the same state and key")

    observe = jax.jit(lambda teacher, state, key, episodes, critic: teacher.observe(state, key, episodes, critic))
    for mood, critic in CRITICS.items():
        watched = state
        for turn in range(3):
            played = imagined_episodes(jax.random.fold_in(key, turn), propose(teacher, watched, key))
            after = observe(teacher, watched, key, played, critic)
            if jax.tree.map(jnp.shape, after) != jax.tree.map(jnp.shape, watched):
                findings.append(f"critic {mood!r}: observe returns a state of another shape than init")
                break
            if not _equal(after, observe(teacher, watched, key, _with_other_unplayed(played), critic)):
                findings.append(f"critic {mood!r}: proposals that were not played leave a trace in the state")
            watched = after
            findings += _proposal_findings(
                f"critic {mood!r}", teacher.space, propose(teacher, watched, jax.random.fold_in(key, turn)), n
            )

    keys = jax.random.split(key, 3)
    batched = jax.jit(jax.vmap(lambda k: teacher.propose(teacher.init(k), k, n)))(keys)
    alone = jax.jit(lambda k: teacher.propose(teacher.init(k), k, n))(keys[1])
    if not _close(jax.tree.map(lambda x: x[1], batched), alone):
        findings.append("vmap over keys changes what is proposed")
    _raise_if(sorted(set(findings), key=findings.index), type(teacher).__name__, CheckError)


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


def _with_other_unplayed(episodes: Episodes) -> Episodes:
    """The same record with other tasks in the places that were not played."""
    unplayed = episodes.steps == 0
    flip = jax.tree.map(lambda x: jnp.flip(x, axis=0), episodes.task)
    other = jax.tree.map(lambda a, b: jnp.where(unplayed.reshape(-1, *(1,) * (a.ndim - 1)), b, a), episodes.task, flip)
    return episodes._replace(task=other)


def _proposal_findings(when: str, space: TaskSpace, tasks: Task, n: int) -> list[str]:
    if tasks.context.shape != (n, space.dim) or tasks.seed.shape != (n,) or tasks.row.shape != (n,):
        shapes = jax.tree.map(jnp.shape, tasks)
        return [f"{when}: propose({n}) gives shapes {shapes}: expected ({n}, {space.dim}), ({n},), ({n},)"]
    low, high = np.asarray(space.low), np.asarray(space.high)
    findings = _task_findings(f"{when}: proposed", tasks, space.names, low, high)
    row = np.asarray(tasks.row)
    if (row < -1).any() or (row >= space.n_pool).any():
        findings.append(f"{when}: proposed row {row.min()} .. {row.max()}: expected -1 .. {space.n_pool - 1}")
    else:
        pooled = row >= 0
        contexts = np.asarray(space.pool.context)[row[pooled]]
        if not np.array_equal(np.asarray(tasks.context)[pooled], contexts):
            findings.append(f"{when}: a proposal's context is not that of its row in the pool")
    return findings


def _equal(a: Any, b: Any) -> bool:
    return all(np.array_equal(x, y, equal_nan=True) for x, y in zip(_leaves(a), _leaves(b), strict=True))


def _close(a: Any, b: Any) -> bool:
    return all(np.allclose(x, y, rtol=1e-5, atol=1e-6) for x, y in zip(_leaves(a), _leaves(b), strict=True))


def _leaves(tree: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(tree)]


def _raise_if(findings: list[str], what: str, error: type[ProcurlError]) -> None:
    if findings:
        raise error(f"{what} has {len(findings)} problem(s):\n" + "\n".join(f"  - {f}" for f in findings))
