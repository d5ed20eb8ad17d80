"""What fast bodies do between two steps: Box2D's continuous collisions.

A body whose path during the step leads too deep into the terrain is stopped at the moment of impact, pushed out and, with
the velocities that the terrain leaves it, sent on for the rest of the step. It does so alone: joints wait for the next
step. At most eight times a step.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl.envs.bipedal.jax_walker import contacts
from procurl.envs.bipedal.jax_walker.body import DT, SLOP
from procurl.envs.bipedal.jax_walker.collision import (
    FAR, Manifolds, Pieces, Pose, body_distances, collide, nearby, terrain_distances, turned,
)  # fmt: skip
from procurl.envs.bipedal.jax_walker.contacts import Velocity
from procurl.envs.bipedal.jax_walker.terrain import Terrain

DEPTH, TOLERANCE = SLOP, SLOP / 4  # metres: bodies meet at this distance of their cores
MOST_IMPACTS = 8  # of a body in a step
SEARCHES = 12
POSITION_ITERATIONS, VELOCITY_ITERATIONS = 20, 180
SHARE, ENOUGH = 0.75, -1.5 * SLOP  # of an overlap that an iteration corrects; the overlap that may remain
CONVERGED = 1e-6  # metres per second


class Moving(NamedTuple):
    """Bodies on their way through the step, f32[5, N]."""

    begin: Pose
    end: Pose
    time: Array  # f32[5, N]  of `begin`, as a share of the step
    velocity: Velocity


def between(begin: Pose, end: Pose, share: Array) -> Pose:
    return Pose(*(a + share * (b - a) for a, b in zip(begin, end, strict=True)))


def distances(pieces: Pieces, pose: Pose) -> Array:
    """Of the bodies from the pieces of terrain, f32[C, 5, N]; negative for overlap."""
    faces = turned(pose)
    apart = body_distances(pieces, faces).max(1)
    for distance in terrain_distances(pieces, faces):
        apart = jnp.maximum(apart, distance)
    return jnp.where(pieces.exists, apart, FAR)


def next_impact(terrain: Terrain, moving: Moving) -> tuple[Array, Array]:
    """Which bodies meet the terrain before the end of the step, bool[5, N], and at which share of the way.

    Bodies that overlap it already are left alone, and those that begin close to it meet it at once. The search for the
    others takes turns between halving and a secant, and stops within the tolerance, as Box2D's does.
    """
    begin, end = moving.begin, moving.end
    left = jnp.minimum(turned(begin).x.min(0), turned(end).x.min(0))
    pieces = nearby(terrain, left)
    at_begin, at_end = distances(pieces, begin), distances(pieces, end)
    apart = at_begin > 0
    at_once = (apart & (at_begin < DEPTH + TOLERANCE)).any(0)
    on_the_way = apart & (at_end < DEPTH - TOLERANCE)  # bool[C, 5, N]

    def closest(share: Array) -> Array:
        return jnp.where(on_the_way, distances(pieces, between(begin, end, share)), FAR).min(0)

    def search(i: Array, bracket: tuple[Array, ...]) -> tuple[Array, ...]:
        low, high, d_low, d_high, share, found = bracket
        slope = jnp.where(d_low - d_high > 1e-9, d_low - d_high, 1.0)
        secant = low + jnp.clip((d_low - DEPTH) / slope, 0.0, 1.0) * (high - low)
        share = jnp.where(found, share, jnp.where(i % 2 == 0, (low + high) / 2, secant))
        distance = closest(share)
        found = found | (jnp.abs(distance - DEPTH) < TOLERANCE)
        outside = distance > DEPTH
        return (
            jnp.where(outside, share, low), jnp.where(outside, high, share),
            jnp.where(outside, distance, d_low), jnp.where(outside, d_high, distance), share, found,
        )  # fmt: skip

    zero = jnp.zeros_like(begin.x)
    bracket = (zero, zero + 1, jnp.where(on_the_way, at_begin, FAR).min(0), jnp.where(on_the_way, at_end, FAR).min(0))
    share = jax.lax.fori_loop(0, SEARCHES, search, (*bracket, zero, zero > 0))[4]
    return at_once | on_the_way.any(0), jnp.where(at_once, 0.0, share)


def respond(manifolds: Manifolds, moving: Moving, met: Array) -> Moving:
    """Bodies after an impact at `moving.begin`: out of the terrain, with what speed remains."""

    def move_out(carry: tuple[Array, Pose, Array]) -> tuple[Array, Pose, Array]:
        i, pose, done = carry
        moved, enough = contacts.solve_position(manifolds, pose, SHARE, ENOUGH)
        return i + 1, Pose(*(jnp.where(done, old, new) for old, new in zip(pose, moved, strict=True))), done | enough

    def busy(carry: tuple[Array, Pose, Array]) -> Array:
        return (carry[0] < POSITION_ITERATIONS) & ~carry[2].all()

    _, pose, _ = jax.lax.while_loop(busy, move_out, (jnp.int32(0), moving.begin, ~met))

    slots = contacts.prepare(manifolds, pose)
    zero = jnp.zeros_like(pose.x)

    def exchange(carry):  # type: ignore[no-untyped-def]
        i, _, velocity, impulses = carry
        after, impulses = contacts.solve_velocity(slots, velocity, impulses)
        changes = [jnp.where(met, jnp.abs(new - old), 0.0).max() for old, new in zip(velocity, after, strict=True)]
        return i + 1, jnp.stack(changes).max(), after, impulses

    start = (jnp.int32(0), jnp.float32(1.0), moving.velocity, [(zero, zero, zero, zero)] * contacts.SLOTS)
    _, _, velocity, _ = jax.lax.while_loop(
        lambda carry: (carry[0] < VELOCITY_ITERATIONS) & (carry[1] > CONVERGED), exchange, start
    )
    rest = (1 - moving.time) * DT
    end = Pose(*(p + rest * v for p, v in zip(pose, velocity, strict=True)))
    return Moving(pose, end, moving.time, velocity)
