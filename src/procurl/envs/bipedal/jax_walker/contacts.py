"""What contacts do to velocities and positions: Box2D's sequential impulses, with its block solver for two points.

Bodies touch terrain and never each other, so contacts of different bodies do not know of each other: each step below is
done for all five at once, and only the SLOTS of a body take turns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl.envs.bipedal.jax_walker.body import FRICTION, INV_INERTIA, INV_MASS, SKIN, SLOP
from procurl.envs.bipedal.jax_walker.collision import SLOTS, Manifolds, Pose, rotate

MOST_CORRECTION = 0.2  # metres in an iteration
ILL_CONDITIONED = 1000.0  # beyond it Box2D drops the second point


class Velocity(NamedTuple):
    """Of the centres of mass, f32[5, N] each."""

    x: Array
    y: Array
    spin: Array


class Impulses(NamedTuple):
    """Of contact points, f32[K, 2, 5, N] each; `key` says to which points they belong."""

    normal: Array
    tangent: Array
    key: Array  # i32


SlotImpulses = tuple[Array, Array, Array, Array]  # normal of both points, then tangent, f32[5, N] each


def by_slot(impulses: Impulses) -> list[SlotImpulses]:
    return [(*impulses.normal[k], *impulses.tangent[k]) for k in range(SLOTS)]


def together(slots: list[SlotImpulses], key: Array) -> Impulses:
    stacked = jnp.stack([jnp.stack(slot) for slot in slots])  # f32[K, 4, 5, N]
    return Impulses(stacked[:, :2], stacked[:, 2:], key)


class Slot(NamedTuple):
    """One slot's velocity constraints. The lever arms are cross products with normal and tangent."""

    nx: Array  # f32[5, N]  from the terrain to the body; the tangent is (ny, -nx)
    ny: Array
    normal_arm: tuple[Array, Array]  # of the two points
    tangent_arm: tuple[Array, Array]
    normal_mass: tuple[Array, Array]  # 0 for a point that is not there
    tangent_mass: tuple[Array, Array]
    k: tuple[Array, Array, Array]  # k11, k12, k22 of the two normal constraints
    inverse: tuple[Array, Array, Array]
    block: Array  # bool  both points are there


def carried(manifolds: Manifolds, before: Impulses) -> Impulses:
    """A point begins with the impulses that the same point had before, others with none."""
    now = manifolds.key.reshape(2 * SLOTS, 1, *manifolds.key.shape[2:])
    then = before.key.reshape(1, 2 * SLOTS, *before.key.shape[2:])
    same = (now == then) & (now >= 0)  # bool[2K, 2K, 5, N]

    def matched(impulse: Array) -> Array:
        return jnp.where(same, impulse.reshape(then.shape), 0.0).sum(1).reshape(impulse.shape)

    return Impulses(matched(before.normal), matched(before.tangent), manifolds.key)


def geometry(manifolds: Manifolds, slot: int, point: int, pose: Pose) -> tuple[Array, Array, Array, Array, Array]:
    """Normal (from terrain to body), arm from the body's centre to the point, and distance, at another pose."""
    on_body, nx, ny = manifolds.on_body[slot], manifolds.normal_x[slot], manifolds.normal_y[slot]
    px, py = manifolds.point_x[slot, point], manifolds.point_y[slot, point]
    cos, sin = jnp.cos(pose.angle), jnp.sin(pose.angle)
    turned_nx, turned_ny = rotate(cos, sin, nx, ny)
    turned_px, turned_py = rotate(cos, sin, px, py)
    rx, ry = jnp.where(on_body, px - pose.x, turned_px), jnp.where(on_body, py - pose.y, turned_py)
    distance = jnp.where(
        on_body,
        turned_nx * rx + turned_ny * ry,
        nx * (pose.x + rx) + ny * (pose.y + ry),
    )
    return jnp.where(on_body, -turned_nx, nx), jnp.where(on_body, -turned_ny, ny), rx, ry, distance - manifolds.offset[slot]


def prepare(manifolds: Manifolds, pose: Pose) -> list[Slot]:
    """Velocity constraints: at each point half-way between the two surfaces."""
    slots = []
    for slot in range(SLOTS):
        arms, tangents = [], []
        for point in range(2):
            nx, ny, rx, ry, distance = geometry(manifolds, slot, point, pose)
            half = jnp.where(manifolds.on_body[slot], 0.5, -0.5) * distance
            rx, ry = rx + half * nx, ry + half * ny
            arms.append(rx * ny - ry * nx)
            tangents.append(-rx * nx - ry * ny)
        active = manifolds.active[slot]
        k11, k12, k22 = (INV_MASS + INV_INERTIA * arms[i] * arms[j] for i, j in ((0, 0), (0, 1), (1, 1)))
        determinant = k11 * k22 - k12 * k12
        both = active[0] & active[1]
        block = both & (k11 * k11 < ILL_CONDITIONED * determinant)
        there = (active[0], active[1] & ~(both & ~block))
        scale = 1 / jnp.where(block, determinant, 1.0)
        slots.append(
            Slot(
                nx, ny, (arms[0], arms[1]), (tangents[0], tangents[1]),
                (jnp.where(there[0], 1 / k11, 0.0), jnp.where(there[1], 1 / k22, 0.0)),
                tuple(jnp.where(there[p], 1 / (INV_MASS + INV_INERTIA * tangents[p] ** 2), 0.0) for p in (0, 1)),
                (k11, k12, k22), (k22 * scale, -k12 * scale, k11 * scale), block,
            )  # fmt: skip
        )
    return slots


