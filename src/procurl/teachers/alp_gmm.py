"""ALP-GMM (Portelas et al. 2019): play where returns change, whether the student learns there or forgets.

An episode's absolute learning progress (ALP) is how far its return lies from that of the nearest earlier context. From
time to time, a mixture of Gaussians is fitted to pairs of context and ALP (`mixture.py`); the next contexts come from
its Gaussians, each chosen by its mean ALP. Both are taken as shares: contexts of the box, ALP of the range of returns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl.check.fields import check_fields, param
from procurl.check.numbers import LARGEST
from procurl.errors import ConfigError
from procurl.programs import pytree
from procurl.teachers.base import draw, in_box, once_if
from procurl.teachers.mixture import EXACT, FEWEST, Mixture, best_mixture
from procurl.teachers.quantities import require_quantities
from procurl.teachers.transport import squared_distances
from procurl.types import Critic, Episodes, Task, TaskSpace, random_seeds

BLOCK = 64  # episodes that are compared with earlier ones at once


class History(NamedTuple):
    """The latest episodes that ended, in a ring."""

    place: Array  # f32[m, d]  contexts, as shares of the box
    ret: Array  # f32[m]
    alp: Array  # f32[m]  in units of return
    seen: Array  # i32  episodes so far


class ALPGMMState(NamedTuple):
    history: History
    chance: Array  # f32[k]  with which a Gaussian is chosen, not normalised
    mixture: Mixture


@pytree
@dataclass(frozen=True, eq=False)
class ALPGMM:
    """Contexts from the Gaussians with the largest mean ALP, and some from anywhere.

        alp_i = |R_i - R_j|,    j the nearest earlier context (of several, the latest)
        P(Gaussian g) proportional to its mean ALP;    c ~ N(mu_g, Sigma_g), moved into the space

    The number of Gaussians is the one with the smallest Akaike information criterion (AIC).
    """

    invents: ClassVar[bool] = True  # contexts that are not in the pool: see `base.OnPool`
    may_be_uniform: ClassVar[bool] = True  # until the first fit
    space: TaskSpace
    fit_every: int = param(250, "episodes between two fits, each to as many", static=True, at_least=1, at_most=100_000)
    random_share: float = param(0.2, "share of contexts drawn uniformly from the box", at_least=0, at_most=1)
    max_gaussians: int = param(10, "most Gaussians in a mixture", static=True, at_least=FEWEST, at_most=100)
    em_rounds: int = param(50, "rounds of expectation and maximisation in a fit", static=True, at_least=1)
    history: int = param(
        2000, "episodes among which the nearest is looked for", static=True, at_least=1, at_most=1_000_000
    )

    def __post_init__(self) -> None:
        check_fields("ALPGMM: ", self, is_pytree=True)
        require_quantities("ALPGMM", self.space)
        if self.history < self.fit_every:
            raise ConfigError(f"ALPGMM: history = {self.history}, expected at least fit_every = {self.fit_every}")

    def init(self, key: Array) -> ALPGMMState:
        m, k, d = self.history, self.max_gaussians, self.space.dim
        history = History(jnp.zeros((m, d)), jnp.zeros(m), jnp.zeros(m), jnp.int32(0))
        return ALPGMMState(
            history, jnp.zeros(k), Mixture(jnp.zeros(k), jnp.zeros((k, d + 1)), jnp.zeros((k, d + 1, d + 1)))
        )

    def propose(self, state: ALPGMMState, key: Array, n: int) -> Task:
        k_random, k_anywhere, k_gaussian, k_normal, k_seed = jax.random.split(key, 5)
        d, mixture = self.space.dim, state.mixture
        anywhere = jax.random.uniform(k_anywhere, (n, d))
        g = draw(k_gaussian, jnp.cumsum(state.chance), n)  # -1, and so NaN, where the fit gave no valid mixture
        normal = jax.random.normal(k_normal, (n, d))
        there = mixture.mean[g, :d] + jnp.einsum("nij,nj->ni", mixture.factor[g, :d, :d], normal, precision=EXACT)
        there = jnp.where(g[:, None] < 0, jnp.nan, there)
        is_random = (jax.random.uniform(k_random, (n,)) < self.random_share) | (state.history.seen < self.fit_every)
        share = jnp.clip(jnp.where(is_random[:, None], anywhere, there), 0.0, 1.0)
        context = self.space.project(self.space.low + share * (self.space.high - self.space.low))
        return Task(context, random_seeds(k_seed, (n,)), jnp.full(n, -1, jnp.int32))

    def observe(self, state: ALPGMMState, key: Array, episodes: Episodes, critic: Critic) -> ALPGMMState:
        history = self._remembered(state.history, episodes)
        is_due = history.seen // self.fit_every > state.history.seen // self.fit_every
        return once_if(is_due, lambda state: self._fitted(state, key), state._replace(history=history))

    def _fitted(self, state: ALPGMMState, key: Array) -> ALPGMMState:
        history, w = state.history, self.fit_every
        latest = (history.seen - 1 - jnp.arange(w)) % self.history
        low, high = self.space.known_range
        alp = jnp.clip(history.alp[latest] / (high - low), 0.0, 1.0)
        mixture = best_mixture(key, jnp.column_stack([history.place[latest], alp]), self.max_gaussians, self.em_rounds)
        mean_alp = jnp.where(mixture.weight > 0, mixture.mean[:, -1], 0.0)
        none = jnp.sum(mean_alp) == 0  # no progress anywhere: all alike
        chance = jnp.where(none, (mixture.weight > 0).astype(jnp.float32), mean_alp)
        return ALPGMMState(history, chance + 0 * jnp.sum(mixture.weight), mixture)  # NaN stays NaN

    def _remembered(self, history: History, episodes: Episodes) -> History:
        """The history with the episodes that ended in this iteration, in order, each compared with all before it."""
        size = min(BLOCK, self.fit_every)
        order = jnp.argsort(~episodes.finished)  # those that ended come first, and keep their order
        order = jnp.pad(order, (0, -len(order) % size))
        place = in_box(self.space, episodes.task.context)[order]
        ret = jnp.clip(jnp.nan_to_num(episodes.ret, nan=-LARGEST), -LARGEST, LARGEST)[order]
        n = jnp.sum(episodes.finished, dtype=jnp.int32)

        def add(carry: tuple[Array, History]) -> tuple[Array, History]:
            first, history = carry
            return first + size, self._with_block(history, *_block(first, size, n, place, ret))

        return jax.lax.while_loop(lambda carry: carry[0] < n, add, (jnp.int32(0), history))[1]

    def _with_block(self, history: History, place: Array, ret: Array, is_there: Array) -> History:
        m, b = self.history, len(ret)
        age = (history.seen - 1 - jnp.arange(m)) % m
        i = jnp.arange(b)
        apart = jnp.concatenate(
            [
                jnp.where(age < history.seen, squared_distances(place, history.place), jnp.inf),
                jnp.where(i[None] < i[:, None], squared_distances(place, place), jnp.inf),
            ],
            axis=1,
        )  # f32[b, m + b]
        nearest = jnp.min(apart, axis=1, keepdims=True)
        j = jnp.argmax(jnp.where(apart <= nearest, jnp.concatenate([-age, 1 + i]), -m), axis=1)  # the latest of them
        change = jnp.abs(ret - jnp.concatenate([history.ret, ret])[j])
        alp = jnp.where(jnp.isinf(nearest[:, 0]), 0.0, change + 0 * nearest[:, 0])  # NaN stays NaN
        row = jnp.where(is_there, (history.seen + i) % m, m)  # beyond the end: dropped
        return History(
            history.place.at[row].set(place, mode="drop"),
            history.ret.at[row].set(ret, mode="drop"),
            history.alp.at[row].set(alp, mode="drop"),
            history.seen + jnp.sum(is_there, dtype=jnp.int32),
        )


def _block(first: Array, size: int, n: Array, place: Array, ret: Array) -> tuple[Array, Array, Array]:
    part, its = (jax.lax.dynamic_slice_in_dim(x, first, size) for x in (place, ret))
    return part, its, first + jnp.arange(size) < n
