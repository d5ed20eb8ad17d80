"""Theorem 1: what its proof shows, what it assumes, and why no curriculum keeps that assumption for ever.

The proof assumes E[V_t+1 - V_t] = beta_t (V* - V_t) - delta_t and shows, for the gap f = V* - V,

    f_t <= (1 - beta)^t f_0 + delta / beta,   beta = min beta_t > 0,   delta = max delta_t

which is at most epsilon after log(2 f_0 / epsilon) / log(1 / (1 - beta)) steps if delta <= epsilon beta / 2.

In the bandit, with a constant eta and |psi| <= B, theta cannot grow fast enough for that. With y = <theta, psi>, a step
adds 2 eta r y sigmoid'(y) + (eta Z |psi|)² to |theta|², at most C = 2 eta max_y y sigmoid'(y) + eta² B² / 16; so

    |theta_t|² <= |theta_0|² + C t   and   f_t >= r / 2 exp(-B sqrt(|theta_0|² + C t))

whatever the teacher does: beta_t must go to 0.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from procurl.bench.theory.bandit import Bandit, Floats
from procurl.errors import ConfigError


def stated_steps(first_gap: float, epsilon: float, beta: float) -> int:
    """The theorem's number of steps, rounded up to a whole one."""
    if not (0 < beta < 1 and epsilon > 0):
        raise ConfigError(f"stated_steps: beta = {beta}, epsilon = {epsilon}, expected 0 < beta < 1 and epsilon > 0")
    return max(0, math.ceil(math.log(2 * first_gap / epsilon) / -math.log1p(-beta)))


def recursion(first_gap: float, beta: float, delta: float, steps: int) -> Floats:
    """f_t of the worst case, f <- (1 - beta) f + delta, f64[steps + 1]."""
    gaps = np.empty(steps + 1)
    gaps[0] = first_gap
    for t in range(steps):
        gaps[t + 1] = (1 - beta) * gaps[t] + delta
    return gaps


def improvement_rates(gap: Floats) -> Floats:
    """beta_t = (V_t+1 - V_t) / (V* - V_t) = 1 - f_t+1 / f_t with delta = 0, f64[T]."""
    return (gap[:-1] - gap[1:]) / gap[:-1]


class Peak(NamedTuple):
    at: float
    height: float


def growth_of_mean() -> Peak:
    """max_y y sigmoid'(y): the most that <theta, step> can be for an expected step, per eta."""
    y = brentq(lambda y: y * math.tanh(y / 2) - 1, 1.0, 2.0, xtol=1e-14)  # where the derivative is 0
    return Peak(y, float(y * expit(y) * expit(-y)))


def growth_of_sample() -> Peak:
    """max_y y (1 - sigmoid(y)): the same for a single episode that went well."""
    y = brentq(lambda y: y * expit(y) - 1, 1.0, 2.0, xtol=1e-14)
    return Peak(y, float(y * expit(-y)))


def norm_growth(bandit: Bandit, eta: float, *, sampled: bool = False) -> float:
    """C: at most so much is added to |theta|² by one step of constant eta."""
    reach = (eta * np.linalg.norm(bandit.psi, axis=1).max()) ** 2
    if sampled:
        return 2 * eta * growth_of_sample().height + reach
    return 2 * eta * growth_of_mean().height + reach / 16


def norm_bound(bandit: Bandit, eta: float, first_norm: float, steps: int, *, sampled: bool = False) -> Floats:
    """|theta_t| is at most this, f64[steps + 1]."""
    return np.sqrt(first_norm**2 + norm_growth(bandit, eta, sampled=sampled) * np.arange(steps + 1))


def least_gap(bandit: Bandit, eta: float, first_norm: float, steps: int, *, sampled: bool = False) -> Floats:
    """The gap of the target is at least this, f64[steps + 1], under any teacher: sigmoid(-x) >= exp(-|x|) / 2."""
    reach = np.linalg.norm(bandit.psi[bandit.target])
    bound = norm_bound(bandit, eta, first_norm, steps, sampled=sampled)
    return bandit.reward[bandit.target] / 2 * np.exp(-reach * bound)


class Line(NamedTuple):
    slope: float
    intercept: float
    r_squared: float


def fitted_line(x: Floats, y: Floats) -> Line:
    """Least squares, and the share of the variance that it explains."""
    slope, intercept = np.polyfit(x, y, 1)
    residual = y - slope * x - intercept
    return Line(float(slope), float(intercept), float(1 - residual.var() / y.var()))
