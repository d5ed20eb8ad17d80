"""What came out of prompts_grpo.py: tables, the interval that decides, and a picture.

All strategies of a seed share pool, held-out problems and supervised start, so that differences are taken seed by seed
and their interval is a bootstrap over seeds. With eight seeds that is a fifth too short, so Student's stands beside it,
and the interval that takes the two strategies' seeds as unrelated.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats
from arithmetic import FAMILIES, KINDS, TARGET

from procurl.bench.report.style import COLOURS
from procurl.bench.report.tables import text_table
from procurl.bench.stats import area_under_curve, bootstrap_difference, bootstrap_interval, mean_and_error, with_error

Row = dict[str, Any]
NAMES = {
    "uniform": "uniform",
    "target": "target family only",
    "mixed": "a third target family",
    "learnability": "p(1 - p), tried out",
    "procurl-unif-hidden": "ProCuRL-Unif, hidden states",
    "procurl-unif-features": "ProCuRL-Unif, features",
    "procurl-target-hidden": "ProCuRL-Target, hidden states",
    "procurl-target-features": "ProCuRL-Target, features",
}
CLASSES = {  # of the package's, whose colours they have
    "uniform": "IID",
    "target": "Target",
    "mixed": "Target",
    "learnability": "SFL",
    "procurl-unif-hidden": "ProCuRLUnif",
    "procurl-unif-features": "ProCuRLUnif",
    "procurl-target-hidden": "ProCuRLTarget",
    "procurl-target-features": "ProCuRLTarget",
}
DASHED = ("procurl-unif-features", "procurl-target-features", "mixed")
DIFFERENCES = (  # the first two decide
    ("procurl-target-hidden", "procurl-unif-hidden"), ("procurl-target-features", "procurl-unif-features"),
    ("procurl-target-hidden", "uniform"), ("procurl-target-features", "uniform"), ("procurl-target-hidden", "target"),
    ("procurl-target-features", "target"), ("procurl-target-hidden", "mixed"), ("procurl-target-features", "mixed"),
    ("procurl-unif-hidden", "uniform"), ("procurl-unif-features", "uniform"),
    ("procurl-unif-hidden", "learnability"), ("procurl-unif-features", "learnability"), ("learnability", "uniform"),
)  # fmt: skip
OTHERS = ("Student's", "seeds unrelated")  # other intervals
KIND_COLOURS = dict(zip(KINDS, ("#D55E00", "#E69F00", "#999999", "#56B4E9"), strict=True))


def write(rows: list[Row], file: Path, picture: Path | None) -> None:
    """Print and keep the tables of all runs; seeds that some strategy has not finished are left out and named."""
    runs, left_out = complete(rows)
    if not runs:
        print("no seed is complete yet")
        return
    text = f"# GRPO on arithmetic with a curriculum over prompts\n\n{tables(runs)}\n"
    if left_out:
        text += f"\nNot complete, and left out: seeds {', '.join(map(str, left_out))}.\n"
    print(text)
    file.write_text(text)
    if picture:
        draw(runs, picture)


def complete(rows: list[Row]) -> tuple[dict[str, list[Row]], list[int]]:
    """Strategy -> runs in the order of their seeds, of seeds that every strategy in the file has; and other seeds."""
    by_name = {name: {r["seed"]: r for r in rows if r["strategy"] == name} for name in NAMES}
    by_name = {name: runs for name, runs in by_name.items() if runs}
    every = {r["seed"] for r in rows}
    seeds = sorted(every.intersection(*by_name.values())) if by_name else []
    return ({n: [runs[s] for s in seeds] for n, runs in by_name.items()} if seeds else {}), sorted(every - {*seeds})


def curves(runs: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
    """Samples f64[E], alike in all runs but for the last batch, and pass rates on held-out targets f64[S, E]."""
    return np.mean([r["samples"] for r in runs], axis=0), np.array([r["target_pass_rate"] for r in runs])


def measures(runs: Sequence[Row]) -> dict[str, np.ndarray]:
    """One number per seed."""
    samples, rates = curves(runs)
    return {"over training": area_under_curve(samples, rates), "at the end": rates[:, -1]}


def tables(runs: dict[str, list[Row]]) -> str:
    first = next(iter(runs.values()))
    size, start = first[0]["size"], np.array([r["pass_rates"][0] for r in first])
    machines = list(dict.fromkeys(r["machine"] for each in runs.values() for r in each))
    told = (
        f"{len(first)} seeds ({first[0]['seed']} to {first[-1]['seed']}), {size['samples']:,} samples each in groups "
        f"of {first[0]['group']}, width {size['width']}, {size['layers']} layers, {size['batch']} prompts an update. "
        f"The target is {TARGET.name}. {'; '.join(machines)}."
    )
    families = text_table(
        ["family", *(f.name for f in FAMILIES)], [["start", *(f"{x:.3f}" for x in start.mean(axis=0))]]
    )
    outcome = text_table(
        ["strategy", "mean over training", "at the end", "groups that tell", "error of the model"],
        [outcome_row(name, each) for name, each in runs.items()],
    )
    dealt = text_table(["strategy", *(f"{k}, first half -> second" for k in KINDS)], [*map(dealt_row, runs.items())])
    pairs = [p for p in DIFFERENCES if all(name in runs for name in p)]
    differences = text_table(
        ["difference (95 % interval over seeds)", "over training", *OTHERS, "at the end", *OTHERS],
        [difference_row(runs, a, b) for a, b in pairs],
    )
    parts = [
        told,
        f"Pass rates of the supervised starts by family, held-out problems:\n\n{families}",
        f"Pass rate on held-out targets, mean and standard error:\n\n{outcome}",
        f"Differences of the pass rate on held-out targets, the first two of which decide:\n\n{differences}",
        f"What was dealt, in shares:\n\n{dealt}",
    ]
    return "\n\n".join(parts)


def outcome_row(name: str, runs: Sequence[Row]) -> list[str]:
    means = [with_error(*mean_and_error(x)) for x in measures(runs).values()]
    telling = np.mean([sum(r["telling"]) / np.sum(r["dealt"]) for r in runs])
    error = f"{np.mean([r['model_error'][1:] for r in runs]):.3f}" if "model_error" in runs[0] else "-"
    return [NAMES[name], *means, f"{telling:.2f}", error]


def difference(runs: dict[str, list[Row]], a: str, b: str, measure: str) -> tuple[float, np.ndarray, list[np.ndarray]]:
    """Mean of a - b, its interval seed by seed, and two others: Student's, and that of seeds taken as unrelated."""
    x, y = measures(runs[a])[measure], measures(runs[b])[measure]
    mean, error = mean_and_error(x - y)
    student = mean + error * scipy.stats.t.ppf([0.025, 0.975], len(x) - 1)
    return float(mean), bootstrap_interval(x - y), [student, bootstrap_difference(x, y)]


