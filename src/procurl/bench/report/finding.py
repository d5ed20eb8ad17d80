"""Which results lie below some paths: run folders, recorded files, and runs that have left no result yet."""

from __future__ import annotations

import os
from pathlib import Path

from procurl.bench.grid.folder import GRID, GridFolder, summary
from procurl.errors import ConfigError
from procurl.runs.store import disk
from procurl.runs.store.checkpoint import SWEEP
from procurl.runs.sweep.folder import PROGRAMS, read_plan


def found(paths: list[Path]) -> tuple[dict[str, Path], list[Path], list[str]]:
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
