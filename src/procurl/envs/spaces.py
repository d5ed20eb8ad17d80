"""Task spaces of contexts in a box: a pool, the teacher's targets and the held-out tasks, all from one data seed.

The settings whose context is a few real numbers (Point Mass Sparse, Sparse Goal Reaching) build their spaces here.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from procurl.errors import SpaceError
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
    are `feasible` ones (f32[n, d] -> bool[n]); the teacher's targets are plain draws, as nobody tells it which are.
    """
    k_pool, k_seed, k_targets, k_held_out, k_pool_targets = jax.random.split(jax.random.key(data_seed), 5)
    bounds = jnp.array(low), jnp.array(high)
    uniform = jax.random.uniform(k_pool, (n_uniform, len(names)), minval=bounds[0], maxval=bounds[1])
    n_pool = n_uniform + n_pool_targets

    def draw(key: Array, n: int) -> Task:
        task = mu.sample(key, n)
        return task._replace(context=jnp.clip(task.context, *bounds))

    def draw_feasible(key: Array, n: int) -> Task:
        if feasible is None:
            return draw(key, n)
        task = draw(key, OVERSAMPLING * n)
        rows = jnp.flatnonzero(feasible(task.context))[:n]
        if len(rows) < n:
            raise SpaceError(f"{mu}: only {len(rows)} of {OVERSAMPLING * n} draws are feasible, expected at least {n}")
        return jax.tree.map(lambda x: x[rows], task)

    pool = Task(
        jnp.concatenate([uniform, draw_feasible(k_pool_targets, n_pool_targets).context]),
        random_seeds(k_seed, (n_pool,)),
        jnp.arange(n_pool, dtype=jnp.int32),
    )
    return TaskSpace(
        *bounds, pool, targets=draw(k_targets, n_targets), held_out=draw_feasible(k_held_out, n_held_out),
        names=names, target=mu, fresh_seeds=fresh_seeds,
    )  # fmt: skip
