"""What contacts do to velocities and positions: Box2D's sequential impulses, with its block solver for two points.

Bodies touch terrain and never each other, so contacts of different bodies are independent: each step below is done for
all five at once, and only the SLOTS of a body take turns. Velocities and positions are f32[3, 5, N] along x, y and the
angle. A contact constrains them along a direction J of that shape: its speed is J . v, an impulse p along it
changes v by p J / mass.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl.envs.bipedal.jax_walker.body import FRICTION, INVERSE, SKIN, SLOP
from procurl.envs.bipedal.jax_walker.collision import SLOTS, Manifolds, rotate
from procurl.envs.bipedal.jax_walker.lanes import stage

MOST_CORRECTION = 0.2  # metres in an iteration
ILL_CONDITIONED = 1000.0  # beyond it Box2D drops the second point


class Impulses(NamedTuple):
    """Of contact points; `key` says to which points they belong."""

    normal: Array  # f32[K, 2, 5, N]
    tangent: Array  # f32[K, 2, 5, N]
    key: Array  # i32[K, 2, 5, N]


class Slot(NamedTuple):
    """One slot's velocity constraints, at two points."""

    normal: Array  # f32[2, 3, 5, N]  directions
    tangent: Array  # f32[2, 3, 5, N]
    normal_mass: Array  # f32[2, 5, N]  0 for a point that is not there
    tangent_mass: Array  # f32[2, 5, N]
    k: Array  # f32[3, 5, N]  k11, k22, k12: what a normal impulse at one point does to the speed at a point
    inverse: Array  # f32[3, 5, N]  the entries of their matrix's inverse
    block: Array  # bool[5, N]  both points are there
    taken: Array  # bool[N]  some body touches something here


def dot(a: Array, b: Array) -> Array:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def carried(manifolds: Manifolds, before: Impulses) -> Impulses:
    """A point begins with the impulses that the same point had before; a new one with none."""
    now = manifolds.key.reshape(2 * SLOTS, 1, *manifolds.key.shape[2:])
    then = before.key.reshape(1, 2 * SLOTS, *before.key.shape[2:])
    same = (now == then) & (now >= 0)  # bool[2K, 2K, 5, N]

    def matched(impulse: Array) -> Array:
        return jnp.where(same, impulse.reshape(then.shape), 0.0).sum(1).reshape(impulse.shape)

    return Impulses(matched(before.normal), matched(before.tangent), manifolds.key)


def geometry(manifolds: Manifolds, slot: int, point: int, pose: Array, cos: Array, sin: Array) -> tuple[Array, ...]:
    """Normal (from terrain to body), arm from the body's centre to the point, and distance, at another pose."""
    on_body, nx, ny = manifolds.on_body[slot], manifolds.normal_x[slot], manifolds.normal_y[slot]
    px, py = manifolds.point_x[slot, point], manifolds.point_y[slot, point]
    turned_nx, turned_ny = rotate(cos, sin, nx, ny)
    turned_px, turned_py = rotate(cos, sin, px, py)
    rx, ry = jnp.where(on_body, px - pose[0], turned_px), jnp.where(on_body, py - pose[1], turned_py)
    of_body, of_terrain = turned_nx * rx + turned_ny * ry, nx * (pose[0] + rx) + ny * (pose[1] + ry)
    distance = jnp.where(on_body, of_body, of_terrain) - manifolds.offset[slot]
    return jnp.where(on_body, -turned_nx, nx), jnp.where(on_body, -turned_ny, ny), rx, ry, distance


def prepare(manifolds: Manifolds, pose: Array) -> list[Slot]:
    """Velocity constraints: at each point half-way between the two surfaces."""
    cos, sin = cosine(pose), sine(pose)
    slots = []
    for slot in range(SLOTS):
        arms = [_arm(manifolds, slot, point, pose, cos, sin) for point in range(2)]
        nx, ny, *_ = geometry(manifolds, slot, 0, pose, cos, sin)
        slots.append(_constraints(nx, ny, jnp.stack(arms), manifolds.active[slot]))
    return slots


