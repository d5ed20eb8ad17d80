"""The contract of environments outside of JAX: Gymnasium's own, and that an episode is a function of its task.

An environment *takes tasks* if `reset(options={"context": ..., "task_seed": ...})` begins that task, as
`procurl.integrations.gymnasium.TaskEnv` does. One that does not is checked as far as Gymnasium goes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.reduction import ForkingPickler  # what carries a maker to its process; nothing is loaded here
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from procurl.check.env import GAMMA, value_range_findings
from procurl.check.findings import Findings, told
from procurl.types import Continuous, HostEnv, TaskSpace

PATIENCE = 10_000  # steps after which an episode without a known end is given up
NO_SPEC = ("not having a spec", "different from the unwrapped version")  # remarks about our way of calling the checker


class Played(NamedTuple):
    """One episode with random actions."""

    obs: list[Any]
    reward: list[float]
    terminated: bool
    truncated: bool
    info: dict[str, Any]  # of the last step
    first_info: dict[str, Any]
    problems: list[str]


def host_findings(env: HostEnv, space: TaskSpace, steps: int) -> Findings:
    """An environment for `procurl.train` that worker processes play."""
    found = Findings()
    make: Callable[[], Any] | None = None
    with found.within("maker()"):
        make = env.maker()
    if make is None:
        return found
    try:
        ForkingPickler.dumps(make)
    except Exception as error:
        found.problem(
            f"what maker() returns cannot be sent to worker processes: {told(error)}; return a class, a function at "
            f"the top of a file, or functools.partial of one"
        )
    member = make()
    shape = getattr(member.observation_space, "shape", None)
    if shape != (env.obs_size,):
        found.problem(f"observation_space has shape {shape}: expected ({env.obs_size},), as obs_size says")
    if isinstance(env.action, Continuous):
        given = member.action_space
        bounds = (getattr(given, "shape", None), np.min(getattr(given, "low", 0)), np.max(getattr(given, "high", 0)))
        if bounds != ((env.action.size,), env.action.low, env.action.high):
            found.problem(f"action_space = {given}: expected a Box like action = {env.action}")
    found.add(gymnasium_findings(member, space, min(steps, env.max_steps), horizon=env.max_steps))
    return found


def gymnasium_findings(env: Any, space: TaskSpace | None, steps: int, horizon: int | None = None) -> Findings:
    """At most `steps` are played in an episode; `horizon` is the length that it must not exceed, where one is known."""
    found = Findings()
    takes_tasks = horizon is not None or env.has_wrapper_attr("set_next_task")
    tasks = _tasks(env, space) if takes_tasks else []
    if not takes_tasks:
        found.note(
            "it takes no tasks: wrap it in procurl.integrations.gymnasium.TaskEnv(env, space, apply), so that reset "
            "can be given a context"
        )
    _gymnasium(found, env, tasks)
    spec = getattr(env, "spec", None)
    horizon = horizon or getattr(spec, "max_episode_steps", None)
    try:
        _episodes(found, env, space, tasks, steps, horizon)
    except Exception as error:
        found.problem(f"playing an episode fails: {told(error)}")
    return found


def _tasks(env: Any, space: TaskSpace | None) -> list[dict[str, Any]]:
    """Options of `reset` for a few tasks, the space's two borders last; none if it takes no tasks."""
    bounds: Any = space
    for name in ("context_space", "_desk"):  # TaskEnv's, and that of procurl's own environments
        if bounds is None and env.has_wrapper_attr(name):
            bounds = env.get_wrapper_attr(name)
    if bounds is None:
        return []
    low, high = bounds.low, bounds.high
    low, high = np.nan_to_num(np.asarray(low), neginf=-1e3), np.nan_to_num(np.asarray(high), posinf=1e3)
    contexts: list[NDArray[np.float32]] = [(low + high) / 2, low, high]
    if space is not None:
        picked = [tasks.context[0] for tasks in (space.pool, space.targets, space.held_out)]
        borders = np.asarray(space.project(jnp.asarray(np.stack(contexts), jnp.float32)))
        contexts = [*map(np.asarray, picked), *borders]
    return [{"context": np.asarray(c, np.float32), "task_seed": 7, "task_row": -1} for c in contexts]


@contextmanager
def _remarks(found: Findings) -> Iterator[None]:
    """Gymnasium's warnings as notes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        text = " ".join(str(warning.message).split()).replace("\x1b[33m", "").replace("\x1b[0m", "")
        text = text.removeprefix("WARN: ")
        if not any(part in text for part in NO_SPEC):
            found.note(f"Gymnasium: {text}")


def _gymnasium(found: Findings, env: Any, tasks: list[dict[str, Any]]) -> None:
    """Gymnasium's own checker. It resets without options, so a task is made the default first."""
    from gymnasium.utils.env_checker import check_env

    try:
        with _remarks(found):
            if tasks:
                env.reset(seed=0, options=tasks[0])  # from here on the last context serves where none is named
            check_env(env, skip_render_check=True, skip_close_check=True)
    except Exception as error:
        found.problem(f"Gymnasium's checker refuses it: {told(error)}")


