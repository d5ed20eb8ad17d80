"""A trained student at work on MiniG's target: episodes on held-out layouts as an animated picture.

    procurl train minigrid --teacher procurl-target --variant release --seeds 10 --steps 4M --out runs/minigrid
    python tools/minigrid_animation.py runs/minigrid --out docs/settings/images/minigrid.gif

The seed is the run's best one unless named, and the layouts are the first held-out ones, solved or not: no picking.
Needs `procurl[report]`, which brings Pillow.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

import procurl
from procurl.envs.minigrid.render import render
from procurl.types import Task

SHADES = 64  # of the palette: all that flat colours need
PAUSE = 8  # frames at the end of an episode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a result folder of the setting minigrid")
    parser.add_argument("--out", type=Path, required=True, help="the picture, .gif or .webp")
    parser.add_argument("--seed", type=int, help="whose student; default: the one with the best final return")
    parser.add_argument("--episodes", type=int, default=3, help="one per held-out layout, in their order")
    parser.add_argument("--tile", type=int, default=24, help="pixels per cell")
    parser.add_argument("--seconds", type=float, default=0.12, help="per step")
    parser.add_argument("--deterministic", action="store_true", help="the likeliest action, not as in training")
    args = parser.parse_args()

    result = procurl.load_result(args.run)
    seed = args.seed if args.seed is not None else int(result.seeds[result.ret[:, -1].argmax()])
    policy = procurl.load_policy(args.run, seed)
    frames: list[np.ndarray] = []
    for k in range(args.episodes):
        task = Task(*(jnp.asarray(result.held_out[name][k]) for name in ("context", "seed", "row")))
        states, success = episode(policy, task, args.deterministic)
        pictures = [render(state, args.tile) for state in states]
        frames += [*pictures, *[pictures[-1]] * PAUSE]
        print(f"seed {seed}, held-out layout {k}: {len(states) - 1} steps, {'solved' if success else 'not solved'}")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    save(frames, args.out, args.seconds)
    print(f"wrote {args.out} ({len(frames)} frames, {args.out.stat().st_size:,} bytes)")


def episode(policy: Any, task: Task, deterministic: bool) -> tuple[list[Any], bool]:
    """All states from the first to the last."""
    env = procurl.make("minigrid")[0]
    state, obs = jax.jit(env.reset)(task)
    step, key, states = jax.jit(env.step), jax.random.key(task.seed), [state]
    while True:
        key, k_step = jax.random.split(key)
        state, outcome = step(k_step, state, jnp.asarray(policy.predict(obs, deterministic)))
        states.append(state)
        if outcome.terminated or outcome.truncated:
            return states, bool(outcome.success)
        obs = outcome.obs


def save(frames: list[np.ndarray], path: Path, seconds: float) -> None:
    """One palette for all frames: colours do not flicker, and what stands still costs nothing."""
    palette = Image.fromarray(np.concatenate(frames[:: max(1, len(frames) // 12)])).quantize(SHADES)
    images = [Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    if path.suffix == ".webp":
        images = [image.convert("RGB") for image in images]
    images[0].save(path, save_all=True, append_images=images[1:], duration=round(1000 * seconds), loop=0)


if __name__ == "__main__":
    main()
