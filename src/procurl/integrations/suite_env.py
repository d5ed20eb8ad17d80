"""What environments of other suites have in common as environments of procurl: the base of `gymnax.py` and `brax.py`.

A suite's file says how a context changes the environment, how it begins and how it goes on. Here is the rest of
`procurl.types.Env`: the context in the observation, actions within bounds, the time limit and success. An environment
is described by plain text and numbers alone, so that a run can be made again from its description; the suite's own
object is looked up when it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from procurl import suites
from procurl.check.fields import check_fields, param
from procurl.envs.task_space import task_space
from procurl.errors import ConfigError
from procurl.targets import Point, Uniform
from procurl.types import Continuous, Discrete, Step, Task, TaskSpace

KEY = jax.ShapeDtypeStruct((2,), jnp.uint32)  # of `jax.random.PRNGKey`: a shape leaves no trace in a program


class Given:
    """An environment that the user has made, in place of a name."""

    def __init__(self, env: Any, params: Any = None) -> None:
        self.env, self.params = env, params

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Given) and self.env is other.env and self.params is other.params

    def __hash__(self) -> int:
        return hash((id(self.env), id(self.params)))

    def __repr__(self) -> str:  # appears in a run's description: no address in it
        return type(self.env).__name__


class State(NamedTuple):
    """A suite's own state, and what it does not keep itself."""

    inner: tuple[Array, ...]  # its arrays only: what else a suite keeps beside them may differ from step to step
    context: Array  # f32[d]
    t: Array  # i32  steps so far
    ret: Array  # f32  return so far


class Outcome(NamedTuple):
    """One step of the suite's own, with no time limit and no reset."""

    inner: Any
    obs: Array
    reward: Array
    terminated: Array


@dataclass(frozen=True)
class SuiteEnv:
    """The base of a suite's environments. A subclass has `begin`, `advance`, `inner_obs_size` and `bounds`."""

    name: str | Given = field(metadata={"static": True})
    context: str = field(metadata={"static": True})  # bounds of the parameters, as --context has them
    target: str = field(default="", metadata={"static": True})  # for the run's description; "": not writable as text
    max_steps: int = param(1000, "length of the longest episode, which is then cut", static=True, at_least=1)
    observe: bool = param(True, "the context, in shares of its bounds, is part of the observation", static=True)
    success_return: float | None = param(None, "an episode with at least this return is a success", static=True)

    truncates: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_fields("env.", self, is_pytree=True)

    # -- of a suite

    def begin(self, key: Array, context: Array) -> tuple[Any, Array]:
        """The suite's first state and observation."""
        raise NotImplementedError

    def advance(self, key: Array, inner: Any, action: Array, context: Array) -> Outcome:
        """One step of the suite's own."""
        raise NotImplementedError

    @property
    def inner_obs_size(self) -> int:
        raise NotImplementedError

    @property
    def bounds(self) -> Discrete | Bounds:
        raise NotImplementedError

    # -- of procurl.types.Env

    @property
    def obs_size(self) -> int:
        return self.inner_obs_size + (len(self.box.names) if self.observe else 0)

    @property
    def action(self) -> Continuous | Discrete:
        return self.bounds if isinstance(self.bounds, Discrete) else self.bounds.outside()

    def reset(self, task: Task) -> tuple[State, Array]:
        # a key of the old kind: some environments keep it in their state, and a checkpoint holds plain numbers
        inner, obs = self.begin(jax.random.PRNGKey(task.seed), task.context)
        leaves = tuple(jnp.asarray(x, jnp.asarray(x).dtype) for x in jax.tree.leaves(inner))  # no Python numbers
        return State(leaves, task.context, jnp.int32(0), jnp.float32(0.0)), self._seen(obs, task.context)

    def step(self, key: Array, state: State, action: Array) -> tuple[State, Step]:
        theirs = action if isinstance(self.bounds, Discrete) else self.bounds.inside(action)
        before = jax.tree.unflatten(_structure(self), state.inner)
        after, obs, reward, terminated = self.advance(_raw(key), before, theirs, state.context)
        # A loop needs states of one type, and a suite's first state is not always of the type of later ones.
        pairs = zip(jax.tree.leaves(after), state.inner, strict=True)
        inner = tuple(jnp.asarray(new).astype(old.dtype) for new, old in pairs)
        reward, terminated = jnp.asarray(reward, jnp.float32), jnp.asarray(terminated, bool)
        state = State(inner, state.context, state.t + 1, state.ret + reward)
        truncated = (state.t >= self.max_steps) & ~terminated
        # Only at the end: where rewards are negative, a return starts out above every threshold.
        reached = jnp.bool_(False) if self.success_return is None else state.ret >= self.success_return
        success = (terminated | truncated) & reached
        return state, Step(self._seen(obs, state.context), reward, terminated, truncated, success)

    @property
    def box(self) -> suites.Box:
        return suites.box(self.context)

    def _seen(self, obs: Array, context: Array) -> Array:
        flat = jnp.ravel(obs).astype(jnp.float32)
        if not self.observe:
            return flat
        low, high = (np.array(x, np.float32) for x in (self.box.low, self.box.high))
        return jnp.concatenate([flat, (context - low) / (high - low)])


class Bounds(NamedTuple):
    """Continuous actions of a suite: their shape, and bounds for each of their numbers."""

    shape: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def is_alike(self) -> bool:
        return len(set(self.low)) == len(set(self.high)) == 1

    def outside(self) -> Continuous:
        """What the student acts in: the suite's own bounds where all are the same, or else [-1, 1]."""
        return Continuous(len(self.low), *((self.low[0], self.high[0]) if self.is_alike else (-1.0, 1.0)))

    def inside(self, action: Array) -> Array:
        """The student's action as the suite takes it."""
        box = self.outside()
        action = jnp.clip(action, box.low, box.high)
        if not self.is_alike:
            low, high = (jnp.array(x, jnp.float32) for x in (self.low, self.high))
            action = low + (high - low) * (action + 1.0) / 2.0
        return action.reshape(self.shape)


def suite_space(name: str, context: suites.Ranges, target: Any, options: dict[str, Any]) -> tuple[TaskSpace, str]:
    """The tasks, and the target as text where it can be written as such.

    `target` is a dictionary, parameter -> value or (low, high), or whatever `procurl.task_space` takes.
    """
    low, high = zip(*context.values(), strict=True)
    text = ""
    if isinstance(target, Mapping):
        wanted = suites.as_ranges("target", target)
        suites.require_target(wanted, context)
        wanted = {parameter: wanted[parameter] for parameter in context}  # in the context's order
        text = suites.written(wanted)
        least, most = zip(*wanted.values(), strict=True)
        target = Point(least) if least == most else Uniform(least, most)
    return task_space(low, high, list(context), target=target, name=name, **options), text


def require_space_is_flat(obs: Any, of: str) -> int:
    """How many numbers an observation has; `obs` is its shape and type, as `jax.eval_shape` tells."""
    if not hasattr(obs, "shape"):
        raise ConfigError(
            f"{of} observes {type(obs).__name__}: expected one array. Wrap it, so that its observation is one"
        )
    return int(np.prod(obs.shape, dtype=int))


@lru_cache(maxsize=32)
def _structure(env: SuiteEnv) -> Any:
    """How the arrays of the suite's state are put together."""
    context = jax.ShapeDtypeStruct((len(env.box.names),), jnp.float32)
    return jax.tree.structure(jax.eval_shape(env.begin, KEY, context)[0])


def _raw(key: Array) -> Array:
    """The key as plain numbers, whatever its kind."""
    return jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
