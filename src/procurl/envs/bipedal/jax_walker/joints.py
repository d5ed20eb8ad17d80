"""What joints do to velocities and positions: Box2D's revolute joint with motor and limits.

Joints share bodies, so they take turns, in the order of `HINGES`. A body's velocity or position is f32[3, N] along x, y
and the angle, and so is the impulse of a joint: at its anchor, and of its limit.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from procurl.envs.bipedal.jax_walker.body import ANGULAR_SLOP, HINGES, INVERSE, SLOP, Hinge
from procurl.envs.bipedal.jax_walker.collision import rotate
from procurl.envs.bipedal.jax_walker.lanes import stage

MOST_TURN = 8 * np.pi / 180  # radians that a limit corrects in an iteration, at most
TURN = np.array([[0.0], [0.0], [1.0]], np.float32)  # f32[3, 1]


class JointImpulse(NamedTuple):
    """What a joint has applied so far."""

    pull: Array  # f32[3, N]  at the anchor along x and y, and of the limit
    motor: Array  # f32[N]


class Ready(NamedTuple):
    """A joint's constants in one step. K is the matrix from impulses to speeds of anchor and angle

        K = [m + iA ay^2 + iB by^2      -iA ax ay - iB bx by     -iA ay - iB by]
            [                            m + iA ax^2 + iB bx^2    iA ax + iB bx]
            [                                                     iA + iB      ]

    for arms a and b from the bodies' centres to the anchor.
    """

    arm_a: Array  # f32[3, N]  (-ay, ax, 0): what a turn of the body adds to the anchor's speed
    arm_b: Array
    free: Array  # f32[2, 3, N]  columns of the inverse of K's upper left part, for the anchor alone; then a zero
    stopped: Array  # f32[3, 3, N]  columns of K's inverse
    coupling: Array  # f32[2, N]  K13, K23
    limit: Array  # i32[N]  -1 at the lower limit, 1 at the upper, 0 between
    aim: Array  # f32[N]  the motor's speed
    most: Array  # f32[N]  the motor's greatest impulse


def inverses(hinge: Hinge) -> tuple[float, float, float, float]:
    """Inverse masses and moments of inertia of its bodies."""
    (m_a, _, i_a), (m_b, _, i_b) = (INVERSE[:, body, 0].tolist() for body in (hinge.a, hinge.b))
    return m_a, i_a, m_b, i_b


def limit_states(angle: Array) -> Array:
    """Which limit each joint is at, i32[4, N], for angles f32[5, N]."""
    turn = jnp.stack([angle[h.b] - angle[h.a] for h in HINGES])
    lower, upper = (np.array([[getattr(h, name)] for h in HINGES], np.float32) for name in ("lower", "upper"))
    return jnp.where(turn <= lower, -1, jnp.where(turn >= upper, 1, 0)).astype(jnp.int32)  # a strong type, as stored


def prepare(hinge: Hinge, cos: Array, sin: Array, limit: Array, aim: Array, most: Array) -> Ready:
    """For bodies turned by angles with these cosines and sines, f32[5, N]."""
    ax, ay = rotate(cos[hinge.a], sin[hinge.a], *hinge.anchor_a)
    bx, by = rotate(cos[hinge.b], sin[hinge.b], *hinge.anchor_b)
    m_a, i_a, m_b, i_b = inverses(hinge)
    k11, k12, k13 = m_a + m_b + i_a * ay * ay + i_b * by * by, -i_a * ax * ay - i_b * bx * by, -i_a * ay - i_b * by
    k22, k23, k33 = m_a + m_b + i_a * ax * ax + i_b * bx * bx, i_a * ax + i_b * bx, i_a + i_b
    c11, c12, c13 = k22 * k33 - k23 * k23, k13 * k23 - k12 * k33, k12 * k23 - k13 * k22
    c22, c23, c33 = k11 * k33 - k13 * k13, k12 * k13 - k11 * k23, k11 * k22 - k12 * k12
    zero = jnp.zeros_like(ax)
    stopped = jnp.stack([jnp.stack(column) for column in ((c11, c12, c13), (c12, c22, c23), (c13, c23, c33))])
    free = jnp.stack([jnp.stack([k22, -k12, zero]), jnp.stack([-k12, k11, zero])])
    return Ready(
        jnp.stack([-ay, ax, zero]), jnp.stack([-by, bx, zero]),
        free / c33, stopped / (k11 * c11 + k12 * c12 + k13 * c13), jnp.stack([k13, k23]), limit, aim, most,
    )  # fmt: skip


def pulled(hinge: Hinge, end: str, v: Array, arm: Array, pull: Array, motor: Array) -> Array:
    """The velocity of body `end`, f32[3, N], after an impulse of the joint: b gets it, a the opposite."""
    body, sign = (hinge.a, -1.0) if end == "a" else (hinge.b, 1.0)
    turn = arm[0] * pull[0] + arm[1] * pull[1] + motor
    return v + sign * INVERSE[:, body] * (pull + TURN * turn)


def apply(hinge: Hinge, ready: Ready, v: list[Array], pull: Array, motor: Array) -> list[Array]:
    """Velocities of all bodies after an impulse of the joint."""
    after = list(v)
    after[hinge.a] = pulled(hinge, "a", v[hinge.a], ready.arm_a, pull, motor)
    after[hinge.b] = pulled(hinge, "b", v[hinge.b], ready.arm_b, pull, motor)
    return after


class Solver:
    """The iterations of one joint, each part computed once (`lanes.stage`)."""

    def __init__(self, hinge: Hinge) -> None:
        self.hinge = hinge
        m_a, i_a, m_b, i_b = inverses(hinge)

        @stage
        def motor(v_a: Array, v_b: Array, before: Array, aim: Array, most: Array) -> Array:
            return jnp.clip(before - (v_b[2] - v_a[2] - aim) / (i_a + i_b), -most, most)

        @stage
        def pull(ready: Ready, v_a: Array, v_b: Array, drive: Array, limit: Array) -> Array:
            """The anchors stay together, with the limit if it pushes and without it if not."""
            turn_a, turn_b = v_a[2] - i_a * drive, v_b[2] + i_b * drive
            apart_x = v_b[0] - v_a[0] + ready.arm_b[0] * turn_b - ready.arm_a[0] * turn_a
            apart_y = v_b[1] - v_a[1] + ready.arm_b[1] * turn_b - ready.arm_a[1] * turn_a
            apart_turn = turn_b - turn_a
            x, y, turn = ready.stopped[0], ready.stopped[1], ready.stopped[2]
            stopped = -(x * apart_x + y * apart_y + turn * apart_turn)
            of_limit = limit - (x[2] * apart_x + y[2] * apart_y + turn[2] * apart_turn)
            pushes = (ready.limit != 0) & (ready.limit * of_limit <= 0)  # positive at the lower limit
            rest_x, rest_y = limit * ready.coupling[0] - apart_x, limit * ready.coupling[1] - apart_y
            free = ready.free[0] * rest_x + ready.free[1] * rest_y - TURN * limit
            return jnp.where(pushes, stopped, free)

        @stage
        def at_a(v: Array, arm: Array, pull: Array, drive: Array) -> Array:
            return pulled(hinge, "a", v, arm, pull, drive)

        @stage
        def at_b(v: Array, arm: Array, pull: Array, drive: Array) -> Array:
            return pulled(hinge, "b", v, arm, pull, drive)

        @stage
        def turned(p_a: Array, p_b: Array, limit: Array) -> Array:
            """Angles of both bodies after the limit's correction, f32[2, N]."""
            angle = p_b[2] - p_a[2]
            below = jnp.clip(angle - hinge.lower + ANGULAR_SLOP, -MOST_TURN, 0.0)
            above = jnp.clip(angle - hinge.upper - ANGULAR_SLOP, 0.0, MOST_TURN)
            impulse = -jnp.where(limit < 0, below, jnp.where(limit > 0, above, 0.0)) / (i_a + i_b)
            return jnp.stack([p_a[2] - i_a * impulse, p_b[2] + i_b * impulse])

        @stage
        def cosines(angles: Array) -> Array:
            return jnp.cos(angles)

        @stage
        def sines(angles: Array) -> Array:
            return jnp.sin(angles)

        def gap(p_a: Array, p_b: Array, cos: Array, sin: Array) -> tuple[Array, ...]:
            ax, ay = rotate(cos[0], sin[0], *hinge.anchor_a)
            bx, by = rotate(cos[1], sin[1], *hinge.anchor_b)
            return ax, ay, bx, by, p_b[0] + bx - p_a[0] - ax, p_b[1] + by - p_a[1] - ay

        @stage
        def shift(p_a: Array, p_b: Array, cos: Array, sin: Array) -> Array:
            """Impulse that brings the anchors together, f32[2, N]."""
            ax, ay, bx, by, gap_x, gap_y = gap(p_a, p_b, cos, sin)
            k11, k12 = m_a + m_b + i_a * ay * ay + i_b * by * by, -i_a * ax * ay - i_b * bx * by
            k22 = m_a + m_b + i_a * ax * ax + i_b * bx * bx
            return jnp.stack([k12 * gap_y - k22 * gap_x, k12 * gap_x - k11 * gap_y]) / (k11 * k22 - k12 * k12)

        @stage
        def shifted_a(p: Array, angles: Array, cos: Array, sin: Array, shift: Array) -> Array:
            ax, ay = rotate(cos[0], sin[0], *hinge.anchor_a)
            turn = angles[0] - i_a * (ax * shift[1] - ay * shift[0])
            return jnp.stack([p[0] - m_a * shift[0], p[1] - m_a * shift[1], turn])

        @stage
        def shifted_b(p: Array, angles: Array, cos: Array, sin: Array, shift: Array) -> Array:
            bx, by = rotate(cos[1], sin[1], *hinge.anchor_b)
            turn = angles[1] + i_b * (bx * shift[1] - by * shift[0])
            return jnp.stack([p[0] + m_b * shift[0], p[1] + m_b * shift[1], turn])

        @stage
        def met(p_a: Array, p_b: Array, limit: Array, cos: Array, sin: Array) -> Array:
            """The joint held together, and within its limits, before this iteration."""
            *_, gap_x, gap_y = gap(p_a, p_b, cos, sin)
            angle = p_b[2] - p_a[2]
            beyond = jnp.where(limit < 0, hinge.lower - angle, jnp.where(limit > 0, angle - hinge.upper, 0.0))
            return (gap_x * gap_x + gap_y * gap_y <= SLOP * SLOP) & (beyond <= ANGULAR_SLOP)

        self.parts = motor, pull, at_a, at_b
        self.position_parts = turned, cosines, sines, shift, shifted_a, shifted_b, met

    def velocity(self, ready: Ready, v: list[Array], before: JointImpulse) -> tuple[list[Array], JointImpulse]:
        """One iteration: the motor, within its torque; then anchor and limit."""
        motor, pull, at_a, at_b = self.parts
        a, b = self.hinge.a, self.hinge.b
        new_motor = motor(v[a], v[b], before.motor, ready.aim, ready.most)
        drive = new_motor - before.motor
        impulse = pull(ready, v[a], v[b], drive, before.pull[2])
        after = list(v)
        after[a] = at_a(v[a], ready.arm_a, impulse, drive)
        after[b] = at_b(v[b], ready.arm_b, impulse, drive)
        return after, JointImpulse(before.pull + impulse, new_motor)

    def position(self, limit: Array, p: list[Array]) -> tuple[list[Array], Array]:
        """One iteration: the limit, then the anchor. bool[N]: both were met within their tolerances."""
        turned, cosines, sines, shift, shifted_a, shifted_b, met = self.position_parts
        a, b = self.hinge.a, self.hinge.b
        angles = turned(p[a], p[b], limit)
        cos, sin = cosines(angles), sines(angles)
        impulse = shift(p[a], p[b], cos, sin)
        holds = met(p[a], p[b], limit, cos, sin)
        after = list(p)
        after[a], after[b] = shifted_a(p[a], angles, cos, sin, impulse), shifted_b(p[b], angles, cos, sin, impulse)
        return after, holds


SOLVERS = tuple(Solver(hinge) for hinge in HINGES)
