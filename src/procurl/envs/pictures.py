"""Pictures of procurl's environments: a small rasteriser in NumPy with smooth edges, and one function per environment.

A shape is a signed distance (negative inside), and a pixel takes as much of a colour as the shape covers of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from procurl.envs.maze import BLOCK, BORDER
from procurl.envs.point_mass import GOAL
from procurl.envs.point_mass import HIGH as POINT_MASS_HIGH

Frame = NDArray[np.uint8]
Point = Sequence[float] | NDArray[Any]

SIZE = 400  # pixels, each way
FLOOR, ICE, SAND = (250, 249, 246), (238, 246, 252), (240, 226, 200)
WALL = (52, 58, 70)
GOAL_COLOUR, AGENT, OUTLINE = (0, 158, 115), (213, 94, 0), (255, 255, 255)  # of Okabe and Ito's palette


def point_mass(trail: Sequence[Point], context: NDArray[np.float32]) -> Frame:
    """The wall with its gate, the goal below, the mass and its path; the floor goes from ice to sand with friction."""
    gate, width, friction = (float(c) for c in context)
    canvas = Canvas(extent=4.3, colour=WALL)
    share = friction / POINT_MASS_HIGH[2]
    canvas.box((-4.0, -4.0), (4.0, 4.0), tuple(a + share * (b - a) for a, b in zip(ICE, SAND, strict=True)))
    canvas.disc(GOAL, 0.30, GOAL_COLOUR, alpha=0.35)
    canvas.ring(GOAL, 0.30, 0.07, GOAL_COLOUR)
    left, right = max(gate - width / 2, -4.0), min(gate + width / 2, 4.0)
    canvas.box((-4.0, -0.08), (left, 0.08), WALL)
    canvas.box((right, -0.08), (4.0, 0.08), WALL)
    canvas.trail(trail, 0.06)
    canvas.agent(trail[-1], 0.17)
    return canvas.frame()


def maze(trail: Sequence[Point], context: NDArray[np.float32]) -> Frame:
    """The ring, the goal with its tolerance (also where it lies in a wall), the walker and its path."""
    goal, tolerance = (float(context[0]), float(context[1])), float(context[2])
    canvas = Canvas(extent=9.6, colour=WALL)
    canvas.box((-BORDER, -BORDER), (BORDER, BORDER), FLOOR)
    canvas.box((-BLOCK, -BLOCK), (BLOCK, BLOCK), WALL)
    canvas.disc(goal, tolerance, GOAL_COLOUR, alpha=0.30)
    canvas.ring(goal, tolerance, 0.10, GOAL_COLOUR)
    canvas.disc(goal, 0.28, OUTLINE)
    canvas.disc(goal, 0.20, GOAL_COLOUR)  # so that one sees a tolerance of 0.05
    canvas.trail(trail, 0.12)
    canvas.agent(trail[-1], 0.34)
    return canvas.frame()


class Canvas:
    """A square of the plane, [-extent, extent] each way, with y upwards."""

    def __init__(self, extent: float, colour: Sequence[float]) -> None:
        self.scale = SIZE / (2 * extent)  # pixels per unit
        middle = (np.arange(SIZE) + 0.5) / self.scale - extent
        self.x, self.y = middle[None, :], -middle[:, None]
        self.extent = extent
        self.pixels = np.full((SIZE, SIZE, 3), colour, np.float32)

    def disc(self, centre: Point, radius: float, colour: Sequence[float], alpha: float = 1.0) -> None:
        rows, columns = self._near(centre, centre, radius)
        distance = np.hypot(self.x[:, columns] - centre[0], self.y[rows] - centre[1]) - radius
        self._blend(rows, columns, distance, colour, alpha)

    def ring(self, centre: Point, radius: float, width: float, colour: Sequence[float]) -> None:
        rows, columns = self._near(centre, centre, radius + width)
        distance = np.hypot(self.x[:, columns] - centre[0], self.y[rows] - centre[1]) - radius
        self._blend(rows, columns, np.abs(distance) - width / 2, colour)

    def box(self, low: Point, high: Point, colour: Sequence[float]) -> None:
        rows, columns = self._near(low, high, 0.0)
        x, y = self.x[:, columns], self.y[rows]
        distance = np.maximum(np.maximum(low[0] - x, x - high[0]), np.maximum(low[1] - y, y - high[1]))
        self._blend(rows, columns, distance, colour)

    def trail(self, points: Sequence[Point], width: float) -> None:
        """A path that fades into the past."""
        paint = np.zeros((SIZE, SIZE), np.float32)
        for i, (a, b) in enumerate(pairwise(points), start=1):
            rows, columns = self._near(np.minimum(a, b), np.maximum(a, b), width)
            x, y = self.x[:, columns] - a[0], self.y[rows] - a[1]
            dx, dy = float(b[0] - a[0]), float(b[1] - a[1])
            along = np.clip((x * dx + y * dy) / max(dx * dx + dy * dy, 1e-12), 0.0, 1.0)
            cover = self._cover(np.hypot(x - along * dx, y - along * dy) - width / 2)
            # the larger of the two, not one over the other: joints would show as beads
            paint[rows, columns] = np.maximum(paint[rows, columns], (0.15 + 0.6 * i / len(points)) * cover)
        self.pixels += paint[..., None] * (np.asarray(AGENT, np.float32) - self.pixels)

    def agent(self, at: Point, radius: float) -> None:
        self.disc(at, 1.25 * radius, OUTLINE)
        self.disc(at, radius, AGENT)

    def frame(self) -> Frame:
        return np.round(self.pixels).astype(np.uint8)

    def _near(self, low: Point, high: Point, margin: float) -> tuple[slice, slice]:
        """Rows and columns of a shape's surroundings: most shapes are small, and a path has many."""

        def span(a: float, b: float) -> slice:
            first = int(np.floor((a - margin + self.extent) * self.scale)) - 1
            last = int(np.ceil((b + margin + self.extent) * self.scale)) + 1
            return slice(max(first, 0), max(min(last, SIZE), 0))

        return span(-float(high[1]), -float(low[1])), span(float(low[0]), float(high[0]))

    def _cover(self, distance: Any) -> Any:
        return np.clip(0.5 - distance * self.scale, 0.0, 1.0)

    def _blend(self, rows: slice, columns: slice, distance: Any, colour: Sequence[float], alpha: float = 1.0) -> None:
        pixels = self.pixels[rows, columns]
        pixels += alpha * self._cover(distance)[..., None] * (np.asarray(colour, np.float32) - pixels)
