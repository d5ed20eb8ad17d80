"""A run that is cut off anywhere goes on as if nothing had happened.

All randomness of iteration t is a function of (seed, t), so a checkpoint is the carry (teacher, student, optimiser,
environments in mid-episode) and the log (counters, traces, evaluations). A run folder that is being written holds

    checkpoints/0000000040/     after 40 iterations; the last few are kept
        run.json                configuration, counters, clock
        log.npz                 traces and evaluations so far
        state.safetensors       the carry, one tensor per leaf
        manifest.json           format version and SHA-256 of each

A checkpoint is written beside its place and renamed into it, so it is there as a whole or not at all.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from procurl.check import numbers
from procurl.errors import CheckpointError, ConfigError, NewerFormatError, RunFolderError
from procurl.runs.store import classes, disk, failure, manifest, result
from procurl.runs.store.descriptions import differing, listed, with_defaults
from procurl.runs.store.result import Result, steps_per_iteration

if TYPE_CHECKING:
    from procurl.runs.log import Log
    from procurl.runs.sweep.log import Logs
    from procurl.runs.train import AnyEngine

CHECKPOINT = manifest.Format("procurl-checkpoint", 1, ("run.json", "log.npz", "state.safetensors"))
SWEEP = "sweep.json"  # what makes a folder a sweep: see `procurl.runs.sweep.folder`
KEPT = 2

Resume = Literal["auto", "extend", "never"] | int

logger = logging.getLogger("procurl")


class Checkpoint(NamedTuple):
    """What was read back."""

    path: Path
    config: dict[str, Any]
    log: tuple[dict[str, Any], dict[str, np.ndarray]]
    state: dict[str, np.ndarray]
    classes: classes.Notes  # where they came from, if they are not procurl's

    @property
    def steps_done(self) -> int:
        return int(self.log[0]["iterations"]) * steps_per_iteration(self.config)

    @property
    def is_evaluated(self) -> bool:
        at = self.log[1]["evaluated_at"]
        return bool(len(at) and at[-1] == self.log[0]["iterations"])


class RunFolder:
    """The folder of a run while it goes on: who may write, where to go on from, when to save."""

    def __init__(
        self,
        path: Path,
        config: dict[str, Any],
        save_share: float,
        results: list[Path] | None = None,
        notes: classes.Notes | None = None,
    ) -> None:
        self.path, self.config, self.save_share = path, config, save_share
        self.classes: classes.Notes = notes or {}
        self.results = [path] if results is None else results
        self.found: Checkpoint | None = None
        self._last_cost = 0.1  # seconds; a guess before the first save
        self._saved_at = time.perf_counter()
        self._saved_iterations = -1
        self._failures_told = 0

    def restore(self, engine: AnyEngine, log: Log | Logs) -> Any:
        """Where the checkpoint left off. From here on its folder is an unfinished run again."""
        assert self.found is not None
        try:
            log.restore(*self.found.log)
        except (KeyError, TypeError, ValueError, IndexError) as error:  # undamaged, but not what we wrote
            raise CheckpointError(f"{self.found.path} holds no log of this run: {error!r}") from error
        carry = engine.restored(self.found.state, str(self.found.path))
        for path in self.results:
            result.remove_result(path)
        logger.info("%s: going on after %s steps", self.path, f"{log.steps_done:,}")
        self._saved_iterations = log.iterations
        self._saved_at = time.perf_counter()
        return carry

    def keep(self, engine: AnyEngine, carry: Any, log: Log | Logs) -> None:
        """Save if it is time to (saving may take only a share of the time), or if the run ends here."""
        self._tell_failures(log)
        due = time.perf_counter() - self._saved_at >= self._last_cost * (1 / self.save_share - 1)
        if due or log.status != "running":
            self.save(engine, carry, log)

    def save(self, engine: AnyEngine, carry: Any, log: Log | Logs) -> None:
        """A checkpoint of this moment, unless there is one already, or nothing worth one."""
        if log.status != "failed" and log.iterations != self._saved_iterations:
            began = time.perf_counter()
            try:
                self._save(engine.saved(carry), log)
            except OSError as error:
                warnings.warn(
                    f"could not save a checkpoint to {self.path}: {error.strerror or error}. The run goes on, and "
                    f"will try again: make room.",
                    stacklevel=4,
                )
            self._saved_at = time.perf_counter()
            self._last_cost = self._saved_at - began
            log.saved(self._last_cost)

    def _tell_failures(self, log: Log | Logs) -> None:
        """Describe the seeds that failed, for people to look at while the others go on."""
        found = log.failures_of_results
        if sum(map(len, found)) > self._failures_told:
            try:
                for path, failures in zip(self.results, found, strict=True):
                    failure.write_all(path, failures)
                self._failures_told = sum(map(len, found))
            except OSError as error:
                logger.warning("could not write %s: %s", path / failure.FOLDER, error.strerror or error)

    def _save(self, state: dict[str, np.ndarray], log: Log | Logs) -> None:
        counters, arrays = log.state()
        contents = {
            "run.json": disk.to_json({"config": self.config, "log": counters, **classes.as_provenance(self.classes)}),
            "log.npz": disk.to_npz(arrays, compressed=False),
            "state.safetensors": disk.to_tensors(state),
        }
        home = self.path / "checkpoints"
        _refuse_link(home)
        home.mkdir(exist_ok=True)
        disk.place_folder(home / f"{log.iterations:010}", manifest.sealed(contents, CHECKPOINT))
        self._saved_iterations = log.iterations
        keep_latest(self.path, KEPT)

    def finish(self, outcomes: list[Result]) -> None:
        """Write the results; if that fails and no checkpoint holds one, put it somewhere else and say where."""
        for outcome, path in zip(outcomes, self.results, strict=True):
            self._write(outcome, path)

    def _write(self, outcome: Result, path: Path) -> None:
        try:
            outcome.write_into(path)
        except result.SaveError as error:
            played = outcome.trace["started"].shape[1] if outcome.trace else 0
            if self._saved_iterations == played and (self.path / "checkpoints" / f"{played:010}").is_dir():
                error.add(f"Its last checkpoint is there: `procurl resume {self.path}` writes the result when it can.")
            else:
                error.add(_rescued(outcome, path))
            raise


def _rescued(outcome: Result, folder: Path) -> str:
    """Save a result that its own folder cannot take: beside it, or among temporary files, maybe on another disk."""
    for home in (folder.absolute().parent, Path(tempfile.gettempdir())):
        place = _free(home / f"{folder.absolute().name}.rescued")
        try:
            outcome.save(place)
        except RunFolderError:
            with suppress(OSError):
                place.rmdir()  # it is empty
            continue
        return f"The result was rescued to {place}: move it to a safe place."
    return f"Neither beside {folder} nor in {tempfile.gettempdir()} was there room for it."


class Nowhere:
    """Stands in for a run folder when nothing is to be written."""

    found = None

    def __init__(self, notes: classes.Notes | None = None) -> None:
        self.classes: classes.Notes = notes or {}

    def keep(self, engine: AnyEngine, carry: Any, log: Log | Logs) -> None:
        pass

    def finish(self, outcomes: list[Result]) -> None:
        pass


@contextmanager
def open_run(
    path: str | os.PathLike[str] | None,
    config: dict[str, Any],
    resume: Resume,
    save_share: float,
    results: list[Path] | None = None,
    notes: classes.Notes | None = None,
) -> Iterator[RunFolder | Nowhere]:
    """A folder to run in: an empty one, or one with an unfinished run of the same configuration to go on with.

    `results`: of a run with several results, the folders that get them in place of the folder itself.
    `notes`: where classes that are not procurl's came from.
    """
    if not isinstance(save_share, int | float) or not 0 < save_share <= 1:
        raise ConfigError(f"save_share = {save_share!r}: expected a share of the time, above 0 and at most 1")
    if not (resume in ("auto", "extend", "never") or (isinstance(resume, int) and not isinstance(resume, bool))):
        raise ConfigError(f"resume = {resume!r}: expected 'auto', 'extend', 'never' or the iteration of a checkpoint")
    if path is None:
        yield Nowhere(notes)
        return
    folder = numbers.path("out", path)
    manifest.refuse_newer_folder(folder, result.RUN)
    run = RunFolder(folder, config, save_share, results, notes)
    if resume == "never" and (aside := move_aside(folder)):
        logger.info("the run that was in %s is now in %s", folder, aside)
    with only_writer(folder):
        if holds_run(folder):
            if not os.access(folder, os.W_OK):
                raise RunFolderError(f"cannot go on in {folder}: no permission to write there")
            run.found = _to_go_on_with(folder, config, resume)
            for change in classes.changed(run.found.classes, run.classes):
                logger.warning("%s: %s; the run goes on with what is there now", folder, change)
            run.classes = classes.going_on(run.found.classes, run.classes)
        else:
            result.reserve(folder, besides=("checkpoints", failure.FOLDER))
        yield run


def holds_run(folder: Path) -> bool:
    return (folder / "config.json").exists() or (folder / SWEEP).exists() or bool(checkpoints(folder))


def _to_go_on_with(folder: Path, config: dict[str, Any], resume: Resume) -> Checkpoint:
    """The checkpoint that continues this very run, or an error that says why there is none."""
    if not checkpoints(folder):
        raise RunFolderError(
            f"{folder} already holds a run, and no checkpoint to go on from{_why_none(folder)}; nothing was changed. "
            f"Choose another folder, or start anew with --fresh (resume='never'), which moves that one aside."
        )
    found = load_checkpoint(folder, None if isinstance(resume, str) else resume)
    differences = differing(found.config, config)
    if resume != "auto":
        differences = [d for d in differences if d[0] != "steps"]
    if differences:
        steps_alone = [name for name, *_ in differences] == ["steps"]
        advice = (
            f"`procurl resume {folder} --steps MORE` trains further."
            if steps_alone
            else "Choose another folder, or start anew with --fresh (resume='never'), which moves that run aside."
        )
        raise RunFolderError(
            f"{folder} holds another run; nothing was changed. It differs:\n{listed(differences)}\n{advice}"
        )
    if config["steps"] < found.steps_done:
        raise ConfigError(
            f"steps = {config['steps']:,}: the run in {folder} has already played {found.steps_done:,}; expected more"
        )
    if found.steps_done == config["steps"] and found.is_evaluated and (folder / disk.MANIFEST).exists():
        raise RunFolderError(
            f"{folder} already holds a run, and it is finished; nothing was changed. `procurl resume {folder} --steps "
            f"MORE` trains further; --fresh (resume='never') moves it aside and starts anew."
        )
    if not isinstance(resume, str):
        _set_aside_after(folder, resume)
    return found


def load_checkpoint(folder: Path, iteration: int | None = None) -> Checkpoint:
    """The latest checkpoint of a run folder, or that of an iteration. A damaged one is reported, never used."""
    manifest.refuse_newer_folder(folder, result.RUN)  # going on would replace its result
    paths = {int(p.name): p for p in checkpoints(folder)}
    if not paths:
        expected = _why_none(folder) or ": expected a run folder, as `procurl train --out DIR` makes it"
        raise CheckpointError(f"{folder} holds no checkpoint{expected}")
    if iteration is None:
        iteration = max(paths)
    if iteration not in paths:
        there = ", ".join(map(str, sorted(paths)))
        raise CheckpointError(f"{folder} holds no checkpoint of iteration {iteration}: expected one of {there}")
    path = paths[iteration]
    try:
        return _read(path)
    except NewerFormatError:
        raise
    except RunFolderError as error:
        message = f"{error}. Nothing was loaded."
        for earlier in sorted((i for i in paths if i < iteration), reverse=True):
            try:
                _read(paths[earlier])
            except RunFolderError:
                continue
            message += (
                f" The checkpoint of iteration {earlier} before it is whole: `procurl resume {folder} --from "
                f"{earlier}` (resume={earlier}) goes on from there."
            )
            break
        else:
            message += " There is no earlier one that is whole."
        raise CheckpointError(message) from error


def _why_none(folder: Path) -> str:
    """Why a folder has no checkpoint, if it is a sweep or a part of one."""
    if (folder / SWEEP).exists():
        return f": it is a sweep, and `procurl resume {folder}` goes on with all of its points"
    with suppress(RunFolderError, ValueError, KeyError, TypeError):
        point = disk.from_json(disk.read(folder / "provenance.json", disk.MOST_TEXT))["sweep"]["point"]
        return (
            f": it is the point {point} of a sweep, whose points share one program and cannot go on alone; "
            f"`procurl resume {folder.absolute().parent}` goes on with all of them"
        )
    return ""


def _read(path: Path) -> Checkpoint:
    _refuse_link(path.parent)
    _refuse_link(path)
    data = manifest.read_folder(path, CHECKPOINT)
    manifest.refuse_others(path, CHECKPOINT.files)
    try:
        config, counters = with_defaults(dict(data["run.json"]["config"])), dict(data["run.json"]["log"])
        if counters["iterations"] != int(path.name):
            raise ValueError(f"it is of iteration {counters['iterations']!r}")
        steps_per_iteration(config), int(config["steps"])
        [int(iteration) for iteration in data["log.npz"]["evaluated_at"]]
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise RunFolderError(f"{path / 'run.json'} holds something else: {error!r}") from error
    log = counters, data["log.npz"]
    return Checkpoint(path, config, log, data["state.safetensors"], classes.noted(data["run.json"]))


def checkpoints(folder: Path) -> list[Path]:
    """Those of a run folder, oldest first."""
    home = folder / "checkpoints"
    return sorted(p for p in home.iterdir() if p.name.isascii() and p.name.isdigit()) if home.is_dir() else []


def keep_latest(folder: Path, n: int) -> None:
    """Remove all checkpoints of a run folder but the latest n."""
    removed = folder / "checkpoints" / ".old"
    shutil.rmtree(removed, ignore_errors=True)  # left by a process that was killed just there
    for old in checkpoints(folder)[:-n]:
        os.replace(old, removed)  # under its own name it would look damaged if we were cut off here
        shutil.rmtree(removed)


def _refuse_link(path: Path) -> None:
    """Through a link, we would write or remove what lies elsewhere."""
    if path.is_symlink():
        raise RunFolderError(f"{path} is a link; expected a folder of this run. Put the folder itself there")


def _set_aside_after(folder: Path, iteration: int) -> None:
    """Keep the checkpoints after the one that the user chose to go on from, under names that are not looked at."""
    for path in checkpoints(folder):
        if int(path.name) > iteration:
            os.replace(path, _free(path.with_name(f"set-aside-{path.name}")))


def move_aside(folder: Path) -> Path | None:
    """Rename a run folder, so that a new run can have its name. Only run folders: no other is touched."""
    if not holds_run(folder):
        return None
    with only_writer(folder):
        aside = _free(folder.with_name(f"{folder.name}.old"))
        os.replace(folder, aside)
    return aside


def _free(path: Path) -> Path:
    """The path itself, or with the first free number appended."""
    taken = 1
    free = path
    while free.exists():
        taken += 1
        free = path.with_name(f"{path.name}-{taken}")
    return free


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """One process at a time writes to a run folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(f"cannot use {folder} as a run folder: {error.strerror or error}") from error
    with disk.locked(folder) as free:
        if not free:
            raise RunFolderError(
                f"{folder} is being written by another process: wait for it, stop it, or choose another folder"
            )
        yield
