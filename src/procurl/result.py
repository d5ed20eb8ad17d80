"""Results, and the one folder format they live in: readable without procurl, verified by it.

    config.json         all that determines the run
    provenance.json     versions, commit, hardware, and how the run ended
    evaluations.npz     steps, returns and successes per seed, evaluation and held-out task
    trace.npz           per seed and iteration: tasks that began, training returns, losses
    policy.safetensors  the students' weights, all seeds
    timing.json         everything about the clock
    manifest.json       format version and the SHA-256 of each file, written last

Loading never runs code from a file: no pickle, no eval.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from procurl.errors import ConfigError, RunFolderError

FORMAT, VERSION = "procurl-run", 1
FILES = (
    "config.json", "provenance.json", "evaluations.npz", "trace.npz", "policy.safetensors", "timing.json",
)  # fmt: skip


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
    trace: dict[str, np.ndarray]  # see procurl.record.Trace; leading axes (seed, iteration)
    params: dict[str, np.ndarray]  # "policy.0.w" -> f32[S, ...]

    @property
    def ret(self) -> np.ndarray:
        """f32[S, E]: mean return on the held-out target tasks."""
        return self.task_ret.mean(axis=-1)

    @property
    def success(self) -> np.ndarray:
        """f32[S, E]: share of evaluation episodes that reached the goal."""
        return self.task_success.mean(axis=-1)

    @property
    def status(self) -> str:
        """finished, stopped (by a callback), interrupted (by Ctrl-C) or failed."""
        return str(self.provenance["status"])

    @property
    def label(self) -> str:
        """Setting and teacher, for people."""
        return f"{self.config['setting'] or 'custom setting'} / {self.config['teacher']['class']}"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the run folder. An existing folder must be empty; if writing fails, nothing half-done stays."""
        folder = reserve(path)
        staging = folder / ".partial"
        try:
            staging.mkdir()
            digests = {}
            for name, content in self._files().items():
                _write(staging / name, content)
                digests[name] = hashlib.sha256(content).hexdigest()
            manifest = {"format": FORMAT, "version": VERSION, "sha256": digests}
            _write(staging / "manifest.json", _json(manifest))
            for name in (*FILES, "manifest.json"):  # the manifest arrives last: without it, a run is incomplete
                os.replace(staging / name, folder / name)
            staging.rmdir()
            _sync_folder(folder)
        except OSError as error:
            shutil.rmtree(staging, ignore_errors=True)
            for name in FILES:
                (folder / name).unlink(missing_ok=True)
            raise SaveError(folder, error, self) from error
        return folder

    def _files(self) -> dict[str, bytes]:
        import safetensors.numpy

        evaluations = {
            "seeds": self.seeds,
            "steps": self.steps,
            "ret": self.ret,
            "task_ret": self.task_ret,
            "task_success": self.task_success,
            **{f"held_out_{k}": v for k, v in self.held_out.items()},
        }
        contents = (
            _json(self.config),
            _json(self.provenance),
            _npz(evaluations),
            _npz(self.trace),
            safetensors.numpy.save({k: np.ascontiguousarray(v) for k, v in self.params.items()}),
            _json(self.timing),
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


def reserve(path: str | os.PathLike[str]) -> Path:
    """Make sure of an empty folder to write a run into, before any work is done."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = sorted(p.name for p in folder.iterdir())
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, "no permission to write there")
    except OSError as error:
        raise RunFolderError(f"cannot use {folder} as a run folder: {error.strerror or error}") from error
    if held:
        what = "already holds a run" if "config.json" in held else f"is not empty (it holds {', '.join(held[:3])})"
        raise RunFolderError(f"{folder} {what}; nothing was changed. Choose another folder, or move that one away.")
    return folder


def load_result(path: str | os.PathLike[str]) -> Result:
    """Read a run folder, after checking every file against the manifest."""
    data = _parsed(Path(path))
    evaluations = data["evaluations.npz"]
    return Result(
        config=data["config.json"],
        provenance=data["provenance.json"],
        timing=data["timing.json"],
        seeds=evaluations["seeds"],
        steps=evaluations["steps"],
        task_ret=evaluations["task_ret"],
        task_success=evaluations["task_success"],
        held_out={k: evaluations[f"held_out_{k}"] for k in ("context", "seed", "row")},
        trace=data["trace.npz"],
        params=data["policy.safetensors"],
    )


def load_policy(path: str | os.PathLike[str], seed: int | None = None) -> Any:
    """The trained policy of one seed of a run (the first, unless `seed` names another), ready to `predict`."""
    from procurl.policy import Policy

    data = _parsed(Path(path))
    config = data["config.json"]
    seeds = config["seeds"]
    if seed is not None and seed not in seeds:
        raise ConfigError(f"seed {seed} is not in {path}: it holds the seeds {seeds}")
    row = 0 if seed is None else seeds.index(seed)
    params = {k: v[row] for k, v in data["policy.safetensors"].items()}
    return Policy(params, config["action"])


def _verified(folder: Path) -> dict[str, bytes]:
    """The bytes of every file of a run, each checked against the manifest."""
    manifest_path = folder / "manifest.json"
    if not folder.is_dir():
        raise RunFolderError(f"{folder} is not a folder; expected a run folder written by procurl")
    if not manifest_path.is_file():
        raise RunFolderError(f"{folder} has no manifest.json: it is not a complete procurl run")
    try:
        manifest = json.loads(manifest_path.read_bytes())
        kind, version, digests = manifest["format"], manifest["version"], dict(manifest["sha256"])
    except (ValueError, KeyError, TypeError) as error:
        raise RunFolderError(f"{manifest_path} is damaged: {error!r}") from error
    if kind != FORMAT or version != VERSION:
        raise RunFolderError(
            f"{folder} has format {kind!r} version {version!r}; this procurl reads {FORMAT!r} version {VERSION}. "
            f"Use the procurl that wrote it (see its provenance.json)."
        )
    contents = {}
    for name in FILES:
        if name not in digests or not (folder / name).is_file():
            raise RunFolderError(f"{folder} lacks {name}: the run is incomplete")
        contents[name] = (folder / name).read_bytes()
        if hashlib.sha256(contents[name]).hexdigest() != digests[name]:
            raise RunFolderError(f"{folder / name} is damaged: its content does not match manifest.json")
    return contents


def _parsed(folder: Path) -> dict[str, Any]:
    """Every file of a run as plain data. A file that matches its digest may still hold nonsense, or a pickle."""
    readers: dict[str, Callable[[bytes], Any]] = {".json": json.loads, ".npz": _read_npz, ".safetensors": _read_tensors}
    data = {}
    for name, content in _verified(folder).items():
        try:
            data[name] = readers[Path(name).suffix](content)
        except Exception as error:
            raise RunFolderError(f"{folder / name} cannot be read: {error}") from error
    return data


def _json(data: Any) -> bytes:
    return (json.dumps(data, indent=2, allow_nan=False) + "\n").encode()


def _npz(arrays: dict[str, np.ndarray]) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def _read_npz(content: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return dict(arrays)


def _read_tensors(content: bytes) -> dict[str, np.ndarray]:
    import safetensors.numpy

    return safetensors.numpy.load(content)


def _write(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Make the renames durable; not every platform can open a folder."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
