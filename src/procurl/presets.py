"""Settings and strategies by name, and the hyper-parameters of the paper and of its released code.

The settings are those of `envs/catalogue.py`. Nothing here imports JAX.
"""

from __future__ import annotations

from typing import Any

from procurl import installed
from procurl.config import Config
from procurl.envs.catalogue import CATALOGUE, Setting
from procurl.errors import ConfigError, unknown_name

VARIANTS = ("paper", "release")

SETTINGS: dict[str, Setting] = {name: setting for entry in CATALOGUE for name, setting in entry.settings.items()}

# name -> (class in procurl.teachers, summary). A new strategy is one file there and one row here.
STRATEGIES: dict[str, tuple[str, str]] = {
    "iid": ("iid:IID", "uniform over the pool"),
    "target": ("iid:Target", "always the target distribution"),
    "procurl-unif": ("procurl:ProCuRLUnif", "tasks of intermediate difficulty"),
    "procurl-target": (
        "procurl:ProCuRLTarget", "tasks of intermediate difficulty that are correlated with learnable targets"
    ),
    "procurl-path": ("path:ProCuRLPath", "as far towards the targets as the student can do, from what it can learn"),
    "spdl": ("spdl:SPDL", "as near to the target distribution as the student's mean value allows"),
    "currot": ("currot:CURROT", "particles that move to the target distribution through tasks the student can do"),
    "plr": ("plr:PLR", "new tasks, and again those with the largest advantages or not played for long"),
    "gradient": (
        "gradient:GRADIENT", "in stages along the shortest path from the whole space to the target distribution"
    ),
    "alp-gmm": ("alp_gmm:ALPGMM", "where returns change most, by Gaussians fitted to contexts and changes"),
    "learning-progress": ("learning_progress:LearningProgress", "cells of the space whose success rates change"),
    "vds": ("vds:VDS", "tasks of the pool on whose returns an ensemble of networks disagrees"),
    "adr": ("adr:ADR", "a box around a start that grows where the student does well at its sides"),
    "robust-plr": ("robust_plr:RobustPLR", "PLR that plays new tasks, and learns from those it replays only"),
    "sfl": ("sfl:SFL", "tasks that the student, tried out, solves now and then"),
}  # fmt: skip
TEACHERS: dict[str, str] = {name: summary for name, (_, summary) in STRATEGIES.items()}


def preset(setting: str, variant: str = "paper") -> Config:
    """The student's and the loop's settings for a benchmark setting, or for one of an installed package."""
    require_variant(variant)
    if setting not in SETTINGS:
        return installed.setting(setting, SETTINGS).config
    row = named_setting(setting)
    return (row.release_config if variant == "release" else None) or row.config


def teacher_preset(teacher: str, setting: str | None, variant: str = "paper") -> dict[str, Any]:
    """The hyper-parameters of a strategy in a setting."""
    require_variant(variant)
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


def is_own(text: str) -> bool:
    """Whether a text names something in a user's file or module, FILE.py:NAME or package.module:NAME."""
    return ":" in text or text.endswith(".py")


def require_names(setting: str, teacher: str, variant: str) -> None:
    """Refuse names that nobody knows, before anything is imported for the sake of those that are known."""
    require_variant(variant)
    for kind, text, ours in (("setting", setting, SETTINGS), ("teacher", teacher, TEACHERS)):
        if not is_own(text) and text not in ours and (kind, text) != ("teacher", "auto"):
            try:
                installed.require(kind, text, ours)  # type: ignore[arg-type]  # one of the two kinds
            except ConfigError as error:
                raise ConfigError(f"{error}; or one of your own, as FILE.py:NAME") from None


def require_variant(variant: str) -> None:
    if variant not in VARIANTS:
        raise unknown_name("variant", variant, VARIANTS)