def _arm(manifolds: Manifolds, slot: int, point: int, pose: Array, cos: Array, sin: Array) -> Array:
    """From the body's centre to a point half-way between the two surfaces, f32[2, 5, N]."""
    nx, ny, rx, ry, distance = geometry(manifolds, slot, point, pose, cos, sin)
    half = jnp.where(manifolds.on_body[slot], 0.5, -0.5) * distance
    return jnp.stack([rx + half * nx, ry + half * ny])


@stage
def _constraints(nx: Array, ny: Array, arms: Array, active: Array) -> Slot:
    """Of one slot, from its normal f32[5, N], the arms f32[2, 2, 5, N] to its points, and which are there."""
    normals = [jnp.stack([nx, ny, rx * ny - ry * nx]) for rx, ry in arms]
    tangents = [jnp.stack([ny, -nx, -rx * nx - ry * ny]) for rx, ry in arms]
    k11, k22, k12 = (dot(normals[i], INVERSE * normals[j]) for i, j in ((0, 0), (1, 1), (0, 1)))
    determinant = k11 * k22 - k12 * k12
    both = active[0] & active[1]
    block = both & (k11 * k11 < ILL_CONDITIONED * determinant)
    there = jnp.stack([active[0], active[1] & (block | ~both)])
    friction = jnp.stack([dot(t, INVERSE * t) for t in tangents])
    return Slot(
        jnp.stack(normals),
        jnp.stack(tangents),
        jnp.where(there, 1 / jnp.stack([k11, k22]), 0.0),
        jnp.where(there, 1 / friction, 0.0),
        jnp.stack([k11, k22, k12]),
        jnp.stack([k22, k11, -k12]) / jnp.where(block, determinant, 1.0),
        block,
        (active[0] | active[1]).any(0),
    )


def solve_velocity(
    slots: list[Slot], velocity: Array, normals: list[Array], tangents: list[Array]
) -> tuple[Array, list[Array], list[Array]]:
    """One iteration: slot by slot, except those in which no body touches anything.

    Impulses are f32[2, 5, N] for each slot.
    """
    new_normals, new_tangents = [], []
    for slot, normal, tangent in zip(slots, normals, tangents, strict=True):
        state = velocity, normal, tangent
        velocity, normal, tangent = jax.lax.cond(slot.taken.any(), _solved, lambda _, *state: state, slot, *state)
        new_normals.append(normal)
        new_tangents.append(tangent)
    return velocity, new_normals, new_tangents


def _solved(slot: Slot, velocity: Array, normal: Array, tangent: Array) -> tuple[Array, Array, Array]:
    """Friction at a slot's points in turn, and then the normal impulses of both together."""
    first = _first_friction(slot.tangent, slot.tangent_mass, velocity, normal, tangent)
    new_tangent = _friction(slot.tangent, slot.tangent_mass, velocity, normal, tangent, first)
    new_normal = _normal_impulses(slot, velocity, normal, new_tangent, tangent)
    return pushed(velocity, slot, new_normal, normal, new_tangent, tangent), new_normal, new_tangent


@stage
def _first_friction(direction: Array, mass: Array, velocity: Array, normal: Array, tangent: Array) -> Array:
    """f32[5, N] at the first point, at most `FRICTION` times the normal impulse."""
    most = FRICTION * normal[0]
    return jnp.clip(tangent[0] - mass[0] * dot(direction[0], velocity), -most, most)


@stage
def _friction(direction: Array, mass: Array, velocity: Array, normal: Array, tangent: Array, first: Array) -> Array:
    """f32[2, 5, N] at both points, the second after the first."""
    most = FRICTION * normal[1]
    after = velocity + INVERSE * direction[0] * (first - tangent[0])
    second = jnp.clip(tangent[1] - mass[1] * dot(direction[1], after), -most, most)
    return jnp.stack([first, second])


