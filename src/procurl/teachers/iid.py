"""The two strategies that never watch: uniform over the pool, and straight from the target distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from jax import Array

from procurl.programs import pytree
from procurl.teachers.base import PoolTeacher
from procurl.types import Task


@pytree
@dataclass(frozen=True, eq=False)
class IID(PoolTeacher):
    """Every task of the pool with the same probability."""

    redrawable: ClassVar[bool] = True  # a new pool costs it nothing: see `base.Redrawn`
    may_be_uniform: ClassVar[bool] = True  # it means to be: no warning


@pytree
@dataclass(frozen=True, eq=False)
class Target(PoolTeacher):
    """A fresh draw from the target distribution for every episode."""

    invents: ClassVar[bool] = True  # contexts that are not in the pool: see `base.OnPool`
    may_be_uniform: ClassVar[bool] = True  # where the target distribution is uniform

    def init(self, key: Array) -> tuple[()]:
        return ()

    def propose(self, state: Any, key: Array, n: int) -> Task:
        return self.space.sample_target(key, n)
