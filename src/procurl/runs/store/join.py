"""One result out of several that differ in their seeds alone: seeds that ran one after the other, or side by side."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from procurl.errors import ConfigError
from procurl.runs.store.result import Result

SECONDS = ("compile_seconds", "iterating_seconds", "evaluating_seconds", "saving_seconds")


def joined(results: list[Result]) -> Result:
    """All seeds of all results, in the order given. Where one was stopped early, all are cut to its evaluations.

    Seconds are summed and speeds averaged: what one of these runs did, not what several did at the same time.
    """
    _require_parts_of_one(results)
    first = results[0]
    n = min(len(r.steps) for r in results)

    def together(*arrays: NDArray[Any]) -> NDArray[Any]:
        shortest = min(a.shape[1] for a in arrays) if arrays[0].ndim > 1 else None
        return np.concatenate([a if shortest is None else a[:, :shortest] for a in arrays])

    return dataclasses.replace(
        first,
        config={**first.config, "seeds": [seed for r in results for seed in r.config["seeds"]]},
        provenance=_provenance([r.provenance for r in results]),
        timing=_timing([r.timing for r in results]),
        seeds=np.concatenate([r.seeds for r in results]),
        steps=first.steps[:n],
        task_ret=together(*(r.task_ret for r in results)),
        task_success=together(*(r.task_success for r in results)),
        trace={k: together(*(r.trace[k] for r in results)) for k in first.trace},
        params={k: np.concatenate([r.params[k] for r in results]) for k in first.params},
        failures=tuple(failure for r in results for failure in r.failures),
    )


def _require_parts_of_one(results: list[Result]) -> None:
    if not results:
        raise ConfigError("no results to join: expected at least one")
    for r in results[1:]:
        differing = [k for k in {**results[0].config, **r.config} if results[0].config.get(k) != r.config.get(k)]
        if differing not in ([], ["seeds"]):
            raise ConfigError(
                f"cannot join {r.label} with seeds {r.config['seeds']} to {results[0].label} with seeds "
                f"{results[0].config['seeds']}: they differ in {', '.join(differing)}; expected seeds alone"
            )
    repeated = [seed for seed, n in Counter(s for r in results for s in r.config["seeds"]).items() if n > 1]
    if repeated:
        raise ConfigError(f"cannot join results: seed {repeated[0]} is in more than one of them")


def _provenance(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The first one's, with the last one's status and, where they came from different machines, all the origins."""
    origins: list[dict[str, Any]] = []
    for part in parts:
        origin = {k: v for k, v in part.items() if k != "status"}
        if origin not in origins:
            origins.append(origin)
    whole = {**parts[0], "status": parts[-1]["status"]}
    return whole if len(origins) == 1 else {**whole, "origins": origins}


def _timing(parts: list[dict[str, Any]]) -> dict[str, Any]:
    summed = {k: round(sum(p[k] for p in parts), 3) for k in SECONDS if k in parts[0]}

    def mean(name: str) -> float | None:
        known = [p[name] for p in parts if p.get(name) is not None]
        return float(np.mean(known)) if known else None

    speed = mean("steps_per_second")
    return {
        **parts[0],
        **summed,
        "began": min(p["began"] for p in parts),
        "steps_per_second": None if speed is None else round(speed, 1),
        "teacher_share_timed_alone": mean("teacher_share_timed_alone"),
        "saves": sum(p["saves"] for p in parts),
        "resumed_at_steps": sorted(step for p in parts for step in p["resumed_at_steps"]),
    }
