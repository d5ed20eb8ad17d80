"""`procurl theory`: the paper's analysis, run: teachers in its contextual bandit."""

from __future__ import annotations

import argparse
from typing import Any

from procurl.cli.common import number, path, step_count
from procurl.errors import needs_extra


def add(commands: Any) -> None:
    command = commands.add_parser("theory", help="the paper's analysis, run: teachers in its contextual bandit")
    command.add_argument("--seeds", type=number, metavar="N", help="random bandits (default 10)")
    command.add_argument("--steps", type=step_count, metavar="N", help="of the student (default 3000)")
    command.add_argument("--out", type=path, metavar="DIR", help="where the figures go (default .)")
    command.add_argument("--page", type=path, metavar="FILE", help="write docs/theory.md instead, with its figures")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from procurl.devices import use_cores

    use_cores(1, device="cpu")
    with needs_extra("report", "the figures need {}"):
        from procurl.bench.theory import command
    command.run(args)
