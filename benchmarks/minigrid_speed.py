"""Environment steps per second on one core: MiniG in JAX against the public minigrid package, in one run.

    pip install "procurl[minigrid]"
    python benchmarks/minigrid_speed.py --turns 3

Both play the pool's tasks with random actions and reset whenever an episode ends, pinned to the same core, several
times in turn; the median of the turns counts. Ours plays 1024 environments in a compiled loop that resets inside, as
training does, and takes the same time for every family; the package plays one environment of each family in turn, as
fast as a plain Python loop can drive it.
`--device gpu` measures ours alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

CASES = ("procurl", "minigrid")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--batch", type=int, default=1024, help="environments side by side")
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)  # one measurement, in its own process
    args = parser.parse_args()
    if args.case:
        print(json.dumps(measure_ours(args.batch, args.device) if args.case == "procurl" else measure_package()))
        return

    cases = CASES if args.device == "cpu" else CASES[:1]
    rates: dict[str, list[float]] = {case: [] for case in cases}
    for turn in range(args.turns):
        for case in cases:
            options = ["--case", case, "--batch", str(args.batch), "--device", args.device]
            command = [sys.executable, __file__, *options]
            pin = pin_to_one_core if args.device == "cpu" else None
            done = subprocess.run(command, capture_output=True, text=True, preexec_fn=pin)
            if done.returncode:
                sys.exit(done.stderr)
            note = json.loads(done.stdout.splitlines()[-1])
            rates[case].append(note["steps_per_second"])
            print(f"turn {turn + 1}: {case:10} {note['steps_per_second']:14,.0f} steps/s", flush=True)
            if case == "procurl":
                machine = note["machine"]
    report({case: statistics.median(r) for case, r in rates.items()}, machine, args.batch)


def report(rates: dict[str, float], machine: dict, batch: int) -> None:
    from importlib.metadata import version

    print(f"\nprocurl, batch of {batch}: {rates['procurl']:,.0f} environment steps per second")
    package = ""
    if "minigrid" in rates:
        print(f"minigrid package:        {rates['minigrid']:,.0f} environment steps per second")
        print(f"ratio: {rates['procurl'] / rates['minigrid']:.0f}")
        package = f"minigrid {version('minigrid')}, "
    print(
        f"\n{machine['processor']}, {', '.join(machine['devices'])}; Python {machine['python']}, jax {machine['jax']}, "
        f"numpy {machine['numpy']}, {package}procurl {machine['procurl']} at {machine['commit']}, "
        f"{time.strftime('%Y-%m-%d')}"
    )


def pin_to_one_core() -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def measure_ours(batch: int, device: str, steps: int = 200, repeats: int = 10) -> dict:
    import procurl

    procurl.use_cores(1, device=device)
    import jax

    from procurl.runs.provenance import software_and_hardware
    from procurl.teachers.iid import IID

    env, space = procurl.make("minigrid")
    teacher = IID(space)

    @jax.jit
    def play(state, key):
        def step(state, key):
            k_act, k_env, k_task = jax.random.split(key, 3)
            action = jax.random.randint(k_act, (batch,), 0, env.action.size)
            state, outcome = jax.vmap(env.step)(jax.random.split(k_env, batch), state, action)
            done = outcome.terminated | outcome.truncated
            fresh, obs = jax.vmap(env.reset)(teacher.propose(teacher.init(k_task), k_task, batch))
            state, obs = jax.tree.map(
                lambda a, b: jax.numpy.where(done.reshape(-1, *[1] * (a.ndim - 1)), a, b),
                (fresh, obs), (state, outcome.obs),
            )  # fmt: skip
            return state, (obs.sum(), outcome.reward.sum())  # or the observations need not be made

        return jax.lax.scan(step, state, jax.random.split(key, steps))

    state, _ = jax.jit(jax.vmap(env.reset))(teacher.propose(teacher.init(None), jax.random.key(0), batch))
    state, _ = jax.block_until_ready(play(state, jax.random.key(1)))
    began = time.perf_counter()
    for t in range(repeats):
        state, sums = play(state, jax.random.key(2 + t))
    jax.block_until_ready((state, sums))
    seconds = time.perf_counter() - began
    return {"steps_per_second": batch * steps * repeats / seconds, "machine": software_and_hardware()}


def measure_package(steps: int = 12_000) -> dict:
    import numpy as np

    from procurl.envs.minigrid import package
    from procurl.envs.minigrid.pool import FAMILY_OF_SEED

    rng = np.random.default_rng(0)
    seeds = {family: np.flatnonzero(family == FAMILY_OF_SEED) for family in range(6)}
    envs = {family: package.make(family) for family in range(6)}
    for family, env in envs.items():
        env.reset(seed=int(seeds[family][0]))
    actions = rng.integers(0, 7, steps)
    began = time.perf_counter()
    for t, action in enumerate(actions):
        family = t % 6
        obs, _, terminated, truncated, _ = envs[family].step(action)
        if terminated or truncated:
            obs, _ = envs[family].reset(seed=int(rng.choice(seeds[family])))
        package.observation(family, obs)
    return {"steps_per_second": steps / (time.perf_counter() - began)}


if __name__ == "__main__":
    main()
