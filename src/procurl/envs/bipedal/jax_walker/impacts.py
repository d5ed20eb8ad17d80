"""What fast bodies do between two steps: Box2D's continuous collisions.

A body whose path during the step leads too deep into the terrain is stopped at the moment of impact, pushed out and,
with the velocities that the terrain leaves it, sent on for the rest of the step. Each does so alone: joints wait for
the next step. This happens at most eight times a step.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from procurl.envs.bipedal.jax_walker import collision, contacts
from procurl.envs.bipedal.jax_walker.body import DT, FACES, SLOP
from procurl.envs.bipedal.jax_walker.collision import FAR, Manifolds, Pieces, Turned
from procurl.envs.bipedal.jax_walker.contacts import Slot
from procurl.envs.bipedal.jax_walker.kernel import in_one_kernel
from procurl.envs.bipedal.jax_walker.lanes import stage
from procurl.envs.bipedal.jax_walker.terrain import Terrain

DEPTH, TOLERANCE = SLOP, SLOP / 4  # metres: bodies meet at this distance between their cores
MOST_IMPACTS = 8  # of a body in a step
LOOKS, SEARCHES = 4, 12  # places on the way that are looked at, and steps of the search for the moment of impact
POSITION_ITERATIONS, VELOCITY_ITERATIONS = 20, 180
SHARE, ENOUGH = 0.75, -1.5 * SLOP  # of an overlap that an iteration corrects; the overlap that may remain
CONVERGED = 1e-6  # metres per second
LENGTHS = np.hypot(FACES.end_x - FACES.begin_x, FACES.end_y - FACES.begin_y)  # f32[5 faces, 5 bodies, 1]


class Moving(NamedTuple):
    """Bodies on their way through the step."""

    begin: Array  # f32[3, 5, N]
    end: Array  # f32[3, 5, N]
    time: Array  # f32[5, N]  of `begin`, as a share of the step
    velocity: Array  # f32[3, 5, N]


def between(begin: Array, end: Array, share: Array) -> Array:
    return begin + share * (end - begin)


def distances(pieces: Pieces, pose: Array) -> Array:
    """Of the bodies from the pieces of terrain, f32[C, 5, N]; negative for overlap."""
    return _distances(pieces, collision.turned(pose))


@stage
def _distances(pieces: Pieces, faces: Turned) -> Array:
    """If apart, the nearest points are a corner of the body and any point of the piece, or a corner of the piece and a
    point within a face of the body. Overlap is the least along all normals of either.
    """
    apart = jnp.full_like(pieces.x, FAR)
    by_face = collision.body_distances(pieces, faces)
    for k, distance in enumerate(by_face):
        nx, ny, x, y = faces.normal_x[k], faces.normal_y[k], faces.x[k], faces.y[k]
        beside = jnp.maximum(jnp.abs(x - pieces.x) - pieces.half_width, 0.0)
        above = jnp.maximum(jnp.abs(y - pieces.y) - pieces.half_height, 0.0)
        apart = jnp.minimum(apart, jnp.sqrt(beside * beside + above * above))
        corner_x = pieces.x - jnp.sign(nx) * pieces.half_width - x
        corner_y = pieces.y - jnp.sign(ny) * pieces.half_height - y
        along = nx * corner_y - ny * corner_x
        within = (along >= 0) & (along <= LENGTHS[k]) & (distance >= 0)
        apart = jnp.where(within, jnp.minimum(apart, distance), apart)
    overlap = reduce(jnp.maximum, [*by_face, *collision.terrain_distances(pieces, faces)])
    return jnp.where(pieces.exists, jnp.where(overlap <= 0, overlap, apart), FAR)


def next_impact(terrain: Terrain, moving: Moving) -> tuple[Array, Array]:
    """Which bodies meet the terrain before the end of the step, bool[5, N], and at which share of the way.

    Bodies that overlap it already are left alone, and those that begin close to it meet it at once. For the others, a
    few places on the way tell whether they go too deep, since a leg can swing through a corner and out again; then a
    search that alternates between bisection and the secant stops within the tolerance, as Box2D's does.
    """
    begin, end = moving.begin, moving.end
    left = jnp.minimum(collision.turned(begin).x.min(0), collision.turned(end).x.min(0))
    pieces = collision.nearby(terrain, left)
    at_begin = distances(pieces, begin)
    apart = at_begin > 0
    at_once = (apart & (at_begin < DEPTH + TOLERANCE)).any(0)

    on_the_way, share = searched(pieces, moving.begin, moving.end, at_begin)
    return at_once | on_the_way, jnp.where(at_once, 0.0, share)


@in_one_kernel
def searched(pieces: Pieces, begin: Array, end: Array, at_begin: Array) -> tuple[Array, Array]:
    """Which bodies go too deep on their way, bool[5, N], and where they meet the terrain, as a share of the way."""
    apart = at_begin > 0

    def closest(share: Array) -> Array:
        return jnp.where(apart, distances(pieces, between(begin, end, share)), FAR).min(0)

    def look(k: Array, found: tuple[Array, Array]) -> tuple[Array, Array]:
        place, depth = found  # the end if it is too deep (Box2D looks there first), else the earliest such place
        share = (LOOKS - k) / LOOKS
        distance = closest(share)
        better = (distance < DEPTH - TOLERANCE) & (place != 1)
        return jnp.where(better, share, place), jnp.where(better, distance, depth)

    nowhere = jnp.zeros_like(begin[0])
    high, d_high = jax.lax.fori_loop(0, LOOKS, look, (nowhere, nowhere + FAR))
    on_the_way = high > 0

    def search(bracket: Any) -> Any:
        i, low, high, d_low, d_high, share, found = bracket
        slope = jnp.where(d_low - d_high > 1e-9, d_low - d_high, 1.0)
        secant = low + jnp.clip((d_low - DEPTH) / slope, 0.0, 1.0) * (high - low)
        share = jnp.where(found, share, jnp.where(i % 2 == 0, (low + high) / 2, secant))
        distance = closest(share)
        found = found | (jnp.abs(distance - DEPTH) < TOLERANCE)
        outside = distance > DEPTH
        return (
            i + 1, jnp.where(outside, share, low), jnp.where(outside, high, share),
            jnp.where(outside, distance, d_low), jnp.where(outside, d_high, distance), share, found,
        )  # fmt: skip

    d_low = jnp.where(apart, at_begin, FAR).min(0)
    start = (jnp.int32(0), nowhere, high, d_low, d_high, nowhere, ~on_the_way)
    *_, share, _ = jax.lax.while_loop(lambda bracket: (bracket[0] < SEARCHES) & ~bracket[-1].all(), search, start)
    return on_the_way, share


def respond(manifolds: Manifolds, moving: Moving, met: Array) -> Moving:
    """Bodies after an impact at `moving.begin`: out of the terrain, with what speed remains."""

    pose = moved_out(manifolds, moving.begin, met)
    velocity = slowed(contacts.prepare(manifolds, pose), moving.velocity, met)
    return Moving(pose, pose + (1 - moving.time) * DT * velocity, moving.time, velocity)


@in_one_kernel
def moved_out(manifolds: Manifolds, pose: Array, met: Array) -> Array:
    def move_out(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        i, pose, done = carry
        after, enough = contacts.solve_position(manifolds, pose, SHARE, ENOUGH)
        return i + 1, jnp.where(done, pose, after), done | enough

    def busy(carry: tuple[Array, Array, Array]) -> Array:
        return (carry[0] < POSITION_ITERATIONS) & ~carry[2].all()

    return jax.lax.while_loop(busy, move_out, (jnp.int32(0), pose, ~met))[1]


@in_one_kernel
def slowed(slots: list[Slot], velocity: Array, met: Array) -> Array:
    """The velocities that the contacts leave."""

    def exchange(carry: Any) -> Any:
        i, _, velocity, normals, tangents = carry
        after, normals, tangents = contacts.solve_velocity(slots, velocity, normals, tangents)
        return i + 1, jnp.where(met, jnp.abs(after - velocity), 0.0).max(), after, normals, tangents

    def busy(carry: Any) -> Array:
        return (carry[0] < VELOCITY_ITERATIONS) & (carry[1] > CONVERGED)

    none = [jnp.zeros((2, *met.shape))] * contacts.SLOTS
    return jax.lax.while_loop(busy, exchange, (jnp.int32(0), jnp.float32(1.0), velocity, none, none))[2]
