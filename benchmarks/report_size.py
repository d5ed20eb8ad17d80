"""How long does `procurl report` take for a large grid, and how large is its page?

    python benchmarks/report_size.py                         (5 settings x 8 strategies x 25 seeds: 1000 run folders)
    python benchmarks/report_size.py --browser --keep FOLDER

The run folders are written as real ones are, with made-up learning curves and curricula: what is measured is reading,
statistics and drawing, not learning.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from procurl.bench.report import page, write
from procurl.bench.report.studies import collect
from procurl.runs.store.result import Result

TEACHERS = ("IID", "Target", "ProCuRLUnif", "ProCuRLTarget", "SPDL", "CURROT", "PLR", "GRADIENT")
LOW, HIGH = np.array([-4.0, 0.5, 0.0]), np.array([4.0, 8.0, 4.0])  # a space like Point Mass Sparse
N_STEPS = 5120  # per iteration
TASKS_KEPT = 16
HELD_OUT = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", type=int, default=5)
    parser.add_argument("--strategies", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--iterations", type=int, default=390, help="2M steps")
    parser.add_argument("--browser", action="store_true", help="also open the page in Chromium")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave folders and page there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        home = args.keep or Path(temporary)
        grid = home / "grid"
        if not grid.exists():
            make_grid(grid, args.settings, args.strategies, args.seeds, args.iterations)
        began = time.perf_counter()
        collection = collect([grid])
        read = time.perf_counter()
        out = write(home / "report.html", page(collection))
        done = time.perf_counter()
        print(f"{collection.n_runs} run folders: read in {read - began:.1f} s, page made in {done - read:.1f} s")
        print(f"page: {out.stat().st_size / 1e6:.2f} MB")
        if args.browser:
            print(f"opened and drawn in Chromium in {seconds_to_draw(out):.1f} s")


def make_grid(grid: Path, n_settings: int, n_strategies: int, n_seeds: int, iterations: int) -> None:
    """One run folder per setting, strategy and seed."""
    for k in range(n_settings):
        for teacher in TEACHERS[:n_strategies]:
            for seed in range(n_seeds):
                run = made_up_run(f"setting-{k}", teacher, [seed], iterations=iterations)
                run.save(grid / f"setting-{k}" / teacher / f"seed-{seed}")


def made_up_run(
    setting: str,
    teacher: str,
    seeds: list[int],
    *,
    iterations: int = 20,
    status: str = "finished",
    evaluations: int | None = None,
    low: np.ndarray = LOW,
    high: np.ndarray = HIGH,
    names: tuple[str, ...] = ("gate_position", "gate_width", "friction"),
    **options: Any,
) -> Result:
    """A run whose return rises at a moment of its own, while the tasks move towards the target.

    Args:
        options: of the teacher.
        evaluations: only the first so many, for a run that was cut short.
    """
    rng = np.random.default_rng([TEACHERS.index(teacher) if teacher in TEACHERS else 99, *setting.encode(), *seeds])
    n_seeds, d = len(seeds), len(low)
    at = np.unique([*range(0, iterations, 5), iterations])  # iterations with an evaluation after them
    at = at[:evaluations]
    moment = rng.uniform(0.3, 1.2, (n_seeds, 1, 1)) * iterations
    held_out = np.clip(high - rng.uniform(0, 0.2, (HELD_OUT, d)) * (high - low), low, high)
    ease = rng.uniform(0.5, 1.0, (1, 1, HELD_OUT))
    curve = ease / (1 + np.exp(-(at[None, :, None] - moment) / (0.06 * iterations)))  # f[S, E, H]
    success = np.clip(curve + rng.normal(0, 0.03, curve.shape), 0, 1).astype(np.float32)
    centre = np.linspace(0.3, 0.9, iterations)[None, :, None, None]  # of the tasks, from easy ones to the target
    spread = 0.5 if teacher == "IID" else 0.15
    part = np.clip(centre + rng.normal(0, spread, (n_seeds, iterations, TASKS_KEPT, d)), 0, 1)
    context = (low + part * (high - low)).astype(np.float32)
    distance = np.abs(context - high).mean(axis=2).astype(np.float32)
    config = {
        "setting": setting,
        "env": {"class": "MadeUp"},
        "teacher": {"class": teacher, **options},
        "space": {
            "names": list(names), "low": low.tolist(), "high": high.tolist(), "target": "made up",
            "value_range": [0.0, 1.0], "n_pool": 0, "sha256": setting,
        },
        "action": {"kind": "Continuous"},
        "config": {"ppo": {"n_steps": N_STEPS}},
        "seeds": seeds,
        "steps": iterations * N_STEPS,
    }  # fmt: skip
    rate = 90_000 if teacher == "IID" else float(rng.integers(40_000, 85_000))
    return Result(
        config=config,
        provenance={"status": status, "procurl": "made up", "commit": None, "devices": ["cpu:cpu"]},
        timing={
            "began": "2026-01-01T00:00:00Z",
            "steps_per_second": rate,
            "teacher_share_timed_alone": float(rng.uniform(0, 0.1)),
        },
        seeds=np.array(seeds),
        steps=at * N_STEPS,
        task_ret=success,
        task_success=success,
        held_out={
            "context": held_out.astype(np.float32),
            "seed": np.zeros(HELD_OUT, int),
            "row": np.full(HELD_OUT, -1),
        },
        trace={"task_context": context, "target_distance": distance},
        params={"policy.0.w": rng.normal(size=(n_seeds, 64, 64)).astype(np.float32)},
    )


def seconds_to_draw(path: Path) -> float:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        page = browser.new_page()
        began = time.perf_counter()
        page.goto(path.resolve().as_uri())
        page.locator("#learnt-panels canvas").last.wait_for()  # the last that is drawn
        seconds = time.perf_counter() - began
        browser.close()
    return seconds


def chromium() -> str | None:
    import sys

    sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))
    from chromium import find

    return find()


if __name__ == "__main__":
    main()
