"""The folder of a sweep:

sweep.json                  what was asked for: base configuration, values, one folder per point
teacher.b=3,ppo.lr=0.0001/  an ordinary run folder per point, for `procurl plot` and `procurl report`
programs/0/checkpoints/     one folder per compiled program, from which all of its points go on
table.md, heat-map.png      made at the end
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from procurl import __version__
from procurl.check import numbers
from procurl.errors import RunFolderError
from procurl.runs.store import classes, disk, manifest
from procurl.runs.store.checkpoint import SWEEP, Resume, move_aside, only_writer
from procurl.runs.store.descriptions import differing, listed, with_defaults
from procurl.runs.store.result import reserve

FORMAT = ("procurl-sweep", 1)
PROGRAMS = "programs"


@contextmanager
def open_sweep(
    path: str | os.PathLike[str] | None, plan: dict[str, Any], resume: Resume, notes: classes.Notes
) -> Iterator[Path | None]:
    """A folder for a sweep: an empty one, or one that holds the same sweep.

    `plan`: all that determines it. `notes`: where classes that are not procurl's came from.
    """
    if path is None:
        yield None
        return
    folder = numbers.path("out", path)
    manifest.refuse_newer_file(folder / SWEEP, *FORMAT)
    if resume == "never":
        move_aside(folder)
    with only_writer(folder):
        if (folder / SWEEP).exists():
            _require_same(folder, plan, resume)
            notes = classes.going_on(read_notes(folder), notes)
        else:
            reserve(folder)
        row = {"format": FORMAT[0], "version": FORMAT[1], "procurl": __version__, **plan}
        row |= classes.as_provenance(notes)
        disk.replace(folder / SWEEP, disk.to_json(row))
        yield folder


def read_plan(folder: Path) -> dict[str, Any]:
    """What a sweep's folder says it is: `config`, `over` and `points`."""
    manifest.refuse_newer_file(folder / SWEEP, *FORMAT)
    try:
        plan = disk.from_json(disk.read(folder / SWEEP, disk.MOST_TEXT))
        if plan["format"] != FORMAT[0]:
            raise ValueError(f"its format is {plan['format']!r}")
        config, over, points = (
            with_defaults(dict(plan["config"])),
            dict(plan["over"]),
            [str(name) for name in plan["points"]],
        )
        if any(Path(name).name != name for name in points):
            raise ValueError("a point lies elsewhere")
    except (ValueError, KeyError, TypeError) as error:
        raise RunFolderError(f"{folder / SWEEP} is damaged: {error!r}") from error
    return {"config": config, "over": over, "points": points}


def read_notes(folder: Path) -> classes.Notes:
    """Where the sweep's classes came from, if they are not procurl's."""
    return classes.noted(disk.from_json(disk.read(folder / SWEEP, disk.MOST_TEXT)))


def _require_same(folder: Path, plan: dict[str, Any], resume: Resume) -> None:
    differences = differing(read_plan(folder), plan)
    if resume == "extend":
        differences = [d for d in differences if d[0] != "config.steps"]
    if differences:
        raise RunFolderError(
            f"{folder} holds another sweep; nothing was changed. It differs:\n{listed(differences)}\nChoose another "
            f"folder, or start anew with --fresh (resume='never'), which moves that sweep aside."
        )
