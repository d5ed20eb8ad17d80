"""The points of a sweep: hyper-parameters by dotted name ("teacher.b", "ppo.lr"), and teacher and config with them.

A field shapes the program that is compiled unless it is a float of the teacher that is not marked static, or of PPO.
Each seed can have such floats of its own, so all points that differ in nothing else share a program.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Any

from procurl.check.fields import kind_of
from procurl.config import PPO, SAC, Config
from procurl.errors import ConfigError, unknown_name
from procurl.types import Env, HostEnv, Teacher

Point = dict[str, Any]  # dotted name -> value
MOST_POINTS = 10_000


def all_points(over: Mapping[str, Iterable[Any]], teacher: Teacher, config: Config) -> list[Point]:
    """Every combination of the values, the last name's changing fastest; an error if one of them is invalid."""
    if not isinstance(over, Mapping) or not over:
        raise ConfigError(f"over = {over!r}: expected values by name, e.g. {{'teacher.b': [3, 5, 8]}}")
    known = _fields(teacher, config)
    columns = []
    for name, values in over.items():
        if name not in known:
            raise unknown_name("field to sweep over", name, known)
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise ConfigError(f"over['{name}'] = {values!r}: expected a list of values, e.g. [3, 5, 8]")
        columns.append(_distinct(name, [_plain(name, value) for value in values]))
    n = 1
    for column in columns:
        n *= len(column)
    if n > MOST_POINTS:
        raise ConfigError(f"over names {n:,} points: expected at most {MOST_POINTS:,}. Try fewer values at a time")
    points = [dict(zip(over, values, strict=True)) for values in itertools.product(*columns)]
    for point in points:
        at_point(point, teacher, config)
    return points


def at_point(point: Point, teacher: Teacher, config: Config) -> tuple[Teacher, Config]:
    """Teacher and config with a point's values, checked as if the user had given them."""
    for name, value in point.items():
        section, field = name.split(".", 1)
        if section == "teacher":
            teacher = _in_teacher(teacher, field, value)
        elif section == "run":
            config = dataclasses.replace(config, **{field: value})
        else:
            student = dataclasses.replace(getattr(config, section), **{field: value})
            config = dataclasses.replace(config, **{section: student})
    return teacher, config


def with_fields(fields: Mapping[str, Any], teacher: Teacher, config: Config) -> tuple[Teacher, Config]:
    """The same inside a compiled program, where values are traced and cannot be looked at."""
    for name, value in fields.items():
        section, field = name.split(".", 1)
        if section == "teacher":
            teacher = _in_teacher(teacher, field, value, _unchecked)
        else:
            config = _unchecked(config, **{section: _unchecked(getattr(config, section), **{field: value})})
    return teacher, config


def shapes_program(name: str, points: list[Point], env: Env | HostEnv, teacher: Teacher, config: Config) -> bool:
    """Whether every value of this field needs a program of its own."""
    if isinstance(env, HostEnv):
        return True  # worker processes play, one point after the other
    field = _fields(teacher, config)[name]
    is_float = kind_of(field) in ("float", "float | None") and not field.metadata.get("static")
    is_number = all(point[name] is not None for point in points)
    return not (is_float and is_number and name.startswith(("teacher.", "ppo.")))


def name_of(point: Point) -> str:
    """For people and for a folder: teacher.b=3,ppo.lr=0.0001."""
    return ",".join(f"{name}={_in_name(value)}" for name, value in point.items())


def _in_name(value: Any) -> str:
    """3, 0.0001, 64x64. Text may come from a stranger, and must not lead out of the folder."""
    if isinstance(value, tuple):
        return "x".join(map(_in_name, value))
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return re.sub(r"[^\w.+-]+", "-", str(value))


def _fields(teacher: Teacher, config: Config) -> dict[str, dataclasses.Field[Any]]:
    """All that can be swept over, by dotted name."""
    rows: dict[str, dataclasses.Field[Any]] = {}
    while dataclasses.is_dataclass(teacher):  # a `Redrawn` or `OnPool` teacher holds another one
        rows |= {f"teacher.{f.name}": f for f in dataclasses.fields(teacher) if f.name not in ("space", "teacher")}
        teacher = getattr(teacher, "teacher", None)  # type: ignore[assignment]
    section = "sac" if isinstance(config.student, SAC) else "ppo"
    rows |= {f"{section}.{f.name}": f for f in dataclasses.fields(SAC if section == "sac" else PPO)}
    return rows | {f"run.{f.name}": f for f in dataclasses.fields(Config) if f.name not in ("ppo", "sac")}


def _in_teacher(teacher: Any, field: str, value: Any, replace: Any = dataclasses.replace) -> Any:
    if field in {f.name for f in dataclasses.fields(teacher)}:
        return replace(teacher, **{field: value})
    return replace(teacher, teacher=_in_teacher(teacher.teacher, field, value, replace))


def _unchecked(thing: Any, **fields: Any) -> Any:
    """A copy with other values. `dataclasses.replace` would check them, and a traced value cannot be checked."""
    other = copy.copy(thing)
    for name, value in fields.items():
        object.__setattr__(other, name, value)
    return other


def _plain(name: str, value: Any) -> Any:
    value = value.item() if hasattr(value, "item") and getattr(value, "ndim", None) == 0 else value
    value = tuple(value) if isinstance(value, list) else value
    if value is not None and not isinstance(value, bool | int | float | str | tuple):
        raise ConfigError(f"over['{name}'] holds {value!r}: expected numbers, words, True, False, None or tuples")
    return value


def _distinct(name: str, values: list[Any]) -> list[Any]:
    names = [_in_name(value) for value in values]
    if not values:
        raise ConfigError(f"over['{name}'] is empty: expected at least one value")
    for value, text in zip(values, names, strict=True):
        if names.count(text) > 1:
            raise ConfigError(f"over['{name}'] holds {value!r} twice (or a value that looks like it): expected once")
    return values
