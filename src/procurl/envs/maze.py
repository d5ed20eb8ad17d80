"""Sparse Goal Reaching (the paper's SGR): walk round a square block and stop at a goal, to within a tolerance.

The context is (goal x, goal y, tolerance). Reward 1 on coming closer to the goal than the tolerance, 0 otherwise;
200 steps end the episode with nothing. Most goals in the walls cannot be reached with a small tolerance, and the
teacher has to find that out. Paper: Section 4 and Appendix C.1.
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
from procurl.envs.pictures import GOAL_COLOUR, OUTLINE, WALL, Canvas, Frame, Scene, Trail
from procurl.programs import pytree
from procurl.targets import Mixture, Point, Uniform
from procurl.types import Continuous, Step, TargetDistribution, Task, TaskSpace

LOW, HIGH = (-9.0, -9.0, 0.05), (9.0, 9.0, 18.0)
NAMES = ("goal_x", "goal_y", "tolerance")
BORDER, BLOCK = 7.0, 5.0  # the floor is the ring [-7, 7]^2 minus the open square (-5, 5)^2
DATA_SEED = 20240804  # of pool, targets and held-out tasks: the same for every run


class State(NamedTuple):
    position: Array  # f32[2]
    steps: Array  # i32
    context: Array  # f32[3]


@pytree
@dataclass(frozen=True)
class Maze:
    """One environment step = one displacement; the task's seed decides the start in the lower left corner."""

    stride: float = param(0.3, "length of the longest step", at_least=0)
    max_steps: int = param(200, "length of the longest episode", static=True, at_least=1)

    obs_size: ClassVar[int] = 5
    action: ClassVar[Continuous] = Continuous(2, -1.0, 1.0)
    truncates: ClassVar[bool] = False  # the paper ends the episode at 200 steps with a reward of 0

    def __post_init__(self) -> None:
        check_fields("env.", self, is_pytree=True)

    def reset(self, task: Task) -> tuple[State, Array]:
        start = jax.random.uniform(jax.random.key(task.seed), (2,), minval=-BORDER, maxval=-BLOCK)
        state = State(start, jnp.int32(0), task.context)
        return state, observe(state)

    def step(self, key: Array, state: State, action: Array) -> tuple[State, Step]:
        direction = jnp.clip(action, self.action.low, self.action.high)
        displacement = self.stride * direction / jnp.maximum(1.0, jnp.linalg.norm(direction))
        state = state._replace(position=move(state.position, displacement), steps=state.steps + 1)

        goal, tolerance = state.context[:2], state.context[2]
        success = jnp.linalg.norm(state.position - goal) < tolerance
        terminated = success | (state.steps >= self.max_steps)
        return state, Step(observe(state), success.astype(jnp.float32), terminated, jnp.bool_(False), success)


def move(position: Array, displacement: Array) -> Array:
    """The walker stops at the outer border and slides along the block, axis by axis."""
    moved = jnp.clip(position + displacement, -BORDER, BORDER)
    enters = jnp.all(jnp.abs(moved) < BLOCK)
    came_from_outside = jnp.abs(position) >= BLOCK  # bool[2]  that axis stops at the block's edge, the other moves on
    return jnp.where(enters & came_from_outside, jnp.copysign(BLOCK, position), moved)


def observe(state: State) -> Array:
    """Position, then the context, raw: f32[5]."""
    return jnp.concatenate([state.position, state.context])


def goal_on_ring(context: Array) -> Array:
    """bool[n]: goals one can stand on.

    A goal in a wall but closer to the ring than its tolerance can be solved too. The released held-out set has no
    such goal (for a tolerance of 0.05 that would be one in twenty), so we leave them out as well.
    """
    reach = jnp.max(jnp.abs(context[:, :2]), axis=1)
    return (reach >= BLOCK) & (reach <= BORDER)


def _anywhere_within(tolerance: float) -> tuple[tuple[float, ...], ...]:
    """(low, high, std) of one mode of the 1G and 2G targets: a goal anywhere, the tolerance nearly fixed."""
    return (-9.0, -9.0, tolerance), (9.0, 9.0, tolerance), (0.0, 0.0, 0.01)


TARGETS: dict[str, TargetDistribution] = {
    "plane": Uniform((-9.0, -9.0, 0.05), (9.0, 9.0, 0.05)),
    "1t": Point((6.0, 6.0, 0.05)),
    "1g": Mixture(*zip(_anywhere_within(0.06), strict=True)),
    "2g": Mixture(*zip(_anywhere_within(0.06), _anywhere_within(0.12), strict=True)),
}


def space(target: str, pool_size: int = 10_000, n_targets: int = 100, n_held_out: int = 100) -> TaskSpace:
    """The task space of one of the settings `plane` (the paper's), `1t`, `1g`, `2g`: 1 % of the pool are targets."""
    n_pool_targets = pool_size // 100
    return box_space(
        NAMES, LOW, HIGH, TARGETS[target], DATA_SEED,
        n_uniform=pool_size - n_pool_targets, n_pool_targets=n_pool_targets,
        n_targets=n_targets, n_held_out=n_held_out,
        feasible=goal_on_ring, fresh_seeds=True,
    )  # fmt: skip


def picture(trail: Trail, context: NDArray[np.float32]) -> Frame:
    """The ring, the goal with its tolerance (also where it lies in a wall), the walker and its path."""
    goal, tolerance = (float(context[0]), float(context[1])), float(context[2])
    canvas = Canvas(extent=9.6, colour=WALL)
    canvas.box((-BORDER, -BORDER), (BORDER, BORDER), (250, 249, 246))
    canvas.box((-BLOCK, -BLOCK), (BLOCK, BLOCK), WALL)
    canvas.disc(goal, tolerance, GOAL_COLOUR, alpha=0.30)
    canvas.ring(goal, tolerance, 0.10, GOAL_COLOUR)
    canvas.disc(goal, 0.28, OUTLINE)
    canvas.disc(goal, 0.20, GOAL_COLOUR)  # so that one sees a tolerance of 0.05
    canvas.trail(trail, 0.12)
    canvas.agent(trail[-1], 0.34)
    return canvas.frame()


SCENE = Scene(reach=(BORDER, BORDER), position=lambda state: state.position, draw=picture, fps=20)
