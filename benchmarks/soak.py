"""Hours of training, evaluating, saving, cutting and resuming in one process: does memory stay flat?

    make soak                     (or: python benchmarks/soak.py --hours 2 --out soak-output)

Laps go round the strategies and settings below. In a lap a run with a folder is cut by Ctrl-C after one of its
evaluations, chosen at random, is resumed, and ends; its result is read back, and must be to the last bit that of the
first lap with the same strategy and setting. After every lap the process is measured: memory, memory mappings, open
files and threads. The curve is drawn, and the last quarter of the time compared with the second: the first quarter
compiles every program for the first time, and fills what is meant to be kept.
"""

from __future__ import annotations

import argparse
import csv
import gc
import os
import shutil
import signal
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from measure import machine_line

import procurl

SETTINGS = ("point-mass-1t", "maze-plane")
FIELDS = ("hours", "lap", "setting", "strategy", "memory_mb", "mappings", "open_files", "threads")
ALLOWED_GROWTH = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--out", type=Path, default=Path("soak-output"))
    parser.add_argument("--steps", type=int, default=51_200)
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    if not Path("/proc/self/status").exists():
        sys.exit("this script reads the process's memory from /proc, which this system does not have")
    procurl.use_cores(device="cpu")

    args.out.mkdir(parents=True, exist_ok=True)
    began, rng, first, rows = time.time(), np.random.default_rng(0), {}, []
    pairs = [(setting, strategy) for setting in SETTINGS for strategy in procurl.TEACHERS]
    with (args.out / "soak.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, FIELDS)
        table.writeheader()
        while time.time() - began < 3600 * args.hours:
            setting, strategy = pairs[len(rows) % len(pairs)]
            outcome = lap(setting, strategy, args, rng)
            if not same(first.setdefault((setting, strategy), outcome), outcome):
                sys.exit(f"lap {len(rows)}: {strategy} on {setting} ended differently than in its first lap")
            values = ((time.time() - began) / 3600, len(rows), setting, strategy, *measured())
            rows.append(dict(zip(FIELDS, values, strict=True)))
            table.writerow(rows[-1])
            file.flush()
            print(
                "  ".join(f"{k} {v:.2f}" if isinstance(v, float) else f"{k} {v}" for k, v in rows[-1].items()),
                flush=True,
            )
    draw(rows, args.out / "soak.png")
    report(rows)


def lap(setting: str, strategy: str, args: argparse.Namespace, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """One run, cut once and resumed. What it ended with."""
    folder = args.out / "run"
    shutil.rmtree(folder, ignore_errors=True)
    env, space = procurl.make(setting)
    config = procurl.preset(setting)
    n_evaluations = args.steps // (config.ppo.n_steps * config.evaluate_every)
    cut_after = int(rng.integers(1, max(2, n_evaluations)))
    seen = 0

    def cut(_: procurl.Progress) -> None:
        nonlocal seen
        seen += 1
        if seen == cut_after:
            os.kill(os.getpid(), signal.SIGINT)

    def run(callback=None) -> procurl.Result:
        teacher = procurl.make_teacher(strategy, space)
        return procurl.train(
            env, teacher, config, seeds=args.seeds, steps=args.steps, out=folder, save_share=1.0, callback=callback
        )

    try:
        run(cut)
    except KeyboardInterrupt:
        run()
    result = procurl.load_result(folder)
    procurl.load_policy(folder).predict(np.zeros(env.obs_size, np.float32))
    return {"returns": result.task_ret, **{f"params.{k}": v for k, v in result.params.items()}}


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k], equal_nan=True) for k in a)


def measured() -> tuple[float, int, int, int]:
    """Resident memory in MB, memory mappings, open files, threads."""
    gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    mappings = Path("/proc/self/maps").read_text().count("\n")
    return int(status["VmRSS"].split()[0]) / 1024, mappings, len(os.listdir("/proc/self/fd")), int(status["Threads"])


def draw(rows: list[dict], path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 1, sharex=True, figsize=(8, 5), layout="constrained")
    hours = [row["hours"] for row in rows]
    for axis, name, label in (
        (axes[0], "memory_mb", "resident memory (MB)"),
        (axes[1], "mappings", "memory mappings"),
    ):
        axis.plot(hours, [row[name] for row in rows], lw=1)
        axis.set(ylabel=label, ylim=(0, None))
        axis.grid(alpha=0.3)
    axes[1].set_xlabel("hours")
    figure.savefig(path, dpi=120)


def report(rows: list[dict]) -> None:
    from procurl.bench.report.tables import text_table

    total = rows[-1]["hours"]

    def typical(name: str, begin: float, end: float) -> float:
        return statistics.median(row[name] for row in rows if begin * total <= row["hours"] <= end * total)

    lines, grown = [], False
    for name in FIELDS[4:]:
        second, last = typical(name, 0.25, 0.5), typical(name, 0.75, 1.0)
        grown |= last > (1 + ALLOWED_GROWTH) * second
        lines.append([name, f"{second:,.0f}", f"{last:,.0f}", f"{100 * (last / second - 1):+.1f} %"])
    print()
    print(text_table(["median", "second quarter", "last quarter", "change"], lines))
    print(f"\n{len(rows)} laps in {total:.2f} hours, each ended as its first; {machine_line()}")
    if grown:
        sys.exit(f"something grew by more than {100 * ALLOWED_GROWTH:.0f} %")


if __name__ == "__main__":
    main()
