"""`procurl watch`: an animation of a trained student at work."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from procurl.check.text import in_one_line
from procurl.cli.common import add_own_options, number, path
from procurl.cli.evaluate import env_of
from procurl.errors import ConfigError


def add(commands: Any) -> None:
    command = commands.add_parser("watch", help="an animation of a trained student at work")
    command.add_argument("run_folder", type=path, metavar="RUN")
    command.add_argument("--tasks", metavar="CHOICE", help="target (default), hardest, easiest or random")
    command.add_argument(
        "--context", action="append", default=[], metavar="A,B,...",
        help="a task of your own, as --context=-2,1,0; may be repeated",
    )  # fmt: skip
    command.add_argument("--seed", type=number, metavar="N", help="whose student (default: the best of the run)")
    command.add_argument(
        "--episodes", type=number, metavar="K", help="tasks (default 3), or instances of each --context"
    )
    command.add_argument("--stochastic", action="store_true", help="draw actions as in training")
    command.add_argument("--out", type=path, metavar="FILE", help=".gif or .mp4 (default: the run's name, .gif)")
    command.add_argument("--frames", type=number, default=240, help="at most (default 240); steps are left out beyond")
    command.add_argument("--fps", type=float, help="frames per second (default: the environment's own)")
    add_own_options(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from procurl.devices import use_cores

    use_cores(1, device="cpu")  # one small network, one observation at a time
    from procurl.bench.watch import watch
    from procurl.runs.store.result import load_result

    out = args.out or Path(f"{args.run_folder.resolve().name}.gif")
    episodes = watch(
        args.run_folder, out, tasks=args.tasks, contexts=[context_numbers(text) for text in args.context],
        seed=args.seed, episodes=args.episodes, deterministic=not args.stochastic, frames=args.frames, fps=args.fps,
        setting=env_of(args, load_result(args.run_folder)) if args.env else None,
    )  # fmt: skip
    for e in episodes:
        how = "success" if e.success else "no success"
        print(in_one_line(f"{e.chosen.origin} ({e.about}): {e.steps} steps, return {e.ret:.3f}, {how}"))
    print(f"wrote {out} ({out.stat().st_size:,} bytes)")


def context_numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--context={text}: expected numbers with commas between them, e.g. 2.5,0.7,0") from None
