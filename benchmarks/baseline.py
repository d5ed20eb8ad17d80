"""What procurl's speed is compared with: Stable-Baselines3's PPO, and the released code's way to teach.

Stable-Baselines3 plays the settings' Gymnasium environments, as its users do; Point Mass also in a form nobody ships,
all environments in one NumPy array without wrappers. Everything runs on one thread.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np

IDS = {
    "point-mass-1t": "procurl/PointMass-v0",
    "point-mass-2g": "procurl/PointMass-v0",
    "maze-plane": "procurl/Maze-v0",
    "minigrid": "procurl/MiniG-v0",
}


def measured(setting: str, n_envs: int, iterations: int, vectorised: bool = False, naive: bool = False) -> dict:
    """Steps per second of training on uniform tasks, and with `naive` also with the released code's ProCuRL-Target."""
    model, env = ppo_model(setting, n_envs, vectorised)
    model.learn(model.n_steps * n_envs)  # warm up
    env.ended = 0
    steps = iterations * model.n_steps * n_envs
    began = time.perf_counter()
    model.learn(steps, reset_num_timesteps=False)
    seconds = time.perf_counter() - began
    row = {"steps_per_second": steps / seconds}
    if naive:
        row |= naive_teacher(model, setting)
        teaching = row["update_s"] / row["update_every"] + row["episode_s"] * env.ended / steps
        row["naive_steps_per_second"] = 1 / (seconds / steps + teaching)
    return row


