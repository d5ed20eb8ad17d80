"""What a run can be told, as frozen dataclasses: every field has the paper's default and one line of help.

This module does not import JAX, so that the command line answers at once. The help text of
`procurl train` is made from these very lines.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from procurl.check.fields import check_fields, param
from procurl.errors import ConfigError, unknown_name

LOG_STD = (-20.0, 2.0)  # bounds on the logarithm of the spread of SAC's policy
PRECISIONS = ("float32", "tf32", "bf16")


@dataclass(frozen=True)
class PPO:
    """The student: Proximal Policy Optimisation, Stable-Baselines3's defaults except where the paper says otherwise."""

    n_steps: int = param(5120, "environment steps between two updates, over all environments (N_pos)", at_least=1)
    n_envs: int = param(16, "environments played side by side", at_least=1)
    batch_size: int = param(128, "transitions in a minibatch", at_least=2)
    epochs: int = param(10, "passes over the steps of an update", at_least=1)
    lr: float = param(3e-4, "Adam's step size", at_least=0)
    gamma: float = param(0.99, "discount factor", at_least=0, at_most=1)
    gae_lambda: float = param(0.95, "lambda of generalised advantage estimation", at_least=0, at_most=1)
    clip: float = param(0.2, "clipping range of the probability ratio", at_least=0)
    entropy: float = param(0.01, "weight of the entropy bonus", at_least=0)
    value_coef: float = param(0.5, "weight of the value loss", at_least=0)
    max_grad_norm: float = param(0.5, "gradients are scaled down to this global norm", at_least=0)
    shared: tuple[int, ...] = param((64,), "widths of the layers shared by policy and value")
    separate: tuple[int, ...] = param((64,), "widths of the further layers of policy and value, each its own")

    def __post_init__(self) -> None:
        check_fields("ppo.", self)
        for part in ("n_envs", "batch_size"):
            if self.n_steps % getattr(self, part):
                raise ConfigError(
                    f"ppo.n_steps = {self.n_steps} is not divisible by ppo.{part} = {getattr(self, part)}: "
                    f"choose n_steps as a multiple of both n_envs and batch_size"
                )


@dataclass(frozen=True)
class SAC:
    """A student for continuous actions: Soft Actor-Critic, with the TeachMyAgent benchmark's numbers for the walker.

    The benchmark plays one episode (2000 steps at most) and then makes an update for every ten of its steps. Here
    several environments play `n_steps` in all, and the updates for them follow.
    """

    n_steps: int = param(2000, "environment steps in an iteration, over all environments", at_least=1)
    n_envs: int = param(16, "environments played side by side", at_least=1)
    hidden: tuple[int, ...] = param((400, 300), "widths of the layers of the policy and of each critic")
    lr: float = param(1e-3, "Adam's step size, of the policy, the critics and the entropy coefficient", at_least=0)
    gamma: float = param(0.99, "discount factor", at_least=0, at_most=1)
    tau: float = param(
        0.005, "share of the critics that moves into their targets at every update", at_least=0, at_most=1
    )
    batch_size: int = param(1000, "transitions in an update", at_least=1)
    capacity: int = param(2_000_000, "transitions in the replay buffer; the oldest make room", at_least=1)
    every: int = param(10, "environment steps for one update", at_least=1)
    start_steps: int = param(10_000, "environment steps with uniform random actions in the beginning", at_least=0)
    entropy: float = param(0.005, "entropy coefficient alpha; where it begins, if it is learnt")
    learn_entropy: bool = param(False, "learn the entropy coefficient, so that the policy keeps `target_entropy`")
    target_entropy: float | None = param(None, "entropy per step for `learn_entropy`; none: minus the action's size")
    first_fit: int = param(500_000, "environment steps before values are first fitted to returns", at_least=1)
    fit_every: int = param(1_000_000, "environment steps between two such fits", at_least=1)
    precision: Literal["float32", "tf32", "bf16"] = param(
        "float32", "of the updates' matrix products on a GPU; less than float32 is faster and learns other weights"
    )

    def __post_init__(self) -> None:
        check_fields("sac.", self)
        if not self.entropy > 0:
            raise ConfigError(f"sac.entropy = {self.entropy}: expected a positive number (its logarithm is kept)")
        if self.precision not in PRECISIONS:
            raise unknown_name("sac.precision", str(self.precision), PRECISIONS)
        for part in ("n_envs", "every"):
            if self.n_steps % getattr(self, part):
                raise ConfigError(
                    f"sac.n_steps = {self.n_steps} is not divisible by sac.{part} = {getattr(self, part)}: choose "
                    f"n_steps as a multiple of both n_envs and every"
                )
        if self.capacity < self.n_steps:
            raise ConfigError(f"sac.capacity = {self.capacity}: expected at least n_steps = {self.n_steps}")


@dataclass(frozen=True)
class Config:
    """Everything about a run but its environment and its teacher."""

    ppo: PPO = dataclasses.field(default_factory=PPO)
    sac: SAC | None = None  # the student instead of PPO, where it is given
    evaluate_every: int = param(5, "iterations between two evaluations (5 iterations = 25,600 steps)", at_least=1)
    evaluation_episodes: int = param(1, "episodes on each held-out task at an evaluation", at_least=1, at_most=10_000)
    watch_after_update: bool = param(False, "the teacher watches after the student's update instead of before it")

    def __post_init__(self) -> None:
        check_fields("", self)
        if not isinstance(self.ppo, PPO):
            raise ConfigError(f"ppo = {self.ppo!r}: expected procurl.PPO(...)")
        if self.sac is not None and not isinstance(self.sac, SAC):
            raise ConfigError(f"sac = {self.sac!r}: expected procurl.SAC(...), or None")

    @property
    def student(self) -> PPO | SAC:
        """SAC if it is given, else PPO."""
        return self.sac or self.ppo
