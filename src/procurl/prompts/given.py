"""What users give, checked once at the border: ids, embeddings, targets and results. Nothing is half recorded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from procurl.check import numbers
from procurl.errors import ConfigError, unknown_name
from procurl.prompts.features import F32, F64, Embeddings

MOST_PROMPTS = 2**31 - 1
CHUNK = 65_536  # rows that are looked at together
HOW_TENSORS = "of a tensor give x.detach().float().cpu().numpy()"
NO_SEQUENCE = (str, bytes, dict, set, frozenset)  # a set's order differs from process to process

Id = int | str


class Ids:
    """The prompts' ids and their rows."""

    def __init__(self, prompts: int | Sequence[Id]) -> None:
        self._ids: list[Id] | None = None
        if isinstance(prompts, (*NO_SEQUENCE, bool)) or prompts is None:
            raise ConfigError(f"prompts = {_short(prompts)}: expected how many, or a sequence of distinct ids")
        if isinstance(prompts, Iterable):
            self._ids = [_id(i) for i in _listed(prompts)]
            self._rows = {i: row for row, i in enumerate(self._ids)}
            if len(self._rows) < len(self._ids):
                twice = next(i for row, i in enumerate(self._ids) if self._rows[i] != row)
                raise ConfigError(f"prompts: the id {twice!r} occurs twice; expected distinct ids. Remove duplicates.")
            self.n = len(self._ids)
            if not self.n:
                raise ConfigError("prompts is empty: expected at least one prompt")
        else:
            self.n = numbers.whole("prompts", prompts, 1, MOST_PROMPTS)

    def rows(self, ids: Any, name: str = "ids") -> NDArray[np.int64]:
        """The rows of ids; an error names the first unknown one."""
        if isinstance(ids, NO_SEQUENCE) or not isinstance(ids, Iterable):
            raise ConfigError(f"{name} = {_short(ids)}: expected a sequence of prompts' ids")
        known = [_id(i, name) for i in _listed(ids)]
        if self._ids is None:
            unknown = [i for i in known if isinstance(i, str) or not 0 <= i < self.n]
        else:
            unknown = [i for i in known if i not in self._rows]
        if unknown:
            there = f"0 to {self.n - 1}" if self._ids is None else f"such as {self._ids[0]!r}"
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            raise ConfigError(f"{name}: unknown id {_short(unknown[0])}{more}; expected ids of prompts, {there}")
        return np.array(known if self._ids is None else [self._rows[i] for i in known], np.int64)

    def of(self, rows: NDArray[np.int64]) -> list[Id]:
        return rows.tolist() if self._ids is None else [self._ids[row] for row in rows]

    def as_json(self) -> int | list[Id]:
        return self.n if self._ids is None else self._ids


def one_of(name: str, value: Any, known: Sequence[str]) -> Any:
    if value not in known:
        raise unknown_name(name, value, known)
    return value


def _id(value: Any, name: str = "prompts") -> Id:
    if isinstance(value, str):
        return value
    if isinstance(value, int | np.integer) and not isinstance(value, bool | np.bool_):
        return int(value)
    raise ConfigError(f"{name}: an id is {_short(value)}; expected a string or a whole number")


def _listed(given: Iterable[Any]) -> list[Any]:
    """A list; for arrays and tensors of any library, of their plain values."""
    found = given.tolist() if hasattr(given, "tolist") else list(given)
    return found if isinstance(found, list) else [found]


def embeddings(given: Any, n: int, name: str = "embeddings", d: int | None = None, center: Any = False) -> Embeddings:
    """f32[n, d], with finite rows that have a direction. `center`: True for their own mean, or a vector to subtract."""
    _require_no_mask(name, given)
    try:
        rows = np.asarray(given)
    except ValueError:
        raise ConfigError(f"{name}: rows of different lengths; expected an array of numbers [n, d]") from None
    except (TypeError, RuntimeError) as error:
        raise ConfigError(f"{name} cannot be read ({error}); {HOW_TENSORS}") from None
    if rows.ndim != 2 or rows.dtype.kind not in "fiu" or not rows.shape[1]:
        raise ConfigError(f"{name} is {rows.dtype}{list(rows.shape)}; expected an array of numbers [n, d]")
    if len(rows) != n:
        raise ConfigError(f"{name} has {len(rows):,} rows, but there are {n:,} prompts; expected one row for each")
    if d is not None and rows.shape[1] != d:
        raise ConfigError(f"{name} has {rows.shape[1]} dimensions, but embeddings has {d}; use one and the same model")
    with np.errstate(over="ignore", invalid="ignore"):
        rows = np.ascontiguousarray(rows, np.float32)
        _require_finite(rows, name)
        centre = rows.mean(axis=0, dtype=np.float64).astype(np.float32) if center is True else None
        centre = center if isinstance(center, np.ndarray) else centre
        lengths = np.concatenate([_lengths(rows[k : k + CHUNK], centre) for k in range(0, n, CHUNK)])
    if not (lengths > 0).all():
        row = int(np.argmin(lengths > 0))
        where = "lies exactly at their mean (center=True)" if centre is not None else "is all zeros"
        raise ConfigError(f"{name}: row {row} {where}, and has no direction; expected another embedding, or drop it")
    return Embeddings(rows, lengths, centre)


def _require_no_mask(name: str, given: Any) -> None:
    if isinstance(given, np.ma.MaskedArray):
        raise ConfigError(f"{name} is a masked array, whose mask would be lost; expected a plain one: x.filled(...)")


