"""Strategies against each other, many seeds: tables, learning curves, curricula. Minutes per setting on one GPU.

    python benchmarks/compare.py --name paper --out benchmarks/results                    (all strategies, paper's size)
    python benchmarks/compare.py --name headline --seeds 256 --steps 1M --settings point-mass-1t point-mass-2g \\
        --teachers procurl-target procurl-unif iid target --out benchmarks/results
    python benchmarks/compare.py --name paper --draw --out benchmarks/results             (pictures and tables again)
    python benchmarks/compare.py --name release --student release --settings minigrid --teachers iid --out parts/iid
    python benchmarks/compare.py --name release --settings minigrid --merge parts/* --out benchmarks/results
    python benchmarks/compare.py --name proof --settings maze-2g --merge seeds-1000 seeds-1064 --out ... (further seeds)
    python benchmarks/compare.py --name paper --merge benchmarks/results more --out benchmarks/results (more strategies)
    python benchmarks/compare.py --name paper release --settings minigrid --draw --figure minigrid --out ...
    python benchmarks/compare.py --name start --settings bipedal --record runs/procurl-target runs/iid --out ...

Per setting it writes NAME-SETTING.json (hardware, versions, configs, mean return on held-out target tasks over training
with its standard error, final return and early area per seed, bootstrap 95 % intervals of our lead) and
NAME-SETTING.npz (what the curriculum pictures need; not kept in git).
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import procurl
from procurl import presets
from procurl.bench.stats import area_under_curve, bootstrap_difference, mean_and_error, with_error
from procurl.cli.common import seed_range, step_count
from procurl.runs.store.result import Result, load_result, steps_per_iteration

SEEDS_DRAWN = 8  # whose contexts are kept for the curriculum pictures
SPEEDS = ("steps_per_second", "compile_seconds", "wall_seconds")
ORIGIN = ("date", "provenance", "space")  # stand in a strategy's row where they are not those of the whole file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", nargs="+", default=["comparison"], help="prefix of the files; several with --draw")
    parser.add_argument("--settings", nargs="+", default=["point-mass-1t", "point-mass-2g", "maze-plane"])
    parser.add_argument(
        "--teachers", nargs="+", default=[*presets.TEACHERS, "procurl-target:release"],
        help="NAME or NAME:VARIANT; @pool behind it holds a strategy that invents contexts to the pool",
    )  # fmt: skip
    parser.add_argument("--student", choices=presets.VARIANTS, default="paper", help="whose network")
    parser.add_argument("--seeds", type=seed_range, help="how many, or FIRST-LAST; default: the paper's number")
    parser.add_argument("--steps", type=step_count, help="default: the paper's number")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=Path, help="keep the runs here: a strategy that was cut off goes on")
    parser.add_argument("--device", choices=["cpu", "gpu"])
    parser.add_argument("--images", type=Path, help="with --draw: also a picture of each strategy's contexts, here")
    parser.add_argument("--draw", action="store_true", help="only draw the files that are there")
    parser.add_argument("--figure", help="with --draw: name of the picture of the learning curves; default: NAME")
    parser.add_argument(
        "--merge",
        type=Path,
        nargs="+",
        help="only join the files in these folders, of strategies that ran side by side, or of further seeds",
    )
    parser.add_argument(
        "--record", type=Path, nargs="+", help="only write the files of these run folders, each named as its strategy"
    )
    args = parser.parse_args()
    if args.draw:
        draw(args.name, args.settings, args.out, args.figure or args.name[0], args.images)
        return
    if len(args.name) > 1:
        parser.error("several names go with --draw only")
    args.name = args.name[0]
    args.out.mkdir(parents=True, exist_ok=True)
    if not (args.merge or args.record):
        procurl.use_cores(device=args.device)
    for setting in args.settings:
        if args.record:
            record(f"{args.name}-{setting}", setting, args.record, args.out)
        elif args.merge:
            merge(f"{args.name}-{setting}", args.merge, args.out)
        else:
            compare(setting, args)


def compare(setting: str, args: argparse.Namespace) -> None:
    """Run every strategy and add it to the files, so that a cut comparison keeps what it has and can be completed."""
    from procurl.cli.progress import ProgressLine  # imports JAX, which must come after use_cores

    env, space = procurl.make(setting)
    config = procurl.preset(setting, args.student)
    paper = presets.named_setting(setting)
    seeds, steps = args.seeds or range(paper.seeds), args.steps or paper.steps
    summary = {"setting": setting, "student": args.student, "seeds": len(seeds), "first_seed": seeds[0], "teachers": {}}
    arrays: dict[str, np.ndarray] = {}
    path = args.out / f"{args.name}-{setting}.json"
    if path.exists():
        summary = json.loads(path.read_text())
        require_same_length(path, summary, seeds, steps)
        arrays = traces(path)
    for name in args.teachers:
        strategy, variant, on_pool = parts_of(name)
        around = {"on_pool": True} if on_pool else {}
        teacher = procurl.make_teacher(strategy, space, variant=variant or "paper", **around)
        began = time.perf_counter()
        folder = args.runs and args.runs / f"{args.name}-{setting}-{name.replace(':', '-')}"
        with ProgressLine(f"{setting} {name}") as progress:
            result = procurl.train(env, teacher, config, seeds=seeds, steps=steps, out=folder, callback=progress)
        timed = row(result) | {"wall_seconds": round(time.perf_counter() - began, 1)}
        summary = added(summary, name, timed, about(result))
        arrays |= {f"{name}/{k}": v for k, v in small_trace(result).items()}
        arrays["held_out"] = result.held_out["context"]
        print(f"{setting} {name}: {line(summary['teachers'][name])}", flush=True)
        path.write_text(json.dumps(summary, indent=1) + "\n")
        np.savez_compressed(path.with_suffix(".npz"), **arrays)
    print(table(summary), flush=True)


def require_same_length(path: Path, summary: dict, seeds: range, steps: int) -> None:
    """A comparison that goes on has the seeds and the steps with which it began."""
    held, last = (summary["seeds"], summary.get("first_seed", 0)), summary["steps"][-1]
    if held != (len(seeds), seeds[0]) or not last - summary["n_steps"] < steps <= last:
        raise SystemExit(f"{path} holds {held[0]} seeds from {held[1]} of {last} steps: choose another --name or --out")


def added(summary: dict, name: str, row: dict, origin: dict) -> dict:
    """The summary with one more strategy, which has for itself what it does not share with those before it."""
    summary = summary | {key: value for key, value in origin.items() if key not in summary}
    if "steps" not in row:  # else it has an axis of its own
        summary["steps"] = origin["steps"]
    own = {key: origin[key] for key in ORIGIN if key in origin and origin[key] != summary[key]}
    return {**summary, "teachers": {**summary["teachers"], name: own | row}}


def parts_of(name: str) -> tuple[str, str, bool]:
    """NAME[:VARIANT][@pool] -> strategy, variant, whether it is held to the pool."""
    strategy, _, variant = name.removesuffix("@pool").partition(":")
    return strategy, variant, name.endswith("@pool")


def merge(stem: str, folders: list[Path], out: Path) -> None:
    """One file out of several, with other strategies in each, or the same strategies and the seeds that follow.

    Several parts ran side by side on one device, so their speeds say nothing about a strategy: left out. What `out`
    held before, and a single part that is added to it, keep theirs.
    """
    parts = [json.loads((folder / f"{stem}.json").read_text()) for folder in folders]
    is_new = [folder.resolve() != out.resolve() for folder in folders]
    left_out = SPEEDS if sum(is_new) > 1 else ()
    shared: dict[str, tuple[Path, Any]] = {}
    for folder, part in zip(folders, parts, strict=True):
        for key, value in in_common(part).items():
            first, expected = shared.setdefault(key, (folder, value))
            if value != expected:
                raise SystemExit(f"{folder}: {key} = {value}, but {first} has {expected}")
    blocks = sorted({(part.get("first_seed", 0), part["seeds"]) for part in parts})
    if any(a + n != b for (a, n), (b, _) in pairwise(blocks)):
        raise SystemExit(f"(first seed, seeds) = {blocks}: expected the same seeds everywhere, or blocks that follow")
    teachers: dict[str, list[tuple[dict, dict]]] = {}  # of each block of seeds: the row, and where it comes from
    arrays: dict[str, list[np.ndarray]] = {}
    for block in blocks:
        for folder, part, new in zip(folders, parts, is_new, strict=True):
            if (part.get("first_seed", 0), part["seeds"]) == block:
                origin = {k: part[k] for k in (*ORIGIN, "steps") if k in part}
                for name, r in part["teachers"].items():
                    kept = {k: v for k, v in r.items() if not (new and k in left_out) and k not in ORIGIN}
                    teachers.setdefault(name, []).append((kept, origin | {k: r[k] for k in ORIGIN if k in r}))
                for name, x in traces(folder / f"{stem}.json").items():
                    arrays.setdefault(name, []).append(x)
    sizes = [n for _, n in blocks]
    summary = parts[0] | {"first_seed": blocks[0][0], "seeds": sum(sizes), "teachers": {}}
    for name, rows in teachers.items():
        if len(rows) != len(blocks):
            raise SystemExit(f"{name}: {len(rows)} rows for {len(blocks)} blocks of seeds, expected one for each")
        summary = added(summary, name, along_seeds([r for r, _ in rows], sizes), rows[0][1])
    whole = {name: x[0] if name == "held_out" else np.concatenate(x) for name, x in arrays.items()}
    (out / f"{stem}.json").write_text(json.dumps(summary, indent=1) + "\n")
    np.savez_compressed(out / f"{stem}.npz", **whole)
    print(table(summary))


def in_common(part: dict) -> dict:
    """What strategies of one table share. Not the tasks' hash: other processors round the same tasks otherwise."""
    space = {k: v for k, v in part["space"].items() if k != "sha256"}
    common = {"setting": part["setting"], "student": part.get("student", "paper"), "space": space}
    common |= {"n_steps": part["n_steps"]}
    has_axis = any("steps" not in row for row in part["teachers"].values())
    return common | ({"steps": part["steps"]} if has_axis else {})


