"""Where the classes of a run came from, for its notes (`store/classes.py`); nothing is imported to find out."""

from __future__ import annotations

import hashlib
import inspect
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from procurl import installed, suites
from procurl.runs.store.classes import Note, Notes


def class_notes(env: Any, teacher: Any = None) -> Notes:
    """Where the classes came from, unless they are procurl's own: file, digest of its content, package and version."""
    from procurl.teachers.base import OnPool, Redrawn

    inner = teacher.teacher if isinstance(teacher, Redrawn | OnPool) else teacher
    setting = None if teacher is None else teacher.space.name
    parts = {"env": (type(env), setting), **({} if teacher is None else {"teacher": (type(inner), None)})}
    notes = {
        part: _class_note(cls, setting)
        for part, (cls, setting) in parts.items()
        if cls.__module__.split(".")[0] != "procurl"
    }
    if suites.is_of_suite(setting, type(env).__name__):  # ours, around a package that decides how it plays
        package = type(env).package
        notes["env"] = {"class": type(env).__name__, "package": package, "version": metadata.version(package)}
    return notes


def _class_note(cls: type, setting: str | None) -> Note:
    note = {"class": cls.__name__}
    with suppress(OSError, TypeError):  # written at a prompt, or in C: there is no file
        source = Path(inspect.getsourcefile(cls) or "")
        note |= {"file": source.name, "sha256": hashlib.sha256(source.read_bytes()).hexdigest()}
    package = cls.__module__.split(".")[0]
    for point in (*installed.points("teacher"), *installed.points("setting")):
        if point.module.split(".")[0] == package and point.dist:
            note |= {"package": point.dist.name, "version": point.dist.version}
            if point.name == setting or point.value == f"{cls.__module__}:{cls.__qualname__}":
                note["name"] = point.name
    return note
