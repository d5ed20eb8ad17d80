"""`procurl train`: train students with a curriculum."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from procurl import presets
from procurl.cli.common import add_training_options, path, seed_range, step_count
from procurl.cli.options import configured, sort_options, train_options
from procurl.errors import ConfigError, needs_extra

TEACHER_TIMED_FROM = 100_000  # steps: timing compiles the teacher's functions again, too long a wait for a short run


def add(commands: Any) -> None:
    command = commands.add_parser(
        "train", help="train students with a curriculum", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_plan(command)
    command.add_argument(
        "--engine", choices=["jax", "sb3"], default="jax", help="whose PPO learns: ours, or Stable-Baselines3's"
    )
    add_training_options(command)
    command.set_defaults(run=run)


def add_plan(command: Any) -> None:
    """Options that say what is to be trained: see `planned`."""
    command.make_epilog = train_options
    command.add_argument("setting", metavar="SETTING", help=", ".join(presets.SETTINGS))
    command.add_argument("--teacher", default="procurl-target", metavar="NAME", help=", ".join(presets.TEACHERS))
    command.add_argument("--variant", default="paper", metavar="NAME", help="presets: paper or release")
    command.add_argument("--seeds", type=seed_range, default=range(1), metavar="N", help="how many, or FIRST-LAST")
    command.add_argument("--steps", type=step_count, metavar="1M", help="environment steps per seed")
    command.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="see below; may be repeated")
    command.add_argument(
        "--out", type=path, metavar="DIR", help="folder for checkpoints and results; what is unfinished there goes on"
    )
    command.add_argument("--fresh", action="store_true", help="start anew; what is in DIR is moved aside")


def run(args: argparse.Namespace) -> int:
    import_jax(args)
    import procurl

    plan = planned(args)
    steps, title = plan["steps"], f"{args.setting}, {args.teacher}"
    if args.engine == "sb3":
        if args.fresh or args.workers is not None:
            raise ConfigError("--fresh and --workers: not with --engine sb3")
        return train_with_progress(f"{title}, Stable-Baselines3", args, sb3_engine().train, **plan)
    return train_with_progress(
        title, args, procurl.train, **plan, resume="never" if args.fresh else "auto",
        time_teacher=not args.quiet and steps >= TEACHER_TIMED_FROM, workers=args.workers,
    )  # fmt: skip


def import_jax(args: argparse.Namespace) -> None:
    """After what can fail without it, such as a misspelt name."""
    presets.teacher_preset(args.teacher, args.setting, args.variant)
    from procurl.devices import use_device

    use_device(args.device)


def planned(args: argparse.Namespace) -> dict[str, Any]:
    """What is to be trained: arguments of `procurl.train`, by name."""
    import procurl

    options = sort_options(args.set, args.setting, args.teacher)
    env, space = procurl.make(args.setting, **options["env"])
    return {
        "env": env,
        "teacher": procurl.make_teacher(args.teacher, space, variant=args.variant, **options["teacher"]),
        "config": configured(presets.preset(args.setting, args.variant), options),
        "seeds": args.seeds,
        "steps": presets.named_setting(args.setting).steps if args.steps is None else args.steps,
        "out": args.out,
    }


def sb3_engine() -> Any:
    with needs_extra("sb3", "--engine sb3 needs {}"):
        from procurl.integrations import sb3_engine
    sb3_engine.torch.set_num_threads(1)  # for networks as small as these, more threads are slower
    return sb3_engine


def train_with_progress(title: str, args: argparse.Namespace, train: Callable[..., Any], **plan: Any) -> int:
    """Train, show how it goes, log it, and say how it ended."""
    from procurl.bench.stats import with_error
    from procurl.cli.progress import ProgressLine
    from procurl.runs.interrupt import leave
    from procurl.runs.means import mean_and_error

    out = plan["out"]
    title += f", {len(plan['seeds'])} seed{'s' if len(plan['seeds']) > 1 else ''}"
    try:
        with ProgressLine(title, quiet=args.quiet) as line, ExitStack() as stack:
            logs = [stack.enter_context(log) for log in open_logs(args, title, plan)]
            result = train(**plan, callback=in_turn(line, logs))
    except (KeyboardInterrupt, SystemExit) as cut:
        kept = f"; what was done is in {out}: the same command goes on" if out else " (nothing was saved: no --out)"
        print(f"procurl: interrupted{kept}", file=sys.stderr)
        return leave(130 if isinstance(cut, KeyboardInterrupt) else int(cut.code or 0))
    sound = result.ret[~result.failed, -1]
    mean, error = mean_and_error(sound)
    of = f" ({len(sound)} of {len(result.seeds)} seeds)" if result.failures else ""
    print(f"{title}: return on the target {with_error(mean, error)} after {result.steps[-1]:,} steps{of}")
    if out:
        print(f"saved to {out}")
    for failure in result.failures:
        where = f"; see {out / 'failures' / f'seed-{failure.seed}'}" if out else ""
        print(f"procurl: {failure}; it stopped there and counts as failed{where}", file=sys.stderr)
    return 1 if result.failures else 0


def in_turn(line: Callable[[Any], None], logs: list[Any]) -> Callable[[Any], bool | None]:
    """One callback for the progress line and the logs, if there are any."""
    if not logs:
        return line
    from procurl.integrations.tracking import together

    return together(line, *logs)


def open_logs(args: argparse.Namespace, title: str, plan: dict[str, Any]) -> Iterator[Any]:
    """The logs that --log names, one after the other: if one cannot be opened, those before it are closed again."""
    if args.log:
        from procurl.integrations.tracking import open_log
        from procurl.runs.provenance import describe

        config = describe(plan["env"], plan["teacher"], plan["config"], tuple(plan["seeds"]), plan["steps"])
        for text in args.log:
            yield open_log(text, out=plan["out"], title=title, config=config, fresh=getattr(args, "fresh", False))
