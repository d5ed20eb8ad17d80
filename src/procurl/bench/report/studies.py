"""Stored results sorted into studies: one setting, the strategies that were tried on it, all their seeds.

Run folders come one per run, often one per seed; runs that differ in nothing but their seeds are one strategy here.
Nothing is dropped in silence: a folder that cannot be read, a seed that was cut short or is there twice, a strategy
that lacks seeds the others have, each becomes a note that the reports print.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from procurl.bench.grid.folder import GRID, GridFolder, summary
from procurl.bench.report import recorded
from procurl.bench.report.style import NAMES, labels_of
from procurl.errors import ConfigError, RunFolderError
from procurl.runs.store import disk
from procurl.runs.store.checkpoint import SWEEP
from procurl.runs.store.result import Result, load_result, steps_per_iteration
from procurl.runs.sweep.folder import PROGRAMS, read_plan


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
    iteration_steps: int = 0  # environment steps per iteration
    speed: float | None = None  # environment steps per second, the median of the runs
    teacher_share: float | None = None  # of an iteration's time, the median of the runs that timed it
    provenance: list[dict[str, Any]] = field(default_factory=list)  # the different ones
    dates: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def complete(self) -> np.ndarray:
        """bool[S]: seeds with a finite return at every evaluation. The others are counted, never averaged."""
        return np.isfinite(self.final if self.ret is None else self.ret.sum(axis=1))


@dataclass(frozen=True, eq=False)
class Study:
    """One setting and its strategies."""

    title: str
    setting: str
    space: dict[str, Any] | None  # names, low, high, value_range; None where it was not recorded
    strategies: list[Strategy]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Collection:
    """All that was found."""

    studies: list[Study]
    problems: list[str]  # what was found but could not be used
    n_runs: int  # run folders and recorded strategies


def collect(paths: Iterable[str | os.PathLike[str]]) -> Collection:
    """Run folders, folders that hold them at any depth, and files written by benchmarks/compare.py."""
    folders, files, problems = _found([Path(p) for p in paths])
    groups: dict[str, list[_Run]] = defaultdict(list)
    for name, folder in folders.items():
        try:
            run = _digested(name, load_result(folder))
        except RunFolderError as error:
            problems.append(f"{name}: {error}")
        else:
            groups[run.key].append(run)
    by_setting: dict[tuple[str, str], list[list[_Run]]] = defaultdict(list)
    for runs in groups.values():
        config = runs[0].config
        by_setting[config["setting"] or "custom setting", config["space"]["sha256"]].append(runs)
    studies = [
        _study(_title(setting, tasks, by_setting), setting, groups_of)
        for (setting, tasks), groups_of in sorted(by_setting.items(), key=lambda item: item[0])
    ]
    n_runs = sum(len(runs) for runs in groups.values())
    for file in files:
        rows = recorded.read(file)
        if rows:  # other JSON files in these folders hold no results
            studies.append(_recorded_study(file.stem, rows))
            n_runs += len(rows)
    if not studies:
        reasons = "".join(f"\n  {p}" for p in problems)
        raise ConfigError(f"nothing to report: no finished run (a folder with a manifest.json) could be read{reasons}")
    return Collection(studies, [*problems, *_missing_cells(studies)], n_runs)


def _found(paths: list[Path]) -> tuple[dict[str, Path], list[Path], list[str]]:
    """Run folders by a short name, recorded files, and the runs that have not ended."""
    folders: dict[Path, str] = {}
    files: list[Path] = []
    problems: list[str] = []
    for path in paths:
        if path.is_file():
            files.append(path)
        elif not path.is_dir():
            raise ConfigError(f"{path} is not there; expected a run folder, a folder of run folders, or a result file")
        for parent, below, names in os.walk(path):
            below[:] = sorted(name for name in below if not name.startswith("."))
            here = Path(parent)
            short = str(here.relative_to(path)) if here != path else path.resolve().name
            if disk.MANIFEST in names:
                folders.setdefault(here.resolve(), short)
                below.clear()
            elif GRID in names:
                grid = GridFolder.load(here)
                below[:] = [name for name in below if name not in ("cells", "logs")]
                folders |= {p.resolve(): p.name for p in _not_joined(grid)}
                if any(s.state != "done" for s in grid.states.values()):
                    problems.append(f"{short}: unfinished ({summary(grid)}); `procurl bench` goes on with it")
            elif SWEEP in names:
                if any(not (here / name / disk.MANIFEST).exists() for name in read_plan(here)["points"]):
                    problems.append(f"{short}: an unfinished sweep (`procurl resume` goes on with it)")
                below[:] = [name for name in below if name != PROGRAMS]
            elif "checkpoints" in below:
                problems.append(f"{short}: unfinished, left out (`procurl resume` goes on with it)")
                below.clear()
            else:
                files += [here / name for name in sorted(names) if name.endswith(".json")]
    named: dict[str, Path] = {}
    for folder, name in folders.items():
        named[name if name not in named else f"{name} ({len(named)})"] = folder
    return named, list(dict.fromkeys(files)), list(dict.fromkeys(problems))


def _not_joined(grid: GridFolder) -> list[Path]:
    """Cells of a benchmark that are done, and of strategies whose blocks of seeds have not been joined yet."""
    done = [cell for cell, s in grid.states.items() if s.state == "done"]
    return [grid.cell(cell) for cell in done if not grid.merged(cell.group).exists()]


@dataclass(frozen=True, eq=False)
class _Run:
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


def _digested(name: str, result: Result) -> _Run:
    config = {k: v for k, v in result.config.items() if k != "seeds"}
    return _Run(
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
        trace={k: result.trace[k] for k in ("task_context", "target_distance") if k in result.trace},
        failures={f.seed: str(f) for f in result.failures},
    )


def _title(setting: str, tasks: str, by_setting: Iterable[tuple[str, str]]) -> str:
    """The setting's name; where two settings share it, a piece of the hash that tells their tasks apart."""
    return setting if [s for s, _ in by_setting].count(setting) == 1 else f"{setting} (tasks {tasks[:6]})"


