"""Levels that are arrays: every task has a map of walls, which the environment looks up by the task's number.

The context is what teachers reason about, here the share of walls; the map itself is data that the environment carries.
Every task of a space has a number, `task.row`: the pool's come first, then the targets', then the held-out tasks'. So
one array holds the maps of all of them.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import procurl
from procurl.types import Discrete, Step

SIZE = 9
MOVES = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]], np.int32)


class State(NamedTuple):
    walls: jax.Array  # bool[SIZE + 2, SIZE + 2]  with a border
    at: jax.Array  # i32[2]
    t: jax.Array
    context: jax.Array  # f32[1]  the student sees it, so that its critic can tell easy maps from hard ones


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Rooms:
    """From the upper left corner to the lower right one, seeing eight cells around; the reward is 1 for arriving."""

    walls: jax.Array  # bool[tasks, SIZE, SIZE]

    obs_size: ClassVar[int] = 13
    action: ClassVar[Discrete] = Discrete(4)
    max_steps: ClassVar[int] = 60
    truncates: ClassVar[bool] = False
    by_number: ClassVar[bool] = True  # strategies that invent contexts are refused: what they invent has no map

    def reset(self, task):
        walls = jnp.pad(self.walls[task.row], 1, constant_values=True)
        state = State(walls, jnp.array([1, 1]), jnp.int32(0), task.context)
        return state, self.observe(state)

    def step(self, key, state, action):
        there = state.at + jnp.asarray(MOVES)[action]
        at = jnp.where(state.walls[there[0], there[1]], state.at, there)
        state = state._replace(at=at, t=state.t + 1)
        arrived = jnp.all(at == SIZE)
        ended = arrived | (state.t >= self.max_steps)
        return state, Step(self.observe(state), arrived.astype(jnp.float32), ended, jnp.bool_(False), arrived)

    def observe(self, state):
        around = jax.lax.dynamic_slice(state.walls, state.at - 1, (3, 3)).ravel()
        return jnp.concatenate(
            [around, state.at / SIZE, state.t[None] / self.max_steps, state.context], dtype=jnp.float32
        )


def tasks_and_maps(pool_size=1000, n_targets=50):
    """The space, and a map for each of its tasks: as many walls as its context says, and a way through."""
    space = procurl.task_space(
        [0.0], [0.4], ["walls"], target=[0.4], pool_size=pool_size, n_targets=n_targets, n_held_out=n_targets,
        value_range=(0.0, 1.0), fresh_seeds=False,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    share = space.lookup(jnp.arange(space.n_tasks)).context[:, 0]
    return space, np.stack([a_map(rng, float(x)) for x in share])


def a_map(rng, share):
    while True:
        walls = rng.permutation(SIZE * SIZE).reshape(SIZE, SIZE) < share * SIZE * SIZE
        walls[0, 0] = walls[-1, -1] = False
        if has_a_way(walls):
            return walls


def has_a_way(walls):
    """Whether the last cell can be reached from the first."""
    reached = np.zeros_like(walls)
    reached[0, 0] = True
    for _ in range(SIZE * SIZE):
        near = reached.copy()
        near[1:] |= reached[:-1]
        near[:-1] |= reached[1:]
        near[:, 1:] |= reached[:, :-1]
        near[:, :-1] |= reached[:, 1:]
        reached = near & ~walls
    return bool(reached[-1, -1])


def main(steps: int = 100_000) -> None:
    space, walls = tasks_and_maps()
    env = Rooms(jnp.asarray(walls))
    procurl.check_env(env, space)
    for name in ("procurl-target", "robust-plr", "iid", "target"):
        teacher = procurl.make_teacher(name, space, **({"on_pool": True} if name == "target" else {}))
        result = procurl.train(env, teacher, seeds=4, steps=steps)
        print(f"{name}: success on maps with 40 % walls over training {result.ret.mean(axis=0).round(2)}")


if __name__ == "__main__":
    main()
