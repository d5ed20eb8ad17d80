"""The contract of an environment in JAX: pure functions of the task, with fixed shapes and episodes that end in time.

Random actions are played on a few tasks of every kind: from the pool, the targets, the held-out ones, and at the
borders of the space, where things break first.
"""

from __future__ import annotations

from collections.abc import Callable
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
    kind,
    note_weak_types,
    require_pytree,
    told,
)
from procurl.programs import jit
from procurl.types import Continuous, Discrete, Env, Step, Task, TaskSpace

GAMMA = 0.99  # the students' default: value_range is about discounted returns
LARGE = 1e3  # observations beyond this learn badly: the networks take them as they are
FIELDS: dict[str, Any] = {"obs_size": int, "action": (Continuous, Discrete), "max_steps": int, "truncates": bool}
STEP_KINDS = {"reward": "float32", "terminated": "bool", "truncated": "bool", "success": "bool"}


def env_findings(env: Env, space: TaskSpace, steps: int | None) -> Findings:
    found = Findings()
    missing = [name for name in (*FIELDS, "reset", "step") if not hasattr(env, name)]
    for name in missing:
        found.problem(f"it has no `{name}`: expected what procurl.types.Env lists")
    for name, expected in FIELDS.items():
        value = getattr(env, name, None)
        if name not in missing and not isinstance(value, expected):
            names = " or ".join(t.__name__ for t in (expected if isinstance(expected, tuple) else (expected,)))
            found.problem(f"{name} = {value!r}: expected {names}")
    if found.problems:
        return found
    if min(env.obs_size, env.max_steps, env.action.size) < 1:
        found.problem(
            f"obs_size = {env.obs_size}, max_steps = {env.max_steps}, action.size = {env.action.size}: expected at "
            f"least 1"
        )
        return found
    require_pytree(found, env)
    tasks = chosen_tasks(space)
    begun = _reset(found, env, tasks)
    if begun is not None:
        reset, state, obs = begun
        _context(found, env, space, reset)
        played = _play(found, env, tasks, state, obs, steps)
        if played is not None:
            _afterwards(found, env, space, played)
    return found


def chosen_tasks(space: TaskSpace) -> Task:
    """16 tasks: of the pool, the targets and the held-out ones, and the space's lowest and highest context."""
    low, high = space.project(jnp.stack([space.low, space.high]))
    first = jax.tree.map(lambda x: x[:1], space.pool)
    parts = [_some(space.pool, 8), _some(space.targets, 3), _some(space.held_out, 3)]
    parts += [Task(border[None], first.seed, jnp.full(1, -1, jnp.int32)) for border in (low, high)]
    return jax.tree.map(lambda *x: jnp.concatenate(x), *parts)


def _some(tasks: Task, n: int) -> Task:
    """n of them, spread over the batch; some come twice where there are fewer."""
    rows = np.linspace(0, len(np.asarray(tasks.seed)) - 1, n).astype(int)
    return jax.tree.map(lambda x: x[rows], tasks)


def _reset(found: Findings, env: Env, tasks: Task) -> tuple[Callable[..., Any], Any, Array] | None:
    """(compiled reset, states, observations), or None if there is no way to begin."""
    reset, one = _compiled(found, "reset", env.reset, tasks)
    try:
        state, obs = reset(tasks)
    except Exception as error:
        found.problem(f"reset(task) fails: {told(error)}")
        return None
    n = len(np.asarray(tasks.seed))
    if obs.shape != (n, env.obs_size) or obs.dtype != jnp.float32:
        found.problem(f"reset gives observations {obs.dtype}{list(obs.shape)}: expected float32[{n}, {env.obs_size}]")
        return None
    if one is not None and not is_same_when_traced_again(one, lambda task: env.reset(task), _first(tasks)):
        found.problem(f"reset gives something else the second time: it must be a function of the task alone {IMPURE}")
    if not equal(reset(tasks), (state, obs)):
        found.problem("reset gives something else the second time: it must be a function of the task alone")
    with found.within("reset of one task, without jit,"):
        if not close(_first((state, obs)), env.reset(_first(tasks))):
            found.problem("reset of one task differs from the same task in a batch")
    bad = ~np.isfinite(np.asarray(obs)).all(axis=1)
    if bad.any():
        context = np.asarray(tasks.context)[int(np.argmax(bad))].tolist()
        found.problem(f"reset: NaN or infinity in the observation of context {context}")
    return reset, state, obs


