"""The strategies: TEACHERS maps a name to its class. A new one is one file and one row here."""

from __future__ import annotations

from typing import Any

from procurl.config import checked_fields
from procurl.errors import unknown_name
from procurl.presets import teacher_preset
from procurl.teachers.currot import CURROT
from procurl.teachers.gradient import GRADIENT
from procurl.teachers.iid import IID, Target
from procurl.teachers.plr import PLR
from procurl.teachers.procurl import ProCuRLTarget, ProCuRLUnif
from procurl.teachers.spdl import SPDL
from procurl.types import TaskSpace, Teacher

TEACHERS: dict[str, type] = {
    "iid": IID,
    "target": Target,
    "procurl-unif": ProCuRLUnif,
    "procurl-target": ProCuRLTarget,
    "spdl": SPDL,
    "currot": CURROT,
    "plr": PLR,
    "gradient": GRADIENT,
}


def make_teacher(
    name: str, space: TaskSpace, *, setting: str | None = None, variant: str = "paper", **overrides: Any
) -> Teacher:
    """A strategy with the hyper-parameters of a setting (by default the space's own), some of them overridden."""
    if name not in TEACHERS:
        raise unknown_name("teacher", name, TEACHERS)
    hyper_parameters = teacher_preset(name, setting or space.name or None, variant)
    checked_fields(TEACHERS[name], overrides)
    return TEACHERS[name](space, **{**hyper_parameters, **overrides})
