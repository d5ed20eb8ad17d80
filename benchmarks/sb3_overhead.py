"""What a curriculum costs in Stable-Baselines3: the callback's time as a share of everything else, in the same run.

    python benchmarks/sb3_overhead.py --tasks 20000 --targets 400

PPO with rollouts of 5120 steps. `cartpole` is Gymnasium's CartPole in a `DummyVecEnv` of `TaskEnv`s, `point_mass` the
engine behind `procurl train --engine sb3`, whose environments are so fast that the share is at its largest. The first
two rollouts, which compile and look up first observations, are counted apart.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from measure import machine_line

import procurl

PARTS = ("step", "rollout_start", "rollout_end")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--targets", type=int, default=400)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--teachers", nargs="+", default=["procurl-target", "iid"])
    args = parser.parse_args()
    procurl.use_cores(1, device="cpu")
    import torch

    from procurl.bench.report.tables import text_table

    torch.set_num_threads(1)
    rows = []
    for case in (cartpole, point_mass):
        for name in args.teachers:
            first, share, parts, rate = measure(*case(args, name), args.rollouts)
            detail = ", ".join(f"{k} {100 * v:.2f} %" for k, v in parts.items())
            rows.append([case.__name__, name, f"{rate:,.0f}", f"{100 * share:.2f} %", detail, f"{first:.1f} s"])
            print(rows[-1], flush=True)
    head = ["environment", "teacher", "steps/s", "callback / rest", "of which", "first two rollouts"]
    print(f"\n{args.tasks:,} tasks, {args.targets} targets\n\n{text_table(head, rows)}")
    print(f"\none thread; {machine_line('torch', 'stable-baselines3')}")


def measure(model: Any, callback: Any, rollouts: int) -> tuple[float, float, dict[str, float], float]:
    spent = dict.fromkeys(PARTS, 0.0)

    def timed(part: str) -> Any:
        hook = getattr(callback, f"_on_{part}")

        def call() -> Any:
            began = time.perf_counter()
            outcome = hook()
            spent[part] += time.perf_counter() - began
            return outcome

        return call

    for part in PARTS:
        setattr(callback, f"_on_{part}", timed(part))
    began = time.perf_counter()
    model.learn(2 * 5120, callback=callback)
    first = time.perf_counter() - began
    spent.update(dict.fromkeys(PARTS, 0.0))
    began = time.perf_counter()
    model.learn(rollouts * 5120, callback=callback, reset_num_timesteps=False)
    total = time.perf_counter() - began
    rest = total - sum(spent.values())
    return first, sum(spent.values()) / rest, {k: v / rest for k, v in spent.items()}, rollouts * 5120 / total


def cartpole(args: argparse.Namespace, name: str) -> Any:
    import gymnasium
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    from procurl.integrations.gymnasium import TaskEnv
    from procurl.integrations.sb3 import CurriculumCallback

    space = procurl.task_space(
        [0.1], [6.0], ["pole length"], target=lambda rng, n: rng.uniform(5.0, 6.0, (n, 1)), value_range=(0, 100),
        pool_size=args.tasks, n_targets=args.targets,
    )  # fmt: skip

    def set_pole(env: Any, context: np.ndarray) -> None:
        env.unwrapped.length, env.unwrapped.polemass_length = context[0], 0.1 * context[0]

    def make_env() -> Any:
        return TaskEnv(gymnasium.make("CartPole-v1"), space, set_pole, observe=True)

    env = make_vec_env(make_env, n_envs=16)
    curriculum = procurl.Curriculum(procurl.make_teacher(name, space), every=5120, n_envs=16)
    model = PPO("MlpPolicy", env, n_steps=320, batch_size=128, seed=0, device="cpu")
    return model, CurriculumCallback(curriculum, env, probe=make_env())


def point_mass(args: argparse.Namespace, name: str) -> Any:
    import dataclasses

    from procurl.envs import SETTINGS
    from procurl.integrations import sb3_engine
    from procurl.integrations.sb3 import CurriculumCallback

    env, _ = procurl.make("point-mass-2g")
    space = SETTINGS["point-mass-2g"][1](pool_size=args.tasks)
    few = space.targets
    repeated = type(few)(*(np.resize(np.asarray(x), (args.targets, *np.shape(x)[1:])) for x in few))
    space = dataclasses.replace(space, name="point-mass-2g", targets=repeated)
    config = procurl.preset("point-mass-2g")
    teacher = procurl.make_teacher(name, space)
    run = sb3_engine._Run(env, teacher, config, 0, 1000)
    curriculum = procurl.Curriculum(teacher, every=5120, n_envs=config.ppo.n_envs)
    value = sb3_engine._SettingValue(run.model, env)
    return run.model, CurriculumCallback(curriculum, run.envs, value=value)


if __name__ == "__main__":
    main()