def _episodes(
    found: Findings, env: Any, space: TaskSpace | None, tasks: list[dict[str, Any]], steps: int, horizon: int | None
) -> None:
    limit = min(steps, horizon + 1 if horizon else PATIENCE)
    options: list[dict[str, Any] | None] = [*tasks] or [None]
    played = [_play(env, task, limit) for task in options]
    for episode in played:
        for text in episode.problems:
            found.problem(text)
    again = _play(env, options[0], limit)
    if not _same(played[0], again):
        found.problem(
            "the same task, seed and actions give another episode the second time: draw from self.np_random, which "
            "reset(seed=...) seeds, and set back in reset all that an episode changes"
        )
    ended = [e for e in played if e.terminated or e.truncated]
    if horizon and any(len(e.reward) > horizon for e in played):
        found.problem(f"an episode is longer than {horizon} steps, the most that there should be")
    elif not ended:
        found.note(f"no episode ended within {limit} steps: its end was not checked")
    if any(e.terminated and e.truncated for e in played):
        found.note("a step was terminated and truncated at once: terminated counts, its end is worth nothing more")
    if horizon and any(len(e.reward) == horizon and e.terminated and not e.truncated for e in played):
        found.note(f"an episode of {horizon} steps, the longest, was terminated: expected truncated where time is up")
    if tasks:
        _task_findings(found, env, tasks, played, limit)
    if space is not None and ended:
        ret = np.array([sum(e.reward) for e in ended])
        discounted = np.array([np.dot(e.reward, GAMMA ** np.arange(len(e.reward))) for e in ended])
        value_range_findings(found, space.value_range, ret, discounted)


def _task_findings(found: Findings, env: Any, tasks: list[dict[str, Any]], played: list[Played], limit: int) -> None:
    for task, episode in zip(tasks, played, strict=True):
        for when, info in (("reset", episode.first_info), ("step", episode.info)):
            named = info.get("context")
            if named is None:
                found.note(f"info of {when} does not name the task ('context', 'task_seed'): TaskEnv does so")
            elif not np.allclose(named, task["context"], rtol=1e-5, atol=1e-5):
                found.problem(f"info of {when} names the context {named}: expected {task['context']}, which was given")
    low, high = played[-2], played[-1]
    if not np.array_equal(tasks[-2]["context"], tasks[-1]["context"]) and _same(low, high):
        found.problem(
            f"the contexts {tasks[-2]['context'].tolist()} and {tasks[-1]['context'].tolist()} give the same episode: "
            f"the context has no effect. Does apply(env, context) set what the environment reads (env.unwrapped), and "
            f"does reset leave it as it is?"
        )
    elif not np.array_equal(tasks[-2]["context"], tasks[-1]["context"]) and _equal(low.obs[0], high.obs[0]):
        found.note(
            "the first observation is the same for every context: a student that does not see the context values all "
            "tasks alike; TaskEnv(..., observe=True) appends it, procurl.ReturnRegressor values tasks without"
        )
    outside = {**tasks[-1], "context": tasks[-1]["context"] + 2 * np.abs(tasks[-1]["context"]) + 1e4}
    try:
        env.reset(options=outside)
    except Exception:
        return  # refused, as it should be
    found.note(f"a context far outside the space, {outside['context'].tolist()}, is not refused")


def _play(env: Any, task: dict[str, Any] | None, limit: int) -> Played:
    """An episode with actions that are the same every time."""
    env.action_space.seed(0)
    problems: list[str] = []
    obs, first_info = env.reset(seed=11, options=None if task is None else dict(task))
    seen, rewards, info = [_copied(obs)], [], dict(first_info)
    terminated = truncated = False
    where = "" if task is None else f" (context {task['context'].tolist()})"
    for t in range(limit):
        obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
        seen.append(_copied(obs))
        rewards.append(float(reward))
        if not np.isfinite(rewards[-1]):
            problems.append(f"step {t}: the reward is {reward}{where}")
        if not _finite(obs):
            problems.append(f"step {t}: NaN or infinity in the observation{where}")
        if not env.observation_space.contains(obs):
            problems.append(f"an observation is not in observation_space = {env.observation_space}{where}")
        success = info.get("is_success", 0.0)
        if not 0 <= float(success) <= 1:
            problems.append(f"step {t}: info['is_success'] = {success}: expected 0 .. 1")
        if terminated or truncated or problems:
            break
    return Played(seen, rewards, bool(terminated), bool(truncated), info, first_info, problems)


def _copied(obs: Any) -> Any:
    return {k: _copied(v) for k, v in obs.items()} if isinstance(obs, dict) else np.array(obs)


def _finite(obs: Any) -> bool:
    if isinstance(obs, dict):
        return all(map(_finite, obs.values()))
    array = np.asarray(obs)
    return not np.issubdtype(array.dtype, np.floating) or bool(np.isfinite(array).all())


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_equal(a[k], b[k]) for k in a)
    return np.array_equal(a, b)


def _same(a: Played, b: Played) -> bool:
    return a.reward == b.reward and len(a.obs) == len(b.obs) and all(map(_equal, a.obs, b.obs))
