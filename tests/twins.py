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


class MazeTwin:
    """One walker on the ring, one displacement after another, in float64."""

    def __init__(self, context, start):
        *self.goal, self.tolerance = (float(c) for c in context)
        self.position = [float(s) for s in start]
        self.t = 0

    def observation(self):
        return np.array([*self.position, *self.goal, self.tolerance])

    def step(self, action):
        """Also tells what was touched: the block's sides ("block x-", ...) and the outer borders ("border x-", ...)."""
        dx, dy = (min(max(float(a), -1.0), 1.0) for a in action)
        length = max(1.0, np.sqrt(dx * dx + dy * dy))
        old, new, touched = self.position, [], set()
        for axis, name, d in ((0, "x", dx), (1, "y", dy)):
            free = old[axis] + 0.3 * d / length
            if free < -7:
                touched.add(f"border {name}-")
            if free > 7:
                touched.add(f"border {name}+")
            new.append(min(max(free, -7.0), 7.0))
        if -5 < new[0] < 5 and -5 < new[1] < 5:
            for axis, name in ((0, "x"), (1, "y")):
                if old[axis] <= -5 < new[axis]:
                    new[axis] = -5.0
                    touched.add(f"block {name}-")
                elif old[axis] >= 5 > new[axis]:
                    new[axis] = 5.0
                    touched.add(f"block {name}+")
        self.position = new
        self.t += 1
        success = bool(np.sqrt((new[0] - self.goal[0]) ** 2 + (new[1] - self.goal[1]) ** 2) < self.tolerance)
        return self.observation(), float(success), success or self.t >= 200, touched


def maze_gap(goal):
    """How far a goal is from the ring, which is made of four corridors."""
    corridors = [((-7, 7), (-7, -5)), ((-7, 7), (5, 7)), ((-7, -5), (-7, 7)), ((5, 7), (-7, 7))]
    gaps = []
    for corridor in corridors:
        beyond = [max(low - g, 0.0, g - high) for g, (low, high) in zip(goal, corridor, strict=True)]
        gaps.append(np.sqrt(beyond[0] ** 2 + beyond[1] ** 2))
    return min(gaps)


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
