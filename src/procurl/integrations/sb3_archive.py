"""Stable-Baselines3's own archives (`model.save("model.zip")`): opened only by those who declare that they trust them.

An archive holds pickled objects, and reading it runs whatever they say, before anything can be checked. Nothing else in
this package reads one; `CurriculumCallback.save` writes files that hold numbers alone.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

from procurl.errors import CheckpointError, needs_extra

with needs_extra("sb3", "procurl.integrations.sb3_archive needs {}", "stable_baselines3"):
    import stable_baselines3  # noqa: F401  # asked for first, so that its absence is named
from stable_baselines3.common.base_class import BaseAlgorithm

Model = TypeVar("Model", bound=BaseAlgorithm)


def load_archive(algorithm: type[Model], path: str | os.PathLike[str], *, trust: bool = False, **options: Any) -> Model:
    """`algorithm.load(path, **options)`, e.g. `load_archive(PPO, "model.zip", trust=True, env=env)`.

    Args:
        algorithm: the class that saved it.
        path: the archive, with its suffix.
        trust: True if you know who wrote this file, and would run a program of theirs.
        options: of Stable-Baselines3's own `load`.
    """
    if trust is not True:
        raise CheckpointError(
            f"{path} is an archive of Stable-Baselines3, which holds pickled objects: reading it can run any program "
            f"that its author put there. Nothing was read. If you made it yourself, or would run a program of whoever "
            f"did, say trust=True; files of CurriculumCallback.save are safe to read from anybody."
        )
    if not Path(path).is_file():
        raise CheckpointError(f"{path} is not there; expected an archive that model.save wrote, with its suffix")
    return algorithm.load(Path(path), **options)
