"""brax: any of its environments with parameters of its physics as the context, trained in the compiled loop.

    env, space = make("inverted_pendulum", context={"gravity": (0.5, 3.0)}, target={"gravity": 3.0})
    procurl.train(env, procurl.make_teacher("auto", space), seeds=8)

A step is the bare environment's own, without the wrappers that repeat, count and reset; the time limit is ours. What a
parameter's name means is explained at `FACTORS` and in docs/integrations/brax.md.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import io
import warnings
from collections.abc import Mapping
from functools import lru_cache, reduce
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from procurl import suites
from procurl.check.fields import param
from procurl.errors import ConfigError, needs_extra, unknown_name
from procurl.integrations.suite_env import KEY, Bounds, Given, Outcome, SuiteEnv, require_space_is_flat, suite_space
from procurl.programs import pytree
from procurl.types import Discrete, TaskSpace

with (
    needs_extra("brax", "procurl.integrations.brax needs {}", "brax"),
    contextlib.redirect_stdout(io.StringIO()),  # MuJoCo prints that Warp, which nobody asked for, is missing
):
    import brax
    from brax import envs

BACKENDS = ("generalized", "spring", "positional", "mjx")
STEPS = 1000  # brax's own default, in the wrapper that is left out here

# A factor on all these fields of `env.sys`: 1 is the environment as brax ships it. Each quantity is there twice, for
# brax's own pipelines and for MuJoCo's. Masses and moments of inertia go together.
# `mass.pole` is the factor of one link alone: see `PER_LINK`.
FACTORS: dict[str, tuple[str, ...]] = {
    "gravity": ("gravity", "opt.gravity"),
    "mass": ("link.inertia.mass", "link.inertia.i", "body_mass", "body_inertia"),
    "friction": ("geom_friction", "pair_friction"),
    "gear": ("actuator.gear", "actuator_gear"),
    "damping": ("dof.damping", "dof_damping"),
    "stiffness": ("dof.stiffness", "jnt_stiffness"),
    "armature": ("dof.armature", "dof_armature"),
}
PER_LINK = ("mass", "damping", "stiffness", "armature")  # a joint's are those of the link that it moves


def make(
    env: str | Any,
    context: Mapping[str, tuple[float, float]],
    target: Any,
    *,
    backend: str = "generalized",
    max_steps: int = STEPS,
    observe: bool = True,
    success_return: float | None = None,
    **space: Any,
) -> tuple[BraxEnv, TaskSpace]:
    """A brax environment and its tasks, for `procurl.train`.

    Args:
        env: a registered name, or an environment that you have made, without wrappers.
        context: parameter -> (low, high). `gravity`, `mass`, `friction`, `gear`, `damping`, `stiffness` and `armature`
            are factors, 1 being the environment as it is; `mass.LINK`, `damping.LINK` and so on are those of one link
            or its joint, and `sys.FIELD` that of any float field of `env.sys`. A number among the environment's own
            attributes, such as `ctrl_cost_weight`, is set.
        target: parameter -> value or (low, high), one for each in the context; or what `procurl.task_space` takes.
        backend: brax's pipeline, for an environment by name.
        max_steps: time limit; an episode that reaches it is truncated.
        observe: whether the student sees the context, in shares of its bounds.
        success_return: an episode that ends with at least this return is a success; without it none is.
        space: further arguments of `procurl.task_space`.
    """
    name = env if isinstance(env, str) else Given(env)
    bare = _found(name, backend)
    bounds = suites.as_ranges("context", context)
    suites.require_box(bounds, *_parameters(bare, tuple(bounds)), f"brax:{name}")
    tasks, text = suite_space(f"brax:{name}", bounds, target, space)
    made = BraxEnv(name, suites.written(bounds), text, max_steps, observe, success_return, backend)
    made.inner_obs_size  # noqa: B018  # what cannot be played is refused now
    return made, tasks


@pytree
@dataclasses.dataclass(frozen=True)
class BraxEnv(SuiteEnv):
    """A brax environment; `make` makes it."""

    backend: str = param("generalized", f"brax's pipeline: {', '.join(BACKENDS)}", static=True)

    package: ClassVar[str] = "brax"

    def with_context(self, context: Array) -> Any:
        """brax's environment for a context, f32[d]: a copy, as the cached one is shared by all contexts."""
        bare = _found(self.name, self.backend)
        changed = copy.copy(bare)
        fields: dict[str, Any] = {}
        for k, name in enumerate(self.box.names):
            if f"_{name}" in vars(bare):
                setattr(changed, f"_{name}", context[k])
                continue
            for path in _fields(name):
                value = fields.get(path, _field(bare.sys, path))
                if value is not None:
                    fields[path] = value * _factor(bare.sys, name, path, np.ndim(value), context[k])
        if "body_mass" in fields:
            fields["body_subtreemass"] = _below(bare.sys) @ fields["body_mass"]
        if fields:
            changed.sys = bare.sys.tree_replace(fields)
        return changed

    def begin(self, key: Array, context: Array) -> tuple[Any, Array]:
        state = self.with_context(context).reset(key)
        return state, state.obs

    def advance(self, key: Array, inner: Any, action: Array, context: Array) -> Outcome:
        state = self.with_context(context).step(inner, action)
        return Outcome(state, state.obs, state.reward, jnp.asarray(state.done) > 0)

    @property
    def inner_obs_size(self) -> int:
        return _obs_size(self.name, self.backend)

    @property
    def bounds(self) -> Discrete | Bounds:
        size = int(_found(self.name, self.backend).action_size)
        return Bounds((size,), (-1.0,) * size, (1.0,) * size)  # what brax's own agents give; environments scale it


