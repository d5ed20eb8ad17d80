"""Figures: learning curves, the curriculum each teacher produced (one colour per teacher everywhere), heat maps.

`save_all` is what `procurl plot` calls. The figures of the paper are written for print, as PNG and PDF.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from procurl.bench.report.figures.canvas import plt, save
from procurl.bench.report.figures.curricula import (
    curriculum,
    curriculum_scatter,
    distance_to_target,
    family_shares,
    figure_three,
    label_shares,
)
from procurl.bench.report.figures.curves import Curve, figure_two, learning_curve, learning_curves, performance_profiles
from procurl.bench.report.figures.heat_map import final_returns, return_heat_map
from procurl.bench.report.figures.sweep_maps import sweep_maps
from procurl.bench.report.kinds import kinds_of
from procurl.bench.report.style import COLOURS, FAMILY_COLOURS, NAMES, colour_of, labels
from procurl.check.text import in_one_line
from procurl.envs.bipedal.track import MASTERED
from procurl.runs.store.join import joined
from procurl.runs.store.result import Result

__all__ = [
    "save_all", "save_published", "save", "learning_curves", "learning_curve", "Curve", "figure_two",
    "performance_profiles", "curriculum", "curriculum_scatter", "family_shares", "label_shares", "distance_to_target",
    "figure_three", "return_heat_map", "final_returns", "sweep_maps", "COLOURS", "FAMILY_COLOURS", "NAMES", "colour_of",
    "labels", "plt",
]  # fmt: skip


def save_all(
    results: list[Result], out: Path, *, band: str = "se", suffix: str = "png", published: bool = False
) -> list[Path]:
    """Learning curves per setting, then pictures of the curricula; with `published`, the figures for print too."""
    written = []
    for setting, runs in _by_setting(results).items():
        pictures = {"curves": learning_curves(runs, band=band)}
        if _that_began(runs):
            pictures |= curriculum(setting, _that_began(runs))
        if setting in ("bipedal", "bipedal-jax"):
            pictures["returns"] = final_returns(runs, MASTERED)
        for kind, figure in pictures.items():
            written += save(figure, out / f"{_file_name(setting)}-{kind}.{suffix}")
    return [*written, *(save_published(results, out) if published else [])]


def save_published(results: list[Result], out: Path) -> list[Path]:
    """The paper's Figure 2 and 3 and performance profiles, where they apply, each as PNG and PDF."""
    by_setting = _by_setting(results)
    several = {s: runs for s, runs in by_setting.items() if any(len(r.seeds) > 1 for r in runs)}
    pictures = {"figure-2": figure_two(by_setting)}
    if several:  # the profile of a single seed is one step
        pictures["profiles"] = performance_profiles(several)
    for setting, runs in by_setting.items():
        if kinds_of(setting, runs[0].config["space"]) is None and _that_began(runs):  # else there are no distances
            pictures[f"{_file_name(setting)}-figure-3"] = figure_three(_that_began(runs))
    written = []
    for name, figure in pictures.items():
        written += save(figure, out / f"{name}.png", out / f"{name}.pdf", dpi=300)
    return written


def _by_setting(results: list[Result]) -> dict[str, list[Result]]:
    """Spaces without a name are told apart by their tasks: custom, custom-2, ..."""
    found: dict[str, list[Result]] = defaultdict(list)
    custom: dict[str, str] = {}
    for result in _with_all_seeds(results):
        plain = dataclasses.replace(result, config=_without_formulas(result.config))
        tasks = plain.config["space"].get("sha256", "")
        if not plain.config["setting"] and tasks not in custom:
            custom[tasks] = f"custom-{len(custom) + 1}" if custom else "custom"
        found[plain.config["setting"] or custom[tasks]].append(plain)
    return found


def _with_all_seeds(results: list[Result]) -> list[Result]:
    """A loop of somebody's own has a folder for each seed: those of one strategy are one run in a picture."""
    groups: dict[str, list[Result]] = {}
    for k, result in enumerate(results):
        is_loop = "loop" in result.config["config"]
        shared = {name: value for name, value in result.config.items() if name != "seeds"}
        groups.setdefault(json.dumps(shared, sort_keys=True) if is_loop else str(k), []).append(result)
    return [joined(group) if len(group) > 1 else group[0] for group in groups.values()]


def _without_formulas(data: Any) -> Any:
    """Names are somebody's: Matplotlib would set what stands between dollars as mathematics, or fail to."""
    if isinstance(data, dict):
        return {k: _without_formulas(v) for k, v in data.items()}
    if isinstance(data, list):
        return [_without_formulas(v) for v in data]
    return in_one_line(data).replace("$", r"\$") if isinstance(data, str) else data


def _file_name(setting: str) -> str:
    """A setting's name can be a stranger's, and must not lead out of the folder."""
    return re.sub(r"[^\w.-]+", "-", setting).lstrip(".-") or "custom"


def _that_began(runs: list[Result]) -> list[Result]:
    """Runs with at least one iteration: one that was cut at its first evaluation has taught nothing."""
    return [r for r in runs if r.trace]
