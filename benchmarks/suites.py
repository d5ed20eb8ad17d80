"""Strategies on a problem of gymnax and one of brax, all seeds of a strategy side by side.

    python benchmarks/suites.py [--teachers procurl-target iid target] [--seeds 16] [--problems gymnax brax]

gymnax: CartPole with poles of 0.1 to 3 (gymnax's has 0.5); the longest one counts. brax: the inverted pendulum under
0.5 to 4 times its gravity; the strongest one counts. Both packages: pip install 'procurl[gymnax,brax]'.
Writes suites-PROBLEM.json: hardware, versions, configuration, and the return on the target over training per seed.
"""

# ruff: noqa: E402  # XLA reads its flags when JAX is imported

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import procurl

procurl.use_cores(2, device="cpu")

from measure import machine_line

from procurl import presets, suites
from procurl.bench.stats import area_under_curve, mean_and_error, with_error
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
    machine = machine_line(problem)
    print(f"{name} --context {context} --target {target}, {len(args.seeds)} seeds\n{machine}", flush=True)
    path = args.out / f"suites-{problem}.json"
    rows = recorded(path, args.seeds, args.steps or steps)
    for teacher in (name for name in args.teachers if name not in rows):
        began = time.perf_counter()
        made = procurl.make_teacher(teacher, space)
        result = procurl.train(env, made, seeds=args.seeds, steps=args.steps or steps)
        seconds = time.perf_counter() - began
        sound = result.ret[~result.failed]
        areas = area_under_curve(result.steps, sound)
        rows[teacher] = {
            "machine": machine,
            "config": result.config,
            "steps": result.steps.tolist(),
            "return": result.ret.round(3).tolist(),  # [seed][evaluation]
            "failed": result.failed.tolist(),
            "seconds": round(seconds, 1),
        }
        final, area = (with_error(*mean_and_error(x)) for x in (sound[:, -1], areas))
        print(f"  {teacher:16} final {final}, mean over training {area}, {seconds:.0f} s", flush=True)
        written = {"problem": name, "context": context, "target": target, "teachers": rows}
        path.write_text(json.dumps(written) + "\n")


def recorded(path: Path, seeds: range, steps: int) -> dict:
    """The strategies that the file holds already, if it is of the same seeds and length: a cut comparison goes on."""
    if not path.exists():
        return {}
    rows = json.loads(path.read_text())["teachers"]
    for name, row in rows.items():
        if row["config"]["seeds"] != list(seeds) or row["steps"][-1] < steps:
            raise SystemExit(f"{path} holds {name} with other seeds or fewer steps: give another --out")
    return rows


if __name__ == "__main__":
    main()
