"""Where bodies touch the terrain: Box2D's contact manifolds, for a convex polygon against the ground and rectangles.

Two polygons touch if their distance along every normal of either is at most two skins. The face with the greatest
distance is the reference; the face of the other shape that looks towards it is cut to the reference's width, and its
end points are the contact points. The ground is a rectangle without height that has one face, the one on the body's
side. All C pieces of terrain near a body are looked at, and the SLOTS that it overlaps most are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from procurl.envs.bipedal.jax_walker.body import FACES, SKIN
from procurl.envs.bipedal.jax_walker.lanes import stage
from procurl.envs.bipedal.jax_walker.terrain import Terrain, first_stump, stump
from procurl.envs.bipedal.track import GROUND, START, STEP

SLOTS = 3  # pieces of terrain that a body can touch at a time
NEARBY = 6  # stumps that the hull can reach at the smallest spacing
NOTHING, ON_GROUND = -1, 0  # as pieces; stump j is piece j + 1
FAR = 1e3  # metres

RIGHT, UP, LEFT, DOWN = range(4)  # faces of a piece
LAST_FACE = np.array([[4], [3], [3], [3], [3]], np.int32)  # of each body
IS_GROUND = (np.arange(NEARBY + 1) == 0)[:, None, None]  # bool[C, 1, 1]


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
    key: Array  # i32[K, 2, 5, N]  which corners and faces meet: the same key later on means the same point
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
    """The bodies' faces in the world, f32[5 faces, 5 bodies, N]; each begins at one corner and ends at the next."""

    normal_x: Array
    normal_y: Array
    x: Array
    y: Array
    end_x: Array
    end_y: Array


class Face(NamedTuple):
    """A face of a piece or of a body, for every pair of them, f32[C, 5, N] each."""

    normal_x: Array
    normal_y: Array
    x: Array  # where it begins
    y: Array
    end_x: Array
    end_y: Array


def collide(terrain: Terrain, pose: Array) -> Manifolds:
    """All contacts of all bodies at x, y, angle: f32[3, 5, N]."""
    faces = turned(pose)
    pieces = nearby(terrain, faces.x.min(0))
    above = pose[1] > GROUND  # the ground has one face: for a body that fell off its end, the lower one
    of_terrain, terrain_face = _terrain_side(pieces, faces, above)
    of_body, body_face = _body_side(pieces, faces)
    on_body = _prefers_body(of_terrain, of_body)
    reference = _reference(pieces, faces, on_body, terrain_face, body_face)
    incident = _incident(pieces, faces, on_body, above, reference)
    near = (jnp.maximum(of_terrain, of_body) <= 2 * SKIN) & pieces.exists
    points = _points(pieces, pose, on_body, near, terrain_face, body_face, reference, incident)
    plane = _plane(on_body, body_face, reference)
    everything = Manifolds(pieces.piece, on_body, *plane, *points)
    slot = _slots(everything.active, of_terrain, of_body, from_left(terrain, pose[0], pieces.piece))
    return _in_slots(everything, slot)


def rotate(cos: Array, sin: Array, x: Any, y: Any) -> tuple[Array, Array]:
    return cos * x - sin * y, sin * x + cos * y


@stage
def turned(pose: Array) -> Turned:
    """Of bodies at x, y, angle: f32[3, 5, N]."""
    cos, sin = jnp.cos(pose[2]), jnp.sin(pose[2])
    normal = rotate(cos, sin, FACES.normal_x, FACES.normal_y)
    (x, y), (end_x, end_y) = rotate(cos, sin, FACES.begin_x, FACES.begin_y), rotate(cos, sin, FACES.end_x, FACES.end_y)
    return Turned(*normal, pose[0] + x, pose[1] + y, pose[0] + end_x, pose[1] + end_y)


@stage
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
    """Of the body's nearest corner, along the pieces' normals (right, up, left, down), f32[C, 5, N] each."""
    low_x, high_x, low_y, high_y = faces.x.min(0), faces.x.max(0), faces.y.min(0), faces.y.max(0)
    return [
        low_x - pieces.x - pieces.half_width,
        low_y - pieces.y - pieces.half_height,
        pieces.x - high_x - pieces.half_width,
        pieces.y - high_y - pieces.half_height,
    ]


def body_distances(pieces: Pieces, faces: Turned) -> list[Array]:
    """Of the piece's nearest corner, along the body's normals, f32[C, 5, N] for each face."""
    distances = []
    for nx, ny, x, y in zip(faces.normal_x, faces.normal_y, faces.x, faces.y, strict=True):
        reach = jnp.abs(nx) * pieces.half_width + jnp.abs(ny) * pieces.half_height
        distances.append(nx * (pieces.x - x) + ny * (pieces.y - y) - reach)
    return distances


