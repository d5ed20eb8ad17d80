"""`procurl doctor`: versions, devices, and a self-test of about a minute.

JAX is only loaded in other processes (`selftest.py`), so that this one can still report where JAX cannot start. Nothing
in its output names the user or the machine: it can go into a public bug report.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from procurl import __version__

if TYPE_CHECKING:
    from procurl.cli.installation import Line


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
    """Print the findings; 1 if there is a problem."""
    from procurl.cli.installation import private

    lines: list[Line] = []
    shown = ""
    for line in examine(args.quick):
        line = line._replace(text=private(line.text))
        lines.append(line)
        if not args.json:
            if line.section != shown:
                print(line.section if not shown else f"\n{line.section}")
                shown = line.section
            print(f"  {line.status:8} {line.name}: {line.text}", flush=True)
    counts = {status: sum(line.status == status for line in lines) for status in ("problem", "note", "ok")}
    if args.json:
        print(json.dumps({"procurl": __version__, **counts, "lines": [line._asdict() for line in lines]}, indent=1))
    else:
        print(f"\n{counts['problem']} problem(s), {counts['note']} note(s), {counts['ok']} ok")
    return int(counts["problem"] > 0)


def examine(quick: bool) -> Iterator[Line]:
    from procurl.cli import installation, selftest

    yield from installation.versions()
    yield from installation.extras()
    yield from installation.machine()
    yield from installation.variables(os.environ)
    found, error = selftest.child("probe")
    yield from installation.jax_findings(found, error)
    if found is not None and not quick:
        yield from selftest.self_test("cpu")
        if found["backend"] == "gpu":
            yield from selftest.self_test("gpu")
