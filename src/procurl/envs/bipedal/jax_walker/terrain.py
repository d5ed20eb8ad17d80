"""A Stump Track as arrays of one size for every task, so that walkers on different tracks share a program.

Stumps stand at equal distances, so an array of heights and that distance say everything: none has to be searched for.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from procurl.envs.bipedal.track import END, HEIGHT_STD, LEAST_HEIGHT, LEAST_SPACING, START, STEP, Track

MOST_STUMPS = int((END - START) / (STEP + LEAST_SPACING)) + 1


class Terrain(NamedTuple):
    pitch: Array  # f32[N]  from one stump's left edge to the next one's
    end: Array  # f32[N]  where the ground ends
    heights: Array  # f32[MOST_STUMPS, N]  above the ground; 0 where there is no stump


def draw_terrain(context: Array, key: Array) -> Terrain:
    """The track of one context, without the last axis: `track.make_track` with another generator."""
    mean, spacing = context[0], jnp.maximum(LEAST_SPACING, context[1])
    pitch = STEP + spacing
    n = jnp.ceil((END - START) / pitch)  # f32[]  stumps
    last = START + (n - 1) * pitch
    end = jnp.where(last + STEP < END, last + STEP, last)  # no ground lies under the last stump or gap
    drawn = mean + HEIGHT_STD * jax.random.normal(key, (MOST_STUMPS,))
    heights = STEP * jnp.maximum(LEAST_HEIGHT, drawn)
    return Terrain(pitch, end, jnp.where(jnp.arange(MOST_STUMPS) < n, heights, 0.0))


def terrain_of(track: Track) -> Terrain:
    """The same for an explicit track."""
    heights = np.zeros(MOST_STUMPS, np.float32)
    heights[: len(track.heights)] = track.heights
    return Terrain(jnp.float32(track.stumps[1] - track.stumps[0]), jnp.float32(track.ground[-1]), jnp.asarray(heights))


def first_stump(terrain: Terrain, x: Array) -> Array:
    """The first stump that reaches beyond x, i32[..., N]; it may lie before the first or after the last one."""
    return jnp.ceil((x - START - STEP) / terrain.pitch).astype(jnp.int32)


def stump(terrain: Terrain, index: Array) -> tuple[Array, Array]:
    """Left edge and height of stumps i32[k, N]; the height is 0 where there is none."""
    inside = jnp.clip(index, 0, MOST_STUMPS - 1)
    height = jnp.take_along_axis(terrain.heights, inside, axis=0, mode="promise_in_bounds")
    return START + index * terrain.pitch, jnp.where(index == inside, height, 0.0)
