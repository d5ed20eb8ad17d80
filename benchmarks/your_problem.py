"""Does it help on problems that are not the paper's? The scripts of examples/your_problem, with nothing set by hand.

    python benchmarks/your_problem.py --seeds 5 --runs runs/your-problem --out benchmarks/results/your-problem.md

Each script runs with the teacher "auto", with the target alone and with uniform tasks, on the same seeds. For "auto"
the table also says whether there was a curriculum: the chance that its tasks are uniform draws, the effective share of
tasks, and the distance to the targets relative to that of uniform tasks (1: no nearer). Runs that are there are kept.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import procurl
from procurl.runs.taught import Meter
from procurl.types import TaskSpace

FOLDER = Path(__file__).parent.parent / "examples" / "your_problem"
STEPS = {
    "cartpole_a2c": 60_000, "cartpole_ppo": 60_000, "doorkey_ppo": 150_000, "mountain_car_sac": 40_000,
    "numpy_loop": 300_000, "pendulum_sac": 40_000,
}  # fmt: skip
PHASES = 4
TEACHERS = ("auto", "target", "iid")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=sorted(STEPS), choices=sorted(STEPS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    jobs = [(p, t, s) for s in range(args.seeds) for p in args.only for t in TEACHERS]
    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(lambda job: play(args.runs, *job), jobs))
    from measure import machine_line

    from procurl.bench.report.tables import text_table

    head = [
        "problem",
        "return: auto",
        "target alone",
        "uniform",
        "auto - uniform",
        "chance of uniform",
        "share",
        "distance",
    ]
    text = text_table(head, [row(args.runs, problem, args.seeds) for problem in args.only])
    text = f"{text}\n\n{args.seeds} seeds. {machine_line('stable-baselines3', 'gymnasium')}\n"
    print(text)
    if args.out:
        args.out.write_text(f"# Problems that are not the paper's\n\n{text}")


def play(runs: Path, problem: str, teacher: str, seed: int) -> None:
    out = runs / problem / f"{teacher}-{seed}"
    if (out / "manifest.json").exists():
        return
    shutil.rmtree(out, ignore_errors=True)  # cut off: its model is lost, so it begins anew
    command = [sys.executable, str(FOLDER / f"{problem}.py"), teacher, str(seed), str(STEPS[problem]), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    told = [line for line in done.stderr.splitlines() if "curriculum" in line or "Error" in line]
    print(problem, teacher, seed, "done" if done.returncode == 0 else "failed", *told[-2:], flush=True)


def row(runs: Path, problem: str, seeds: int) -> list[str]:
    from procurl.bench.stats import bootstrap_difference, mean_and_error, with_error

    results = {t: [procurl.load_result(runs / problem / f"{t}-{s}") for s in range(seeds)] for t in TEACHERS}
    final = {t: np.array([r.ret[0, -1] for r in each]) for t, each in results.items()}
    meter = Meter(space_of(problem))
    chance = max(chance_of_uniform(meter, r) for r in results["auto"])  # of the least convincing seed
    share = np.mean([np.nanmean(r.trace["effective_share"]) for r in results["auto"]])
    near, far = (np.mean([np.nanmean(r.trace["box_distance"]) for r in results[t]]) for t in ("auto", "iid"))
    low, high = bootstrap_difference(final["auto"], final["iid"])
    means = [with_error(*mean_and_error(final[t])) for t in TEACHERS]
    return [problem, *means, f"[{low:+.3g}, {high:+.3g}]", f"{chance:.1g}", f"{share:.2f}", f"{near / far:.2f}"]


def chance_of_uniform(meter: Meter, result: procurl.Result) -> float:
    """Of the whole and of some phases the most uneven (Bonferroni): a curriculum may pass through all tasks in time."""
    context, rows = result.trace["task_context"][0], result.trace["task_row"][0]
    everything = np.arange(len(rows))
    parts = [everything, *(part for part in np.array_split(everything, PHASES) if len(part))]
    return min(min(meter.chance_of_uniform(context[part], rows[part]) for part in parts) * len(parts), 1.0)


def space_of(problem: str) -> TaskSpace:
    """The task space of a script."""
    sys.path.insert(0, str(FOLDER))
    import cartpole_a2c
    import cartpole_ppo
    import doorkey_ppo
    import mountain_car_sac
    import numpy_loop
    import pendulum_sac

    scripts = (cartpole_a2c, cartpole_ppo, doorkey_ppo, mountain_car_sac, numpy_loop, pendulum_sac)
    return next(script.space for script in scripts if script.__name__ == problem)


if __name__ == "__main__":
    main()
