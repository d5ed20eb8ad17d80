"""Where bodies touch the terrain: Box2D's contact manifolds, for a convex polygon against the ground and rectangles.

Two polygons touch if their distance along every normal of either is at most two skins. The face with the greatest
distance is the reference; the face of the other shape that looks towards it is cut to the reference's width, and its
end points are the contact points. The ground is a rectangle without height that has one face, the one that the body is
on. All pieces of terrain near a body are looked at, and the SLOTS that it overlaps most are kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from procurl.envs.bipedal.jax_walker.body import FACES, SKIN
from procurl.envs.bipedal.jax_walker.terrain import Terrain, first_stump, stump
from procurl.envs.bipedal.track import GROUND, START, STEP

SLOTS = 3  # pieces of terrain that a body can touch at a time
NEARBY = 6  # stumps that the hull can reach at the smallest spacing
NOTHING, ON_GROUND = -1, 0  # as pieces; stump j is piece j + 1
FAR = 1e3  # metres

LAST_FACE = np.array([[4], [3], [3], [3], [3]], np.int32)  # of each body


class Manifolds(NamedTuple):
    """Contacts of every body, K = SLOTS.

    The reference plane is `normal . p = offset`. It belongs to the terrain, and the points to the body, in whose frame
    they are given; or, if `on_body`, the plane is the body's, in its frame, and the points are the terrain's.
    """

    piece: Array  # i32[K, 5, N]  of the terrain
    on_body: Array  # bool[K, 5, N]
    normal_x: Array  # f32[K, 5, N]
    normal_y: Array
    offset: Array
    point_x: Array  # f32[K, 2, 5, N]
    point_y: Array
    key: Array  # i32[K, 2, 5, N]  which corners and faces meet: who has the same key later is the same point
    active: Array  # bool[K, 2, 5, N]


class Pieces(NamedTuple):
    """Rectangles near every body, f32[C, 5, N]: the ground, then C - 1 stumps."""

    piece: Array  # i32
    x: Array  # centre
    y: Array
    half_width: Array
    half_height: Array
    exists: Array  # bool


class Turned(NamedTuple):
    """The bodies' faces in the world, f32[5 faces, 5 bodies, N]."""

    normal_x: Array
    normal_y: Array
    x: Array  # where each begins: a corner
    y: Array


IS_GROUND = (np.arange(NEARBY + 1) == 0)[:, None, None]  # bool[C, 1, 1]


def rotate(cos: Array, sin: Array, x: Any, y: Any) -> tuple[Array, Array]:
    return cos * x - sin * y, sin * x + cos * y


def turned(pose: Array) -> Turned:
    """Of bodies at x, y, angle: f32[3, 5, N]."""
    x, y, angle = pose
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    normal = rotate(cos, sin, FACES.normal_x, FACES.normal_y)
    corner_x, corner_y = rotate(cos, sin, FACES.begin_x, FACES.begin_y)
    return Turned(*normal, x + corner_x, y + corner_y)


def nearby(terrain: Terrain, left: Array) -> Pieces:
    """The ground, and the first stumps that reach beyond `left`, f32[5, N]."""
    first = first_stump(terrain, left - 2 * SKIN)
    index = first + np.arange(NEARBY, dtype=np.int32)[:, None, None]  # i32[NEARBY, 5, N]
    n = left.shape[-1]
    stump_left, height = (a.reshape(index.shape) for a in stump(terrain, index.reshape(-1, n)))
    ground = jnp.broadcast_to(terrain.end / 2, (1, *left.shape))
    zero = jnp.zeros_like(ground)

    def whole(of_ground: Array, of_stumps: Array) -> Array:
        return jnp.concatenate([of_ground, of_stumps])

    return Pieces(
        whole(zero.astype(jnp.int32), index + 1),
        whole(ground, stump_left + STEP / 2),
        whole(zero + GROUND, GROUND + height / 2),
        whole(ground, jnp.full_like(stump_left, STEP / 2)),
        whole(zero, height / 2),
        whole(jnp.ones_like(zero, bool), height > 0),
    )


def terrain_distances(pieces: Pieces, faces: Turned) -> list[Array]:
    """Along the pieces' normals (right, up, left, down), f32[C, 5, N] each: of the body's nearest corner."""
    low_x, high_x, low_y, high_y = faces.x.min(0), faces.x.max(0), faces.y.min(0), faces.y.max(0)
    return [
        low_x - pieces.x - pieces.half_width,
        low_y - pieces.y - pieces.half_height,
        pieces.x - high_x - pieces.half_width,
        pieces.y - high_y - pieces.half_height,
    ]


