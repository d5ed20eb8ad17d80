"""One step of the world, in Box2D's order, for N walkers side by side.

    collide                        where do bodies touch the terrain, and what began or ended?
    forces                         gravity, and in the first step the push
    180 iterations on velocities   joints in turn, then contacts
    move
    60 iterations on positions     contacts, then joints in turn, until all are met
    impacts                        fast bodies meet the terrain before the step is over

Iterations begin with the impulses of the step before. 180 and 60 are Gymnasium's numbers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from procurl.envs.bipedal.jax_walker import contacts, impacts, joints
from procurl.envs.bipedal.jax_walker.body import (
    DT, FEET, GRAVITY, HINGES, HULL, INV_MASS, SLOP, START_ANGLE, START_X, START_Y, TORQUE,
)  # fmt: skip
from procurl.envs.bipedal.jax_walker.collision import NOTHING, ON_GROUND, SLOTS, Manifolds, Pose, collide
from procurl.envs.bipedal.jax_walker.contacts import Impulses, Velocity
from procurl.envs.bipedal.jax_walker.joints import JointImpulse, Rows
from procurl.envs.bipedal.jax_walker.lanes import lanes
from procurl.envs.bipedal.jax_walker.terrain import START, Terrain

VELOCITY_ITERATIONS, POSITION_ITERATIONS = 180, 60
SHARE, ENOUGH = 0.2, -3 * SLOP  # of an overlap that an iteration corrects; the overlap that may remain
MOST_TRANSLATION, MOST_ROTATION = 2.0, np.pi / 2  # in a step
SLEEPY_SPEED, SLEEPY_SPIN, TIME_TO_SLEEP = 0.01, 2 * np.pi / 180, 0.5
NEVER = 1 << 20  # a place to the right of everything


class World(NamedTuple):
    """All that a step changes."""

    pose: Pose
    velocity: Velocity
    joint: JointImpulse  # f32[4 joints, N] each
    limit: Array  # i32[4, N]
    contact: Impulses
    touched: Array  # i32[K, 5, N]  pieces of terrain
    feet: Array  # bool[2, N]  what the student is told about ground contact
    fallen: Array  # bool[N]  the hull has touched something
    still: Array  # f32[N]  seconds since anything moved


def placed(n: int) -> World:
    """N walkers as they are created."""

    def rows(column: np.ndarray) -> Array:
        return jnp.broadcast_to(column, (5, n))

    bodies, hinges = jnp.zeros((5, n)), jnp.zeros((4, n))
    points = jnp.zeros((SLOTS, 2, 5, n))
    return World(
        Pose(rows(START_X), rows(START_Y), rows(START_ANGLE)),
        Velocity(bodies, bodies, bodies),
        JointImpulse(hinges, hinges, hinges, hinges),
        jnp.zeros((4, n), jnp.int32),
        Impulses(points, points, jnp.full(points.shape, NOTHING, jnp.int32)),
        jnp.full((SLOTS, 5, n), NOTHING, jnp.int32),
        jnp.zeros((2, n), bool),
        jnp.zeros(n, bool),
        jnp.zeros(n),
    )


@lanes
def advance(terrain: Terrain, world: World, action: Array, push: Array) -> World:
    """The world 1/50 s later; action f32[4, N], push f32[N] in newtons on the hull."""
    manifolds = jax.lax.optimization_barrier(collide(terrain, world.pose))
    world = noticed(terrain, world, manifolds, jnp.ones_like(world.pose.x, bool))
    velocity = Velocity(
        world.velocity.x.at[HULL].add(DT * push * INV_MASS[HULL]), world.velocity.y + DT * GRAVITY, world.velocity.spin
    )
    world = solved_velocities(world._replace(velocity=velocity), manifolds, action)
    begin = world.pose
    world, at_rest = solved_positions(moved(world), manifolds)
    return with_impacts(terrain, slept(world, at_rest), begin)


def noticed(terrain: Terrain, world: World, manifolds: Manifolds, where: Array) -> World:
    """What Box2D tells its listener: a contact began or ended. Impulses are carried over.

    A foot's flag is set by every beginning and cleared by every end, even if it still stands on something else: the last
    of a step's events counts. Box2D goes through contacts from the newest to the oldest, which for a walker on its way
    to the right is from right to left.
    """
    piece = jnp.where(where, manifolds.piece, world.touched)

    def changed(these: Array, those: Array) -> Array:
        return (these >= 0) & (these[:, None] != those[None]).all(1)  # bool[K, 5, N]

    def leftmost(pieces: Array, chosen: Array) -> Array:
        gap = jnp.floor((world.pose.x - START) / terrain.pitch).astype(jnp.int32)
        place = jnp.where(pieces == ON_GROUND, 2 * gap + 1, 2 * (pieces - 1))
        return jnp.where(chosen, place, NEVER).min(0)  # i32[5, N]

    began, ended = changed(piece, world.touched), changed(world.touched, piece)
    first_begun, first_ended = leftmost(piece, began), leftmost(world.touched, ended)
    stands = first_begun < first_ended
    event = jnp.minimum(first_begun, first_ended) < NEVER
    rows = np.array(FEET)
    contact = contacts.carried(manifolds, world.contact)
    return world._replace(
        touched=piece,
        feet=jnp.where(event[rows], stands[rows], world.feet),
        fallen=world.fallen | (piece[:, HULL] >= 0).any(0),
        contact=Impulses(*(jnp.where(where, new, old) for new, old in zip(contact, world.contact, strict=True))),
    )


def solved_velocities(world: World, manifolds: Manifolds, action: Array) -> World:
    """Velocities that joints, limits, motors and contacts allow, and the impulses that lead there."""
    slots = contacts.prepare(manifolds, world.pose)
    limit = joints.limit_states(world.pose.angle)
    kept = jnp.where((limit == world.limit) & (limit != 0), world.joint.limit, 0.0)
    earlier = world.joint._replace(limit=kept)
    ready = [
        joints.prepare(
            hinge, world.pose.angle, limit[j],
            hinge.speed * jnp.sign(action[hinge.action]), DT * TORQUE * jnp.minimum(jnp.abs(action[hinge.action]), 1.0),
        )
        for j, hinge in enumerate(HINGES)
    ]  # fmt: skip

    # Impulses of the step before.
    velocity, by_slot = world.velocity, contacts.by_slot(world.contact)
    for slot, (n1, n2, t1, t2) in zip(slots, by_slot, strict=True):
        velocity = contacts.push(velocity, slot, (n1, n2), (t1, t2))
    v = _rows(velocity)
    by_joint = [JointImpulse(*(field[j] for field in earlier)) for j in range(4)]
    for hinge, constants, impulse in zip(HINGES, ready, by_joint, strict=True):
        v = joints.apply(hinge, constants, v, impulse.x, impulse.y, impulse.limit + impulse.motor)
    ready, slots, start = jax.lax.optimization_barrier((ready, slots, (v, by_joint, by_slot)))

    def iterate(_: Array, carry: Any) -> Any:
        v, by_joint, by_slot = carry
        after = []
        for hinge, constants, impulse in zip(HINGES, ready, by_joint, strict=True):
            v, impulse = joints.solve_velocity(hinge, constants, v, impulse)
            after.append(impulse)
        velocity, by_slot = contacts.solve_velocity(slots, _columns(v, Velocity), by_slot)
        return _rows(velocity), after, by_slot

    v, by_joint, by_slot = jax.lax.fori_loop(0, VELOCITY_ITERATIONS, iterate, start)
    return world._replace(
        velocity=_columns(v, Velocity),
        joint=JointImpulse(*(jnp.stack(field) for field in zip(*by_joint, strict=True))),
        limit=limit,
        contact=contacts.together(by_slot, manifolds.key),
    )


def moved(world: World) -> World:
    """Positions after the step; what is too fast to be true is slowed down."""
    x, y, spin = world.velocity
    distance = DT * jnp.hypot(x, y)
    slower = jnp.where(distance > MOST_TRANSLATION, MOST_TRANSLATION / jnp.maximum(distance, 1e-9), 1.0)
    velocity = Velocity(x * slower, y * slower, jnp.clip(spin, -MOST_ROTATION / DT, MOST_ROTATION / DT))
    return world._replace(velocity=velocity, pose=Pose(*(p + DT * v for p, v in zip(world.pose, velocity, strict=True))))


def solved_positions(world: World, manifolds: Manifolds) -> tuple[World, Array]:
    """Positions in which bodies do not overlap the terrain and joints hold together. bool[N]: they do.

    A walker that is done does not move while the others go on.
    """

    def iterate(carry: tuple[Array, Pose, Array]) -> tuple[Array, Pose, Array]:
        i, before, done = carry
        pose, apart = contacts.solve_position(manifolds, before, SHARE, ENOUGH)
        met = apart.all(0)
        p = _rows(pose)
        for j, hinge in enumerate(HINGES):
            p, holds = joints.solve_position(hinge, world.limit[j], p)
            met = met & holds
        after = _columns(p, Pose)
        return i + 1, Pose(*(jnp.where(done, old, new) for old, new in zip(before, after, strict=True))), done | met

    def busy(carry: tuple[Array, Pose, Array]) -> Array:
        return (carry[0] < POSITION_ITERATIONS) & ~carry[2].all()

    _, pose, done = jax.lax.while_loop(busy, iterate, (jnp.int32(0), world.pose, jnp.zeros_like(world.fallen)))
    return world._replace(pose=pose), done


def slept(world: World, at_rest: Array) -> World:
    """Who has hardly moved for half a second falls asleep, and loses its speed; the next action wakes it."""
    x, y, spin = world.velocity
    slow = (x * x + y * y <= SLEEPY_SPEED**2) & (jnp.abs(spin) <= SLEEPY_SPIN)
    still = jnp.where(slow.all(0), world.still + DT, 0.0)
    asleep = (still >= TIME_TO_SLEEP) & at_rest
    velocity = Velocity(*(jnp.where(asleep, 0.0, v) for v in world.velocity))
    return world._replace(velocity=velocity, still=jnp.where(asleep, 0.0, still))


def with_impacts(terrain: Terrain, world: World, begin: Pose) -> World:
    """Bodies that went too deep into the terrain meet it on their way from `begin`."""
    moving = impacts.Moving(begin, world.pose, jnp.zeros_like(begin.x), world.velocity)

    def meet(carry: Any) -> Any:
        i, world, moving, share, met = carry
        now = impacts.between(moving.begin, moving.end, share)
        manifolds = jax.lax.optimization_barrier(collide(terrain, now))
        met = met & manifolds.active.any((0, 1))
        world = noticed(terrain, world._replace(pose=now), manifolds, met)
        struck = impacts.Moving(now, moving.end, moving.time + share * (1 - moving.time), moving.velocity)
        after = impacts.respond(manifolds, struck, met)
        moving = jax.tree.map(lambda new, old: jnp.where(met, new, old), after, moving)
        again, share = impacts.next_impact(terrain, moving)
        return i + 1, world, moving, share, met & again

    met, share = impacts.next_impact(terrain, moving)
    _, world, moving, _, _ = jax.lax.while_loop(
        lambda carry: (carry[0] < impacts.MOST_IMPACTS) & carry[4].any(), meet, (jnp.int32(0), world, moving, share, met)
    )
    return world._replace(pose=moving.end, velocity=moving.velocity)


def _rows(columns: Pose | Velocity) -> Rows:
    return Rows(*([array[b] for b in range(5)] for array in columns))


def _columns(rows: Rows, kind: Any) -> Any:
    return kind(*(jnp.stack(row) for row in rows))
