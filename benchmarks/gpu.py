"""Whole figures of the paper on one GPU, and steps per second for few and for many seeds.

    python benchmarks/gpu.py panels --out runs/gpu         # 8 strategies x 25 seeds x 2M steps x 2 settings; the maze
    python benchmarks/gpu.py rates --seeds 1 25 64 256 1000
    python benchmarks/gpu.py training --teachers iid currot --seeds 50 --steps 1M
    python benchmarks/gpu.py sweep --seeds 64 --steps 1M    # eight points of ProCuRL-Path in one program

`panels` runs the suites `point-mass` and `maze` of `procurl bench`: all seeds of a strategy are one program, and the
programs share the GPU as processes side by side, since a program of few seeds leaves most of it idle. Where the driver
has its multi-process service (MPS), it is started for that time, so that the processes' kernels overlap. XLA's search
for the fastest kernels is left out: with sixteen programs at once on sixteen cores it took 100 seconds of each, and
saved less. `procurl report runs/gpu` reads what it leaves.

`rates` trains alone, and compares with the arithmetic floor: the operations of the networks over the measured rate of a
large float32 product. `training` and `sweep` take whole runs, evaluations included, one after the other; compiling is
told apart.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from measure import iteration_seconds, machine_line, operations_per_step, product_rate

import procurl
from procurl.cli.common import step_count
from procurl.runs.store.result import Result

SUITES = ("point-mass", "maze")
# Without the search, Triton's products have tiles of 16 x 8: the library's own choice is better.
NO_SEARCH = "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    panels_parser = commands.add_parser("panels")
    panels_parser.add_argument("--suites", nargs="+", default=SUITES)
    panels_parser.add_argument("--out", type=Path, default=Path("runs/gpu"))
    panels_parser.add_argument("--workers", type=int, default=16, help="programs side by side")
    panels_parser.add_argument("--steps", default=None, help="environment steps per seed; default: the paper's")
    rates_parser = commands.add_parser("rates")
    rates_parser.add_argument("--seeds", type=int, nargs="+", default=[1, 25, 64, 256, 1000])
    rates_parser.add_argument("--setting", default="point-mass-1t")
    rates_parser.add_argument("--teacher", default="procurl-target")
    rates_parser.add_argument("--iterations", type=int, default=20)
    training_parser = commands.add_parser("training")
    training_parser.add_argument("--teachers", nargs="+", default=["iid", "currot"])
    sweep_parser = commands.add_parser("sweep")
    for runs_parser, seeds in ((training_parser, 50), (sweep_parser, 64)):
        runs_parser.add_argument("--seeds", type=int, default=seeds)
        runs_parser.add_argument("--setting", default="point-mass-1t")
        runs_parser.add_argument("--steps", type=step_count, default=1_000_000)
    args = parser.parse_args()
    {"panels": panels, "rates": rates, "training": training, "sweep": sweep}[args.command](args)


def panels(args: argparse.Namespace) -> None:
    with sharing_the_gpu() as environment:
        walls = {suite: run_suite(suite, args, environment) for suite in args.suites}
    procurl.use_cores(1, device="gpu")
    from procurl.bench.report.tables import text_table

    rows = []
    for suite, wall in walls.items():
        timings = [json.loads(path.read_text()) for path in sorted((args.out / suite).glob("cells/*/timing.json"))]
        steps = sum(seed_steps(path) for path in (args.out / suite).glob("cells/*/config.json"))
        compiling = [t["compile_seconds"] for t in timings]
        rows.append(
            [suite, str(len(timings)), f"{steps / 1e6:,.0f}M", f"{wall:.0f} s", f"{steps / wall / 1e6:.2f}M",
             f"{min(compiling):.0f} to {max(compiling):.0f} s"]
        )  # fmt: skip
    print()
    print(text_table(["suite", "programs", "steps", "wall time", "steps/s", "of it compiling (each program)"], rows))
    print(f"\n{machine_line()}")


def run_suite(suite: str, args: argparse.Namespace, environment: dict[str, str]) -> float:
    """Seconds of wall time."""
    if (args.out / suite).exists():
        sys.exit(
            f"{args.out / suite} is there already: a resumed benchmark has no time of its own. Choose another --out"
        )
    command = [sys.executable, "-m", "procurl.cli", "bench", suite, "--device", "gpu", "--quiet"]
    command += ["--workers", str(args.workers), "--out", str(args.out / suite)]
    command += ["--steps", args.steps] if args.steps else []
    flags = {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {NO_SEARCH}".strip()}
    began = time.perf_counter()
    subprocess.run(command, check=True, env={**os.environ, **flags, **environment})
    return time.perf_counter() - began


def seed_steps(config: Path) -> int:
    given = json.loads(config.read_text())
    return len(given["seeds"]) * given["steps"]


@contextmanager
def sharing_the_gpu() -> Iterator[dict[str, str]]:
    """The multi-process service, if there is one. Yields the environment that leads to it."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        print("no multi-process service: the processes take turns on the GPU")
        yield {}
        return
    with tempfile.TemporaryDirectory() as folder:
        environment = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        subprocess.run([control, "-d"], check=True, env={**os.environ, **environment})
        try:
            yield environment
        finally:
            subprocess.run([control], input="quit\n", text=True, check=False, env={**os.environ, **environment})


