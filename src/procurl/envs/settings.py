"""The benchmark settings: SETTINGS maps a name to the environment's class and a function that builds the task space."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pkgutil import resolve_name
from typing import Any

from procurl import installed
from procurl.check.fields import checked_fields, with_fields
from procurl.devices import require_32_bits
from procurl.envs.catalogue import CATALOGUE
from procurl.types import TaskSpace

SETTINGS: dict[str, tuple[type, Callable[..., TaskSpace]]] = {
    name: (resolve_name(entry.environment), partial(resolve_name(entry.space), *setting.space_args))
    for entry in CATALOGUE
    for name, setting in entry.settings.items()
}


def make(name: str, **env_fields: Any) -> tuple[Any, TaskSpace]:
    """A setting's environment (`Env`; of `bipedal`: `HostEnv`) and task space: `make("point-mass-1t", noise=0.0)`.

    Names from installed packages are known as well (`procurl list`), and those packages are imported here.
    """
    require_32_bits()
    if name not in SETTINGS:
        theirs = installed.setting(name, SETTINGS)
        return with_fields(theirs.env, env_fields), dataclasses.replace(theirs.space, name=name).numbered()
    env_class, build_space = SETTINGS[name]
    checked_fields(env_class, env_fields)
    return env_class(**env_fields), dataclasses.replace(build_space(), name=name).numbered()
