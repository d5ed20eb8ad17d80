"""Documented fields of frozen dataclasses: `param` declares one, with its help and bounds, and `check_fields`
enforces them. No JAX in here.
"""

from __future__ import annotations

import dataclasses
import numbers
import re
from typing import Any, TypeVar

from procurl.check.numbers import flag, real, whole
from procurl.errors import ConfigError, unknown_name

MOST_WHOLE = 2**31 - 1  # whole numbers are computed in 32 bits, too
MOST_UNITS = 65_536  # in a layer
Thing = TypeVar("Thing")


def param(
    default: Any, help: str, *, static: bool = False, at_least: float | None = None, at_most: float | None = None
) -> Any:
    """A documented field. `static` marks what shapes the compiled program (for dataclasses that are pytrees)."""
    bounds = {"at_least": at_least, "at_most": at_most}
    return dataclasses.field(default=default, metadata={"help": help, "static": static, **bounds})


def check_fields(owner: str, instance: Any, *, is_pytree: bool = False) -> None:
    """Refuse what a documented field cannot be: another type, NaN, infinity, a number beyond its bounds.

    JAX, too, makes instances of a pytree, with traced arrays or placeholders in fields that are not static: there only
    plain values are checked. NumPy's numbers become Python's and lists become tuples, so that configurations can be
    saved.
    """
    for f in dataclasses.fields(instance):
        if "help" in f.metadata:
            value = getattr(instance, f.name)
            may_be_traced = is_pytree and not f.metadata.get("static")
            if may_be_traced and not isinstance(value, str | bool | numbers.Real):
                continue
            checked = _checked(f"{owner}{f.name}", value, f)
            if type(checked) is not type(value):
                object.__setattr__(instance, f.name, checked)


def checked_fields(cls: type, given: dict[str, Any]) -> None:
    """Refuse names that are not documented fields of a class, with the closest valid ones, and None for a number."""
    known = {f.name: f for f in documented(cls)}
    for name, value in given.items():
        if name not in known:
            raise unknown_name(f"option of {cls.__name__}", name, known)
        if value is None and "None" not in kind_of(known[name]):
            raise ConfigError(f"{cls.__name__}: {name} = None: expected a value of type {kind_of(known[name])}")


def with_fields(thing: Thing, given: dict[str, Any]) -> Thing:
    """A copy with other values in documented fields, checked as if its class had been called with them."""
    if not given:
        return thing
    checked_fields(type(thing), given)
    copy: Thing = dataclasses.replace(thing, **given)  # type: ignore[type-var]  # it has fields
    check_fields(f"{type(thing).__name__}: ", copy, is_pytree=True)  # a class from elsewhere may not do so itself
    return copy


def documented(cls: type) -> list[dataclasses.Field[Any]]:
    """The fields that users are told about; none for a class that is no dataclass."""
    return [f for f in dataclasses.fields(cls) if "help" in f.metadata] if dataclasses.is_dataclass(cls) else []


def kind_of(f: dataclasses.Field[Any]) -> str:
    """The type that a field declares, as procurl's own files write it: a user's may not postpone its annotations."""
    kind = f.type.__name__ if isinstance(f.type, type) else str(f.type).replace("typing.", "")
    return re.sub(r"^Optional\[(.*)\]$", r"\1 | None", kind)


def _checked(name: str, value: Any, f: dataclasses.Field[Any]) -> Any:
    kind = kind_of(f)
    if kind.startswith("tuple[int"):
        if not isinstance(value, tuple | list):
            raise ConfigError(f"{name} = {value!r}: expected widths of layers, e.g. (64, 64)")
        return tuple(whole(f"{name}, a layer's width", width, 1, MOST_UNITS) for width in value)
    if value is None and "None" in kind:
        return value
    at_least, at_most = f.metadata.get("at_least"), f.metadata.get("at_most")
    if kind == "bool":
        return flag(name, value)
    if kind.startswith("int"):
        if isinstance(value, float):
            raise ConfigError(f"{name} = {value!r}: expected a whole number")
        number = whole(name, value, -MOST_WHOLE if at_least is None else at_least, at_most)
        return whole(name, number, -MOST_WHOLE, MOST_WHOLE)
    if kind.startswith("float"):
        as_float = real(name, value, at_least, at_most)
        return value if isinstance(value, int | float) else as_float
    return value
