"""A trained policy outside training: weights by name, and `predict`."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from procurl.errors import ConfigError
from procurl.students import nets
from procurl.students.nets import Params


def flatten(params: Params) -> dict[str, np.ndarray]:
    """{"policy": [{"w": ...}]} -> {"policy.0.w": ...}, the names used on disk."""
    paths, _ = jax.tree_util.tree_flatten_with_path(params)
    return {".".join(str(getattr(p, "key", getattr(p, "idx", ""))) for p in path): np.asarray(x) for path, x in paths}


def unflatten(flat: dict[str, np.ndarray]) -> Params:
    """The inverse of `flatten`."""
    params: Params = {k: v for k, v in flat.items() if "." not in k}
    for part in ("shared", "policy", "value"):
        depth = len({name.split(".")[1] for name in flat if name.startswith(part + ".")})
        params[part] = [{k: flat[f"{part}.{i}.{k}"] for k in ("w", "b")} for i in range(depth)]
    return params


class Policy:
    """One seed's student."""

    def __init__(self, params: dict[str, np.ndarray], action: dict[str, Any], seed: int = 0) -> None:
        self.params = unflatten(params)
        self.action = action
        self._key = jax.random.key(seed)
        self._best = jax.jit(lambda p, obs: nets.best_action(p, nets.policy(p, obs)))
        self._sample = jax.jit(
            lambda p, obs, key: nets.sample_action(p, nets.policy(p, obs), nets.action_noise(key, obs.shape[:-1], p))
        )

    def predict(self, obs: Any, deterministic: bool = True) -> np.ndarray:
        """The action for one observation f32[o] or a batch f32[n, o], clipped to the action space."""
        obs = np.asarray(obs, np.float32)
        size = (self.params["shared"] or self.params["policy"])[0]["w"].shape[0]
        if obs.ndim == 0 or obs.shape[-1] != size:
            raise ConfigError(f"observation of shape {obs.shape}: expected ({size},) or (n, {size})")
        if not np.isfinite(obs).all():
            raise ConfigError("the observation holds NaN or infinity")
        if deterministic:
            action = self._best(self.params, obs)
        else:
            self._key, k_act = jax.random.split(self._key)
            action = self._sample(self.params, obs, k_act)
        action = np.asarray(action)
        return np.clip(action, self.action["low"], self.action["high"]) if "low" in self.action else action