IMPURE = "(Python's or NumPy's random numbers, a counter or the clock in it? Draw with jax.random from the key or seed)"


def _first(tree: Any) -> Any:
    return jax.tree.map(lambda x: x[0], tree)


def _compiled(found: Findings, what: str, fn: Callable[..., Any], *args: Any) -> tuple[Callable[..., Any], Any]:
    """(the function for a batch, the trace for one), or a slow stand-in and None where it cannot be compiled."""
    try:
        one = jit(lambda *x: fn(*x)).trace(*_first(args))
        return jit(jax.vmap(fn)), one
    except Exception as error:
        found.problem(f"{what} cannot be compiled: {told(error)}")

    def one_by_one(*batch: Any) -> Any:
        n = jax.tree.leaves(batch)[0].shape[0]
        done = [fn(*jax.tree.map(lambda x, i=i: x[i], batch)) for i in range(n)]
        return jax.tree.map(lambda *x: jnp.stack(x), *done)

    return one_by_one, None


def _context(found: Findings, env: Env, space: TaskSpace, reset: Callable[..., Any]) -> None:
    """The same instance under other contexts must be another task, and the student should see that."""
    low, high = np.asarray(space.low), np.asarray(space.high)
    middle = np.asarray(space.pool.context[0])
    contexts = [middle, low, high]
    for k in range(min(space.dim, 6)):  # one dimension after the other, from border to border
        for border in (low, high):
            contexts.append(np.where(np.arange(space.dim) == k, border, middle))
    contexts += [middle] * (16 - len(contexts))  # as many as the tasks: no second program
    playable = np.asarray(space.project(jnp.asarray(np.stack(contexts), jnp.float32)))
    n = len(playable)
    same_seed = jnp.broadcast_to(space.pool.seed[0], (n,))
    state, obs = reset(Task(jnp.asarray(playable), same_seed, jnp.full(n, -1, jnp.int32)))

    def at(tree: Any, i: int) -> Any:
        return jax.tree.map(lambda x: x[i], tree)

    def told_apart(what: Any, i: int, j: int) -> bool:
        return not equal(at(what, i), at(what, j))

    def differ(i: int, j: int) -> bool:
        return not np.array_equal(playable[i], playable[j])

    pairs = [(1, 2)] + [(3 + 2 * k, 4 + 2 * k) for k in range(min(space.dim, 6))]
    tried = [(i, j) for i, j in pairs if differ(i, j)]
    if not tried:
        return
    if not any(told_apart((state, obs), i, j) for i, j in tried):
        found.problem(
            "reset ignores the context: every context gives the same state and observation, so all tasks are one; put "
            "task.context into the state"
        )
        return
    for k, (i, j) in enumerate(pairs[1:]):
        if differ(i, j) and not told_apart((state, obs), i, j):
            found.note(f"reset gives the same for every {space.names[k]} (the rest equal): is it used?")
    if not any(told_apart(obs, i, j) for i, j in tried):
        found.note(
            "the first observation is the same for every context: a student that does not see the context values all "
            "tasks alike, and strategies that read its values (ProCuRL, SPDL, CURROT) cannot tell them apart; append "
            "the context to the observation"
        )


class _Played(NamedTuple):
    """How far the episodes have come."""

    t: Array  # i32  steps so far
    state: Any
    obs: Array  # f32[n, o]
    alive: Array  # bool[n]  has not ended
    ret: Array  # f32[n]
    discounted: Array  # f32[n]
    largest: Array  # f32  number in an observation
    seen: dict[str, Array]  # i32  the first step at which something was seen (see `_turn`), -1: never


