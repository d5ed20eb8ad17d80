"""Stored results sorted into studies: one setting, the strategies that were tried on it, all their seeds.

Run folders come one per run, often one per seed; runs that differ in nothing but their seeds are one strategy here.
Nothing is dropped in silence: a folder that cannot be read, a run that was cut short, a seed that is there twice, a
strategy that lacks seeds the others have, each becomes a note that the reports print.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from procurl.bench.report import recorded
from procurl.bench.report.finding import found
from procurl.bench.report.strategies import Run, Strategy, compared_at, digested, seed_list, strategy_of, where_cut
from procurl.bench.report.style import NAMES, labels_of
from procurl.errors import ConfigError, RunFolderError
from procurl.runs.store.result import load_result


@dataclass(frozen=True, eq=False)
class Study:
    """One setting and its strategies."""

    title: str
    setting: str
    space: dict[str, Any] | None  # names, low, high, value_range; None where it was not recorded
    strategies: list[Strategy]
    notes: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)  # runs that were cut short, and where


@dataclass(frozen=True, eq=False)
class Collection:
    """All that was found."""

    studies: list[Study]
    problems: list[str]  # what was found but could not be used
    n_runs: int  # run folders and recorded strategies
    n_cut: int = 0  # run folders among them that were cut short


def collect(paths: Iterable[str | os.PathLike[str]]) -> Collection:
    """Run folders, folders that hold them at any depth, and files written by benchmarks/compare.py."""
    folders, files, problems = found([Path(p) for p in paths])
    groups: dict[str, list[Run]] = defaultdict(list)
    for name, folder in folders.items():
        try:
            run = digested(name, load_result(folder))
        except RunFolderError as error:
            problems.append(f"{name}: {error}")
        else:
            groups[run.key].append(run)
    by_setting: dict[tuple[str, str], list[list[Run]]] = defaultdict(list)
    for runs in groups.values():
        config = runs[0].config
        by_setting[config["setting"] or "custom setting", config["space"]["sha256"]].append(runs)
    studies = [
        _study(_title(setting, tasks, by_setting), setting, groups_of)
        for (setting, tasks), groups_of in sorted(by_setting.items(), key=lambda item: item[0])
    ]
    cut = [text for study in studies for text in study.cut]
    n_runs = sum(len(runs) for runs in groups.values())
    for file in files:
        rows = recorded.read(file)
        if rows:  # other JSON files in these folders hold no results
            studies.append(_recorded_study(file.stem, rows))
            n_runs += len(rows)
    if not studies:
        reasons = "".join(f"\n  {p}" for p in problems)
        raise ConfigError(f"nothing to report: no finished run (a folder with a manifest.json) could be read{reasons}")
    return Collection(studies, [*problems, *cut, *_missing_cells(studies)], n_runs, len(cut))


def _title(setting: str, tasks: str, by_setting: Iterable[tuple[str, str]]) -> str:
    """The setting's name; where two settings share it, a piece of the hash that tells their tasks apart."""
    return setting if [s for s, _ in by_setting].count(setting) == 1 else f"{setting} (tasks {tasks[:6]})"


def _study(title: str, setting: str, groups: list[list[Run]]) -> Study:
    labels = labels_of([runs[0].config for runs in groups])
    named = sorted(zip(labels, groups, strict=True), key=lambda pair: pair[0])
    together = compared_at(groups)
    strategies = [strategy_of(label, runs, together) for label, runs in named]
    every_seed = sorted({int(s) for strategy in strategies for s in _seeds_of(strategy)})
    notes = [] if together is None else [f"all runs were cut short, and are compared after {together:,} steps"]
    for strategy in strategies:
        lacking = sorted(set(every_seed) - {int(s) for s in _seeds_of(strategy)})
        if lacking:
            notes.append(f"{strategy.label}: no run of {seed_list(lacking)}, which other strategies have")
    cut = [where_cut(run, together) for runs in groups for run in runs if run.is_cut]
    return Study(title, setting, groups[0][0].config["space"], strategies, notes, cut)


def _seeds_of(strategy: Strategy) -> np.ndarray:
    return np.zeros(0, int) if strategy.seeds is None else strategy.seeds


def _recorded_study(stem: str, rows: list[recorded.RecordedRun]) -> Study:
    first = rows[0]
    name = stem.removesuffix(f"-{first.setting}")
    student = f", {first.student} student" if first.student else ""
    strategies = [
        Strategy(
            label=_recorded_label(row), teacher=row.teacher["class"], config={"teacher": row.teacher, **row.config},
            steps=row.steps, final=row.final, cut=np.zeros(len(row.final), bool), mean=row.mean, error=row.error,
            area=row.area, held_out=row.held_out,
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
