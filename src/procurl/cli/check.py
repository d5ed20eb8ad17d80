"""`procurl check`: an environment, teacher or task space of your own against its contract."""

from __future__ import annotations

import argparse
from typing import Any

from procurl.cli.common import step_count


def add(commands: Any) -> None:
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
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from procurl.devices import use_cores

    use_cores(1, device="cpu")
    from procurl.check import user_code

    text, status = user_code.report(user_code.check(args.target, args.space, args.steps))
    print(text)
    return status
