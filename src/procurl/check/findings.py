"""What a check has found: problems, which break the contract, and notes on what may be intended.

A check runs other people's code, so an exception there is a finding too: told in one line, with its place.
"""

from __future__ import annotations

import linecache
import re
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from procurl.errors import ProcurlError
from procurl.programs import jit

OWN = str(Path(__file__).parent)  # a finding points at the checked code, not at the check
LIBRARIES = tuple(str(Path(sysconfig.get_path(kind))) for kind in ("stdlib", "purelib", "platlib"))
TRACING = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


class Findings:
    """Problems and notes, each said once."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.notes: list[str] = []

    def problem(self, text: str) -> None:
        if text not in self.problems:
            self.problems.append(text)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def add(self, other: Findings) -> None:
        for text in other.problems:
            self.problem(text)
        for text in other.notes:
            self.note(text)

    @contextmanager
    def within(self, what: str) -> Iterator[None]:
        """An exception in the checked code becomes a problem, and the check goes on."""
        try:
            yield
        except Exception as error:
            self.problem(f"{what} fails: {told(error)}")

    def raise_problems(self, what: str, error: type[ProcurlError]) -> None:
        if self.problems:
            listed = "\n".join(f"  - {text}" for text in self.problems)
            raise error(f"{what} has {len(self.problems)} problem(s):\n{listed}")


def told(error: Exception) -> str:
    """An exception in one line, with the place in the checked code that it comes from."""
    place = _place(error)
    at = f", at {place}" if place else ""
    if isinstance(error, TRACING):
        return (
            f"Python needs the value of an array that is only traced{at}. Compiled code has no values yet: write "
            f"jnp.where or jax.lax.cond for `if`, `and`, `or`, `not`; jax.lax.while_loop or fori_loop for loops; "
            f"jnp for math and np"
        )
    if isinstance(error, jax.errors.UnexpectedTracerError):
        return (
            f"a traced array was kept from an earlier call (in self, or a global){at}: return it in the state instead"
        )
    text = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {text}{at}" if text else f"{type(error).__name__}{at}"


def _place(error: Exception) -> str | None:
    """The innermost line that is neither the check's nor a library's."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((OWN, *LIBRARIES, "<")):
            code = linecache.getline(frame.filename, frame.lineno or 0).strip()
            return f"{Path(frame.filename).name}:{frame.lineno} `{code}`"
    return None


def is_same_when_traced_again(first: Any, again: Callable[..., Any], *args: Any) -> bool:
    """Whether a function gives the same program twice.

    Compiled code repeats whatever Python drew, counted or read off the clock while it was traced, so calling it twice
    proves nothing. Tracing it twice does. `first` is what `jit(f).trace` gave; `again` must be another function
    object, since JAX remembers those that it has seen.
    """
    second = jit(again).trace(*args).jaxpr
    same = _text(first.jaxpr) == _text(second)
    return same and equal(_constants(first.jaxpr), _constants(second))


def _text(jaxpr: Any) -> str:
    return re.sub(r"0x[0-9a-f]+", "", str(jaxpr))  # addresses of Python objects


def _constants(jaxpr: Any) -> list[Any]:
    return [np.asarray(c) for c in jaxpr.consts if not jax.dtypes.issubdtype(c.dtype, jax.dtypes.extended)]


def differing_leaves(a: Any, b: Any) -> str | None:
    """How the structure, shapes or types of two trees differ; None where they agree."""
    before, after = str(jax.tree.structure(a)), str(jax.tree.structure(b))
    if before != after:
        return f"{_short(before)} has become {_short(after)}"
    for (path, x), (_, y) in zip(
        jax.tree_util.tree_leaves_with_path(a), jax.tree_util.tree_leaves_with_path(b), strict=True
    ):
        if kind(x) != kind(y):
            return f"{jax.tree_util.keystr(path).lstrip('.') or 'it'} is {kind(x)} first and then {kind(y)}"
    return None


def note_weak_types(found: Findings, names: tuple[str, str], first: Any, later: Any) -> None:
    """Programs are compiled for strongly typed states, and once more for one that is weakly typed in some leaf.

    `names` are the functions that `first` and `later` come from; the trees must be alike (see `differing_leaves`).
    """
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(first), jax.tree.leaves(later), strict=True):
        weak = [name for name, leaf in zip(names, (x, y), strict=True) if getattr(leaf, "weak_type", False)]
        if weak:
            leaf = f"state{jax.tree_util.keystr(path)}"
            strong = "".join(f", strongly in {name}'s" for name in names if name not in weak)
            whose = " and ".join(f"{name}'s" for name in weak)
            number = f"jnp.{x.dtype}"
            found.note(
                f"{leaf} is weakly typed in {whose} state{strong}: it is made of Python numbers alone, and JAX treats "
                f"that as a type of its own: whatever takes the state is compiled a second time. Give it its type: "
                f"{number}(x), jnp.full(n, x, {number}), or x.astype({number})"
            )


def _short(structure: str) -> str:
    text = structure.removeprefix("PyTreeDef(")[:-1]
    return text if len(text) < 80 else f"{text[:77]}..."


def kind(x: Any) -> str:
    """For example float32[3]."""
    return f"{jax.numpy.result_type(x)}{list(np.shape(x))}"


def equal(a: Any, b: Any) -> bool:
    return all(np.array_equal(x, y, equal_nan=True) for x, y in zip(_leaves(a), _leaves(b), strict=True))


def close(a: Any, b: Any) -> bool:
    return all(
        np.allclose(x, y, rtol=1e-5, atol=1e-6, equal_nan=True) for x, y in zip(_leaves(a), _leaves(b), strict=True)
    )


def _leaves(tree: Any) -> list[np.ndarray]:
    def plain(x: Any) -> Any:
        is_key = hasattr(x, "dtype") and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(x) if is_key else x)

    return [x if np.issubdtype(x.dtype, np.inexact) else x.astype(np.int64) for x in map(plain, jax.tree.leaves(tree))]


def require_pytree(found: Findings, thing: Any) -> bool:
    """Environments and teachers travel into compiled programs as arguments, so they must be pytrees of numbers."""
    name = type(thing).__name__
    leaves = jax.tree.leaves(thing)
    if len(leaves) == 1 and leaves[0] is thing:
        found.problem(
            f"{name} is no pytree, so it cannot travel into a compiled program: make it a frozen dataclass and put "
            f"@jax.tree_util.register_dataclass above it (as in examples/new_environment.py)"
        )
        return False
    for path, leaf in jax.tree_util.tree_leaves_with_path(thing):
        if not isinstance(leaf, jax.Array | np.ndarray | np.generic | bool | int | float):
            found.problem(
                f"{name}{jax.tree_util.keystr(path)} = {leaf!r}: expected a number or an array; mark what is neither, "
                f"or shapes the program, with field(metadata={{'static': True}})"
            )
    return True
