"""Pictures of environments: a small rasteriser in NumPy with smooth edges. Each environment draws its own scene.

A shape is a signed distance (negative inside), and a pixel takes as much of its colour as it covers of the pixel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from jax import Array
from numpy.typing import NDArray

Frame = NDArray[np.uint8]
Point = Sequence[float] | NDArray[Any]
Trail = Sequence[Point]  # where the agent has been in this episode

SIZE = 400  # pixels, each way
WALL = (52, 58, 70)
GOAL_COLOUR, AGENT, OUTLINE = (0, 158, 115), (213, 94, 0), (255, 255, 255)  # of Okabe and Ito's palette


class Scene(NamedTuple):
    """What Gymnasium asks of an environment beyond procurl's protocol."""

    reach: tuple[float, ...]  # of the observation's dimensions before the context: each lies in [-reach, reach]
    position: Callable[[Any], Array]  # state -> f32[..., 2]
    draw: Callable[[Trail, NDArray[np.float32]], Frame]  # of (trail, context)
    fps: int


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

    def polygon(self, corners: NDArray[Any], colour: Sequence[float]) -> None:
        """A convex one, f64[n, 2], counter-clockwise."""
        rows, columns = self._near(corners.min(axis=0), corners.max(axis=0), 0.0)
        x, y = self.x[:, columns], self.y[rows]
        distance = np.full(np.broadcast_shapes(x.shape, y.shape), -np.inf)
        for (ax, ay), (bx, by) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
            length = np.hypot(bx - ax, by - ay)
            distance = np.maximum(distance, ((by - ay) * (x - ax) - (bx - ax) * (y - ay)) / length)
        self._blend(rows, columns, distance, colour)

    def trail(self, points: Trail, width: float) -> None:
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
