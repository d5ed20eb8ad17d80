"""The value of a task in the eyes of a Stable-Baselines3 model: its critic at the task's first observation."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import VecNormalize, unwrap_vec_normalize
from stable_baselines3.dqn.policies import DQNPolicy
from stable_baselines3.sac.policies import SACPolicy
from stable_baselines3.td3.policies import TD3Policy

from procurl.errors import ConfigError
from procurl.integrations.gymnasium import first_observations
from procurl.types import Task

BLOCK = 4096  # observations valued at once
BATCHES_KEPT = 4  # of first observations: the pool, the targets, and room for another pair


class CriticValue:
    """V(task) for a model and an environment to look at first observations in.

    PPO and A2C: the critic. SAC, TD3, DDPG: the smaller Q at the policy's own (deterministic) action. DQN: the largest.
    A task's first observation depends on the task alone, so it is looked up once.
    """

    def __init__(self, model: BaseAlgorithm, probe: Any) -> None:
        if not isinstance(model.policy, ActorCriticPolicy | SACPolicy | TD3Policy | DQNPolicy):
            raise ConfigError(
                f"no value is known for the policy {type(model.policy).__name__}: give CurriculumCallback(value=...), "
                f"a function of tasks or a procurl.ReturnRegressor"
            )
        self.model, self.probe = model, probe
        self._kept: dict[bytes, Any] = {}

    def __call__(self, tasks: Task) -> NDArray[np.float32]:
        obs = self._first_observations(tasks)
        n = len(tasks.seed)
        blocks = [self._values(_rows(obs, slice(k, k + BLOCK))) for k in range(0, n, BLOCK)]
        values = np.concatenate(blocks)
        scale = normaliser_of(self.model)
        if scale is not None and scale.norm_reward:  # back to units of return
            values = values * np.sqrt(scale.ret_rms.var + scale.epsilon)
        return values.astype(np.float32)

    def _values(self, obs: Any) -> NDArray[Any]:
        normaliser = normaliser_of(self.model)
        seen = obs if normaliser is None else normaliser.normalize_obs(obs)
        policy: Any = self.model.policy
        was_training = policy.training
        policy.set_training_mode(False)  # batch norm and dropout as in play
        with torch.no_grad():
            tensor, _ = policy.obs_to_tensor(seen)
            if isinstance(policy, ActorCriticPolicy):
                value = policy.predict_values(tensor)
            elif isinstance(policy, DQNPolicy):
                value = policy.q_net(tensor).max(dim=1, keepdim=True).values
            else:
                action = policy.actor(tensor, True) if isinstance(policy, SACPolicy) else policy.actor(tensor)
                value = torch.cat(policy.critic(tensor, action), dim=1).min(dim=1, keepdim=True).values
        policy.set_training_mode(was_training)
        return value[:, 0].cpu().numpy()

    def _first_observations(self, tasks: Task) -> Any:
        which = np.asarray(tasks.context).tobytes() + np.asarray(tasks.seed).tobytes()
        if which not in self._kept:
            self._kept = dict(list(self._kept.items())[-BATCHES_KEPT + 1 :])
            self._kept[which] = self._looked_up(tasks)
        return self._kept[which]

    def _looked_up(self, tasks: Task) -> Any:
        space, there = self.probe.observation_space, (self.model.env or self.model).observation_space
        if not isinstance(space, gymnasium.spaces.Dict) and np.prod(space.shape or ()) != np.prod(there.shape or ()):
            raise ConfigError(
                f"probe observes {space}, the model {there}: the probe needs the wrappers of the training environments"
            )
        return first_observations(self.probe, tasks)


def normaliser_of(model: BaseAlgorithm) -> VecNormalize | None:
    return None if model.env is None else unwrap_vec_normalize(model.env)


def _rows(obs: Any, rows: slice) -> Any:
    return {key: value[rows] for key, value in obs.items()} if isinstance(obs, dict) else obs[rows]
