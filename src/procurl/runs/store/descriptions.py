"""What a run or a curriculum was made of, as a file says it, and how that differs from what is there now."""

from __future__ import annotations

import dataclasses
from typing import Any

from procurl.config import PPO, SAC, Config


def with_defaults(description: dict[str, Any]) -> dict[str, Any]:
    """A description, with defaults for options unknown to the version that wrote it."""
    from procurl.teachers import TEACHERS

    def completed(given: Any, cls: type | None) -> Any:
        if not isinstance(given, dict) or cls is None:
            return given
        options = {f.name: f.default for f in dataclasses.fields(cls) if "help" in f.metadata}
        return {**{k: list(v) if isinstance(v, tuple) else v for k, v in options.items()}, **given}

    whole = dict(description)
    if isinstance(teacher := whole.get("teacher"), dict):
        classes = {cls.__name__: cls for cls in TEACHERS.values()}
        whole["teacher"] = completed(teacher, classes.get(teacher.get("class", "")))
    if isinstance(options := whole.get("config"), dict) and "ppo" in options:
        students = {name: completed(options.get(name), cls) for name, cls in (("ppo", PPO), ("sac", SAC))}
        whole["config"] = completed({**options, **students}, Config)
    return whole


def differing(there: Any, here: Any) -> list[tuple[str, Any, Any]]:
    """(dotted name, value there, value here) of all that is not equal in two descriptions, the first from a file."""
    return _differing(with_defaults(there) if isinstance(there, dict) else there, here)


def _differing(there: Any, here: Any, name: str = "") -> list[tuple[str, Any, Any]]:
    if isinstance(there, dict) and isinstance(here, dict):
        names = list(dict.fromkeys([*there, *here]))
        if there.get("class") != here.get("class"):
            names = ["class"]  # the fields of another class say nothing
        parts = [_differing(there.get(k), here.get(k), f"{name}.{k}" if name else k) for k in names]
        return [difference for part in parts for difference in part]
    return [] if there == here else [(name, there, here)]


def listed(differences: list[tuple[str, Any, Any]]) -> str:
    return "\n".join(f"  {name}: {there!r} there, {here!r} here" for name, there, here in differences)
