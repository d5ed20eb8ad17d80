"""gymnax: any of its environments with float fields of its EnvParams as the context, trained in the compiled loop.

    env, space = make("CartPole-v1", context={"length": (0.1, 3.0)}, target={"length": 3.0})
    procurl.train(env, procurl.make_teacher("auto", space), seeds=8)

A step is gymnax's own `step_env` with `params.replace(**context)`: it has no automatic reset, so the last
observation is the episode's own. gymnax folds the time limit into `done`; here it is `truncated`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.metadata import version
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from procurl import suites
from procurl.errors import ConfigError, needs_extra, unknown_name
from procurl.integrations.suite_env import KEY, Bounds, Given, Outcome, SuiteEnv, require_space_is_flat, suite_space
from procurl.programs import pytree
from procurl.types import Discrete, TaskSpace

with needs_extra("gymnax", "procurl.integrations.gymnax needs {}", "gymnax", "six"):
    import gymnax

LIMIT = "max_steps_in_episode"
NO_LIMIT = 2**31 - 1

# Fields that gymnax keeps besides those they are computed from: they follow, unless they are in the context as well.
DERIVED: dict[str, dict[str, tuple[tuple[str, str], Callable[[Any, Any], Any]]]] = {
    "CartPole-v1": {
        "total_mass": (("masscart", "masspole"), lambda cart, pole: cart + pole),
        "polemass_length": (("masspole", "length"), lambda pole, length: pole * length),
    }
}


def make(
    env: str | Any,
    context: Mapping[str, tuple[float, float]],
    target: Any,
    *,
    params: Any = None,
    max_steps: int | None = None,
    observe: bool = True,
    success_return: float | None = None,
    **space: Any,
) -> tuple[GymnaxEnv, TaskSpace]:
    """A gymnax environment and its tasks, for `procurl.train`.

    Args:
        env: a name of `gymnax.registered_envs`, or an environment of your own class.
        context: float fields of its EnvParams -> (low, high).
        target: field -> value or (low, high), one for every field of the context; or what `procurl.task_space` takes.
        params: for an environment of your own: the other parameters (default: its `default_params`).
        max_steps: time limit (default: its own, `max_steps_in_episode`); an episode that reaches it is truncated.
        observe: whether the student sees the context, in shares of its bounds.
        success_return: an episode that ends with at least this return is a success; without it none is.
        space: further arguments of `procurl.task_space`.
    """
    name = env if isinstance(env, str) else Given(env, env.default_params if params is None else params)
    if isinstance(env, str) and params is not None:
        raise ConfigError("params: expected with an environment of your own, not with a name; give max_steps by itself")
    _, defaults = _found(name)
    bounds = suites.as_ranges("context", context)
    suites.require_box(bounds, *_parameters(defaults), f"gymnax:{name}")
    if max_steps is None and not hasattr(defaults, LIMIT):
        raise ConfigError(f"gymnax:{name} has no time limit of its own: give max_steps")
    limit = int(getattr(defaults, LIMIT)) if max_steps is None else max_steps
    tasks, text = suite_space(f"gymnax:{name}", bounds, target, space)
    made = GymnaxEnv(name, suites.written(bounds), text, limit, observe, success_return)
    made.bounds, made.inner_obs_size  # noqa: B018  # what cannot be played is refused now
    return made, tasks


@pytree
@dataclasses.dataclass(frozen=True)
class GymnaxEnv(SuiteEnv):
    """A gymnax environment; `make` makes it."""

    package: ClassVar[str] = "gymnax"

    def params(self, context: Array, limit: Any = None) -> Any:
        """gymnax's EnvParams of a context, f32[d]."""
        env, defaults = _found(self.name)
        changed = {name: context[k] for k, name in enumerate(self.box.names)}
        for name, (of, formula) in DERIVED.get(env.name, {}).items():
            if name not in changed and any(part in changed for part in of):
                changed[name] = formula(*(changed.get(part, getattr(defaults, part)) for part in of))
        if hasattr(defaults, LIMIT):
            kind = type(getattr(defaults, LIMIT))
            changed[LIMIT] = kind(self.max_steps if limit is None else limit)
        return defaults.replace(**changed)

    def begin(self, key: Array, context: Array) -> tuple[Any, Array]:
        obs, inner = _found(self.name)[0].reset_env(key, self.params(context))
        return inner, obs

    def advance(self, key: Array, inner: Any, action: Array, context: Array) -> Outcome:
        env, defaults = _found(self.name)
        params = self.params(context)
        obs, inner, reward, done, _ = env.step_env(key, inner, action, params)
        if hasattr(defaults, LIMIT) and hasattr(inner, "time"):
            # `done` at the limit says nothing about the state: ask again, with no limit.
            is_late = inner.time >= getattr(params, LIMIT)
            done = jnp.where(is_late, env.is_terminal(inner, self.params(context, NO_LIMIT)), done)
        return Outcome(inner, obs, reward, done)

    @property
    def inner_obs_size(self) -> int:
        return _obs_size(self.name)

    @property
    def bounds(self) -> Discrete | Bounds:
        return _bounds(self.name)


@lru_cache(maxsize=32)
def _found(name: str | Given) -> tuple[Any, Any]:
    """gymnax's environment and its default parameters."""
    if isinstance(name, Given):
        return name.env, name.params
    if name not in gymnax.registered_envs:
        raise unknown_name("environment of gymnax", name, gymnax.registered_envs)
    try:
        return gymnax.make(name)  # type: ignore[no-any-return]
    except Exception as error:  # MNISTBandit fetches its pictures
        raise ConfigError(f"gymnax:{name} cannot be made by gymnax {version('gymnax')}: {error!r}") from error


def _parameters(defaults: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Those that can be a context, with their defaults, and the others, with their types."""
    floats, others = {}, {}
    for field in dataclasses.fields(defaults):
        value = getattr(defaults, field.name)
        is_float = isinstance(value, float) or (
            hasattr(value, "dtype") and np.shape(value) == () and jnp.issubdtype(value.dtype, jnp.floating)
        )
        if field.name == LIMIT:
            others[field.name] = "the time limit, max_steps here"
        elif is_float:
            floats[field.name] = f"{float(value):g}"
        else:
            others[field.name] = f"no float but {type(value).__name__}, {value}"
    return floats, others


@lru_cache(maxsize=32)
def _obs_size(name: str | Given) -> int:
    env, params = _found(name)
    try:
        obs, _ = jax.eval_shape(env.reset_env, KEY, params)
    except Exception as error:
        raise ConfigError(f"gymnax:{name} cannot be played by gymnax {version('gymnax')}: {error!r}") from error
    return require_space_is_flat(obs, f"gymnax:{name}")


@lru_cache(maxsize=32)
def _bounds(name: str | Given) -> Discrete | Bounds:
    env, params = _found(name)
    space = env.action_space(params)
    kind = type(space).__name__  # by name: gymnax's relatives, such as Craftax, have copies of these classes
    if kind == "Discrete":
        return Discrete(int(space.n))
    if kind != "Box":
        raise ConfigError(f"gymnax:{name} takes actions of a {kind}: expected a Discrete or a Box")
    low, high = (np.broadcast_to(np.asarray(x, np.float64), space.shape).ravel() for x in (space.low, space.high))
    if not (np.isfinite(low) & np.isfinite(high)).all():
        raise ConfigError(f"gymnax:{name} takes actions without bounds: expected finite ones; clip them in a wrapper")
    return Bounds(tuple(space.shape), tuple(low.tolist()), tuple(high.tolist()))
