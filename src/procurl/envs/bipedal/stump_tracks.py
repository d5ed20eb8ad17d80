"""Stump Tracks in Box2D: Gymnasium's `BipedalWalker` on another terrain (extra `[box2d]`).

TeachMyAgent's walker has the same body, reward and observation, so this class replaces the terrain and adds tasks.
It imports no JAX: worker processes stay light.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from procurl.envs.bipedal.track import GROUND, HIGH, LOW, MASTERED, MAX_STEPS, NAMES, STEP, make_track
from procurl.envs.host_tasks import KEYS, N_SEEDS, HostTask, TakesTasks, TaskDesk, finite_action, refuse_unknown
from procurl.errors import needs_extra

with needs_extra("box2d", "Stump Tracks needs {}", "Box2D", "gymnasium"):
    import Box2D
    from gymnasium.envs.box2d.bipedal_walker import BipedalWalker
from gymnasium.error import ResetNeeded
from gymnasium.utils import EzPickle, seeding

STUMP, STUMP_EDGE, GRASS, EARTH = (255, 255, 255), (153, 153, 153), (76, 204, 76), (102, 153, 76)


class StumpTracks(TakesTasks, BipedalWalker):
    """The walker on the track of a task; tasks are given and reported as in `procurl.integrations.gymnasium.TaskEnv`.

    The task alone (context and seed) decides the track and the push that the walker gets at the start. If no task
    is given, its context is uniform in the box. `info["is_success"]` says that the return so far is above 230.

    Args:
        render_mode: None, "rgb_array" or "human".
        max_steps: length of the longest episode, which is then truncated.
    """

    def __init__(self, render_mode: str | None = None, *, max_steps: int = MAX_STEPS) -> None:
        super().__init__(render_mode)
        EzPickle.__init__(self, render_mode, max_steps=max_steps)  # replaces the parent's: what a copy is built from
        self.max_steps = max_steps
        self._desk = TaskDesk(LOW, HIGH, NAMES)
        self._unnamed = seeding.np_random()[0]  # draws what a task leaves open
        self._steps, self._return = 0, 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        refuse_unknown(options, KEYS)
        if seed is not None:
            self._unnamed = seeding.np_random(seed)[0]
        task = self._completed(self._desk.pick(options))
        self._desk.playing = task
        obs, _ = super().reset(seed=task.seed)  # builds the track, pushes, and takes a first step with no torque
        self._steps, self._return = 0, 0.0
        return obs, task.info()

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        if self._desk.playing is None:
            raise ResetNeeded("step before the first reset: no task has been given yet")
        obs, reward, terminated, _, _ = super().step(finite_action(action, (4,)))
        self._steps += 1
        self._return += float(reward)
        truncated = self._steps >= self.max_steps and not terminated
        info = self._desk.playing.info() | {"is_success": self._return > MASTERED}
        return obs, float(reward), terminated, truncated, info

    def _completed(self, task: HostTask | None) -> HostTask:
        if task is None:
            task = self._desk.task(self._unnamed.uniform(LOW, HIGH))
        return task if task.seed is not None else task._replace(seed=int(self._unnamed.integers(N_SEEDS)))

    def _destroy(self) -> None:
        """A world of its own for every episode.

        Gymnasium clears the old one, which then numbers new shapes in another order and solves contacts in another
        order: about one episode in 500 would differ from the same task played in a fresh environment.
        """
        self.world.contactListener = None
        self.terrain, self.legs, self.joints, self.hull, self.drawlist = [], [], [], None, []
        self.world = Box2D.b2World()

    def _generate_terrain(self, hardcore: bool) -> None:
        """Bodies in the benchmark's order, stumps before the ground: contacts are solved in the order of creation."""
        assert self._desk.playing is not None
        track = make_track(self._desk.playing.context, self.np_random)
        self.terrain = []
        for left, height in zip(track.stumps.tolist(), track.heights.tolist(), strict=True):
            right, top = left + STEP, GROUND + height
            self.fd_polygon.shape.vertices = [(left, GROUND), (right, GROUND), (right, top), (left, top)]
            self._add(self.fd_polygon, STUMP, STUMP_EDGE)
        points = [(x, GROUND) for x in track.ground.tolist()]
        for i in range(len(points) - 1):
            self.fd_edge.shape.vertices = points[i : i + 2]
            self._add(self.fd_edge, GRASS, GRASS)
        self.terrain.reverse()  # drawn in this order: stumps in front of the ground
        end = points[-1][0]
        self.terrain_poly = [([(0.0, GROUND), (end, GROUND), (end, 0.0), (0.0, 0.0)], EARTH)]

    def _add(self, fixture: Any, fill: tuple[int, int, int], outline: tuple[int, int, int]) -> None:
        body = self.world.CreateStaticBody(fixtures=fixture)
        body.color1, body.color2 = fill, outline
        self.terrain.append(body)

    def _generate_clouds(self) -> None:
        self.cloud_poly: list[Any] = []  # clouds would be drawn from the task's generator
