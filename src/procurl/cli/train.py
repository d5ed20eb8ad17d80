"""`procurl train`: train students with a curriculum."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from procurl import presets, suites
from procurl.cli.common import add_changed, add_training_options, path, say_clashes, seed_range, step_count
from procurl.cli.options import configured, sort_options, train_options, with_student
from procurl.errors import ConfigError, needs_extra

if TYPE_CHECKING:
    from procurl.runs.chosen import ChosenSetting, ChosenTeacher

TEACHER_TIMED_FROM = 100_000  # steps: timing compiles the teacher's functions again, too long a wait for a short run


def add(commands: Any) -> None:
    command = commands.add_parser(
        "train", help="train students with a curriculum", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_plan(command)
    command.add_argument(
        "--engine", choices=["jax", "sb3"], default="jax", help="whose PPO learns: ours, or Stable-Baselines3's"
    )
    command.add_argument(
        "--strict", action="store_true", help="a curriculum that does nothing for 20 iterations is an error"
    )
    add_training_options(command)
    command.set_defaults(run=run)


def add_plan(command: Any) -> None:
    """Options that say what is to be trained: see `planned`."""
    command.make_epilog = train_options
    command.add_argument(
        "setting", metavar="SETTING",
        help=f"{', '.join(presets.SETTINGS)}; of an installed package (`procurl list`); of another suite, "
        f"{' or '.join(f'{suite}:NAME' for suite in suites.SUITES)}; or your own, my.py:MyEnv",
    )  # fmt: skip
    command.add_argument(
        "--teacher", default="procurl-target", metavar="NAME",
        help=f"{', '.join(presets.TEACHERS)}; auto; of an installed package; or your own, my.py:MyTeacher",
    )  # fmt: skip
    command.add_argument(
        "--space", metavar="MODULE:NAME",
        help="tasks of an environment of your own, or a setting's; default: the only task space in its file",
    )  # fmt: skip
    command.add_argument(
        "--context", action="append", default=[], metavar="NAME=LOW:HIGH",
        help="parameters of a suite's environment that are its context; with commas between, or repeated",
    )  # fmt: skip
    command.add_argument(
        "--target",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="what each of them is in the end: VALUE or LOW:HIGH",
    )
    command.add_argument(
        "--student",
        choices=["ppo", "sac"],
        help="who learns (default: the setting's own; SAC needs continuous actions)",
    )
    command.add_argument("--variant", default="paper", metavar="NAME", help="presets: paper or release")
    command.add_argument("--seeds", type=seed_range, default=range(1), metavar="N", help="how many, or FIRST-LAST")
    command.add_argument("--steps", type=step_count, metavar="1M", help="environment steps per seed")
    command.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="see below; may be repeated")
    command.add_argument(
        "--out", type=path, metavar="DIR", help="folder for checkpoints and results; what is unfinished there goes on"
    )
    command.add_argument("--fresh", action="store_true", help="start anew; what is in DIR is moved aside")
    add_changed(command)


def run(args: argparse.Namespace) -> int:
    import_jax(args)
    import procurl

    setting, teacher = chosen(args)
    plan = planned(args, setting, teacher)
    steps, title = plan["steps"], f"{setting.name}, {teacher.name}"
    if args.engine == "sb3":
        if args.fresh or args.strict or args.workers is not None:
            raise ConfigError("--fresh, --strict and --workers: not with --engine sb3")
        if not setting.is_ours:
            raise ConfigError(
                f"--engine sb3: {setting.name} is not a setting of procurl's; expected one of "
                f"{', '.join(presets.SETTINGS)}. For your own, use procurl.integrations.sb3.CurriculumCallback"
            )
        return train_with_progress(f"{title}, Stable-Baselines3", args, sb3_engine().train, **plan)
    return train_with_progress(
        title, args, procurl.train, **plan, resume="never" if args.fresh else "auto",
        time_teacher=not args.quiet and steps >= TEACHER_TIMED_FROM, workers=args.workers,
        strict=args.strict,
    )  # fmt: skip


def import_jax(args: argparse.Namespace) -> None:
    """After what can fail without it, such as a misspelt name."""
    presets.require_names(args.setting, args.teacher, args.variant)
    say_clashes([args.setting], [args.teacher])
    from procurl.devices import use_device

    use_device(args.device)


def chosen(args: argparse.Namespace) -> tuple[ChosenSetting, ChosenTeacher]:
    """What SETTING, --student and --teacher name."""
    from procurl.runs.chosen import chosen_setting, chosen_teacher

    setting = chosen_setting(args.setting, args.space, args.variant, args.context, args.target)
    setting = setting._replace(config=with_student(setting.config, args.student))
    return setting, chosen_teacher(args.teacher, setting, args.variant)


def planned(args: argparse.Namespace, setting: ChosenSetting, teacher: ChosenTeacher) -> dict[str, Any]:
    """What is to be trained: arguments of `procurl.train`, by name."""
    options = sort_options(args.set, setting, teacher)
    env, space = setting.make(options["env"])
    plan = {
        "env": env,
        "teacher": teacher.make(space, options["teacher"]),
        "config": configured(setting.config, options),
        "seeds": args.seeds,
        "steps": setting.steps if args.steps is None else args.steps,
        "out": args.out,
    }
    if args.out is not None and not args.fresh and not args.changed:
        require_unchanged(args.out, plan["env"], plan["teacher"])
    return plan


def require_unchanged(folder: Path, env: Any, teacher: Any) -> None:
    """A run or sweep in this folder that is to go on was begun with the same classes."""
    from procurl.runs.class_origin import class_notes
    from procurl.runs.store.checkpoint import SWEEP, checkpoints, load_checkpoint
    from procurl.runs.store.classes import require_same
    from procurl.runs.sweep.folder import read_notes

    now = class_notes(env, teacher)
    if now and (folder / SWEEP).exists():
        require_same(folder, read_notes(folder), now)
    elif now and checkpoints(folder):
        require_same(folder, load_checkpoint(folder).classes, now)


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
