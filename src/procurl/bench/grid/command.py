"""`procurl bench`: makes a grid of the options, runs it, and says how it ended."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from procurl.bench.grid.cells import cells_of, planned
from procurl.bench.grid.folder import GRID, GridFolder, status_table, summary
from procurl.bench.grid.own import named_on
from procurl.bench.grid.suites import find_suite
from procurl.errors import ConfigError

if TYPE_CHECKING:
    from procurl.bench.grid.executors import Executor


def run(args: argparse.Namespace) -> int:
    """Run a suite; the exit status is 1 if a cell failed."""
    for name, least in (("workers", 1), ("block", 1), ("retries", 0)):
        given = getattr(args, name)
        if given is not None and given < least:
            raise ConfigError(f"--{name} {given}: expected at least {least}")
    if args.address and args.executor != "ray":
        raise ConfigError("--address: expected with --executor ray only")
    settings, teachers, own = named_on(args.settings, args.teachers, args.space)
    if args.executor == "ray" and own.files():
        raise ConfigError(
            f"{own.files()[0]} with --executor ray: the file is on this machine alone. Make a package of it with an "
            f"entry point, and install it on every node"
        )
    suite = find_suite(args.suite).narrowed(
        settings,
        own=[name for name, _ in own.settings],
        teachers=teachers and tuple(teachers),
        seeds=args.seeds and tuple(args.seeds),
        steps=args.steps,
        variant=args.variant,
        block=args.block,
    )
    planned(suite, own)  # a misspelt name fails before anything starts
    from procurl.bench.grid.executors import LocalExecutor, device_found
    from procurl.devices import use_cores

    if args.executor == "ray":
        from procurl.bench.grid.ray_executor import connect

        device = args.device or "cpu"  # a cluster's devices are not ours: a GPU must be asked for
        ray = connect(args.address, args.workers)
    else:
        device = device_found(args.device)
    use_cores(1, device="cpu")  # for this process, which only counts and joins
    from procurl.bench.grid.display import Display
    from procurl.bench.grid.runner import run_grid
    from procurl.runs.store.checkpoint import only_writer

    cells = cells_of(suite, whole=device == "gpu" and args.block is None, own=own)
    folder = GridFolder(args.out or Path("runs") / suite.name, suite.name, cells, own)
    signal.signal(signal.SIGTERM, _terminated)
    folder.prepare()
    with only_writer(folder.path):
        executor: Executor
        if args.executor == "ray":
            from procurl.bench.grid.ray_executor import RayExecutor

            executor = RayExecutor(folder, device, ray)
        else:
            executor = LocalExecutor(folder, device, args.workers)
        try:
            with Display(folder, quiet=args.quiet) as display:
                run_grid(folder, executor, display, args.retries)
        except (KeyboardInterrupt, SystemExit) as cut:
            print(
                f"procurl: interrupted; {summary(folder)}. The same command goes on from there: {folder.path}",
                file=sys.stderr,
            )
            return 130 if isinstance(cut, KeyboardInterrupt) else int(cut.code or 0)
    return _farewell(folder)


def _terminated(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _farewell(folder: GridFolder) -> int:
    failed = [(cell, state) for cell, state in folder.states.items() if state.state == "failed"]
    print(f"{summary(folder)}; results in {folder.path}")
    for cell, state in failed:
        print(f"procurl: {cell.name} failed: {state.error}\n  log: {folder.log(cell)}", file=sys.stderr)
    if failed:
        print("procurl: the same command tries the failed cells again", file=sys.stderr)
    else:
        print(f"`procurl plot {folder.path} --out DIR` draws them")
    return 1 if failed else 0


def status(path: Path | None) -> str:
    """How far a benchmark is, or all of those in runs/."""
    if path is not None:
        return status_table(GridFolder.load(path))
    found = sorted(p.parent for p in Path("runs").glob(f"*/{GRID}"))
    if not found:
        raise ConfigError("there is no benchmark in runs/: expected `procurl bench status DIR`")
    return "\n\n".join(f"{p}\n{status_table(GridFolder.load(p))}" for p in found)
