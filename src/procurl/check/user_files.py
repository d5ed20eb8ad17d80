"""A user's own files and modules: imported because the user named them, and never because a file of procurl's does so.

    my_env.py:MyEnv            a file, and a name in it
    package.module:object      a module, as `python -m` finds it

The name is that of an object, a class, or a function that makes one. Importing a file runs its code.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from procurl.check.findings import told
from procurl.config import Config
from procurl.errors import ConfigError, unknown_name
from procurl.presets import is_own
from procurl.types import TaskSpace

# Environment and teacher may be in one file, whose classes must then be the same for both: a file is run once, unless
# it was changed in between.
_files: dict[tuple[Path, str], ModuleType] = {}


def split(target: str) -> tuple[ModuleType, str]:
    """`my_env.py:MyEnv` or `package.module:object` -> the module, imported, and the name in it."""
    where, colon, name = target.rpartition(":")
    if not colon or (len(where) == 1 and name[:1] in "\\/"):  # C:\my_env.py
        where, name = target, ""
    module = _from_file(Path(where)) if where.endswith(".py") else _by_name(where)
    if not name:
        there = ", ".join(_own_names(module)) or "nothing"
        raise ConfigError(f"{target}: expected MODULE:NAME, with the name of what is meant; there is {there}")
    return module, name


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such file")
    key = path.resolve(), hashlib.sha256(path.read_bytes()).hexdigest()
    if key not in _files:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None  # every .py file has one
        module = importlib.util.module_from_spec(spec)
        sys.path.insert(0, str(path.resolve().parent))  # as `python FILE` does: it may import its neighbours
        sys.modules[path.stem] = module  # worker processes and dataclasses look for it there
        _files[key] = _imported(str(path), lambda: spec.loader.exec_module(module), module)  # type: ignore[union-attr]
    sys.modules[path.stem] = _files[key]
    return _files[key]


def _by_name(where: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")  # the current folder, as with `python -m`
    found: list[ModuleType] = []
    try:
        if importlib.util.find_spec(where) is None:
            raise ModuleNotFoundError(name=where)
    except (ModuleNotFoundError, ValueError) as error:
        raise ConfigError(f"{where}: there is no such module; expected FILE.py:NAME or package.module:NAME") from error
    _imported(where, lambda: found.append(importlib.import_module(where)), None)
    return found[0]


def _imported(what: str, load: Callable[[], Any], module: ModuleType | None) -> Any:
    try:
        load()
    except Exception as error:
        raise ConfigError(f"{what} cannot be imported: {told(error)}") from error
    except SystemExit as error:
        raise ConfigError(
            f"{what} ended while it was imported: put what it runs as a script under `if __name__ == '__main__':`"
        ) from error
    return module


def _own_names(module: ModuleType) -> list[str]:
    """What a module has defined itself: classes, functions and task spaces."""
    return [
        name
        for name, thing in vars(module).items()
        if not name.startswith("_")
        and (getattr(thing, "__module__", None) == module.__name__ or isinstance(thing, TaskSpace))
    ]


def made(module: ModuleType, name: str, space: Callable[[], TaskSpace]) -> Any:
    """The object itself, or what its class or function makes; one that needs a `space` is given one."""
    thing: Any = module
    for part in name.split("."):
        if not hasattr(thing, part):
            raise unknown_name(f"name in {module.__name__}", name, _own_names(module))
        thing = getattr(thing, part)
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return thing
    try:
        needed = [
            p.name
            for p in inspect.signature(thing).parameters.values()
            if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
    except ValueError:  # a class written in C has no signature
        needed = []
    if needed not in ([], ["space"]):
        raise ConfigError(
            f"{name} needs {', '.join(needed)}: expected an object, or a class or function that works without "
            f"arguments (write def make(): return {name}(...), and name that)"
        )
    given = {"space": space()} if needed else {}
    try:
        return thing(**given)
    except Exception as error:
        raise ConfigError(f"{name}() cannot be made: {told(error)}") from error


def space_for(thing: Any, module: ModuleType, space: str | None) -> TaskSpace | None:
    """The tasks: those that were named, or that come with the object, or the only ones in its file."""
    if isinstance(thing, tuple):
        if len(thing) in (2, 3) and isinstance(thing[1], TaskSpace) and isinstance(thing[-1], TaskSpace | Config):
            return thing[1]
        raise ConfigError(
            f"a tuple of {len(thing)} was found: expected (environment, task space), with a Config after them or not"
        )
    own = getattr(thing, "space", None)
    if isinstance(own, TaskSpace):
        return own
    return named_space(space) if space else only_space(module)


def only_space(module: ModuleType) -> TaskSpace | None:
    there = {id(thing): thing for thing in vars(module).values() if isinstance(thing, TaskSpace)}
    return next(iter(there.values())) if len(there) == 1 else None


def named_space(text: str) -> TaskSpace:
    """The space of --space: the name of a setting, or of a task space in a file."""
    if not is_own(text):
        return setting_space(text)
    module, name = split(text)

    def none() -> TaskSpace:
        raise ConfigError(f"--space {text}: it needs a task space itself; expected one, or a function that makes one")

    thing = made(module, name, none)
    if isinstance(thing, tuple) and len(thing) in (2, 3):
        thing = thing[1]
    if not isinstance(thing, TaskSpace):
        raise ConfigError(f"--space {text}: found {type(thing).__name__}, expected a procurl.TaskSpace")
    return thing


def setting_space(setting: str) -> TaskSpace:
    from procurl.envs import make

    space: TaskSpace = make(setting)[1]
    return space
