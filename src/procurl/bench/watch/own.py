"""An environment of a user's own as Gymnasium plays it, with pictures.

One in JAX is drawn by its method `render(state)`, which returns uint8[height, width, 3]; an attribute `render_fps` says
how fast it is meant to be seen. One for worker processes is drawn by the Gymnasium environment that `maker()` makes.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from procurl.errors import ConfigError
from procurl.programs import jit
from procurl.types import HostEnv, Task

FPS = 10


def own_view(env: Any) -> Any:
    """A new one, not yet reset."""
    if isinstance(env, HostEnv):
        made = env.maker()()
        if made.render_mode != "rgb_array":
            raise ConfigError(
                f"{type(env).__name__} cannot be drawn: what its maker() makes has render_mode {made.render_mode!r}, "
                f"expected 'rgb_array'"
            )
        return made
    if not hasattr(env, "render"):
        raise ConfigError(
            f"{type(env).__name__} cannot be drawn: give it a method render(state) that returns a picture, "
            f"uint8[height, width, 3]"
        )
    return OwnView(env)


class OwnView:
    """What `watch` asks of a Gymnasium environment, around one in JAX."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.metadata = {"render_fps": getattr(env, "render_fps", FPS)}
        self.state: Any = None
        self._seed, self._t = 0, 0

    def reset(self, *, seed: int, options: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
        """`seed`: of the noise of its steps."""
        given = (options["context"], options["task_seed"], options["task_row"])
        task = Task(*(np.asarray(x, kind) for x, kind in zip(given, ("f4", "i4", "i4"), strict=True)))  # type: ignore[arg-type]
        self.state, obs = _begin(self.env, task)
        self._seed, self._t = seed, 0
        return np.array(obs), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.state, outcome = _advance(self.env, self._seed, self._t, self.state, np.asarray(action))
        self._t += 1
        flags = bool(outcome.terminated), bool(outcome.truncated)
        return np.array(outcome.obs), float(outcome.reward), *flags, {"is_success": bool(outcome.success)}

    def render(self) -> np.ndarray:
        picture = np.asarray(self.env.render(self.state))
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
            raise ConfigError(
                f"{type(self.env).__name__}.render gives {picture.dtype}{list(picture.shape)}: expected a picture, "
                f"uint8[height, width, 3]"
            )
        return picture

    def close(self) -> None:
        pass


# The environment is an argument: all tasks share one compiled program.
@jit
def _begin(env: Any, task: Task) -> Any:
    return env.reset(task)


@jit
def _advance(env: Any, seed: Any, t: Any, state: Any, action: Any) -> Any:
    return env.step(jax.random.fold_in(jax.random.key(seed), t), state, action)
