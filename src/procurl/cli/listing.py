"""`procurl list`: settings, teachers and their hyper-parameters."""

from __future__ import annotations

import argparse
from typing import Any

from procurl import presets


def add(commands: Any) -> None:
    command = commands.add_parser("list", help="settings, teachers and their hyper-parameters")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    print("Settings")
    for name, setting in presets.SETTINGS.items():
        print(f"  {name:16} {setting.summary}; {setting.steps:,} steps, {setting.seeds} seeds in the paper")
    print("\nTeachers")
    for name, summary in presets.TEACHERS.items():
        print(f"  {name:16} {summary}")
    print("\n`procurl train --help` lists every option that --set takes.")
