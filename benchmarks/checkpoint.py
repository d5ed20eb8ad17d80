"""What checkpoints cost, and whether a resumed run equals an uninterrupted one on this machine.

    python benchmarks/checkpoint.py
    python benchmarks/checkpoint.py --setting maze-plane --teachers currot plr --seeds 20 --device gpu

For each strategy: bytes and milliseconds of a save, the share of a run's time that saving took at the default setting,
and the largest difference between the curves, traces and weights of a run and of the same run stopped halfway and
resumed (0 means bitwise equal).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from measure import machine_line

import procurl
from procurl import presets
from procurl.cli.common import step_count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setting", default="point-mass-2g")
    parser.add_argument("--teachers", nargs="+", default=list(presets.TEACHERS))
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=step_count, default=250_000)
    parser.add_argument("--device", choices=["cpu", "gpu"])
    args = parser.parse_args()
    procurl.use_cores(device=args.device)
    from procurl.bench.report.tables import text_table

    env, space = procurl.make(args.setting)
    config = procurl.preset(args.setting)
    rows = []
    for name in args.teachers:
        teacher = procurl.make_teacher(name, space)

        def train(teacher=teacher, **options):
            return procurl.train(env, teacher, config, seeds=args.seeds, steps=args.steps, **options)

        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            train(out=out, callback=lambda progress: progress.steps < args.steps / 2)
            began = time.perf_counter()
            resumed = train(out=out)
            seconds = time.perf_counter() - began
            newest = sorted((out / "checkpoints").iterdir())[-1]
            size = sum(p.stat().st_size for p in newest.iterdir())
        whole = train()
        timing = resumed.timing
        trained = timing["iterating_seconds"] + timing["evaluating_seconds"] + timing["saving_seconds"]
        rows.append(
            [
                name,
                f"{size / 1e6:.2f}",
                f"{1e3 * timing['saving_seconds'] / timing['saves']:.0f}",
                str(timing["saves"]),
                f"{100 * timing['saving_seconds'] / trained:.2f} %",
                f"{difference(whole, resumed):.3g}",
            ]
        )
        print(*rows[-1], f"(resumed half in {seconds:.1f} s)", flush=True)
    header = ["strategy", "MB a save", "ms a save", "saves", "share of the run", "difference after resuming"]
    print()
    print(text_table(header, rows))
    print(f"\n{args.setting}, {args.seeds} seeds, {args.steps:,} steps; {machine_line()}")


def difference(a: procurl.Result, b: procurl.Result) -> float:
    """The largest, over everything that a result holds."""
    pairs = [(a.task_ret, b.task_ret), *((a.trace[k], b.trace[k]) for k in a.trace)]
    pairs += [(a.params[k], b.params[k]) for k in a.params]
    gaps = [np.abs(np.nan_to_num(x.astype(np.float64) - y)) for x, y in pairs]
    return max(float(gap.max(initial=0.0)) for gap in gaps)


if __name__ == "__main__":
    main()
