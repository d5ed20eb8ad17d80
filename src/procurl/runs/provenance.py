"""Where a result comes from: its configuration as plain data, and the software and hardware that made it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from procurl import __version__, suites
from procurl.config import PPO, SAC, Config
from procurl.devices import cpu_facts
from procurl.errors import ConfigError
from procurl.runs.class_origin import class_notes
from procurl.runs.store.classes import PARTS, Notes, changed, how_to_name
from procurl.types import Env, HostEnv, TaskSpace, Teacher

if TYPE_CHECKING:
    from procurl.runs.chosen import Named


def describe(
    env: Env | HostEnv, teacher: Teacher, config: Config, seeds: tuple[int, ...], steps: int
) -> dict[str, Any]:
    """All that determines a run, as plain JSON data."""
    row = {
        "setting": teacher.space.name,
        "env": _fields(env),
        **describe_teacher(teacher),
        "action": {"kind": type(env.action).__name__, **env.action._asdict()},
        "config": dataclasses.asdict(config),
        "seeds": list(seeds),
        "steps": steps,
    }
    plain: dict[str, Any] = json.loads(json.dumps(row))  # tuples become lists now, not when the run is read again
    return plain


def describe_teacher(teacher: Teacher) -> dict[str, Any]:
    """A teacher and its tasks, as plain JSON data."""
    space = teacher.space
    row = {
        "teacher": _teacher_fields(teacher),
        "space": {
            "names": list(space.names),
            **({"labels": list(space.labels)} if space.labels else {}),
            **({"similarity": _named(space.similarity)} if space.similarity is not None else {}),
            "low": np.asarray(space.low).tolist(),
            "high": np.asarray(space.high).tolist(),
            "target": repr(space.target),
            "value_range": space.value_range,
            "n_pool": space.n_pool,
            "sha256": _digest(space),
            **({} if space.units is None else {"units": space.units}),
        },
    }
    plain: dict[str, Any] = json.loads(json.dumps(row))
    return plain


def rebuilt(
    description: dict[str, Any], notes: Notes | None = None, named: Named | None = None
) -> tuple[Env | HostEnv, Teacher, Config]:
    """The inverse of `describe`; refused if the outcome would differ.

    A stranger may have written the description and the notes on where its classes came from: names in them are looked
    up among procurl's own, and never imported. A user's own classes are those that the user has `named`.
    """
    try:
        return _rebuilt(description, notes or {}, named)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"this run's configuration cannot be read: {error!r}") from error


def _rebuilt(description: dict[str, Any], notes: Notes, named: Named | None) -> tuple[Env | HostEnv, Teacher, Config]:
    _require_named(description, notes, named, PARTS)
    env, space = rebuilt_env(description, notes, named)
    teacher = _rebuilt_teacher(description, space, named)
    config = _config(description["config"])
    again = describe(env, teacher, config, tuple(description["seeds"]), description["steps"])
    if again != description:
        from procurl.runs.store.descriptions import differing, listed

        raise ConfigError(
            f"this run cannot be made again from its configuration and what was named:\n"
            f"{listed(differing(description, again))}\nName what it was made of (--env, --space, --teacher), or go on "
            f"with procurl.train(..., out=FOLDER), from the script that began it"
        )
    return env, teacher, config


def rebuilt_env(
    description: dict[str, Any], notes: Notes, named: Named | None = None
) -> tuple[Env | HostEnv, TaskSpace]:
    """The environment of a run, and its tasks."""
    from procurl.envs import make
    from procurl.runs.chosen import chosen_setting

    _require_named(description, notes, named, ("env",))
    setting = description["setting"]
    if suites.is_of_suite(setting, description["env"]["class"]) and (named is None or named.env in (None, setting)):
        return _rebuilt_of_suite(setting, description["env"])
    if named is None or named.env is None:
        return make(description["setting"], **_without_class(description["env"]))
    env, space = chosen_setting(named.env, named.space).make({})
    _require_class("env", named.env, type(env), description)
    return _with_stored(env, description["env"]), dataclasses.replace(space, name=description["setting"] or "")


def _rebuilt_of_suite(setting: str, stored: dict[str, Any]) -> tuple[Env, TaskSpace]:
    """An environment of another suite: it is described as by --context, --target and --set."""
    fields = {name: value for name, value in stored.items() if name not in ("class", "name")}
    if not fields.get("target"):
        raise ConfigError(
            f"this run's target for {setting} is no value or range, and cannot be made again from its configuration: "
            f"use procurl.train(..., out=FOLDER) and procurl.evaluate from the script that began it"
        )
    env, space = suites.made(setting, str(fields.pop("context")), str(fields.pop("target")), **fields)
    return env, space


def _rebuilt_teacher(description: dict[str, Any], space: TaskSpace, named: Named | None) -> Teacher:
    from procurl.runs.chosen import own_teacher
    from procurl.teachers import TEACHERS
    from procurl.teachers.base import wrapped

    stored = _without_class(description["teacher"])
    around = {name: stored.pop(name) for name in ("redraw_every", "on_pool") if name in stored}
    if named is not None and named.teacher is not None:
        cls = TEACHERS.get(named.teacher)
        teacher = None if cls else own_teacher(named.teacher, space)
        _require_class("teacher", named.teacher, cls or type(teacher), description)
        if teacher is not None:
            return wrapped(_with_stored(teacher, stored), **around)
    teacher_class = next(cls for cls in TEACHERS.values() if cls.__name__ == description["teacher"]["class"])
    functions = {f.name for f in dataclasses.fields(teacher_class) if "help" not in f.metadata}
    fields = {k: _read(v) for k, v in stored.items() if k not in functions}
    return wrapped(teacher_class(space, **fields), **around)


def own_parts(description: dict[str, Any], notes: Notes) -> list[str]:
    """Which of "env" and "teacher" are not procurl's own."""
    from procurl.envs import SETTINGS
    from procurl.teachers import TEACHERS

    ours = {
        "env": {SETTINGS[description["setting"]][0].__name__} if description["setting"] in SETTINGS else set(),
        "teacher": {cls.__name__ for cls in TEACHERS.values()},
    }
    if suites.is_of_suite(description["setting"], description["env"]["class"]):  # noted only for the suite's version
        notes = {part: note for part, note in notes.items() if part != "env"}
        ours["env"] = {description["env"]["class"]}
    return [part for part in PARTS if part in notes or description[part]["class"] not in ours[part]]


