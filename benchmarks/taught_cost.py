"""What it costs to say what is taught, and to keep a run folder: shares of the whole time of the same run.

    python benchmarks/taught_cost.py

Stable-Baselines3's PPO on CartPole with a curriculum in a folder, and a run of procurl's own engine on the maze. The
parts are timed where they are called; compilation before the second update is left out.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure import machine_line

import procurl

STEPS = 60_000


def main() -> None:
    procurl.use_cores(1, device="cpu")
    import torch

    from procurl.bench.report.tables import text_table

    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, run in (("Stable-Baselines3, CartPole", cartpole), ("procurl.train, maze-plane", maze)):
            total, parts = run(Path(folder) / run.__name__)
            rows += [[name, part, f"{100 * seconds / total:.2f} %"] for part, seconds in parts.items()]
            rows.append([name, "all of them", f"{100 * sum(parts.values()) / total:.2f} %"])
    print(text_table(["run", "part", "of the whole time"], rows))
    print(f"\none thread; {machine_line('torch', 'stable-baselines3')}")


class Clock:
    """Adds up the time that some methods take."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    def watch(self, owner: Any, method: str, part: str) -> None:
        real = getattr(owner, method)

        def timed(*args: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return real(*args, **named)
            finally:
                self.spent[part] = self.spent.get(part, 0.0) + time.perf_counter() - began

        setattr(owner, method, timed)


def measured(clock: Clock, warm_up: Callable[[], Any], work: Callable[[], Any]) -> tuple[float, dict[str, float]]:
    warm_up()
    clock.spent.clear()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began, clock.spent


def cartpole(out: Path) -> tuple[float, dict[str, float]]:
    import gymnasium
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    from procurl.integrations.gymnasium import TaskEnv
    from procurl.integrations.sb3 import CurriculumCallback

    space = procurl.task_space([0.1], [6.0], ["pole length"], target=[6.0])

    def set_pole(env: Any, context: Any) -> None:
        env.unwrapped.length, env.unwrapped.polemass_length = context[0], 0.1 * context[0]

    env = make_vec_env(lambda: TaskEnv(gymnasium.make("CartPole-v1"), space, set_pole, observe=True), n_envs=8)
    callback = CurriculumCallback(space, env, out=out)
    model = PPO("MlpPolicy", env, n_steps=256, device="cpu")
    clock = Clock()
    clock.watch(callback.curriculum, "_sum_up", "numbers and warnings")
    run = callback.curriculum._run
    clock.watch(run, "keep", "checkpoints")
    clock.watch(run, "write", "the result")
    clock.watch(run.log, "updated", "the log")  # type: ignore[union-attr]
    return measured(
        clock,
        lambda: model.learn(10_000, callback=callback),
        lambda: model.learn(STEPS, callback=callback, reset_num_timesteps=False),
    )


def maze(out: Path) -> tuple[float, dict[str, float]]:
    from procurl.runs.log import Log

    env, space = procurl.make("maze-plane")
    own = procurl.task_space(
        space.low, space.high, space.names, target=space.target, pool=space.pool.context, fresh_seeds=False
    )  # the same tasks as somebody's own space, so that everything is looked at
    teacher, config = procurl.make_teacher("procurl-target", own), procurl.preset("maze-plane")
    clock = Clock()
    clock.watch(Log, "_look_at", "warnings")
    clock.watch(Log, "progress", "numbers for progress")
    clock.watch(Log, "_trace_arrays", "numbers for the result")

    def train(folder: Path, steps: int) -> None:
        procurl.train(env, teacher, config, seeds=4, steps=steps, out=folder)

    return measured(clock, lambda: train(out / "warm", 20_480), lambda: train(out / "timed", 500_000))


if __name__ == "__main__":
    main()
