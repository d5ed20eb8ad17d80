"""Runs a grid: skips cells that are done, resumes those that were cut, retries those that failed, joins the seeds.

All results are in run folders, which are written as a whole or not at all. So this may be killed at any time and run
again, and ends with the same results.
"""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections import Counter
from pathlib import Path

from procurl.bench.grid.cells import Cell, Group, groups_of
from procurl.bench.grid.display import Display
from procurl.bench.grid.executors import Executor, Outcome, Report
from procurl.bench.grid.folder import GridFolder
from procurl.errors import RunFolderError
from procurl.runs.store.disk import MANIFEST
from procurl.runs.store.join import joined
from procurl.runs.store.result import load_result

LOSSES = 10  # how often a cell may lose its process or machine before it is given up
SAVED_EVERY = 1.0  # seconds between two versions of grid.json


def run_grid(folder: GridFolder, executor: Executor, display: Display, retries: int = 1) -> None:
    """Run all cells that are not done, and join what belongs together. `folder.states` says what became of them.

    The folder must be held (`procurl.runs.store.checkpoint.only_writer`), so that nobody else writes there.
    """
    grid = _Run(folder, display, retries)
    try:
        grid.look_around()
        for cell in folder.cells:
            if folder.states[cell].state == "waiting":
                executor.submit(cell)
        for event in executor.events():
            if isinstance(event, Report):
                grid.reported(event)
            elif grid.try_again(event):
                executor.submit(event.cell)
        grid.join_the_rest()
    finally:
        executor.close()
        for state in folder.states.values():
            if state.state == "running":
                state.state = "waiting"
        folder.save()


class _Run:
    def __init__(self, folder: GridFolder, display: Display, retries: int) -> None:
        self.folder, self.display, self.retries = folder, display, retries
        self.groups = groups_of(folder.cells)
        self.failures: Counter[Cell] = Counter()
        self.losses: Counter[Cell] = Counter()
        self._saved_at = float("-inf")

    def look_around(self) -> None:
        """Take stock of what an earlier run has left."""
        self.folder.tidy()
        for cell in self.folder.cells:
            if (self.folder.cell(cell) / MANIFEST).exists():
                try:
                    self._finished(cell)
                except RunFolderError as error:
                    self._failed(cell, f"{error}. Move that folder away, and this cell runs anew")
        n = sum(s.state == "done" for s in self.folder.states.values())
        if n:
            self.display.news(f"{n} of {len(self.folder.cells)} cells are already done")
        for group in self.groups:
            self._join_if_whole(group)
        self._save()

    def reported(self, report: Report) -> None:
        state = self.folder.states[report.cell]
        begins = state.state == "waiting"
        state.state, state.steps, state.total = "running", report.steps, report.total
        state.ret = report.ret
        self._save(now=begins)
        if begins:
            self.display.news(f"started: {report.cell.name}")

    def try_again(self, outcome: Outcome) -> bool:
        """Record what became of a cell; True if it is to run again."""
        cell, error = outcome.cell, outcome.error
        if outcome.kind == "done":
            try:
                if self._finished(cell):
                    self.display.news(f"done: {cell.name}, return {self.folder.states[cell].ret:.3f}")
                    self._join_if_whole(cell.group)
                    self._save()
                    return False
                error = "its process ended well, but left no finished run"
            except RunFolderError as broken:
                error = str(broken)
        counter, limit = (self.losses, LOSSES) if outcome.kind == "lost" else (self.failures, self.retries)
        counter[cell] += 1
        if counter[cell] <= limit:
            self.display.news(f"{outcome.kind}, will be tried again: {cell.name}: {error}")
            self.folder.states[cell].state = "waiting"
            self._save()
            return True
        self._failed(cell, error)
        self._save()
        return False

    def join_the_rest(self) -> None:
        """Join what there is of strategies that lack some seeds for good, and say which."""
        for group, cells in self.groups.items():
            done = [c for c in cells if self.folder.states[c].state == "done"]
            if done and len(done) < len(cells):
                missing = [seed for c in cells if c not in done for seed in c.seeds]
                self._join(group, done, missing)
                self.display.news(f"{group.name}: without the seeds {missing}, whose cells failed")

    def _finished(self, cell: Cell) -> bool:
        """Verify and record a cell's result; True if its run is finished."""
        result = load_result(self.folder.cell(cell))
        if result.status != "finished":
            return False
        shutil.rmtree(self.folder.cell(cell) / "checkpoints", ignore_errors=True)  # no longer needed
        state = self.folder.states[cell]
        state.state, state.error = "done", ""
        state.steps = state.total = int(result.steps[-1])
        state.ret = round(float(result.ret[~result.failed, -1].mean()), 4)
        for failure in result.failures:  # another try would end in the same way
            self.display.news(f"{cell.name}: {failure}; left out of the means")
        return True

    def _failed(self, cell: Cell, error: str) -> None:
        state = self.folder.states[cell]
        state.state, state.error = "failed", error
        self.display.news(f"failed: {cell.name}: {error}")

    def _join_if_whole(self, group: Group) -> None:
        cells = self.groups[group]
        if all(self.folder.states[c].state == "done" for c in cells):
            self._join(group, cells, missing=[])

    def _join(self, group: Group, cells: list[Cell], missing: list[int]) -> None:
        """Write one run folder with all seeds, unless it is there: it lists the cells that it was made of."""
        names = [c.name for c in cells]
        place = self.folder.merged(group)
        if place.exists() and _cells_in(place) == names:
            return
        whole = joined([load_result(self.folder.cell(c)) for c in cells])
        provenance = {**whole.provenance, "cells": names}
        if missing:
            provenance |= {"status": "incomplete", "missing_seeds": missing}
        self.folder.replace_merged(group, dataclasses.replace(whole, provenance=provenance))

    def _save(self, now: bool = True) -> None:
        self.display.refresh()
        if now or time.monotonic() - self._saved_at >= SAVED_EVERY:
            self.folder.save()
            self._saved_at = time.monotonic()


def _cells_in(place: Path) -> list[str] | None:
    """The cells that a joined run was made of; None if it is damaged. Any other folder is refused."""
    foreign = RunFolderError(
        f"{place} is not of this benchmark; nothing was changed. Move it away, or choose another --out."
    )
    if not (place / "provenance.json").exists():
        raise foreign
    try:
        result = load_result(place)
    except RunFolderError:
        return None
    if "cells" not in result.provenance:
        raise foreign
    return list(result.provenance["cells"])
