"""`procurl.sweep`: every combination of some hyper-parameters, with all seeds, in as few compiled programs as possible.

Points and seeds are one axis: a program trains all seeds of all points that differ only in floats that shape no program
(`points.py`), each seed with the numbers of its point.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from procurl.check import contracts, numbers
from procurl.config import Config
from procurl.errors import ConfigError
from procurl.runs.class_origin import class_notes
from procurl.runs.log import Log, Progress
from procurl.runs.provenance import describe
from procurl.runs.store import disk
from procurl.runs.store.checkpoint import Resume, open_run
from procurl.runs.store.classes import Notes, as_provenance
from procurl.runs.store.result import Result, load_result
from procurl.runs.sweep.folder import PROGRAMS, open_sweep, read_plan
from procurl.runs.sweep.log import Logs
from procurl.runs.sweep.points import Point, all_points, at_point, name_of, shapes_program
from procurl.runs.train import engine_for, repeat, require_engine
from procurl.teachers.base import says
from procurl.types import Env, HostEnv, Teacher

logger = logging.getLogger("procurl")


@dataclass(frozen=True, eq=False)
class Sweep:
    """The results of a sweep, in the order of its points: the last name's values change fastest."""

    over: dict[str, list[Any]]  # values by dotted name
    results: list[Result]

    @property
    def points(self) -> list[Point]:
        """The values of each result, by dotted name."""
        return [result.provenance["sweep"]["point"] for result in self.results]

    def __getitem__(self, values: Mapping[str, Any]) -> Result:
        """The result of a point: `sweep[{"teacher.b": 5.0, "ppo.lr": 3e-4}]`."""
        for point, result in zip(self.points, self.results, strict=True):
            if point == _plain(dict(values)):
                return result
        raise KeyError(values)


def sweep(
    env: Env | HostEnv,
    teacher: Teacher,
    config: Config | None = None,
    *,
    over: Mapping[str, Iterable[Any]],
    seeds: Iterable[int] | int = 1,
    steps: int = 1_000_000,
    out: str | Path | None = None,
    resume: Resume = "auto",
    save_share: float = 0.02,
    callback: Callable[[Progress], bool | None] | None = None,
    workers: int | None = None,
) -> Sweep:
    """Train every combination of values with every seed.

    Args:
        over: values by the names of fields, e.g. {"teacher.b": [3, 5, 8], "ppo.lr": [1e-4, 3e-4]}: the teacher's, the
            student's (ppo or sac) or the loop's (run). Points that differ only in floats of the teacher and of PPO
            share one program; every value of another field needs a program of its own.
        out: folder for the sweep, with a run folder for each point. A sweep that was cut off goes on there as if it
            had not been; a finished one is read back.
        resume: "auto", "extend" for more steps than before, or "never" to move aside what is in `out`.

    The other arguments are those of `procurl.train`; the callback sees the seeds of all points that share a program.

    A point is the run that `train` alone would give. For fields of the teacher this holds as exactly as a seed in
    company equals the same seed alone: to the last bit with the paper's networks. PPO's fields are constants in `train`
    and inputs here, so a step differs by rounding, and a long run as much as between two kinds of processors.
    """
    config = Config() if config is None else config
    contracts.require_kinds(env, teacher, config, callback)
    numbers.iterations(steps, config.student.n_steps)
    points = all_points(over, teacher, config)
    seed_numbers = numbers.seed_numbers(seeds)
    contracts.require_fit(env, teacher)
    require_engine(env, teacher, config, workers)
    if resume not in ("auto", "extend", "never"):
        raise ConfigError(f"resume = {resume!r}: expected 'auto', 'extend' or 'never'")
    runs = [_Run(env, *at_point(point, teacher, config), point, seed_numbers, steps) for point in points]
    plays = says(teacher, "plays")  # then points take different numbers of steps, and end at different times
    shaping = [name for name in over if plays or shapes_program(name, points, env, teacher, config)]
    programs = _by_program(runs, shaping)
    if len(programs) > 1:
        why = ", ".join(shaping)
        logger.info("%s programs for %s points: one for every value of %s", len(programs), len(points), why)

    plan = _plain({
        "config": describe(env, teacher, config, seed_numbers, int(steps)),
        "over": {name: list(dict.fromkeys(point[name] for point in points)) for name in over},
        "points": [name_of(point) for point in points],
    })  # fmt: skip
    results: dict[str, Result] = {}
    with open_sweep(out, plan, resume, class_notes(env, teacher)) as folder:
        for k, members in enumerate(programs):
            found = _finished(folder, members)
            if found is None:
                place = None if folder is None else folder / PROGRAMS / str(k)
                found = _trained(members, shaping, place, resume, save_share, callback, workers)
            results |= {member.name: result for member, result in zip(members, found, strict=True)}
            if found[0].status == "stopped":
                break
    return Sweep(plan["over"], [results[run.name] for run in runs if run.name in results])


