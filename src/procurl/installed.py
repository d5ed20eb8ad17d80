"""What other installed packages bring: teachers and settings by name, as entry points of their own.

    [project.entry-points."procurl.teachers"]
    their-teacher = "their_package.teachers:TheirTeacher"   # the class

    [project.entry-points."procurl.settings"]
    their-setting = "their_package.settings:make"           # see `setting`

Names are found without importing anything. A package is imported when somebody uses its name, on the command line or in
Python, and never because a file names it. A name of procurl's own wins. No JAX in here.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from procurl.config import SAC, Config
from procurl.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Kind = Literal["teacher", "setting"]


class InstalledSetting(NamedTuple):
    """What an entry point of `procurl.settings` gives."""

    env: Any
    space: Any  # a TaskSpace
    config: Config  # the student's and the loop's


def points(kind: Kind) -> list[EntryPoint]:
    """All that installed packages declare, by name and package."""
    from importlib import metadata  # a help text does without it

    found = metadata.entry_points(group=f"procurl.{kind}s")
    return sorted(found, key=lambda point: (point.name, package_of(point)))


def package_of(point: EntryPoint) -> str:
    """For people: the package's name and version."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else "a package without a name"


def names(kind: Kind, ours: Iterable[str]) -> dict[str, str]:
    """Name -> package and version, without the names that are procurl's own."""
    taken = set(ours)
    return {point.name: package_of(point) for point in points(kind) if point.name not in taken}


def clashes(kind: Kind, ours: Iterable[str], name: str | None = None) -> list[str]:
    """What cannot be reached by its name (or by this name alone), in words."""
    taken, said = set(ours), []
    everything = [point for point in points(kind) if name in (None, point.name)]
    for point in everything:
        others = [package_of(p) for p in everything if p.name == point.name and p is not point]
        if point.name in taken:
            said.append(
                f"the {kind} {point.name} of {package_of(point)} is not used: procurl has one of that name, and comes "
                f"first. The other can be named as {point.value}"
            )
        elif others:
            said.append(f"the {kind} {point.name} of {package_of(point)} is not used: {_rivals(point, others)}")
    return said


def require(kind: Kind, name: str, ours: Iterable[str]) -> EntryPoint:
    """The entry point of this name, not imported yet; an error if there is none, or more than one."""
    ours, everything = list(ours), points(kind)
    found = [point for point in everything if point.name == name]
    if not found:
        raise unknown_name(kind, name, [*ours, *(point.name for point in everything)])
    if len(found) > 1:
        raise ConfigError(f"{kind} {name}: {_rivals(found[0], [package_of(point) for point in found[1:]])}")
    return found[0]


def teacher(name: str, ours: Iterable[str]) -> type:
    """The class of a teacher of an installed package."""
    point, cls = _loaded("teacher", name, ours)
    if not inspect.isclass(cls) or not all(hasattr(cls, part) for part in ("init", "propose", "observe")):
        what = f"the class {cls.__name__}" if inspect.isclass(cls) else type(cls).__name__
        raise ConfigError(
            f"the teacher {name} of {package_of(point)} is {what}: expected a class with init, propose and observe. "
            f"Tell those who made the package"
        )
    return cls


def setting(name: str, ours: Iterable[str]) -> InstalledSetting:
    """A setting of an installed package: (env, space) or (env, space, config), or a function that returns that."""
    from procurl.types import TaskSpace

    point, given = _loaded("setting", name, ours)
    if callable(given):
        try:
            given = given()
        except Exception as error:
            raise ConfigError(f"the setting {name} of {package_of(point)} cannot be made: {error!r}") from error
    parts = given if isinstance(given, tuple) else (given,)
    sound = len(parts) in (2, 3) and isinstance(parts[1], TaskSpace) and isinstance(parts[-1], Config | TaskSpace)
    if not sound:
        raise ConfigError(
            f"the setting {name} of {package_of(point)} gives {type(given).__name__} of "
            f"{', '.join(type(part).__name__ for part in parts)}: expected (environment, procurl.TaskSpace), with a "
            f"procurl.Config after them or not. Tell those who made the package"
        )
    return InstalledSetting(parts[0], parts[1], parts[2] if len(parts) == 3 else default_config(parts[0]))


def default_config(env: Any) -> Config:
    """Of a setting that says nothing about it: worker processes play for SAC, everything else for PPO."""
    from procurl.types import HostEnv

    return Config(sac=SAC()) if isinstance(env, HostEnv) else Config()


def _loaded(kind: Kind, name: str, ours: Iterable[str]) -> tuple[EntryPoint, Any]:
    point = require(kind, name, ours)
    try:
        return point, point.load()
    except Exception as error:
        raise ConfigError(f"the {kind} {name} of {package_of(point)} cannot be imported: {error!r}") from error


def _rivals(point: EntryPoint, others: list[str]) -> str:
    return (
        f"{' and '.join([package_of(point), *others])} all have one of that name; uninstall one, or name what is "
        f"meant, e.g. {point.value}"
    )