def _play(found: Findings, env: Env, tasks: Task, state: Any, obs: Array, steps: int | None) -> _Played | None:
    """One episode of every task, or None where none can be played.

    The loop is one compiled program, so that long episodes are played to their end, too; what cannot be compiled is
    played for 20 steps.
    """
    n = len(np.asarray(tasks.seed))
    action, keys = _actions(env, jnp.int32(0), n)
    step, one = _compiled(found, "step", env.step, keys, state, action)
    horizon = env.max_steps if steps is None else min(steps, env.max_steps)
    if one is None:
        horizon = min(horizon, 20)
    elif not is_same_when_traced_again(one, lambda *x: env.step(*x), *_first((keys, state, action))):
        found.problem(f"step gives something else the second time: it must be a function of its arguments {IMPURE}")

    def play(start: _Played, horizon: int, action: Array) -> _Played:
        """The first action is given, the others are random."""

        def goes_on(played: _Played) -> Array:
            is_sound = (played.seen["NaN in obs"] < 0) & (played.seen["NaN in reward"] < 0)
            return (played.t < horizon) & jnp.any(played.alive) & is_sound

        loop: Any = _while_loop if one is None else jax.lax.while_loop
        end: _Played = loop(goes_on, lambda played: _turn(env, step, played, action), start)
        return end

    with found.within("step"):
        given = keys, state, action
        new_state, outcome = step(*given) if one is None else jax.eval_shape(step, *given)
        if not _is_in_shape(found, env, state, new_state, outcome, n):
            return None
        nothing, never = jnp.zeros(n), dict.fromkeys(EVENTS, jnp.int32(-1))
        start = _Played(jnp.int32(0), state, obs, jnp.ones(n, bool), nothing, nothing, jnp.max(jnp.abs(obs)), never)
        run = play if one is None else jit(play)
        if isinstance(env.action, Continuous):
            high, width = jnp.full_like(action, env.action.high), env.action.high - env.action.low
            _clipping(found, env.action.high, run(start, 1, high), run(start, 1, high + 10 * width))
        played = run(start, horizon, action)
        if one is not None and not equal(run(start, horizon, action), played):
            found.problem("step gives something else the second time: it must be a function of its arguments")
        return played
    return None


def _while_loop(goes_on: Callable[[_Played], Array], turn: Callable[[_Played], _Played], played: _Played) -> _Played:
    """As `jax.lax.while_loop`, for what cannot be compiled."""
    while goes_on(played):
        played = turn(played)
    return played


EVENTS = ("NaN in obs", "NaN in reward", "truncated", "truncated and terminated", "terminated by time")


def _turn(env: Env, step: Callable[..., Any], played: _Played, first_action: Array) -> _Played:
    """All episodes, one step further."""
    t, alive = played.t, played.alive
    action, keys = _actions(env, t, len(alive))
    state, outcome = step(keys, played.state, jnp.where(t == 0, first_action, action))
    obs, reward = (jnp.asarray(x, jnp.float32) for x in (outcome.obs, outcome.reward))
    terminated, truncated = (jnp.asarray(x, bool) for x in (outcome.terminated, outcome.truncated))
    now = (
        ~jnp.isfinite(obs).all(axis=1),
        ~jnp.isfinite(reward),
        truncated,
        truncated & terminated,
        terminated & ~truncated & (t == env.max_steps - 1),
    )
    seen = {
        event: jnp.where((played.seen[event] < 0) & jnp.any(alive & happens), t, played.seen[event])
        for event, happens in zip(EVENTS, now, strict=True)
    }
    earned = jnp.where(alive, reward, 0.0)
    largest = jnp.maximum(played.largest, jnp.max(jnp.where(alive[:, None], jnp.abs(obs), 0.0)))
    return _Played(
        t + 1, state, obs, alive & ~(terminated | truncated),
        played.ret + earned, played.discounted + GAMMA**t * earned, largest, seen,
    )  # fmt: skip


def _actions(env: Env, t: Array, n: int) -> tuple[Array, Array]:
    k_act, k_env = jax.random.split(jax.random.key(t))
    if isinstance(env.action, Continuous):
        action = jax.random.uniform(k_act, (n, env.action.size), minval=env.action.low, maxval=env.action.high)
    else:
        action = jax.random.randint(k_act, (n,), 0, env.action.size)
    return action, jax.random.split(k_env, n)


