"""Which runs belong to a benchmark: suites, as data. Settings x strategies x seeds x steps; no JAX in here.

A number that a row leaves out is the paper's (`procurl.presets`). A suite of one's own is a TOML file:

    summary = "what it is for"

    [[rows]]
    settings = ["point-mass-1t", "maze-plane"]
    teachers = ["iid", "procurl-target", "procurl-target:release"]
    seeds = 10           # how many, or which: [0, 1, 7]
    steps = 500_000
    block = 5            # seeds in one program
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from procurl.check.numbers import MOST_ITERATIONS, seed_numbers, whole
from procurl.errors import ConfigError, RunFolderError, unknown_name

# The paper's strategies and procurl-path: a suite must not grow with every strategy that comes later.
PAPER_TEACHERS = (
    "iid", "target", "procurl-unif", "procurl-target", "procurl-path", "spdl", "currot", "plr", "gradient",
)  # fmt: skip
Made = TypeVar("Made")


@dataclass(frozen=True)
class Row:
    """A full grid: each of these strategies in each of these settings."""

    settings: tuple[str, ...]
    teachers: tuple[str, ...] = PAPER_TEACHERS  # NAME, or NAME:VARIANT
    seeds: tuple[int, ...] | None = None  # none: as many as in the paper
    steps: int | None = None  # per seed; none: as many as in the paper
    variant: str = "paper"  # whose presets, for student and teacher
    # Seeds in one program on a CPU. The suite says it, not the number of cores: results must not depend on the machine.
    block: int = 5

    def __post_init__(self) -> None:
        for name in ("settings", "teachers"):
            if not getattr(self, name):
                raise ConfigError(f"{name} is empty: expected at least one name")
        if self.seeds is not None:
            object.__setattr__(self, "seeds", seed_numbers(self.seeds))
        for name, most in (("steps", MOST_ITERATIONS), ("block", None)):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), 1, most)


@dataclass(frozen=True)
class Suite:
    name: str
    summary: str
    rows: tuple[Row, ...]

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(s for row in self.rows for s in row.settings))

    def narrowed(self, settings: Iterable[str] | None = None, own: Iterable[str] = (), **changes: Any) -> Suite:
        """The same suite with other numbers (those that are not None), and these of its settings alone.

        `own`: those among them that are not procurl's; a suite need not have them, and its first row says the rest.
        """
        kept = self.settings if settings is None else tuple(settings)
        added = tuple(name for name in own if name not in self.settings)
        for name in kept:
            if name not in (*self.settings, *added):
                raise unknown_name(f"setting of the suite {self.name}", name, self.settings)
        changes = {k: v for k, v in changes.items() if v is not None}
        wanted = [(row, tuple(s for s in row.settings if s in kept)) for row in self.rows]
        wanted[0] = wanted[0][0], (*wanted[0][1], *added)
        rows = [dataclasses.replace(row, settings=names, **changes) for row, names in wanted if names]
        return dataclasses.replace(self, rows=tuple(rows))


SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in (
        Suite(
            "smoke",
            "minutes on two cores: does everything work? Far too short to compare strategies",
            (
                Row(
                    ("point-mass-1t", "maze-plane"),
                    ("procurl-target", "spdl", "iid"),
                    seeds=tuple(range(4)),
                    steps=100_000,
                ),
            ),
        ),
        Suite("point-mass", "Point Mass Sparse, both targets", (Row(("point-mass-1t", "point-mass-2g")),)),
        Suite("maze", "Sparse Goal Reaching", (Row(("maze-plane",)),)),
        Suite("minigrid", "MiniG, six MiniGrid missions", (Row(("minigrid",)),)),
        Suite("bipedal", "Bipedal Walker on Stump Tracks", (Row(("bipedal",)),)),
        Suite(
            "paper",
            "all settings and strategies of the paper",
            (Row(("point-mass-1t", "point-mass-2g", "maze-plane", "bipedal", "minigrid")),),
        ),
    )
}


def find_suite(name: str) -> Suite:
    """A suite of this package by its name, or of a TOML file by its path."""
    if name.endswith(".toml"):
        return load_suite(Path(name))
    if name not in SUITES:
        error = unknown_name("suite", name, SUITES)
        raise ConfigError(f"{error}; or a file of your own, which ends in .toml")
    return SUITES[name]


def load_suite(path: Path) -> Suite:
    from procurl.runs.store import disk  # with NumPy, which a help text does without

    try:
        given = tomllib.loads(disk.read(path, disk.MOST_TEXT, named_by_user=True).decode())
    except RunFolderError as error:
        raise ConfigError(f"cannot read the suite: {error}") from error
    except ValueError as error:  # TOML's own errors, those of UTF-8, and numbers of thousands of digits
        raise ConfigError(f"{path} is no TOML file: {error}") from error
    except RecursionError:
        raise ConfigError(f"{path} is no suite: it is nested too deeply") from None
    _check_names(f"{path}", given, {"name": str, "summary": str, "rows": list})
    if not given.get("rows"):
        raise ConfigError(f"{path} has no rows: expected [[rows]] with settings = [...], and teachers, seeds, steps")
    name = given.get("name", path.stem)
    if not re.fullmatch(r"\w[\w .-]*", name):  # its results go to runs/NAME
        raise ConfigError(f"{path}: name = {name!r}: expected letters, digits, '.', '-' and '_'")
    rows = tuple(_row(f"{path}, row {i}", row) for i, row in enumerate(given["rows"], 1))
    return Suite(name, given.get("summary", ""), rows)


def _row(where: str, given: Any) -> Row:
    kinds = {"settings": list, "teachers": list, "seeds": int | list, "steps": int, "variant": str, "block": int}
    if not isinstance(given, dict):
        raise ConfigError(f"{where}: expected a table, [[rows]]")
    _check_names(where, given, kinds)
    if "settings" not in given:
        raise ConfigError(f"{where}: expected settings = [...]")
    fields = dict(given)
    for name, kind in (("settings", str), ("teachers", str), ("seeds", int)):
        if isinstance(fields.get(name), list):
            if not all(isinstance(x, kind) and not isinstance(x, bool) for x in fields[name]):
                raise ConfigError(f"{where}: {name} = {fields[name]}: expected a list of {kind.__name__}")
            fields[name] = tuple(fields[name])
    return _within(where, lambda: Row(**fields))


def _within(where: str, make: Callable[[], Made]) -> Made:
    """What it makes; an error also says where in the file."""
    try:
        return make()
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _check_names(where: str, given: dict[str, Any], kinds: dict[str, Any]) -> None:
    for name, value in given.items():
        if name not in kinds:
            raise ConfigError(f"{where}: {unknown_name('name', name, kinds)}")
        if not isinstance(value, kinds[name]) or isinstance(value, bool):
            kind = getattr(kinds[name], "__name__", str(kinds[name]))
            raise ConfigError(f"{where}: {name} = {value!r}: expected {kind}")