@stage
def _normal_impulses(slot: Slot, velocity: Array, normal: Array, new_tangent: Array, tangent: Array) -> Array:
    """The impulses after which no point approaches, and none pulls: a problem with four cases, tried in order.

    With b = v - K p, the speeds that would be left without impulses p: both points push (K p + b = 0), only the first,
    only the second, or none. f32[2, 5, N]
    """
    slip = new_tangent - tangent
    velocity = velocity + INVERSE * (slot.tangent[0] * slip[0] + slot.tangent[1] * slip[1])
    v1, v2 = dot(slot.normal[0], velocity), dot(slot.normal[1], velocity)
    n1, n2 = normal[0], normal[1]
    k11, k22, k12 = slot.k[0], slot.k[1], slot.k[2]
    b1, b2 = v1 - k11 * n1 - k12 * n2, v2 - k12 * n1 - k22 * n2
    both1, both2 = (
        -(slot.inverse[0] * b1 + slot.inverse[2] * b2),
        -(slot.inverse[2] * b1 + slot.inverse[1] * b2),
    )
    first, second = -slot.normal_mass[0] * b1, -slot.normal_mass[1] * b2
    both = (both1 >= 0) & (both2 >= 0)
    only_first = (first >= 0) & (k12 * first + b2 >= 0)
    only_second = (second >= 0) & (k12 * second + b1 >= 0)
    neither = (b1 >= 0) & (b2 >= 0)
    alone = jnp.maximum(normal - slot.normal_mass * jnp.stack([v1, v2]), 0.0)
    one = jnp.stack([jnp.where(only_first, first, 0.0), jnp.where(only_first, 0.0, second)])
    none = jnp.where(neither, 0.0, normal)  # no case fits: everything stays
    pair = jnp.where(both, jnp.stack([both1, both2]), jnp.where(only_first | only_second, one, none))
    return jnp.where(slot.block, pair, alone)


@stage
def pushed(velocity: Array, slot: Slot, new_normal: Array, normal: Array, new_tangent: Array, tangent: Array) -> Array:
    """Velocities after the impulses at a slot's points have changed."""
    n, t = new_normal - normal, new_tangent - tangent
    along = slot.normal[0] * n[0] + slot.normal[1] * n[1] + slot.tangent[0] * t[0] + slot.tangent[1] * t[1]
    return velocity + INVERSE * along


def solve_position(manifolds: Manifolds, pose: Array, share: float, enough: float) -> tuple[Array, Array]:
    """One iteration: each point in turn moves out by a `share` of its overlap. bool[5, N]: all were far enough out."""
    out = []
    for slot in range(SLOTS):

        def separated(pose: Array, slot: int = slot) -> tuple[Array, Array]:
            overlaps = []
            for point in range(2):
                cos, sin = cosine(pose), sine(pose)
                overlaps.append(_overlap(manifolds, slot, point, pose, cos, sin))
                pose = _moved_out(manifolds, slot, point, pose, cos, sin, share * (overlaps[-1] + SLOP))
            return pose, jnp.minimum(*overlaps) >= enough

        def untouched(pose: Array) -> tuple[Array, Array]:
            return pose, jnp.ones_like(pose[0], bool)

        pose, enough_here = jax.lax.cond(manifolds.active[slot].any(), separated, untouched, pose)
        out.append(enough_here)
    return pose, jnp.stack(out).all(0)


@stage
def cosine(pose: Array) -> Array:
    return jnp.cos(pose[2])


@stage
def sine(pose: Array) -> Array:
    return jnp.sin(pose[2])


def _overlap(manifolds: Manifolds, slot: int, point: int, pose: Array, cos: Array, sin: Array) -> Array:
    """Distance between the skins at a point, f32[5, N]; negative for overlap, and 0 where there is no point."""

    @stage
    def overlap(manifolds: Manifolds, pose: Array, cos: Array, sin: Array) -> Array:
        *_, distance = geometry(manifolds, slot, point, pose, cos, sin)
        return jnp.where(manifolds.active[slot, point], distance - 2 * SKIN, 0.0)

    return overlap(manifolds, pose, cos, sin)


def _moved_out(
    manifolds: Manifolds, slot: int, point: int, pose: Array, cos: Array, sin: Array, wanted: Array
) -> Array:
    """The pose after a correction at a point."""

    @stage
    def moved(manifolds: Manifolds, pose: Array, cos: Array, sin: Array, wanted: Array) -> Array:
        nx, ny, rx, ry, _ = geometry(manifolds, slot, point, pose, cos, sin)
        direction = jnp.stack([nx, ny, rx * ny - ry * nx])
        impulse = -jnp.clip(wanted, -MOST_CORRECTION, 0.0) / dot(direction, INVERSE * direction)
        return pose + INVERSE * direction * jnp.where(manifolds.active[slot, point], impulse, 0.0)

    return moved(manifolds, pose, cos, sin, wanted)
