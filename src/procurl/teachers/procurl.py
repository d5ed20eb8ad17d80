"""ProCuRL-Unif and ProCuRL-Target (the paper's Section 3): tasks that are neither too easy nor too hard now,
and that are correlated with target tasks that can be learnt next.

The learning potential of a task is Z(c) = V(c) (1 - V(c)), with V scaled to [0, 1] by the space's range of values: zero
for a task that is hopeless or solved, largest half-way. With K(c, t) = exp(-|c - t|) as the correlation of a task c
and a target t:

    ProCuRL-Unif    P(c)    proportional to  exp(beta Z(c))
    ProCuRL-Target  P(t, c) proportional to  exp(beta Z(c) Z(t) K(c, t)),  and c is played

The paper sets beta by hand for each of its settings. Where none is given, the temperature is relative to the best score
of the moment: the exponent is b s / max s for a score s, which needs no tuning to the scale of the values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl.check.fields import param
from procurl.errors import ConfigError
from procurl.programs import pytree
from procurl.teachers.base import PoolState, PoolTeacher, cumulative, draw
from procurl.teachers.transport import require_distances, squared_distances
from procurl.types import Critic, Episodes, Task, TaskSpace

Similarity = Callable[[Array, Array], Array]  # contexts f32[n, d], f32[m, d] -> f32[n, m]


def learning_potential(value: Array, space: TaskSpace) -> Array:
    """Z = V (1 - V) for values scaled to [0, 1] and clipped; NaN counts as hopeless.

    The paper writes V/V_max (V_max - V), and has V_max = 1 everywhere: where returns are larger (the Bipedal Walker),
    it scales them first. Taken literally, its beta would have to shrink with the square of V_max.
    """
    v_min, v_max = space.known_range
    v = jnp.clip(jnp.nan_to_num((value - v_min) / (v_max - v_min), nan=0.0, posinf=0.0, neginf=0.0), 0.0, 1.0)
    return v * (1 - v)


def inverse_temperature(beta: float | None, b: float, best: Array) -> float | Array:
    """beta, or the value that makes the exponent of the best score b; 0, which is uniform, if that score is 0."""
    return jnp.where(best > 0, b / jnp.maximum(best, 1e-30), 0.0) if beta is None else beta


@pytree
@dataclass(frozen=True, eq=False)
class ProCuRLUnif(PoolTeacher):
    """A softmax over the learning potential of each task in the pool."""

    redrawable: ClassVar[bool] = True  # a new pool costs it nothing: see `base.Redrawn`
    beta: float | None = param(
        None, "inverse temperature of the softmax; 0: uniform; None: relative, see b", at_least=0
    )
    b: float = param(5.0, "without beta: the exponent of the best of the moment; 0 is uniform", at_least=0)

    def observe(self, state: PoolState, key: Array, episodes: Episodes, critic: Critic) -> PoolState:
        potential = learning_potential(critic.value(self.space.pool), self.space)
        return PoolState(inverse_temperature(self.beta, self.b, jnp.max(potential)) * potential)


class TargetState(NamedTuple):
    """log_weights: of the tasks (pairing "max"), or an upper bound of beta Z_i Z_j K_ij over j (pairing "pair")."""

    log_weights: Array  # f32[n]
    z_pool: Array  # f32[n]  learning potential of the tasks; times the temperature, if that is relative
    z_targets: Array  # f32[m]  learning potential of the targets
    targets: Task  # m targets
    reach: Array  # f32[n]  max_j K_ij: how close the nearest target is


@pytree
@dataclass(frozen=True, eq=False)
class ProCuRLTarget(PoolTeacher):
    """A softmax over pairs of a task and a target: both learnable now, and correlated."""

    redrawable: ClassVar[bool] = True  # a new pool costs it nothing: see `base.Redrawn`
    beta: float | None = param(
        None, "inverse temperature of the softmax; 0: uniform; None: relative, see b", at_least=0
    )
    b: float = param(5.0, "without beta: the exponent of the best of the moment; 0 is uniform", at_least=0)
    pairing: Literal["pair", "max"] = param(
        "pair", "'pair': softmax over all pairs (paper); 'max': each task with its best target (release)", static=True
    )
    n_targets: int | None = param(None, "how many targets to use; None: all of the space's", static=True, at_least=1)
    resample_targets: bool = param(False, "draw new targets at every update (release)", static=True)
    length_scale: float = param(1.0, "distance over which the correlation falls by e; in the space's units")
    similarity: Similarity | None = param(
        None, "K(contexts, targets) in place of the space's own, or exp(-distance / length_scale)", static=True
    )

    # Rounds of thinning before the exact table takes over; a few are enough in practice. For an enormous table it is
    # worth trying longer, up to the time that the table would take.
    max_rounds = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.similarity is None and getattr(self.space, "similarity", None) is None:
            require_distances("ProCuRLTarget", self.space)
        elif self.similarity is not None and not callable(self.similarity):
            raise ConfigError(
                f"ProCuRLTarget: similarity = {self.similarity!r}, expected a function of contexts and targets, or None"
            )
        if self.pairing not in ("pair", "max"):
            raise ConfigError(f"ProCuRLTarget: pairing = {self.pairing!r}, expected 'pair' or 'max'")
        if isinstance(self.length_scale, int | float) and not self.length_scale > 0:
            raise ConfigError(f"ProCuRLTarget: length_scale = {self.length_scale}, expected a positive number")
        have = self.space.targets.seed.shape[-1] if isinstance(self.space, TaskSpace) else None
        if have is not None and not self.resample_targets and (self.n_targets or 0) > have:
            raise ConfigError(
                f"ProCuRLTarget: n_targets = {self.n_targets}, but the space holds {have} targets: "
                f"use at most {have}, or resample_targets=True"
            )

    def init(self, key: Array) -> TargetState:
        targets = self._targets(key)
        zeros = jnp.zeros(self.space.n_pool)
        return TargetState(zeros, zeros, jnp.zeros(targets.seed.shape), targets, self._reach(targets))

    def observe(self, state: TargetState, key: Array, episodes: Episodes, critic: Critic) -> TargetState:
        targets = self._targets(key) if self.resample_targets else state.targets
        z_pool = learning_potential(critic.value(self.space.pool), self.space)
        z_targets = learning_potential(critic.value(targets), self.space)
        if self.beta is None or self.pairing == "max":
            best = self._best(z_targets, targets)  # f32[n]  max_j Z_j K_ij
        if self.beta is None:
            z_pool = z_pool * inverse_temperature(None, self.b, jnp.max(z_pool * best))
        if self.pairing == "max":  # the score of a task: beta Z_i max_j Z_j K_ij
            return TargetState(self._given_beta * z_pool * best, z_pool, z_targets, targets, state.reach)
        reach = self._reach(targets) if self.resample_targets else state.reach
        bound = self._given_beta * z_pool * jnp.max(z_targets) * jnp.maximum(reach, 0.0)
        return TargetState(bound, z_pool, z_targets, targets, reach)

    @property
    def _given_beta(self) -> float:
        """A relative temperature is already in `z_pool`."""
        return 1.0 if self.beta is None else self.beta

    def propose(self, state: TargetState, key: Array, n: int) -> Task:
        if self.pairing == "max":
            return super().propose(state, key, n)
        k_thin, k_table, k_seed = jax.random.split(key, 3)
        rows, filled = self._thin(state, k_thin, n)
        full = filled >= n
        exact = draw(k_table, cumulative(self._marginal(state, skip=full)), n)
        return self.space.from_pool(k_seed, jnp.where(jnp.arange(n) < filled, rows, exact))

    def log_weights(self, state: TargetState) -> Array:
        """The exact log-weight of every task, f32[n], up to a constant."""
        return state.log_weights if self.pairing == "max" else self._marginal(state, skip=jnp.bool_(False))

    def _thin(self, state: TargetState, key: Array, n: int) -> tuple[Array, Array]:
        """Exact draws from the pair softmax without the n x m table, by rejection.

        Draw a task from its upper bound and a target uniformly, and accept the pair with probability
        exp(beta Z_i Z_j K_ij - bound_i). Accepted pairs are distributed exactly as P(t, c). Each round tries n
        pairs and appends the accepted ones to the queue.
        """
        cdf = cumulative(state.log_weights)

        max_rounds = max(self.max_rounds, self.space.n_pool * state.z_targets.shape[0] // 2**20)

        def unfilled(carry: tuple[Array, Array, Array]) -> Array:
            _, filled, round_ = carry
            return (filled < n) & (round_ < max_rounds)

        def one_round(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            rows, filled, round_ = carry
            k_task, k_target, k_accept = jax.random.split(jax.random.fold_in(key, round_), 3)
            i = draw(k_task, cdf, n)
            j = jax.random.randint(k_target, (n,), 0, state.z_targets.shape[0])
            exponent = (
                self._given_beta * state.z_pool[i] * state.z_targets[j] * self._pair_similarity(i, j, state.targets)
            )
            accept = jnp.log(jax.random.uniform(k_accept, (n,))) < exponent - state.log_weights[i]
            place = jnp.where(accept, filled + jnp.cumsum(accept) - 1, n)  # n: outside, dropped
            return rows.at[place].set(i, mode="drop"), filled + jnp.sum(accept), round_ + 1

        start = (jnp.zeros(n, jnp.int32), jnp.int32(0), jnp.int32(0))
        rows, filled, _ = jax.lax.while_loop(unfilled, one_round, start)
        return rows, filled

    def _marginal(self, state: TargetState, skip: Array) -> Array:
        """log sum_j exp(beta Z_i Z_j K_ij) for every task i: the formula as it stands, which touches every pair.

        A loop over targets; with `skip` it does not run at all, and the weights are meaningless and unused. (A `cond`
        would run both branches under `vmap`.)
        """
        m = state.z_targets.shape[0]
        pool, scale = self.space.pool.context, self._given_beta * state.z_pool

        def add(carry: tuple[Array, Array]) -> tuple[Array, Array]:
            j, total = carry
            similarity = self._similarity(pool, state.targets.context[j][None])[:, 0]
            return j + 1, jnp.logaddexp(total, scale * state.z_targets[j] * similarity)

        start = (jnp.where(skip, m, 0), jnp.where(skip, 0.0, -jnp.inf) + jnp.zeros_like(scale))
        return jax.lax.while_loop(lambda carry: carry[0] < m, add, start)[1]

    def _targets(self, key: Array) -> Task:
        n = self.n_targets or self.space.targets.seed.shape[-1]
        if self.resample_targets:
            return self.space.sample_target(key, n)
        return jax.tree.map(lambda x: x[:n], self.space.targets)

    def _similarity(self, contexts: Array, targets: Array) -> Array:
        similarity = self.space.similarity if self.similarity is None else self.similarity
        if similarity is not None:
            return similarity(contexts, targets)
        apart = distance(self.space.scaled(contexts), self.space.scaled(targets))
        return jnp.exp(-apart / self.length_scale)

    def _pair_similarity(self, rows: Array, targets_rows: Array, targets: Task) -> Array:
        def one(context: Array, target: Array) -> Array:
            return self._similarity(context[None], target[None])[0, 0]

        return jax.vmap(one)(self.space.pool.context[rows], targets.context[targets_rows])

    def _reach(self, targets: Task) -> Array:
        return self._best(jnp.ones(targets.seed.shape), targets)

    def _best(self, weights: Array, targets: Task) -> Array:
        """max_j weight_j K_ij for every task i, one target at a time so that no n x m matrix is ever held."""
        pool = self.space.pool.context

        def better(best: Array, target: tuple[Array, Array]) -> tuple[Array, None]:
            weight, context = target
            return jnp.maximum(best, weight * self._similarity(pool, context[None])[:, 0]), None

        start = jnp.full(self.space.n_pool, -jnp.inf)
        return jax.lax.scan(better, start, (weights, targets.context))[0]


def distance(a: Array, b: Array) -> Array:
    """Euclidean distances, f32[n, d], f32[m, d] -> f32[n, m], exact for the small ones that matter here."""
    return jnp.sqrt(squared_distances(a, b))


def inner_product(psi: Callable[[Array], Array]) -> Similarity:
    """K(c, t) = <psi(c), psi(t)> for a user's own representation psi of a batch of contexts."""

    def similarity(contexts: Array, targets: Array) -> Array:
        return jnp.matmul(psi(contexts), psi(targets).T, precision=jax.lax.Precision.HIGHEST)

    return similarity
