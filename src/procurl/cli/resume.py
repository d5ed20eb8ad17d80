"""`procurl resume`: go on with an unfinished run, or train a finished one further."""

from __future__ import annotations

import argparse
from typing import Any

from procurl.cli.common import add_training_options, number, path, step_count
from procurl.cli.train import TEACHER_TIMED_FROM, train_with_progress


def add(commands: Any) -> None:
    command = commands.add_parser("resume", help="go on with an unfinished run, or train a finished one further")
    command.add_argument("run_folder", type=path, metavar="RUN")
    command.add_argument(
        "--steps", type=step_count, default=0, metavar="MORE", help="environment steps to add, per seed"
    )
    command.add_argument(
        "--from", type=number, dest="iteration", metavar="N", help="from the checkpoint of iteration N"
    )
    add_training_options(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """The run's own configuration says what to train."""
    from procurl.devices import use_device

    use_device(args.device)
    from procurl.runs.provenance import rebuilt
    from procurl.runs.store.checkpoint import load_checkpoint
    from procurl.runs.train import train

    found = load_checkpoint(args.run_folder, args.iteration)
    env, teacher, config = rebuilt(found.config)
    steps = found.config["steps"] + args.steps
    resume = "extend" if args.iteration is None else args.iteration
    return train_with_progress(
        f"{found.config['setting']}, {found.config['teacher']['class']}", args, train, env=env, teacher=teacher,
        config=config, seeds=found.config["seeds"], steps=steps, out=args.run_folder, resume=resume,
        time_teacher=not args.quiet and steps >= TEACHER_TIMED_FROM, workers=args.workers,
    )  # fmt: skip
