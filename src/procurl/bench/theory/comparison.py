"""All teachers on the same random bandits: the runs behind the table and the figures of `procurl theory`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from procurl.bench.report.tables import text_table
from procurl.bench.theory.bandit import Bandit, Floats, random_bandit
from procurl.bench.theory.learner import OverPotential
from procurl.bench.theory.simulation import Run, simulate, steps_to
from procurl.bench.theory.teachers import TEACHERS, Alignment, TargetOnly, Teacher
from procurl.errors import ConfigError

SEEDS, STEPS = 10, 3000
MOMENTS = (0, 10, 30, 100, 300, 1000, 3000)  # shown in tables
LOW, HIGH = 0.1, 0.9  # quantiles of a band
SMALL = 1e-3  # a gap that counts as solved
VANISHED = 1e-16  # where runs at a linear rate end: beyond, a gap soon is 0


class Comparison(NamedTuple):
    bandit: Bandit  # of the first seed
    runs: dict[str, list[Run]]  # teacher -> one run per seed, constant step size
    scaled: dict[str, Run]  # the same with eta / Z, for the first seed

    def gaps(self, teacher: str) -> Floats:
        """f64[S, T + 1]"""
        return np.stack([run.gap for run in self.runs[teacher]])


def bandit_and_luck(seed: int, **options: Any) -> tuple[Bandit, np.random.Generator]:
    """The bandit of a seed, and a generator for what happens in it."""
    tasks, luck = np.random.default_rng(seed).spawn(2)
    return random_bandit(tasks, **options), luck


def compare(seeds: int = SEEDS, steps: int = STEPS) -> Comparison:
    if seeds < 1 or steps < 1:
        raise ConfigError(f"procurl theory: {seeds} seeds of {steps} steps, expected at least one of each")
    runs = {name: repeated(teacher, range(seeds), steps) for name, teacher in TEACHERS.items()}
    bandit, luck = bandit_and_luck(0)
    scaled_teachers: dict[str, Teacher] = {"gradient alignment": Alignment(), "target only": TargetOnly()}
    scaled = {
        name: until_vanished(simulate(bandit, teacher, min(steps, 500), luck, step_size=OverPotential()))
        for name, teacher in scaled_teachers.items()
    }
    return Comparison(bandit, runs, scaled)


def repeated(teacher: Teacher, seeds: Sequence[int], steps: int, **options: Any) -> list[Run]:
    """One run per seed, each in a bandit of its own; `options` as `simulate` takes them."""
    runs = []
    for seed in seeds:
        bandit, luck = bandit_and_luck(seed)
        runs.append(simulate(bandit, teacher, steps, luck, **options))
    return runs


def until_vanished(run: Run) -> Run:
    """The run as far as its gap is at least 1e-16."""
    n = int(min(steps_to(run.gap, VANISHED), len(run.gap)))
    return Run(
        run.gap[:n], run.value[:n], run.theta[:n], run.picks[: n - 1], run.difficulty[: n - 1], run.correlation[: n - 1]
    )


def table(comparison: Comparison) -> str:
    """Median gap over seeds at some moments, and the steps to a small one."""
    header, rows = gap_rows(comparison)
    return text_table(header, rows)


def gap_rows(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    last = len(next(iter(comparison.runs.values()))[0].gap) - 1
    moments = [t for t in MOMENTS if t <= last]
    header = ["gap after", *map(str, moments), f"steps to {number(SMALL, 1)}"]
    rows = []
    for name in comparison.runs:
        gaps = comparison.gaps(name)
        steps = float(np.median([steps_to(gap, SMALL) for gap in gaps]))
        cells = [number(x) for x in np.median(gaps[:, moments], axis=0)]
        rows.append([name, *cells, f"{steps:.0f}" if np.isfinite(steps) else f"over {last}"])
    name, run = "target only, eta / Z", comparison.scaled["target only"]
    cells = [number(run.gap[t]) if t < len(run.gap) else f"< {number(VANISHED, 1)}" for t in moments]
    return header, [*rows, [name, *cells, f"{steps_to(run.gap, SMALL):.0f}"]]


def number(x: float, digits: int = 2) -> str:
    """Few significant digits: 0.88, 0.012, 1.8e-3, 1e-16."""
    if x == 0 or 0.01 <= abs(x) < 10_000:
        places = digits - 1 - int(np.floor(np.log10(abs(x)))) if x else 0
        return f"{x:.{max(0, places)}f}"
    mantissa, exponent = f"{x:.{digits - 1}e}".split("e")
    return f"{mantissa}e{int(exponent)}"
