"""CURROT (Klink et al. 2022): a cloud of tasks that optimal transport carries towards the target distribution,
each particle no further than the student can follow. The paper compares with it in Section 4.

    minimise_p  W_2(p, mu)   subject to   V(c) >= delta for every c in p,   each particle moves at most sqrt(epsilon)

This is the authors' own later formulation, with exact assignments in place of Sinkhorn divergences and slices. V is
estimated from the returns of finished episodes; the critic is not asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl.check.fields import check_fields, param
from procurl.errors import ConfigError
from procurl.programs import pytree
from procurl.teachers.base import computed_where, level, once_if
from procurl.teachers.nadaraya_watson import estimate, estimate_around, in_random_order
from procurl.teachers.success_buffer import Pairs, absorb, latest, no_pairs, remember, search_samples
from procurl.teachers.transport import assign, require_distances, squared_distances
from procurl.types import Critic, Episodes, Task, TaskSpace, random_seeds

# Particles at a time: the data of a hundred places around each then stays in a core's cache. A GPU prefers more.
BLOCK, BLOCK_OFF_CPU = 16, 128


class CurrotState(NamedTuple):
    particles: Array  # f32[n, d]  the training distribution; like all contexts in here, in the space's units
    waiting: Pairs  # the latest episodes since the last update, n/2 at most
    success: Pairs  # n pairs, see success_buffer.py
    fail: Pairs  # the last n pairs that the success buffer did not keep
    delta_reached: Array  # bool  the success buffer's median has been above delta
    threshold_reached: Array  # bool  the particles may move
    r_min: Array  # f32  the lowest return of the first batch, inf before it


@pytree
@dataclass(frozen=True, eq=False)
class CURROT:
    """Particles on their way to the target distribution; they move once enough episodes have ended."""

    invents: ClassVar[bool] = True  # contexts that are not in the pool: see `base.OnPool`
    space: TaskSpace
    v_lb: float | None = param(
        None, "delta: the return that the student must be able to reach, in units of return; None: see v_lb_share"
    )
    v_lb_share: float = param(0.6, "without v_lb: delta as a share of the range of values", at_least=0, at_most=1)
    epsilon: float = param(0.05, "trust region: a particle moves at most sqrt(epsilon), in the space's units")
    n_particles: int = param(500, "particles, and capacity of each buffer", static=True, at_least=2, at_most=5000)
    n_candidates: int = param(100, "random places that a particle considers", static=True, at_least=1, at_most=5000)
    update_after: int = param(50, "finished episodes that it takes for the next update", at_least=1)
    wait_until_threshold: bool = param(
        False, "hold the particles until their mean estimated return is delta (release: False)"
    )
    jitter: float = param(1e-3, "half width of the noise on a proposal; in widths of the box", at_least=0)

    def __post_init__(self) -> None:
        check_fields("CURROT: ", self, is_pytree=True)
        require_distances("CURROT", self.space)
        if isinstance(self.epsilon, int | float) and not self.epsilon > 0:
            raise ConfigError(f"CURROT: epsilon = {self.epsilon}, expected a positive number")
        if isinstance(self.update_after, int) and self.update_after > self.n_particles // 2:
            raise ConfigError(
                f"CURROT: update_after = {self.update_after}, expected at most half of n_particles = {self.n_particles}"
            )

    def init(self, key: Array) -> CurrotState:
        n, d = self.n_particles, self.space.dim
        low, high = self._box
        particles = jax.random.uniform(key, (n, d), minval=low, maxval=high)
        may_move, not_yet = jnp.logical_not(self.wait_until_threshold), jnp.bool_(False)
        return CurrotState(
            particles, no_pairs(n // 2, d), no_pairs(n, d), no_pairs(n, d), not_yet, may_move, jnp.float32(jnp.inf)
        )

    def propose(self, state: CurrotState, key: Array, n: int) -> Task:
        k_row, k_jitter, k_seed = jax.random.split(key, 3)
        rows = jax.random.randint(k_row, (n,), 0, self.n_particles)
        noise = jax.random.uniform(k_jitter, (n, self.space.dim), minval=-self.jitter, maxval=self.jitter)
        low, high = self._box
        context = self.space.project(self.space.unscaled(state.particles[rows] + noise * (high - low)))
        return Task(context, random_seeds(k_seed, (n,)), jnp.full(n, -1, jnp.int32))

    def observe(self, state: CurrotState, key: Array, episodes: Episodes, critic: Critic) -> CurrotState:
        task = episodes.task._replace(context=self.space.scaled(episodes.task.context))
        ended = latest(episodes._replace(task=task), self.n_particles // 2, self.space.known_range[0])
        state = state._replace(waiting=remember(state.waiting, ended, ended.valid))
        return once_if(state.waiting.size >= self.update_after, lambda state: self._update(state, key), state)

    def _update(self, state: CurrotState, key: Array) -> CurrotState:
        k_keep, k_search, k_aim, k_candidates = jax.random.split(key, 4)
        watched = self._remember(state, k_keep)

        pairs = [watched.success, watched.fail]
        value = self._estimate(pairs, watched.particles)
        threshold_reached = state.threshold_reached | (jnp.mean(value) >= self._delta)

        # Drawn out here: inside `moved`, XLA would draw a sample anew for every distance that is measured to it.
        found = search_samples(
            k_search, watched.success, watched.delta_reached, self._delta, self.epsilon, watched.r_min, self._box
        )
        targets = self._targets(k_aim)
        k_ball, k_consult = jax.random.split(k_candidates)
        ball = in_ball(k_ball, self.n_candidates, self.space.dim)

        def moved(particles: Array) -> Array:
            particles, valid = self._repair(pairs, particles, value >= self._delta, found)
            aim = targets[assign(squared_distances(particles, targets))]  # the optimal transport to fresh targets
            return self._advance(pairs, particles, valid, aim, ball, k_consult)

        particles = once_if(threshold_reached, moved, watched.particles)
        return watched._replace(particles=particles, threshold_reached=threshold_reached)

    def _remember(self, state: CurrotState, key: Array) -> CurrotState:
        """The buffers after the episodes that were waiting."""
        new = state.waiting
        targets = self._targets(key)
        success, reached, refused = absorb(state.success, new, state.delta_reached, self._delta, targets)
        fail = remember(state.fail, new, refused & state.threshold_reached)
        lowest = jnp.min(jnp.where(new.valid, new.ret, jnp.inf))
        r_min = jnp.where(jnp.isfinite(state.r_min), state.r_min, lowest)
        waiting = no_pairs(*new.context.shape)
        return state._replace(waiting=waiting, success=success, fail=fail, delta_reached=reached, r_min=r_min)

    def _targets(self, key: Array) -> Array:
        """As many targets as there are particles, f32[n, d]."""
        return self.space.scaled(self.space.sample_target(key, self.n_particles).context)

    def _estimate(self, pairs: list[Pairs], context: Array) -> Array:
        return estimate(pairs, context, self._bandwidth)

    @property
    def _box(self) -> tuple[Array, Array]:
        return self.space.scaled(self.space.low), self.space.scaled(self.space.high)

    @property
    def _delta(self) -> float | Array:
        return level(self.space, self.v_lb, self.v_lb_share)

    @property
    def _radius(self) -> Array:
        return jnp.sqrt(self.epsilon)

    @property
    def _bandwidth(self) -> Array:
        return 0.3 * self._radius

    def _repair(self, pairs: list[Pairs], particles: Array, valid: Array, found: Array) -> tuple[Array, Array]:
        """Particles where the student fails move to places near its successes: f32[n, d] and bool[n], valid now.

        They move only to places that are good enough, if there are enough of those.
        """

        def repaired(state: tuple[Array, Array], found: Array) -> tuple[Array, Array]:
            particles, valid = state
            good = self._estimate(pairs, found) >= self._delta
            eligible = good | (jnp.sum(good) < jnp.sum(~valid))
            cost = jnp.where(eligible, squared_distances(particles, found), jnp.inf)
            cost = jnp.where(valid[:, None], 0.0, cost)  # the others take what is left, and ignore it
            column = assign(cost)
            return jnp.where(valid[:, None], particles, found[column]), valid | good[column]

        return once_if(jnp.any(~valid), repaired, (particles, valid), found)

    def _advance(
        self, pairs: list[Pairs], particles: Array, valid: Array, aim: Array, ball: Array, k_consult: Array
    ) -> Array:
        """Each particle takes the place nearest to its aim that is good enough, or else the best place around.

        The straight step is the nearest of all places in the trust region (clipping to the box does not change
        that), so only particles whose straight step is not good enough have to look around.
        """
        straight = straight_step(particles, aim, self._radius)  # it never leaves the box
        free = self._estimate(pairs, straight) > self._delta
        known = in_random_order(pairs, k_consult)

        def best_around(particles: Array, aim: Array, valid: Array) -> Array:
            places = jnp.clip(candidates(ball, particles, aim, valid, self._radius), *self._box)
            value = estimate_around(known, particles, places, self._bandwidth)
            gap = jnp.sum((places - aim[:, None]) ** 2, axis=-1)
            good = value > self._delta
            nearest = jnp.argmin(jnp.where(good, gap, jnp.inf), axis=1)
            choice = jnp.where(jnp.any(good, axis=1), nearest, jnp.argmax(value, axis=1))  # argmax: staying wins a tie
            return jnp.take_along_axis(places, choice[:, None, None], axis=1)[:, 0]

        blocked = ~free & jnp.any(known.ret != 0)  # where nothing is known, all stay
        otherwise = jnp.where(free[:, None], straight, particles)
        block = BLOCK if jax.default_backend() == "cpu" else BLOCK_OFF_CPU
        return computed_where(blocked, best_around, (particles, aim, valid), otherwise, block)


def in_ball(key: Array, n: int, d: int) -> Array:
    """Random points of the unit ball, f32[n, d]."""
    k_direction, k_length = jax.random.split(key)
    direction = jax.random.normal(k_direction, (n, d))
    direction /= jnp.maximum(jnp.linalg.norm(direction, axis=1, keepdims=True), 1e-12)
    return direction * jax.random.uniform(k_length, (n, 1)) ** (1.0 / d)


def straight_step(particles: Array, aim: Array, radius: Array) -> Array:
    """As far towards the aim as the trust region allows, f32[p, d]."""
    ahead, length = _way(particles, aim)
    return jnp.where(length <= radius, aim, particles + radius * ahead)  # arrival is exact


def candidates(ball: Array, particles: Array, aim: Array, valid: Array, radius: Array) -> Array:
    """Places around: staying, the straight step and n random ones, f32[p, n + 2, d].

    The random ones fill a ball of radius min(radius, distance to go), the same for all particles (`ball`, f32[n, d]);
    for a valid particle, the half facing away from its aim is folded over to the other side.
    """
    ahead, length = _way(particles, aim)
    along = jnp.sum(ball * ahead[:, None], axis=-1, keepdims=True)  # f32[p, n, 1]
    folded = ball - 2 * jnp.where(valid[:, None, None], jnp.minimum(along, 0.0), 0.0) * ahead[:, None]
    random = particles[:, None] + jnp.minimum(radius, length)[:, None] * folded
    straight = straight_step(particles, aim, radius)
    return jnp.concatenate([particles[:, None], straight[:, None], random], axis=1)


def _way(particles: Array, aim: Array) -> tuple[Array, Array]:
    """Directions, f32[p, d], and distances to go, f32[p, 1]."""
    way = aim - particles
    length = jnp.linalg.norm(way, axis=1, keepdims=True)
    return jnp.where(length > 1e-9, way / jnp.maximum(length, 1e-9), 0.0), length
