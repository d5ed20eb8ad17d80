"""Does ProCuRL-Path hold what it promises? From the files of `compare.py --name proof`, on seeds that no choice saw.

    python benchmarks/compare.py --name proof --settings point-mass-1t point-mass-2g --seeds 1000-1255 --steps 2M \\
        --teachers procurl-path procurl-target procurl-target:release currot procurl-unif iid --out benchmarks/results
    python benchmarks/proof.py benchmarks/results

Early area: the mean return over the first 1M steps (MiniG 2M). Differences have bootstrap 95 % intervals.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from procurl.bench.report.tables import text_table
from procurl.bench.stats import bootstrap_difference

OURS, RIVAL = "procurl-path", "currot"
TARGETS = ("procurl-target", "procurl-target:release")
GAIN = {"point-mass-1t": 0.40, "point-mass-2g": 0.40, "maze-plane": 0.25, "minigrid": 0.0}  # over ProCuRL-Target
STEPS_TO_HALF = {"point-mass-1t": 0.65, "point-mass-2g": 0.75}  # of ProCuRL-Target's


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--name", default="proof")
    args = parser.parse_args()
    rows = []
    for path in sorted(args.folder.glob(f"{args.name}-*.json")):
        rows += promises(json.loads(path.read_text()))
    print(text_table(["setting", "seeds", "promise", "measured", "95 % interval", "holds"], rows))


def promises(summary: dict) -> list[list[str]]:
    """One row for everything that is promised of a setting, against those rivals that the file holds."""
    setting, teachers = summary["setting"], summary["teachers"]
    early = {name: np.array(row["early_area_per_seed"]) for name, row in teachers.items()}
    same_layouts = "@pool" if setting == "minigrid" else ""
    seeds = f"{summary['seeds']} from {summary.get('first_seed', 0)}"
    targets = [name for name in TARGETS if name in early]
    rows = []

    if targets:
        ours, best = early[f"{OURS}{same_layouts}"], max(targets, key=lambda name: early[name].mean())
        gain, interval = ours.mean() / early[best].mean() - 1, bootstrap_difference(ours, early[best])
        wanted = GAIN.get(setting)
        holds = "" if wanted is None else _yes(gain >= wanted and interval[0] > 0)
        promised = "" if wanted is None else f", at least +{wanted:.0%}"
        rows.append([setting, seeds, f"early area over {best}{promised}", f"{gain:+.0%}", _interval(interval), holds])

    if targets and setting in STEPS_TO_HALF:
        half = {name: _steps_to(0.5, summary["steps"], teachers[name]["mean"]) for name in (OURS, best)}
        ratio = half[OURS] / half[best]
        holds = _yes(ratio <= STEPS_TO_HALF[setting])
        promised = f"steps to a mean return of 0.5, at most {STEPS_TO_HALF[setting]} of {best}'s"
        rows.append([setting, seeds, promised, f"{ratio:.2f}", "", holds])

    for suffix in dict.fromkeys(["", same_layouts]):
        if f"{RIVAL}{suffix}" in early:
            interval = bootstrap_difference(early[f"{OURS}{suffix}"], early[f"{RIVAL}{suffix}"])
            gap = early[f"{OURS}{suffix}"].mean() - early[f"{RIVAL}{suffix}"].mean()
            holds = "ahead" if interval[0] > 0 else _yes(interval[1] >= 0)
            promised = f"early area, not behind {RIVAL}{suffix}"
            rows.append([setting, seeds, promised, f"{gap:+.3f}", _interval(interval), holds])
    return rows


def _steps_to(threshold: float, steps: list[int], mean: list[float]) -> float:
    """Where the mean curve reaches it, between two evaluations by a straight line; infinite if it never does."""
    for k, value in enumerate(mean):
        if value >= threshold:
            if k == 0:
                return float(steps[0])
            share = (threshold - mean[k - 1]) / (value - mean[k - 1])
            return steps[k - 1] + share * (steps[k] - steps[k - 1])
    return float("inf")


def _interval(interval: np.ndarray) -> str:
    return f"[{interval[0]:+.3f}, {interval[1]:+.3f}]"


def _yes(holds: bool) -> str:
    return "yes" if holds else "NO"


if __name__ == "__main__":
    main()
