"""Numbers as users give them, checked once at the border: what was given, what was expected, what to do.

Everything behind the border computes in 32 bits. A number that is NaN, infinite, or too large or too small for them
would not fail there: it would give a wrong curriculum without a word. So it is refused here. Neither JAX nor NumPy is
imported.
"""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from procurl.errors import ConfigError, ProcurlError

LARGEST = 1e30  # of contexts, returns and hyper-parameters: sums of a million such numbers still fit into 32 bits
SMALLEST = 1e-30  # above zero: below some 1e-38 a number of 32 bits is zero
MOST_SEEDS = 65_536  # in one run
MOST_ITERATIONS = 2**31 - 1  # their numbers make random keys, in 32 bits


def whole(
    name: str, value: Any, at_least: float, at_most: float | None = None, error: type[ProcurlError] = ConfigError
) -> int:
    """A whole number within bounds. 1e6 counts as one, as people write `steps=1e6`; "3", True and 2.5 are refused."""
    number = _number(value)
    if number is None or not math.isfinite(number) or number != int(number):
        raise error(f"{name} = {value!r}: expected a whole number")
    if number < at_least or (at_most is not None and number > at_most):
        raise error(f"{name} = {value!r}: expected {_bounds(at_least, at_most)}")
    return int(number)


def real(
    name: str,
    value: Any,
    at_least: float | None = None,
    at_most: float | None = None,
    error: type[ProcurlError] = ConfigError,
) -> float:
    """A number within bounds that 32 bits can hold."""
    number = _number(value)
    if number is None:
        raise error(f"{name} = {value!r}: expected a number")
    # the bounds first: NaN satisfies none
    if not (at_least is None or number >= at_least) or not (at_most is None or number <= at_most):
        raise error(f"{name} = {value!r}: expected {_bounds(at_least, at_most)}")
    if not abs(number) <= LARGEST or 0 < abs(number) < SMALLEST:
        raise error(
            f"{name} = {value!r}: expected a number of at most {LARGEST:g}, and of at least {SMALLEST:g} if it is not "
            f"zero; it is computed with in 32 bits"
        )
    return float(number)


def flag(name: str, value: Any) -> bool:
    """True or False, Python's or NumPy's: "no" and [] would otherwise count as one of them, too."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise ConfigError(f"{name} = {value!r}: expected True or False")
    return bool(value)


def measured(name: str, value: Any) -> float:
    """A number that an agent or environment gave: finite, however small."""
    number = _number(value)
    if number is None:
        raise ConfigError(f"{name} = {value!r}: expected a number")
    if not abs(number) <= LARGEST:
        raise ConfigError(
            f"{name} = {value!r}: expected a finite number of at most {LARGEST:g}; an agent or environment that has "
            f"diverged gives such numbers"
        )
    return float(number)


def seed_numbers(seeds: Iterable[int] | int) -> tuple[int, ...]:
    """The seeds of a run, given as such or as how many (0 .. n-1)."""
    count = _number(seeds)
    if isinstance(seeds, range):
        count = -((seeds.start - seeds.stop) // seeds.step)  # counted before they are listed
    if count is not None and not 1 <= count <= MOST_SEEDS:
        raise ConfigError(
            f"seeds = {seeds!r}: expected at least one seed and at most {MOST_SEEDS:,}; for more, make several runs"
        )
    try:
        given = range(whole("seeds", seeds, 1)) if _number(seeds) is not None else tuple(seeds)  # type: ignore[arg-type]
        if isinstance(seeds, str | bytes):
            raise TypeError
    except TypeError:
        raise ConfigError(f"seeds = {seeds!r}: expected how many, e.g. 3, or which, e.g. [0, 1, 7]") from None
    listed = tuple(whole("seed", seed, 0, 2**32 - 1) for seed in given)
    if not listed or len(set(listed)) < len(listed):
        raise ConfigError(f"seeds = {seeds!r}: expected at least one seed, all different")
    return listed


def iterations(steps: Any, per_iteration: int) -> int:
    """How many iterations make up so many steps, rounded up."""
    return -(-whole("steps", steps, 1, MOST_ITERATIONS * per_iteration) // per_iteration)


def path(name: str, value: Any) -> Path:
    """A path. An empty one, which an unset shell variable gives, would be the current folder."""
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise ConfigError(f"{name} = {value!r}: expected the name of a file or folder")
    return Path(value)


def _number(value: Any) -> Any:
    """The value if it is a number of Python or NumPy, else None; bools are rejected."""
    return value if isinstance(value, numbers.Real) and not isinstance(value, bool) else None


def _bounds(at_least: float | None, at_most: float | None) -> str:
    parts = [f"at least {at_least}"] if at_least is not None else []
    return " and ".join([*parts, *([f"at most {at_most}"] if at_most is not None else [])])
