"""`procurl bench`: a whole grid of settings, strategies and seeds; or how far one is."""

from __future__ import annotations

import argparse
from typing import Any

from procurl.check.text import printable
from procurl.cli.common import add_common_options, number, path, say_clashes, seed_range, step_count
from procurl.errors import ConfigError


def add(commands: Any) -> None:
    from procurl.bench.grid.suites import SUITES

    command = commands.add_parser("bench", help="a whole grid of settings, strategies and seeds; or how far one is")
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.epilog = "suites:\n" + "\n".join(f"  {suite.name:12} {suite.summary}" for suite in SUITES.values())
    command.add_argument("suite", metavar="SUITE", help="see below, or a file FILE.toml; `status`: how far DIR is")
    command.add_argument("folder", nargs="?", type=path, metavar="DIR", help="with `status`; default: all in runs/")
    command.add_argument("--out", type=path, metavar="DIR", help="default runs/SUITE; what is done there is skipped")
    command.add_argument(
        "--settings", nargs="+", metavar="NAME", help="these of the suite's settings alone, or your own: my.py:MyEnv"
    )
    command.add_argument(
        "--teachers", nargs="+", metavar="NAME",
        help="other strategies; NAME:release for a variant, my.py:MyTeacher for your own",
    )  # fmt: skip
    command.add_argument("--space", metavar="MODULE:NAME", help="tasks of your own settings, as in `procurl train`")
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
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from procurl.bench.grid import command

    if args.suite == "status":
        print(printable(command.status(args.folder)))
        return 0
    if args.folder is not None:
        raise ConfigError(
            f"{args.folder}: expected with `procurl bench status` only; the folder of a suite is --out DIR"
        )
    say_clashes(args.settings or (), args.teachers or ())
    return command.run(args)
