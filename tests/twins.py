"""Slow, obvious twins in plain NumPy, written from the specification and not from the code under test."""

from __future__ import annotations

import numpy as np


class PointMassTwin:
    """One point mass, one Euler step after another, in float64."""

    def __init__(self, context, noise=None):
        self.gate, self.width, self.friction = (float(c) for c in context)
        self.state = [0.0, 0.0, 3.0, 0.0]  # x, vx, y, vy
        self.t = 0
        self.noise = noise or (lambda: 0.0)

    def observation(self):
        return np.array([*self.state, self.gate, self.width, self.friction])

    def step(self, action):
        fx, fy = np.clip(action, -10, 10)
        hit = False
        for _ in range(10):
            x, vx, y, vy = self.state
            ax = 1.5 * fx - self.friction * vx + self.noise()
            ay = 1.5 * fy - self.friction * vy + self.noise()
            nx, ny = np.clip(x + 0.01 * vx, -4, 4), np.clip(y + 0.01 * vy, -4, 4)
            if (y >= 0 > ny) or (y <= 0 < ny):
                xc = x + (nx - x) * (0 - y) / (ny - y)
                if abs(xc - self.gate) > self.width / 2:
                    self.state, hit = [xc, 0.0, 0.0, 0.0], True
                    break
            self.state = [nx, vx + 0.01 * ax, ny, vy + 0.01 * ay]
        self.t += 1
        success = bool(np.hypot(self.state[0], self.state[2] + 3) < 0.3)
        return self.observation(), float(success), success or hit or self.t >= 100, hit


def gae_twin(reward, value, next_value, done, gamma, lam):
    """For every step, the definition: the sum of discounted one-step errors until the episode ends."""
    steps, n_envs = reward.shape
    out = np.zeros((steps, n_envs))
    for n in range(n_envs):
        for t in range(steps):
            weight = 1.0
            for k in range(t, steps):
                out[t, n] += weight * (reward[k, n] + gamma * next_value[k, n] * (1 - done[k, n]) - value[k, n])
                if done[k, n]:
                    break
                weight *= gamma * lam
    return out


def procurl_target_twin(v_pool, v_targets, pool, targets, beta, v_max=1.0, pairing="pair", length_scale=1.0):
    """P(task) by a double loop over pairs."""

    def potential(v):
        v = min(max(0.0 if np.isnan(v) else v, 0.0), v_max)
        return v / v_max * (v_max - v)

    weights = np.zeros(len(pool))
    for i in range(len(pool)):
        scores = []
        for j in range(len(targets)):
            k = np.exp(-np.sqrt(np.sum((pool[i] - targets[j]) ** 2)) / length_scale)
            scores.append(beta * potential(v_pool[i]) * potential(v_targets[j]) * k)
        weights[i] = np.sum(np.exp(scores)) if pairing == "pair" else np.exp(np.max(scores))
    return weights / weights.sum()
