"""What the walker sees of the terrain: ten rays from the hull, downwards to forwards, and how far each one gets.

The rays do not turn with the hull. The nearest hit counts, as a share of the ray's length; skins are not seen.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array

from procurl.envs.bipedal.jax_walker.terrain import Terrain, first_stump, stump
from procurl.envs.bipedal.track import GROUND, LEAST_SPACING, STEP

RANGE = 160 / 30  # metres
ANGLES = 0.15 * np.arange(10)  # from straight down
RAY_X, RAY_Y = (RANGE * f(ANGLES)[:, None].astype(np.float32) for f in (np.sin, lambda a: -np.cos(a)))  # f32[10, 1]
IN_SIGHT = int((RAY_X.max() + STEP) / (STEP + LEAST_SPACING)) + 2  # stumps at the smallest spacing
ALMOST_DOWN = 1e-9  # instead of dividing by the 0 of a ray straight down


def lidar(terrain: Terrain, x: Array, y: Array) -> Array:
    """f32[10, N] for hulls at (x, y), f32[N]."""
    to_ground = (GROUND - y) / RAY_Y  # f32[10, N]
    lands = x + to_ground * RAY_X
    hits = (to_ground >= 0) & (lands >= 0) & (lands <= terrain.end)
    nearest = jnp.where(hits, jnp.minimum(to_ground, 1.0), 1.0)

    index = first_stump(terrain, x) + np.arange(IN_SIGHT, dtype=np.int32)[:, None]
    left, height = (a[:, None] for a in stump(terrain, index))  # f32[IN_SIGHT, 1, N]
    along = np.where(RAY_X > 0, RAY_X, ALMOST_DOWN).astype(np.float32)
    enters_x, leaves_x = (left - x) / along, (left + STEP - x) / along
    enters_y, leaves_y = (GROUND + height - y) / RAY_Y, to_ground
    enters, leaves = jnp.maximum(enters_x, enters_y), jnp.minimum(leaves_x, leaves_y)
    hits = (enters <= leaves) & (enters >= 0) & (height > 0)
    return jnp.minimum(nearest, jnp.where(hits, enters, 1.0).min(0))
