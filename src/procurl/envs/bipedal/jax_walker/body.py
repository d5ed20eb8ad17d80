"""The walker's five bodies and four joints as numbers: Gymnasium's `BipedalWalker`, as Box2D sees it.

Everything is relative to a body's centre of mass. Masses and moments of inertia are those of uniform polygons. Two
facts are hidden in Box2D's bindings: fixtures given no friction have 0.2, and a joint's angle counts from the angles at
which its bodies were created.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from procurl.envs.bipedal.track import GROUND, START

Floats = NDArray[np.float32]

HULL, LEFT, LEFT_FOOT, RIGHT, RIGHT_FOOT = range(5)  # in Box2D's order of creation; a foot is a whole lower leg
FEET = (LEFT_FOOT, RIGHT_FOOT)

DT = np.float32(1 / 50)
GRAVITY = -10.0
TORQUE = 80.0  # of a motor at full action
PUSH = 5.0  # newtons on the hull in the first step, at most

SCALE = 30.0  # pixels per metre
LEG_WIDTH, LEG_LENGTH, HIP = 8 / SCALE, 34 / SCALE, -8 / SCALE  # the hip's height in the hull
HULL_CORNERS = np.array([(-30, 9), (-30, -8), (34, -8), (34, 1), (6, 9)]) / SCALE  # counter-clockwise
TERRAIN_FRICTION, HULL_FRICTION, LEG_FRICTION = 2.5, 0.1, 0.2
SPREAD = 0.05  # radians by which each leg is turned outwards when it is created


class Hinge(NamedTuple):
    """A revolute joint with motor and limits between bodies a and b."""

    a: int
    b: int
    anchor_a: tuple[float, float]  # from the centre of a, in its frame
    anchor_b: tuple[float, float]
    reference: float  # angle of b minus angle of a where the joint's angle is zero
    lower: float  # limits of the angle of b minus the angle of a
    upper: float
    action: int  # which action drives it
    speed: float  # radians per second that its motor aims at


def _rectangle(width: float, height: float) -> NDArray[np.float64]:
    return np.array([(-1, 1), (-1, -1), (1, -1), (1, 1)]) * (width / 2, height / 2)


def _mass(corners: NDArray[np.float64], density: float) -> tuple[float, NDArray[np.float64], float]:
    """Mass, centre, and moment of inertia about the centre, from the triangles between the origin and each side."""
    first, second = corners, np.roll(corners, -1, axis=0)
    double_area = first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0]
    mass = density * double_area.sum() / 2
    centre = density * (double_area[:, None] * (first + second)).sum(0) / 6 / mass
    about_origin = density * (double_area * ((first**2 + first * second + second**2).sum(1))).sum() / 12
    return mass, centre, about_origin - mass * (centre @ centre)


_LEG, _FOOT = _rectangle(LEG_WIDTH, LEG_LENGTH), _rectangle(0.8 * LEG_WIDTH, LEG_LENGTH)
_SHAPES = [(HULL_CORNERS, 5.0), (_LEG, 1.0), (_FOOT, 1.0), (_LEG, 1.0), (_FOOT, 1.0)]
_MASSES = [_mass(*shape) for shape in _SHAPES]

CORNERS = [corners - centre for (corners, _), (_, centre, _) in zip(_SHAPES, _MASSES, strict=True)]  # f64[4 or 5, 2]
MASS = np.array([[m] for m, _, _ in _MASSES], np.float32)  # f32[5, 1]
INERTIA = np.array([[i] for _, _, i in _MASSES], np.float32)
INVERSE: Any = 1 / np.stack([MASS, MASS, INERTIA])  # f32[3, 5, 1]  what an impulse along x, y and the angle changes
CENTRE = tuple(_MASSES[HULL][1].tolist())  # of the hull's mass, in the frame in which its corners are given
FRICTION = np.sqrt(
    TERRAIN_FRICTION * np.array([[HULL_FRICTION]] + [[LEG_FRICTION]] * 4), dtype=np.float32
)  # Box2D mixes by the geometric mean


class Faces(NamedTuple):
    """The sides of every body in its own frame, f32[5 faces, 5 bodies, 1]; legs have four, and their last one twice."""

    normal_x: Floats
    normal_y: Floats
    begin_x: Floats
    begin_y: Floats
    end_x: Floats
    end_y: Floats


def _faces() -> Faces:
    bodies = []
    for begin in CORNERS:
        end = np.roll(begin, -1, axis=0)
        along = (end - begin) / np.linalg.norm(end - begin, axis=1, keepdims=True)
        normal = np.stack([along[:, 1], -along[:, 0]], axis=1)
        table = np.concatenate([normal, begin, end], axis=1)  # f64[4 or 5, 6]
        bodies.append(table if len(table) == 5 else np.concatenate([table, table[-1:]]))
    by_field = np.stack(bodies, axis=1).astype(np.float32)  # f32[5 faces, 5 bodies, 6]
    return Faces(*(by_field[..., k : k + 1] for k in range(6)))


FACES = _faces()


def _hip(leg: int, side: int, action: int) -> Hinge:
    anchor = (-CENTRE[0], HIP - CENTRE[1])
    reference = side * SPREAD
    return Hinge(HULL, leg, anchor, (0.0, LEG_LENGTH / 2), reference, reference - 0.8, reference + 1.1, action, 4.0)


def _knee(leg: int, foot: int, action: int) -> Hinge:
    return Hinge(leg, foot, (0.0, -LEG_LENGTH / 2), (0.0, LEG_LENGTH / 2), 0.0, -1.6, -0.1, action, 6.0)


# In the order in which Box2D solves them: it goes through the bodies from the last one created.
HINGES = (_knee(RIGHT, RIGHT_FOOT, 3), _hip(RIGHT, 1, 2), _hip(LEFT, -1, 0), _knee(LEFT, LEFT_FOOT, 1))
BY_ACTION = sorted(HINGES, key=lambda hinge: hinge.action)

# Where the bodies are created: the legs too high by twice the hip's depth, and with straight knees, which their limits
# forbid. The first step of an episode pulls everything into place.
_X, _Y = START / 2, GROUND + 2 * LEG_LENGTH
_LEG_Y, _FOOT_Y = _Y - LEG_LENGTH / 2 - HIP, _Y - 3 * LEG_LENGTH / 2 - HIP
CREATED = np.array(
    [
        [_X + CENTRE[0], _X, _X, _X, _X],
        [_Y + CENTRE[1], _LEG_Y, _FOOT_Y, _LEG_Y, _FOOT_Y],
        [0.0, -SPREAD, -SPREAD, SPREAD, SPREAD],
    ],
    np.float32,
)[..., None]  # f32[3, 5, 1]  x, y, angle

SLOP, SKIN = 0.005, 0.01  # metres: penetration that is left alone, and the skin of every polygon
ANGULAR_SLOP = 2 * math.pi / 180
