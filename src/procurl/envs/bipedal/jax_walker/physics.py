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
from procurl.envs.bipedal.jax_walker.body import CREATED, DT, FEET, GRAVITY, HINGES, HULL, INVERSE, SLOP, TORQUE
from procurl.envs.bipedal.jax_walker.collision import NOTHING, SLOTS, Manifolds, collide, from_left
from procurl.envs.bipedal.jax_walker.contacts import Impulses, Slot
from procurl.envs.bipedal.jax_walker.joints import SOLVERS, JointImpulse, Ready
from procurl.envs.bipedal.jax_walker.kernel import in_one_kernel
from procurl.envs.bipedal.jax_walker.lanes import lanes
from procurl.envs.bipedal.jax_walker.terrain import Terrain

VELOCITY_ITERATIONS, POSITION_ITERATIONS = 180, 60
SHARE, ENOUGH = 0.2, -3 * SLOP  # of an overlap that an iteration corrects; the overlap that may remain
MOST_TRANSLATION, MOST_ROTATION = 2.0, np.pi / 2  # in a step
SLEEPY_SPEED, SLEEPY_SPIN, TIME_TO_SLEEP = 0.01, 2 * np.pi / 180, 0.5
PUSHED = np.where(np.arange(5)[:, None] == HULL, INVERSE[0], np.float32(0.0))  # f32[5, 1]  metres/s per newton second
NEVER = 1 << 20  # a place to the right of everything


class World(NamedTuple):
    """All that a step changes."""

    pose: Array  # f32[3, 5, N]  x, y and angle of the centres of mass
    velocity: Array  # f32[3, 5, N]
    pull: Array  # f32[4 joints, 3, N]  the joints' impulses
    motor: Array  # f32[4, N]
    limit: Array  # i32[4, N]  which limit a joint is at
    contact: Impulses
    touched: Array  # i32[K, 5, N]  pieces of terrain
    feet: Array  # bool[2, N]  what the student is told about ground contact
    fallen: Array  # bool[N]  the hull has touched something
    still: Array  # f32[N]  seconds since anything moved


