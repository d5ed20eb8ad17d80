"""`procurl plot`: learning curves and curricula of runs, and the paper's figures."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from procurl.check.text import printable
from procurl.cli.common import path
from procurl.errors import ConfigError, needs_extra


def add(commands: Any) -> None:
    command = commands.add_parser("plot", help="learning curves and curricula of runs, and the paper's figures")
    command.add_argument("run_folders", type=path, nargs="+", metavar="DIR", help="run folders, or folders of them")
    command.add_argument("--out", type=path, default=Path("."), metavar="DIR", help="where the pictures go (default .)")
    command.add_argument("--band", choices=["se", "ci"], default="se", help="standard error, or 95 %% interval")
    command.add_argument("--format", choices=["png", "pdf"], default="png")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from procurl.runs.store import disk
    from procurl.runs.store.result import load_result

    with needs_extra("report", "plotting needs {}"):
        from procurl.bench.report import figures
    folders = [f for given in args.run_folders for f in run_folders_in(given)]
    results = [load_result(f) for f in folders]
    for written in figures.save_all(
        results, disk.made_folder(args.out), band=args.band, suffix=args.format, published=True
    ):
        print(printable(str(written)))


def run_folders_in(given: Path) -> list[Path]:
    """A run folder itself, or all run folders right below a folder."""
    if (given / "manifest.json").is_file():
        return [given]
    found = sorted(p.parent for p in given.glob("*/manifest.json"))
    if not found:
        raise ConfigError(f"{given} is no run folder and holds none (a run folder has a manifest.json)")
    return found
