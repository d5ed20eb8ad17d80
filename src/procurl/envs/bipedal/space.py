"""The setting `bipedal`: which tasks there are, to train on and to be tested on, and who plays them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, ClassVar

import jax.numpy as jnp

from procurl.check.fields import check_fields, param
from procurl.envs.bipedal.track import HIGH, LOW, MAX_STEPS, NAMES
from procurl.envs.box_space import box_space
from procurl.targets import Uniform
from procurl.types import Continuous, Task, TaskSpace

DATA_SEED = 20240806  # of pool and targets: the same for every run
VALUE_RANGE = (-150.0, 350.0)  # TeachMyAgent's bounds of a return
GRID = 10  # heights, and spacings, of the test grid


@dataclass(frozen=True)
class BoxWalker:
    """The walker in Box2D, in processes of its own (extra `[box2d]`)."""

    obs_size: ClassVar[int] = 24
    action: ClassVar[Continuous] = Continuous(4, -1.0, 1.0)

    max_steps: int = param(MAX_STEPS, "length of the longest episode, which is then truncated", at_least=1)

    def __post_init__(self) -> None:
        check_fields("env.", self)

    def maker(self) -> Callable[[], Any]:
        from procurl.envs.bipedal.stump_tracks import StumpTracks

        return partial(StumpTracks, max_steps=self.max_steps)


def bipedal_space(pool_size: int = 1000, n_targets: int = 500) -> TaskSpace:
    """Pool and targets uniform in the box, since mu is; tested on the benchmark's grid of 100 tasks.

    The heights of the stumps are new in every training episode. In the test they are the same every time and for every
    strategy, where the benchmark draws them anew.
    """
    space = box_space(
        NAMES, LOW, HIGH, Uniform(LOW, HIGH), DATA_SEED,
        n_uniform=pool_size, n_targets=n_targets, n_held_out=0, fresh_seeds=True,
    )  # fmt: skip
    return dataclasses.replace(space, held_out=grid_tasks(), fixed_tests=True, value_range=VALUE_RANGE, name="bipedal")


def grid_tasks() -> Task:
    """Heights 0, 1/3 .. 3 times spacings 0, 2/3 .. 6; half of the training tasks are easier than any of these."""
    heights, spacings = jnp.linspace(0.0, HIGH[0], GRID), jnp.linspace(0.0, HIGH[1], GRID)
    context = jnp.array(list(product(heights, spacings)), jnp.float32)  # f32[100, 2]
    n = len(context)
    return Task(context, seed=jnp.arange(n, dtype=jnp.int32), row=jnp.full(n, -1, jnp.int32))
