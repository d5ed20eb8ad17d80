"""What joints do to velocities and positions: Box2D's revolute joint with motor and limits.

Joints share bodies, so they take turns, in the order of `HINGES`; a body's numbers are rows f32[N].
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from procurl.envs.bipedal.jax_walker.body import ANGULAR_SLOP, HINGES, INV_INERTIA, INV_MASS, SLOP, Hinge
from procurl.envs.bipedal.jax_walker.collision import rotate

MOST_TURN = 8 * np.pi / 180  # radians that a limit corrects in an iteration

Row = list[Array]  # of the five bodies, f32[N] each


class Rows(NamedTuple):
    """Positions or velocities of the five bodies."""

    x: Row
    y: Row
    turn: Row  # angle or spin


class JointImpulse(NamedTuple):
    """What a joint has applied so far, f32[N] each; the engine keeps f32[4, N], by joint."""

    x: Array
    y: Array
    limit: Array
    motor: Array


class Ready(NamedTuple):
    """A joint's constants in one step: arms to its anchor, and the inverse of its constraints' matrix

        K = [m + iA ay^2 + iB by^2      -iA ax ay - iB bx by     -iA ay - iB by]
            [                            m + iA ax^2 + iB bx^2    iA ax + iB bx]
            [                                                     iA + iB      ]

    for the velocity of the anchor (x, y) and of the angle.
    """

    ax: Array
    ay: Array
    bx: Array
    by: Array
    k13: Array
    k23: Array
    inverse3: tuple[Array, ...]  # 11, 12, 13, 22, 23, 33
    inverse2: tuple[Array, ...]  # 11, 12, 22  of the anchor alone
    limit: Array  # i32[N]  -1 at the lower limit, 1 at the upper, 0 between
    aim: Array  # f32[N]  the motor's speed
    most: Array  # f32[N]  the motor's greatest impulse


def inverses(hinge: Hinge) -> tuple[float, float, float, float]:
    """Inverse masses and moments of inertia of its bodies."""
    a, b = hinge.a, hinge.b
    return float(INV_MASS[a, 0]), float(INV_INERTIA[a, 0]), float(INV_MASS[b, 0]), float(INV_INERTIA[b, 0])


def limit_states(angle: Array) -> Array:
    """Which limit each joint is at, i32[4, N], for angles f32[5, N]."""
    turn = jnp.stack([angle[h.b] - angle[h.a] for h in HINGES])
    lower, upper = (np.array([[getattr(h, name)] for h in HINGES], np.float32) for name in ("lower", "upper"))
    return jnp.where(turn <= lower, -1, jnp.where(turn >= upper, 1, 0))


def arms(hinge: Hinge, angle_a: Array, angle_b: Array) -> tuple[Array, Array, Array, Array]:
    """From the centres of both bodies to the joint."""
    ax, ay = rotate(jnp.cos(angle_a), jnp.sin(angle_a), *hinge.anchor_a)
    bx, by = rotate(jnp.cos(angle_b), jnp.sin(angle_b), *hinge.anchor_b)
    return ax, ay, bx, by


def prepare(hinge: Hinge, angle: Array, limit: Array, aim: Array, most: Array) -> Ready:
    ax, ay, bx, by = arms(hinge, angle[hinge.a], angle[hinge.b])
    m_a, i_a, m_b, i_b = inverses(hinge)
    k11, k12, k13 = m_a + m_b + i_a * ay * ay + i_b * by * by, -i_a * ax * ay - i_b * bx * by, -i_a * ay - i_b * by
    k22, k23, k33 = m_a + m_b + i_a * ax * ax + i_b * bx * bx, i_a * ax + i_b * bx, i_a + i_b
    c11, c12, c13 = k22 * k33 - k23 * k23, k13 * k23 - k12 * k33, k12 * k23 - k13 * k22
    c22, c23, c33 = k11 * k33 - k13 * k13, k12 * k13 - k11 * k23, k11 * k22 - k12 * k12
    scale3, scale2 = 1 / (k11 * c11 + k12 * c12 + k13 * c13), 1 / c33
    return Ready(
        ax, ay, bx, by, k13, k23,
        tuple(scale3 * c for c in (c11, c12, c13, c22, c23, c33)), (scale2 * k22, -scale2 * k12, scale2 * k11),
        limit, aim, most,
    )  # fmt: skip


def apply(hinge: Hinge, ready: Ready, v: Rows, px: Array, py: Array, torque: Array) -> Rows:
    """Velocities after an impulse at the joint: b gets it, a the opposite."""
    m_a, i_a, m_b, i_b = inverses(hinge)
    v, a, b = Rows(*map(list, v)), hinge.a, hinge.b
    v.x[a], v.y[a] = v.x[a] - m_a * px, v.y[a] - m_a * py
    v.turn[a] = v.turn[a] - i_a * (ready.ax * py - ready.ay * px + torque)
    v.x[b], v.y[b] = v.x[b] + m_b * px, v.y[b] + m_b * py
    v.turn[b] = v.turn[b] + i_b * (ready.bx * py - ready.by * px + torque)
    return v


def solve_velocity(hinge: Hinge, ready: Ready, v: Rows, before: JointImpulse) -> tuple[Rows, JointImpulse]:
    """One iteration: the motor, within its torque; then the anchor, with the limit if that pushes and without if not."""
    settled = jax.lax.optimization_barrier
    _, i_a, _, i_b = inverses(hinge)
    a, b = hinge.a, hinge.b
    wanted = before.motor - (v.turn[b] - v.turn[a] - ready.aim) / (i_a + i_b)
    motor = settled(jnp.clip(wanted, -ready.most, ready.most))
    drive = motor - before.motor
    turn_a, turn_b = v.turn[a] - i_a * drive, v.turn[b] + i_b * drive

    away_x = v.x[b] - turn_b * ready.by - v.x[a] + turn_a * ready.ay
    away_y = v.y[b] + turn_b * ready.bx - v.y[a] - turn_a * ready.ax
    away_turn = turn_b - turn_a
    away_x, away_y, away_turn = settled((away_x, away_y, away_turn))
    i11, i12, i13, i22, i23, i33 = ready.inverse3
    limit_x = -(i11 * away_x + i12 * away_y + i13 * away_turn)
    limit_y = -(i12 * away_x + i22 * away_y + i23 * away_turn)
    limit_turn = -(i13 * away_x + i23 * away_y + i33 * away_turn)
    pushes = (ready.limit != 0) & (ready.limit * (before.limit + limit_turn) <= 0)  # positive at the lower limit

    rest_x, rest_y = before.limit * ready.k13 - away_x, before.limit * ready.k23 - away_y
    j11, j12, j22 = ready.inverse2
    px = jnp.where(pushes, limit_x, j11 * rest_x + j12 * rest_y)
    py = jnp.where(pushes, limit_y, j12 * rest_x + j22 * rest_y)
    turn = jnp.where(pushes, limit_turn, -before.limit)
    px, py, turn = settled((px, py, turn))
    v = settled(apply(hinge, ready, v, px, py, turn + drive))
    return v, JointImpulse(before.x + px, before.y + py, before.limit + turn, motor)


def solve_position(hinge: Hinge, limit: Array, p: Rows) -> tuple[Rows, Array]:
    """One iteration: the limit, then the anchor. bool[N]: both were met within their tolerances."""
    settled = jax.lax.optimization_barrier
    m_a, i_a, m_b, i_b = inverses(hinge)
    p, a, b = Rows(*map(list, p)), hinge.a, hinge.b
    angle = p.turn[b] - p.turn[a]
    below, above = angle - hinge.lower, angle - hinge.upper
    correction = jnp.where(
        limit < 0,
        jnp.clip(below + ANGULAR_SLOP, -MOST_TURN, 0.0),
        jnp.where(limit > 0, jnp.clip(above - ANGULAR_SLOP, 0.0, MOST_TURN), 0.0),
    )
    beyond = jnp.where(limit < 0, -below, jnp.where(limit > 0, above, 0.0))
    impulse = -correction / (i_a + i_b)
    turn_a, turn_b = settled((p.turn[a] - i_a * impulse, p.turn[b] + i_b * impulse))

    ax, ay, bx, by = settled(arms(hinge, turn_a, turn_b))
    gap_x, gap_y = p.x[b] + bx - p.x[a] - ax, p.y[b] + by - p.y[a] - ay
    k11, k12 = m_a + m_b + i_a * ay * ay + i_b * by * by, -i_a * ax * ay - i_b * bx * by
    k22 = m_a + m_b + i_a * ax * ax + i_b * bx * bx
    scale = -1 / (k11 * k22 - k12 * k12)
    px, py = settled((scale * (k22 * gap_x - k12 * gap_y), scale * (k11 * gap_y - k12 * gap_x)))
    p.x[a], p.y[a], p.turn[a] = p.x[a] - m_a * px, p.y[a] - m_a * py, turn_a - i_a * (ax * py - ay * px)
    p.x[b], p.y[b], p.turn[b] = p.x[b] + m_b * px, p.y[b] + m_b * py, turn_b + i_b * (bx * py - by * px)
    met = (gap_x * gap_x + gap_y * gap_y <= SLOP * SLOP) & (beyond <= ANGULAR_SLOP)
    p, met = settled((p, met))
    return p, met