def push(velocity: Velocity, slot: Slot, normal: tuple[Array, Array], tangent: tuple[Array, Array]) -> Velocity:
    """Velocities after impulses at the two points of a slot."""
    n, t = normal[0] + normal[1], tangent[0] + tangent[1]
    torque = sum(a * i for a, i in zip((*slot.normal_arm, *slot.tangent_arm), (*normal, *tangent), strict=True))
    return Velocity(
        velocity.x + INV_MASS * (n * slot.nx + t * slot.ny),
        velocity.y + INV_MASS * (n * slot.ny - t * slot.nx),
        velocity.spin + INV_INERTIA * torque,
    )


def solve_velocity(slots: list[Slot], velocity: Velocity, impulses: list[SlotImpulses]) -> Any:
    """One iteration: for every slot friction at its points in turn, and then the normal impulses of both together."""
    settled = jax.lax.optimization_barrier
    after = []
    for slot, (n1, n2, t1, t2) in zip(slots, impulses, strict=True):
        along = velocity.x * slot.ny - velocity.y * slot.nx
        new_t1 = _within(t1 - slot.tangent_mass[0] * (along + velocity.spin * slot.tangent_arm[0]), FRICTION * n1)
        slip = new_t1 - t1
        along = along + INV_MASS * slip
        spin = velocity.spin + INV_INERTIA * slot.tangent_arm[0] * slip
        new_t2 = _within(t2 - slot.tangent_mass[1] * (along + spin * slot.tangent_arm[1]), FRICTION * n2)
        new_t1, new_t2 = settled((new_t1, new_t2))
        zero = jnp.zeros_like(n1)
        velocity = settled(push(velocity, slot, (zero, zero), (new_t1 - t1, new_t2 - t2)))

        new_n1, new_n2 = settled(_normal_impulses(slot, velocity, n1, n2))
        velocity = settled(push(velocity, slot, (new_n1 - n1, new_n2 - n2), (zero, zero)))
        after.append((new_n1, new_n2, new_t1, new_t2))
    return velocity, after


def _within(value: Array, bound: Array) -> Array:
    return jnp.clip(value, -bound, bound)


def _normal_impulses(slot: Slot, velocity: Velocity, n1: Array, n2: Array) -> tuple[Array, Array]:
    """The impulses after which no point approaches, and none pulls: a problem with four cases, tried in order.

    With b = v - K n, the speed that would be left without impulses: both points push (K x + b = 0), only the first,
    only the second, or none.
    """
    approach = velocity.x * slot.nx + velocity.y * slot.ny
    v1, v2 = (approach + velocity.spin * arm for arm in slot.normal_arm)
    k11, k12, k22 = slot.k
    b1, b2 = v1 - k11 * n1 - k12 * n2, v2 - k12 * n1 - k22 * n2
    i11, i12, i22 = slot.inverse
    both1, both2 = -(i11 * b1 + i12 * b2), -(i12 * b1 + i22 * b2)
    first, second = -slot.normal_mass[0] * b1, -slot.normal_mass[1] * b2
    both = (both1 >= 0) & (both2 >= 0)
    only_first = (first >= 0) & (k12 * first + b2 >= 0)
    only_second = (second >= 0) & (k12 * second + b1 >= 0)
    neither = (b1 >= 0) & (b2 >= 0)
    zero = jnp.zeros_like(n1)
    x1 = jnp.where(both, both1, jnp.where(only_first, first, jnp.where(only_second | neither, zero, n1)))
    x2 = jnp.where(both, both2, jnp.where(only_first, zero, jnp.where(only_second, second, jnp.where(neither, zero, n2))))
    alone1 = jnp.maximum(n1 - slot.normal_mass[0] * v1, 0.0)
    alone2 = jnp.maximum(n2 - slot.normal_mass[1] * v2, 0.0)
    return jnp.where(slot.block, x1, alone1), jnp.where(slot.block, x2, alone2)


def solve_position(manifolds: Manifolds, pose: Pose, share: float, enough: float) -> tuple[Pose, Array]:
    """One iteration: every point in turn is moved out by a `share` of its overlap. bool[5, N]: all were out enough."""
    settled = jax.lax.optimization_barrier
    deepest = jnp.zeros_like(pose.x)
    for slot in range(SLOTS):
        for point in range(2):
            nx, ny, rx, ry, distance = geometry(manifolds, slot, point, pose)
            active = manifolds.active[slot, point]
            overlap = distance - 2 * SKIN
            deepest = jnp.minimum(deepest, jnp.where(active, overlap, 0.0))
            correction = jnp.clip(share * (overlap + SLOP), -MOST_CORRECTION, 0.0)
            arm = rx * ny - ry * nx
            impulse = jnp.where(active, -correction / (INV_MASS + INV_INERTIA * arm * arm), 0.0)
            pose, deepest = settled((
                Pose(
                    pose.x + INV_MASS * impulse * nx,
                    pose.y + INV_MASS * impulse * ny,
                    pose.angle + INV_INERTIA * arm * impulse,
                ),
                deepest,
            ))  # fmt: skip
    return pose, deepest >= enough
