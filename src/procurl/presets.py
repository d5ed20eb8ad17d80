"""The hyper-parameters of the paper and of its released code, as data.

`paper` is what the paper defines; `release` is how the released code behaves where the two differ. This module
does not import JAX. A strategy or setting that is not listed here runs with its class's own defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from procurl.config import PPO, SAC, Config
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
    release_config: Config | None = None  # the student of the released code, where it is another one


POINT_MASS = Setting(
    "Point Mass Sparse",
    steps=2_000_000,
    seeds=25,
    config=Config(ppo=PPO(), evaluation_episodes=10),
    teachers={
        "procurl-unif": {"beta": 130.0},
        "procurl-target": {"beta": 130.0},
        "spdl": {"v_lb": 0.5, "epsilon": 0.5},
        "currot": {"v_lb": 0.6, "epsilon": 0.05},
        "plr": {"rho": 0.5, "beta": 0.1},
        "gradient": {"n_stages": 10, "max_steps_per_stage": 100_000, "threshold": 0.8},
    },
    release={
        "procurl-target": {"pairing": "max", "resample_targets": True},
        "spdl": {"target": "uniform"},
        "currot": {"epsilon": 0.5},
        "plr": {"score": "signed_gae"},
    },
)

MAZE = Setting(
    "Sparse Goal Reaching",
    steps=1_000_000,
    seeds=10,
    config=Config(ppo=PPO(batch_size=256, entropy=0.0, shared=(64,), separate=(32,)), evaluation_episodes=10),
    teachers={
        "procurl-unif": {"beta": 90.0},
        "procurl-target": {"beta": 90.0},
        "spdl": {"v_lb": 0.5, "epsilon": 0.2},
        "currot": {"v_lb": 0.4, "epsilon": 1.5},
        "plr": {"rho": 0.5, "beta": 0.1},
        "gradient": {"n_stages": 5, "max_steps_per_stage": 100_000, "threshold": 0.8},
    },
    release={
        "procurl-target": {"pairing": "max", "resample_targets": True, "n_targets": 400},
        "spdl": {"target": "uniform"},
        "currot": {"epsilon": 0.2},
        "plr": {"score": "signed_gae"},
    },
)

# 25,600 steps an update; evaluated every 4 updates on 100 layouts that nobody trains on
MINIGRID_PPO = PPO(n_steps=25_600, batch_size=64, shared=(256, 128, 64, 32), separate=())
MINIGRID = Setting(
    "MiniG, six MiniGrid missions; the target is to fetch the box behind a blocked door",
    steps=4_000_000,
    seeds=20,
    config=Config(ppo=MINIGRID_PPO, evaluate_every=4, evaluation_episodes=1),
    teachers={
        "procurl-unif": {"beta": 110.0},
        "procurl-target": {"beta": 110.0},
        "spdl": {"v_lb": 0.5, "epsilon": 0.2},
        "currot": {"v_lb": 0.4, "epsilon": 1.5},
        "plr": {"rho": 0.5, "beta": 0.1},
        "gradient": {"n_stages": 7, "max_steps_per_stage": 450_000, "threshold": 0.4},
    },
    release={
        "procurl-target": {"pairing": "max", "resample_targets": True},
        "spdl": {"target": "uniform"},
        "currot": {"epsilon": 0.2},
        "plr": {"score": "signed_gae"},
    },
    release_config=Config(  # two networks where the paper has one
        ppo=replace(MINIGRID_PPO, shared=(), separate=(256, 128, 64, 32)), evaluate_every=4, evaluation_episodes=1
    ),
)


# Returns lie between -150 and 350; 180 and 250 are 0.66 and 0.8 of the way up. Evaluated every 500,000 steps.
BIPEDAL = Setting(
    "BW, the Bipedal Walker on Stump Tracks; the target is every height and spacing of stumps",
    steps=20_000_000,
    seeds=10,
    config=Config(sac=SAC(), evaluate_every=250, evaluation_episodes=1),
    teachers={
        "iid": {"redraw_every": 1},
        "procurl-unif": {"beta": 90.0, "redraw_every": 2_000_000},
        "procurl-target": {"beta": 90.0, "redraw_every": 2_000_000},
        "spdl": {"v_lb": 180.0, "epsilon": 0.5},
        "currot": {"v_lb": 180.0, "epsilon": 0.5},
        "plr": {"rho": 0.5, "beta": 0.1},
        "gradient": {"n_stages": 10, "max_steps_per_stage": 1_000_000, "threshold": 250.0},
    },
    release={
        "procurl-target": {"pairing": "max", "resample_targets": True, "n_targets": 250},
    },
)


def _named(family: Setting, detail: str, **config: Any) -> Setting:
    return replace(family, summary=f"{family.summary}, {detail}", config=replace(family.config, **config))


SETTINGS: dict[str, Setting] = {
    # a point needs no repeats: its 100 held-out tasks are 100 episodes of the same task
    "point-mass-1t": _named(POINT_MASS, "one target: a narrow gate off the straight line", evaluation_episodes=1),
    "point-mass-2g": _named(POINT_MASS, "two targets: narrow gates at either border, any friction"),
    "point-mass-1g": _named(POINT_MASS, "one border gate, any friction (extra)"),
    "maze-plane": _named(MAZE, "goals anywhere with the smallest tolerance"),
    "maze-1t": _named(MAZE, "one target: the far corner with the smallest tolerance (extra)"),
    "maze-1g": _named(MAZE, "goals anywhere with tolerances near 0.06 (extra)"),
    "maze-2g": _named(MAZE, "goals anywhere with tolerances near 0.06 or 0.12 (extra)"),
    "minigrid": MINIGRID,
    "bipedal": BIPEDAL,
}

TEACHERS: dict[str, str] = {
    "iid": "uniform over the pool",
    "target": "always the target distribution",
    "procurl-unif": "tasks of intermediate difficulty",
    "procurl-target": "tasks of intermediate difficulty that are correlated with learnable targets",
    "spdl": "as near to the target distribution as the student's mean value allows",
    "currot": "particles that move to the target distribution through tasks the student can do",
    "plr": "new tasks, and again those with the largest advantages or not played for long",
    "gradient": "in stages along the shortest path from the whole space to the target distribution",
}


def preset(setting: str, variant: str = "paper") -> Config:
    """The student's and the loop's settings for a benchmark setting."""
    _require_variant(variant)
    row = named_setting(setting)
    return (row.release_config if variant == "release" else None) or row.config


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
