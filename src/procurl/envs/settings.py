"""The benchmark settings: SETTINGS maps a name to the environment's class and a function that builds the task space."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pkgutil import resolve_name
from typing import Any

from procurl.check.fields import checked_fields
from procurl.devices import require_32_bits
from procurl.envs.catalogue import CATALOGUE
from procurl.errors import unknown_name
from procurl.types import TaskSpace

SETTINGS: dict[str, tuple[type, Callable[..., TaskSpace]]] = {
    name: (resolve_name(entry.environment), partial(resolve_name(entry.space), *setting.space_args))
    for entry in CATALOGUE
    for name, setting in entry.settings.items()
}


def make(name: str, **env_fields: Any) -> tuple[Any, TaskSpace]:
    """A setting's environment (`Env`; of `bipedal`: `HostEnv`) and task space: `make("point-mass-1t", noise=0.0)`."""
    if name not in SETTINGS:
        raise unknown_name("setting", name, SETTINGS)
    env_class, build_space = SETTINGS[name]
    require_32_bits()
    checked_fields(env_class, env_fields)
    return env_class(**env_fields), dataclasses.replace(build_space(), name=name)
