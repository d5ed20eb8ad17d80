"""Training steps per second on one core: this engine against Stable-Baselines3's PPO, in one run.

Both play Point Mass Sparse with uniform tasks, the paper's network and hyper-parameters, pinned to the same core, one
after the other, several times in turn; the median of the turns counts. Stable-Baselines3 runs in its fast form: one
torch thread, and an environment in vectorised NumPy without wrappers, whose share of the time is printed.

    make bench           (or: python benchmarks/speed.py --turns 3)
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np

CASES = {
    "procurl, 1 seed": ("ours", 1),
    "procurl, 8 seeds": ("ours", 8),
    "sb3, 1 environment": ("sb3", 1),
    "sb3, 16 environments": ("sb3", 16),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--case", choices=list(CASES), help=argparse.SUPPRESS)  # one measurement, in its own process
    parser.add_argument("--iterations", type=int, default=4, help="timed iterations of 5120 steps per turn")
    args = parser.parse_args()
    if args.case:
        engine, n = CASES[args.case]
        print(json.dumps((measure_ours if engine == "ours" else measure_sb3)(n, args.iterations)))
        return

    rates: dict[str, list[float]] = {case: [] for case in CASES}
    notes: dict[str, dict] = {}
    for turn in range(args.turns):
        for case in CASES:
            command = [sys.executable, __file__, "--case", case, "--iterations", str(args.iterations)]
            done = subprocess.run(command, capture_output=True, text=True, preexec_fn=pin_to_one_core)
            if done.returncode:
                sys.exit(done.stderr)
            notes[case] = json.loads(done.stdout.splitlines()[-1])
            rates[case].append(notes[case]["steps_per_second"])
            print(f"turn {turn + 1}: {case:22} {rates[case][-1]:10,.0f} steps/s", flush=True)
    report({case: statistics.median(r) for case, r in rates.items()}, notes)


def report(rates: dict[str, float], notes: dict[str, dict]) -> None:
    import stable_baselines3
    import torch

    from procurl.bench.tables import text_table
    from procurl.provenance import software_and_hardware

    machine = software_and_hardware()
    base = rates["sb3, 16 environments"]
    rows = []
    for case, rate in rates.items():
        note = notes[case]
        extra = (
            f"compiles in {note['compile_s']:.0f} s" if "compile_s" in note else f"environment {note['env_share']:.0%}"
        )
        rows.append([case, f"{rate:,.0f}", f"{rate / base:.1f}", extra])
    print()
    print(text_table(["one core", "steps/s", "ratio to sb3 with 16", "note"], rows))
    print(
        f"\n{machine['processor']}, {machine['platform']}; Python {machine['python']}, procurl {machine['procurl']}, "
        f"jax {machine['jax']}, torch {torch.__version__}, stable-baselines3 {stable_baselines3.__version__}, "
        f"{time.strftime('%Y-%m-%d')}"
    )


def pin_to_one_core() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def measure_ours(seeds: int, iterations: int) -> dict:
    import procurl

    procurl.use_cores(1, device="cpu")
    import jax

    from procurl.engine import Engine

    env, space = procurl.make("point-mass-1t")
    engine = Engine(env, procurl.make_teacher("iid", space), procurl.preset("point-mass-1t"), tuple(range(seeds)))
    began = time.perf_counter()
    carry, _ = engine.iterate(engine.begin(), 0)
    jax.block_until_ready(carry)
    compiled = time.perf_counter() - began
    began = time.perf_counter()
    for t in range(iterations):
        carry, _ = engine.iterate(carry, t + 1)
    jax.block_until_ready(carry)
    seconds = time.perf_counter() - began
    return {"steps_per_second": 5120 * iterations * seeds / seconds, "compile_s": compiled}


def measure_sb3(n_envs: int, iterations: int) -> dict:
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

    torch.set_num_threads(1)

    class SharedLayer(BaseFeaturesExtractor):
        """The paper's shared layer of 64."""

        def __init__(self, observation_space):
            super().__init__(observation_space, features_dim=64)
            self.layer = torch.nn.Sequential(torch.nn.Linear(7, 64), torch.nn.ReLU())

        def forward(self, obs):
            return self.layer(obs)

    env = numpy_point_mass(n_envs)
    model = PPO(
        "MlpPolicy", env, n_steps=5120 // n_envs, batch_size=128, n_epochs=10, ent_coef=0.01, device="cpu", seed=0,
        policy_kwargs={
            "features_extractor_class": SharedLayer, "net_arch": {"pi": [64], "vf": [64]},
            "activation_fn": torch.nn.ReLU, "ortho_init": False,
        },
    )  # fmt: skip
    model.learn(5120)  # warm up
    env.seconds = 0.0
    began = time.perf_counter()
    model.learn(5120 * iterations, reset_num_timesteps=False)
    seconds = time.perf_counter() - began
    return {"steps_per_second": 5120 * iterations / seconds, "env_share": env.seconds / seconds}


def numpy_point_mass(n: int):
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
            self.seconds = 0.0

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
            began = time.perf_counter()
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
            self.seconds += time.perf_counter() - began
            return self.obs.copy(), success.astype(np.float32), done, infos

        def close(self) -> None: ...

        def get_attr(self, attr_name, indices=None):
            return [None] * n

        def set_attr(self, attr_name, value, indices=None) -> None: ...

        def env_method(self, method_name, *args, indices=None, **kwargs): ...

        def env_is_wrapped(self, wrapper_class, indices=None):
            return [False] * n

    return NumpyPointMass()


if __name__ == "__main__":
    main()