def body_distances(pieces: Pieces, faces: Turned) -> Array:
    """Along the body's normals, f32[C, 5 faces, 5 bodies, N]: of the piece's nearest corner."""
    x, y, half_width, half_height = (a[:, None] for a in (pieces.x, pieces.y, pieces.half_width, pieces.half_height))
    along = faces.normal_x * (x - faces.x) + faces.normal_y * (y - faces.y)
    return along - jnp.abs(faces.normal_x) * half_width - jnp.abs(faces.normal_y) * half_height


def collide(terrain: Terrain, pose: Array) -> Manifolds:
    """All contacts of all bodies at x, y, angle: f32[3, 5, N]."""
    body_x, body_y, angle = pose
    faces = turned(pose)
    pieces = nearby(terrain, faces.x.min(0))

    # The greatest distance on either side. The ground has one face: above it, or below for who fell off its end.
    above = body_y > GROUND
    right, up, left, down = terrain_distances(pieces, faces)
    aside = jnp.where(IS_GROUND, -FAR, 0.0)
    distances = jnp.stack([right + aside, up + aside * ~above, left + aside, down + aside * above])  # f32[4, C, 5, N]
    of_terrain, terrain_face = distances.max(0), distances.argmax(0)
    by_face = body_distances(pieces, faces)
    of_body, body_face = by_face.max(1), by_face.argmax(1)
    distance = jnp.maximum(of_terrain, of_body)
    near = (distance <= 2 * SKIN) & pieces.exists
    on_body = of_body > jnp.where(IS_GROUND, 0.98 * of_terrain + 0.001, of_terrain + 0.0005)  # Box2D prefers terrain

    def face_of_body(face: Array, *fields: Any) -> list[Array]:
        """Entries of tables [5 faces, 5 bodies, N]."""
        chosen = face[:, None] == np.arange(5)[:, None, None]  # bool[C, 5, 5, N]
        return [jnp.where(chosen, field, 0).sum(1) for field in fields]

    def face_of_terrain(face: Array) -> tuple[Array, Array, Array, Array, Array]:
        """Normal, middle and half the length."""
        nx = jnp.where(face == 0, 1.0, jnp.where(face == 2, -1.0, 0.0))
        ny = jnp.where(face == 1, 1.0, jnp.where(face == 3, -1.0, 0.0))
        length = jnp.where(face % 2 == 0, pieces.half_height, pieces.half_width)
        return nx, ny, pieces.x + nx * pieces.half_width, pieces.y + ny * pieces.half_height, length

    cos, sin = jnp.cos(angle), jnp.sin(angle)
    end_x, end_y = rotate(cos, sin, FACES.end_x, FACES.end_y)
    table = (faces.normal_x, faces.normal_y, faces.x, faces.y, body_x + end_x, body_y + end_y)

    # The reference face.
    t_nx, t_ny, t_x, t_y, t_length = face_of_terrain(terrain_face)
    b_nx, b_ny, b_x, b_y, b_end_x, b_end_y = face_of_body(body_face, *table)
    nx, ny = jnp.where(on_body, b_nx, t_nx), jnp.where(on_body, b_ny, t_ny)
    mid_x, mid_y = jnp.where(on_body, (b_x + b_end_x) / 2, t_x), jnp.where(on_body, (b_y + b_end_y) / 2, t_y)
    half = jnp.where(on_body, jnp.hypot(b_end_x - b_x, b_end_y - b_y) / 2, t_length)

    # The face of the other shape that looks towards it.
    towards = nx[:, None] * faces.normal_x + ny[:, None] * faces.normal_y
    body_incident = towards.argmin(1)
    _, _, i_x, i_y, i_end_x, i_end_y = face_of_body(body_incident, *table)
    flat = jnp.abs(nx) < jnp.abs(ny)
    looks = jnp.where(flat, jnp.where(ny > 0, 3, 1), jnp.where(nx > 0, 2, 0))
    terrain_incident = jnp.where(IS_GROUND, jnp.where(above, 1, 3), looks)
    m_x, m_y, mid_other_x, mid_other_y, reach = face_of_terrain(terrain_incident)
    begin_x = jnp.where(on_body, mid_other_x + m_y * reach, i_x) - mid_x
    begin_y = jnp.where(on_body, mid_other_y - m_x * reach, i_y) - mid_y
    stop_x = jnp.where(on_body, mid_other_x - m_y * reach, i_end_x) - mid_x
    stop_y = jnp.where(on_body, mid_other_y + m_x * reach, i_end_y) - mid_y
    incident = jnp.where(on_body, terrain_incident, body_incident)
    next_corner = jnp.where(on_body, (incident + 1) % 4, jnp.where(incident == LAST_FACE, 0, incident + 1))

    # Cut it to the reference's width: coordinates along the face, and distances from it.
    s1, s2 = ny * begin_x * -1 + nx * begin_y, ny * stop_x * -1 + nx * stop_y
    d1, d2 = nx * begin_x + ny * begin_y, nx * stop_x + ny * stop_y
    width = half + jnp.where(IS_GROUND, 0.0, 2 * SKIN)
    beside = ((s1 > width) & (s2 > width)) | ((s1 < -width) & (s2 < -width))
    slope = (d2 - d1) / jnp.where(jnp.abs(s2 - s1) < 1e-6, 1e-6, s2 - s1)

    reference = jnp.where(on_body, body_face + 8, terrain_face)
    local_nx, local_ny, local_x, local_y = face_of_body(
        body_face, FACES.normal_x, FACES.normal_y, FACES.begin_x, FACES.begin_y
    )
    ends = []
    for s, d, corner in ((s1, d1, incident), (s2, d2, next_corner)):
        cut = jnp.clip(s, -width, width)
        away = d + (cut - s) * slope
        x, y = mid_x - ny * cut + nx * away, mid_y + nx * cut + ny * away
        own_x, own_y = rotate(cos, -sin, x - body_x, y - body_y)
        side = jnp.where(cut == s, 0, jnp.where(s < 0, 1, 2))
        feature = (reference * 3 + side) * 8 + jnp.where(cut == s, corner, incident)
        ends.append((
            jnp.where(on_body, x, own_x), jnp.where(on_body, y, own_y),
            pieces.piece * 512 + feature, near & ~beside & (away <= 2 * SKIN),
        ))  # fmt: skip
    point_x, point_y, key, active = (jnp.stack(pair, 1) for pair in zip(*ends, strict=True))  # [C, 2, 5, N]
    everything = Manifolds(
        pieces.piece,
        on_body,
        jnp.where(on_body, local_nx, nx),
        jnp.where(on_body, local_ny, ny),
        jnp.where(on_body, local_nx * local_x + local_ny * local_y, nx * mid_x + ny * mid_y),
        point_x, point_y, key, active,
    )  # fmt: skip
    return _most_overlapping(everything, distance, from_left(terrain, body_x, pieces.piece))


