"""Task spaces of contexts in a box: a pool, the teacher's targets and the held-out tasks, all from one data seed.

The settings whose context is a few real numbers (Point Mass Sparse, Sparse Goal Reaching) build their spaces here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl.errors import SpaceError
from procurl.programs import jit
from procurl.types import TargetDistribution, Task, TaskSpace, random_seeds

OVERSAMPLING = 64  # draws per task wanted, where only some will do


def box_space(
    names: tuple[str, ...],
    low: tuple[float, ...],
    high: tuple[float, ...],
    mu: TargetDistribution,
    data_seed: int,
    *,
    n_uniform: int,
    n_targets: int,
    n_held_out: int,
    n_pool_targets: int = 0,
    feasible: Callable[[Array], Array] | None = None,
    fresh_seeds: bool = False,
) -> TaskSpace:
    """The tasks of a setting in the box [low, high]; the same arguments give the same tasks every time.

    The pool is `n_uniform` uniform contexts, then `n_pool_targets` draws of mu. Those draws and the held-out tasks
    are `feasible` ones (f32[n, d] -> bool[n]); the teacher's targets are plain draws: it is not told which of them are.
    """
    sizes = _Sizes(n_uniform, n_pool_targets, n_targets, n_held_out)
    bounds = jnp.array(low), jnp.array(high)
    draw = _draw_at_once if getattr(mu, "rounds_alike", False) else _draw
    pool, targets, held_out, n_found = draw(data_seed, bounds, mu, sizes, feasible)
    for n, found in zip((n_pool_targets, n_held_out), n_found.tolist(), strict=True):
        if feasible is not None and found < n:
            raise SpaceError(f"{mu}: only {found} of {OVERSAMPLING * n} draws are feasible, expected at least {n}")
    return TaskSpace(*bounds, pool, targets, held_out, names=names, target=mu, fresh_seeds=fresh_seeds)


class _Sizes(NamedTuple):
    uniform: int
    pool_targets: int
    targets: int
    held_out: int


def _draw(
    data_seed: int,
    bounds: tuple[Array, Array],
    mu: TargetDistribution,
    sizes: _Sizes,
    feasible: Callable[[Array], Array] | None,
) -> tuple[Task, Task, Task, Array]:
    """Pool, targets, held-out tasks, and how many feasible draws there were for the pool and for the held-out tasks."""
    k_pool, k_seed, k_targets, k_held_out, k_pool_targets = jax.random.split(jax.random.key(data_seed), 5)
    n_pool = sizes.uniform + sizes.pool_targets

    def draw(key: Array, n: int) -> Task:
        task = mu.sample(key, n)
        return task._replace(context=jnp.clip(task.context, *bounds))

    def draw_feasible(key: Array, n: int) -> tuple[Task, Array]:
        if feasible is None or n == 0:
            return draw(key, n), jnp.int32(n)
        task = draw(key, OVERSAMPLING * n)
        good = feasible(task.context)
        rows = jnp.flatnonzero(good, size=n, fill_value=0)
        return jax.tree.map(lambda x: x[rows], task), jnp.sum(good, dtype=jnp.int32)

    shape = (sizes.uniform, len(bounds[0]))
    uniform = jax.random.uniform(k_pool, shape, minval=bounds[0], maxval=bounds[1])
    pool_targets, n_pool_targets = draw_feasible(k_pool_targets, sizes.pool_targets)
    held_out, n_held_out = draw_feasible(k_held_out, sizes.held_out)
    pool = Task(
        jnp.concatenate([uniform, pool_targets.context]),
        random_seeds(k_seed, (n_pool,)),
        jnp.arange(n_pool, dtype=jnp.int32),
    )
    return pool, draw(k_targets, sizes.targets), held_out, jnp.stack([n_pool_targets, n_held_out])


# One program in place of some thirty small ones. Compiled together, arithmetic may round differently, and a setting's
# tasks must stay the same to the last bit: so only for targets that round alike both ways.
_draw_at_once = jit(_draw, static_argnames=("mu", "sizes", "feasible"))