def placed(n: int) -> World:
    """N walkers as they are created."""
    pose = jnp.broadcast_to(CREATED, (3, 5, n))
    points = jnp.zeros((SLOTS, 2, 5, n))
    return World(
        pose,
        jnp.zeros_like(pose),
        jnp.zeros((4, 3, n)),
        jnp.zeros((4, n)),
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
    manifolds = collide(terrain, world.pose)
    world = noticed(terrain, world, manifolds, jnp.ones_like(world.pose[0], bool))
    x, y, spin = world.velocity
    velocity = jnp.stack([x + DT * push * PUSHED, y + DT * GRAVITY, spin])
    world = solved_velocities(world._replace(velocity=velocity), manifolds, action)
    begin = world.pose
    world, at_rest = solved_positions(moved(world), manifolds)
    return with_impacts(terrain, slept(world, at_rest), begin)


def noticed(terrain: Terrain, world: World, manifolds: Manifolds, where: Array) -> World:
    """What Box2D tells its listener: a contact began or ended. Impulses are carried over.

    A foot's flag is set by every beginning and cleared by every end, even if it still stands on something else: the
    last of a step's events counts, that of the leftmost piece (`from_left`).
    """
    piece = jnp.where(where, manifolds.piece, world.touched)

    def changed(these: Array, those: Array) -> Array:
        return (these >= 0) & (these[:, None] != those[None]).all(1)  # bool[K, 5, N]

    def leftmost(pieces: Array, chosen: Array) -> Array:
        return jnp.where(chosen, from_left(terrain, world.pose[0], pieces), NEVER).min(0)  # i32[5, N]

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
    limit = joints.limit_states(world.pose[2])
    kept = (limit == world.limit) & (limit != 0)
    pull = jnp.concatenate([world.pull[:, :2], jnp.where(kept, world.pull[:, 2], 0.0)[:, None]], axis=1)
    slots, ready, v = prepared(world, manifolds, action, limit, pull)
    by_joint = [JointImpulse(pull[j], world.motor[j]) for j in range(4)]
    start = (by_body(v), by_joint, list(world.contact.normal), list(world.contact.tangent))
    v, by_joint, normals, tangents = iterated_velocities(slots, ready, start)
    return world._replace(
        velocity=jnp.stack(v, axis=1),
        pull=jnp.stack([impulse.pull for impulse in by_joint]),
        motor=jnp.stack([impulse.motor for impulse in by_joint]),
        limit=limit,
        contact=Impulses(jnp.stack(normals), jnp.stack(tangents), manifolds.key),
    )


@in_one_kernel
def iterated_velocities(slots: list[Slot], ready: list[Ready], start: Any) -> Any:
    """Velocities of the bodies and impulses of joints and contacts, after all iterations."""

    def iterate(_: Array, carry: Any) -> Any:
        v, by_joint, normals, tangents = carry
        after = []
        for solver, constants, impulse in zip(SOLVERS, ready, by_joint, strict=True):
            v, impulse = solver.velocity(constants, v, impulse)
            after.append(impulse)
        velocity, normals, tangents = contacts.solve_velocity(slots, jnp.stack(v, axis=1), normals, tangents)
        return by_body(velocity), after, normals, tangents

    return jax.lax.fori_loop(0, VELOCITY_ITERATIONS, iterate, start)


def prepared(world: World, manifolds: Manifolds, action: Array, limit: Array, pull: Array) -> Any:
    """The constraints, and velocities after the impulses of the step before."""
    slots = contacts.prepare(manifolds, world.pose)
    aims = [hinge.speed * jnp.sign(action[hinge.action]) for hinge in HINGES]
    most = [DT * TORQUE * jnp.minimum(jnp.abs(action[hinge.action]), 1.0) for hinge in HINGES]
    cos, sin = contacts.cosine(world.pose), contacts.sine(world.pose)
    ready = [joints.prepare(h, cos, sin, limit[j], aims[j], most[j]) for j, h in enumerate(HINGES)]
    velocity, none = world.velocity, jnp.zeros_like(world.contact.normal[0])
    for slot, normal, tangent in zip(slots, world.contact.normal, world.contact.tangent, strict=True):
        velocity = contacts.pushed(velocity, slot, normal, none, tangent, none)
    v = by_body(velocity)
    for j, hinge in enumerate(HINGES):
        v = joints.apply(hinge, ready[j], v, pull[j], world.motor[j])
    return slots, ready, jnp.stack(v, axis=1)


def by_body(columns: Array) -> list[Array]:
    """f32[3, 5, N] as five f32[3, N]."""
    return [columns[:, body] for body in range(5)]


def moved(world: World) -> World:
    """Positions after the step; bodies that are impossibly fast are slowed down."""
    x, y, spin = world.velocity
    distance = DT * jnp.hypot(x, y)
    slower = jnp.where(distance > MOST_TRANSLATION, MOST_TRANSLATION / jnp.maximum(distance, 1e-9), 1.0)
    velocity = jnp.stack([x * slower, y * slower, jnp.clip(spin, -MOST_ROTATION / DT, MOST_ROTATION / DT)])
    return world._replace(velocity=velocity, pose=world.pose + DT * velocity)


def solved_positions(world: World, manifolds: Manifolds) -> tuple[World, Array]:
    """Positions in which bodies do not overlap the terrain and joints hold together. bool[N]: they do.

    A walker that is done does not move while the others go on.
    """

    pose, done = iterated_positions(manifolds, world.pose, list(world.limit))
    return world._replace(pose=pose), done


@in_one_kernel
def iterated_positions(manifolds: Manifolds, pose: Array, limit: list[Array]) -> tuple[Array, Array]:
    def iterate(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        i, before, done = carry
        pose, apart = contacts.solve_position(manifolds, before, SHARE, ENOUGH)
        met = apart.all(0)
        p = by_body(pose)
        for solver, at in zip(SOLVERS, limit, strict=True):
            p, holds = solver.position(at, p)
            met = met & holds
        return i + 1, jnp.where(done, before, jnp.stack(p, axis=1)), done | met

    def busy(carry: tuple[Array, Array, Array]) -> Array:
        return (carry[0] < POSITION_ITERATIONS) & ~carry[2].all()

    return jax.lax.while_loop(busy, iterate, (jnp.int32(0), pose, jnp.zeros_like(pose[0, 0], bool)))[1:]


def slept(world: World, at_rest: Array) -> World:
    """A walker that has hardly moved for half a second falls asleep, and loses its speed; the next action wakes it."""
    x, y, spin = world.velocity
    slow = (x * x + y * y <= SLEEPY_SPEED**2) & (jnp.abs(spin) <= SLEEPY_SPIN)
    still = jnp.where(slow.all(0), world.still + DT, 0.0)
    asleep = (still >= TIME_TO_SLEEP) & at_rest
    return world._replace(velocity=jnp.where(asleep, 0.0, world.velocity), still=jnp.where(asleep, 0.0, still))


def with_impacts(terrain: Terrain, world: World, begin: Array) -> World:
    """Bodies that went too deep into the terrain meet it on their way from `begin`."""

    def meet(carry: Any) -> Any:
        i, world, moving, share, met = carry
        now = impacts.between(moving.begin, moving.end, share)
        manifolds = collide(terrain, now)
        met = met & manifolds.active.any((0, 1))
        world = noticed(terrain, world._replace(pose=now), manifolds, met)
        struck = impacts.Moving(now, moving.end, moving.time + share * (1 - moving.time), moving.velocity)
        after = impacts.respond(manifolds, struck, met)
        moving = jax.tree.map(lambda new, old: jnp.where(met, new, old), after, moving)
        again, share = impacts.next_impact(terrain, moving)
        return i + 1, world, moving, share, met & again

    moving = impacts.Moving(begin, world.pose, jnp.zeros_like(begin[0]), world.velocity)
    met, share = impacts.next_impact(terrain, moving)
    _, world, moving, _, _ = jax.lax.while_loop(
        lambda carry: (carry[0] < impacts.MOST_IMPACTS) & carry[4].any(),
        meet,
        (jnp.int32(0), world, moving, share, met),
    )
    return world._replace(pose=moving.end, velocity=moving.velocity)
