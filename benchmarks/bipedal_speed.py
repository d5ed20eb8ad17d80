"""Environment steps per second on one core: Stump Tracks against Gymnasium's plain BipedalWalker-v3, in one run.

    pip install "procurl[box2d]"
    python benchmarks/bipedal_speed.py --turns 7

Both come from `gymnasium.make`, take the same random actions and reset whenever an episode ends, in one process pinned
to one core, several times in turn. Time is the core's own (CPU seconds), so that other programs do not count; the ratio
is the median over the turns. Stump Tracks has a row for tasks drawn uniformly from the whole box, as training begins,
and one for each of some contexts: more stumps are more bodies to build in a reset and to meet in a step.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import gymnasium
import numpy as np

import procurl.integrations.gymnasium  # registers Stump Tracks

PLAIN, UNIFORM = "BipedalWalker-v3", "uniform"
CONTEXTS = {f"height {h:g}, spacing {d:g}": (h, d) for h, d in [(-3, 6), (-3, 1), (0, 3), (3, 3), (1.5, 1), (3, 0)]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--steps", type=int, default=10_000, help="of each case and turn")
    args = parser.parse_args()

    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    plain, ours = gymnasium.make(PLAIN), gymnasium.make(procurl.integrations.gymnasium.STUMP_TRACKS)
    cases = {PLAIN: (plain, None), UNIFORM: (ours, None)}
    cases |= {name: (ours, {"context": context}) for name, context in CONTEXTS.items()}
    notes: dict[str, list[dict[str, float]]] = {name: [] for name in cases}
    for turn in range(-1, args.turns):
        for name, (env, options) in cases.items():
            note = measure(env, options, args.steps if turn >= 0 else 500, seed=turn + 1)
            if turn >= 0:  # the first turn warms up
                notes[name].append(note)
    report(notes)


def measure(env: gymnasium.Env, options: dict | None, steps: int, seed: int) -> dict[str, float]:
    actions = np.random.default_rng(seed).uniform(-1, 1, (steps, 4)).astype(np.float32)
    resets, resetting = 0, 0.0
    env.reset(seed=seed, options=options)
    began = time.process_time()
    for action in actions:
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            stopped = time.process_time()
            env.reset(options=options)
            resets, resetting = resets + 1, resetting + time.process_time() - stopped
    seconds = time.process_time() - began
    return {
        "all": steps / seconds,
        "steps": steps / (seconds - resetting),
        "reset_ms": 1e3 * resetting / max(resets, 1),
        "resets": resets,
    }


def report(notes: dict[str, list[dict[str, float]]]) -> None:
    print(f"{'':24}{'steps/s':>9}{'ratio':>7}   {'without resets':>14}{'ratio':>7}   {'ms/reset':>8}{'resets':>8}")
    for name, turns in notes.items():
        rate, bare, reset_ms = (statistics.median(t[key] for t in turns) for key in ("all", "steps", "reset_ms"))
        ratio, bare_ratio = (
            statistics.median(ours[key] / plain[key] for ours, plain in zip(turns, notes[PLAIN], strict=True))
            for key in ("all", "steps")
        )
        resets = sum(t["resets"] for t in turns)
        print(f"{name:24}{rate:9,.0f}{ratio:7.2f}   {bare:14,.0f}{bare_ratio:7.2f}   {reset_ms:8.2f}{resets:8.0f}")

    from importlib.metadata import version

    from procurl.provenance import software_and_hardware

    machine = software_and_hardware()
    packages = ", ".join(f"{name} {version(name)}" for name in ("gymnasium", "box2d", "numpy"))
    print(
        f"\n{machine['processor']}, one core; Python {machine['python']}, {packages}, "
        f"procurl {machine['procurl']} at {machine['commit']}, {time.strftime('%Y-%m-%d')}"
    )


if __name__ == "__main__":
    main()
