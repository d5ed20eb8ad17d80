"""The command line: `procurl list | train | resume | bench | evaluate | plot | report | watch | theory | check |
doctor`.

Strings become objects here, once. Nothing on the way to a help text imports JAX; `train` first tells XLA which
processors to use and imports it then.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

from procurl import __version__, presets
from procurl.check.numbers import seed_numbers
from procurl.check.text import in_one_line, printable
from procurl.cli.options import configured, sort_options, train_options
from procurl.devices import keep_programs
from procurl.errors import ConfigError, ProcurlError

TEACHER_TIMED_FROM = 100_000  # steps: it compiles the teacher's functions once more, for which no short run should wait


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    args = build_parser().parse_args(argv)
    keep_programs()
    try:
        return int(args.run(args) or 0)
    except ProcurlError as error:
        print(printable(f"procurl: {error}"), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("procurl: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has gone, as in `procurl list | head`
        sys.stderr.close()
        return 0
    except OSError as error:  # of the disk: full, read-only, gone
        print(printable(f"procurl: {error.filename or 'a file'}: {error.strerror or error}"), file=sys.stderr)
        return 1


class Command(argparse.ArgumentParser):
    """A parser whose epilog may be made when somebody reads it: teachers document themselves, but import JAX."""

    make_epilog: Callable[[], str] | None = None

    def format_help(self) -> str:
        if self.make_epilog is not None:
            self.epilog = self.make_epilog()
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        if "--context: expected one argument" in message:  # argparse takes -2,1,0 for an option
            message += "; where the first number is negative, write --context=-2,1,0"
        super().error(with_suggestion(message))


def with_suggestion(message: str) -> str:
    """argparse's message about a choice or option that it does not know, with the closest that it does know."""
    chosen = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
    if chosen:
        close = difflib.get_close_matches(chosen[1], re.findall(r"[\w-]+", chosen[2]), n=1)
        message += f". Did you mean {close[0]}?" if close else ""
    return message


