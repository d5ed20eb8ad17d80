"""`procurl report`: one page about many runs, or tables for a repository."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from procurl.check.text import in_one_line
from procurl.cli.common import path


def add(commands: Any) -> None:
    command = commands.add_parser("report", help="one page about many runs, or tables for a repository")
    command.add_argument(
        "paths", type=path, nargs="+", metavar="DIR",
        help="run folders, folders that hold them at any depth, or files of benchmarks/compare.py",
    )  # fmt: skip
    command.add_argument("-o", "--out", type=path, metavar="FILE", help="the page (default report.html)")
    command.add_argument("--markdown", type=path, metavar="FILE", help="tables instead, or as well if -o is given")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from procurl.bench import report
    from procurl.bench.report.studies import collect

    collection = collect(args.paths)
    for problem in collection.problems:
        print(f"procurl: {in_one_line(problem)}", file=sys.stderr)
    if args.markdown:
        from procurl.bench.report import markdown

        print(report.write(args.markdown, markdown.tables(collection)))
    if args.out or not args.markdown:
        print(report.write(args.out or Path("report.html"), report.page(collection)))
