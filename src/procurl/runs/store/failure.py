"""A seed that went wrong stops alone, and leaves a small folder that shows where:

    failures/seed-3/
        failure.json    seed, iteration, step and environment copy, the quantity, and how to see it again
        place.npz       task, observation, action, reward and value at that place, and the losses of the iteration
        manifest.json   format version and SHA-256 of each

`diagnosis.py` finds failures; here they are described, written and read. Nothing here needs JAX.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from procurl.errors import RunFolderError
from procurl.runs.store import disk, manifest

FAILURE = manifest.Format("procurl-failure", 1, ("failure.json", "place.npz"))
FOLDER, PREFIX = "failures", "failure_"

IN_WORDS = {
    "gradient": "gradient (the weights after the update)",
    "teacher": "the teacher's state",
    "evaluation": "the return of a held-out task",
}


@dataclass(frozen=True, eq=False)
class Failure:
    """Where and in what a seed went wrong, and all that is known of that place."""

    seed: int
    iteration: int  # the first whose numbers do not count
    n_steps: int  # environment steps of one iteration
    what: str  # a name of trace.FINITE, "context" or "evaluation"
    step: int  # within the iteration; -1 if no single step is to blame
    environment: int  # which copy, -1 likewise
    place: dict[str, np.ndarray]  # what was there, by name

    @property
    def steps(self) -> int:
        """Environment steps that count."""
        return self.iteration * self.n_steps

    def __str__(self) -> str:
        at = f"iteration {self.iteration}"
        if self.step >= 0:
            at += f" (step {self.step} of environment {self.environment})"
        if self.what == "context":
            return f"seed {self.seed}: a context outside the task space was proposed at {at}"
        what = IN_WORDS.get(self.what, self.what)
        return f"seed {self.seed}: NaN or infinity in {what} at {at}, after {self.steps} steps"

    def to_json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "iteration": self.iteration,
            "n_steps": self.n_steps,
            "what": self.what,
            "step": self.step,
            "environment": self.environment,
            "message": str(self),
            # Everything in iteration t of a seed is a function of (seed, t): this is all it takes.
            "reproduce": {"seeds": [self.seed], "steps": self.steps + self.n_steps},
        }


def flatten(failures: Iterable[Failure]) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """As plain data and named arrays, to travel in a checkpoint's or a result's own files."""
    rows = list(failures)
    arrays = {f"{PREFIX}{f.seed}_{name}": x for f in rows for name, x in f.place.items()}
    return [f.to_json() for f in rows], arrays


def unflatten(rows: Any, arrays: dict[str, np.ndarray], where: str) -> tuple[Failure, ...]:
    """The inverse of `flatten`. Arrays of other names are left alone."""

    def place(row: Any) -> dict[str, np.ndarray]:
        own = f"{PREFIX}{row['seed']}_"
        return {k.removeprefix(own): v for k, v in arrays.items() if k.startswith(own)}

    try:
        return tuple(_failure(row, place(row)) for row in rows)
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError(f"{where} lists failed seeds in a way that cannot be read: {error!r}") from error


def _failure(row: Any, place: dict[str, np.ndarray]) -> Failure:
    numbers = {k: int(row[k]) for k in ("seed", "iteration", "n_steps", "step", "environment")}
    return Failure(what=str(row["what"]), place=place, **numbers)


def write_all(run_folder: Path, failures: Iterable[Failure]) -> None:
    """Write folders for exactly these failures, for people: checkpoints and results carry failures themselves."""
    home = run_folder / FOLDER
    remove_all(run_folder)
    for failure in failures:
        folder = home / f"seed-{failure.seed}"
        folder.mkdir(parents=True)
        contents = (disk.to_json(failure.to_json()), disk.to_npz(failure.place))
        disk.write_files(folder, manifest.sealed(dict(zip(FAILURE.files, contents, strict=True)), FAILURE))
    if home.exists():
        disk.sync_folder(home)


def remove_all(run_folder: Path) -> None:
    shutil.rmtree(run_folder / FOLDER, ignore_errors=True)


def read(folder: str | os.PathLike[str]) -> Failure:
    """Read one, such as RUN/failures/seed-3, after checking it against its manifest."""
    data = manifest.read_folder(Path(folder), FAILURE)
    manifest.refuse_others(Path(folder), FAILURE.files)
    try:
        return _failure(data["failure.json"], data["place.npz"])
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError(f"{folder} holds something else than a failed seed: {error!r}") from error


def require_whole(run_folder: Path, seeds: Iterable[int]) -> None:
    """Require the folders of exactly these seeds, unaltered, or none at all: a result carries their content."""
    home, names = run_folder / FOLDER, [f"seed-{seed}" for seed in seeds]
    if home.is_dir():
        manifest.refuse_others(home, names)
        for name in names:
            read(home / name)
