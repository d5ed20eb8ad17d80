"""`procurl evaluate`: return per held-out task of a finished run."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from procurl.check.text import printable
from procurl.cli.common import add_own_options, named_in, number, path

if TYPE_CHECKING:
    from procurl.runs.store.result import Result
    from procurl.types import TaskSpace


def add(commands: Any) -> None:
    command = commands.add_parser("evaluate", help="return per held-out task of a finished run")
    command.add_argument("run_folder", type=path, metavar="RUN")
    command.add_argument("--episodes", type=number, default=100, help="per task and seed (default 100)")
    command.add_argument("--deterministic", action="store_true", help="take the most likely action, as for SAC always")
    add_own_options(command)
    command.add_argument("--device", choices=["cpu", "gpu"], help="default: what JAX finds")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from procurl.devices import use_device
    from procurl.runs.store.result import load_result

    result = load_result(args.run_folder)
    use_device(args.device)
    from procurl.bench.evaluate import evaluate_run

    print(printable(evaluate_run(result, args.episodes, args.deterministic, env_of(args, result))))


def env_of(args: argparse.Namespace, result: Result) -> tuple[Any, TaskSpace]:
    """The environment and tasks of a run; it is said if they are not what they were."""
    from procurl.runs.provenance import env_changes, rebuilt_env
    from procurl.runs.store.classes import noted

    notes = noted(result.provenance)
    env, space = rebuilt_env(result.config, notes, named_in(args))
    for change in env_changes(env, result.config, notes):
        print(printable(f"procurl: {change}; the student may have learnt something else"), file=sys.stderr)
    return env, space