def rates(args: argparse.Namespace) -> None:
    procurl.use_cores(1, device="gpu")
    from procurl.bench.report.tables import text_table
    from procurl.runs.engine import Engine

    env, space = procurl.make(args.setting)
    config = procurl.preset(args.setting)
    peak = product_rate(8192)
    floor = operations_per_step(env, config) / peak
    rows = []
    for seeds in args.seeds:
        engine = Engine(env, procurl.make_teacher(args.teacher, space), config, tuple(range(seeds)))
        compiled, seconds = iteration_seconds(engine, args.iterations)
        rate = config.ppo.n_steps * seeds / seconds
        rows.append(
            [
                f"{seeds:,}",
                f"{1e3 * seconds:.1f} ms",
                f"{rate:,.0f}",
                f"{100 * rate * floor:.1f} %",
                f"{compiled:.0f} s",
            ]
        )
        print(rows[-1], flush=True)
    print(f"\n{args.setting}, {args.teacher}; a large float32 product runs at {peak / 1e12:.1f} TFLOP/s:\n")
    print(text_table(["seeds", "iteration", "steps/s", "of the floor's rate", "first iteration"], rows))
    print(f"\n{machine_line()}")


def training(args: argparse.Namespace) -> None:
    procurl.use_cores(1, device="gpu")
    from procurl.bench.report.tables import text_table

    env, space = procurl.make(args.setting)
    rows, seconds_of_first = [], None
    for name in args.teachers:
        teacher = procurl.make_teacher(name, space)
        result = procurl.train(env, teacher, procurl.preset(args.setting), seeds=args.seeds, steps=args.steps)
        seconds = running_seconds(result)
        seconds_of_first = seconds_of_first or seconds
        rate = f"{result.timing['steps_per_second']:,.0f}"
        relative = f"{seconds / seconds_of_first:.2f}"
        rows.append([name, rate, f"{seconds:.1f} s", relative, f"{result.timing['compile_seconds']:.0f} s"])
        print(rows[-1], flush=True)
    print(f"\n{args.setting}, {args.seeds} seeds, {result.steps[-1]:,} steps:\n")
    print(text_table(["teacher", "steps/s", "running", f"of {args.teachers[0]}'s", "compiling"], rows))
    print(f"\n{machine_line()}")


def sweep(args: argparse.Namespace) -> None:
    procurl.use_cores(1, device="gpu")
    env, space = procurl.make(args.setting)
    teacher = procurl.make_teacher("procurl-path", space)
    over = {"teacher.b": [3.0, 5.0, 8.0, 12.0], "teacher.delta": [0.4, 0.5]}
    found = procurl.sweep(env, teacher, procurl.preset(args.setting), over=over, seeds=args.seeds, steps=args.steps)
    first = found.results[0]  # every point tells the time of the program that they share
    seconds, compiling = running_seconds(first), first.timing["compile_seconds"]
    points, steps = len(found.results), first.steps[-1]
    print(
        f"{args.setting}, {points} points x {args.seeds} seeds x {steps:,} steps: {seconds:.1f} s, "
        f"{points * args.seeds * steps / seconds:,.0f} steps/s, after {compiling:.0f} s of compiling\n{machine_line()}"
    )


def running_seconds(result: Result) -> float:
    """Evaluations included, compiling not."""
    return result.timing["iterating_seconds"] + result.timing["evaluating_seconds"]


if __name__ == "__main__":
    main()
