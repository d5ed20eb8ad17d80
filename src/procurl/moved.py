"""Module paths of version 0.1: `import procurl.task_spaces` goes on to work, and says that it is `envs.task_space` now.

An old name gives the very module that the new one gives, so that classes stay the same and pickles are read.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MOVED = {
    "procurl.bench.figures": "procurl.bench.report.figures",
    "procurl.bench.studies": "procurl.bench.report.studies",
    "procurl.bench.style": "procurl.bench.report.style",
    "procurl.bench.tables": "procurl.bench.report.tables",
    "procurl.curriculum": "procurl.runs.curriculum",
    "procurl.evaluation": "procurl.runs.evaluation",
    "procurl.failure": "procurl.runs.store.failure",
    "procurl.integrations.settings": "procurl.integrations.setting_env",
    "procurl.integrations.settings_vector": "procurl.integrations.setting_vector",
    "procurl.integrations.tasks": "procurl.envs.host_tasks",
    "procurl.join": "procurl.runs.store.join",
    "procurl.policy": "procurl.students.policy",
    "procurl.progress": "procurl.cli.progress",
    "procurl.record": "procurl.runs.log",
    "procurl.regressor": "procurl.students.regressor",
    "procurl.result": "procurl.runs.store.result",
    "procurl.state": "procurl.runs.store.state",
    "procurl.task_spaces": "procurl.envs.task_space",
    "procurl.theory": "procurl.bench.theory",
}


def now(name: str) -> str | None:
    """Where a module, or the package it lies in, is now; None if it has not moved."""
    parts = name.split(".")
    for n in range(len(parts), 1, -1):
        old = ".".join(parts[:n])
        if old in MOVED:
            return ".".join([MOVED[old], *parts[n:]])
    return None


class Forwarder:
    """Finds old names, and loads what they stand for."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name.startswith("procurl.") and now(name) else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        new = str(now(old))
        warnings.warn(f"{old} has moved: import {new} instead", DeprecationWarning, stacklevel=2)
        sys.modules[old] = importlib.import_module(new)  # what the import statement then takes


def install() -> None:
    """First in line: else a module of a package that has moved would be found in the new folder, and loaded twice."""
    sys.meta_path.insert(0, Forwarder())  # type: ignore[arg-type]
