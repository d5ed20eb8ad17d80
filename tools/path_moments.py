"""What a strategy teaches one student, at four moments: the picture of docs/strategies/procurl-path.md.

procurl train point-mass-2g --teacher procurl-path --seeds 8 --steps 1M --out runs/path
python tools/path_moments.py runs/path docs/strategies/images/procurl-path.png --seed 0 --at 0.03 0.3 0.4 0.6
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import procurl
from procurl.runs.store.result import steps_per_iteration

AROUND = 12  # iterations, whose tasks are drawn together


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at", type=float, nargs="+", required=True, help="moments, as shares of the training")
    args = parser.parse_args()
    result = procurl.load_result(args.run)
    row, space = result.seeds.tolist().index(args.seed), result.config["space"]
    context = result.trace["task_context"][row]  # f32[I, k, d]
    n_steps = steps_per_iteration(result.config)
    figure, panels = plt.subplots(1, len(args.at), figsize=(2.6 * len(args.at), 2.7), layout="constrained", sharey=True)
    for axes, share in zip(panels, args.at, strict=True):
        middle = int(share * (len(context) - 1))
        there = context[max(middle - AROUND // 2, 0) :][:AROUND].reshape(-1, context.shape[-1])
        returns = np.interp(middle * n_steps, result.steps, result.ret[row])
        axes.scatter(there[:, 0], there[:, 1], s=7, color="tab:blue", alpha=0.7)
        axes.scatter(*result.held_out["context"][:, :2].T, s=22, marker="x", color="tab:orange")
        axes.set(xlim=(space["low"][0], space["high"][0]), ylim=(space["low"][1], space["high"][1]))
        axes.set_xlabel(space["names"][0].replace("_", " "))
        axes.set_title(f"{middle * n_steps / 1000:,.0f},000 steps\nreturn {returns:.2f}", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel(space["names"][1].replace("_", " "))
    figure.savefig(args.picture, dpi=110)


if __name__ == "__main__":
    main()
