"""procurl: curriculum reinforcement learning. A teacher picks tasks, a student plays and learns, the teacher watches.

Importing this package does not import JAX; the names below are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "make": "procurl.envs",
    "SETTINGS": "procurl.envs",
    "make_teacher": "procurl.teachers",
    "TEACHERS": "procurl.teachers",
    "IID": "procurl.teachers",
    "Target": "procurl.teachers",
    "ProCuRLUnif": "procurl.teachers",
    "ProCuRLTarget": "procurl.teachers",
    "SPDL": "procurl.teachers",
    "CURROT": "procurl.teachers",
    "PLR": "procurl.teachers",
    "GRADIENT": "procurl.teachers",
    "inner_product": "procurl.teachers.procurl",
    "preset": "procurl.presets",
    "Config": "procurl.config",
    "PPO": "procurl.config",
    "SAC": "procurl.config",
    "train": "procurl.loop",
    "evaluate": "procurl.evaluation",
    "Progress": "procurl.record",
    "Result": "procurl.result",
    "load_result": "procurl.result",
    "load_policy": "procurl.result",
    "Curriculum": "procurl.curriculum",
    "task_space": "procurl.task_spaces",
    "ReturnRegressor": "procurl.regressor",
    "save_state": "procurl.state",
    "load_state": "procurl.state",
    "check_space": "procurl.check",
    "check_env": "procurl.check",
    "check_teacher": "procurl.check",
    "Task": "procurl.types",
    "TaskSpace": "procurl.types",
    "Episodes": "procurl.types",
    "Step": "procurl.types",
    "use_cores": "procurl.devices",
}

__all__ = ["__version__", *_HOME]

if TYPE_CHECKING:
    from procurl.check import check_env, check_space, check_teacher
    from procurl.config import PPO, SAC, Config
    from procurl.curriculum import Curriculum
    from procurl.devices import use_cores
    from procurl.envs import SETTINGS, make
    from procurl.evaluation import evaluate
    from procurl.loop import train
    from procurl.presets import preset
    from procurl.record import Progress
    from procurl.regressor import ReturnRegressor
    from procurl.result import Result, load_policy, load_result
    from procurl.state import load_state, save_state
    from procurl.task_spaces import task_space
    from procurl.teachers import (
        CURROT,
        GRADIENT,
        IID,
        PLR,
        SPDL,
        TEACHERS,
        ProCuRLTarget,
        ProCuRLUnif,
        Target,
        make_teacher,
    )
    from procurl.teachers.procurl import inner_product
    from procurl.types import Episodes, Step, Task, TaskSpace


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'procurl' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
