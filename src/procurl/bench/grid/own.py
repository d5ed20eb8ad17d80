"""Settings and strategies of a benchmark that are not procurl's: those that the command line has named.

    procurl bench smoke --settings my.py:MyEnv --teachers my.py:MyTeacher iid

A suite is a file that may come from anybody, so it cannot ask for code: neither a user's file nor an installed package
is imported unless its name stands on the command line. In the grid they go by a short name, MyEnv. No JAX in here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from procurl import installed, presets, suites
from procurl.errors import ConfigError, unknown_name


@dataclass(frozen=True)
class Own:
    """Pairs of (name in the grid, as it was named)."""

    settings: tuple[tuple[str, str], ...] = ()
    teachers: tuple[tuple[str, str], ...] = ()
    space: str | None = None  # of the settings of one's own

    def require(self, setting: str, teacher: str, variant: str) -> None:
        """Refuse what is neither procurl's nor named."""
        presets.require_variant(variant)
        _require("setting", setting, presets.SETTINGS, self.settings)
        _require("teacher", teacher, presets.TEACHERS, self.teachers)

    def is_own(self, setting: str) -> bool:
        return setting in dict(self.settings)

    def files(self) -> list[str]:
        """Those that are not installed, and so on this machine alone."""
        return [text for _, text in (*self.settings, *self.teachers) if presets.is_own(text)]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Own:
        pairs = {name: tuple((short, text) for short, text in row[name]) for name in ("settings", "teachers")}
        return cls(**pairs, space=row["space"])


def named_on(
    settings: Sequence[str] | None, teachers: Sequence[str] | None, space: str | None
) -> tuple[list[str] | None, list[str] | None, Own]:
    """--settings and --teachers as names in the grid, and what those that are not procurl's stand for."""
    setting_names, own_settings = _shortened("setting", settings or (), presets.SETTINGS)
    teacher_names, own_teachers = _shortened("teacher", teachers or (), presets.TEACHERS)
    if space is not None and not own_settings:
        raise ConfigError(f"--space {space}: expected with an environment of your own, --settings FILE.py:NAME")
    return settings and setting_names, teachers and teacher_names, Own(own_settings, own_teachers, space)  # type: ignore[return-value]


def _shortened(
    kind: installed.Kind, texts: Iterable[str], ours: Iterable[str]
) -> tuple[list[str], tuple[tuple[str, str], ...]]:
    names: list[str] = []
    own: dict[str, str] = {}
    theirs = installed.names(kind, ours)
    for text in texts:
        name, _, variant = text.partition(":")
        if name in ours or (variant in ("", *presets.VARIANTS) and not name.endswith(".py")):  # NAME, or NAME:VARIANT
            names.append(text)
            own |= {name: name} if name in theirs else {}
            continue
        if suites.is_suite(text):
            raise ConfigError(
                f"--{kind}s {text}: a benchmark takes a suite's environments from a file, with their contexts: "
                f"def make(): return procurl.integrations.{name}.make({variant!r}, context=..., target=...), and "
                f"--{kind}s FILE.py:make"
            )
        short = text.rpartition(":")[2]
        if not re.fullmatch(r"\w[\w.]*", short) or short.endswith(".py"):
            raise ConfigError(f"--{kind}s {text}: expected FILE.py:NAME, or a name that `procurl list` shows")
        if short in ours or own.get(short, text) != text:
            raise ConfigError(f"--{kind}s {text}: there is another {short} in this benchmark; give it another name")
        names.append(short)
        own[short] = text
    return names, tuple(own.items())


def _require(kind: installed.Kind, name: str, ours: Iterable[str], own: Iterable[tuple[str, str]]) -> None:
    text = dict(own).get(name)
    if name in ours or (text is not None and presets.is_own(text)):
        return
    if text is not None:
        installed.require(kind, name, ours)
    elif name in (theirs := installed.names(kind, ours)):
        raise ConfigError(
            f"the {kind} {name} is of an installed package ({theirs[name]}), which a suite cannot ask for: name it on "
            f"the command line, --{kind}s {name}"
        )
    elif presets.is_own(name):
        raise ConfigError(f"{kind} {name}: a suite cannot ask for code; name it on the command line, --{kind}s {name}")
    else:
        raise unknown_name(kind, name, ours)
