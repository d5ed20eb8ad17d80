"""What `--set NAME=VALUE` can change: the documented fields of student, loop, teacher and environment.

The help text is made of these fields, and a value is read as the type that its field declares.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

from procurl.check.fields import documented, kind_of
from procurl.config import PPO, SAC, Config
from procurl.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    from procurl.runs.chosen import ChosenSetting, ChosenTeacher


def option_tables(setting: ChosenSetting, teacher: ChosenTeacher) -> dict[str, list[type]]:
    """The documented dataclasses whose fields --set can change."""
    student = type(setting.config.student)
    return {"teacher": teacher.classes, "env": [setting.env_class], section_of(student): [student], "run": [Config]}


def section_of(student: type) -> str:
    return student.__name__.lower()


Known = dict[tuple[str, str], dataclasses.Field[Any]]  # (section, name) -> field


def known_options(setting: ChosenSetting, teacher: ChosenTeacher) -> Known:
    tables = option_tables(setting, teacher)
    return {(section, f.name): f for section, classes in tables.items() for cls in classes for f in documented(cls)}


def sort_options(assignments: list[str], setting: ChosenSetting, teacher: ChosenTeacher) -> dict[str, dict[str, Any]]:
    """NAME=VALUE pairs -> values by section. A name may leave its section out where that is unique."""
    known = known_options(setting, teacher)
    sorted_options: dict[str, dict[str, Any]] = {section: {} for section in option_tables(setting, teacher)}
    for assignment in assignments:
        (section, field_name), name, text = matched("--set", assignment, known, "teacher.beta=130")
        if field_name in sorted_options[section]:
            raise ConfigError(f"--set {name}: given twice; expected once")
        sorted_options[section][field_name] = parse_value("--set", name, text, kind_of(known[section, field_name]))
    return sorted_options


def values_to_sweep(assignments: list[str], setting: ChosenSetting, teacher: ChosenTeacher) -> dict[str, list[Any]]:
    """NAME=VALUE,VALUE,... -> lists of values by dotted name."""
    known = known_options(setting, teacher)
    over: dict[str, list[Any]] = {}
    for assignment in assignments:
        (section, field_name), _, text = matched("--over", assignment, known, "teacher.b=3,5,8")
        name, kind = f"{section}.{field_name}", kind_of(known[section, field_name])
        if section == "env":
            raise ConfigError(
                f"--over {name}: it changes the tasks, not how they are learnt: use one `train` per value"
            )
        if kind.startswith("tuple"):
            raise ConfigError(f"--over {name}: a {kind} cannot be listed here; use procurl.sweep from Python")
        if name in over:
            raise ConfigError(f"--over {name}: given twice; expected once, with all values")
        over[name] = [parse_value("--over", name, value, kind) for value in text.split(",")]
    return over


def matched(flag: str, assignment: str, known: Known, example: str) -> tuple[tuple[str, str], str, str]:
    """The field that NAME=TEXT is about, and both of them as they were written."""
    name, equals, text = assignment.partition("=")
    if not equals:
        raise ConfigError(f"{flag} {assignment}: expected NAME=VALUE, e.g. {example}")
    matches = [key for key in known if name in (key[1], ".".join(key))]
    if not matches:
        raise unknown_name("option", name, [".".join(key) for key in known], also=[key[1] for key in known])
    if len(matches) > 1:
        choices = " or ".join(".".join(key) for key in matches)
        raise ConfigError(f"{flag} {name}: not unique, expected {choices}")
    return matches[0], name, text


def parse_value(flag: str, name: str, text: str, kind: str) -> Any:
    """A value as written on the command line, of the type its field declares."""
    try:
        if text == "None" and "None" in kind:
            return None
        if kind == "bool":
            return {"true": True, "false": False}[text.lower()]
        if kind.startswith("tuple["):
            number = int if kind.startswith("tuple[int") else float
            return tuple(number(x) for x in text.strip("()[]").split(",") if x.strip())
        if kind.startswith("int"):
            return int(text)
        if kind.startswith("float"):
            return float(text)
        if kind.startswith("str"):
            return text
        if kind.startswith("Literal"):
            choices = re.findall(r"\"(.*?)\"|'(.*?)'", kind)
            if text not in [a or b for a, b in choices]:
                raise ValueError
            return text
    except (ValueError, KeyError):
        raise ConfigError(f"{flag} {name}={text}: expected a value of type {kind}") from None
    raise ConfigError(f"{flag} {name}: a {kind} cannot be given on the command line; use the Python API")


def with_student(config: Config, name: str | None) -> Config:
    """With PPO or SAC in the place of a setting's own student, where one is named."""
    return config if name is None else dataclasses.replace(config, sac=(config.sac or SAC()) if name == "sac" else None)


def configured(config: Config, options: dict[str, dict[str, Any]]) -> Config:
    section = section_of(type(config.student))
    changed: dict[str, Any] = {section: dataclasses.replace(config.student, **options[section])}
    return dataclasses.replace(config, **changed, **options["run"])


def train_options() -> str:
    """Every option of --set with its help: the documented fields themselves."""
    from procurl.envs import SETTINGS
    from procurl.teachers import INVENTORS, REDRAWABLE, TEACHERS
    from procurl.teachers.base import OnPool, Redrawn

    lines = ["options for --set (a section may be left out where the name is unique):"]
    sections: list[tuple[str, str, type]] = [
        ("ppo", "the student", PPO),
        ("sac", "the student of `bipedal`, and of others with --student sac", SAC),
        ("run", "the loop", Config),
    ]
    sections += [("teacher", f"--teacher {name}", cls) for name, cls in TEACHERS.items()]
    sections += [("teacher", f"--teacher {', '.join(REDRAWABLE)}", Redrawn)]
    sections += [("teacher", f"--teacher {', '.join(INVENTORS)}", OnPool)]
    sections += [("env", cls.__name__, cls) for cls in dict.fromkeys(cls for cls, _ in SETTINGS.values())]
    for section, title, cls in sections:
        fields = documented(cls)
        if fields:
            lines.append(f"\n  {section}: {title}")
            lines += [f"    {section}.{f.name:20} {f.metadata['help']} (default {f.default})" for f in fields]
    lines.append("\nDefaults are the class's own; the presets of a setting come on top (`procurl list`).")
    lines.append("A class of your own has the fields that it declares with procurl.config.param(default, help).")
    return "\n".join(lines)