def load_sweep(path: str | os.PathLike[str]) -> Sweep:
    """The sweep in a folder, with those of its points that have ended."""
    folder = numbers.path("path", path)
    plan = read_plan(folder)
    ended = [folder / name for name in plan["points"] if (folder / name / disk.MANIFEST).exists()]
    return Sweep(plan["over"], [load_result(point) for point in ended])


@dataclass(frozen=True, eq=False)
class _Run:
    """A point as a run by itself."""

    env: Env | HostEnv
    teacher: Teacher
    config: Config
    point: Point
    seeds: tuple[int, ...]
    steps: int  # as asked for

    @property
    def name(self) -> str:
        return name_of(self.point)

    @property
    def iterations(self) -> int:
        return numbers.iterations(self.steps, self.config.student.n_steps)

    @property
    def description(self) -> dict[str, Any]:
        steps = self.iterations * self.config.student.n_steps
        return describe(self.env, self.teacher, self.config, self.seeds, steps)

    def log(self, notes: Notes) -> Log:
        """`notes`: where its classes came from, if they are not procurl's."""
        origin = {"sweep": {"point": _plain(self.point)}, **as_provenance(notes)}
        return Log(self.env, self.teacher, self.config, self.seeds, self.iterations, self.name, origin)


def _by_program(runs: list[_Run], shaping: list[str]) -> list[list[_Run]]:
    groups: dict[tuple[Any, ...], list[_Run]] = {}
    for run in runs:
        groups.setdefault(tuple(run.point[name] for name in shaping), []).append(run)
    return list(groups.values())


def _trained(
    runs: list[_Run],
    shaping: list[str],
    place: Path | None,
    resume: Resume,
    save_share: float,
    callback: Callable[[Progress], bool | None] | None,
    workers: int | None,
) -> list[Result]:
    """All points that share a program."""
    from procurl.runs.interrupt import Interruptible

    first, n_seeds = runs[0], len(runs[0].seeds)
    varied = [name for name in first.point if name not in shaping]
    fields = {name: np.repeat([np.float32(run.point[name]) for run in runs], n_seeds) for name in varied}
    described = {**first.description, "points": [_plain(run.point) for run in runs]}
    folders = [] if place is None else [disk.made_folder(place.parent.parent / run.name) for run in runs]
    with (
        open_run(place, described, resume, save_share, folders, class_notes(first.env, first.teacher)) as folder,
        Interruptible() as interrupt,
        closing(engine_for(first.env, first.teacher, first.config, first.seeds * len(runs), workers, fields)) as engine,
    ):
        logs = Logs([run.log(folder.classes) for run in runs])
        results = repeat(engine, logs, folder, interrupt, callback)
    if logs.status == "failed":
        raise logs.failure()
    if logs.status == "interrupted":
        raise interrupt.error()
    return results


def _finished(folder: Path | None, runs: list[_Run]) -> list[Result] | None:
    """The results of all these points, if they are there."""
    if folder is None or not all((folder / run.name / disk.MANIFEST).exists() for run in runs):
        return None
    results = [load_result(folder / run.name) for run in runs]
    whole = [r.status in ("finished", "failed") for r in results]
    same = [r.config == run.description for r, run in zip(results, runs, strict=True)]
    return results if all(whole) and all(same) else None


def _plain(data: Any) -> Any:
    """As JSON gives it back: tuples become lists."""
    return disk.from_json(disk.to_json(data))
