"""procurl: curriculum reinforcement learning. A teacher picks tasks, a student plays and learns, the teacher watches.

Importing this package does not import JAX; the names below are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from procurl import moved

__version__ = "0.1.0"

_HOME = {
    "make": "procurl.envs",
    "SETTINGS": "procurl.envs",
    "make_teacher": "procurl.teachers",
    "TEACHERS": "procurl.teachers",
    "IID": "procurl.teachers.iid",
    "Target": "procurl.teachers.iid",
    "ProCuRLUnif": "procurl.teachers.procurl",
    "ProCuRLTarget": "procurl.teachers.procurl",
    "ProCuRLPath": "procurl.teachers.path",
    "SPDL": "procurl.teachers.spdl",
    "CURROT": "procurl.teachers.currot",
    "PLR": "procurl.teachers.plr",
    "GRADIENT": "procurl.teachers.gradient",
    "ALPGMM": "procurl.teachers.alp_gmm",
    "LearningProgress": "procurl.teachers.learning_progress",
    "VDS": "procurl.teachers.vds",
    "ADR": "procurl.teachers.adr",
    "RobustPLR": "procurl.teachers.robust_plr",
    "SFL": "procurl.teachers.sfl",
    "inner_product": "procurl.teachers.procurl",
    "preset": "procurl.presets",
    "Config": "procurl.config",
    "PPO": "procurl.config",
    "SAC": "procurl.config",
    "train": "procurl.runs.train",
    "sweep": "procurl.runs.sweep.sweep",
    "Sweep": "procurl.runs.sweep.sweep",
    "load_sweep": "procurl.runs.sweep.sweep",
    "evaluate": "procurl.runs.evaluation",
    "Progress": "procurl.runs.log",
    "Result": "procurl.runs.store.result",
    "load_result": "procurl.runs.store.result",
    "load_policy": "procurl.runs.store.result",
    "Curriculum": "procurl.runs.curriculum",
    "plot_curriculum": "procurl.bench.report.figures.preview",
    "task_space": "procurl.envs.task_space",
    "categorical_space": "procurl.envs.categorical",
    "ReturnRegressor": "procurl.students.regressor",
    "TrustedValue": "procurl.students.trusted",
    "save_state": "procurl.runs.store.state",
    "load_state": "procurl.runs.store.state",
    "check_space": "procurl.check.contracts",
    "check_env": "procurl.check.contracts",
    "check_teacher": "procurl.check.contracts",
    "Task": "procurl.types",
    "TaskSpace": "procurl.types",
    "Episodes": "procurl.types",
    "Step": "procurl.types",
    "use_cores": "procurl.devices",
}

__all__ = ["__version__", *_HOME]

if TYPE_CHECKING:
    from procurl.bench.report.figures.preview import plot_curriculum
    from procurl.check.contracts import check_env, check_space, check_teacher
    from procurl.config import PPO, SAC, Config
    from procurl.devices import use_cores
    from procurl.envs import SETTINGS, make
    from procurl.envs.categorical import categorical_space
    from procurl.envs.task_space import task_space
    from procurl.presets import preset
    from procurl.runs.curriculum import Curriculum
    from procurl.runs.evaluation import evaluate
    from procurl.runs.log import Progress
    from procurl.runs.store.result import Result, load_policy, load_result
    from procurl.runs.store.state import load_state, save_state
    from procurl.runs.sweep.sweep import Sweep, load_sweep, sweep
    from procurl.runs.train import train
    from procurl.students.regressor import ReturnRegressor
    from procurl.students.trusted import TrustedValue
    from procurl.teachers import TEACHERS, make_teacher
    from procurl.teachers.adr import ADR
    from procurl.teachers.alp_gmm import ALPGMM
    from procurl.teachers.currot import CURROT
    from procurl.teachers.gradient import GRADIENT
    from procurl.teachers.iid import IID, Target
    from procurl.teachers.learning_progress import LearningProgress
    from procurl.teachers.path import ProCuRLPath
    from procurl.teachers.plr import PLR
    from procurl.teachers.procurl import ProCuRLTarget, ProCuRLUnif, inner_product
    from procurl.teachers.robust_plr import RobustPLR
    from procurl.teachers.sfl import SFL
    from procurl.teachers.spdl import SPDL
    from procurl.teachers.vds import VDS
    from procurl.types import Episodes, Step, Task, TaskSpace


moved.install()


def __getattr__(name: str) -> Any:
    if f"procurl.{name}" in moved.MOVED:
        return importlib.import_module(f"procurl.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'procurl' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
