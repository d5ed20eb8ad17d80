"""The hyper-parameters of the paper and of its released code, as data.

`paper` is what the paper defines; `release` is how the released code behaves where the two differ. This module
does not import JAX. A strategy or setting that is not listed here runs with its class's own defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from procurl.config import PPO, Config
from procurl.errors import unknown_name

VARIANTS = ("paper", "release")


@dataclass(frozen=True)
class Setting:
    """One benchmark setting: how the student learns there, and what each strategy is told."""

    summary: str
    steps: int  # the paper's training length
    seeds: int  # the paper's number of runs
    config: Config
    teachers: dict[str, dict[str, Any]] = field(default_factory=dict)  # strategy -> hyper-parameters
    release: dict[str, dict[str, Any]] = field(default_factory=dict)  # what the released code changes


def _point_mass(summary: str, evaluation_episodes: int) -> Setting:
    return Setting(
        summary,
        steps=2_000_000,
        seeds=25,
        config=Config(ppo=PPO(), evaluation_episodes=evaluation_episodes),
        teachers={
            "procurl-unif": {"beta": 130.0},
            "procurl-target": {"beta": 130.0},
            "spdl": {"v_lb": 0.5, "epsilon": 0.5},
            "currot": {"v_lb": 0.6, "epsilon": 0.05},
        },
        release={
            "procurl-target": {"pairing": "max", "resample_targets": True},
            "spdl": {"target": "uniform"},
            "currot": {"epsilon": 0.5},  # it passed SPDL's epsilon to the trust region
        },
    )


SETTINGS: dict[str, Setting] = {
    "point-mass-1t": _point_mass("Point Mass Sparse, one target: a narrow gate off the straight line", 1),
    "point-mass-2g": _point_mass("Point Mass Sparse, two targets: narrow gates at either border, any friction", 10),
    "point-mass-1g": _point_mass("Point Mass Sparse, one border gate, any friction (extra)", 10),
}

TEACHERS: dict[str, str] = {
    "iid": "uniform over the pool",
    "target": "always the target distribution",
    "procurl-unif": "tasks of intermediate difficulty",
    "procurl-target": "tasks of intermediate difficulty that are correlated with learnable targets",
    "spdl": "towards the target distribution as fast as the student's values and a trust region allow",
    "currot": "particles that optimal transport carries towards the target as far as the student succeeds",
}


def preset(setting: str, variant: str = "paper") -> Config:
    """The student's and the loop's settings for a benchmark setting."""
    _require_variant(variant)
    return named_setting(setting).config  # paper and release agree on the student in every setting so far


def teacher_preset(teacher: str, setting: str | None, variant: str = "paper") -> dict[str, Any]:
    """The hyper-parameters of a strategy in a setting."""
    _require_variant(variant)
    if teacher not in TEACHERS:
        raise unknown_name("teacher", teacher, TEACHERS)
    if setting is None:
        return {}
    row = named_setting(setting)
    changed = row.release.get(teacher, {}) if variant == "release" else {}
    return {**row.teachers.get(teacher, {}), **changed}


def named_setting(name: str) -> Setting:
    if name not in SETTINGS:
        raise unknown_name("setting", name, SETTINGS)
    return SETTINGS[name]


def _require_variant(variant: str) -> None:
    if variant not in VARIANTS:
        raise unknown_name("variant", variant, VARIANTS)
