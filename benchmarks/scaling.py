"""What a doubling costs: the time of one training iteration against seeds, tasks, targets and environments.

    python benchmarks/scaling.py --out benchmarks/results

One core, ProCuRL-Target on Point Mass (both targets), the paper's numbers but for the one that grows, over two decades.
More environments play as many steps each, so that an iteration has more steps. Writes scaling.json and scaling.png.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
from pathlib import Path

from measure import iteration_seconds, machine_line

import procurl

SETTING = "point-mass-2g"
SIZES = {
    "seeds": [1, 4, 16, 64, 128],
    "tasks": [2_000, 8_000, 32_000, 128_000, 256_000],
    "targets": [40, 160, 640, 2_560, 5_120],
    "environments": [1, 4, 16, 64, 128],
}
STEPS_EACH = 384  # steps of an environment in one iteration: whole minibatches, however few environments there are


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--iterations", type=int, default=7)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    procurl.use_cores(1, device="cpu")
    from procurl.bench.report.tables import text_table

    seconds = {axis: [measured(axis, n, args.iterations) for n in sizes] for axis, sizes in SIZES.items()}
    rows = []
    for axis, sizes in SIZES.items():
        times = [f"{1e3 * seconds[axis][i]:.1f} ms" for i in (0, -1)]
        dearest = max(map(cost_of_a_doubling, itertools.pairwise(sizes), itertools.pairwise(seconds[axis])))
        rows.append([axis, f"{sizes[0]:,} to {sizes[-1]:,}", *times, f"{dearest:.2f}"])
    print()
    print(text_table(["what grows", "from, to", "iteration", "iteration", "largest cost of a doubling"], rows))
    machine = machine_line()
    print(f"\n{machine}")
    summary = {"setting": SETTING, "sizes": SIZES, "seconds": seconds, "machine": machine}
    (args.out / "scaling.json").write_text(json.dumps(summary, indent=1) + "\n")
    draw(seconds, args.out / "scaling.png")


def cost_of_a_doubling(sizes: tuple[int, int], seconds: tuple[float, float]) -> float:
    """How many times as long, between two sizes that may be several doublings apart."""
    return (seconds[1] / seconds[0]) ** (1 / math.log2(sizes[1] / sizes[0]))


def measured(axis: str, n: int, iterations: int) -> float:
    """Seconds of an iteration."""
    import jax

    from procurl.envs import SETTINGS
    from procurl.runs.engine import Engine

    env, space = procurl.make(SETTING)
    config = procurl.preset(SETTING)
    seeds = 1
    if axis in ("tasks", "targets"):
        space = SETTINGS[SETTING][1](**{"tasks": {"pool_size": n}, "targets": {"n_targets": n}}[axis])
    elif axis == "seeds":
        seeds = n
    elif axis == "environments":
        config = dataclasses.replace(config, ppo=dataclasses.replace(config.ppo, n_envs=n, n_steps=STEPS_EACH * n))
    engine = Engine(env, procurl.make_teacher("procurl-target", space), config, tuple(range(seeds)))
    _, seconds = iteration_seconds(engine, iterations)
    jax.clear_caches()  # dozens of programs at a time are more than a process can map
    print(f"{axis} {n:,}: {1e3 * seconds:.1f} ms", flush=True)
    return seconds


def draw(seconds: dict[str, list[float]], path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(SIZES), sharey=True, figsize=(12, 3.2), layout="constrained")
    for axis, (name, sizes) in zip(axes, SIZES.items(), strict=True):
        axis.loglog(sizes, seconds[name], "o-", ms=4, label="measured")
        axis.loglog(
            sizes, [seconds[name][0] * n / sizes[0] for n in sizes], "--", c="0.6", label="twice for a doubling"
        )
        axis.set(xlabel=name, ylim=(1e-3, None))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("seconds an iteration")
    axes[0].legend(frameon=False)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
