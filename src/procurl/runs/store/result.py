"""Results, and the one folder format they live in: readable without procurl, verified by it.

    config.json         all that determines the run
    provenance.json     versions, commit, hardware, and how the run ended
    evaluations.npz     steps, returns and successes per seed, evaluation and held-out task
    trace.npz           per seed and iteration: tasks that began, training returns, losses
    policy.safetensors  the students' weights, all seeds; empty where somebody else's loop trained them
    timing.json         everything about the clock
    manifest.json       format version and the SHA-256 of each file, written last
    failures/           only if seeds failed: a folder for each, see failure.py

Loading never runs code from a file: no pickle, no eval.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from procurl.check import numbers
from procurl.errors import ConfigError, RunFolderError
from procurl.runs.store import disk, failure, manifest
from procurl.runs.store.failure import Failure

FILES = (
    "config.json", "provenance.json", "evaluations.npz", "trace.npz", "policy.safetensors", "timing.json",
)  # fmt: skip
RUN = manifest.Format("procurl-run", 1, FILES)


@dataclass(frozen=True, eq=False)
class Result:
    """A run, finished or cut short. S seeds, E evaluations, H held-out tasks."""

    config: dict[str, Any]
    provenance: dict[str, Any]
    timing: dict[str, Any]
    seeds: np.ndarray  # i64[S]
    steps: np.ndarray  # i64[E]  environment steps per seed at each evaluation
    task_ret: np.ndarray  # f32[S, E, H]  mean return on each held-out task
    task_success: np.ndarray  # f32[S, E, H]
    held_out: dict[str, np.ndarray]  # context f32[H, d], seed, row
    trace: dict[str, np.ndarray]  # see procurl.runs.trace.Trace; leading axes (seed, iteration)
    params: dict[str, np.ndarray]  # "policy.0.w" -> f32[S, ...]
    failures: tuple[Failure, ...] = ()  # seeds that failed: all of the above is NaN for them from there on

    @property
    def ret(self) -> np.ndarray:
        """f32[S, E]: mean return on the held-out target tasks."""
        return self.task_ret.mean(axis=-1)

    @property
    def success(self) -> np.ndarray:
        """f32[S, E]: share of evaluation episodes that reached the goal."""
        return self.task_success.mean(axis=-1)

    @property
    def value_range(self) -> tuple[float, float]:
        """The smallest and largest return: those that the space gives or, if learnt, those seen in evaluations."""
        given = self.config["space"]["value_range"]
        return tuple(given) if given is not None else range_of(self.task_ret)

    @property
    def status(self) -> str:
        """finished, stopped (by a callback), interrupted (by Ctrl-C) or failed."""
        return str(self.provenance["status"])

    @property
    def failed(self) -> np.ndarray:
        """bool[S]: the seeds that went wrong, whose numbers must not be averaged with the others'."""
        return np.isin(self.seeds, [f.seed for f in self.failures])

    @property
    def label(self) -> str:
        """Setting and teacher, for people."""
        return f"{self.config['setting'] or 'custom setting'} / {self.config['teacher']['class']}"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the run folder. An existing folder must be empty; if writing fails, nothing half-done stays."""
        folder = reserve(path)
        self.write_into(folder)
        return folder

    def write_into(self, folder: Path) -> None:
        """The same, into a folder that was reserved before."""
        contents = manifest.sealed(self._files(), RUN)
        try:
            failure.write_all(folder, self.failures)
            disk.fill_folder(folder, contents)
        except OSError as error:
            with suppress(OSError):  # the disk is read-only now; without a manifest, nothing there looks complete
                remove_result(folder)
            raise SaveError(folder, error, self) from error

    def _files(self) -> dict[str, bytes]:
        evaluations = {
            "seeds": self.seeds,
            "steps": self.steps,
            "ret": self.ret,
            "task_ret": self.task_ret,
            "task_success": self.task_success,
            **{f"held_out_{k}": v for k, v in self.held_out.items()},
        }
        failed, places = failure.flatten(self.failures)
        contents = (
            disk.to_json(self.config),
            disk.to_json({**self.provenance, **({"failures": failed} if failed else {})}),
            disk.to_npz(evaluations),
            disk.to_npz({**self.trace, **places}),
            disk.to_tensors(self.params),
            disk.to_json(self.timing),
        )
        return dict(zip(FILES, contents, strict=True))


class SaveError(RunFolderError):
    """A result that could not be written; it is still in `error.result`."""

    def __init__(self, folder: Path, cause: OSError, result: Result) -> None:
        super().__init__(
            f"could not write the run to {folder}: {cause.strerror or cause}. Nothing was overwritten. Make room or "
            f"choose another folder; from Python the result is still there as error.result, with its save(path)."
        )
        self.result = result

    def add(self, what: str) -> None:
        """Append something that the user should also know."""
        self.args = (f"{self.args[0]} {what}",)


def range_of(returns: np.ndarray) -> tuple[float, float]:
    """From the smallest to the largest, of all that are finite; never empty."""
    finite = returns[np.isfinite(returns)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    return low, high if high > low else low + (abs(low) or 1.0)


def steps_per_iteration(config: dict[str, Any]) -> int:
    """Environment steps of each seed in one iteration, from the configuration of a run."""
    options = config["config"]
    student = options.get("sac") or options.get("ppo") or options["loop"]
    return int(student["n_steps"])


def reserve(path: str | os.PathLike[str], besides: tuple[str, ...] = ()) -> Path:
    """Make sure of an empty folder (`besides` may be there) to write a run into, before any work is done."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = sorted({p.name for p in folder.iterdir()} - set(besides))
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, "no permission to write there")
    except OSError as error:
        raise RunFolderError(f"cannot use {folder} as a run folder: {error.strerror or error}") from error
    if held:
        what = "already holds a run" if "config.json" in held else f"is not empty (it holds {', '.join(held[:3])})"
        raise RunFolderError(f"{folder} {what}; nothing was changed. Choose another folder, or move that one away.")
    return folder


