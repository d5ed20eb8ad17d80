"""SPDL (Klink et al. 2021) on a pool of tasks: a distribution that walks towards the target as fast as its
student's skill and a trust region allow. The paper compares with it in Section 4.

    minimise KL(p || mu)   subject to   E_p[V] >= delta,   KL(p || q) <= epsilon          (q: the last p)

If no distribution satisfies both, the student is in trouble, and the teacher looks for easier tasks instead:

    maximise E_p[V]        subject to   KL(p || q) <= epsilon
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl.check.fields import param
from procurl.errors import ConfigError
from procurl.programs import pytree
from procurl.teachers.base import PoolTeacher, level
from procurl.teachers.transport import require_distances, squared_distances
from procurl.types import Critic, Episodes


class SPDLState(NamedTuple):
    log_weights: Array  # f32[n]  log q
    log_mu: Array  # f32[n]  the distribution that q is to reach


@pytree
@dataclass(frozen=True, eq=False)
class SPDL(PoolTeacher):
    """The distribution nearest to the target's under which the student is still good enough."""

    v_lb: float | None = param(
        None, "delta: the mean value that the student must keep, in units of return; None: see v_lb_share"
    )
    v_lb_share: float = param(0.5, "without v_lb: delta as a share of the range of values", at_least=0, at_most=1)
    epsilon: float = param(0.5, "largest KL divergence of one update", at_least=0)
    target: Literal["mu", "uniform"] = param(
        "mu", "where to go: 'mu', the target distribution (SPDL); 'uniform', the whole pool (release)", static=True
    )
    bandwidth: float = param(0.05, "of the kernel density that stands for mu on the pool; in diagonals of the box")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target == "mu":
            require_distances("SPDL", self.space)
        if self.target not in ("mu", "uniform"):
            raise ConfigError(f"SPDL: target = {self.target!r}, expected 'mu' or 'uniform'")
        if isinstance(self.bandwidth, int | float) and not self.bandwidth >= 1e-6:
            raise ConfigError(f"SPDL: bandwidth = {self.bandwidth}, expected a positive number of at least 1e-6")

    def init(self, key: Array) -> SPDLState:
        uniform = jnp.full(self.space.n_pool, -jnp.log(self.space.n_pool), jnp.float32)
        return SPDLState(uniform, uniform if self.target == "uniform" else self._log_mu())

    def observe(self, state: SPDLState, key: Array, episodes: Episodes, critic: Critic) -> SPDLState:
        value = usable_values(critic.value(self.space.pool), self.space.known_range[0])
        delta = level(self.space, self.v_lb, self.v_lb_share)
        log_p = self_paced(value, state.log_weights, state.log_mu, delta, self.epsilon, self._tolerance)
        return SPDLState(log_p, state.log_mu)

    @property
    def _tolerance(self) -> float | Array:
        """How far below delta a mean value may be; in units of return."""
        low, high = self.space.known_range
        return 1e-3 if isinstance(low, int | float) else 1e-3 * (high - low)

    def _log_mu(self) -> Array:
        """mu on the pool, where a point target has no density: log mean_j exp(-|c_i - t_j|^2 / 2h^2)."""
        scaled = self.space.scaled
        targets = scaled(self.space.targets.context)
        diagonal = jnp.sqrt(jnp.sum((scaled(self.space.high) - scaled(self.space.low)) ** 2))
        h = jnp.where(diagonal > 0, self.bandwidth * diagonal, 1.0)  # all contexts alike: any will do

        def log_density(context: Array) -> Array:
            return jax.nn.logsumexp(-0.5 * squared_distances(context[None] / h, targets / h)[0])

        n = self.space.n_pool
        return normalised(jax.lax.map(log_density, scaled(self.space.pool.context), batch_size=min(n, 256)))


def usable_values(value: Array, v_min: float) -> Array:
    """Raw values, as SPDL compares them with delta; one that is not finite counts as the lowest of the others."""
    finite = jnp.isfinite(value)
    worst = jnp.min(jnp.where(finite, value, jnp.inf))
    return jnp.where(finite, value, jnp.where(jnp.isfinite(worst), worst, v_min))


