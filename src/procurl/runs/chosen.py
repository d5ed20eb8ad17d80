"""What the command line means by SETTING, --env and --teacher: procurl's own or an installed package's by name, or a
user's as FILE.py:NAME or package.module:NAME, or an environment of another suite as SUITE:NAME.

    procurl train my.py:MyEnv --space my.py:tasks --teacher my.py:MyTeacher
    procurl train gymnax:CartPole-v1 --context length=0.1:3 --target length=3

A choice knows which documented fields it has, for `--set`, and makes its objects once the options are known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from procurl import envs, installed, presets, suites
from procurl.check.fields import with_fields
from procurl.check.user_files import made, named_space, only_space, space_for, split
from procurl.config import Config
from procurl.errors import ConfigError
from procurl.teachers import TEACHERS, auto, make_teacher
from procurl.teachers.base import OnPool, Redrawn, wrapped
from procurl.types import HostEnv, TaskSpace, Teacher

STEPS = 1_000_000  # for a setting that names no number of its own, as in `procurl.train`
AROUND = ("redraw_every", "on_pool")  # options of the teachers that wrap another one


class Named(NamedTuple):
    """What a user has named for an existing run: never what the run's folder says."""

    env: str | None = None
    teacher: str | None = None
    space: str | None = None


class ChosenSetting(NamedTuple):
    """An environment and its tasks."""

    name: str
    env_class: type
    config: Config
    steps: int
    make: Callable[[dict[str, Any]], tuple[Any, TaskSpace]]  # with these fields of the environment
    is_ours: bool


class ChosenTeacher(NamedTuple):
    """A teacher for the tasks of a setting."""

    name: str
    classes: list[type]  # whose fields are its options
    make: Callable[[TaskSpace, dict[str, Any]], Teacher]  # with these options


def chosen_setting(
    text: str,
    space: str | None = None,
    variant: str = "paper",
    context: Sequence[str] = (),
    target: Sequence[str] = (),
) -> ChosenSetting:
    """`space`, `context` and `target`: as given to --space, --context and --target."""
    if (context or target) and not suites.is_suite(text):
        raise ConfigError(
            f"--context and --target: {text} has its tasks already; expected with one of "
            f"{', '.join(f'{suite}:NAME' for suite in suites.SUITES)}"
        )
    if text in presets.SETTINGS:
        if space is not None:
            raise ConfigError(f"--space {space}: {text} has its own tasks; expected with an environment of your own")
        env_class = envs.SETTINGS[text][0]
        config, steps = presets.preset(text, variant), presets.named_setting(text).steps
        return ChosenSetting(text, env_class, config, steps, lambda fields: envs.make(text, **fields), True)
    if variant != "paper":
        raise ConfigError(f"--variant {variant}: {text} has no presets; leave it out")
    if suites.is_suite(text):
        if space is not None:
            raise ConfigError(f"--space {space}: the tasks of {text} are given by --context and --target")
        env, tasks = suites.made(text, ",".join(context), ",".join(target))
        config = installed.default_config(env)
    elif presets.is_own(text):
        env, tasks, config = _own_setting(text, space)
    else:
        env, tasks, config = installed.setting(text, presets.SETTINGS)
        _require_env(text, env)
        tasks = dataclasses.replace(named_space(space) if space else tasks, name=text)
    return ChosenSetting(
        tasks.name, type(env), config, STEPS, lambda fields: (with_fields(env, fields), tasks), is_ours=False
    )


