"""Strategies against each other, many seeds: tables, learning curves, curricula. Minutes per setting on one GPU.

    python benchmarks/compare.py --name paper --out benchmarks/results                    (all strategies, paper's size)
    python benchmarks/compare.py --name headline --seeds 256 --steps 1M --settings point-mass-1t point-mass-2g \\
        --teachers procurl-target procurl-unif iid target --out benchmarks/results
    python benchmarks/compare.py --name paper --draw --out benchmarks/results             (pictures and tables again)

Per setting it writes NAME-SETTING.json (hardware, versions, configs, mean return on held-out target tasks over training
with its standard error, final return per seed, bootstrap 95 % intervals of ProCuRL-Target's lead) and NAME-SETTING.npz
(what the curriculum pictures need; not kept in git).
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

import procurl
from procurl import presets
from procurl.bench.stats import bootstrap_difference, mean_and_error
from procurl.cli import step_count
from procurl.result import Result

SEEDS_DRAWN = 8  # whose contexts are kept for the scatter pictures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="comparison", help="prefix of the files")
    parser.add_argument("--settings", nargs="+", default=["point-mass-1t", "point-mass-2g", "maze-plane"])
    parser.add_argument(
        "--teachers", nargs="+", default=[*presets.TEACHERS, "procurl-target:release"], help="NAME or NAME:VARIANT"
    )
    parser.add_argument("--student", choices=presets.VARIANTS, default="paper", help="whose network")
    parser.add_argument("--seeds", type=int, help="default: the paper's number")
    parser.add_argument("--steps", type=step_count, help="default: the paper's number")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=Path, help="keep the runs here: a strategy that was cut off goes on")
    parser.add_argument("--device", choices=["cpu", "gpu"])
    parser.add_argument("--images", type=Path, help="with --draw: also a picture of each strategy's contexts, here")
    parser.add_argument("--draw", action="store_true", help="only draw the files that are there")
    args = parser.parse_args()
    if not args.draw:
        procurl.use_cores(device=args.device)
        args.out.mkdir(parents=True, exist_ok=True)
        for setting in args.settings:
            compare(setting, args)
    else:
        draw(args.name, args.settings, args.out, args.images)


def compare(setting: str, args: argparse.Namespace) -> None:
    """Run every strategy and add it to the files, so that a cut comparison keeps what it has and can be completed."""
    from procurl.progress import ProgressLine  # imports JAX, which must come after use_cores

    env, space = procurl.make(setting)
    config = procurl.preset(setting, args.student)
    paper = presets.named_setting(setting)
    n_seeds, steps = args.seeds or paper.seeds, args.steps or paper.steps
    summary = {"setting": setting, "seeds": n_seeds, "date": time.strftime("%Y-%m-%d"), "teachers": {}}
    arrays: dict[str, np.ndarray] = {}
    path = args.out / f"{args.name}-{setting}.json"
    if path.exists():
        earlier = json.loads(path.read_text())
        if earlier["seeds"] != n_seeds or earlier["steps"][-1] < steps:
            raise SystemExit(
                f"{path} holds {earlier['seeds']} seeds of {earlier['steps'][-1]} steps: choose another --name"
            )
        summary["teachers"] = earlier["teachers"]
        with np.load(path.with_suffix(".npz"), allow_pickle=False) as kept:
            arrays = dict(kept)
    for name in args.teachers:
        strategy, _, variant = name.partition(":")
        teacher = procurl.make_teacher(strategy, space, variant=variant or "paper")
        began = time.perf_counter()
        folder = args.runs and args.runs / f"{args.name}-{setting}-{name.replace(':', '-')}"
        with ProgressLine(f"{setting} {name}") as progress:
            result = procurl.train(env, teacher, config, seeds=n_seeds, steps=steps, out=folder, callback=progress)
        summary |= {"steps": result.steps.tolist(), "provenance": result.provenance, "space": result.config["space"]}
        summary["n_steps"] = config.ppo.n_steps
        summary["teachers"][name] = row(result) | {"wall_seconds": round(time.perf_counter() - began, 1)}
        arrays |= {f"{name}/{k}": v for k, v in small_trace(result).items()}
        arrays["held_out"] = result.held_out["context"]
        print(f"{setting} {name}: {line(summary['teachers'][name])}", flush=True)
        path.write_text(json.dumps(summary, indent=1) + "\n")
        np.savez_compressed(path.with_suffix(".npz"), **arrays)
    print(table(summary), flush=True)


def row(result: Result) -> dict:
    mean, error = mean_and_error(result.ret)
    area, area_error = mean_and_error(result.ret.mean(axis=1))
    return {
        "teacher": result.config["teacher"],
        "mean": np.round(mean, 4).tolist(),
        "standard_error": np.round(error, 4).tolist(),
        "final_per_seed": np.round(result.ret[:, -1], 3).tolist(),
        "area": [round(float(area), 4), round(float(area_error), 4)],
        "steps_per_second": round(result.timing["steps_per_second"]),
        "compile_seconds": result.timing["compile_seconds"],
    }


def small_trace(result: Result) -> dict[str, np.ndarray]:
    """What the curriculum pictures need, in half precision."""
    return {
        "context": result.trace["task_context"][:SEEDS_DRAWN].astype(np.float16),
        "distance": result.trace["target_distance"].astype(np.float16),
    }


def line(row: dict) -> str:
    return f"{row['mean'][-1]:.3f} +- {row['standard_error'][-1]:.3f} in {row['wall_seconds']:.0f} s"


def leads(summary: dict) -> dict[str, np.ndarray]:
    """95 % interval of ProCuRL-Target's final return minus each other strategy's."""
    final = {name: np.array(row["final_per_seed"]) for name, row in summary["teachers"].items()}
    ours = final.pop("procurl-target", None)
    return {} if ours is None else {name: bootstrap_difference(ours, other) for name, other in final.items()}


def table(summary: dict) -> str:
    from procurl.bench.tables import text_table

    lead = leads(summary)
    rows = []
    for name, r in sorted(summary["teachers"].items(), key=lambda item: -item[1]["mean"][-1]):
        gap = f"[{lead[name][0]:+.3f}, {lead[name][1]:+.3f}]" if name in lead else ""
        final = f"{r['mean'][-1]:.3f} +- {r['standard_error'][-1]:.3f}"
        rows.append([name, final, gap, f"{r['area'][0]:.3f} +- {r['area'][1]:.3f}"])
    head = ["teacher", "final return", "ProCuRL-Target's lead, 95 %", "mean over training"]
    where = ", ".join(sorted(set(summary["provenance"]["devices"])))
    title = (
        f"{summary['setting']}: {summary['seeds']} seeds, {summary['steps'][-1]:,} steps, {where}, {summary['date']}"
    )
    return f"\n{title}\n\n{text_table(head, rows)}"


def restored(summary: dict, arrays: dict[str, np.ndarray], name: str) -> Result:
    """A result with just what the figures read."""
    r = summary["teachers"][name]
    context, distance = (arrays[f"{name}/{k}"].astype(np.float32) for k in ("context", "distance"))
    n = summary["seeds"]
    trace = {"task_context": context, "target_distance": distance, "started": np.zeros(distance.shape[:2])}
    return Result(
        config={
            "setting": summary["setting"], "teacher": r["teacher"], "space": summary["space"],
            "config": {"ppo": {"n_steps": summary["n_steps"]}},
        },
        provenance=summary["provenance"], timing={}, seeds=np.arange(n), steps=np.array(summary["steps"]),
        task_ret=np.zeros((n, 0, 0)), task_success=np.zeros((n, 0, 0)), held_out={"context": arrays["held_out"]},
        trace=trace, params={},
    )  # fmt: skip


def draw(name: str, settings: list[str], folder: Path, images: Path | None) -> None:
    """NAME.png: learning curves, one panel per setting; NAME-SETTING-curriculum.png and -distance.png."""
    import matplotlib.pyplot as plt

    from procurl.bench import figures
    from procurl.teachers import TEACHERS

    figure, panels = plt.subplots(
        1, len(settings), figsize=(4.6 * len(settings), 3.4), layout="constrained", squeeze=False
    )
    for axes, setting in zip(panels[0], settings, strict=True):
        summary = json.loads((folder / f"{name}-{setting}.json").read_text())
        print(table(summary))
        for teacher, r in summary["teachers"].items():
            strategy, _, variant = teacher.partition(":")
            kind = TEACHERS[strategy].__name__
            colour, label = figures.COLOURS[kind], f"{figures.NAMES.get(kind, kind)} {variant}"
            mean, error = np.array(r["mean"]), np.array(r["standard_error"])
            steps = np.array(summary["steps"]) / 1e6
            axes.plot(steps, mean, color=colour, label=label, linewidth=1.8, linestyle="--" if variant else "-")
            axes.fill_between(steps, mean - error, mean + error, color=colour, alpha=0.15, linewidth=0)
        axes.set_title(f"{setting}, {summary['seeds']} seeds")
        axes.set_xlabel("environment steps (millions)")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, linewidth=0.6)
        traces = folder / f"{name}-{setting}.npz"
        if traces.exists():
            with np.load(traces, allow_pickle=False) as arrays:
                results = {t: restored(summary, dict(arrays), t) for t in summary["teachers"]}
            compared = [results[t] for t in ("procurl-target", "currot", "iid", "target") if t in results]
            for kind, picture in (
                ("curriculum", figures.curriculum_scatter(list(results.values()))),
                ("distance", figures.distance_to_target(compared)),
            ):
                picture.savefig(folder / f"{name}-{setting}-{kind}.png", dpi=110)
                plt.close(picture)
            if images is not None:  # one picture per strategy, for its page
                for teacher in sorted(set(results) & set(TEACHERS)):
                    picture = figures.curriculum_scatter([results[teacher]])
                    picture.savefig(images / f"{teacher}.png", dpi=110)
                    plt.close(picture)
    panels[0, 0].set_ylabel("return on target tasks")
    panels[0, 0].legend(frameon=False, fontsize=8)
    figure.savefig(folder / f"{name}.png", dpi=130)


if __name__ == "__main__":
    main()
