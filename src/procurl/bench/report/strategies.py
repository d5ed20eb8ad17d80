"""Runs that differ in their seeds alone, joined into one strategy: a line of a table, a curve of a plot.

A run that was cut short is drawn as far as it came where there is nothing else, and never averaged or compared: its
last return is one of another number of steps.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from procurl.runs.store.result import Result, steps_per_iteration

TRACED = ("task_context", "target_distance", "effective_share", "box_distance", "steps")
EVEN = 0.9  # effective share above which tasks were as good as uniform


@dataclass(frozen=True, eq=False)
class Strategy:
    """One teacher with its hyper-parameters on one setting. S seeds, E evaluations, I iterations, H held-out tasks.

    What was not recorded is None; what is missing of a seed is NaN.
    """

    label: str  # for people, unique within the study
    teacher: str  # its class: one colour everywhere
    config: dict[str, Any]  # of its runs, seeds left out
    steps: np.ndarray  # i64[E]
    final: np.ndarray  # f64[S]  return on the target at the end; NaN for a seed that did not get there
    cut: np.ndarray  # bool[S]  seeds of runs that ended before their planned steps, for another reason than failure
    mean: np.ndarray | None = None  # f64[E]  only where `ret` was not recorded
    error: np.ndarray | None = None  # f64[E]  standard error of that mean
    area: tuple[float, float] | None = None  # mean over training and its standard error, only without `ret`
    seeds: np.ndarray | None = None  # i64[S]
    ret: np.ndarray | None = None  # f64[S, E]
    success: np.ndarray | None = None  # f64[S, E]
    held_out: np.ndarray | None = None  # f32[H, d]  contexts
    task_ret: np.ndarray | None = None  # f64[H]  at the end, mean over the seeds that got there
    task_success: np.ndarray | None = None  # f64[H]
    contexts: np.ndarray | None = None  # f32[n, d]  of tasks that were chosen
    iterations: np.ndarray | None = None  # i64[n]  when
    distance: np.ndarray | None = None  # f64[I, d]  of the chosen tasks to the nearest target, mean over seeds
    taught: str | None = None  # whether there was a curriculum at all, in a sentence
    iteration_steps: int = 0  # environment steps per iteration
    speed: float | None = None  # environment steps per second, the median of the runs
    teacher_share: float | None = None  # of an iteration's time, the median of the runs that timed it
    provenance: list[dict[str, Any]] = field(default_factory=list)  # the different ones
    dates: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def complete(self) -> np.ndarray:
        """bool[S]: seeds that got to the end, finite at every evaluation. The others are counted, never averaged."""
        return np.isfinite(self.final if self.ret is None else self.ret.sum(axis=1)) & ~self.cut

    @property
    def drawn(self) -> np.ndarray:
        """bool[S]: seeds whose mean is the curve. Where no seed got to the end, those that came furthest."""
        if self.ret is None or self.complete.any():
            return self.complete
        return self.cut & np.isfinite(self.ret).all(axis=1)

    @property
    def planned(self) -> int:
        """Steps that its runs were to have."""
        return int(self.config.get("steps", self.steps[-1]))

    @property
    def is_unfinished(self) -> bool:
        """None of its runs got to its planned steps."""
        return "loop" not in self.config.get("config", {}) and int(self.steps[-1]) < self.planned


@dataclass(frozen=True, eq=False)
class Run:
    """What a report needs of a run; the rest, weights included, is dropped as soon as the folder is read."""

    name: str
    key: str
    config: dict[str, Any]
    provenance: dict[str, Any]
    timing: dict[str, Any]
    seeds: np.ndarray
    steps: np.ndarray
    ret: np.ndarray  # f64[S, E]
    success: np.ndarray  # f64[S, E]
    task_ret: np.ndarray  # f64[S, H]  at the end
    task_success: np.ndarray  # f64[S, H]
    held_out: np.ndarray
    trace: dict[str, np.ndarray]
    failures: dict[int, str]  # seeds that failed, and how

    @property
    def is_cut(self) -> bool:
        """Ended before its planned steps, by Ctrl-C, a signal or a callback; not because all of its seeds failed.

        A loop of somebody's own has no plan: it ends when it ends.
        """
        is_planned = "loop" not in self.config["config"]
        return is_planned and self.end < int(self.config["steps"]) and len(self.failures) < len(self.seeds)

    @property
    def end(self) -> int:
        """Steps at its last evaluation."""
        return int(self.steps[-1])


def where_cut(run: Run, compared_at: int | None) -> str:
    """`compared_at`: see `strategy_of`."""
    where = f"{run.end:,} of {run.config['steps']:,} steps"
    counts = "compared there, with the others" if run.end == compared_at else "it is in no statistics and not ranked"
    return (
        f"{run.name}: cut short ({run.provenance['status']}) after {where}: {counts} (`procurl resume` goes on with it)"
    )


def digested(name: str, result: Result) -> Run:
    config = {k: v for k, v in result.config.items() if k != "seeds"}
    return Run(
        name=name,
        key=json.dumps(config, sort_keys=True),
        config=config,
        provenance=result.provenance,
        timing=result.timing,
        seeds=result.seeds,
        steps=result.steps,
        ret=result.ret.astype(float),
        success=result.success.astype(float),
        task_ret=result.task_ret[:, -1].astype(float),
        task_success=result.task_success[:, -1].astype(float),
        held_out=result.held_out["context"],
        trace={k: result.trace[k] for k in TRACED if k in result.trace},
        failures={f.seed: str(f) for f in result.failures},
    )


def compared_at(groups: list[list[Run]]) -> int | None:
    """Where no run of a setting got to its end, and all strategies came equally far, they can be compared there."""
    ends = {max(run.end for run in runs) for runs in groups}
    everything_cut = all(run.is_cut for runs in groups for run in runs)
    return ends.pop() if everything_cut and len(ends) == 1 and len(groups) > 1 else None


def strategy_of(label: str, runs: list[Run], compared_at: int | None = None) -> Strategy:
    """Runs that differ in their seeds alone, joined. `compared_at`: steps after which a run that was cut has ended."""
    steps = np.unique(np.concatenate([run.steps for run in runs]))
    taken: dict[int, str] = {}
    rows, notes = [], []
    for run in sorted(runs, key=lambda run: run.is_cut):  # of a seed that is there twice, the one that ended counts
        for row, seed in enumerate(run.seeds.tolist()):
            if seed in taken:
                notes.append(f"seed {seed} is in {taken[seed]} and again in {run.name}: the first is used")
            else:
                taken[seed] = run.name
                rows.append((seed, run, row))
    rows.sort(key=lambda item: item[0])
    ret, success = (_aligned(rows, steps, which) for which in ("ret", "success"))
    cut = np.array([run.is_cut and run.end != compared_at and seed not in run.failures for seed, run, _ in rows])
    complete = np.isfinite(ret).all(axis=1) & ~cut
    ended = [(run, row) for (_, run, row), ok in zip(rows, complete, strict=True) if ok]
    same_tasks = all(run.held_out.shape == runs[0].held_out.shape for run in runs)
    per_task = ended if same_tasks else []
    contexts, iterations, distance = _curriculum(rows)
    shares = [run.timing["teacher_share_timed_alone"] for run in runs if run.timing.get("teacher_share_timed_alone")]
    speeds = [run.timing["steps_per_second"] for run in runs if run.timing.get("steps_per_second")]
    config = runs[0].config
    return Strategy(
        label=label,
        teacher=config["teacher"]["class"],
        config=config,
        steps=steps,
        final=np.where(complete, ret[:, -1], np.nan),
        cut=cut,
        seeds=np.array([seed for seed, _, _ in rows]),
        ret=ret,
        success=success,
        held_out=runs[0].held_out if same_tasks else None,
        task_ret=np.mean([run.task_ret[row] for run, row in per_task], axis=0) if per_task else None,
        task_success=np.mean([run.task_success[row] for run, row in per_task], axis=0) if per_task else None,
        contexts=contexts,
        iterations=iterations,
        distance=distance,
        taught=words_about([run.trace for run in runs]),
        iteration_steps=_iteration_steps(runs),
        speed=float(np.median(speeds)) if speeds else None,
        teacher_share=float(np.median(shares)) if shares else None,
        provenance=list({json.dumps(run.provenance, sort_keys=True): run.provenance for run in runs}.values()),
        dates=sorted({str(run.timing["began"])[:10] for run in runs if "began" in run.timing}),
        notes=[*notes, *_shortfalls(rows, complete, cut)],
    )


def words_about(traces: list[dict[str, np.ndarray]]) -> str | None:
    """Whether there was a curriculum; None where that was not recorded."""
    known = [t for t in traces if np.isfinite(t.get("effective_share", np.nan)).any()]
    if not known:
        return None
    share = float(np.mean([np.nanmean(t["effective_share"]) for t in known]))
    if share >= EVEN:
        return f"no curriculum: as good as uniform tasks (effective share {share:.2f})"
    tenth = max(min(t["box_distance"].shape[1] for t in known) // 10, 1)
    first, last = (
        np.mean([np.nanmean(t["box_distance"][:, part]) for t in known])
        for part in (slice(None, tenth), slice(-tenth, None))
    )
    return (
        f"as many tasks as {share:.0%} of the pool (effective share, mean over training); distance to the targets "
        f"{first:.2f} of the box at first, {last:.2f} in the end"
    )


def _iteration_steps(runs: list[Run]) -> int:
    """Environment steps of an iteration; of an update, where a loop of somebody's own has counted them itself."""
    counted = [run.trace["steps"][:, -1] / run.trace["steps"].shape[1] for run in runs if "steps" in run.trace]
    return round(float(np.mean(np.concatenate(counted)))) if counted else steps_per_iteration(runs[0].config)


