"""The strategies: TEACHERS maps a name to its class. A new one is one file here and one row in `presets.STRATEGIES`."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any

from procurl import installed
from procurl.check.fields import checked_fields
from procurl.check.numbers import flag
from procurl.errors import ConfigError
from procurl.presets import SETTINGS, STRATEGIES, teacher_preset
from procurl.teachers.base import wrapped
from procurl.types import TaskSpace, Teacher

TEACHERS: dict[str, type] = {name: resolve_name(f"procurl.teachers.{where}") for name, (where, _) in STRATEGIES.items()}
globals().update({cls.__name__: cls for cls in TEACHERS.values()})  # so that `from procurl.teachers import IID` works
REDRAWABLE = [name for name, cls in TEACHERS.items() if getattr(cls, "redrawable", False)]
INVENTORS = [name for name, cls in TEACHERS.items() if getattr(cls, "invents", False)]


def make_teacher(
    name: str, space: TaskSpace, *, setting: str | None = None, variant: str = "paper", **overrides: Any
) -> Teacher:
    """A strategy with the hyper-parameters of a setting (by default the space's own), some of them overridden.

    `redraw_every=N`, for strategies over a pool, draws a new pool every N environment steps; `on_pool=True`, for
    strategies that invent contexts, plays the pool's nearest task instead. "auto" chooses the strategy: see `auto`.
    Teachers from installed packages are known as well (`procurl list`), and their packages are imported here; settings
    hold no hyper-parameters for them.
    """
    if not isinstance(space, TaskSpace):
        raise ConfigError(f"space = {space!r}: expected a task space, of procurl.make(NAME) or procurl.task_space(...)")
    name = auto(space) if name == "auto" else name
    cls = TEACHERS[name] if name in TEACHERS else installed.teacher(name, TEACHERS)
    setting = setting or (space.name if space.name in SETTINGS else None)  # any other name is the user's own
    fields = {**(teacher_preset(name, setting, variant) if name in TEACHERS else {}), **overrides}
    redraw_every, on_pool = fields.pop("redraw_every", None), fields.pop("on_pool", False)
    checked_fields(cls, {k: v for k, v in overrides.items() if k not in ("redraw_every", "on_pool")})
    teacher: Teacher = cls(space, **fields)
    if redraw_every is not None and not getattr(cls, "redrawable", False):
        raise ConfigError(
            f"redraw_every = {redraw_every}: {name} remembers its tasks; a new pool is for {', '.join(REDRAWABLE)}"
        )
    if flag("on_pool", on_pool) and not getattr(cls, "invents", False):
        raise ConfigError(f"on_pool: {name} plays tasks of the pool anyway; it is for {', '.join(INVENTORS)}")
    return wrapped(teacher, redraw_every, on_pool)


def auto(space: TaskSpace) -> str:
    """The strategy for a space about which nothing else is known.

    procurl-path where the points between two tasks are tasks, too. For tasks that are mere labels, procurl-target if
    it is known how similar they are, else procurl-unif.
    """
    if not space.labels:
        return "procurl-path"
    return "procurl-unif" if space.similarity is None else "procurl-target"