@lru_cache(maxsize=16)
def _found(name: str | Given, backend: str) -> Any:
    """brax's bare environment."""
    if isinstance(name, Given):
        if name.env is not name.env.unwrapped:
            raise ConfigError(
                f"{type(name.env).__name__} is a wrapper: expected the bare environment, env.unwrapped, since time "
                f"limit and resets are procurl's"
            )
        return name.env
    if backend not in BACKENDS:
        raise unknown_name("backend of brax", backend, BACKENDS)
    known = envs._envs  # brax has no other list
    if name not in known:
        raise unknown_name("environment of brax", name, known)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that brax is no longer developed further: docs/integrations/brax.md
        try:
            return envs.get_environment(name, backend=backend)
        except Exception as error:
            raise _unplayable(name, backend, error) from error


def _parameters(env: Any, wanted: tuple[str, ...]) -> tuple[dict[str, str], dict[str, str]]:
    """Those that can be a context, with what they are by default, and those that cannot, with the reason."""
    system = getattr(env, "sys", None)
    known, others = {}, {}
    if system is not None:
        for name in FACTORS:
            if any(_moves(system, path) for path in _fields(name)):
                known[name] = "factor, 1 as it is"
                known |= dict.fromkeys(_of_links(system, name), "factor")
            else:
                others[name] = "a factor of numbers that are all 0, or missing, in this environment"
        known["sys.FIELD"] = "factor of any float field of env.sys"
    for name, value in vars(env).items():
        if isinstance(value, float) and name.startswith("_"):
            known[name[1:]] = f"{value:g}"
        elif isinstance(value, bool | int | str) and name.startswith("_"):
            others[name[1:]] = f"no float but {type(value).__name__}, {value}"
    for name in wanted:
        if name.startswith("sys.") and system is not None:
            if _field(system, _fields(name)[0]) is not None:
                known[name] = "factor"
            else:
                others[name] = "no field of floats"
    return known, others


def _fields(name: str) -> tuple[str, ...]:
    return FACTORS.get(name.partition(".")[0], (name.removeprefix("sys."),))


def _of_links(system: Any, name: str) -> list[str]:
    """NAME.LINK for the links that have a name and a number other than 0 there."""
    if name not in PER_LINK:
        return []
    path = next(path for path in FACTORS[name] if _moves(system, path))
    moved = np.asarray(_field(system, path)).reshape(len(_rows(system, path)), -1).any(axis=1)
    rows = _rows(system, path)
    return [f"{name}.{link}" for k, link in enumerate(system.link_names) if link and (moved & (rows == k)).any()]


def _rows(system: Any, path: str) -> Any:
    """Which link each row of a field is about, i32[rows]; -1: none, as for MuJoCo's world body."""
    n = len(system.link_names)
    if path.startswith("body_"):
        return np.arange(n + 1) - 1
    if path.startswith("jnt_"):
        return np.asarray(system.jnt_bodyid) - 1
    return np.arange(n) if path.startswith("link.") else np.asarray(system.dof_link())


def _factor(system: Any, name: str, path: str, ndim: int, factor: Array) -> Array:
    """What a field is multiplied by: a number, or one for each of its rows."""
    kind, dot, link = name.partition(".")
    if not dot or kind == "sys":
        return factor
    is_meant = _rows(system, path) == list(system.link_names).index(link)
    return jnp.where(is_meant.reshape(-1, *[1] * (ndim - 1)), factor, 1.0)


def _below(system: Any) -> Any:
    """f32[bodies, bodies]: 1 where the second is the first, or hangs from it."""
    parents = np.asarray(system.body_parentid)
    below = np.eye(len(parents), dtype=np.float32)
    for body in range(1, len(parents)):  # parents come first
        below[:, body] += below[:, parents[body]]
    return below


def _field(system: Any, path: str) -> Any:
    """A field of floats by its dotted path; None where there is none."""
    found = reduce(lambda thing, part: getattr(thing, part, None), path.split("."), system)
    is_float = isinstance(found, float) or (hasattr(found, "dtype") and jnp.issubdtype(found.dtype, jnp.floating))
    return found if is_float and np.size(found) else None


def _moves(system: Any, path: str) -> bool:
    value = _field(system, path)
    return value is not None and bool(np.any(np.asarray(value) != 0))


@lru_cache(maxsize=16)
def _obs_size(name: str | Given, backend: str) -> int:
    env = _found(name, backend)
    try:
        state = jax.eval_shape(env.reset, KEY)
    except Exception as error:
        raise _unplayable(str(name), backend, error) from error
    return require_space_is_flat(state.obs, f"brax:{name}")


def _unplayable(name: str, backend: str, error: Exception) -> ConfigError:
    return ConfigError(f"brax:{name} cannot be made by brax {brax.__version__} with backend {backend}: {error!r}")