def _require_finite(rows: F32, name: str) -> None:
    for first in range(0, len(rows), CHUNK):
        bad = ~(np.abs(rows[first : first + CHUNK]) <= 1e15).all(axis=1)  # squares must fit into 32 bits
        if bad.any():
            row = first + int(np.argmax(bad))
            raise ConfigError(f"{name}: row {row} holds NaN, infinity or a number beyond 1e15; expected finite numbers")


def _lengths(rows: F32, centre: F32 | None) -> F32:
    rows = rows if centre is None else rows - centre
    return np.sqrt(np.einsum("ij,ij->i", rows, rows))


class Targets(NamedTuple):
    """Rows of the prompts that are targets, or embeddings of their own."""

    rows: NDArray[np.int64] | None
    directions: F32 | None
    n: int

    def fingerprint(self) -> str:
        """Tells these targets from others."""
        content = self.directions if self.rows is None else self.rows
        assert content is not None
        return hashlib.sha256(content.tobytes() + str(content.shape).encode()).hexdigest()


def targets(given: Any, ids: Ids, pool: Embeddings | None) -> Targets | None:
    if given is None:
        return None
    if isinstance(given, NO_SEQUENCE) or not isinstance(given, Iterable):
        raise ConfigError(f"targets = {_short(given)}: expected ids of prompts, or an array of embeddings [m, d]")
    listed: Any = given if getattr(given, "ndim", 1) > 1 else _listed(given)
    n = len(listed)
    if not n:
        raise ConfigError("targets is empty: expected at least one target; without targets use procurl-unif")
    if not isinstance(listed, list) or np.ndim(listed[0]) > 0 or isinstance(listed[0], float | np.floating):
        if pool is None:
            raise ConfigError("targets are embeddings, but the prompts have none: give embeddings, too")
        own = embeddings(listed, n, "targets", pool.rows.shape[1], False if pool.centre is None else pool.centre)
        return Targets(None, own.directions(slice(None)), len(own))
    rows = ids.rows(listed, "targets")
    if len(np.unique(rows)) < len(rows):
        raise ConfigError("targets: an id occurs twice; expected distinct ids")
    return Targets(rows, None if pool is None else pool.directions(rows), len(rows))


class Results(NamedTuple):
    """passes[k] of trials[k] samples of the prompt rows[k]; rewards between 0 and 1 make fractions of passes."""

    rows: NDArray[np.int64]
    passes: F64
    trials: F64


def results(ids: Ids, which: Any, passes: Any, group: Any, rewards: Any, usual_group: int) -> Results:
    rows = ids.rows(which)
    if not len(rows):
        raise ConfigError("ids is empty: expected at least one prompt with results")
    if (passes is None) == (rewards is None):
        raise ConfigError("expected either passes (with group) or rewards, and not both")
    if passes is None:
        return _from_rewards(rows, rewards, group, usual_group)
    size = _groups(usual_group if group is None else group, len(rows))
    count = _array("passes", passes, len(rows), 1)
    wrong = ~((count >= 0) & (count <= size) & (count == np.floor(count)))
    if wrong.any():
        k = int(np.argmax(wrong))
        raise ConfigError(
            f"passes: {count[k]:g} of a group of {size[k]:g} (id {ids.of(rows[k : k + 1])[0]!r}); expected whole "
            f"numbers from 0 to the group's size. Pass rates go into rewards=. Nothing was recorded."
        )
    return Results(rows, count, size)


def _from_rewards(rows: NDArray[np.int64], rewards: Any, group: Any, usual_group: int) -> Results:
    found = _array("rewards", rewards, len(rows), 2)
    if not ((found >= 0) & (found <= 1)).all():
        wrong = found[~((found >= 0) & (found <= 1))][0]
        raise ConfigError(
            f"rewards: {wrong:g}; expected numbers from 0 to 1. Scale them (0: failed, 1: passed). Nothing was "
            f"recorded."
        )
    if found.ndim == 1:
        size = _groups(usual_group if group is None else group, len(rows))
        return Results(rows, found * size, size)
    if not found.shape[1]:
        raise ConfigError("rewards has no columns: expected one for each sample of a group")
    size = np.full(len(rows), float(found.shape[1]))
    if group is not None and not np.array_equal(_groups(group, len(rows)), size):
        raise ConfigError(f"group = {_short(group)}, but rewards has {found.shape[1]} columns; leave group out")
    return Results(rows, found.sum(axis=1), size)


def _groups(group: Any, n: int) -> F64:
    """f64[n], from one size for all or one for each."""
    if np.ndim(group) == 0:
        return np.full(n, float(numbers.whole("group", group, 1, 1_000_000)))
    sizes = _array("group", group, n, 1)
    if not ((sizes >= 1) & (sizes == np.floor(sizes)) & (sizes <= 1_000_000)).all():
        raise ConfigError("group: expected whole numbers, at least 1, or one for all. Nothing was recorded.")
    return sizes


def _array(name: str, given: Any, n: int, most_dimensions: int) -> F64:
    _require_no_mask(name, given)
    try:
        found = np.asarray(given)
        if found.dtype.kind not in "fiub":
            raise ValueError
    except (ValueError, TypeError, RuntimeError):  # the latter two from tensors on a GPU or with a gradient
        how = f"; {HOW_TENSORS}" if hasattr(given, "detach") else ""
        raise ConfigError(f"{name} = {_short(given)}: expected numbers in memory, one row for each id{how}") from None
    if not 1 <= found.ndim <= most_dimensions or len(found) != n:
        raise ConfigError(f"{name} has the shape {list(found.shape)}, but there are {n} ids. Nothing was recorded.")
    found = found.astype(np.float64)
    if not np.isfinite(found).all():
        raise ConfigError(f"{name} holds NaN or infinity; expected finite numbers. Nothing was recorded.")
    return found


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
