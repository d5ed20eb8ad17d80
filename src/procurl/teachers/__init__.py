"""The strategies: TEACHERS maps a name to its class. A new one is one file here and one row in `presets.STRATEGIES`."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any

from procurl.check.fields import checked_fields
from procurl.errors import ConfigError, unknown_name
from procurl.presets import STRATEGIES, teacher_preset
from procurl.teachers.base import redrawn
from procurl.types import TaskSpace, Teacher

TEACHERS: dict[str, type] = {name: resolve_name(f"procurl.teachers.{where}") for name, (where, _) in STRATEGIES.items()}
globals().update({cls.__name__: cls for cls in TEACHERS.values()})  # so that `from procurl.teachers import IID` works
REDRAWABLE = [name for name, cls in TEACHERS.items() if getattr(cls, "redrawable", False)]


def make_teacher(
    name: str, space: TaskSpace, *, setting: str | None = None, variant: str = "paper", **overrides: Any
) -> Teacher:
    """A strategy with the hyper-parameters of a setting (by default the space's own), some of them overridden.

    `redraw_every=N`, for strategies over a pool, draws a new pool every N environment steps.
    """
    if name not in TEACHERS:
        raise unknown_name("teacher", name, TEACHERS)
    if not isinstance(space, TaskSpace):
        raise ConfigError(f"space = {space!r}: expected a task space, of procurl.make(NAME) or procurl.task_space(...)")
    fields = {**teacher_preset(name, setting or space.name or None, variant), **overrides}
    redraw_every = fields.pop("redraw_every", None)
    checked_fields(TEACHERS[name], {k: v for k, v in overrides.items() if k != "redraw_every"})
    teacher: Teacher = TEACHERS[name](space, **fields)
    if redraw_every is not None and name not in REDRAWABLE:
        raise ConfigError(
            f"redraw_every = {redraw_every}: {name} remembers its tasks; a new pool is for {', '.join(REDRAWABLE)}"
        )
    return redrawn(teacher, redraw_every)
