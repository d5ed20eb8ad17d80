"""A picture of the walker on its track, for `procurl watch`: the camera follows the hull."""

from __future__ import annotations

from typing import Any

import numpy as np

from procurl.envs.bipedal.jax_walker.body import CORNERS, HULL, LEFT, LEFT_FOOT, RIGHT, RIGHT_FOOT
from procurl.envs.bipedal.track import GOAL, GROUND, START, STEP
from procurl.envs.pictures import GOAL_COLOUR, WALL, Canvas, Frame

SEEN = 3.6  # metres to each side of the hull
ABOVE = 1.9  # metres above the ground that the camera looks at
SKY, EARTH, STUMP = (236, 241, 247), (196, 214, 186), (150, 158, 170)
NEAR, FAR = (228, 118, 40), (126, 62, 12)  # of the near and the far leg
PAINTED = {RIGHT: FAR, RIGHT_FOOT: FAR, HULL: (86, 96, 196), LEFT: NEAR, LEFT_FOOT: NEAR}  # back to front


def picture(pose: Any, terrain: Any) -> Frame:
    """Of one walker: its pose f32[3, 5], and its track, both without an axis of walkers."""
    x, y, angle = np.asarray(pose, np.float64)
    canvas = Canvas(SEEN, SKY)
    camera = np.array([x[HULL] + 0.25 * SEEN, GROUND + ABOVE])  # more of what is ahead

    def rectangle(left: float, right: float, bottom: float, top: float, colour: Any) -> None:
        canvas.box((left, bottom) - camera, (right, top) - camera, colour)

    below = GROUND - 2 * SEEN
    rectangle(0.0, float(terrain.end), below, GROUND, EARTH)
    heights = np.asarray(terrain.heights)
    left = START + float(terrain.pitch) * np.arange(len(heights))
    for k in np.flatnonzero((heights > 0) & (np.abs(left - camera[0]) < SEEN + STEP)):
        rectangle(left[k], left[k] + STEP, GROUND, GROUND + heights[k], STUMP)
    rectangle(GOAL - 0.03, GOAL + 0.03, GROUND, GROUND + 3.0, GOAL_COLOUR)
    rectangle(0.0, float(terrain.end), GROUND - 0.03, GROUND, WALL)

    for body, colour in PAINTED.items():
        cos, sin = np.cos(angle[body]), np.sin(angle[body])
        turned = CORNERS[body] @ np.array([[cos, sin], [-sin, cos]])
        canvas.polygon(turned + np.array([x[body], y[body]]) - camera, colour)
    return canvas.frame()
