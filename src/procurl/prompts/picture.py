"""A picture of a prompt curriculum: what was dealt and passed over time, and what is believed of all prompts now."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from procurl.check import numbers
from procurl.errors import needs_extra
from procurl.prompts import summary

if TYPE_CHECKING:
    from procurl.prompts.curriculum import PromptCurriculum

# The colours of every figure of procurl; importing them from bench/report/style.py would load JAX.
COLOURS = {"procurl-target": "#D55E00", "procurl-unif": "#E69F00", "uniform": "#000000"}
TARGETS = "#0072B2"


def plot(c: PromptCurriculum, path: str | os.PathLike[str] | None) -> Any:
    with needs_extra("report", "pictures need {}"):
        from matplotlib.figure import Figure
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    rates, similarity, believed = figure.subplots(1, 3)
    records, batches = np.array(c._history.records).reshape(-1, 3), np.array(c._history.batches).reshape(-1, 3)
    rates.plot(smooth(records[:, 1]), color=COLOURS[c.strategy], label="what was played")
    if c._targets is not None:
        rates.plot(records[:, 2], color=TARGETS, linestyle="--", label="targets, as believed")
    rates.set(xlabel="record", ylabel="pass rate", ylim=(0, 1))
    rates.legend(frameon=False)
    if c._targets is not None and c._embeddings is not None:
        similarity.plot(smooth(batches[:, 2]), color=COLOURS[c.strategy], label="what was dealt")
        similarity.axhline(c.summary()["pool_similarity"], color="#999999", linestyle=":", label="all prompts")
        similarity.set(xlabel="batch", ylabel="similarity to the nearest target")
        similarity.legend(frameon=False)
    else:
        similarity.set_axis_off()
    believed.hist(c._posterior(summary._some(c)).mean, bins=np.linspace(0, 1, 21), color=COLOURS[c.strategy])
    believed.set(xlabel="believed pass rate now", ylabel="prompts")
    for axes in (rates, similarity, believed):
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{c.strategy}, {c.n:,} prompts", fontsize=10)
    if path is not None:
        figure.savefig(numbers.path("path", path), dpi=150)
    return figure


def smooth(values: np.ndarray, over: int = 10) -> np.ndarray:
    """The mean of each value and those before it, up to `over` of them."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    end = np.arange(1, len(values) + 1)
    start = np.maximum(end - over, 0)
    return (total[end] - total[start]) / (end - start)