def remove_result(folder: Path) -> None:
    """Remove the files of a result, the manifest first, so that half a result never looks complete."""
    manifest.refuse_newer_folder(folder, RUN)
    for name in (disk.MANIFEST, *FILES):
        (folder / name).unlink(missing_ok=True)
    failure.remove_all(folder)


def load_result(path: str | os.PathLike[str]) -> Result:
    """Read a run folder, after checking every file against the manifest."""
    path = numbers.path("path", path)
    if not (path / disk.MANIFEST).exists() and (path / "checkpoints").is_dir():
        raise RunFolderError(
            f"{path} has no {disk.MANIFEST}; it holds an unfinished run: `procurl resume {path}` goes on with it"
        )
    data = read_files(path)
    evaluations, provenance, trace = data["evaluations.npz"], data["provenance.json"], data["trace.npz"]
    failures = failure.unflatten(provenance.pop("failures", []), trace, str(path))
    failure.require_whole(path, [f.seed for f in failures])
    return Result(
        config=data["config.json"],
        provenance=provenance,
        timing=data["timing.json"],
        seeds=evaluations["seeds"],
        steps=evaluations["steps"],
        task_ret=evaluations["task_ret"],
        task_success=evaluations["task_success"],
        held_out={k: evaluations[f"held_out_{k}"] for k in ("context", "seed", "row")},
        trace={k: v for k, v in trace.items() if not k.startswith(failure.PREFIX)},
        params=data["policy.safetensors"],
        failures=failures,
    )


def read_files(folder: Path) -> dict[str, Any]:
    """The files of a result as plain data: undamaged, alone in their folder, and about one run."""
    from procurl.runs.store.schema import require_result

    data = manifest.read_folder(folder, RUN)
    manifest.refuse_others(folder, FILES, strict=False)
    require_result(folder, data)
    return data


def load_policy(path: str | os.PathLike[str], seed: int | None = None) -> Any:
    """The trained policy of one seed of a run (unless `seed` names another, the first that did not fail), ready to
    `predict`.
    """
    from procurl.students.policy import Policy

    data = read_files(numbers.path("path", path))
    config = data["config.json"]
    seeds = config["seeds"]
    if seed is not None and (seed not in seeds or isinstance(seed, bool)):
        raise ConfigError(f"seed {seed} is not in {path}: it holds the seeds {seeds}")
    failures = failure.unflatten(data["provenance.json"].get("failures", []), data["trace.npz"], str(path))
    failed = {f.seed: str(f) for f in failures}
    sound = [s for s in seeds if s not in failed]
    if not sound or seed in failed:
        which = f"the sound ones are {sound}" if sound else "so are all others"
        raise ConfigError(f"{failed[seeds[0] if seed is None else seed]}. It left no policy; {which}.")
    if not data["policy.safetensors"]:
        raise ConfigError(
            f"{path} is a run of {data['provenance.json'].get('engine', 'another program')}: it holds no policy of "
            f"procurl's; load the one that your own program saved"
        )
    row = seeds.index(sound[0] if seed is None else seed)
    params = {k: v[row] for k, v in data["policy.safetensors"].items()}
    try:
        return Policy(params, config["action"])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise RunFolderError(f"{path} holds no weights of a student: {error!r}") from error