@stage
def _terrain_side(pieces: Pieces, faces: Turned, above: Array) -> tuple[Array, Array]:
    """The greatest distance along a piece's normal, and which, f32 and i32[C, 5, N]."""
    right, up, left, down = terrain_distances(pieces, faces)
    aside = jnp.where(IS_GROUND, -FAR, 0.0)
    return _greatest([right + aside, up + aside * ~above, left + aside, down + aside * above])


@stage
def _body_side(pieces: Pieces, faces: Turned) -> tuple[Array, Array]:
    """The greatest distance along a body's normal, and which."""
    return _greatest(body_distances(pieces, faces))


def _greatest(values: Sequence[Array]) -> tuple[Array, Array]:
    best, index = values[0], jnp.zeros_like(values[0], jnp.int32)
    for k, value in enumerate(values[1:], 1):
        index = jnp.where(value > best, k, index)
        best = jnp.maximum(best, value)
    return best, index


def _entry(index: Array, table: Any) -> Array:
    """The entries of a table [5 faces, 5 bodies, N], for face numbers i32[C, 5, N]."""
    entry = jnp.broadcast_to(table[0], index.shape)
    for k in range(1, 5):
        entry = jnp.where(index == k, table[k], entry)
    return entry


def _prefers_body(of_terrain: Array, of_body: Array) -> Array:
    """Box2D takes the terrain's face unless the body's is clearly further away, lest the choice flicker."""
    return of_body > 0.98 * of_terrain + 0.001


def _face_of_piece(pieces: Pieces, face: Array) -> Face:
    """Counter-clockwise, as bodies are."""
    nx = jnp.where(face == RIGHT, 1.0, jnp.where(face == LEFT, -1.0, 0.0))
    ny = jnp.where(face == UP, 1.0, jnp.where(face == DOWN, -1.0, 0.0))
    mid_x, mid_y = pieces.x + nx * pieces.half_width, pieces.y + ny * pieces.half_height
    along_x, along_y = -ny * pieces.half_width, nx * pieces.half_height
    return Face(nx, ny, mid_x - along_x, mid_y - along_y, mid_x + along_x, mid_y + along_y)


@stage
def _reference(pieces: Pieces, faces: Turned, on_body: Array, terrain_face: Array, body_face: Array) -> Face:
    of_body, of_terrain = (_entry(body_face, table) for table in faces), _face_of_piece(pieces, terrain_face)
    return Face(*(jnp.where(on_body, b, t) for b, t in zip(of_body, of_terrain, strict=True)))


@stage
def _incident(
    pieces: Pieces, faces: Turned, on_body: Array, above: Array, reference: Face
) -> tuple[Array, Array, Array, Array, Array]:
    """The face of the other shape that looks towards the reference: its number, begin and end."""
    nx, ny = reference.normal_x, reference.normal_y
    _, of_body = _greatest([-nx * x - ny * y for x, y in zip(faces.normal_x, faces.normal_y, strict=True)])
    flat = jnp.abs(nx) < jnp.abs(ny)
    of_stump = jnp.where(flat, jnp.where(ny > 0, DOWN, UP), jnp.where(nx > 0, LEFT, RIGHT))
    of_piece = jnp.where(IS_GROUND, jnp.where(above, UP, DOWN), of_stump)
    piece = _face_of_piece(pieces, of_piece)
    return (
        jnp.where(on_body, of_piece, of_body),
        jnp.where(on_body, piece.x, _entry(of_body, faces.x)),
        jnp.where(on_body, piece.y, _entry(of_body, faces.y)),
        jnp.where(on_body, piece.end_x, _entry(of_body, faces.end_x)),
        jnp.where(on_body, piece.end_y, _entry(of_body, faces.end_y)),
    )


