"""Point Mass Sparse (the paper's PM-s): steer a mass through a gate in a wall to a goal below it.

The context is (gate position, gate width, friction). Reward 1 on reaching the goal, 0 otherwise; hitting
the wall or 100 steps end the episode with nothing. Paper: Section 4 and Appendix C.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from procurl.check.fields import check_fields, param
from procurl.envs.box_space import box_space
from procurl.envs.pictures import GOAL_COLOUR, WALL, Canvas, Frame, Scene, Trail
from procurl.programs import pytree
from procurl.targets import Mixture, Point
from procurl.types import Continuous, Step, TargetDistribution, Task, TaskSpace

LOW, HIGH = (-4.0, 0.5, 0.0), (4.0, 8.0, 4.0)
NAMES = ("gate_position", "gate_width", "friction")
GOAL = (0.0, -3.0)
DT, SUBSTEPS = 0.01, 10
DATA_SEED = 20240803  # of pool, targets and held-out tasks: the same for every run


class State(NamedTuple):
    x: Array
    vx: Array
    y: Array
    vy: Array
    hit: Array  # bool  the mass has run into the wall
    steps: Array  # i32
    context: Array  # f32[3]


@pytree
@dataclass(frozen=True)
class PointMass:
    """One environment step = ten Euler steps of 10 ms under the same force."""

    noise: float = param(0.05, "standard deviation of the acceleration's noise", at_least=0)
    max_steps: int = param(100, "length of the longest episode", static=True, at_least=1)

    obs_size: ClassVar[int] = 7
    action: ClassVar[Continuous] = Continuous(2, -10.0, 10.0)
    truncates: ClassVar[bool] = False  # the paper ends the episode at 100 steps with a reward of 0

    def __post_init__(self) -> None:
        check_fields("env.", self, is_pytree=True)

    def reset(self, task: Task) -> tuple[State, Array]:
        zero = jnp.float32(0.0)
        state = State(zero, zero, jnp.float32(3.0), zero, jnp.bool_(False), jnp.int32(0), task.context)
        return state, observe(state)

    def step(self, key: Array, state: State, action: Array) -> tuple[State, Step]:
        force = jnp.clip(action, self.action.low, self.action.high)
        # drawn flat: XLA vectorises over a long row, not over rows of two
        noise = self.noise * jax.random.normal(key, (SUBSTEPS * 2,)).reshape(SUBSTEPS, 2)
        # A barrier: otherwise XLA computes the ten substeps once more for everything that is derived from them.
        state = jax.lax.optimization_barrier(move(state, force, noise)._replace(steps=state.steps + 1))

        success = jnp.hypot(state.x - GOAL[0], state.y - GOAL[1]) < 0.30
        terminated = success | state.hit | (state.steps >= self.max_steps)
        return state, Step(observe(state), success.astype(jnp.float32), terminated, jnp.bool_(False), success)


def move(state: State, force: Array, noise: Array) -> State:
    """Explicit Euler steps; at the wall the mass passes through the gate or stops for good.

    All steps are computed as if there were no wall, and a mass that has hit it is then put back to that place.
    Otherwise every step would depend on the whole of the one before, which XLA would compile and compute repeatedly.
    """
    x, vx, y, vy, hit, _, (gate, width, friction) = state
    x_stop = x
    for noise_x, noise_y in noise:  # unrolled: ten small loops would cost more than the arithmetic
        x_new = jnp.clip(x + DT * vx, -4.0, 4.0)
        y_new = jnp.clip(y + DT * vy, -4.0, 4.0)
        vx = vx + DT * (1.5 * force[0] - friction * vx + noise_x)
        vy = vy + DT * (1.5 * force[1] - friction * vy + noise_y)

        crosses = ((y >= 0) & (y_new < 0)) | ((y <= 0) & (y_new > 0))
        slope = jnp.where(crosses, y_new - y, 1.0)  # never divides by zero, not even in the unused branch
        x_cross = x + (x_new - x) * (0.0 - y) / slope
        hits = crosses & (jnp.abs(x_cross - gate) > width / 2)
        x_stop = jnp.where(hits & ~hit, x_cross, x_stop)
        hit = hit | hits
        x, y = x_new, y_new

    return state._replace(
        x=jnp.where(hit, x_stop, x),
        vx=jnp.where(hit, 0.0, vx),
        y=jnp.where(hit, 0.0, y),
        vy=jnp.where(hit, 0.0, vy),
        hit=hit,
    )


def observe(state: State) -> Array:
    """Position and velocity, then the context, raw: f32[7]."""
    return jnp.concatenate([jnp.stack([state.x, state.vx, state.y, state.vy]), state.context])


def _gate_mode(position: float) -> tuple[tuple[float, ...], ...]:
    """(low, high, std) of one mode of the 2G target: a narrow gate near a border, any friction."""
    return (position, 0.5, 0.0), (position, 0.5, 4.0), (0.05, 0.05, 0.0)


TARGETS: dict[str, TargetDistribution] = {
    "1t": Point((0.9, 0.5, 3.5)),
    "2g": Mixture(*zip(_gate_mode(3.9), _gate_mode(-3.9), strict=True)),
    "1g": Mixture(*zip(_gate_mode(3.9), strict=True)),
}


def space(target: str, pool_size: int = 20_000, n_targets: int = 400, n_held_out: int = 100) -> TaskSpace:
    """The task space of one of the settings `1t`, `2g`, `1g`."""
    return box_space(
        NAMES, LOW, HIGH, TARGETS[target], DATA_SEED,
        n_uniform=pool_size, n_targets=n_targets, n_held_out=n_held_out,
    )  # fmt: skip


ICE, SAND = (238, 246, 252), (240, 226, 200)


def picture(trail: Trail, context: NDArray[np.float32]) -> Frame:
    """The wall with its gate, the goal below, the mass and its path; the floor goes from ice to sand with friction."""
    gate, width, friction = (float(c) for c in context)
    canvas = Canvas(extent=4.3, colour=WALL)
    share = friction / HIGH[2]
    floor = tuple(a + share * (b - a) for a, b in zip(ICE, SAND, strict=True))
    canvas.box((-4.0, -4.0), (4.0, 4.0), floor)
    canvas.disc(GOAL, 0.30, GOAL_COLOUR, alpha=0.35)
    canvas.ring(GOAL, 0.30, 0.07, GOAL_COLOUR)
    left, right = max(gate - width / 2, -4.0), min(gate + width / 2, 4.0)
    canvas.box((-4.0, -0.08), (left, 0.08), WALL)
    canvas.box((right, -0.08), (4.0, 0.08), WALL)
    canvas.trail(trail, 0.06)
    canvas.agent(trail[-1], 0.17)
    return canvas.frame()


SCENE = Scene(
    reach=(4.0, np.inf, 4.0, np.inf),
    position=lambda state: jnp.stack([state.x, state.y], axis=-1),
    draw=picture,
    fps=10,
)
