"""Tasks that are names, without distances between them, as a task space in one call.

    space = procurl.categorical_space(["5x5", "6x6", "8x8"], target="8x8")

The context of such a task is one number, the index of its label, so that everything that plays, records and stores
tasks works as usual. Only strategies that measure distances have nothing to measure: they refuse such a space, or are
given a similarity of labels.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from procurl.check.numbers import real, whole
from procurl.check.space import MOST_TASKS
from procurl.envs.task_space import task_space
from procurl.errors import SpaceError, unknown_name
from procurl.types import TaskSpace

DIMENSION = "task"  # the name of the one dimension


def categorical_space(
    labels: Sequence[str],
    *,
    target: str | Sequence[str] | Mapping[str, float],
    similarity: ArrayLike | Callable[[str, str], float] | None = None,
    pool_size: int = 100,
    n_targets: int = 100,
    n_held_out: int = 100,
    value_range: tuple[float, float] | None = None,
    fresh_seeds: bool = True,
    seed: int = 0,
    name: str = "",
) -> TaskSpace:
    """The tasks of an environment that has a list of levels, maps or variants.

    `space.label(context)` gives back a context's label, for the function that sets up your environment.

    Args:
        labels: the names of the tasks, all different.
        target: where the final skill is measured. One label; a list of labels, all equally likely; or a dictionary,
            label -> weight.
        similarity: how much practice on one task helps another, for ProCuRL-Target: a matrix with a row per task and a
            column per target, both in the order of `labels`, or a function `similarity(task, target)` of two labels.
            1 is as good as the target itself, 0 of no use.
        pool_size: training tasks to choose from; rounded up, so that every label occurs equally often. Each is an
            instance of its label, by which the label's value is judged.
        n_targets: draws of the target distribution that a teacher reasons with.
        n_held_out: draws on which the student is evaluated.
        value_range: the smallest and largest return of a task: teachers scale the student's values with it. None:
            learnt from what is played.
        fresh_seeds: every episode of a label is a new instance of it (another layout). False: each task of the pool is
            one instance, and comes back as it was.
        seed: of all draws.
        name: for messages and records.
    """
    labels = _labels(labels)
    copies = -(-whole("pool_size", pool_size, 1, MOST_TASKS, SpaceError) // len(labels))
    plain = task_space(
        [0], [len(labels) - 1], [DIMENSION], target=_target(target, labels), values={DIMENSION: range(len(labels))},
        pool=np.tile(np.arange(len(labels)), copies)[:, None], n_targets=n_targets, n_held_out=n_held_out,
        value_range=value_range, fresh_seeds=fresh_seeds, seed=seed, name=name,
    )  # fmt: skip
    return dataclasses.replace(plain, labels=labels, similarity=_similarity(similarity, labels), units=None)


class SimilarityTable:
    """K(task, target) of labels, looked up in a table, f32[labels, labels]. Two with the same table are equal."""

    def __init__(self, table: NDArray[np.float32]) -> None:
        self.table = np.array(table, np.float32)

    def __call__(self, contexts: Array, targets: Array) -> Array:
        row, column = (jnp.round(c[:, 0]).astype(jnp.int32) for c in (contexts, targets))
        return jnp.asarray(self.table)[row[:, None], column[None, :]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SimilarityTable) and np.array_equal(self.table, other.table)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        digest = hashlib.sha256((self.table + np.float32(0)).tobytes()).hexdigest()[:16]  # -0 equals 0
        return f"SimilarityTable({len(self.table)} labels, sha256 {digest})"


def _labels(given: Any) -> tuple[str, ...]:
    is_list = isinstance(given, Sequence | np.ndarray) and not isinstance(given, str)  # a set has no order
    labels = tuple(given) if is_list else ()
    if not labels or not all(isinstance(label, str) and label for label in labels):
        raise SpaceError(f"labels = {given!r}: expected a list of names, e.g. ['5x5', '6x6']; numbers as str(number)")
    labels = tuple(map(str, labels))  # NumPy's strings are described differently
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise SpaceError(f"labels: {twice!r} is there {labels.count(twice)} times: expected different names")
    return labels


def _target(target: Any, labels: tuple[str, ...]) -> Any:
    """In a form that `task_space` takes."""
    if isinstance(target, str):
        return [_index(target, labels)]
    if isinstance(target, Mapping):
        weights = {
            _index(label, labels): real(f"target[{label!r}], a weight,", weight, 0, error=SpaceError)
            for label, weight in target.items()
        }
        parts: list[Any] = [(weight, [index]) for index, weight in weights.items() if weight]
    elif isinstance(target, Sequence):
        parts = [[_index(label, labels)] for label in target]
    else:
        parts = []
    if not parts:
        raise SpaceError(
            f"target = {target!r}: expected a label, a list of labels, or a dictionary, label -> weight, with at least "
            f"one weight above 0"
        )
    return parts


def _index(label: Any, labels: tuple[str, ...]) -> int:
    if label not in labels:
        raise unknown_name("label in target", label, labels)
    return labels.index(label)


def _similarity(given: Any, labels: tuple[str, ...]) -> SimilarityTable | None:
    if given is None:
        return None
    rows = [[given(a, b) for b in labels] for a in labels] if callable(given) else given
    n = len(labels)
    try:
        table = np.array(rows, np.float32)
    except (TypeError, ValueError):
        table = np.empty(0, np.float32)
    if table.shape != (n, n):
        what = f"a matrix of shape {table.shape}" if table.size else repr(given)
        raise SpaceError(
            f"similarity = {what}: expected {n} x {n} numbers, a row per task and a column per target, or a function "
            f"of two labels that returns a number"
        )
    if not np.isfinite(table).all():
        task, to = (labels[k] for k in np.argwhere(~np.isfinite(table))[0])
        raise SpaceError(
            f"similarity of {task!r} to {to!r} is {table[~np.isfinite(table)][0]}: expected a finite number"
        )
    return SimilarityTable(table)
