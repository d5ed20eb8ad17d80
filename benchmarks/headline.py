"""The headline comparison: four teachers on the two Point Mass settings, many seeds, minutes on one GPU.

    python benchmarks/headline.py --seeds 256 --steps 1M --out benchmarks/results
    python benchmarks/headline.py --draw --out benchmarks/results      (the picture of the README, from the files)

Writes, per setting, `headline-SETTING.json`: hardware, versions, the mean return on held-out target tasks over
training with its standard error, and bootstrap 95 % intervals of the differences to ProCuRL-Target at the end.
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
    parser.add_argument("--draw", action="store_true", help="only draw the files that are there")
    args = parser.parse_args()
    if args.draw:
        draw(args.out, args.settings)
        return
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


def draw(folder: Path, settings: list[str]) -> None:
    """Mean return with its standard error over training, one panel per setting."""
    import matplotlib.pyplot as plt

    from procurl.bench.figures import COLOURS, NAMES
    from procurl.teachers import TEACHERS as CLASSES

    figure, panels = plt.subplots(
        1, len(settings), figsize=(4.6 * len(settings), 3.4), layout="constrained", squeeze=False
    )
    for axes, setting in zip(panels[0], settings, strict=True):
        summary = json.loads((folder / f"headline-{setting}.json").read_text())
        steps = np.array(summary["steps"]) / 1e6
        for name, row in summary["teachers"].items():
            kind = CLASSES[name].__name__
            mean, error = np.array(row["mean"]), np.array(row["standard_error"])
            axes.plot(steps, mean, color=COLOURS[kind], label=NAMES.get(kind, kind), linewidth=1.8)
            axes.fill_between(steps, mean - error, mean + error, color=COLOURS[kind], alpha=0.2, linewidth=0)
        axes.set_title(f"{setting}, {summary['seeds']} seeds")
        axes.set_xlabel("environment steps (millions)")
        axes.set_ylabel("return on target tasks")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, linewidth=0.6)
    panels[0, 0].legend(frameon=False, fontsize=9)
    figure.savefig(folder / "headline.png", dpi=130)


if __name__ == "__main__":
    main()
