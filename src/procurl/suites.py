"""Environments of other suites by name, with named parameters as the context, and how these are written as text.

    procurl train gymnax:CartPole-v1 --context length=0.1:3 --target length=3

The text of --context and --target is also what a run's description holds, so that `resume` and `evaluate` need no
more than the folder. A suite is one row here and one file in `procurl/integrations`, which is imported when somebody
uses its name. No JAX in here.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from procurl.errors import ConfigError

SUITES = {  # name before the colon -> (module, its class of environments)
    "gymnax": ("procurl.integrations.gymnax", "GymnaxEnv"),
    "brax": ("procurl.integrations.brax", "BraxEnv"),
}
EXAMPLE = "e.g. length=0.1:3"
Ranges = dict[str, tuple[float, float]]  # parameter -> (low, high); a single value is a range of no width


class Box(NamedTuple):
    """The bounds of a context whose dimensions are parameters."""

    names: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def is_suite(text: Any) -> bool:
    """Whether a text is SUITE:NAME. A module of the suite itself, gymnax.x:NAME, is not."""
    return isinstance(text, str) and ":" in text and text.partition(":")[0] in SUITES


def is_of_suite(setting: Any, class_name: str) -> bool:
    """Whether procurl knows a setting and the class of its environment as those of a suite."""
    return is_suite(setting) and SUITES[setting.partition(":")[0]][1] == class_name


def made(text: str, context: str, target: str, **fields: Any) -> tuple[Any, Any]:
    """(environment, task space) of SUITE:NAME; `fields` are those of its class."""
    suite, _, name = text.partition(":")
    if not name:
        raise ConfigError(f"{text}: expected {suite}:NAME, the name of one of {suite}'s environments")
    module = importlib.import_module(SUITES[suite][0])  # not an import: runs/ stands below integrations/
    pair: tuple[Any, Any] = module.make(name, ranges("--context", [context]), ranges("--target", [target]), **fields)
    return pair


def ranges(flag: str, texts: Iterable[str]) -> Ranges:
    """NAME=LOW:HIGH or NAME=VALUE, several of them with commas between or in several texts."""
    found: Ranges = {}
    for pair in (pair.strip() for text in texts for pair in text.split(",")):
        if not pair:
            continue
        name, equals, value = (part.strip() for part in pair.partition("="))
        low, colon, high = (part.strip() for part in value.partition(":"))
        try:
            bounds = float(low), float(high if colon else low)
        except ValueError:
            bounds = math.nan, math.nan
        if not name or not equals or not all(map(math.isfinite, bounds)):
            raise ConfigError(f"{flag} {pair}: expected NAME=LOW:HIGH or NAME=VALUE, {EXAMPLE}")
        if name in found:
            raise ConfigError(f"{flag} {name}: given twice; expected once")
        found[name] = bounds
    return found


def as_ranges(what: str, given: Mapping[str, Any]) -> Ranges:
    """The same from a dictionary, parameter -> value or (low, high)."""
    if not isinstance(given, Mapping):
        raise ConfigError(f"{what} = {given!r}: expected a dictionary, parameter -> (low, high)")
    found: Ranges = {}
    for name, value in given.items():
        pair = tuple(value) if isinstance(value, tuple | list) else (value, value)
        try:
            numbers = tuple(float(x) for x in pair)
        except (TypeError, ValueError):
            numbers = ()
        if len(numbers) != 2 or not all(map(math.isfinite, numbers)):
            raise ConfigError(f"{what}[{name!r}] = {value!r}: expected a number, or (low, high)")
        found[str(name)] = (numbers[0], numbers[1])
    return found


def written(given: Ranges) -> str:
    """The text from which `ranges` reads the same numbers."""
    return ",".join(
        f"{name}={low!r}" if low == high else f"{name}={low!r}:{high!r}" for name, (low, high) in given.items()
    )


@lru_cache(maxsize=64)
def box(context: str) -> Box:
    """The bounds that a context's text describes."""
    found = ranges("context", [context])
    return Box(tuple(found), tuple(low for low, _ in found.values()), tuple(high for _, high in found.values()))


def require_box(context: Ranges, known: Mapping[str, str], others: Mapping[str, str], of: str) -> None:
    """Parameters that exist and can vary, within bounds that are not reversed.

    Args:
        known: parameter -> what it is by default, in words.
        others: parameter that cannot be a context -> why not.
        of: the environment, for messages.
    """
    listed = ", ".join(f"{name} ({default})" for name, default in known.items()) or "none"
    if not context:
        raise ConfigError(
            f"{of} needs a context: --context NAME=LOW:HIGH, or context={{name: (low, high)}}. It has {listed}"
        )
    for name, (low, high) in context.items():
        if name in others:
            raise ConfigError(f"{of}: {name} cannot be a context: it is {others[name]}. Those that can be: {listed}")
        if name not in known:
            raise ConfigError(f"{of} has no parameter '{name}'. Those that can be a context: {listed}")
        if low > high:
            raise ConfigError(f"context {name}: {low:g} is above {high:g}; expected the lower bound first")
        if low == high:
            raise ConfigError(
                f"context {name}={low:g}: expected a range, NAME=LOW:HIGH; a single value is no choice of tasks"
            )


def require_target(target: Ranges, context: Ranges) -> None:
    """One value or range for every parameter of the context, within its bounds."""
    for name, (low, high) in target.items():
        if name not in context:
            raise ConfigError(f"target {name}: it is not in the context, which has {', '.join(context)}")
        if low > high:
            raise ConfigError(f"target {name}: {low:g} is above {high:g}; expected the lower bound first")
        least, most = context[name]
        if low < least or high > most:
            what = f"{low:g}" if low == high else f"{low:g}:{high:g}"
            raise ConfigError(
                f"target {name}={what} lies outside its context, {least:g}:{most:g}: widen one of the two"
            )
    missing = [name for name in context if name not in target]
    if missing:
        raise ConfigError(
            f"the target says nothing about {', '.join(missing)}: expected --target {missing[0]}=VALUE or LOW:HIGH"
        )