def ppo_model(setting: str, n_envs: int, vectorised: bool) -> tuple[Any, Any]:
    """The paper's student, and its environments, which count the episodes that end."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

    import procurl

    torch.set_num_threads(1)
    ppo = procurl.preset(setting).ppo

    class SharedLayers(BaseFeaturesExtractor):
        def __init__(self, observation_space: Any) -> None:
            widths = (observation_space.shape[0], *ppo.shared)
            super().__init__(observation_space, features_dim=widths[-1])
            layers = []
            for n_in, n_out in itertools.pairwise(widths):
                layers += [torch.nn.Linear(n_in, n_out), torch.nn.ReLU()]
            self.layers = torch.nn.Sequential(*layers)

        def forward(self, obs: Any) -> Any:
            return self.layers(obs)

    env = numpy_point_mass(n_envs) if vectorised else gymnasium_envs(setting, n_envs)
    model = PPO(
        "MlpPolicy", env, n_steps=5120 // n_envs, batch_size=ppo.batch_size, n_epochs=ppo.epochs, device="cpu", seed=0,
        ent_coef=ppo.entropy, learning_rate=ppo.lr,
        policy_kwargs={
            "features_extractor_class": SharedLayers, "activation_fn": torch.nn.ReLU, "ortho_init": False,
            "net_arch": {"pi": list(ppo.separate), "vf": list(ppo.separate)},
        },
    )  # fmt: skip
    return model, env


def gymnasium_envs(setting: str, n_envs: int) -> Any:
    """Stable-Baselines3's own way to have several, with tasks uniform over the setting's pool."""
    import gymnasium
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv

    import procurl
    import procurl.integrations.gymnasium  # registers the environments

    _, space = procurl.make(setting)
    contexts, seeds = np.asarray(space.pool.context), np.asarray(space.pool.seed)

    class UniformTasks(gymnasium.Wrapper):
        """A task of the pool for every episode."""

        def __init__(self, env: Any, rng: np.random.Generator) -> None:
            super().__init__(env)
            self.rng = rng

        def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
            row = self.rng.integers(len(seeds))
            task = {"context": contexts[row], "task_seed": int(seeds[row])}
            return self.env.reset(seed=seed, options=task)

    class Counted(DummyVecEnv):
        ended = 0

        def step_wait(self) -> Any:
            outcome = super().step_wait()
            self.ended += int(outcome[2].sum())
            return outcome

    def one(i: int) -> Any:
        return lambda: Monitor(UniformTasks(gymnasium.make(IDS[setting]), np.random.default_rng(i)))

    return Counted([one(i) for i in range(n_envs)])


def naive_teacher(model: Any, setting: str) -> dict:
    """ProCuRL-Target as the released code does it: one critic call per task at every update, and at every episode the
    product over all targets and tasks. Seconds of both."""
    import torch

    import procurl

    env, space = procurl.make(setting)
    update_every = procurl.preset(setting).ppo.n_steps
    tasks, targets = np.asarray(space.pool.context), np.asarray(space.targets.context)
    obs = np.zeros(env.obs_size, np.float32)

    def value(context: np.ndarray) -> float:
        obs[-len(context) :] = context
        with torch.no_grad():
            return float(model.policy.predict_values(model.policy.obs_to_tensor(obs)[0]))

    began = time.perf_counter()
    v_tasks = np.clip([value(c) for c in tasks], 0, 1)
    v_targets = np.clip([value(c) for c in targets], 0, 1)
    correlation = np.exp(-np.sqrt(np.square(targets[:, None] - tasks[None]).sum(axis=-1)))
    target_factor = (v_targets * (1 - v_targets))[:, None] * correlation
    update_s = time.perf_counter() - began

    rng = np.random.default_rng(0)
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        scores = 130.0 * np.max((v_tasks * (1 - v_tasks))[None] * target_factor, axis=0)
        weights = np.exp(scores - scores.max())
        rng.choice(len(tasks), p=weights / weights.sum())
        seconds.append(time.perf_counter() - began)
    return {"update_s": update_s, "episode_s": float(np.median(seconds)), "update_every": update_every}


def numpy_point_mass(n: int) -> Any:
    """All environments in one NumPy array; the same rules as procurl's (spec: ten Euler steps per step)."""
    import gymnasium
    from stable_baselines3.common.vec_env import VecEnv

    class NumpyPointMass(VecEnv):
        def __init__(self) -> None:
            box = gymnasium.spaces.Box
            super().__init__(n, box(-np.inf, np.inf, (7,), np.float32), box(-10, 10, (2,), np.float32))
            self.rng = np.random.default_rng(0)
            self.obs = np.zeros((n, 7), np.float32)
            self.t = np.zeros(n, int)
            self.ended = 0

        def reset(self):
            self._begin(np.ones(n, bool))
            return self.obs.copy()

        def _begin(self, rows) -> None:
            self.obs[rows, :4] = (0, 0, 3, 0)
            self.obs[rows, 4:] = self.rng.uniform((-4, 0.5, 0), (4, 8, 4), (int(rows.sum()), 3))
            self.t[rows] = 0

        def step_async(self, actions) -> None:
            self.actions = actions

        def step_wait(self):
            x, vx, y, vy, gate, width, friction = self.obs.T.astype(np.float64)
            force = 1.5 * np.clip(self.actions, -10, 10).T
            noise = self.rng.normal(0, 0.05, (10, 2, n))
            hit = np.zeros(n, bool)
            for i in range(10):
                ax, ay = force[0] - friction * vx + noise[i, 0], force[1] - friction * vy + noise[i, 1]
                nx, ny = np.clip(x + 0.01 * vx, -4, 4), np.clip(y + 0.01 * vy, -4, 4)
                crosses = ((y >= 0) & (ny < 0)) | ((y <= 0) & (ny > 0))
                moving = ~hit
                if crosses.any():
                    cross = x + (nx - x) * (0 - y) / np.where(crosses, ny - y, 1.0)
                    hits = moving & crosses & (np.abs(cross - gate) > width / 2)
                    x, vx = np.where(hits, cross, x), np.where(hits, 0, vx)
                    y, vy = np.where(hits, 0, y), np.where(hits, 0, vy)
                    hit |= hits
                    moving = ~hit
                x, y = np.where(moving, nx, x), np.where(moving, ny, y)
                vx, vy = np.where(moving, vx + 0.01 * ax, vx), np.where(moving, vy + 0.01 * ay, vy)
            self.obs[:, :4] = np.stack([x, vx, y, vy], axis=1)
            self.t += 1
            success = np.hypot(x, y + 3) < 0.3
            done = success | hit | (self.t >= 100)
            infos: list[dict] = [{} for _ in range(n)]
            if done.any():
                for i in np.flatnonzero(done):
                    infos[i] = {"terminal_observation": self.obs[i].copy(), "TimeLimit.truncated": False}
                self._begin(done)
            self.ended += int(done.sum())
            return self.obs.copy(), success.astype(np.float32), done, infos

        def close(self) -> None: ...

        def get_attr(self, attr_name, indices=None):
            return [None] * n

        def set_attr(self, attr_name, value, indices=None) -> None: ...

        def env_method(self, method_name, *args, indices=None, **kwargs): ...

        def env_is_wrapped(self, wrapper_class, indices=None):
            return [False] * n

    return NumpyPointMass()
