"""Speed of SAC on one core: this student against Stable-Baselines3's, in one run.

    pip install "procurl[sb3]"
    python benchmarks/sac_speed.py --turns 7

Both have the Bipedal Walker's sizes (24 observations, 4 actions, layers of 400 and 300, minibatches of 1000), one
thread, and a buffer of as many random transitions. Two things are timed, several times in turn: updates alone, drawing
the minibatches included; and training on an environment that does nothing, with one update for ten steps, made at the
end of an episode. Time is the core's own (CPU seconds), so that other programs do not count; the ratio is the median
over the turns.
"""

# ruff: noqa: E402  # XLA reads its flags when JAX is imported

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

import procurl

procurl.use_cores(1, device="cpu")

import gymnasium
import jax
import numpy as np
import stable_baselines3
import torch
from measure import machine_line
from stable_baselines3.common.logger import Logger

from procurl.config import SAC
from procurl.students import replay, sac
from procurl.students.replay import Transitions

OBS, ACTIONS, EPISODE = 24, 4, 400
STORED = 100_000  # transitions in the buffers from the beginning


class Nothing(gymnasium.Env):
    """The walker's spaces and episodes of one length, at no cost."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (OBS,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (ACTIONS,), np.float32)

    def __init__(self) -> None:
        self.seen = np.random.default_rng(0).normal(size=(EPISODE + 1, OBS)).astype(np.float32)
        self.t = 0

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self.seen[0], {}

    def step(self, action):
        self.t += 1
        return self.seen[self.t], 1.0, False, self.t == EPISODE, {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--updates", type=int, default=32, help="timed in each turn")
    parser.add_argument("--episodes", type=int, default=2, help=f"of {EPISODE} steps, timed in each turn")
    args = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

    config = SAC(capacity=2 * STORED, start_steps=0)
    ours, theirs = Ours(config), Theirs(config)
    amounts = {"update": args.updates, "train": args.episodes * EPISODE}
    rates: dict[str, list[tuple[float, float]]] = {what: [] for what in amounts}
    for turn in range(-1, args.turns):
        for what, n in amounts.items():
            pair = (rate(getattr(ours, what), n), rate(getattr(theirs, what), n))
            if turn >= 0:  # the first turn compiles
                rates[what].append(pair)

    print(f"{'one core':34}{'procurl':>10}{'sb3':>10}{'ratio':>8}{'from':>8}{'to':>7}")
    for what, title in {"update": "updates/s", "train": f"steps/s, an update for {config.every} steps"}.items():
        ratios = [a / b for a, b in rates[what]]
        mine, other = (statistics.median(x) for x in zip(*rates[what], strict=True))
        print(
            f"{title:34}{mine:10,.1f}{other:10,.1f}{statistics.median(ratios):8.2f}{min(ratios):8.2f}{max(ratios):7.2f}"
        )
    print(f"\n{machine_line('torch', 'stable-baselines3')}")


def rate(run: Callable[[int], None], n: int) -> float:
    began = time.process_time()
    run(n)
    return n / (time.process_time() - began)


def transitions() -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(1)
    obs, next_obs = rng.normal(size=(2, STORED, OBS)).astype(np.float32)
    action = rng.uniform(-1, 1, (STORED, ACTIONS)).astype(np.float32)
    return obs, action, rng.normal(size=STORED).astype(np.float32), next_obs, rng.random(STORED) < 0.01


class Ours:
    def __init__(self, config: SAC) -> None:
        self.config, self.env, self.key = config, Nothing(), jax.random.key(1)
        self.student = sac.init(jax.random.key(0), OBS, ACTIONS, config)
        self.add = jax.jit(replay.add, donate_argnums=0)
        empty = replay.empty(config.capacity, OBS, ACTIONS)
        self.buffer = self.add(empty, replay.as_rows(Transitions(*transitions())))
        self.steps = 0

    def update(self, n: int) -> None:
        self.student, _ = jax.block_until_ready(sac.learn(self.student, self.buffer, n, self.key, self.config))

    def train(self, n: int) -> None:
        for _ in range(n // EPISODE):
            obs, truncated, played = self.env.reset()[0], False, []
            while not truncated:
                self.steps += 1
                key = jax.random.fold_in(self.key, self.steps)
                action = np.asarray(sac.act(self.student.networks, obs, key))
                next_obs, reward, terminated, truncated, _ = self.env.step(action)
                played.append(Transitions(obs, action, np.float32(reward), next_obs, np.float32(terminated)))
                obs = next_obs
            steps = jax.tree.map(lambda *x: np.stack(x), *played)
            self.buffer = self.add(self.buffer, replay.as_rows(steps))
            self.update(EPISODE // self.config.every)


class Theirs:
    def __init__(self, config: SAC) -> None:
        torch.set_num_threads(1)
        self.batch_size = config.batch_size
        self.model = stable_baselines3.SAC(
            "MlpPolicy", Nothing(), learning_rate=config.lr, buffer_size=config.capacity, learning_starts=0,
            batch_size=config.batch_size, tau=config.tau, gamma=config.gamma, ent_coef=config.entropy, device="cpu",
            train_freq=(1, "episode"), gradient_steps=EPISODE // config.every, seed=0,
            policy_kwargs={"net_arch": list(config.hidden)},
        )  # fmt: skip
        self.model.set_logger(Logger(None, []))
        buffer = self.model.replay_buffer
        obs, action, reward, next_obs, terminated = transitions()
        buffer.observations[:STORED, 0], buffer.actions[:STORED, 0], buffer.rewards[:STORED, 0] = obs, action, reward
        buffer.next_observations[:STORED, 0], buffer.dones[:STORED, 0] = next_obs, terminated
        buffer.pos = STORED

    def update(self, n: int) -> None:
        self.model._current_progress_remaining = 1.0
        self.model.train(gradient_steps=n, batch_size=self.batch_size)

    def train(self, n: int) -> None:
        self.model.learn(n, reset_num_timesteps=False)


if __name__ == "__main__":
    main()
