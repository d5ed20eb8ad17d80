"""`procurl list`: settings, teachers and their hyper-parameters."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from procurl import installed, presets
from procurl.check.text import printable


def add(commands: Any) -> None:
    command = commands.add_parser("list", help="settings, teachers and their hyper-parameters")
    command.set_defaults(run=run)


WIDTH = max(map(len, [*presets.SETTINGS, *presets.TEACHERS]))  # of a column of names


def run(args: argparse.Namespace) -> None:
    print("Settings")
    for name, setting in presets.SETTINGS.items():
        print(f"  {name:{WIDTH}} {setting.summary}; {setting.steps:,} steps, {setting.seeds} seeds in the paper")
    theirs("setting", presets.SETTINGS)
    print("\nTeachers")
    for name, summary in presets.TEACHERS.items():
        print(f"  {name:{WIDTH}} {summary}")
    theirs("teacher", presets.TEACHERS)
    print("\n`procurl train --help` lists every option that --set takes.")


def theirs(kind: installed.Kind, ours: Iterable[str]) -> None:
    """What installed packages bring, without importing them."""
    for name, package in installed.names(kind, ours).items():
        print(printable(f"  {name:{WIDTH}} of {package}"))
    for clash in installed.clashes(kind, ours):
        print(printable(f"  note: {clash}"))
