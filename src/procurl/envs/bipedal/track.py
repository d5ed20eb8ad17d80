"""A Stump Track as plain numbers: what a task (context, seed) looks like, in any simulator.

Flat ground, a start pad, then stumps of one terrain step's width at equal distances until the end of the track. The
context is (mean height, spacing): the spacing says where the stumps stand, and each has a height of its own around the
mean. Lengths are in metres, except the mean height, which counts terrain steps. Paper: Section 4 and Appendix C.1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

NAMES = ("stump_height", "stump_spacing")
LOW, HIGH = (-3.0, 0.0), (3.0, 6.0)  # TeachMyAgent's "mostly trivial" task space
MAX_STEPS = 2000  # of an episode
MASTERED = 230.0  # TeachMyAgent counts a task as mastered with a return above this

STEP = 14 / 30  # the terrain's unit of length, in metres
GROUND = 400 / 30 / 4  # height of the ground
START, GOAL, END = 20 * STEP, 190 * STEP, 200 * STEP  # first stump, finishing line, end of the track
HEIGHT_STD = 0.1  # of a stump around the mean, in steps
LEAST_HEIGHT, LEAST_SPACING = 0.05, 0.01  # in steps, in metres

Floats = NDArray[np.float64]


class Track(NamedTuple):
    stumps: Floats  # f64[n]  left edges; each stump is one STEP wide
    heights: Floats  # f64[n]  above the ground
    ground: Floats  # f64[m]  edges join these points, from 0 on


def make_track(context: ArrayLike, rng: np.random.Generator) -> Track:
    """The track of one context; `rng` draws one number per stump.

    A negative mean is not flat ground: no stump is lower than 0.05 steps. And the ground ends where the last stump or
    the last gap begins, as in the benchmark: for some spacings before the finishing line, which a walker that falls off
    the end still crosses.
    """
    mean, spacing = (float(c) for c in np.asarray(context, np.float32))
    starts = _starts(max(LEAST_SPACING, spacing))  # of stump, gap, stump, gap, ...
    stumps = starts[::2]
    heights = STEP * np.maximum(LEAST_HEIGHT, rng.normal(mean, HEIGHT_STD, len(stumps)))
    return Track(stumps, heights, ground=np.concatenate([[0.0], starts]))


def _starts(spacing: float) -> Floats:
    """Where each stump and each gap begins: running sums, since a product would differ in the last digit."""
    periods = int((END - START) / (STEP + spacing)) + 2
    starts: NDArray[Any] = np.cumsum([START, *[STEP, spacing] * periods])
    return starts[starts < END]