def _aligned(rows: list[tuple[int, Run, int]], steps: np.ndarray, which: str) -> np.ndarray:
    """f64[S, E] on common steps; NaN where a run was not evaluated."""
    table = np.full((len(rows), len(steps)), np.nan)
    for k, (_, run, row) in enumerate(rows):
        table[k, np.searchsorted(steps, run.steps)] = getattr(run, which)[row]
    return table


def _shortfalls(rows: list[tuple[int, Run, int]], complete: np.ndarray, cut: np.ndarray) -> list[str]:
    """Why some seeds are in no average: they failed, or their run was cut, at some number of steps."""
    notes = []
    broken = [(seed, run) for (seed, run, _), bad in zip(rows, ~complete & ~cut, strict=True) if bad]
    if broken:
        why = ", ".join(sorted({run.provenance.get("status", "unknown") for _, run in broken}))
        notes.append(
            f"{seed_list([seed for seed, _ in broken])}: not evaluated to the end or not finite ({why}); "
            f"left out of the curve and the statistics"
        )
        notes += [run.failures[seed] for seed, run in broken if seed in run.failures]
    ends: dict[tuple[int, str], list[int]] = defaultdict(list)
    for (seed, run, _), was_cut in zip(rows, cut, strict=True):
        if was_cut:
            ends[int(run.steps[-1]), run.provenance.get("status", "unknown")].append(seed)
    planned = rows[0][1].config["steps"]
    notes += [
        f"{seed_list(seeds)}: cut short after {last:,} of {planned:,} planned steps ({why}); left out of the statistics"
        for (last, why), seeds in sorted(ends.items())
    ]
    return notes