def along_seeds(rows: list[dict], sizes: list[int]) -> dict:
    """One strategy's row out of those of several blocks of seeds."""
    if len(rows) == 1:
        return rows[0]
    if "steps" in rows[0]:
        raise SystemExit(f"{rows[0]['teacher']['class']}: blocks of seeds that were evaluated at different steps")

    def pooled(means: list, errors: list) -> tuple[np.ndarray, np.ndarray]:
        n, mean, error = (np.array(x, float) for x in (sizes, means, errors))
        n = n.reshape(-1, *[1] * (mean.ndim - 1))
        centre = (n * mean).sum(0) / n.sum()
        squares = ((n - 1) * n * error**2 + n * (mean - centre) ** 2).sum(0)
        return centre, np.sqrt(squares / (n.sum() - 1) / n.sum())

    mean, error = pooled([r["mean"] for r in rows], [r["standard_error"] for r in rows])
    success, _ = pooled([r["success"] for r in rows], [r["success"] for r in rows])
    area = pooled(*zip(*(r["area"] for r in rows), strict=True))
    return rows[0] | {
        "mean": np.round(mean, 4).tolist(), "standard_error": np.round(error, 4).tolist(),
        "success": np.round(success, 4).tolist(), "area": [round(float(x), 4) for x in area],
        **{k: [x for r in rows for x in r[k]] for k in ("final_per_seed", "early_area_per_seed")},
    }  # fmt: skip