def _is_in_shape(found: Findings, env: Env, state: Any, new_state: Any, outcome: Any, n: int) -> bool:
    if not isinstance(outcome, Step):
        what = "an array" if hasattr(outcome, "shape") else type(outcome).__name__
        found.problem(f"step returns {what} as its second part: expected a procurl.Step")
        return False
    can_go_on = True
    difference = differing_leaves(state, new_state)
    if difference:
        can_go_on = False
        found.problem(f"step returns a state of another shape than reset: {difference}; a loop needs both the same")
    else:
        note_weak_types(found, ("reset", "step"), state, new_state)
    if kind(outcome.obs) != f"float32[{n}, {env.obs_size}]":
        can_go_on = False
        found.problem(f"step gives observations {kind(outcome.obs)}: expected float32[{n}, {env.obs_size}]")
    for name, dtype in STEP_KINDS.items():
        can_go_on &= np.shape(getattr(outcome, name)) == (n,)
        if kind(getattr(outcome, name)) != f"{dtype}[{n}]":
            found.problem(
                f"step gives {name} {kind(getattr(outcome, name))} for {n} tasks: expected {dtype}[{n}]"
                + ("; success is reached or not, a share belongs into the reward" if name == "success" else "")
            )
    return can_go_on


def _clipping(found: Findings, high: float, inside: _Played, outside: _Played) -> None:
    """PPO's actions are normal draws: what lies outside of the bounds must count as the bound."""
    if not close((inside.obs, inside.ret), (outside.obs, outside.ret)):
        found.problem(
            f"an action beyond {high:g} has another effect than {high:g}: the environment must clip to its bounds, "
            f"with jnp.clip(action, low, high)"
        )


def _afterwards(found: Findings, env: Env, space: TaskSpace, played: _Played) -> None:
    t, alive, seen = int(played.t), np.asarray(played.alive), {event: int(t) for event, t in played.seen.items()}
    broken = [event for event in ("NaN in obs", "NaN in reward") if seen[event] >= 0]
    for event in broken:
        found.problem(f"step {seen[event]}: NaN or infinity in {event.removeprefix('NaN in ')}")
    if seen["truncated"] >= 0 and not env.truncates:
        found.problem(f"step {seen['truncated']} was truncated, but the class says truncates = False")
    if (both := seen["truncated and terminated"]) >= 0:
        found.note(f"step {both} is terminated and truncated at once: terminated counts, its end is worth nothing more")
    if alive.any() and t >= env.max_steps and not broken:
        found.problem(
            f"an episode is longer than max_steps = {env.max_steps}: its last step must be terminated or truncated"
        )
    elif alive.all() and not broken:
        found.note(f"no episode ended within {t} steps: its end was not checked (max_steps = {env.max_steps})")
    value_range_findings(
        found, space.value_range, np.asarray(played.ret)[~alive], np.asarray(played.discounted)[~alive]
    )
    if played.largest > LARGE:
        found.note(
            f"observations reach {float(played.largest):.3g}: the networks take them as they are; scale them to about 1"
        )
    if seen["terminated by time"] >= 0 and not env.truncates:
        found.note(
            f"episodes of max_steps = {env.max_steps} are terminated, not truncated: the student learns that the end "
            f"of time is worth nothing. Right if the task is to be done by then; else set truncated, and "
            f"truncates = True"
        )
    if env.truncates and max(seen["truncated"], seen["terminated by time"]) < 0 and not alive.any():
        found.note("truncates = True, but no episode was truncated here: False saves the student work")


def value_range_findings(found: Findings, value_range: tuple[float, float] | None, ret: Any, discounted: Any) -> None:
    """Teachers clip the student's values to this range: beyond it, all tasks look alike. A learnt range fits."""
    if value_range is None:
        return
    low, high = value_range
    tolerance = 1e-3 * (high - low)

    def outside(x: Any) -> Any:
        return x[(x < low - tolerance) | (x > high + tolerance)]

    if len(beyond := outside(discounted)):
        found.problem(
            f"an episode's discounted return was {beyond[0]:.4g}, outside value_range = ({low:g}, {high:g}): teachers "
            f"clip values to it, so tasks beyond look alike. Give the space the smallest and largest return, "
            f"value_range=..."
        )
    elif len(beyond := outside(ret)):
        found.note(
            f"an episode's return was {beyond[0]:.4g}, outside value_range = ({low:g}, {high:g}), though not with a "
            f"discount of {GAMMA}: right for discounted values only"
        )
