"""Do this package's PPO and Stable-Baselines3's learn alike, with the same tasks, teachers, presets and evaluation?

    python benchmarks/sb3_alike.py --runs FOLDER --engine jax      (256 seeds; a minute on a GPU, an hour on two cores)
    python benchmarks/sb3_alike.py --runs FOLDER --engine sb3      (10 seeds; two minutes each)
    python benchmarks/sb3_alike.py --runs FOLDER --out benchmarks/results

The third line compares: per teacher the area under the learning curve (mean return on held-out target tasks over
training) of both engines, the bootstrap 95 % interval of the difference, and the difference that so many seeds would
have shown with a probability of 80 %. It writes sb3-alike.json and sb3-alike.png; what is in that file stays, so
that the two parts may come from two machines. Runs that were cut off go on.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

import procurl
from procurl.bench.stats import bootstrap_difference, mean_and_error
from procurl.cli.common import step_count
from procurl.runs.store.result import Result, load_result

SEEDS = {"jax": 256, "sb3": 10}
TEACHERS = ("procurl-target", "iid")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True, help="folder of the run folders")
    parser.add_argument("--engine", choices=list(SEEDS), help="train with this one; without it, compare")
    parser.add_argument("--setting", default="point-mass-1t")
    parser.add_argument("--teachers", nargs="+", default=list(TEACHERS))
    parser.add_argument("--seeds", type=int, help=f"default: {SEEDS}")
    parser.add_argument("--steps", type=step_count, default=500_000)
    parser.add_argument("--device", choices=["cpu", "gpu"])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.engine:
        procurl.use_cores(device=args.device)
        for teacher in args.teachers:
            train(args, teacher)
    elif args.out:
        compare(args)
    else:
        parser.error("give --engine to train, or --out to compare")


def folder(args: argparse.Namespace, engine: str, teacher: str) -> Path:
    return args.runs / f"{engine}-{args.setting}-{teacher}"


def train(args: argparse.Namespace, name: str) -> None:
    from procurl.cli.progress import ProgressLine
    from procurl.cli.train import sb3_engine

    out = folder(args, args.engine, name)
    if (out / "manifest.json").exists():
        return
    env, space = procurl.make(args.setting)
    teacher = procurl.make_teacher(name, space)
    engine = sb3_engine().train if args.engine == "sb3" else procurl.train
    with ProgressLine(f"{args.engine} {name}") as line:
        engine(
            env, teacher, procurl.preset(args.setting), seeds=args.seeds or SEEDS[args.engine], steps=args.steps,
            out=out, callback=line,
        )  # fmt: skip


def compare(args: argparse.Namespace) -> None:
    """Add the runs that are there to the file, and compare where both engines have been run."""
    from procurl.bench.report.tables import text_table

    path = args.out / "sb3-alike.json"
    summary: dict = json.loads(path.read_text()) if path.exists() else {"setting": args.setting, "teachers": {}}
    rows = []
    for teacher in args.teachers:
        engines = summary["teachers"].setdefault(teacher, {})
        for engine in SEEDS:
            if (folder(args, engine, teacher) / "manifest.json").exists():
                engines[engine] = row(load_result(folder(args, engine, teacher)))
        if all(engine in engines for engine in SEEDS):
            rows.append([teacher, *compared(engines)])
    head = ["teacher", "area, jax", "area, sb3", "difference, 95 %", "detectable", "final, jax", "final, sb3"]
    print(f"{args.setting}\n\n{text_table(head, rows)}\n")
    for engines in summary["teachers"].values():
        for engine in SEEDS:
            if engine in engines:
                r = engines[engine]
                print(f"{engine}: {r['seeds']} seeds, {r['steps'][-1]:,} steps, {json.dumps(r['provenance'])}")
    args.out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(summary, indent=1) + "\n")
    draw(summary, args.out / "sb3-alike.png")


def compared(engines: dict) -> list[str]:
    """Cells of the table; the numbers also go into `engines`."""
    area = {engine: np.array(engines[engine]["area_per_seed"]) for engine in SEEDS}
    if engines["jax"]["steps"] != engines["sb3"]["steps"]:
        raise SystemExit("the engines were evaluated at different steps: run both with the same --steps")
    low, high = bootstrap_difference(area["sb3"], area["jax"])
    detectable = 2.8 * np.sqrt(sum(a.var(ddof=1) / len(a) for a in area.values()))  # 5 % two-sided, 80 % power
    engines["difference"] = round(float(area["sb3"].mean() - area["jax"].mean()), 4)
    engines["interval"] = [round(float(low), 4), round(float(high), 4)]
    engines["detectable"] = round(float(detectable), 4)
    areas = [f"{m:.3f} +- {e:.3f}" for m, e in (mean_and_error(a) for a in area.values())]
    finals = [mean_and_error(np.array(engines[engine]["final_per_seed"])) for engine in SEEDS]
    return [*areas, f"[{low:+.3f}, {high:+.3f}]", f"{detectable:.3f}", *(f"{m:.3f} +- {e:.3f}" for m, e in finals)]


def row(result: Result) -> dict:
    mean, error = mean_and_error(result.ret)
    return {
        "seeds": len(result.seeds),
        "steps": result.steps.tolist(),
        "mean": np.round(mean, 4).tolist(),
        "standard_error": np.round(error, 4).tolist(),
        "area_per_seed": np.round(result.ret.mean(axis=1), 4).tolist(),
        "final_per_seed": np.round(result.ret[:, -1], 3).tolist(),
        "provenance": result.provenance,
    }


def draw(summary: dict, path: Path) -> None:
    import matplotlib.pyplot as plt

    teachers = summary["teachers"]
    figure, panels = plt.subplots(
        1, len(teachers), figsize=(4.6 * len(teachers), 3.4), layout="constrained", sharey=True
    )
    for axes, (teacher, engines) in zip(np.atleast_1d(panels), teachers.items(), strict=True):
        for (engine, label), colour in zip(
            {"jax": "procurl", "sb3": "Stable-Baselines3"}.items(), ["C0", "C1"], strict=True
        ):
            if engine not in engines:
                continue
            r = engines[engine]
            steps, mean, error = np.array(r["steps"]) / 1e6, np.array(r["mean"]), np.array(r["standard_error"])
            axes.plot(steps, mean, color=colour, label=f"{label}, {r['seeds']} seeds")
            axes.fill_between(steps, mean - error, mean + error, color=colour, alpha=0.2, linewidth=0)
        axes.set_title(f"{summary['setting']}, {teacher}")
        axes.set_xlabel("environment steps (millions)")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, linewidth=0.6)
    np.atleast_1d(panels)[0].set_ylabel("return on target tasks")
    np.atleast_1d(panels)[0].legend(frameon=False)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