def record(stem: str, setting: str, folders: list[Path], out: Path) -> None:
    """The files of runs that were made by `procurl train`, finished or cut short, with pictures of all of them."""
    from procurl.bench.report import figures

    results = {folder.name: load_result(folder) for folder in folders}
    first = next(iter(results.values()))
    for name, result in results.items():
        same = (result.seeds.tolist(), result.steps.tolist()) == (first.seeds.tolist(), first.steps.tolist())
        if result.config["setting"] != setting or not same:
            raise SystemExit(
                f"{name}: a run of {setting} with the same seeds and evaluations as the first was expected"
            )
    summary = {
        "setting": setting, "student": "paper", "seeds": len(first.seeds),
        **about(first), "date": first.timing["began"][:10],
        "teachers": {name: row(r) | {"status": r.status} for name, r in results.items()},
    }  # fmt: skip
    arrays = {f"{name}/{k}": v for name, r in results.items() for k, v in small_trace(r).items()}
    path = out / f"{stem}.json"
    path.write_text(json.dumps(summary, indent=1) + "\n")
    np.savez_compressed(path.with_suffix(".npz"), held_out=first.held_out["context"], **arrays)
    for picture in figures.save_all(list(results.values()), out):
        picture.rename(out / picture.name.replace(setting, stem, 1))
    print(table(summary))


