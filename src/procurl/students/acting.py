"""A student's weights as a policy: how it acts at random and at its best, within the environment's bounds."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax
from jax import Array

from procurl.students import nets, sac
from procurl.students.nets import Params


class Acting(Protocol):
    @property
    def evaluated_at_random(self) -> bool:
        """Whether training evaluates the policy as it plays, or its most likely actions."""
        ...

    @property
    def obs_size(self) -> int: ...

    def noise(self, key: Array, shape: tuple[int, ...]) -> Array:
        """For `sample`."""
        ...

    def sample(self, obs: Any, noise: Array) -> Array:
        """Actions as in training; observations f32[..., o]."""
        ...

    def best(self, obs: Any) -> Array:
        """The most likely actions."""
        ...


def acting(params: Params, low: float = -1.0, high: float = 1.0) -> Acting:
    """The policy whose weights these are. `low`, `high`: the bounds of continuous actions."""
    return SACPolicy(params["actor"], low, high) if "actor" in params else PPOPolicy(params)


class PPOPolicy(NamedTuple):
    """A normal, whose actions the environment clips, or a distribution over discrete actions."""

    params: Params
    evaluated_at_random: bool = True  # as in the paper

    @property
    def obs_size(self) -> int:
        return int((self.params["shared"] or self.params["policy"])[0]["w"].shape[0])

    def noise(self, key: Array, shape: tuple[int, ...]) -> Array:
        return nets.action_noise(key, shape, self.params)

    def sample(self, obs: Any, noise: Array) -> Array:
        return nets.sample_action(self.params, nets.policy(self.params, obs), noise)

    def best(self, obs: Any) -> Array:
        return nets.best_action(self.params, nets.policy(self.params, obs))


class SACPolicy(NamedTuple):
    """A normal squashed into the bounds."""

    actor: sac.Layers
    low: float
    high: float
    evaluated_at_random: bool = False  # as in the benchmark

    @property
    def obs_size(self) -> int:
        return int(self.actor[0]["w"].shape[0])

    def noise(self, key: Array, shape: tuple[int, ...]) -> Array:
        return jax.random.normal(key, (*shape, self.actor[-1]["b"].shape[-1] // 2))

    def sample(self, obs: Any, noise: Array) -> Array:
        return self._scaled(sac.sampled(self.actor, obs, noise))

    def best(self, obs: Any) -> Array:
        return self._scaled(sac.most_likely(self.actor, obs))

    def _scaled(self, action: Array) -> Array:
        return sac.in_bounds(action, self.low, self.high)  # type: ignore[no-any-return]
