"""The settings of this package with Stable-Baselines3's PPO as the student: `procurl train SETTING --engine sb3`.

The same environments, teachers, presets and evaluation as in `loop.py`, another learner: a second opinion on what the
JAX engine learns. Seeds run one after the other. The weights are turned into this package's own layout, so a result
reads, plots and evaluates like any other.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import PPO, __version__
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv

from procurl.check.numbers import iterations, seed_numbers
from procurl.config import PPO as PPOConfig
from procurl.config import Config
from procurl.errors import ConfigError, RunFolderError
from procurl.integrations.sb3 import CurriculumCallback
from procurl.integrations.sb3_values import CriticValue
from procurl.integrations.setting_env import to_jax
from procurl.integrations.setting_vector import SettingVectorEnv, begin_all
from procurl.loop import evaluation_key
from procurl.programs import jit
from procurl.runs import log
from procurl.runs.curriculum import Curriculum
from procurl.runs.evaluation import evaluate
from procurl.runs.store.join import joined
from procurl.runs.store.result import Result, load_result, reserve
from procurl.runs.trace import Played, Trace, traced
from procurl.students.nets import Params
from procurl.students.ppo import Losses
from procurl.types import Env, Task, Teacher

FINISHED = "seeds"  # folder of the seeds that are done, while others still run


def train(
    env: Env,
    teacher: Teacher,
    config: Config | None = None,
    *,
    seeds: Iterable[int] | int = 1,
    steps: int = 1_000_000,
    out: str | Path | None = None,
    callback: Callable[[log.Progress], bool | None] | None = None,
) -> Result:
    """`procurl.train` with Stable-Baselines3; the arguments mean the same.

    With `out`, every finished seed is kept there, and the same call goes on with the seeds that are missing.
    """
    config = config or Config()
    if not teacher.space.name:
        raise ConfigError("only settings of this package have an SB3 engine: for your own, use CurriculumCallback")
    if config.sac is not None:
        raise ConfigError("the SB3 engine has PPO alone: for another algorithm, use CurriculumCallback")
    if config.watch_after_update:
        raise ConfigError("watch_after_update: Stable-Baselines3 calls back before its update only")
    numbers, n_iterations = seed_numbers(seeds), iterations(steps, config.student.n_steps)
    folder = None if out is None else reserve(out, besides=(FINISHED,))
    results = []
    for seed in numbers:
        kept = folder and folder / FINISHED / str(seed)
        done = _earlier(kept, env, teacher, config, seed, n_iterations)
        if done is None:
            done = _Run(env, teacher, config, seed, n_iterations).played(callback)
            if kept:
                done.save(kept)
        results.append(done)
        if done.status != "finished":
            break
    whole = joined(results)
    if folder is not None:
        whole.write_into(folder)
        shutil.rmtree(folder / FINISHED)
    return whole


class _Run:
    """One seed."""

    def __init__(self, env: Env, teacher: Teacher, config: Config, seed: int, n_iterations: int) -> None:
        self.env, self.teacher, self.config, self.seed = env, teacher, config, seed
        ppo = config.ppo
        self.envs = SettingVecEnv(env, teacher.space.name, ppo.n_envs)
        self.model = PPO(
            "MlpPolicy", self.envs, n_steps=ppo.n_steps // ppo.n_envs, batch_size=ppo.batch_size, n_epochs=ppo.epochs,
            learning_rate=ppo.lr, gamma=ppo.gamma, gae_lambda=ppo.gae_lambda, clip_range=ppo.clip, ent_coef=ppo.entropy,
            vf_coef=ppo.value_coef, max_grad_norm=ppo.max_grad_norm, seed=seed, device="cpu",
            policy_kwargs=_network(ppo),
        )  # fmt: skip
        self.log = log.Log(env, teacher, config, (seed,), n_iterations)
        self.total_steps = n_iterations * ppo.n_steps
        space, episodes = teacher.space, config.evaluation_episodes
        self._score = jit(
            lambda params, key: evaluate(env, params, space.held_out, key, episodes, fresh_seeds=space.fresh_seeds)
        )

    def played(self, callback: Callable[[log.Progress], bool | None] | None) -> Result:
        self.callback = callback
        self.evaluate()
        curriculum = Curriculum(self.teacher, self.seed, every=self.config.ppo.n_steps, n_envs=self.config.ppo.n_envs)
        self.model.learn(self.total_steps, callback=_Recorder(curriculum, self), log_interval=None)  # type: ignore[arg-type]
        assert self.log.status != "running", (
            f"{self.log.iterations} of {self.log.n_iterations} iterations were recorded"
        )
        result = self.log.result(jax.tree.map(lambda x: x[None], params_of(self.model)))
        provenance = {**result.provenance, "torch": torch.__version__, "stable-baselines3": __version__}
        return dataclasses.replace(result, config={**result.config, "engine": "sb3"}, provenance=provenance)

    def evaluate(self) -> None:
        scores = self._score(params_of(self.model), evaluation_key(jax.random.key(self.seed), self.log.iterations))
        self.log.evaluated(jax.tree.map(lambda x: np.asarray(x)[None], scores))

    def iterated(self, trace: Trace) -> bool:
        """After an update: remember it, evaluate when it is time; False ends the run."""
        self.log.iterated(jax.tree.map(lambda x: np.asarray(x)[None], trace))
        if self.log.iterations % self.config.evaluate_every and self.log.iterations < self.log.n_iterations:
            return True
        self.log.fetch()
        if self.log.status != "failed":
            self.evaluate()
        if self.log.status == "failed":
            raise self.log.failure()
        if self.callback is not None and self.callback(self.log.progress()) is False:
            self.log.status = "stopped"
        return self.log.status == "running"


class _Recorder(CurriculumCallback):
    """The callback, and the trace of every iteration: its episodes are known before the update, its losses after."""

    def __init__(self, curriculum: Curriculum, run: _Run) -> None:
        super().__init__(curriculum, run.envs, value=_SettingValue(run.model, run.env))
        self.run = run
        self._waiting: Any = None
        self._goes_on = True
        self._trace = jit(traced)

    def _observe(self) -> None:
        buffer = self.model.rollout_buffer  # type: ignore[attr-defined]
        played = Played(
            buffer.observations.copy(), buffer.actions.copy(), buffer.rewards.copy(), buffer.values.copy(),
            slot=np.full(buffer.values.shape, -1, np.int32),
        )  # fmt: skip
        self._waiting = (jax.tree.map(np.copy, self.curriculum.episodes), played)
        super()._observe()

    def _on_rollout_start(self) -> None:
        self._finish_iteration()
        super()._on_rollout_start()

    def _on_step(self) -> bool:
        return self._goes_on and super()._on_step()

    def _on_training_end(self) -> None:
        self._finish_iteration()
        super()._on_training_end()

    def _finish_iteration(self) -> None:
        if self._waiting is None:
            return
        (episodes, played), self._waiting = self._waiting, None
        said = self.logger.name_to_value
        losses = Losses(*(np.float32(said[f"train/{name}"]) for name in LOSSES))  # type: ignore[arg-type]
        losses = losses._replace(entropy=-losses.entropy)
        self._goes_on = self.run.iterated(self._trace(self.curriculum.teacher.space, episodes, played, losses))


LOSSES = ("policy_gradient_loss", "value_loss", "entropy_loss", "approx_kl")


class _SettingValue(CriticValue):
    """The model's critic, with the first observations of all tasks from one compiled call."""

    def __init__(self, model: PPO, env: Env) -> None:
        super().__init__(model, None)
        self.env = env

    def _looked_up(self, tasks: Task) -> Any:
        return np.array(begin_all(self.env, to_jax(*tasks[:3]))[1])