def traces(path: Path) -> dict[str, np.ndarray]:
    """What the curriculum pictures need, beside this summary; nothing of a comparison that came with git."""
    if not path.with_suffix(".npz").exists():
        return {}
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as kept:
        return dict(kept)


def about(result: Result) -> dict:
    """What the strategies of a comparison have in common."""
    common = {"steps": result.steps.tolist(), "provenance": result.provenance, "space": result.config["space"]}
    return common | {"date": time.strftime("%Y-%m-%d"), "n_steps": steps_per_iteration(result.config)}


def row(result: Result) -> dict:
    mean, error = mean_and_error(result.ret)
    has_axis = (
        "asked" in result.trace
    )  # of its own: it played for its teacher, too, and evaluations are not evenly apart
    area, area_error = mean_and_error(
        area_under_curve(result.steps, result.ret) if has_axis else result.ret.mean(axis=1)
    )
    first = result.steps <= (2_100_000 if result.config["setting"] == "minigrid" else 1_050_000)  # and a last iteration
    early = area_under_curve(result.steps[first], result.ret[:, first])
    return {
        "teacher": result.config["teacher"],
        "mean": np.round(mean.astype(float), 4).tolist(),
        "standard_error": np.round(error.astype(float), 4).tolist(),
        "final_per_seed": np.round(result.ret[:, -1].astype(float), 3).tolist(),
        "success": np.round(result.success.mean(axis=0).astype(float), 4).tolist(),
        "area": [round(float(area), 4), round(float(area_error), 4)],
        "early_area_per_seed": np.round(early.astype(float), 4).tolist(),  # the first 1M steps; MiniG's first 2M
        "steps_per_second": round(result.timing["steps_per_second"]),
        "compile_seconds": result.timing["compile_seconds"],
        **({"steps": result.steps.tolist()} if has_axis else {}),
    }


def small_trace(result: Result) -> dict[str, np.ndarray]:
    """What the curriculum pictures need, in half precision."""
    kept = {
        "context": result.trace["task_context"][:SEEDS_DRAWN].astype(np.float16),
        "distance": result.trace["target_distance"].astype(np.float16),
    }
    return kept | {k: result.trace[k] for k in ("steps",) if k in result.trace}  # where it also played for its teacher


def line(row: dict) -> str:
    return f"{with_error(row['mean'][-1], row['standard_error'][-1])} in {row['wall_seconds']:.0f} s"


def ours(summary: dict) -> str:
    """ProCuRL-Path where it took part, else the ProCuRL-Target that goes with the student."""
    if "procurl-path" in summary["teachers"]:
        return "procurl-path"
    return "procurl-target:release" if summary.get("student") == "release" else "procurl-target"


def leads(summary: dict) -> dict[str, np.ndarray]:
    """95 % interval of our strategy's final return minus each other one's."""
    final = {name: np.array(row["final_per_seed"]) for name, row in summary["teachers"].items()}
    best = final.pop(ours(summary), None)
    return {} if best is None else {name: bootstrap_difference(best, other) for name, other in final.items()}