def difference_row(runs: dict[str, list[Row]], a: str, b: str) -> list[str]:
    cells = [f"{NAMES[a]} - {NAMES[b]}"]
    for measure in ("over training", "at the end"):
        mean, paired, others = difference(runs, a, b, measure)
        cells += [f"{mean:+.3f} {in_brackets(paired)}", *map(in_brackets, others)]
    return cells


def in_brackets(interval: np.ndarray) -> str:
    return f"[{interval[0]:+.3f}, {interval[1]:+.3f}]"


def shares(runs: Sequence[Row]) -> np.ndarray:
    """f64[E - 1, kinds]: of what was dealt between two evaluations, the mean over seeds."""
    dealt = np.array([r["dealt"][1:] for r in runs])
    return (dealt / dealt.sum(axis=2, keepdims=True)).mean(axis=0)


def dealt_row(item: tuple[str, list[Row]]) -> list[str]:
    name, runs = item
    halves = [part.mean(axis=0) for part in np.array_split(shares(runs), 2)]
    return [NAMES[name], *(f"{a:.2f} -> {b:.2f}" for a, b in zip(*halves, strict=True))]


def draw(runs: dict[str, list[Row]], path: Path) -> None:
    """Pass rates with intervals, differences, and what was dealt."""
    from procurl.bench.report.figures import canvas

    figure = canvas.plt.figure(figsize=(10.0, 7.6), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(2.4, 1.0))
    left, right = above.subplots(1, 2, width_ratios=(1.25, 1.0))
    draw_curves(left, runs, canvas)
    draw_differences(right, runs, canvas)
    draw_dealt(below, runs)
    canvas.save(figure, path)


