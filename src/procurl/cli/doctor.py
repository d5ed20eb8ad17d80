"""`procurl doctor`: versions, devices, and a self-test of about a minute."""

from __future__ import annotations

import argparse
from typing import Any


def add(commands: Any) -> None:
    command = commands.add_parser(
        "doctor",
        help="versions, devices, and a self-test of about a minute",
        description="Look at this installation: versions, devices, disk, settings of JAX, and a short training that is "
        "cut and resumed. Exit status 1 if there is a problem. Nothing in it names you or your machine.",
    )
    command.add_argument("--json", action="store_true", help="for a bug report")
    command.add_argument("--quick", action="store_true", help="without the self-test")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from procurl.cli import installation

    return installation.run(as_json=args.json, quick=args.quick)
