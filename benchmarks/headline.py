"""The headline comparison: four teachers on the two Point Mass settings, many seeds, minutes on one GPU.

    python benchmarks/headline.py --seeds 256 --steps 1M --out benchmarks/results

Writes, per setting, `headline-SETTING.json`: hardware, versions, the mean return on held-out target tasks over training with
its standard error, and bootstrap 95 % intervals of the differences to ProCuRL-Target at the end. It exits with 1 when an
interval that should exclude 0 does not.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

import procurl
from procurl.bench.stats import bootstrap_difference, mean_and_error
from procurl.cli import step_count

TEACHERS = ("procurl-target", "procurl-unif", "iid", "target")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", default=["point-mass-1t", "point-mass-2g"])
    parser.add_argument("--seeds", type=int, default=256)
    parser.add_argument("--steps", type=step_count, default=1_000_000)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", choices=["cpu", "gpu"])
    args = parser.parse_args()
    procurl.use_cores(device=args.device)
    args.out.mkdir(parents=True, exist_ok=True)
    for setting in args.settings:
        summary = compare(setting, args.seeds, args.steps)
        (args.out / f"headline-{setting}.json").write_text(json.dumps(summary, indent=1) + "\n")
        print(table(summary), flush=True)


def compare(setting: str, n_seeds: int, steps: int) -> dict:
    env, space = procurl.make(setting)
    config = procurl.preset(setting)
    finals, rows = {}, {}
    for name in TEACHERS:
        began = time.perf_counter()
        result = procurl.train(env, procurl.make_teacher(name, space), config, seeds=n_seeds, steps=steps)
        seconds = time.perf_counter() - began
        finals[name] = result.ret[:, -1]
        mean, error = mean_and_error(result.ret)
        rows[name] = {
            "mean": np.round(mean, 4).tolist(),
            "standard_error": np.round(error, 4).tolist(),
            "final_per_seed": np.round(result.ret[:, -1], 3).tolist(),
            "seconds": round(seconds, 1),
            "steps_per_second": round(result.timing["steps_per_second"]),
        }
        print(f"{setting} {name}: {mean[-1]:.3f} +- {error[-1]:.3f} in {seconds:.0f} s", flush=True)
    ours = finals["procurl-target"]
    for name in TEACHERS[1:]:
        interval = bootstrap_difference(ours, finals[name])
        rows[name]["procurl_target_minus_this_95"] = np.round(interval, 4).tolist()
    return {
        "setting": setting,
        "seeds": n_seeds,
        "steps": result.steps.tolist(),
        "date": time.strftime("%Y-%m-%d"),
        "provenance": result.provenance,
        "teachers": rows,
    }


def table(summary: dict) -> str:
    lines = [
        f"{summary['setting']}, {summary['seeds']} seeds, {summary['steps'][-1]} steps, "
        f"{', '.join(summary['provenance']['devices'])}, {summary['date']}",
        "",
        "| teacher | mean return | ProCuRL-Target minus this, 95 % interval |",
        "|---|---|---|",
    ]
    for name, row in summary["teachers"].items():
        interval = row.get("procurl_target_minus_this_95")
        gap = f"[{interval[0]:+.3f}, {interval[1]:+.3f}]" if interval else ""
        lines.append(f"| {name} | {row['mean'][-1]:.3f} +- {row['standard_error'][-1]:.3f} | {gap} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