def _require_named(description: dict[str, Any], notes: Notes, named: Named | None, parts: tuple[str, ...]) -> None:
    """A run's own classes are not looked for: whoever goes on with it says where they are."""
    if "loop" in description["config"]:
        raise ConfigError(
            "this run was made by a loop of its own, which procurl cannot play: go on from its script, with "
            "procurl.Curriculum(..., out=FOLDER)"
        )
    own = [part for part in own_parts(description, notes) if part in parts]
    if any(named is None or getattr(named, part) is None for part in own):
        what = " and ".join({"env": "an environment", "teacher": "a teacher"}[part] for part in own)
        options = " ".join(how_to_name(part, description[part]["class"], notes) for part in own)
        raise ConfigError(
            f"this run has {what} of its own, which procurl does not look for: give {options} (a file is imported only "
            f"if you name it), or use procurl.train and procurl.evaluate from the script that began it"
        )


def _require_class(part: str, text: str, cls: type, description: dict[str, Any]) -> None:
    expected = description[part]["class"]
    if cls.__name__ != expected:
        raise ConfigError(f"--{part} {text} is {cls.__name__}: this run was made with {expected}")


def _with_stored(thing: Any, stored: dict[str, Any]) -> Any:
    """The thing with the numbers and words of a run's description; functions and the like stay its class's own."""
    if not dataclasses.is_dataclass(thing):
        return thing
    changes: dict[str, Any] = {}
    for f in dataclasses.fields(thing):
        if f.init and f.name in stored:
            now, then = getattr(thing, f.name), stored[f.name]
            then = then if isinstance(now, str) else _read(then)
            if all(_is_plain(value) or isinstance(value, tuple) for value in (now, then)):
                changes[f.name] = then
    return dataclasses.replace(thing, **changes)  # type: ignore[type-var]


def _read(stored: Any) -> Any:
    """A field as a description has it; a tuple of numbers is described as Python writes it."""
    if isinstance(stored, str) and re.fullmatch(r"\([-+\d.e, ]*\)", stored):
        return tuple(json.loads(f"[{stored[1:-1].rstrip(', ')}]"))
    return stored


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _without_class(fields: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in fields.items() if k != "class"}


def _config(fields: dict[str, Any]) -> Config:
    def student(cls: type, given: dict[str, Any]) -> Any:
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in given.items()})

    sac = fields.get("sac")
    return Config(**{**fields, "ppo": student(PPO, fields["ppo"]), "sac": sac and student(SAC, sac)})


def env_changes(env: Any, description: dict[str, Any], notes: Notes) -> list[str]:
    """In words: how an environment differs from that of a run."""
    from procurl.runs.store.descriptions import differing

    fields = [
        f"{type(env).__name__}.{name} is {here!r}, and was {there!r}"
        for name, there, here in differing(description["env"], _fields(env))
    ]
    return [*changed(notes, class_notes(env)), *fields]


@cache
def software_and_hardware() -> dict[str, Any]:
    """Versions, commit and devices."""
    import jaxlib

    return {
        "procurl": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "processor": _processor(),
        "devices": [f"{d.platform}:{d.device_kind}" for d in jax.local_devices()],
    }


def _fields(thing: Any) -> dict[str, Any]:
    """The class and the plain fields of an environment or teacher; a function is named, not stored."""
    row: dict[str, Any] = {"class": type(thing).__name__}
    if dataclasses.is_dataclass(thing):
        for f in dataclasses.fields(thing):
            value = getattr(thing, f.name)
            if not isinstance(value, TaskSpace):
                row[f.name] = value if _is_plain(value) else _named(value)
    return row


def _named(function: Any) -> str:
    return str(getattr(function, "__qualname__", repr(function)))


def _teacher_fields(teacher: Any) -> dict[str, Any]:
    """A teacher's fields. A wrapper is described as the strategy inside, with one more field."""
    from procurl.teachers.base import OnPool, Redrawn

    if isinstance(teacher, Redrawn):
        return {**_fields(teacher.teacher), "redraw_every": teacher.redraw_every}
    if isinstance(teacher, OnPool):
        return {**_fields(teacher.teacher), "on_pool": True}
    return _fields(teacher)


def _digest(space: TaskSpace) -> str:
    """One hash over pool, targets and held-out tasks: two runs with the same hash had the same tasks."""
    sha = hashlib.sha256()
    for tasks in (space.pool, space.targets, space.held_out):
        row = np.asarray(tasks.row)  # tasks beyond the pool once had no numbers: the same tasks keep their hash
        for leaf in (tasks.context, tasks.seed, np.where(row < space.n_pool, row, -1).astype(np.int32)):
            sha.update(np.ascontiguousarray(leaf).tobytes())
    return sha.hexdigest()


def _commit() -> str | None:
    """The commit of a checkout; None for an installed package."""
    folder = Path(__file__).parent
    try:
        here = subprocess.run(
            ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            capture_output=True, text=True, timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return here.stdout.strip() or None


def _processor() -> str:
    names = cpu_facts("model name")
    return names[0].split(":", 1)[1].strip() if names else platform.processor() or platform.machine()
