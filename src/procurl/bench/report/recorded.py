"""Summaries of comparisons, as benchmarks/compare.py and benchmarks/sb3_alike.py write them (JSON, and npz beside it).

They hold what fits into a repository: means and standard errors over training, the final return of every seed, and (in
the npz, where it is there) some of the tasks that were chosen.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from procurl.errors import RunFolderError
from procurl.presets import STRATEGIES
from procurl.runs.store import disk

# Files from before teachers were recorded with their class.
CLASSES = {name: where.split(":")[1] for name, (where, _) in STRATEGIES.items()}


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """One strategy of one file; see procurl.bench.report.studies.Strategy for what the fields mean."""

    setting: str
    student: str | None  # paper or release, where there are two
    variant: str  # of the teacher, or the engine; "" for the default
    teacher: dict[str, Any]
    config: dict[str, Any]
    space: dict[str, Any] | None
    steps: np.ndarray
    mean: np.ndarray
    error: np.ndarray
    final: np.ndarray
    area: tuple[float, float] | None
    speed: float | None
    teacher_share: float | None
    provenance: dict[str, Any] | None
    date: str | None
    iteration_steps: int
    held_out: np.ndarray | None = None
    contexts: np.ndarray | None = None
    iterations: np.ndarray | None = None
    distance: np.ndarray | None = None


def read(path: Path) -> list[RecordedRun] | None:
    """The strategies of one file; None for a file that is something else."""
    try:
        summary = disk.from_json(disk.read(path, disk.MOST_TEXT), finite=False)
    except ValueError as error:
        raise RunFolderError(f"{path} cannot be read: {error}") from error
    if not isinstance(summary, dict) or not isinstance(summary.get("teachers"), dict) or "setting" not in summary:
        return None
    arrays: dict[str, np.ndarray] = {}
    if path.with_suffix(".npz").is_file():
        try:
            arrays = disk.from_npz(disk.read(path.with_suffix(".npz")))
        except (ValueError, zipfile.BadZipFile) as error:
            raise RunFolderError(f"{path.with_suffix('.npz')} cannot be read: {error}") from error
    try:
        return [row for name, entry in summary["teachers"].items() for row in _rows(summary, name, entry, arrays)]
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise RunFolderError(f"{path} is not as benchmarks/compare.py writes it: {error!r}") from error


def _rows(
    summary: dict[str, Any], name: str, entry: dict[str, Any], arrays: dict[str, np.ndarray]
) -> list[RecordedRun]:
    """One row; or one per engine, where each entry holds several."""
    if "mean" in entry:
        return [_row(summary, name, entry, arrays)]
    return [
        _row({**summary, **engine_entry}, f"{name}:{engine}", engine_entry, {})
        for engine, engine_entry in entry.items()
        if isinstance(engine_entry, dict)
    ]


def _row(summary: dict[str, Any], name: str, entry: dict[str, Any], arrays: dict[str, np.ndarray]) -> RecordedRun:
    strategy, _, variant = name.partition(":")
    area = entry.get("area")
    if area is None and "area_per_seed" in entry:
        per_seed = np.array(entry["area_per_seed"], float)
        area = [per_seed.mean(), per_seed.std(ddof=1) / np.sqrt(len(per_seed)) if len(per_seed) > 1 else None]
    steps = entry.get("steps", summary["steps"])  # its own, where the student also played for the teacher alone
    row = RecordedRun(
        setting=summary["setting"],
        student=summary.get("student"),
        variant=variant,
        teacher=entry.get("teacher") or {"class": CLASSES.get(strategy, strategy)},
        config={"steps": int(steps[-1])},
        space=entry.get("space", summary.get("space")),
        steps=np.array(steps, int),
        mean=np.array(entry["mean"], float),
        error=np.array(entry["standard_error"], float),
        final=np.array(entry["final_per_seed"], float),
        area=None if area is None else (float(area[0]), np.nan if area[1] is None else float(area[1])),
        speed=entry.get("steps_per_second"),
        teacher_share=entry.get("teacher_share_timed_alone"),
        provenance=entry.get("provenance", summary.get("provenance")),
        date=entry.get("date", summary.get("date")),
        iteration_steps=int(summary.get("n_steps", 0)),
    )
    if not len(row.steps) == len(row.mean) == len(row.error):
        raise ValueError(f"{name} has {len(row.mean)} means at {len(row.steps)} evaluations")
    if f"{name}/context" not in arrays or row.space is None:
        return row
    context = arrays[f"{name}/context"].astype(np.float32)  # f32[S, I, k, d], of some seeds
    began = np.isfinite(context[..., 0])
    distance = arrays[f"{name}/distance"].astype(float)  # f64[S, I, d]
    finite = np.isfinite(distance)
    count = finite.sum(axis=0)
    mean_distance = np.divide(
        np.where(finite, distance, 0.0).sum(axis=0), count, out=np.full(count.shape, np.nan), where=count > 0
    )
    traces: dict[str, Any] = {"contexts": context[began], "iterations": np.nonzero(began)[1], "distance": mean_distance}
    if f"{name}/steps" in arrays:  # i64[S, I]  counted, where it also played for its teacher
        ends = arrays[f"{name}/steps"]
        traces["iteration_steps"] = round(float(ends[:, -1].mean() / ends.shape[1]))
    return RecordedRun(**{**row.__dict__, **traces, "held_out": arrays["held_out"].astype(np.float32)})
