"""Values from returns inside the compiled loop: what `ReturnRegressor` does on the host, as pure functions of a state.

A student that never sees the context cannot tell tasks apart at their first observation. So a small network from
context to return, fitted from time to time to the episodes since the last fit, takes its critic's place in front of the
teacher. Network, split, epochs and the choice of the best one are `regressor.py`'s.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl.config import SAC
from procurl.students import nets, regressor
from procurl.students.regressor import BATCH, EPOCHS, LR, ReturnModel
from procurl.types import Episodes, TaskSpace

ENOUGH = 5  # episodes for a fit
# Episodes kept for the next fit, at most: as many as a million steps bring if an episode lasts 61. If there are more,
# the latest are kept, which show the student as it is by now.
MOST = 16_384


class Returns(NamedTuple):
    """The values of tasks, and the episodes for the next fit."""

    model: ReturnModel  # the teacher's critic
    context: Array  # f32[C, d]  in a ring
    ret: Array  # f32[C]
    recorded: Array  # i32[]  since the last fit, including those overwritten: the next goes to row recorded % C


def begin(key: Array, space: TaskSpace, config: SAC) -> Returns:
    """Nothing is known yet: the smallest return everywhere.

    Contexts and returns are fitted as they are, as in the paper, or in units of the box and of the returns seen where
    the space names no range of values.
    """
    layers = nets.init_layers(key, regressor.widths(space))
    at_most = max(config.first_fit, config.fit_every) + config.n_steps  # no episode is shorter than a step
    capacity = BATCH * -(-min(MOST, at_most) // BATCH)
    return Returns(
        regressor.unfitted(space, layers, scale=space.value_range is None, xp=jnp),
        jnp.zeros((capacity, space.dim)), jnp.zeros(capacity), jnp.int32(0),
    )  # fmt: skip


def scored(episodes: Episodes, returns: Returns) -> Episodes:
    """An episode's `gae` is its return minus the value that its task had: PLR's score here.

    It is NaN while the episode runs, and until the first fit.
    """
    known = episodes.finished & (returns.model.known > 0)
    gae = jnp.where(known, episodes.ret - returns.model.value(episodes.task), jnp.nan)
    return episodes._replace(gae=gae, abs_gae=jnp.abs(gae))


def record(returns: Returns, episodes: Episodes, learns_range: bool = False) -> Returns:
    """The returns with the episodes that ended in this iteration; the oldest make room."""
    capacity = returns.ret.shape[0]
    nth = jnp.cumsum(episodes.finished) - 1  # of those that ended
    n = jnp.sum(episodes.finished, dtype=jnp.int32)
    stays = episodes.finished & (nth >= n - capacity)
    row = jnp.where(stays, (returns.recorded + nth) % capacity, capacity)  # beyond the end: dropped
    model = returns.model
    if learns_range:  # until the first fit, the smallest return so far
        least = jnp.min(jnp.where(episodes.finished, episodes.ret, jnp.inf))
        nothing_yet = (returns.recorded == 0) & (model.known == 0)
        least = jnp.where(n > 0, jnp.where(nothing_yet, least, jnp.minimum(model.unknown, least)), model.unknown)
        model = model._replace(unknown=jnp.where(model.known > 0, model.unknown, least))
    return returns._replace(
        model=model,
        context=returns.context.at[row].set(episodes.task.context, mode="drop"),
        ret=returns.ret.at[row].set(episodes.ret, mode="drop"),
        recorded=returns.recorded + n,
    )


def is_due(t: Array | int, config: SAC) -> Array:
    """Whether the steps of iteration t reach `first_fit`, or a multiple of `fit_every` beyond it; bool.

    A function of t alone, which all seeds share: only then does a program for many seeds skip the fit in all other
    iterations.
    """

    def fits(steps: Array | int) -> Array:
        return jnp.maximum(0, 1 + (steps - config.first_fit) // config.fit_every)

    return fits((t + 1) * config.n_steps) > fits(t * config.n_steps)


def fitted(returns: Returns, key: Array, learns_range: bool = False) -> Returns:
    """Learn from the episodes since the last fit, and forget them; with fewer than five, wait for the next time."""
    k_order, k_layers = jax.random.split(key)
    model, capacity = returns.model, returns.ret.shape[0]
    n = jnp.minimum(returns.recorded, capacity)
    place = jnp.arange(capacity)
    if learns_range:
        low, high = (f(returns.ret, where=place < n, initial=x) for f, x in ((jnp.min, jnp.inf), (jnp.max, -jnp.inf)))
        alike = jnp.where(low == 0, 1.0, jnp.abs(low))  # then any unit of their size will do
        model = model._replace(offset=low, unit=jnp.where(high > low, high - low, alike))
    order = jnp.argsort(jnp.where(place < n, jax.random.uniform(k_order, (capacity,)), jnp.inf))  # those in use first
    x = model.inputs(returns.context)[order]  # f32[C, d]
    y = ((returns.ret - model.offset) / model.unit)[order]  # f32[C]
    n_fit = n - n // 5
    spare = n_fit + jnp.arange(capacity // 5)
    data = (x, y, (place < n_fit).astype(jnp.float32))
    held = (x[spare], y[spare], (spare < n).astype(jnp.float32))
    fresh = nets.init_layers(k_layers, (x.shape[1], *(layer["b"].shape[0] for layer in model.layers)))
    layers = regressor.fit(fresh, data, held, LR, EPOCHS, BATCH)
    learnt = Returns(
        model._replace(layers=layers, known=jnp.float32(1)), returns.context, returns.ret, jnp.int32(0)
    )  # fmt: skip
    return jax.tree.map(lambda new, old: jnp.where(n >= ENOUGH, new, old), learnt, returns)