def normalised(log_p: Array) -> Array:
    """Log-probabilities, none below log(1e-12 / n): a task that is worth nothing today can still come back."""
    floor = jnp.log(1e-12 / log_p.shape[0])
    return jax.nn.log_softmax(jnp.maximum(jax.nn.log_softmax(log_p), floor))


def self_paced(
    value: Array,
    log_q: Array,
    log_mu: Array,
    delta: float | Array,
    epsilon: float | Array,
    tolerance: float | Array = 1e-3,
) -> Array:
    """The next distribution, f32[n], as log-probabilities.

    By the Karush-Kuhn-Tucker conditions it has the form

        log p = log q + a (log mu - log q) + b V + const,    0 <= a <= 1,  b >= 0,

    with a = 1 where the trust region is wide enough and b = 0 where the student is good enough. For a given a,
    E_p[V] grows with b: let b(a) be the smallest b that is good enough. Then KL(p || q) grows with a, and the answer
    is the largest a that the trust region allows. Each search is along a monotone function of one variable.
    """
    top, spread = jnp.max(value), jnp.max(value) - jnp.min(value)
    scale = jnp.where(spread > 0, spread, 1.0)
    v = (value - top) / scale  # f32[n]  in [-1, 0], so that the bounds on b fit any reward
    need = (delta - top) / scale
    family = Family(log_q, log_mu - log_q, v)
    radius = jnp.sqrt(jnp.maximum(epsilon, 0.0))

    zero = jnp.float32(0.0)
    q = family.at(zero, zero)
    easiest = family.easiest(q, radius)
    feasible = easiest.value >= need
    furthest = family.furthest(q, radius, jnp.where(feasible, need, -2.0))  # -2: ask for nothing, the result is unused
    chosen = jax.tree.map(lambda a, b: jnp.where(feasible, a, b), furthest, easiest)
    good_enough = ~feasible | (chosen.value >= need - jnp.maximum(tolerance / scale, 1e-5))  # 1e-5: rounding
    accepted = good_enough & (chosen.kl <= epsilon * (1 + 1e-3) + 1e-6)
    return normalised(jnp.where(accepted, family.log_p(chosen.a, chosen.b), log_q))


class Point(NamedTuple):
    """One member of the family and what the search wants to know of it. All f32[]."""

    a: Array
    b: Array
    value: Array  # E_p[v]
    kl: Array  # KL(p || q)
    var_v: Array  # the covariance of (log mu - log q, v) under p: every slope is computed from it
    var_t: Array
    cov: Array


B_MAX = 1e6  # v spans 1: such a tilt puts everything on the best task