class SettingVecEnv(VecEnv):
    """A setting's environments as Stable-Baselines3 wants them: all members in one compiled step."""

    def __init__(self, env: Env, setting: str, n_envs: int) -> None:
        fields = {f.name: getattr(env, f.name) for f in dataclasses.fields(env) if "help" in f.metadata}  # type: ignore[arg-type]
        self.envs = SettingVectorEnv(n_envs, setting, autoreset_mode="SameStep", **fields)
        super().__init__(n_envs, self.envs.single_observation_space, self.envs.single_action_space)
        self._actions: Any = None

    def reset(self) -> NDArray[np.float32]:
        obs, info = self.envs.reset(seed=self._seeds)  # type: ignore[arg-type]
        self._reset_seeds()
        self._reset_options()
        self.reset_infos = [_member(info, i) for i in range(self.num_envs)]
        return obs

    def step_async(self, actions: Any) -> None:
        self._actions = actions

    def step_wait(self) -> Any:
        obs, rewards, terminated, truncated, info = self.envs.step(self._actions)
        dones = terminated | truncated
        infos = []
        for i in range(self.num_envs):
            now = _member(info, i)
            if not dones[i]:
                infos.append(now)
                continue
            self.reset_infos[i] = now
            infos.append(
                {
                    **_member(info["final_info"], i),
                    "terminal_observation": info["final_obs"][i],
                    "TimeLimit.truncated": bool(truncated[i] and not terminated[i]),
                }
            )
        return obs, rewards.astype(np.float32), dones, infos

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        if method_name != "set_next_task":
            raise AttributeError(f"no method {method_name!r}: only set_next_task")
        members = list(self._get_indices(indices))
        self.envs.set_next_tasks([args if i in members else None for i in range(self.num_envs)])
        return [None] * len(members)

    def has_attr(self, attr_name: str) -> bool:
        return attr_name == "set_next_task"

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self.envs, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise AttributeError(f"cannot set {attr_name!r}")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * len(list(self._get_indices(indices)))

    def close(self) -> None:
        self.envs.close()