def from_left(terrain: Terrain, x: Array, piece: Array) -> Array:
    """Places of pieces i32[k, 5, N] from left to right, for bodies at x: a gap's ground is between its two stumps.

    Box2D goes through a body's contacts from the newest to the oldest: on the way to the right, from right to left.
    """
    gap = jnp.floor((x - START) / terrain.pitch).astype(jnp.int32)
    return jnp.where(piece == ON_GROUND, 2 * gap + 1, 2 * (piece - 1))


def _most_overlapping(every: Manifolds, distance: Array, place: Array) -> Manifolds:
    """The SLOTS of C pieces with the smallest distance, from right to left."""
    touching = every.active.any(1)  # bool[C, 5, N]
    depth = jnp.where(touching, distance, FAR)
    order = np.arange(len(depth))
    closer = (depth[None] < depth[:, None]) | (
        (depth[None] == depth[:, None]) & (order[None] < order[:, None])[..., None, None]
    )
    kept = touching & (closer.sum(1) < SLOTS)
    slot = (kept[None] & (place[None] > place[:, None])).sum(1)
    chosen = kept & (slot == np.arange(SLOTS)[:, None, None, None])  # bool[K, C, 5, N]

    def pick(field: Array, otherwise: int = 0) -> Array:
        mine = chosen if field.ndim == 3 else chosen[:, :, None]  # fields are [C, 5, N] or [C, 2, 5, N]
        if field.dtype == bool:
            return (mine & field).any(1)
        return jnp.where(mine, field - otherwise, 0).sum(1) + otherwise

    active = pick(every.active)
    key = jnp.where(active, pick(every.key), NOTHING)
    return Manifolds(*map(pick, every))._replace(piece=pick(every.piece, NOTHING), key=key)
