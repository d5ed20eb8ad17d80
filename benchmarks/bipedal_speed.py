"""Environment steps per second on one core: Stump Tracks against Gymnasium's plain BipedalWalker-v3, in one run.

    pip install "procurl[box2d]"
    python benchmarks/bipedal_speed.py --turns 7

Both come from `gymnasium.make`, take the same random actions and reset whenever an episode ends, in one process pinned
to one core, several times in turn. Time is the core's own (CPU seconds), so that other programs do not count; the ratio
is the median over the turns. Stump Tracks has a row for tasks drawn uniformly from the whole box, as training begins,
and one for each of some contexts. Random actions hardly leave the start pad, so a second table puts the walker, also
Gymnasium's, 20 m further on: amid the stumps, the engine has more shapes to meet and more for the lidar to see.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

import gymnasium
import numpy as np

import procurl.integrations.gymnasium  # noqa: F401  # registers ours

PLAIN, OURS, UNIFORM = "BipedalWalker-v3", "procurl/StumpTracks-v0", "uniform"
CONTEXTS = {f"height {h:g}, spacing {d:g}": (h, d) for h, d in [(-3, 6), (-3, 1), (1, 3), (1, 1), (3, 1), (1, 0)]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--steps", type=int, default=10_000, help="of each case and turn")
    args = parser.parse_args()

    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    for metres, title in ((0, "from the start"), (20, "amid the stumps")):
        report(title, compare(Ahead(gymnasium.make(PLAIN), metres), Ahead(gymnasium.make(OURS), metres), args))
    from importlib.metadata import version

    from procurl.runs.provenance import software_and_hardware

    machine = software_and_hardware()
    packages = ", ".join(f"{name} {version(name)}" for name in ("gymnasium", "box2d", "numpy"))
    print(
        f"{machine['processor']}, one core; Python {machine['python']}, {packages}, "
        f"procurl {machine['procurl']} at {machine['commit']}, {time.strftime('%Y-%m-%d')}"
    )


class Ahead(gymnasium.Wrapper):
    """Episodes that begin further on, and half a metre higher, so that legs do not begin inside a low stump."""

    def __init__(self, env: gymnasium.Env, metres: float) -> None:
        super().__init__(env)
        self.metres = metres

    def reset(self, **kwargs: Any) -> Any:
        out, walker = self.env.reset(**kwargs), self.env.unwrapped
        if self.metres:
            for body in (walker.hull, *walker.legs):
                body.position = (body.position.x + self.metres, body.position.y + 0.5)
        return out


def compare(plain: gymnasium.Env, ours: gymnasium.Env, args: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    cases = {PLAIN: (plain, None), UNIFORM: (ours, None)}
    cases |= {name: (ours, {"context": context}) for name, context in CONTEXTS.items()}
    notes: dict[str, list[dict[str, float]]] = {name: [] for name in cases}
    for turn in range(-1, args.turns):
        for name, (env, options) in cases.items():
            note = measure(env, options, args.steps if turn >= 0 else 500, seed=turn + 1)
            if turn >= 0:  # the first turn warms up
                notes[name].append(note)
    return notes


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


def report(title: str, notes: dict[str, list[dict[str, float]]]) -> None:
    print(f"{title:24}{'steps/s':>9}{'ratio':>7}   {'without resets':>14}{'ratio':>7}   {'ms/reset':>8}{'resets':>8}")
    for name, turns in notes.items():
        rate, bare, reset_ms = (statistics.median(t[key] for t in turns) for key in ("all", "steps", "reset_ms"))
        ratio, bare_ratio = (
            statistics.median(ours[key] / plain[key] for ours, plain in zip(turns, notes[PLAIN], strict=True))
            for key in ("all", "steps")
        )
        resets = sum(t["resets"] for t in turns)
        print(f"{name:24}{rate:9,.0f}{ratio:7.2f}   {bare:14,.0f}{bare_ratio:7.2f}   {reset_ms:8.2f}{resets:8.0f}")
    print()


if __name__ == "__main__":
    main()
