"""What fast bodies do between two steps: Box2D's continuous collisions.

A body whose path during the step leads too deep into the terrain is stopped at the moment of impact, pushed out and,
with the velocities that the terrain leaves it, sent on for the rest of the step. It does so alone: joints wait for the
next step. At most eight times a step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from procurl.envs.bipedal.jax_walker import collision, contacts
from procurl.envs.bipedal.jax_walker.body import DT, SLOP
from procurl.envs.bipedal.jax_walker.collision import FAR, Manifolds, Pieces
from procurl.envs.bipedal.jax_walker.terrain import Terrain

DEPTH, TOLERANCE = SLOP, SLOP / 4  # metres: bodies meet at this distance of their cores
MOST_IMPACTS = 8  # of a body in a step
SEARCHES = 12
POSITION_ITERATIONS, VELOCITY_ITERATIONS = 20, 180
SHARE, ENOUGH = 0.75, -1.5 * SLOP  # of an overlap that an iteration corrects; the overlap that may remain
CONVERGED = 1e-6  # metres per second


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
    faces = collision.turned(pose)
    apart = collision.body_distances(pieces, faces).max(1)
    for distance in collision.terrain_distances(pieces, faces):
        apart = jnp.maximum(apart, distance)
    return jnp.where(pieces.exists, apart, FAR)


def next_impact(terrain: Terrain, moving: Moving) -> tuple[Array, Array]:
    """Which bodies meet the terrain before the end of the step, bool[5, N], and at which share of the way.

    Bodies that overlap it already are left alone, and those that begin close to it meet it at once. The search for the
    others takes turns between halving and a secant, and stops within the tolerance, as Box2D's does.
    """
    begin, end = moving.begin, moving.end
    left = jnp.minimum(collision.turned(begin).x.min(0), collision.turned(end).x.min(0))
    pieces = collision.nearby(terrain, left)
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

    zero = jnp.zeros_like(moving.time)
    bracket = (zero, zero + 1, jnp.where(on_the_way, at_begin, FAR).min(0), jnp.where(on_the_way, at_end, FAR).min(0))
    share = jax.lax.fori_loop(0, SEARCHES, search, (*bracket, zero, zero > 0))[4]
    return at_once | on_the_way.any(0), jnp.where(at_once, 0.0, share)


def respond(manifolds: Manifolds, moving: Moving, met: Array) -> Moving:
    """Bodies after an impact at `moving.begin`: out of the terrain, with what speed remains."""

    def move_out(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        i, pose, done = carry
        after, enough = contacts.solve_position(manifolds, pose, SHARE, ENOUGH)
        return i + 1, jnp.where(done, pose, after), done | enough

    def busy(carry: tuple[Array, Array, Array]) -> Array:
        return (carry[0] < POSITION_ITERATIONS) & ~carry[2].all()

    _, pose, _ = jax.lax.while_loop(busy, move_out, (jnp.int32(0), moving.begin, ~met))

    slots = contacts.prepare(manifolds, pose)

    def exchange(carry: Any) -> Any:
        i, _, velocity, normals, tangents = carry
        after, normals, tangents = contacts.solve_velocity(slots, velocity, normals, tangents)
        return i + 1, jnp.where(met, jnp.abs(after - velocity), 0.0).max(), after, normals, tangents

    none = [jnp.zeros((2, *met.shape))] * contacts.SLOTS
    start = (jnp.int32(0), jnp.float32(1.0), moving.velocity, none, none)
    _, _, velocity, _, _ = jax.lax.while_loop(
        lambda carry: (carry[0] < VELOCITY_ITERATIONS) & (carry[1] > CONVERGED), exchange, start
    )
    return Moving(pose, pose + (1 - moving.time) * DT * velocity, moving.time, velocity)
