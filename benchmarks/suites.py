"""Strategies on a problem of gymnax and one of brax, all seeds of a strategy side by side.

    python benchmarks/suites.py [--teachers procurl-target iid target] [--seeds 16] [--problems gymnax brax]

gymnax: CartPole with poles of 0.1 to 3 (gymnax's has 0.5); the longest one counts. brax: the inverted pendulum under
0.5 to 4 times its gravity; the strongest one counts. Both packages: pip install 'procurl[gymnax,brax]'.
Writes suites-PROBLEM.json as compare.py does, and of it comes a section of benchmarks/RESULTS.md; a file that is there
goes on with the strategies that it lacks.
"""

# ruff: noqa: E402  # XLA reads its flags when JAX is imported

from __future__ import annotations

import argparse
import json
import time
from importlib import metadata
from pathlib import Path

import procurl

procurl.use_cores(2, device="cpu")

import compare

from procurl import presets, suites
from procurl.bench.stats import area_under_curve, mean_and_error
from procurl.cli.common import seed_range, step_count

PROBLEMS = {  # name -> (environment, context, target, its fields, steps)
    "gymnax": ("gymnax:CartPole-v1", "length=0.1:3", "length=3", {}, 50_000),
    "brax": ("brax:inverted_pendulum", "gravity=0.5:4", "gravity=4", {"max_steps": 200}, 50_000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--teachers", nargs="+", default=list(presets.TEACHERS))
    parser.add_argument("--seeds", type=seed_range, default=range(16), help="how many, or FIRST-LAST")
    parser.add_argument("--steps", type=step_count, help="default: the problem's")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for problem in args.problems:
        measure(problem, args)


def measure(problem: str, args: argparse.Namespace) -> None:
    name, context, target, fields, steps = PROBLEMS[problem]
    env, space = suites.made(name, context, target, **fields)
    seeds, steps = args.seeds, args.steps or steps
    summary = {"setting": name, "seeds": len(seeds), "first_seed": seeds[0], "teachers": {}}
    path = args.out / f"suites-{problem}.json"
    if path.exists():
        summary = json.loads(path.read_text())
        compare.require_same_length(path, summary, seeds, steps)
    for teacher in (name for name in args.teachers if name not in summary["teachers"]):
        began = time.perf_counter()
        result = procurl.train(env, procurl.make_teacher(teacher, space), seeds=seeds, steps=steps)
        area = mean_and_error(area_under_curve(result.steps, result.ret))  # of three evaluations, or two: SFL's
        row = compare.row(result) | {"area": [round(float(x), 4) for x in area]}
        row["wall_seconds"] = round(time.perf_counter() - began, 1)
        origin = compare.about(result) | {key: result.config[key] for key in ("env", "config")}
        origin["provenance"] |= {problem: metadata.version(problem)}
        summary = compare.added(summary, teacher, row, origin)
        print(f"  {teacher:16} {compare.line(row)}", flush=True)
        path.write_text(json.dumps(summary, indent=1) + "\n")
    print(compare.table(summary), flush=True)


if __name__ == "__main__":
    main()
