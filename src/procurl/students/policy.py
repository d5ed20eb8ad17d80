"""A trained policy outside training: weights by name, and `predict`."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from procurl.errors import ConfigError
from procurl.programs import jit
from procurl.students.acting import acting
from procurl.students.nets import Params


def unflatten(flat: dict[str, np.ndarray]) -> Params:
    """{"policy.0.w": ...}, the names used on disk (`state.named`), -> {"policy": [{"w": ...}]}."""
    params: Params = {k: v for k, v in flat.items() if "." not in k}
    for part in ("actor",) if actors(flat) else ("shared", "policy", "value"):
        params[part] = _layers(flat, part)
    return params


def _layers(flat: dict[str, np.ndarray], part: str) -> list[dict[str, np.ndarray]]:
    depth = len({name.split(".")[1] for name in flat if name.startswith(part + ".")})
    return [{k: flat[f"{part}.{i}.{k}"] for k in ("w", "b")} for i in range(depth)]


def actors(flat: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """The layers of a SAC student's policy; an empty list for another kind of student."""
    return _layers(flat, "actor")


class Policy:
    """One seed's student."""

    def __init__(self, params: dict[str, np.ndarray], action: dict[str, Any], seed: int = 0) -> None:
        self.params = params
        self.action = action
        self._key = jax.random.key(seed)
        policy = acting(unflatten(params), *(action[end] for end in ("low", "high") if end in action))
        self._best = jit(policy.best)
        self._sample = jit(lambda obs, key: policy.sample(obs, policy.noise(key, obs.shape[:-1])))
        self._obs_size = policy.obs_size

    def predict(self, obs: Any, deterministic: bool = True) -> np.ndarray:
        """The action for one observation f32[o] or a batch f32[n, o], clipped to the action space."""
        size = self._obs_size
        try:
            obs = np.asarray(obs, np.float32)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"observation {obs!r}: expected numbers, ({size},) or (n, {size})") from error
        if obs.ndim == 0 or obs.shape[-1] != size:
            raise ConfigError(f"observation of shape {obs.shape}: expected ({size},) or (n, {size})")
        if not np.isfinite(obs).all():
            raise ConfigError("the observation holds NaN or infinity")
        if deterministic:
            action = self._best(obs)
        else:
            self._key, k_act = jax.random.split(self._key)
            action = self._sample(obs, k_act)
        action = np.asarray(action)
        return np.clip(action, self.action["low"], self.action["high"]) if "low" in self.action else action