class Family(NamedTuple):
    """p(a, b) proportional to q exp(a t + b v), with t = log mu - log q."""

    log_q: Array  # f32[n]
    t: Array  # f32[n]
    v: Array  # f32[n]

    def log_p(self, a: Array, b: Array) -> Array:
        return jax.nn.log_softmax(self.log_q + a * self.t + b * self.v)

    def at(self, a: Array, b: Array) -> Point:
        """One pass over the pool (and the only place that makes one)."""
        exponent = a * self.t + b * self.v
        logits = self.log_q + exponent
        top = jnp.max(logits)
        weight = jnp.exp(logits - top)
        total = jnp.sum(weight)
        p = weight / total
        mean_v, mean_t = jnp.sum(p * self.v), jnp.sum(p * self.t)
        dv, dt = self.v - mean_v, self.t - mean_t
        kl = jnp.sum(p * (exponent - (top + jnp.log(total))))
        var_v, var_t, cov = jnp.sum(p * dv * dv), jnp.sum(p * dt * dt), jnp.sum(p * dv * dt)
        return Point(a, b, mean_v, jnp.maximum(kl, 0.0), var_v, var_t, cov)

    def easiest(self, q: Point, radius: Array) -> Point:
        """The recovery phase: a = 0 and the largest b with KL(p || q) <= epsilon."""

        def excess(b: Array, _: Point) -> tuple[Array, Array, Point]:
            point = self.at(jnp.zeros_like(b), b)
            kl = jnp.sqrt(point.kl)  # nearly linear in b
            return kl - radius, b * point.var_v / (2 * jnp.maximum(kl, 1e-9)), point

        first = radius * jnp.sqrt(2 / jnp.maximum(q.var_v, 1e-12))
        return rising_root(excess, first, B_MAX, q)

    def furthest(self, q: Point, radius: Array, need: Array) -> Point:
        """The largest a <= 1 for which p(a, b(a)) stays within the trust region."""

        def excess(a: Array, last: Point) -> tuple[Array, Array, Point]:
            point = self.good_enough(a, need, last)
            kl = jnp.sqrt(point.kl)
            bend = jnp.where(point.b > 0, point.cov**2 / jnp.maximum(point.var_v, 1e-12), 0.0)
            return kl - radius, a * (point.var_t - bend) / (2 * jnp.maximum(kl, 1e-9)), point

        return rising_root(excess, radius * jnp.sqrt(2 / jnp.maximum(q.var_t, 1e-12)), 1.0, q)

    def good_enough(self, a: Array, need: Array, last: Point) -> Point:
        """b(a): the smallest b >= 0 with E_p[v] >= need."""

        def surplus(b: Array, _: Point) -> tuple[Array, Array, Point]:
            point = self.at(a, b)
            return point.value - need, point.var_v, point

        slope = -last.cov / jnp.maximum(last.var_v, 1e-12)  # of b(a), while the student is just good enough
        return rising_root(surplus, jnp.where(last.b > 0, last.b + slope * (a - last.a), 0.0), B_MAX, last)


Search = Callable[[Array, Point], tuple[Array, Array, Point]]  # x, the last point -> f(x), f'(x), the new point


def rising_root(f: Search, first: Array, high: float, start: Point) -> Point:
    """The zero of an increasing function in [0, high], or the end of the interval nearest to one.

    Newton's method inside a bracket that every step narrows. Where Newton leaves the bracket, an end that has not
    been tried yet is tried; where that is no help, or Newton is slow, the bracket is halved (on a logarithmic scale
    while it is wide).
    """

    def step(carry: _Bracket) -> _Bracket:
        x, low, high_, low_tried, high_tried, size, _, point, tries = carry
        y, slope, point = f(x, point)
        done = (jnp.abs(y) <= 2e-6) | ((x >= high) & (y <= 0)) | ((x <= 0) & (y >= 0))
        low, low_tried = jnp.where(y < 0, x, low), low_tried | (y < 0)
        high_, high_tried = jnp.where(y < 0, high_, x), high_tried | (y >= 0)

        middle = jnp.where(high_ > 8 * low + 8, jnp.sqrt((low + 1) * (high_ + 1)) - 1, (low + high_) / 2)
        newton = jnp.minimum(x - y / jnp.maximum(slope, 1e-30), 8 * x + 1)  # a flat start must not throw it far away
        slow = low_tried & high_tried & (jnp.abs(y) > 0.5 * size)
        next_x = jnp.where((newton > low) & (newton < high_) & ~slow, newton, middle)
        next_x = jnp.where((newton <= low) & ~low_tried, low, next_x)
        next_x = jnp.where((newton >= high_) & ~high_tried, high_, next_x)
        done |= low_tried & high_tried & (high_ - low <= 4e-7 * high_)
        return _Bracket(next_x, low, high_, low_tried, high_tried, jnp.abs(y), done, point, tries + 1)

    def unsolved(carry: _Bracket) -> Array:
        return ~carry.done & (carry.tries < 40)

    no, zero, infinity = jnp.bool_(False), jnp.float32(0.0), jnp.float32(jnp.inf)
    x = jnp.clip(first, 0.0, high)
    bracket = _Bracket(x, zero, jnp.float32(high), no, no, infinity, no, start, jnp.int32(0))
    return jax.lax.while_loop(unsolved, step, bracket).point


class _Bracket(NamedTuple):
    x: Array  # to be tried next
    low: Array
    high: Array
    low_tried: Array  # bool
    high_tried: Array  # bool
    size: Array  # |f| at the last try
    done: Array  # bool
    point: Point  # of the last try
    tries: Array  # i32
