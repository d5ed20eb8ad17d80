"""What several commands take: numbers of steps and seeds, paths, and the options of whatever trains."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from procurl import installed, presets
from procurl.check.numbers import seed_numbers
from procurl.check.text import printable
from procurl.errors import ConfigError

if TYPE_CHECKING:
    from procurl.runs.chosen import Named


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


def add_own_options(command: argparse.ArgumentParser, teacher: bool = False) -> None:
    """For a run that is there: where its classes are, if they are not procurl's. No folder is believed about that."""
    command.add_argument("--env", metavar="MODULE:NAME", help="its environment, if it is your own: my.py:MyEnv")
    if teacher:
        command.add_argument("--teacher", metavar="MODULE:NAME", help="its teacher, if it is your own")
    command.add_argument("--space", metavar="MODULE:NAME", help="the tasks of that environment, as in `procurl train`")


def add_changed(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--changed", action="store_true", help="go on even if the source of its own classes has changed since it began"
    )


def named_in(args: argparse.Namespace) -> Named:
    from procurl.runs.chosen import Named

    return Named(args.env, getattr(args, "teacher", None), args.space)


def say_clashes(settings: Iterable[str], teachers: Iterable[str]) -> None:
    """Names that a user gave and that an installed package has as well as procurl, whose own come first."""
    for name in settings:
        for clash in installed.clashes("setting", presets.SETTINGS, name):
            print(printable(f"procurl: {clash}"), file=sys.stderr)
    for name in teachers:
        for clash in installed.clashes("teacher", presets.TEACHERS, name):
            print(printable(f"procurl: {clash}"), file=sys.stderr)


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
    """A file or folder; an empty name, as an unset shell variable gives, would mean the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("'' is an empty name: expected a file or folder")
    return Path(text)


def shown(text: str) -> str:
    return f"'{text}'" if len(text) <= 40 else f"'{text[:40]}...'"