def _member(info: dict[str, Any], i: int) -> dict[str, Any]:
    own = {key: info[key][i] for key in ("context", "task_seed", "task_row")}
    return {**own, "is_success": bool(info["is_success"][i])} if "is_success" in info else own


class _Shared(BaseFeaturesExtractor):
    """The layers that policy and value share."""

    def __init__(self, observation_space: Any, widths: tuple[int, ...]) -> None:
        n = observation_space.shape[0]
        super().__init__(observation_space, features_dim=widths[-1] if widths else n)
        layers: list[torch.nn.Module] = []
        for a, b in zip((n, *widths), widths, strict=False):
            layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
        self.layers = torch.nn.Sequential(*layers)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.layers(obs)


def _network(ppo: PPOConfig) -> dict[str, Any]:
    separate = list(ppo.separate)
    return {
        "features_extractor_class": _Shared,
        "features_extractor_kwargs": {"widths": ppo.shared},
        "net_arch": {"pi": separate, "vf": separate},
        "activation_fn": torch.nn.ReLU,
        "ortho_init": False,
    }


def params_of(model: PPO) -> Params:
    """A model's weights in this package's layout."""
    policy: Any = model.policy

    def layers(*modules: Any) -> list[dict[str, NDArray[Any]]]:
        linear = [m for module in modules for m in module.modules() if isinstance(m, torch.nn.Linear)]
        return [{"w": m.weight.detach().numpy().T.copy(), "b": m.bias.detach().numpy().copy()} for m in linear]

    params: Params = {
        "shared": layers(policy.features_extractor),
        "policy": layers(policy.mlp_extractor.policy_net, policy.action_net),
        "value": layers(policy.mlp_extractor.value_net, policy.value_net),
    }
    if hasattr(policy, "log_std"):
        params["log_std"] = policy.log_std.detach().numpy().copy()
    return params


def _earlier(
    kept: Path | None, env: Env, teacher: Teacher, config: Config, seed: int, n_iterations: int
) -> Result | None:
    """The result of a seed that an earlier call has finished."""
    from procurl.runs.provenance import describe
    from procurl.runs.store.descriptions import differing, listed

    if kept is None or not kept.exists():
        return None
    result = load_result(kept)
    expected = describe(env, teacher, config, (seed,), n_iterations * config.ppo.n_steps) | {"engine": "sb3"}
    differences = differing(result.config, expected)
    if differences:
        raise RunFolderError(
            f"{kept.parent.parent} holds seeds of another run; nothing was changed. It differs:\n{listed(differences)}"
        )
    return result
