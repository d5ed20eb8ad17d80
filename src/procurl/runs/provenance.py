"""Where a result comes from: its configuration as plain data, and the software and hardware that made it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

from procurl import __version__
from procurl.config import PPO, SAC, Config
from procurl.devices import cpu_facts
from procurl.errors import ConfigError
from procurl.types import Env, HostEnv, TaskSpace, Teacher


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


def rebuilt(description: dict[str, Any]) -> tuple[Env | HostEnv, Teacher, Config]:
    """The inverse of `describe`, for settings and teachers of this package; refused if the outcome would differ.

    A stranger may have written the description: its names are looked up among ours, and never imported.
    """
    try:
        return _rebuilt(description)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"this run's configuration cannot be read: {error!r}") from error


def _rebuilt(description: dict[str, Any]) -> tuple[Env | HostEnv, Teacher, Config]:
    from procurl.envs import make
    from procurl.teachers import TEACHERS
    from procurl.teachers.base import wrapped

    classes = {cls.__name__: cls for cls in TEACHERS.values()}
    if not description["setting"] or description["teacher"]["class"] not in classes:
        raise ConfigError(
            "this run has an environment or teacher of its own: go on with procurl.train(..., out=FOLDER), from the "
            "script that began it"
        )
    env, space = make(description["setting"], **_without_class(description["env"]))
    teacher_class = classes[description["teacher"]["class"]]
    functions = {f.name for f in dataclasses.fields(teacher_class) if "help" not in f.metadata}
    fields = {k: v for k, v in _without_class(description["teacher"]).items() if k not in functions}
    around = {name: fields.pop(name) for name in ("redraw_every", "on_pool") if name in fields}
    teacher = wrapped(teacher_class(space, **fields), **around)
    config = _config(description["config"])
    again = describe(env, teacher, config, tuple(description["seeds"]), description["steps"])
    if again != description:
        raise ConfigError(
            "this run's tasks or functions cannot be made again from its configuration alone: go on with "
            "procurl.train(..., out=FOLDER), from the script that began it"
        )
    return env, teacher, config


def _without_class(fields: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in fields.items() if k != "class"}


def _config(fields: dict[str, Any]) -> Config:
    def student(cls: type, given: dict[str, Any]) -> Any:
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in given.items()})

    sac = fields.get("sac")
    return Config(**{**fields, "ppo": student(PPO, fields["ppo"]), "sac": sac and student(SAC, sac)})


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
                plain = value is None or isinstance(value, bool | int | float | str)
                row[f.name] = value if plain else _named(value)
    return row


def _named(function: Any) -> str:
    return str(getattr(function, "__qualname__", repr(function)))


def _teacher_fields(teacher: Any) -> dict[str, Any]:
    """A teacher's fields. One around another is described as the strategy inside, with one more field."""
    from procurl.teachers.base import OnPool, Redrawn

    if isinstance(teacher, Redrawn):
        return {**_fields(teacher.teacher), "redraw_every": teacher.redraw_every}
    if isinstance(teacher, OnPool):
        return {**_fields(teacher.teacher), "on_pool": True}
    return _fields(teacher)


def _digest(space: TaskSpace) -> str:
    """One hash over pool, targets and held-out tasks: two runs with the same hash had the same tasks."""
    sha = hashlib.sha256()
    for leaf in jax.tree.leaves((space.pool, space.targets, space.held_out)):
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
