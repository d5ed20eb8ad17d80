"""A task space of your own in one call: bounds, a target distribution, and the tasks drawn from both.

    space = procurl.task_space([0.5], [4.0], ["pole length"], target=[4.0])

Nothing else is needed: the range of returns is learnt, and distances are in shares of the bounds.

The pool is uniform over the contexts; targets and held-out tasks are draws of the target distribution. The same
arguments give the same tasks every time.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from procurl.check.numbers import LARGEST, whole
from procurl.check.space import MOST_TASKS, require_space
from procurl.devices import require_32_bits
from procurl.errors import SpaceError, unknown_name
from procurl.targets import Blend, Point, Samples
from procurl.types import TargetDistribution, Task, TaskSpace, random_seeds

Sampler = Callable[[np.random.Generator, int], ArrayLike]
N_DRAWN = 10_000  # of a sampler function: teachers draw from these


def task_space(
    low: ArrayLike,
    high: ArrayLike,
    names: Sequence[str] | None = None,
    *,
    target: Any,
    values: Mapping[str, Sequence[float]] | None = None,
    pool: ArrayLike | None = None,
    pool_size: int = 1000,
    n_targets: int = 100,
    n_held_out: int = 100,
    value_range: tuple[float, float] | None = None,
    units: Literal["box", "raw"] | Sequence[float] = "box",
    fresh_seeds: bool = True,
    seed: int = 0,
    name: str = "",
) -> TaskSpace:
    """The tasks of your own environment.

    Args:
        low, high: bounds of the context, one number per dimension.
        names: of its dimensions; c0, c1, ... if not given.
        target: where the final skill is measured. One context; an array of contexts, all equally likely; a function
            `sampler(rng, n)` that returns n contexts; an object of `procurl.targets`; or a mixture, as a list of
            pairs (weight, any of these).
        values: dimension -> the values it may take, for dimensions that are not continuous. Contexts that a strategy
            invents are moved to the nearest ones.
        pool: the training contexts themselves, instead of `pool_size` uniform ones.
        pool_size: training tasks to choose from.
        n_targets: draws of the target distribution that a teacher reasons with.
        n_held_out: draws on which the student is evaluated.
        value_range: the smallest and largest return of a task: teachers scale the student's values with it. By default
            it is learnt from the returns of played episodes.
        units: what distances between contexts, and so length scales and trust regions, are measured in: "box", every
            dimension as a share of its bounds; "raw", the contexts as they are (the paper); or one length for each
            dimension, a change that matters as much as those of the others.
        fresh_seeds: every episode of a context is a new instance of it (another start, another layout). False: each
            task of the pool is one instance, and comes back as it was.
        seed: of all draws.
        name: for messages and records.
    """
    require_32_bits()
    bounds = [_bound(what, given) for what, given in (("low", low), ("high", high))]
    if isinstance(names, str):
        raise SpaceError(f"names = {names!r}: expected a list of names, one per dimension")
    dimensions = tuple(names) if names is not None else tuple(f"c{k}" for k in range(bounds[0].size))
    _check_bounds(bounds[0], bounds[1], dimensions)
    for what, n in {"pool_size": pool_size, "n_targets": n_targets, "n_held_out": n_held_out}.items():
        whole(what, n, 1, MOST_TASKS, SpaceError)
    whole("seed", seed, 0, 2**32 - 1, SpaceError)
    snap = _snap(values, bounds, dimensions)
    rng = np.random.default_rng(seed)
    mu = _distribution(target, bounds, dimensions, snap, rng)
    k_pool, k_pool_seed, k_targets, k_held_out = jax.random.split(jax.random.key(seed), 4)
    contexts = (
        _uniform(k_pool, pool_size, bounds, snap) if pool is None else _given_pool(pool, bounds, dimensions, snap)
    )
    n = len(contexts)
    tasks = Task(contexts, random_seeds(k_pool_seed, (n,)), jnp.arange(n, dtype=jnp.int32))
    bare = TaskSpace(
        jnp.asarray(bounds[0]), jnp.asarray(bounds[1]), tasks, targets=tasks, held_out=tasks, names=dimensions,
        target=mu, value_range=value_range, units=_units(units, bounds, dimensions), fresh_seeds=fresh_seeds, snap=snap,
        name=name,
    )  # fmt: skip
    targets, held_out = bare.sample_target(k_targets, n_targets), bare.sample_target(k_held_out, n_held_out)
    space = dataclasses.replace(bare, targets=targets, held_out=held_out).numbered()
    require_space(space)
    return space


def _units(given: Any, bounds: list[NDArray[np.float32]], names: tuple[str, ...]) -> tuple[float, ...] | None:
    """One length per dimension; None: contexts as they are."""
    if isinstance(given, str):
        if given not in ("box", "raw"):
            raise unknown_name("units", given, ("box", "raw"))
        span = bounds[1] - bounds[0]
        return tuple(np.where(span > 0, span, 1.0).tolist()) if given == "box" else None
    try:
        lengths = np.asarray(given, np.float32)
    except (TypeError, ValueError):
        lengths = np.empty(0, np.float32)
    if lengths.shape != (len(names),) or not (np.isfinite(lengths) & (lengths > 0)).all():
        raise SpaceError(
            f"units = {given!r}: expected 'box', 'raw', or {len(names)} positive lengths, one for each of {names}"
        )
    return tuple(lengths.tolist())


def _bound(what: str, given: ArrayLike) -> NDArray[np.float32]:
    try:
        wide = np.atleast_1d(np.asarray(given, np.float64))
    except (TypeError, ValueError) as error:
        raise SpaceError(f"{what} = {given!r}: expected one number per dimension of the context") from error
    if (np.abs(wide) > LARGEST).any() and np.isfinite(wide).all():
        raise SpaceError(f"{what} = {wide.tolist()}: expected numbers of at most {LARGEST:g}; they are kept in 32 bits")
    return wide.astype(np.float32)


def _check_bounds(low: NDArray[np.float32], high: NDArray[np.float32], names: tuple[str, ...]) -> None:
    if low.ndim != 1 or low.shape != high.shape or not (np.isfinite(low) & np.isfinite(high)).all():
        raise SpaceError(f"low = {low.tolist()} and high = {high.tolist()}: expected as many finite numbers in each")
    if low.size == 0:
        raise SpaceError("low and high are empty: expected at least one dimension of the context")
    if (low > high).any():
        k = int(np.argmax(low > high))
        raise SpaceError(f"dimension {k}: low = {low[k]:g} is above high = {high[k]:g}")
    if len(names) != low.size or len(set(names)) < len(names) or not all(isinstance(n, str) and n for n in names):
        raise SpaceError(f"names = {names}: expected {low.size} different ones, one per dimension")


class _Snap:
    """Each dimension to the nearest of its values; continuous ones stay as they are. Equal tables make equal snaps."""

    def __init__(self, tables: tuple[tuple[float, ...] | None, ...]) -> None:
        self.tables = tables

    def __call__(self, context: Array) -> Array:
        def nearest(x: Array, table: tuple[float, ...] | None) -> Array:
            if table is None:
                return x
            allowed = jnp.array(table, jnp.float32)
            return allowed[jnp.argmin(jnp.abs(x[..., None] - allowed), axis=-1)]

        return jnp.stack([nearest(context[..., k], table) for k, table in enumerate(self.tables)], axis=-1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Snap) and self.tables == other.tables

    def __hash__(self) -> int:
        return hash(self.tables)

    def __repr__(self) -> str:
        return f"values{self.tables}"


def _snap(values: Mapping[str, Sequence[float]] | None, bounds: list[Any], names: tuple[str, ...]) -> _Snap | None:
    if not values:
        return None
    if not isinstance(values, Mapping):
        raise SpaceError(f"values = {values!r}: expected a dictionary, dimension -> the numbers that it may be")
    for name, allowed in values.items():
        if name not in names:
            raise unknown_name("dimension of the context", name, names)
        k = names.index(name)
        try:
            table = np.asarray(allowed, np.float32)
        except (TypeError, ValueError):
            table = np.empty(0, np.float32)
        if table.ndim != 1 or table.size == 0 or not np.isfinite(table).all():
            raise SpaceError(f"values[{name!r}] = {allowed!r}: expected the numbers that it may be")
        if table.min() < bounds[0][k] or table.max() > bounds[1][k]:
            raise SpaceError(
                f"values[{name!r}] = {allowed!r}: expected numbers in [{bounds[0][k]:g}, {bounds[1][k]:g}], its bounds"
            )
    tables = {n: tuple(sorted({float(v) for v in np.asarray(x, np.float32)})) for n, x in values.items()}
    return _Snap(tuple(tables.get(n) for n in names))


def _distribution(
    target: Any, bounds: list[Any], names: tuple[str, ...], snap: _Snap | None, rng: np.random.Generator
) -> TargetDistribution:
    """A target in any of the accepted forms -> an object with `sample`."""
    if hasattr(target, "sample"):
        drawn = np.asarray(target.sample(jax.random.key(0), 1).context)
        if drawn.shape != (1, len(names)):
            raise SpaceError(f"target {target!r} draws contexts of {drawn.shape[-1]} numbers: expected {len(names)}")
        return target  # type: ignore[no-any-return]
    if _is_mixture(target):
        weights = np.array([float(w) for w, _ in target])
        if not (np.isfinite(weights).all() and (weights > 0).all()):
            raise SpaceError(f"weights {weights.tolist()} of the target's parts: expected positive numbers")
        parts = tuple(_distribution(part, bounds, names, snap, rng) for _, part in target)
        return Blend(parts, tuple((weights / weights.sum()).tolist()))
    if callable(target):
        try:
            inspect.signature(target).bind(rng, N_DRAWN)
        except TypeError as error:
            raise SpaceError(
                f"target {getattr(target, '__name__', target)!r}: expected a function sampler(rng, n): {error}"
            ) from error
        drawn = target(rng, N_DRAWN)
        contexts = _contexts(f"target {getattr(target, '__name__', target)!r}: what it draws", drawn, bounds, names)
        if len(contexts) != N_DRAWN:
            raise SpaceError(f"the target's sampler gave {len(contexts)} contexts when asked for {N_DRAWN}")
        return Samples(contexts)
    contexts = _contexts("target", target, bounds, names)
    if snap is not None:
        moved = np.asarray(snap(jnp.asarray(contexts)))
        if not np.array_equal(moved, contexts):
            row = int(np.argmax((moved != contexts).any(axis=1)))
            raise SpaceError(
                f"target {contexts[row].tolist()} has values that are not allowed: the nearest is {moved[row].tolist()}"
            )
    return Point(tuple(contexts[0].tolist())) if len(contexts) == 1 else Samples(contexts)


def _is_mixture(target: Any) -> bool:
    return (
        isinstance(target, list | tuple)
        and len(target) > 0
        and all(isinstance(part, list | tuple) and len(part) == 2 and np.isscalar(part[0]) for part in target)
        and any(not np.isscalar(part[1]) for part in target)
    )


def _contexts(what: str, given: Any, bounds: list[Any], names: tuple[str, ...]) -> NDArray[np.float32]:
    """Checked contexts, f32[n, d]; a single one becomes a row."""
    try:
        contexts = np.array(given, np.float32)
    except (TypeError, ValueError) as error:
        raise SpaceError(
            f"{what} = {given!r}: expected a context, an array of contexts, a function sampler(rng, n), an object of "
            f"procurl.targets, or a list of (weight, any of these)"
        ) from error
    if contexts.ndim < 2:
        contexts = contexts.reshape(1, -1)
    if contexts.ndim != 2 or contexts.shape[1] != len(names) or len(contexts) == 0:
        raise SpaceError(f"{what} has shape {np.shape(given)}: expected contexts of {len(names)} numbers, {names}")
    bad = ~((contexts >= bounds[0]) & (contexts <= bounds[1]))
    if bad.any():
        row, k = np.argwhere(bad)[0]
        raise SpaceError(
            f"{what}: {names[k]} = {contexts[row, k]:g} lies outside [{bounds[0][k]:g}, {bounds[1][k]:g}] "
            f"({bad.any(axis=1).sum()} of {len(contexts)} contexts do): widen the bounds, or clip them"
        )
    return contexts


def _uniform(key: Array, n: int, bounds: list[Any], snap: _Snap | None) -> Array:
    """Uniform contexts; every allowed value of a discrete dimension is equally likely."""
    low, high = (jnp.asarray(x) for x in bounds)
    k_box, k_values = jax.random.split(key)
    contexts = jax.random.uniform(k_box, (n, len(bounds[0])), minval=low, maxval=high)
    for k, table in enumerate(snap.tables if snap else ()):
        if table is not None:
            drawn = jax.random.choice(jax.random.fold_in(k_values, k), jnp.array(table, jnp.float32), (n,))
            contexts = contexts.at[:, k].set(drawn)
    return contexts


def _given_pool(pool: ArrayLike, bounds: list[Any], names: tuple[str, ...], snap: _Snap | None) -> Array:
    contexts = jnp.asarray(_contexts("pool", pool, bounds, names))
    return contexts if snap is None else snap(contexts)