def build_parser() -> argparse.ArgumentParser:
    parser = Command(
        prog="procurl", description="Curriculum reinforcement learning: a teacher picks tasks, a student learns."
    )
    parser.add_argument("--version", action="version", version=f"procurl {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Command)

    command = commands.add_parser("list", help="settings, teachers and their hyper-parameters")
    command.set_defaults(run=run_list)

    command = commands.add_parser(
        "train",
        help="train students with a curriculum",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.make_epilog = train_options
    command.add_argument("setting", metavar="SETTING", help=", ".join(presets.SETTINGS))
    command.add_argument("--teacher", default="procurl-target", metavar="NAME", help=", ".join(presets.TEACHERS))
    command.add_argument("--variant", default="paper", metavar="NAME", help="presets: paper or release")
    command.add_argument("--seeds", type=seed_range, default=range(1), metavar="N", help="how many, or FIRST-LAST")
    command.add_argument("--steps", type=step_count, metavar="1M", help="environment steps per seed")
    command.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="see below; may be repeated")
    command.add_argument(
        "--out", type=path, metavar="DIR", help="folder for checkpoints and the result; an unfinished run there goes on"
    )
    command.add_argument(
        "--engine",
        choices=["jax", "sb3"],
        default="jax",
        help="whose PPO learns: ours, or Stable-Baselines3's",
    )
    command.add_argument("--fresh", action="store_true", help="start anew; a run that is in DIR is moved aside")
    add_training_options(command)
    command.set_defaults(run=run_train)

    command = commands.add_parser("resume", help="go on with an unfinished run, or train a finished one further")
    command.add_argument("run_folder", type=path, metavar="RUN")
    command.add_argument(
        "--steps", type=step_count, default=0, metavar="MORE", help="environment steps to add, per seed"
    )
    command.add_argument(
        "--from", type=number, dest="iteration", metavar="N", help="from the checkpoint of iteration N"
    )
    add_training_options(command)
    command.set_defaults(run=run_resume)

    command = commands.add_parser("bench", help="a whole grid of settings, strategies and seeds; or how far one is")
    add_bench_options(command)
    command.set_defaults(run=run_bench)

    command = commands.add_parser("evaluate", help="return per held-out task of a finished run")
    command.add_argument("run_folder", type=path, metavar="RUN")
    command.add_argument("--episodes", type=number, default=100, help="per task and seed (default 100)")
    command.add_argument("--deterministic", action="store_true", help="take the most likely action")
    command.add_argument("--device", choices=["cpu", "gpu"], help="default: what JAX finds")
    command.set_defaults(run=run_evaluate)

    command = commands.add_parser("plot", help="learning curves and curricula of runs, and the paper's figures")
    command.add_argument("run_folders", type=path, nargs="+", metavar="DIR", help="run folders, or folders of them")
    command.add_argument("--out", type=path, default=Path("."), metavar="DIR", help="where the pictures go (default .)")
    command.add_argument("--band", choices=["se", "ci"], default="se", help="standard error, or 95 %% interval")
    command.add_argument("--format", choices=["png", "pdf"], default="png")
    command.set_defaults(run=run_plot)

    command = commands.add_parser("report", help="one page about many runs, or tables for a repository")
    command.add_argument(
        "paths", type=path, nargs="+", metavar="DIR",
        help="run folders, folders that hold them at any depth, or files of benchmarks/compare.py",
    )  # fmt: skip
    command.add_argument("-o", "--out", type=path, metavar="FILE", help="the page (default report.html)")
    command.add_argument("--markdown", type=path, metavar="FILE", help="tables instead, or as well if -o is given")
    command.set_defaults(run=run_report)

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
    command.set_defaults(run=run_watch)

    command = commands.add_parser("theory", help="the paper's analysis, run: teachers in its contextual bandit")
    command.add_argument("--seeds", type=number, metavar="N", help="random bandits (default 10)")
    command.add_argument("--steps", type=step_count, metavar="N", help="of the student (default 3000)")
    command.add_argument("--out", type=path, metavar="DIR", help="where the figures go (default .)")
    command.add_argument("--page", type=path, metavar="FILE", help="write docs/theory.md instead, with its figures")
    command.set_defaults(run=run_theory)

    add_check_and_doctor(commands)
    return parser


def add_check_and_doctor(commands: Any) -> None:
    command = commands.add_parser(
        "check",
        help="an environment, teacher or task space of your own against its contract",
        description="Say all that is wrong with an environment (JAX, Gymnasium or for worker processes), a teacher or "
        "a task space of your own. Importing your file runs its code, as `python FILE` would. Exit status 1 if there "
        "is a problem.",
    )
    command.add_argument(
        "target", metavar="MODULE:NAME",
        help="my_env.py:MyEnv or package.module:object; an object, a class, or a function that returns one",
    )  # fmt: skip
    command.add_argument(
        "--space", metavar="MODULE:NAME", help="its tasks, or a setting; default: the only task space in its file"
    )
    command.add_argument("--steps", type=step_count, default=2000, metavar="N", help="of an episode, at most (2000)")
    command.set_defaults(run=run_check)

    command = commands.add_parser(
        "doctor",
        help="versions, devices, and a self-test of about a minute",
        description="Look at this installation: versions, devices, disk, settings of JAX, and a short training that is "
        "cut and resumed. Exit status 1 if there is a problem. Nothing in it names you or your machine.",
    )
    command.add_argument("--json", action="store_true", help="for a bug report")
    command.add_argument("--quick", action="store_true", help="without the self-test")
    command.set_defaults(run=run_doctor)


def add_bench_options(command: argparse.ArgumentParser) -> None:
    from procurl.bench.grid.suites import SUITES

    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.epilog = "suites:\n" + "\n".join(f"  {suite.name:12} {suite.summary}" for suite in SUITES.values())
    command.add_argument("suite", metavar="SUITE", help="see below, or a file FILE.toml; `status`: how far DIR is")
    command.add_argument("folder", nargs="?", type=path, metavar="DIR", help="with `status`; default: all in runs/")
    command.add_argument("--out", type=path, metavar="DIR", help="default runs/SUITE; what is done there is skipped")
    command.add_argument("--settings", nargs="+", metavar="NAME", help="these of the suite's settings alone")
    command.add_argument("--teachers", nargs="+", metavar="NAME", help="other strategies; NAME:release for a variant")
    command.add_argument("--variant", metavar="NAME", help="presets: paper or release")
    command.add_argument("--seeds", type=seed_range, metavar="N", help="how many, or FIRST-LAST")
    command.add_argument("--steps", type=step_count, metavar="1M", help="environment steps per seed")
    command.add_argument("--block", type=number, metavar="N", help="seeds in one program (on a GPU: all)")
    command.add_argument("--executor", choices=["local", "ray"], default="local", help="processes here, or a cluster")
    command.add_argument("--address", metavar="HOST:PORT", help="of a Ray cluster; default: one of its own, here")
    command.add_argument(
        "--workers", type=number, metavar="N", help="cells at a time here (default: cores; on a GPU 1)"
    )
    command.add_argument("--retries", type=number, default=1, metavar="N", help="of a cell that fails (default 1)")
    add_common_options(command)


def add_common_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--device", choices=["cpu", "gpu"], help="default: what JAX finds")
    command.add_argument("--quiet", action="store_true", help="no progress line")


def add_training_options(command: argparse.ArgumentParser) -> None:
    add_common_options(command)
    command.add_argument(
        "--workers", type=number, metavar="N", help="processes that play `bipedal` (default: one per core)"
    )
    command.add_argument(
        "--log", action="append", default=[], metavar="KIND[:WHERE]",
        help="tensorboard[:FOLDER] or wandb[:PROJECT]; may be repeated",
    )  # fmt: skip


def run_list(args: argparse.Namespace) -> None:
    print("Settings")
    for name, setting in presets.SETTINGS.items():
        print(f"  {name:16} {setting.summary}; {setting.steps:,} steps, {setting.seeds} seeds in the paper")
    print("\nTeachers")
    for name, summary in presets.TEACHERS.items():
        print(f"  {name:16} {summary}")
    print("\n`procurl train --help` lists every option that --set takes.")


def run_train(args: argparse.Namespace) -> int:
    setting = presets.named_setting(args.setting)
    presets.teacher_preset(args.teacher, args.setting, args.variant)  # a misspelt name fails before JAX loads
    from procurl.devices import use_device

    use_device(args.device)
    import procurl

    options = sort_options(args.set, args.setting, args.teacher)
    config = configured(presets.preset(args.setting, args.variant), options)
    env, space = procurl.make(args.setting, **options["env"])
    teacher = procurl.make_teacher(args.teacher, space, variant=args.variant, **options["teacher"])
    steps = setting.steps if args.steps is None else args.steps

    plan = {
        "env": env, "teacher": teacher, "config": config, "seeds": args.seeds, "steps": steps, "out": args.out,
    }  # fmt: skip
    title = f"{args.setting}, {args.teacher}"
    if args.engine == "sb3":
        if args.fresh or args.workers is not None:
            raise ConfigError("--fresh and --workers: not with --engine sb3")
        return train_with_progress(f"{title}, Stable-Baselines3", args, sb3_engine().train, **plan)
    return train_with_progress(
        title, args, procurl.train, **plan, resume="never" if args.fresh else "auto",
        time_teacher=not args.quiet and steps >= TEACHER_TIMED_FROM, workers=args.workers,
    )  # fmt: skip


def sb3_engine() -> Any:
    try:
        from procurl.integrations import sb3_engine
    except ModuleNotFoundError as error:
        raise ConfigError(f"--engine sb3 needs {error.name}: pip install 'procurl[sb3]'") from error

    sb3_engine.torch.set_num_threads(1)  # for networks as small as these, more threads are slower
    return sb3_engine


def run_resume(args: argparse.Namespace) -> int:
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


def train_with_progress(title: str, args: argparse.Namespace, train: Callable[..., Any], **plan: Any) -> int:
    """Train, show how it goes, log it, and say how it ended."""
    from procurl.bench.stats import with_error
    from procurl.cli.progress import ProgressLine
    from procurl.integrations.tracking import together
    from procurl.runs.interrupt import leave
    from procurl.runs.means import mean_and_error

    out = plan["out"]
    title += f", {len(plan['seeds'])} seed{'s' if len(plan['seeds']) > 1 else ''}"
    try:
        with ProgressLine(title, quiet=args.quiet) as line, ExitStack() as stack:
            logs = [stack.enter_context(log) for log in open_logs(args, title, plan)]
            result = train(**plan, callback=together(line, *logs))
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


def open_logs(args: argparse.Namespace, title: str, plan: dict[str, Any]) -> Iterator[Any]:
    """The logs that --log names, one after the other: if one cannot be opened, those before it are closed again."""
    if args.log:
        from procurl.integrations.tracking import open_log
        from procurl.runs.provenance import describe

        config = describe(plan["env"], plan["teacher"], plan["config"], tuple(plan["seeds"]), plan["steps"])
        for text in args.log:
            yield open_log(text, out=plan["out"], title=title, config=config, fresh=getattr(args, "fresh", False))


def run_bench(args: argparse.Namespace) -> int:
    from procurl.bench.grid import command

    if args.suite == "status":
        print(printable(command.status(args.folder)))
        return 0
    if args.folder is not None:
        raise ConfigError(
            f"{args.folder}: expected with `procurl bench status` only; the folder of a suite is --out DIR"
        )
    return command.run(args)


def run_evaluate(args: argparse.Namespace) -> None:
    from procurl.devices import use_device
    from procurl.runs.store.result import load_result

    result = load_result(args.run_folder)
    use_device(args.device)
    from procurl.bench.report.tables import evaluate_run

    print(printable(evaluate_run(result, args.episodes, args.deterministic)))


def run_plot(args: argparse.Namespace) -> None:
    from procurl.runs.store import disk
    from procurl.runs.store.result import load_result

    try:
        from procurl.bench.report import figures
    except ModuleNotFoundError as error:
        raise ConfigError(f"plotting needs {error.name}: pip install 'procurl[report]'") from error
    folders = [f for given in args.run_folders for f in run_folders_in(given)]
    results = [load_result(f) for f in folders]
    for path in figures.save_all(
        results, disk.made_folder(args.out), band=args.band, suffix=args.format, published=True
    ):
        print(printable(str(path)))


def run_report(args: argparse.Namespace) -> None:
    from procurl.bench import report
    from procurl.bench.report.studies import collect

    collection = collect(args.paths)
    for problem in collection.problems:
        print(f"procurl: {in_one_line(problem)}", file=sys.stderr)
    if args.markdown:
        from procurl.bench.report import markdown

        print(report.write(args.markdown, markdown.tables(collection)))
    if args.out or not args.markdown:
        print(report.write(args.out or Path("report.html"), report.page(collection)))


def run_watch(args: argparse.Namespace) -> None:
    from procurl.devices import use_cores

    use_cores(1, device="cpu")  # one small network, one observation at a time
    from procurl.bench.watch import watch

    out = args.out or Path(f"{args.run_folder.resolve().name}.gif")
    episodes = watch(
        args.run_folder, out, tasks=args.tasks, contexts=[context_numbers(text) for text in args.context],
        seed=args.seed, episodes=args.episodes, deterministic=not args.stochastic, frames=args.frames, fps=args.fps,
    )  # fmt: skip
    for e in episodes:
        how = "success" if e.success else "no success"
        print(in_one_line(f"{e.chosen.origin} ({e.about}): {e.steps} steps, return {e.ret:.3f}, {how}"))
    print(f"wrote {out} ({out.stat().st_size:,} bytes)")


def run_theory(args: argparse.Namespace) -> None:
    from procurl.devices import use_cores

    use_cores(1, device="cpu")
    try:
        from procurl.bench.theory import command
    except ModuleNotFoundError as error:
        raise ConfigError(f"the figures need {error.name}: pip install 'procurl[report]'") from error
    command.run(args)


def run_check(args: argparse.Namespace) -> int:
    from procurl.devices import use_cores

    use_cores(1, device="cpu")
    from procurl.check import user_code

    text, status = user_code.report(user_code.check(args.target, args.space, args.steps))
    print(text)
    return status


def run_doctor(args: argparse.Namespace) -> int:
    from procurl.cli import installation

    return installation.run(as_json=args.json, quick=args.quick)


def context_numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--context={text}: expected numbers with commas between them, e.g. 2.5,0.7,0") from None


def run_folders_in(given: Path) -> list[Path]:
    """A run folder itself, or all run folders right below a folder."""
    if (given / "manifest.json").is_file():
        return [given]
    found = sorted(p.parent for p in given.glob("*/manifest.json"))
    if not found:
        raise ConfigError(f"{given} is no run folder and holds none (a run folder has a manifest.json)")
    return found


def step_count(text: str) -> int:
    """A number of steps: 5000, 10k, 1M, 2.5M."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?)([kKmM]?)", text.strip().replace("_", ""), re.ASCII)
    if not match:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a number of steps: expected e.g. 5000, 10k or 1M")
    steps = round(float(match[1]) * {"": 1, "k": 1_000, "m": 1_000_000}[match[2].lower()])
    if steps < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is less than one step: expected e.g. 5000, 10k or 1M")
    return steps


def seed_range(text: str) -> range:
    """How many seeds (8 means 0 to 7), or which (8-15)."""
    match = re.fullmatch(r"(\d{1,15})(?:-(\d{1,15}))?", text.strip(), re.ASCII)
    if not match:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a number of seeds: expected e.g. 8, or 8-15")
    first, last = (0, int(match[1]) - 1) if match[2] is None else (int(match[1]), int(match[2]))
    if last < first:
        raise argparse.ArgumentTypeError(f"'{text}' names no seed: expected at least one, e.g. 8, or 8-15")
    try:
        seed_numbers(range(first, last + 1))
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return range(first, last + 1)


def number(text: str) -> int:
    """A whole number."""
    if not re.fullmatch(r"-?\d{1,15}", text.strip(), re.ASCII):
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a whole number: expected e.g. 3")
    return int(text)


def path(text: str) -> Path:
    """A file or folder; an empty name, as an unset variable of a shell gives, would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("'' is an empty name: expected a file or folder")
    return Path(text)


def shown(text: str) -> str:
    return f"'{text}'" if len(text) <= 40 else f"'{text[:40]}...'"
