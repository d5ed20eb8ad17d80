"""What a curriculum would propose now, drawn over the context."""

from __future__ import annotations

from typing import Any

import numpy as np

from procurl.bench.report.figures.canvas import plt, words
from procurl.check.numbers import whole
from procurl.runs.curriculum import Curriculum

MOST = 100_000


def plot_curriculum(curriculum: Curriculum, n: int = 500) -> Any:
    """A matplotlib figure of n tasks that `curriculum.preview` proposes now, the pool behind them, and the targets.

    One dimension: histograms. Two or more: the first two, as dots. Labels: bars. Nothing is used up by looking.
    """
    space = curriculum.teacher.space
    proposed = curriculum.preview(whole("n", n, 1, MOST)).context
    pool, targets = np.asarray(space.pool.context), np.asarray(space.targets.context)
    figure, axes = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
    if space.labels:
        _bars(axes, space.labels, proposed[:, 0], targets[:, 0])
    elif space.dim == 1:
        bins = np.linspace(float(space.low[0]), float(space.high[0]), 31).tolist()
        axes.hist(pool[:, 0], bins, density=True, color="0.85", label="pool")
        axes.hist(proposed[:, 0], bins, density=True, color="tab:blue", alpha=0.7, label="proposed now")
        for k, target in enumerate(np.unique(targets[:, 0])[:20]):
            axes.axvline(target, color="tab:red", linewidth=1.2, label="target" if k == 0 else None)
        axes.set_ylabel("density")
    else:
        axes.scatter(pool[:, 0], pool[:, 1], s=4, color="0.85", label="pool")
        axes.scatter(proposed[:, 0], proposed[:, 1], s=9, color="tab:blue", alpha=0.6, label="proposed now")
        axes.scatter(targets[:, 0], targets[:, 1], s=45, marker="x", color="tab:red", label="targets")
        axes.set_ylabel(words(space.names[1]))
    axes.set_xlabel(words(space.names[0]))
    axes.set_title(f"after {curriculum.updates} update{'' if curriculum.updates == 1 else 's'}")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return figure


def _bars(axes: Any, labels: tuple[str, ...], proposed: np.ndarray, targets: np.ndarray) -> None:
    share = np.bincount(proposed.astype(int), minlength=len(labels)) / len(proposed)
    wanted = np.isin(np.arange(len(labels)), targets.astype(int))
    axes.bar(labels, share, color=["tab:red" if w else "tab:blue" for w in wanted], alpha=0.7)
    axes.bar(labels[:1], [0.0], color="tab:red", alpha=0.7, label="a target")
    axes.set_ylabel("share of the proposals")
