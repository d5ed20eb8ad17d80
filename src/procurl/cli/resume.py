"""`procurl resume`: go on with an unfinished run, or train a finished one further."""

from __future__ import annotations

import argparse
from typing import Any

from procurl.cli.common import add_changed, add_own_options, add_training_options, named_in, number, path, step_count
from procurl.cli.train import TEACHER_TIMED_FROM, require_unchanged, train_with_progress
from procurl.errors import ConfigError


def add(commands: Any) -> None:
    command = commands.add_parser("resume", help="go on with an unfinished run, or train a finished one further")
    command.add_argument("run_folder", type=path, metavar="RUN")
    command.add_argument(
        "--steps", type=step_count, default=0, metavar="MORE", help="environment steps to add, per seed"
    )
    command.add_argument(
        "--from", type=number, dest="iteration", metavar="N", help="from the checkpoint of iteration N"
    )
    add_own_options(command, teacher=True)
    add_changed(command)
    add_training_options(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """The run's configuration says what to train; where classes of one's own are, the user says."""
    from procurl.devices import use_device

    use_device(args.device)
    from procurl.runs.provenance import rebuilt
    from procurl.runs.store.checkpoint import SWEEP, load_checkpoint
    from procurl.runs.train import train

    if (args.run_folder / SWEEP).exists():
        return resume_sweep(args)
    found = load_checkpoint(args.run_folder, args.iteration)
    env, teacher, config = rebuilt(found.config, found.classes, named_in(args))
    if not args.changed:
        require_unchanged(args.run_folder, env, teacher)
    steps = found.config["steps"] + args.steps
    resume = "extend" if args.iteration is None else args.iteration
    return train_with_progress(
        f"{found.config['setting']}, {found.config['teacher']['class']}", args, train, env=env, teacher=teacher,
        config=config, seeds=found.config["seeds"], steps=steps, out=args.run_folder, resume=resume,
        time_teacher=not args.quiet and steps >= TEACHER_TIMED_FROM, workers=args.workers,
    )  # fmt: skip


def resume_sweep(args: argparse.Namespace) -> int:
    """All points of a sweep."""
    from procurl.cli.sweep import sweep_with_progress
    from procurl.runs.provenance import rebuilt
    from procurl.runs.sweep.folder import read_notes, read_plan

    if args.iteration is not None or args.log:
        raise ConfigError("--from and --log: not for a sweep")
    plan = read_plan(args.run_folder)
    env, teacher, config = rebuilt(plan["config"], read_notes(args.run_folder), named_in(args))
    if not args.changed:
        require_unchanged(args.run_folder, env, teacher)
    return sweep_with_progress(
        f"{plan['config']['setting']}, {plan['config']['teacher']['class']}", args, env=env, teacher=teacher,
        config=config, over=plan["over"], seeds=plan["config"]["seeds"], steps=plan["config"]["steps"] + args.steps,
        out=args.run_folder, resume="extend", workers=args.workers,
    )  # fmt: skip