def _own_setting(text: str, space: str | None) -> tuple[Any, TaskSpace, Config]:
    module, name = split(text)

    def required(found: TaskSpace | None) -> TaskSpace:
        if found is None:
            raise ConfigError(
                f"which tasks {name} is for is not known: give --space MODULE:NAME or a setting, let a function return "
                f"(environment, space), or put one procurl.task_space(...) into the same file"
            )
        return found

    named = named_space(space) if space else None
    thing = made(module, name, lambda: required(named or only_space(module)))
    parts = thing if isinstance(thing, tuple) else (thing,)
    env, config = parts[0], parts[2] if len(parts) == 3 else installed.default_config(parts[0])
    _require_env(text, env)
    tasks = required(named or space_for(thing, module, None))
    is_theirs = type(env).__module__.split(".")[0] != "procurl"
    if not tasks.name or (is_theirs and tasks.name in presets.SETTINGS):  # it is not procurl's setting any more
        tasks = dataclasses.replace(tasks, name=type(env).__name__)
    return env, tasks, config


def _require_env(text: str, env: Any) -> None:
    what = None
    if hasattr(env, "propose") and hasattr(env, "observe"):
        what = "a teacher: give it with --teacher"
    elif isinstance(env, HostEnv) or (hasattr(env, "obs_size") and hasattr(env, "reset") and hasattr(env, "step")):
        return
    elif hasattr(env, "observation_space") and hasattr(env, "action_space"):
        what = (
            "a Gymnasium environment: train it with Stable-Baselines3 (procurl.integrations.sb3), or write a class "
            "with maker() that makes it (procurl.types.HostEnv)"
        )
    elif isinstance(env, TaskSpace):
        what = "a task space: expected an environment, and its tasks with --space"
    otherwise = f"{type(env).__name__}: expected an environment, with obs_size, action, max_steps, reset and step"
    raise ConfigError(f"{text} is {what or otherwise}")


def chosen_teacher(text: str, setting: ChosenSetting, variant: str = "paper") -> ChosenTeacher:
    """The teacher of this name; it is made for the tasks of `setting`."""
    if text == "auto":
        text = auto(setting.make({})[1])
    if not presets.is_own(text):
        cls = TEACHERS[text] if text in TEACHERS else installed.teacher(text, TEACHERS)
        return ChosenTeacher(
            text, _with_those_around(cls), lambda space, fields: make_teacher(text, space, variant=variant, **fields)
        )
    example = own_teacher(text, setting.make({})[1])

    def make(space: TaskSpace, fields: dict[str, Any]) -> Teacher:
        own = {k: v for k, v in fields.items() if k not in AROUND}
        around = {k: v for k, v in fields.items() if k in AROUND}
        return wrapped(with_fields(own_teacher(text, space), own), **around)

    return ChosenTeacher(type(example).__name__, _with_those_around(type(example)), make)


def own_teacher(text: str, space: TaskSpace) -> Teacher:
    """The teacher that a user has named, for these tasks, as its class or function makes it."""
    if not presets.is_own(text):
        return make_teacher(text, space)
    module, name = split(text)
    teacher = made(module, name, lambda: space)
    if not all(hasattr(teacher, part) for part in ("init", "propose", "observe")):
        raise ConfigError(
            f"--teacher {text}: found {type(teacher).__name__}, expected a teacher, with init, propose and observe"
        )
    return _for_tasks(text, teacher, space)


def _with_those_around(cls: type) -> list[type]:
    around = [(Redrawn, "redrawable"), (OnPool, "invents")]
    return [cls, *(outer for outer, mark in around if getattr(cls, mark, False))]


def _for_tasks(text: str, teacher: Any, space: TaskSpace) -> Teacher:
    """An object in a file was already made for some tasks: they must be these."""
    if teacher.space is space:
        return teacher  # type: ignore[no-any-return]
    pairs = ((getattr(teacher.space, part).context, getattr(space, part).context) for part in ("pool", "targets"))
    if not all(np.array_equal(a, b) for a, b in pairs):
        raise ConfigError(
            f"--teacher {text}: it was made for other tasks than those of {space.name or 'this setting'}. Name its "
            f"class, or a function of the space: def make(space): return {type(teacher).__name__}(space, ...)"
        )
    return dataclasses.replace(teacher, space=space)  # the same, under the setting's name