def draw_curves(axes: Any, runs: dict[str, list[Row]], canvas: Any) -> None:
    """Bands would cover each other, as seeds differ in their starts: intervals stand at the end, side by side."""
    for place, (name, each) in enumerate(runs.items()):
        samples, rates = curves(each)
        x, mean, colour = samples / 1e3, rates.mean(axis=0), COLOURS[CLASSES[name]]
        axes.plot(x, mean, color=colour, linestyle="--" if name in DASHED else "-", label=NAMES[name])
        end = x[-1] * (1.03 + 0.025 * place)
        axes.plot([end, end], bootstrap_interval(rates[:, -1]), color=colour, linewidth=1.6)
        axes.plot(end, mean[-1], "o", color=colour, markerfacecolor="white" if name in DASHED else colour, markersize=5)
    canvas.finish(axes, "samples drawn (thousands)", f"pass rate on held-out targets ({TARGET.name})")
    seeds = len(next(iter(runs.values())))
    axes.set_title(f"Mean over {seeds} seeds; at the end, its 95 % interval", fontsize=10)
    axes.set_ylim(top=1.3 * axes.get_ylim()[1])  # room for the legend
    axes.legend(frameon=False, fontsize=8, loc="upper left", ncols=2)


def draw_differences(axes: Any, runs: dict[str, list[Row]], canvas: Any) -> None:
    pairs = [p for p in DIFFERENCES if all(name in runs for name in p)]
    for place, (a, b) in enumerate(pairs):
        for shift, measure in ((-0.14, "over training"), (0.14, "at the end")):
            mean, (low, high), _ = difference(runs, a, b, measure)
            colour, inside = COLOURS[CLASSES[a]], "white" if measure == "at the end" else None
            axes.plot([low, high], [place + shift] * 2, color=colour, linewidth=1.6)
            label = measure if place == 0 else None
            axes.plot(mean, place + shift, "o", color=colour, markerfacecolor=inside, markersize=5, label=label)
    axes.axvline(0, color="black", linewidth=0.8)
    short = {n: t.replace("ProCuRL-", "").replace("hidden states", "hidden") for n, t in NAMES.items()}
    axes.set_yticks(range(len(pairs)), [f"{short[a]}\n- {short[b]}" for a, b in pairs], fontsize=7)
    axes.invert_yaxis()
    axes.locator_params(axis="x", nbins=5)
    canvas.finish(axes, "difference of the pass rate", "")
    axes.set_title("Differences, seed by seed, 95 %", fontsize=10)
    axes.legend(frameon=False, fontsize=8, loc="lower right")


def draw_dealt(figure: Any, runs: dict[str, list[Row]]) -> None:
    grid = figure.subplots(1, len(runs), sharey=True, squeeze=False)[0]
    for axes, (name, each) in zip(grid, runs.items(), strict=True):
        samples = np.array(each[0]["samples"][1:]) / 1e3
        axes.stackplot(samples, shares(each).T, colors=list(KIND_COLOURS.values()), labels=list(KIND_COLOURS))
        axes.set(xlim=(samples[0], samples[-1]), ylim=(0, 1), xticks=[round(samples[-1])])
        axes.set_title(NAMES[name].replace(", ", ",\n").replace("target family", "target\nfamily"), fontsize=8)
        axes.tick_params(labelsize=7)
    grid[0].set_ylabel("share dealt", fontsize=8)
    handles, labels = grid[0].get_legend_handles_labels()
    titles = [f"target ({TARGET.name})" if label == TARGET.name else label for label in labels]
    figure.legend(handles, titles, loc="outside lower center", ncols=len(titles), frameon=False, fontsize=8)
