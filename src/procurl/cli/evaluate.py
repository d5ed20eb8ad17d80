"""`procurl evaluate`: return per held-out task of a finished run."""

from __future__ import annotations

import argparse
from typing import Any

from procurl.check.text import printable
from procurl.cli.common import number, path


def add(commands: Any) -> None:
    command = commands.add_parser("evaluate", help="return per held-out task of a finished run")
    command.add_argument("run_folder", type=path, metavar="RUN")
    command.add_argument("--episodes", type=number, default=100, help="per task and seed (default 100)")
    command.add_argument("--deterministic", action="store_true", help="take the most likely action")
    command.add_argument("--device", choices=["cpu", "gpu"], help="default: what JAX finds")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from procurl.devices import use_device
    from procurl.runs.store.result import load_result

    result = load_result(args.run_folder)
    use_device(args.device)
    from procurl.bench.evaluate import evaluate_run

    print(printable(evaluate_run(result, args.episodes, args.deterministic)))