def _study(title: str, setting: str, groups: list[list[_Run]]) -> Study:
    labels = labels_of([runs[0].config for runs in groups])
    named = sorted(zip(labels, groups, strict=True), key=lambda pair: pair[0])
    strategies = [_strategy(label, runs) for label, runs in named]
    every_seed = sorted({int(s) for strategy in strategies for s in _seeds_of(strategy)})
    notes = []
    for strategy in strategies:
        lacking = sorted(set(every_seed) - {int(s) for s in _seeds_of(strategy)})
        if lacking:
            notes.append(f"{strategy.label}: no run of {_seed_list(lacking)}, which other strategies have")
    return Study(title, setting, groups[0][0].config["space"], strategies, notes)


def _seeds_of(strategy: Strategy) -> np.ndarray:
    return np.zeros(0, int) if strategy.seeds is None else strategy.seeds


def _strategy(label: str, runs: list[_Run]) -> Strategy:
    """Runs that differ in their seeds alone, joined."""
    steps = np.unique(np.concatenate([run.steps for run in runs]))
    taken: dict[int, str] = {}
    rows, notes = [], []
    for run in runs:
        for row, seed in enumerate(run.seeds.tolist()):
            if seed in taken:
                notes.append(f"seed {seed} is in {taken[seed]} and again in {run.name}: the first is used")
            else:
                taken[seed] = run.name
                rows.append((seed, run, row))
    rows.sort(key=lambda item: item[0])
    ret, success = (_aligned(rows, steps, which) for which in ("ret", "success"))
    complete = np.isfinite(ret).all(axis=1)
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
        seeds=np.array([seed for seed, _, _ in rows]),
        ret=ret,
        success=success,
        held_out=runs[0].held_out if same_tasks else None,
        task_ret=np.mean([run.task_ret[row] for run, row in per_task], axis=0) if per_task else None,
        task_success=np.mean([run.task_success[row] for run, row in per_task], axis=0) if per_task else None,
        contexts=contexts,
        iterations=iterations,
        distance=distance,
        iteration_steps=steps_per_iteration(config),
        speed=float(np.median(speeds)) if speeds else None,
        teacher_share=float(np.median(shares)) if shares else None,
        provenance=list({json.dumps(run.provenance, sort_keys=True): run.provenance for run in runs}.values()),
        dates=sorted({str(run.timing["began"])[:10] for run in runs if "began" in run.timing}),
        notes=[*notes, *_shortfalls(rows, complete, int(steps[-1]))],
    )


def _aligned(rows: list[tuple[int, _Run, int]], steps: np.ndarray, which: str) -> np.ndarray:
    """f64[S, E] on common steps; NaN where a run was not evaluated."""
    table = np.full((len(rows), len(steps)), np.nan)
    for k, (_, run, row) in enumerate(rows):
        table[k, np.searchsorted(steps, run.steps)] = getattr(run, which)[row]
    return table


def _shortfalls(rows: list[tuple[int, _Run, int]], complete: np.ndarray, last: int) -> list[str]:
    notes = []
    cut = [(seed, run) for (seed, run, _), ok in zip(rows, complete, strict=True) if not ok]
    if cut:
        why = ", ".join(sorted({run.provenance.get("status", "unknown") for _, run in cut}))
        notes.append(
            f"{_seed_list([seed for seed, _ in cut])}: not evaluated to the end or not finite ({why}); "
            f"left out of the curve and the statistics"
        )
        notes += [run.failures[seed] for seed, run in cut if seed in run.failures]
    planned = rows[0][1].config.get("steps", last)
    if last < planned:
        notes.append(f"ended at {last:,} of {planned:,} planned steps")
    return notes


def _seed_list(seeds: list[int]) -> str:
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
    rows: list[tuple[int, _Run, int]],
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


def _recorded_study(stem: str, rows: list[recorded.RecordedRun]) -> Study:
    first = rows[0]
    name = stem.removesuffix(f"-{first.setting}")
    student = f", {first.student} student" if first.student else ""
    strategies = [
        Strategy(
            label=_recorded_label(row), teacher=row.teacher["class"], config={"teacher": row.teacher, **row.config},
            steps=row.steps, final=row.final, mean=row.mean, error=row.error, area=row.area, held_out=row.held_out,
            contexts=row.contexts, iterations=row.iterations, distance=row.distance,
            iteration_steps=row.iteration_steps, speed=row.speed, teacher_share=row.teacher_share,
            provenance=[row.provenance] if row.provenance else [], dates=[row.date] if row.date else [],
        )
        for row in rows
    ]  # fmt: skip
    return Study(f"{first.setting} ({name}{student})", first.setting, first.space, strategies)


def _recorded_label(row: recorded.RecordedRun) -> str:
    name = NAMES.get(row.teacher["class"], row.teacher["class"])
    return f"{name} ({row.variant})" if row.variant else name


def _missing_cells(studies: list[Study]) -> list[str]:
    """Strategies that were run on some settings and not on others; recorded files are whole in themselves."""
    runs = [s for s in studies if any(strategy.seeds is not None for strategy in s.strategies)]
    every = {strategy.teacher for study in runs for strategy in study.strategies}
    notes = []
    for study in runs:
        lacking = sorted(NAMES.get(t, t) for t in every - {strategy.teacher for strategy in study.strategies})
        if lacking:
            notes.append(f"{study.title}: no run of {', '.join(lacking)}, which other settings have")
    return notes
