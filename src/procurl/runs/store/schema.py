"""Does a file hold what its name says? Digests reveal damage, not forgery: a forger writes the manifest, too.

Checked when a result is read, so that no later code has to doubt it: names are text, numbers are numbers,
and all arrays are about the same seeds, evaluations and tasks. NaN may be among the numbers, as a run may fail.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from procurl.errors import RunFolderError
from procurl.runs.store import failure

Number = int | float


def require_result(folder: Path, data: dict[str, Any]) -> None:
    """The files of a run folder, by their names, are about one run."""
    checks: dict[str, Callable[[dict[str, Any]], None]] = {
        "config.json": _config,
        "provenance.json": _provenance,
        "timing.json": _timing,
        "evaluations.npz": _evaluations,
        "trace.npz": _trace,
        "policy.safetensors": _policy,
    }
    for name, check in checks.items():
        try:
            check(data)
        except ValueError as error:
            raise RunFolderError(f"{folder / name} is not as procurl writes it: {error}") from None


def _config(data: dict[str, Any]) -> None:
    config = _kind("it", data["config.json"], dict)
    _field(config, "setting", str | None)
    for part in ("env", "teacher"):
        _field(_field(config, part, dict), "class", str)
    _field(config, "action", dict)
    space = _field(config, "space", dict)
    names = _list(space, "names", str)
    for part, length in (("low", len(names)), ("high", len(names)), ("value_range", 2)):
        if part == "value_range" and space.get(part, ()) is None:
            continue  # it was learnt
        if len(_list(space, part, Number)) != length:
            raise ValueError(f"space.{part} has {len(space[part])} numbers; expected {length}")
    _field(space, "sha256", str)
    if "labels" in space and (len(names) != 1 or not _list(space, "labels", str)):
        raise ValueError("space.labels: expected names of tasks, in a space of one dimension")
    options = _field(config, "config", dict)
    kinds = [kind for kind in ("sac", "ppo", "loop") if options.get(kind) is not None]
    student = _field(options, kinds[0] if kinds else "ppo", dict)
    for where, name in ((student, "n_steps"), (config, "steps")):
        if _field(where, name, int) < 1:
            raise ValueError(f"{name} is {where[name]}; expected at least 1")
    seeds = _list(config, "seeds", int)
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0 or max(seeds) >= 2**32:
        raise ValueError("seeds: expected at least one, all different, between 0 and 2^32 - 1")


def _provenance(data: dict[str, Any]) -> None:
    _field(_kind("it", data["provenance.json"], dict), "status", str)


def _timing(data: dict[str, Any]) -> None:
    timing = _kind("it", data["timing.json"], dict)
    for name, kind in (
        ("began", str),
        ("steps_per_second", Number | None),
        ("teacher_share_timed_alone", Number | None),
    ):
        if name in timing:
            _field(timing, name, kind)


def _evaluations(data: dict[str, Any]) -> None:
    config, arrays = data["config.json"], data["evaluations.npz"]
    n_seeds, d = len(config["seeds"]), len(config["space"]["names"])
    if _array(arrays, "seeds", "iu", (n_seeds,)).tolist() != config["seeds"]:
        raise ValueError("its seeds are not those of config.json")
    (n_evaluations,) = _array(arrays, "steps", "iu", (None,)).shape
    n_tasks, _ = _array(arrays, "held_out_context", "f", (None, d)).shape
    if not n_evaluations or not n_tasks:
        raise ValueError("it holds no evaluation")
    for name in ("task_ret", "task_success"):
        _array(arrays, name, "f", (n_seeds, n_evaluations, n_tasks))
    for name in ("held_out_seed", "held_out_row"):
        _array(arrays, name, "iu", (n_tasks,))


def _trace(data: dict[str, Any]) -> None:
    """All arrays but those of failures have leading axes (seed, iteration); a run that was cut at once has none."""
    config = data["config.json"]
    arrays = {name: a for name, a in data["trace.npz"].items() if not name.startswith(failure.PREFIX)}
    iterations = min((a.shape[1] for a in arrays.values() if a.ndim > 1), default=None)
    n_seeds, d = len(config["seeds"]), len(config["space"]["names"])
    shapes = {"task_context": (n_seeds, iterations, None, d), "target_distance": (n_seeds, iterations, d)}
    for name, a in arrays.items():
        kinds = "f" if name in shapes else "fiub"
        _array(arrays, name, kinds, shapes.get(name, (n_seeds, iterations, *a.shape[2:])))


def _policy(data: dict[str, Any]) -> None:
    n_seeds, arrays = len(data["config.json"]["seeds"]), data["policy.safetensors"]
    for name, a in arrays.items():
        _array(arrays, name, "f", (n_seeds, *a.shape[1:]))


def _field(where: dict[str, Any], name: str, kind: Any) -> Any:
    if name not in where:
        raise ValueError(f"it has no {name}")
    return _kind(name, where[name], kind)


def _list(where: dict[str, Any], name: str, kind: Any) -> list[Any]:
    return [_kind(name, item, kind) for item in _field(where, name, list)]


def _kind(name: str, value: Any, kind: Any) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        expected = getattr(kind, "__name__", str(kind))
        raise ValueError(f"{name} is {type(value).__name__}; expected {expected}")
    return value


def _array(arrays: dict[str, np.ndarray], name: str, kinds: str, shape: tuple[int | None, ...]) -> np.ndarray:
    """The array of this name, of one of these kinds (NumPy's letters) and of this shape; None fits any length."""
    if name not in arrays:
        raise ValueError(f"it has no {name}")
    a = arrays[name]
    fits = a.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, a.shape, strict=True))
    if not fits or a.dtype.kind not in kinds:
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        what = "whole numbers" if kinds == "iu" else "numbers"
        raise ValueError(f"{name} is {a.dtype}{list(a.shape)}; expected {what} of shape [{wanted}]")
    return a
