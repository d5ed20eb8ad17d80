"""Stable-Baselines3: a callback that brings a curriculum to any of its algorithms.

    env = make_vec_env(make_env, n_envs=4)                 # of TaskEnv, Dummy or Subproc
    curriculum = procurl.Curriculum(procurl.make_teacher("procurl-target", space), every=8192, n_envs=4)
    model = PPO("MlpPolicy", env)
    model.learn(200_000, callback=CurriculumCallback(curriculum, env, probe=make_env()))

Stable-Baselines3 resets environments by itself, inside a step. So every environment knows its next task before its
episode ends, the first ones before `learn` resets for the first time, and an episode is recorded under the task that
its own `info` names.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from numpy.typing import NDArray

from procurl.check.numbers import whole
from procurl.envs.host_tasks import HostTask
from procurl.errors import CheckpointError, ConfigError, cannot_withhold, needs_extra, unknown_name
from procurl.integrations.dealer import Dealer, reported_task
from procurl.runs.curriculum import Curriculum, Value
from procurl.students.regressor import ReturnRegressor
from procurl.students.trusted import REGRESSION, TrustedValue
from procurl.teachers import make_teacher
from procurl.teachers.base import says
from procurl.types import TaskSpace

with needs_extra("sb3", "procurl.integrations.sb3 needs {}", "stable_baselines3"):
    import stable_baselines3  # noqa: F401  # asked for first, so that its absence is named
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, unwrap_vec_normalize

from procurl.integrations.sb3_evaluation import Evaluation
from procurl.integrations.sb3_state import load_model, model_state
from procurl.integrations.sb3_values import CriticValue

Floats = NDArray[np.float64]
EVALUATED_EVERY = 10_000  # environment steps, for a run folder
EVERY = 2000  # environment steps between two updates of a curriculum of which only the tasks are given


class CurriculumCallback(BaseCallback):
    """Hands a curriculum's tasks to environments, and their episodes to the curriculum.

    On-policy algorithms let the teacher watch at the end of a rollout, before the update, as in the paper; others, and
    curricula with a period shorter than a rollout, as soon as the curriculum is due.

    Args:
        curriculum: with as many `n_envs` as `env` has; or a task space, for one that is updated every 2000 steps.
        env: the vector environment that the model trains in; its members are `TaskEnv`s, or take tasks as those do.
        teacher: with a task space, the strategy's name (`procurl.make_teacher`).
        seed: with a task space, the curriculum's.
        probe: one more environment of the same kind, for the first observations of tasks: at those, the model's critic
            (PPO, A2C) or its Q-function at the policy's action (SAC, TD3, DDPG, DQN) is the value of a task.
        value: where values come from, for teachers that ask for them. By default from the critic or from a regression
            on returns, whichever predicts returns better (`procurl.TrustedValue`); without a probe, from the returns.
            "critic" or "returns" asks for one of them; or a function of a `Task`, or a `procurl.ReturnRegressor`.
        evaluate_every: environment steps between two evaluations: the model plays held-out target tasks in `probe`,
            with its deterministic policy. Their mean return and success are logged as `target/return` and
            `target/success`. By default every 10,000 steps where there are a probe and a folder, and at the end.
        n_evaluated: how many of the tasks of `space.held_out` it plays.
        out: a run folder for the curriculum, see `procurl.Curriculum`; its result is written whenever `learn` ends.
        save_path: file to save the run to, see `save`.
        save_every: environment steps between two saves.
    """

    def __init__(
        self,
        curriculum: Curriculum | TaskSpace,
        env: VecEnv,
        *,
        teacher: str = "auto",
        seed: int = 0,
        probe: Any = None,
        value: Value | Literal["critic", "returns"] | None = None,
        evaluate_every: int | None = None,
        n_evaluated: int = 20,
        out: str | os.PathLike[str] | None = None,
        save_path: str | os.PathLike[str] | None = None,
        save_every: int = 100_000,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        if not isinstance(env, VecEnv):
            raise ConfigError(f"env = {env}: expected the model's vector environment, model.get_env()")
        if not env.has_attr("set_next_task"):
            raise ConfigError(
                "these environments take no tasks: wrap each in procurl.integrations.gymnasium.TaskEnv (below Monitor)"
            )
        if isinstance(curriculum, TaskSpace):
            curriculum = Curriculum(make_teacher(teacher, curriculum), seed, every=EVERY, n_envs=env.num_envs)
        elif (teacher, seed) != ("auto", 0):
            raise ConfigError("teacher and seed are for a task space: this curriculum has its own")
        if says(curriculum.teacher, "withholds"):
            raise cannot_withhold("Stable-Baselines3")
        self.curriculum, self.env, self.probe = curriculum, env, probe
        self.value: Any = self._source(value) if curriculum.asks_for_values else None
        self.save_path, self.save_every = save_path, save_every
        self._evaluation = None
        if evaluate_every is None and probe is not None and out is not None:
            evaluate_every = EVALUATED_EVERY
        if evaluate_every is not None:
            self._evaluation = Evaluation(curriculum, probe, whole("evaluate_every", evaluate_every, 1), n_evaluated)
        if out is not None:
            curriculum.write_to(out)
        self._steps_done = 0  # the model's, when this callback last saw it
        self._saved_at = 0
        self._segments: list[tuple[int, HostTask, float, int, bool, int, int]] = []  # ended, advantages not known yet
        self._dealer = Dealer(curriculum, env.num_envs, self._tell)

    # --- Stable-Baselines3's hooks ---

    def _on_training_start(self) -> None:
        self._check_model()
        never_played = all(task is None for task in self._dealer.playing)
        if never_played or self.locals.get("reset_num_timesteps", True):  # then `learn` has just reset all environments
            for i, info in enumerate(_innermost(self.env).reset_infos):
                self._dealer.began(i, reported_task(info))
            self._ret: Floats = np.zeros(self.env.num_envs)
            self._length = np.zeros(self.env.num_envs, np.int64)
            self._forget_advantages()
        if isinstance(self.value, TrustedValue) and getattr(self.value.critic, "model", None) is not self.model:
            self.value.critic = CriticValue(self.model, self.probe)
        elif isinstance(self.value, CriticValue | str) and getattr(self.value, "model", None) is not self.model:
            self.value = CriticValue(self.model, self.probe)
        self._normaliser = unwrap_vec_normalize(self.training_env)
        self._at_rollout_end = self.curriculum.unit == "steps" and self.curriculum.every >= self._rollout > 0
        self._check_period()
        self.curriculum.trained_by(f"Stable-Baselines3's {type(self.model).__name__}")

    def _on_rollout_start(self) -> None:
        self._t = 0
        self._began = np.zeros(self.env.num_envs, np.int64)  # where in this rollout the running episodes begin
        if self.save_path is not None and self.num_timesteps >= self._saved_at + self.save_every:
            self.save(self.save_path, self.model)

    def _on_step(self) -> bool:
        rewards, dones, infos = (self.locals[k] for k in ("rewards", "dones", "infos"))
        self._ret += rewards if self._normaliser is None else self._normaliser.get_original_reward()
        self._length += 1
        self._t += 1
        self._steps_done = self.num_timesteps
        for i in map(int, np.flatnonzero(dones)):
            self._ended(i, infos[i])
        if not self._at_rollout_end and self.curriculum.due:
            self._observe()
        if self._evaluation is not None and self._evaluation.is_due(self.num_timesteps):
            self._evaluate()
        return True

    def _on_rollout_end(self) -> None:
        if not self._at_rollout_end:
            return
        advantages = self.model.rollout_buffer.advantages  # type: ignore[attr-defined]  # f32[T, N]
        for i, task, ret, length, success, begin, end in self._segments:
            self._add_advantages(i, advantages[begin:end, i])
            self._record(i, task, ret, length, success, True)
            self._forget_advantages(i)
        for i, running in enumerate(self._dealer.playing):
            if self._length[i] and running is not None:
                self._add_advantages(i, advantages[self._began[i] :, i])
                self._record(i, running, self._ret[i], int(self._length[i]), False, False)
        self._segments = []
        if self.curriculum.due:
            self._observe()

    def _on_training_end(self) -> None:
        for _, task, *_ in self._segments:  # another callback stopped the rollout: no advantages will come
            self.curriculum.withdraw(task)
        self._segments = []
        if self._evaluation is not None and self._evaluation.last != self.num_timesteps:
            self._evaluate()
        self.curriculum.write()

    def _evaluate(self) -> None:
        assert self._evaluation is not None
        for name, number in self._evaluation.play(self.model, self.num_timesteps).items():
            self.logger.record(f"target/{name}", number)

    # --- episodes ---

    def _ended(self, i: int, info: dict[str, Any]) -> None:
        task, ret, length = self._dealer.ended(i, reported_task(info)), float(self._ret[i]), int(self._length[i])
        success = bool(info.get("is_success", False))
        if isinstance(self.value, TrustedValue):
            self.value.record(task, ret)
        elif callable(getattr(self.value, "record", None)):
            self.value.record(task.context, ret)
        if self._at_rollout_end:  # its advantages are known at the end of the rollout
            self._segments.append((i, task, ret, length, success, int(self._began[i]), self._t))
        else:
            self.curriculum.record(task, ret=ret, length=length, success=success)
        self._dealer.began(i, reported_task(_innermost(self.env).reset_infos[i]))
        self._ret[i] = self._length[i] = 0
        self._began[i] = self._t

    def _record(self, i: int, task: HostTask, ret: float, length: int, success: bool, finished: bool) -> None:
        n = max(self._n[i], 1)
        self.curriculum.record(
            task, ret=ret, length=length, success=success, finished=finished,
            advantage=float(self._sum[i] / n), abs_advantage=float(self._abs_sum[i] / n),
        )  # fmt: skip

    def _add_advantages(self, i: int, advantages: NDArray[np.float32]) -> None:
        self._sum[i] += advantages.sum()
        self._abs_sum[i] += np.abs(advantages).sum()
        self._n[i] += len(advantages)

    def _forget_advantages(self, i: int | None = None) -> None:
        """Of one running episode, or of all: they are averaged over an episode's steps since the last update."""
        n = self.env.num_envs
        if i is None:
            self._sum, self._abs_sum, self._n = np.zeros(n), np.zeros(n), np.zeros(n, np.int64)
        else:
            self._sum[i] = self._abs_sum[i] = self._n[i] = 0

    def _observe(self) -> None:
        self._dealer.observe(self.value)
        self._forget_advantages()
        for name, number in self.curriculum.summary.items():
            self.logger.record(f"curriculum/{name}", number)

    def _tell(self, i: int, task: HostTask) -> None:
        self.env.env_method("set_next_task", *task, indices=[i])

    # --- checks ---

    def _source(self, value: Any) -> Any:
        """Where the values come from; "critic" until there is a model."""
        space = self.curriculum.teacher.space
        if value == "returns" or (value is None and self.probe is None):
            return ReturnRegressor(space, **REGRESSION)
        if value is None:
            return TrustedValue(space, None)
        if isinstance(value, str) and value != "critic":
            raise unknown_name("source of values", value, ("critic", "returns"))
        if value == "critic" and self.probe is None:
            raise ConfigError(
                'value="critic": the critic looks at first observations of tasks: give probe=ENV, one more environment '
                "like those in `env`"
            )
        return value

    def _check_model(self) -> None:
        if _innermost(self.training_env) is not _innermost(self.env):
            raise ConfigError(
                "the model trains in another environment than the one that CurriculumCallback got: give it "
                "model.get_env()"
            )
        if self.curriculum.is_resumed and not self._steps_done:
            raise CheckpointError(
                f"the folder holds a curriculum of {self.curriculum.updates} updates, and this model is new: load what "
                f"was saved with it, callback.load(path, model) (CurriculumCallback(..., save_path=...) saves), or "
                f"choose another folder"
            )
        if 0 != self.num_timesteps != self._steps_done:
            raise CheckpointError(
                f"the model has played {self.num_timesteps} steps, its curriculum {self._steps_done}: a model goes on "
                f"with the curriculum that was saved with it, callback.load(path, model). To give it a new one, use "
                f"learn(..., reset_num_timesteps=True)"
            )

    @property
    def _rollout(self) -> int:
        """Environment steps of a rollout; 0 where the algorithm has none."""
        return self.model.n_steps * self.env.num_envs if isinstance(self.model, OnPolicyAlgorithm) else 0

    def _check_period(self) -> None:
        if self._at_rollout_end or not getattr(self.curriculum.teacher, "reads_advantages", False):
            return
        advice = f"Curriculum(..., every={self._rollout}, unit='steps')" if self._rollout else "PPO or A2C"
        raise ConfigError(
            f"{type(self.curriculum.teacher).__name__} scores tasks by advantages, which are known at the end of a "
            f"rollout: with {type(self.model).__name__}, every={self.curriculum.every} and "
            f"unit={self.curriculum.unit!r} it gets none. Use {advice}"
        )

    # --- saving ---

    def save(self, path: str | os.PathLike[str], model: BaseAlgorithm) -> Path:
        """The model, its curriculum and what the callback knows, in one file, as a whole or not at all.

        Weights, optimisers, counters, running averages (VecNormalize) and the replay buffer; no pickle. Episodes that
        are being played begin anew when the file is loaded.
        """
        from procurl.runs.store.state import save_state

        if self._segments:
            raise ConfigError("a rollout is being played: save between two rollouts, or with save_path=...")
        self._saved_at = self._steps_done
        self.curriculum.checkpoint()
        notes = {"run": json.dumps(self._description(model)), "steps": str(model.num_timesteps)}
        return save_state(path, {**self._own_state(), "model": model_state(model)}, **notes)

    def load(self, path: str | os.PathLike[str], model: BaseAlgorithm) -> None:
        """Go on with a saved run: a model and a callback that were made in the same way become what they were.

        Then `model.learn(more, callback=callback, reset_num_timesteps=False)`.
        """
        from procurl.runs.store.descriptions import differing, listed
        from procurl.runs.store.state import arranged, note, read_state

        tensors, notes = read_state(path)
        if "run" not in notes:
            what = "a curriculum without a model" if "curriculum" in notes else "no run of CurriculumCallback"
            raise CheckpointError(f"{path} holds {what}; nothing was loaded")
        differences = differing(note(path, notes, "run"), self._description(model))
        if differences:
            raise CheckpointError(f"{path} is of another run; nothing was loaded. It differs:\n{listed(differences)}")
        own = {k: v for k, v in tensors.items() if not k.startswith("model.")}
        if isinstance(self.value, TrustedValue) and not any(k.startswith("regressor.") for k in own):
            self.value = "critic"  # an earlier version took the critic's word for everything
        like = self._own_state()
        if "regressor" in like:  # its list of episodes is as long as it was
            like["regressor"] = _sized(like["regressor"], own, "regressor")
        state = arranged(own, like, str(path))
        load_model(
            model, {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}, str(path)
        )
        self.curriculum.load_state_dict(state["curriculum"])
        if "regressor" in state:
            self.value.load_state_dict(state["regressor"])
        self._dealer.load_state_dict(state["tasks"])
        self._steps_done = self._saved_at = model.num_timesteps
        if self._evaluation is not None:
            self._evaluation.last = model.num_timesteps

    def _own_state(self) -> dict[str, Any]:
        state = {"curriculum": self.curriculum.state_dict(), "tasks": self._dealer.state_dict()}
        if hasattr(self.value, "state_dict"):
            state["regressor"] = self.value.state_dict()
        return state

    def _description(self, model: BaseAlgorithm) -> dict[str, Any]:
        return {**self.curriculum.description(), "algorithm": type(model).__name__}


def _sized(like: Any, tensors: dict[str, NDArray[Any]], prefix: str) -> Any:
    """A tree whose arrays are as long as those of a file: episodes are kept in lists that grow."""
    from procurl.runs.store.state import named

    def sized(name: str, leaf: NDArray[Any]) -> NDArray[Any]:
        there = tensors.get(f"{prefix}.{name}")
        same_kind = there is not None and there.ndim == leaf.ndim > 0 and there.shape[1:] == leaf.shape[1:]
        return np.empty(there.shape, leaf.dtype) if there is not None and same_kind else leaf

    names, structure = list(named(like)), jax.tree.structure(like)
    return jax.tree.unflatten(structure, [sized(n, x) for n, x in zip(names, jax.tree.leaves(like), strict=True)])


def _innermost(env: VecEnv) -> VecEnv:
    while isinstance(env, VecEnvWrapper):
        env = env.venv
    return env