def table(summary: dict) -> str:
    from procurl.bench.report.tables import text_table

    lead = leads(summary)
    rows = []
    for name, r in sorted(summary["teachers"].items(), key=lambda item: -item[1]["mean"][-1]):
        gap = f"[{lead[name][0]:+.3f}, {lead[name][1]:+.3f}]" if name in lead else ""
        final = with_error(r["mean"][-1], r["standard_error"][-1])
        rows.append([name, final, gap, with_error(*r["area"])])
    head = ["teacher", "final return", f"lead of {ours(summary)}, 95 %", "mean over training"]
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
    trace |= {"steps": arrays[f"{name}/steps"]} if f"{name}/steps" in arrays else {}
    return Result(
        config={
            "setting": summary["setting"], "teacher": r["teacher"], "space": summary["space"],
            "config": {"ppo": {"n_steps": summary["n_steps"]}},
        },
        provenance=summary["provenance"], timing={}, seeds=np.arange(n), steps=np.array(summary["steps"]),
        task_ret=np.zeros((n, 0, 0)), task_success=np.zeros((n, 0, 0)), held_out={"context": arrays["held_out"]},
        trace=trace, params={},
    )  # fmt: skip


def draw(names: list[str], settings: list[str], folder: Path, title: str, images: Path | None) -> None:
    """TITLE.png: learning curves, one panel per setting (and name); NAME-SETTING-curriculum.png and -distance.png."""
    import matplotlib.pyplot as plt

    from procurl.bench.report import figures
    from procurl.bench.report.figures.canvas import shared_legend
    from procurl.teachers import TEACHERS

    parts = [(name, setting) for name in names for setting in settings]
    figure, panels = plt.subplots(
        1, len(parts), figsize=(4.6 * len(parts), 3.4), layout="constrained", squeeze=False, sharey=len(names) > 1
    )
    for axes, (name, setting) in zip(panels[0], parts, strict=True):
        summary = json.loads((folder / f"{name}-{setting}.json").read_text())
        print(table(summary))
        for teacher, r in summary["teachers"].items():
            strategy, variant, on_pool = parts_of(teacher)
            kind = TEACHERS[strategy].__name__
            variant = " ".join(filter(None, [variant, "on the pool" if on_pool else ""]))
            colour, label = figures.COLOURS[kind], f"{figures.NAMES.get(kind, kind)} {variant}".rstrip()
            mean, error = np.array(r["mean"]), np.array(r["standard_error"])
            steps = np.array(r.get("steps", summary["steps"])) / 1e6
            axes.plot(steps, mean, color=colour, label=label, linewidth=1.8, linestyle="--" if variant else "-")
            axes.fill_between(steps, mean - error, mean + error, color=colour, alpha=0.15, linewidth=0)
        student = f", {summary['student']} student" if len(names) > 1 else ""
        axes.set_title(f"{setting}{student}, {summary['seeds']} seeds")
        axes.set_xlabel("environment steps (millions)")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, linewidth=0.6)
        arrays = traces(folder / f"{name}-{setting}.json")
        results = {t: restored(summary, arrays, t) for t in summary["teachers"] if f"{t}/context" in arrays}
        if results:
            shown = ("procurl-path", "procurl-target", "currot", "iid", "target")
            compared = [results[t] for t in shown if t in results]
            lacking = sorted(set(summary["teachers"]) - set(results))
            if lacking:
                print(f"{name}-{setting}: no picture of all curricula, as nothing is kept of {', '.join(lacking)}")
            pictures = {} if lacking else figures.curriculum(setting, list(results.values()))
            if "distance" in pictures and compared:  # of all of them, it would be too full
                pictures["distance"] = figures.distance_to_target(compared)
            for kind, picture in pictures.items():
                picture.savefig(folder / f"{name}-{setting}-{kind}.png", dpi=110)
                plt.close(picture)
            if images is not None:  # one picture per strategy, for its page
                for teacher in sorted(set(results) & set(TEACHERS)):
                    picture = figures.curriculum_scatter([results[teacher]])
                    picture.savefig(images / f"{teacher}.png", dpi=110)
                    plt.close(picture)
    panels[0, 0].set_ylabel("return on target tasks")
    shared_legend(figure, panels, {})
    n_labels = max(len(axes.get_lines()) for axes in panels.flat)
    figure.set_figheight(3.4 + 0.2 * -(-n_labels // 4))
    figure.savefig(folder / f"{title}.png", dpi=130)


if __name__ == "__main__":
    main()
