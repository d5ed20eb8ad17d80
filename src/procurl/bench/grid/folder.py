"""The folder of a benchmark: its files, and how far each cell is.

    grid.json                            every cell with its state, for `procurl bench status`
    cells/SETTING-STRATEGY-SEEDS-HASH/   run folders, one per cell; unfinished ones hold checkpoints
    logs/SETTING-STRATEGY-SEEDS-HASH.log
    SETTING-STRATEGY/                    run folders with all seeds, for `procurl plot` and `procurl report`

The last are joined from the cells, and joined again when those change.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from procurl import __version__
from procurl.bench.grid.cells import NONE, Cell, Group, groups_of
from procurl.bench.grid.own import Own
from procurl.check.text import in_one_line
from procurl.errors import NewerFormatError, RunFolderError
from procurl.runs.store import disk, manifest
from procurl.runs.store.result import RUN, Result

GRID = "grid.json"
FORMAT = ("procurl-bench", 1)


@dataclass
class State:
    """How far a cell is."""

    state: Literal["waiting", "running", "done", "failed"] = "waiting"
    steps: int = 0  # played by each seed
    total: int = 0  # in whole iterations; 0 until it is known
    ret: float | None = None
    error: str = ""

    def require_kinds(self) -> None:
        """Refuse values of another type, as a file may hold them."""
        kinds = {"state": str, "steps": int, "total": int, "ret": float | int | None, "error": str}
        for name, kind in kinds.items():
            if not isinstance(getattr(self, name), kind):
                raise ValueError(f"{name} = {getattr(self, name)!r}: expected {kind}")


class GridFolder:
    """Paths, and the states of all cells, in memory and on disk."""

    def __init__(self, path: Path, suite: str, cells: list[Cell], own: Own = NONE) -> None:
        self.path, self.suite, self.cells = path, suite, cells
        self.own = own  # what the command line has named; never read from the folder
        self.states = {cell: State() for cell in cells}

    def cell(self, cell: Cell) -> Path:
        return self.path / "cells" / cell.name

    def log(self, cell: Cell) -> Path:
        return self.path / "logs" / f"{cell.name}.log"

    def merged(self, group: Group) -> Path:
        return self.path / group.name

    def prepare(self) -> None:
        """Make the folders, unless something else is there."""
        self._refuse_newer()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            held = sorted(p.name for p in self.path.iterdir())
            if GRID not in held and not all(name in ("cells", "logs") or name.startswith(f".{GRID}") for name in held):
                raise RunFolderError(
                    f"{self.path} is not empty and holds no benchmark (it holds {', '.join(held[:3])}); nothing was "
                    f"changed. Choose another --out."
                )
            for name in ("cells", "logs"):
                (self.path / name).mkdir(exist_ok=True)
        except OSError as error:
            if isinstance(error, RunFolderError):
                raise
            raise RunFolderError(f"cannot use {self.path} for a benchmark: {error.strerror or error}") from error

    def _refuse_newer(self) -> None:
        """Nothing is replaced that a newer procurl wrote: neither the list of cells nor a result."""
        manifest.refuse_newer_file(self.path / GRID, *FORMAT)
        for place in (*map(self.cell, self.cells), *map(self.merged, groups_of(self.cells))):
            manifest.refuse_newer_folder(place, RUN)

    def save(self) -> None:
        """Write down the states, as a whole or not at all."""
        cells = [{"cell": cell.to_json(), **asdict(self.states[cell])} for cell in self.cells]
        row = {"format": FORMAT[0], "version": FORMAT[1], "procurl": __version__, "suite": self.suite, "cells": cells}
        advice = ". Finished cells are kept: make room, and the same command goes on"
        disk.replace(self.path / GRID, disk.to_json(row), advice)

    @classmethod
    def load(cls, path: Path) -> GridFolder:
        """The states as they were saved last. A cell counts as running only while a process holds the folder."""
        try:
            if not os.path.lexists(path / GRID):
                raise FileNotFoundError
            row = disk.from_json(disk.read(path / GRID, disk.MOST_TEXT))
            manifest.refuse_newer(path / GRID, row, *FORMAT)
            if (row["format"], row["version"]) != FORMAT:
                raise ValueError(f"format {row['format']!r} version {row['version']!r}")
            cells = [Cell.from_json(r["cell"]) for r in row["cells"]]
            grid = cls(path, str(row["suite"]), cells)
            fields = State.__dataclass_fields__
            grid.states = {c: State(**{k: r[k] for k in fields}) for c, r in zip(cells, row["cells"], strict=True)}
            for s in grid.states.values():
                s.require_kinds()
        except NewerFormatError:
            raise
        except (FileNotFoundError, NotADirectoryError):
            raise RunFolderError(f"{path} holds no benchmark: expected a folder that `procurl bench` wrote") from None
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise RunFolderError(f"{path / GRID} cannot be read: {error!r}") from error
        if not is_held(path):
            for state in grid.states.values():
                if state.state == "running":
                    state.state = "waiting"
        return grid

    def tidy(self) -> None:
        """Remove what is left by a process that was killed while it replaced a result."""
        shutil.rmtree(self.path / "cells" / ".merging", ignore_errors=True)

    def replace_merged(self, group: Group, result: Result) -> None:
        """Write the joined result of a group over the old one, if any; half a result is never there."""
        place, aside = self.merged(group), self.path / "cells" / ".merging"
        self.tidy()
        result.save(aside / "new")
        if place.exists():
            os.replace(place, aside / "old")
        os.replace(aside / "new", place)
        disk.sync_folder(self.path)
        self.tidy()


def is_held(path: Path) -> bool:
    """Whether a process works in this folder (see `procurl.runs.store.checkpoint.only_writer`)."""
    if os.name != "posix":
        return True
    with disk.locked(path, shared=True) as free:
        return not free


def status_table(grid: GridFolder) -> str:
    """A line per cell, and one for all."""
    rows = [("state", "run", "seeds", "steps", "return", "error")]
    for cell, s in grid.states.items():
        ret = "" if s.ret is None else f"{s.ret:.3f}"
        steps = f"{s.steps:,} / {s.total or cell.steps:,}"
        first_line = (s.error.splitlines() or [""])[0]
        rows.append((s.state, cell.group.name, cell.block, steps, ret, in_one_line(first_line)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(text.ljust(w) for text, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, summary(grid)])


def summary(grid: GridFolder) -> str:
    states = [s.state for s in grid.states.values()]
    counts = ", ".join(f"{states.count(s)} {s}" for s in ("done", "running", "waiting", "failed") if s in states)
    return f"{grid.suite}: {len(grid.cells)} cells, {counts}"
