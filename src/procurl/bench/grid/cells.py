"""A suite becomes cells: one strategy in one setting with a block of seeds, which is one program and one run folder.

The folder's name ends in a hash of all that determines the run and of the package's version, so a cell that is done is
recognised, and never mistaken for another.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from procurl import __version__, presets
from procurl.bench.grid.own import Own
from procurl.bench.grid.suites import Row, Suite
from procurl.errors import ConfigError

NONE = Own()


class Group(NamedTuple):
    """What the blocks of seeds belong to: one line in a plot."""

    setting: str
    teacher: str
    variant: str

    @property
    def name(self) -> str:
        return f"{self.setting}-{self.teacher}" + ("" if self.variant == "paper" else f"-{self.variant}")


@dataclass(frozen=True)
class Cell:
    group: Group
    seeds: tuple[int, ...]
    steps: int  # per seed
    digest: str  # of the whole configuration

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.group.name}-{self.block}-{self.digest}"

    @property
    def block(self) -> str:
        """Its seeds, in short."""
        first, last = self.seeds[0], self.seeds[-1]
        if len(self.seeds) == 1:
            return f"s{first}"
        return f"s{first}-{last}" if self.seeds == tuple(range(first, last + 1)) else f"{len(self.seeds)}seeds"

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name, **self.group._asdict(), "seeds": list(self.seeds), "steps": self.steps,
            "digest": self.digest,
        }  # fmt: skip

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Cell:
        """The inverse; ValueError for anything but a cell. Its names become names of folders."""
        group = Group(row["setting"], row["teacher"], row["variant"])
        for name in (*group, row["digest"]):
            if not re.fullmatch(r"\w[\w.-]*", name):
                raise ValueError(f"{name!r}: expected letters, digits, '.', '-' and '_'")
        numbers = [*row["seeds"], row["steps"]]
        if len(numbers) < 2 or any(type(n) is not int or n < 0 for n in numbers):
            raise ValueError(f"seeds {row['seeds']!r} and steps {row['steps']!r}: expected whole numbers")
        return cls(group, tuple(row["seeds"]), row["steps"], row["digest"])


def cells_of(suite: Suite, whole: bool = False, own: Own = NONE) -> list[Cell]:
    """All cells of a suite, in its order. `whole`: all seeds in one program, which suits a GPU. Imports JAX."""
    cells: list[Cell] = []
    for group, row in planned(suite, own).items():
        seeds, steps = _seeds_and_steps(group, row)
        size = len(seeds) if whole else row.block
        for start in range(0, len(seeds), size):
            block = seeds[start : start + size]
            cells.append(Cell(group, block, steps, digest(group, block, steps, own)))
    return cells


def _seeds_and_steps(group: Group, row: Row) -> tuple[tuple[int, ...], int]:
    """Of the suite, or of the paper."""
    if row.seeds and row.steps:
        return row.seeds, row.steps
    if group.setting not in presets.SETTINGS:
        raise ConfigError(f"{group.setting} is not in the paper, which has no numbers for it: give --seeds and --steps")
    paper = presets.named_setting(group.setting)
    return row.seeds or tuple(range(paper.seeds)), row.steps or paper.steps


def planned(suite: Suite, own: Own = NONE) -> dict[Group, Row]:
    """Every group with its row of the suite, all names checked."""
    rows: dict[Group, Row] = {}
    for row in suite.rows:
        for setting, strategy in itertools.product(row.settings, row.teachers):
            teacher, variant = (strategy, "") if ".py:" in strategy else strategy.partition(":")[::2]
            group = Group(setting, teacher, variant or row.variant)
            own.require(setting, teacher, group.variant)
            if group in rows:
                raise ConfigError(f"{group.name} is in the suite {suite.name} twice: expected once")
            rows[group] = row
    return rows


def digest(group: Group, seeds: tuple[int, ...], steps: int, own: Own = NONE) -> str:
    """Ten hexadecimal digits that tell configurations and versions apart."""
    config = {**_description(group, own), "seeds": list(seeds), "steps": steps}
    content = json.dumps({"procurl": __version__, "config": config}, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:10]


@cache
def _description(group: Group, own: Own) -> dict[str, Any]:
    """All that determines the group's runs, except seeds and steps; with the source of classes that are not ours."""
    from procurl.runs.class_origin import class_notes
    from procurl.runs.provenance import describe
    from procurl.runs.store.classes import as_provenance

    env, teacher, config = built(group, own)
    return {**describe(env, teacher, config, (0,), 1), **as_provenance(class_notes(env, teacher))}


def built(group: Group, own: Own = NONE) -> tuple[Any, Any, Any]:
    """Environment, teacher and configuration, as `procurl train SETTING --teacher NAME --variant NAME` makes them."""
    from procurl.runs.chosen import chosen_setting, chosen_teacher

    own.require(*group)
    space = own.space if own.is_own(group.setting) else None
    setting = chosen_setting(dict(own.settings).get(group.setting, group.setting), space, group.variant)
    teacher = chosen_teacher(dict(own.teachers).get(group.teacher, group.teacher), setting, group.variant)
    env, tasks = setting.make({})
    return env, teacher.make(tasks, {}), setting.config


def groups_of(cells: list[Cell]) -> dict[Group, list[Cell]]:
    """The cells of each group; groups and cells keep their order."""
    groups: dict[Group, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.group, []).append(cell)
    return groups