def seed_list(seeds: list[int]) -> str:
    """seed 3; seeds 0-4, 7; a long list is cut."""
    ranges: list[list[int]] = []
    for seed in seeds:
        if ranges and seed == ranges[-1][1] + 1:
            ranges[-1][1] = seed
        else:
            ranges.append([seed, seed])
    shown = [f"{a}" if a == b else f"{a}-{b}" for a, b in ranges[:12]]
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(shown)}{', ...' if len(ranges) > 12 else ''}"


def _curriculum(
    rows: list[tuple[int, Run, int]],
) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None]:
    """Contexts of the chosen tasks with their iterations, and the mean distance to the target per iteration."""
    traced = [(run.trace, row) for _, run, row in rows if "task_context" in run.trace]
    if not traced:
        return None, None, None
    contexts, iterations = [], []
    for trace, row in traced:
        context = trace["task_context"][row]  # f32[I, k, d]
        began = np.isfinite(context[..., 0])
        contexts.append(context[began])
        iterations.append(np.nonzero(began)[0])
    distances = [trace["target_distance"][row] for trace, row in traced if "target_distance" in trace]
    return np.concatenate(contexts), np.concatenate(iterations), _mean_of_ragged(distances)


def _mean_of_ragged(rows: list[np.ndarray]) -> np.ndarray | None:
    """Mean of f[I, d] arrays whose I differ, over those that are finite; NaN where none is."""
    if not rows:
        return None
    total = np.zeros((max(len(r) for r in rows), rows[0].shape[-1]))
    count = np.zeros_like(total)
    for row in rows:
        finite = np.isfinite(row)
        total[: len(row)] += np.where(finite, row, 0.0)
        count[: len(row)] += finite
    return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
