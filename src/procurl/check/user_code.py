"""`procurl check MODULE:NAME`: whatever a user has written, found, recognised, and held against its contract.

    procurl check my_env.py:MyEnv --space my_env.py:space
    procurl check my_package.teachers:HalfMastered

The user's own file is imported, so its code runs: this is the one command that does so.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from procurl import presets
from procurl.check.env import env_findings
from procurl.check.findings import Findings, told
from procurl.check.space import basic_findings, space_findings
from procurl.check.teacher import teacher_findings
from procurl.errors import ConfigError, needs_extra, unknown_name
from procurl.types import HostEnv, TaskSpace

DEFAULT_SETTING = "point-mass-2g"  # whose tasks a teacher is tried on, where none are named
STEPS = 2000  # of an episode, at most


class Checked(NamedTuple):
    """What was looked at, and what was found."""

    what: str
    findings: Findings


def check(target: str, space: str | None = None, steps: int = STEPS) -> list[Checked]:
    """Everything about the object that `target` names: its task space, then itself."""
    module, name = split(target)
    thing = made(module, name, space)
    tasks = _space_for(thing, module, space)
    if isinstance(thing, tuple):
        thing = thing[0]
    if isinstance(thing, TaskSpace):
        return [Checked(f"{name}, a task space", space_findings(thing))]
    kind, contract = recognised(thing, name)
    if tasks is None and kind != "a Gymnasium environment":
        raise ConfigError(
            f"{name} is {kind}, and which tasks it is for is not known: give --space MODULE:NAME or a setting, let the "
            f"function return (environment, space), or put one procurl.task_space(...) into the same file"
        )
    done = []
    if tasks is not None:
        done.append(Checked("its task space", space_findings(tasks)))
        if basic_findings(tasks).problems:
            return done  # nothing can be played there
    done.append(Checked(f"{name}, {kind}", contract(thing, tasks, steps)))
    return done


def report(checked: list[Checked]) -> tuple[str, int]:
    """For people: every problem and every note; and the exit status."""
    lines = []
    for what, found in checked:
        verdict = _count(len(found.problems), "problem") if found.problems else "ok"
        notes = f", {_count(len(found.notes), 'note')}" if found.notes else ""
        lines.append(f"{what}: {verdict}{notes}")
        lines += [f"  problem: {text}" for text in found.problems]
        lines += [f"  note: {text}" for text in found.notes]
    return "\n".join(lines), int(any(found.problems for _, found in checked))


def _count(n: int, word: str) -> str:
    return f"{n} {word}{'s' if n > 1 else ''}"


def split(target: str) -> tuple[ModuleType, str]:
    """`my_env.py:MyEnv` or `package.module:object` -> the module, imported, and the name in it."""
    where, colon, name = target.rpartition(":")
    if not colon or (len(where) == 1 and name[:1] in "\\/"):  # C:\my_env.py
        where, name = target, ""
    module = _from_file(Path(where)) if where.endswith(".py") else _by_name(where)
    if not name:
        there = ", ".join(_own_names(module)) or "nothing"
        raise ConfigError(f"{target}: expected MODULE:NAME, with the name of what to check; there is {there}")
    return module, name


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # every .py file has one
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))  # as `python FILE` does: it may import its neighbours
    sys.modules[path.stem] = module  # worker processes and dataclasses look for it there
    return _imported(str(path), lambda: spec.loader.exec_module(module), module)  # type: ignore[union-attr]


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


def made(module: ModuleType, name: str, space: str | None) -> Any:
    """The object itself, or what its class or function makes; a teacher's class is given its task space."""
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
    given: dict[str, Any] = {}
    if needed == ["space"]:
        given = {"space": _named_space(space) if space else (_only_space(module) or _setting_space(DEFAULT_SETTING))}
    elif needed:
        raise ConfigError(
            f"{name} needs {', '.join(needed)}: expected an object, or a class or function that works without "
            f"arguments (write def make(): return {name}(...), and check that)"
        )
    try:
        return thing(**given)
    except Exception as error:
        raise ConfigError(f"{name}() cannot be made: {told(error)}") from error


def _space_for(thing: Any, module: ModuleType, space: str | None) -> TaskSpace | None:
    """The tasks: those that were named, or that come with the object, or the only ones in its file."""
    if isinstance(thing, tuple):
        if len(thing) == 2 and isinstance(thing[1], TaskSpace):
            return thing[1]
        raise ConfigError(f"a tuple of {len(thing)} was found: expected (environment, task space)")
    own = getattr(thing, "space", None)
    if isinstance(own, TaskSpace):
        return own
    return _named_space(space) if space else _only_space(module)


def _only_space(module: ModuleType) -> TaskSpace | None:
    there = {id(thing): thing for thing in vars(module).values() if isinstance(thing, TaskSpace)}
    return next(iter(there.values())) if len(there) == 1 else None


def _named_space(text: str) -> TaskSpace:
    if ":" not in text and not text.endswith(".py"):
        return _setting_space(text)
    module, name = split(text)
    thing = made(module, name, None)
    if isinstance(thing, tuple) and len(thing) == 2:
        thing = thing[1]
    if not isinstance(thing, TaskSpace):
        raise ConfigError(f"--space {text}: found {type(thing).__name__}, expected a procurl.TaskSpace")
    return thing


def _setting_space(setting: str) -> TaskSpace:
    from procurl.envs import make

    presets.named_setting(setting)
    space: TaskSpace = make(setting)[1]
    return space


def recognised(thing: Any, name: str) -> tuple[str, Callable[[Any, Any, int], Findings]]:
    """What it is, by what it has, and the contract for that."""
    if hasattr(thing, "propose") and hasattr(thing, "observe"):
        return "a teacher", lambda teacher, space, steps: teacher_findings(teacher, n=64)
    if isinstance(thing, HostEnv):
        return "an environment for worker processes", _on_host("host_findings")
    if hasattr(thing, "observation_space") and hasattr(thing, "action_space"):
        return "a Gymnasium environment", _on_host("gymnasium_findings")
    if hasattr(thing, "reset") and hasattr(thing, "step"):
        return "an environment in JAX", env_findings
    raise ConfigError(
        f"{name} is {type(thing).__name__}, and not recognised: expected an environment (reset and step), a Gymnasium "
        f"environment, an environment for worker processes (maker), a teacher (propose and observe) or a "
        f"procurl.TaskSpace"
    )


def _on_host(contract: str) -> Callable[[Any, Any, int], Findings]:
    with needs_extra("gymnasium", "checking this needs {}", "gymnasium"):
        import gymnasium  # noqa: F401
    from procurl.check import host

    return getattr(host, contract)  # type: ignore[no-any-return]
