"""`procurl sweep`: every combination of some hyper-parameters, in as few programs as can be."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from procurl.check.text import printable
from procurl.cli.common import add_common_options, number
from procurl.cli.options import values_to_sweep
from procurl.cli.train import add_plan, chosen, import_jax, planned
from procurl.errors import ConfigError

MAP = "heat-map.png"


def add(commands: Any) -> None:
    command = commands.add_parser(
        "sweep", help="train with every combination of some hyper-parameters",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add_plan(command)
    command.add_argument(
        "--over", action="append", default=[], metavar="NAME=V,V,...",
        help="values of an option of --set (none of env); may be repeated",
    )  # fmt: skip
    add_common_options(command)
    command.add_argument("--workers", type=number, metavar="N", help="processes that play `bipedal`")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if not args.over:
        raise ConfigError("nothing to sweep over: expected e.g. --over teacher.b=3,5,8")
    import_jax(args)
    setting, teacher = chosen(args)
    over = values_to_sweep(args.over, setting, teacher)
    title, resume = f"{setting.name}, {teacher.name}", "never" if args.fresh else "auto"
    plan = planned(args, setting, teacher)
    return sweep_with_progress(title, args, **plan, over=over, resume=resume, workers=args.workers)


def sweep_with_progress(title: str, args: argparse.Namespace, **plan: Any) -> int:
    """Sweep, show how it goes, and say what came out."""
    from procurl.bench.report.sweeps import best_in_words, table
    from procurl.cli.progress import ProgressLine
    from procurl.runs.interrupt import leave
    from procurl.runs.sweep.sweep import sweep

    out: Path | None = plan["out"]
    try:
        with ProgressLine(f"{title}, sweep", quiet=args.quiet) as line:
            done = sweep(**plan, callback=line)
    except (KeyboardInterrupt, SystemExit) as cut:
        kept = f"; what was done is in {out}: the same command goes on" if out else " (nothing was saved: no --out)"
        print(f"procurl: interrupted{kept}", file=sys.stderr)
        return leave(130 if isinstance(cut, KeyboardInterrupt) else int(cut.code or 0))
    text = table(done)
    print(f"{text}\n\n{best_in_words(done)}")
    if out:
        (out / "table.md").write_text(f"# {title}\n\n{text}\n\n{best_in_words(done)}\n")
        _draw(done, out / MAP)
        print(printable(f"saved to {out}"))
    failed = [f for result in done.results for f in result.failures]
    for result in done.results:
        for failure in result.failures:
            print(f"procurl: {result.provenance['sweep']['point']}, {failure}; it counts as failed", file=sys.stderr)
    return 1 if failed else 0


def _draw(done: Any, where: Path) -> None:
    try:
        from procurl.bench.report.figures import save, sweep_maps
    except ImportError:
        print(f"procurl: no {MAP} without matplotlib: pip install 'procurl[report]'", file=sys.stderr)
        return
    with suppress(ConfigError):  # nothing ended
        save(sweep_maps(done), where)