@stage
def _points(
    pieces: Pieces, pose: Array, on_body: Array, near: Array, terrain_face: Array, body_face: Array, reference: Face,
    incident: tuple[Array, ...],
) -> tuple[Array, Array, Array, Array]:  # fmt: skip
    """The incident face, cut to the reference's width: both ends' x, y, key and whether they touch, [C, 2, 5, N]."""
    nx, ny = reference.normal_x, reference.normal_y
    mid_x, mid_y = (reference.x + reference.end_x) / 2, (reference.y + reference.end_y) / 2
    half = jnp.hypot(reference.end_x - reference.x, reference.end_y - reference.y) / 2
    face, x1, y1, x2, y2 = incident
    x1, y1, x2, y2 = x1 - mid_x, y1 - mid_y, x2 - mid_x, y2 - mid_y

    # Coordinates along the reference face, and distances from it.
    s1, s2, d1, d2 = nx * y1 - ny * x1, nx * y2 - ny * x2, nx * x1 + ny * y1, nx * x2 + ny * y2
    width = half + jnp.where(IS_GROUND, 0.0, 2 * SKIN)
    beside = ((s1 > width) & (s2 > width)) | ((s1 < -width) & (s2 < -width))
    slope = (d2 - d1) / jnp.where(jnp.abs(s2 - s1) < 1e-6, 1e-6, s2 - s1)

    next_corner = jnp.where(on_body, (face + 1) % 4, jnp.where(face == LAST_FACE, 0, face + 1))
    number = jnp.where(on_body, body_face + 8, terrain_face)
    cos, sin = jnp.cos(pose[2]), jnp.sin(pose[2])
    ends = []
    for s, d, corner in ((s1, d1, face), (s2, d2, next_corner)):
        cut = jnp.clip(s, -width, width)
        away = d + (cut - s) * slope
        x, y = mid_x - ny * cut + nx * away, mid_y + nx * cut + ny * away
        own_x, own_y = rotate(cos, -sin, x - pose[0], y - pose[1])
        side = jnp.where(cut == s, 0, jnp.where(s < 0, 1, 2))
        feature = (number * 3 + side) * 8 + jnp.where(cut == s, corner, face)
        active = near & ~beside & (away <= 2 * SKIN)
        key = jnp.where(active, pieces.piece * 512 + feature, NOTHING)
        ends.append((jnp.where(on_body, x, own_x), jnp.where(on_body, y, own_y), key, active))
    x, y, key, active = (jnp.stack(pair, 1) for pair in zip(*ends, strict=True))
    return x, y, key, active


@stage
def _plane(on_body: Array, body_face: Array, reference: Face) -> tuple[Array, Array, Array]:
    """The reference plane in the frame of its shape."""
    of_body = FACES.normal_x * FACES.begin_x + FACES.normal_y * FACES.begin_y  # f32[5 faces, 5 bodies, 1]
    of_piece = reference.normal_x * reference.x + reference.normal_y * reference.y
    return (
        jnp.where(on_body, _entry(body_face, FACES.normal_x), reference.normal_x),
        jnp.where(on_body, _entry(body_face, FACES.normal_y), reference.normal_y),
        jnp.where(on_body, _entry(body_face, of_body), of_piece),
    )


def from_left(terrain: Terrain, x: Array, piece: Array) -> Array:
    """Places of pieces i32[k, 5, N] from left to right, for bodies at x: a gap's ground is between its two stumps.

    Box2D goes through a body's contacts from the newest to the oldest: for a walker heading right, from right to left.
    """
    gap = jnp.floor((x - START) / terrain.pitch).astype(jnp.int32)
    return jnp.where(piece == ON_GROUND, 2 * gap + 1, 2 * (piece - 1))


@stage
def _slots(active: Array, of_terrain: Array, of_body: Array, place: Array) -> Array:
    """Which slot each piece gets, i32[C, 5, N], from right to left; SLOTS for none."""
    touching = active.any(1)
    depth = jnp.where(touching, jnp.maximum(of_terrain, of_body), FAR)
    order = np.arange(NEARBY + 1)
    earlier = (order[None] < order[:, None])[..., None, None]
    deeper = (depth[None] < depth[:, None]) | ((depth[None] == depth[:, None]) & earlier)
    kept = touching & (deeper.sum(1) < SLOTS)
    return jnp.where(kept, (kept[None] & (place[None] > place[:, None])).sum(1), SLOTS)


@stage
def _in_slots(every: Manifolds, slot: Array) -> Manifolds:
    """[C, ...] -> [K, ...]"""
    chosen = slot == np.arange(SLOTS)[:, None, None, None]  # bool[K, C, 5, N]

    def pick(field: Array, otherwise: int = 0) -> Array:
        mine = chosen if field.ndim == 3 else chosen[:, :, None]  # fields are [C, 5, N] or [C, 2, 5, N]
        if field.dtype == bool:
            return (mine & field).any(1)
        return jnp.where(mine, field - otherwise, 0).sum(1) + otherwise

    return Manifolds(*map(pick, every))._replace(piece=pick(every.piece, NOTHING), key=pick(every.key, NOTHING))
