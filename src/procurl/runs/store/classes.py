"""Where a run's classes came from, if they are not procurl's: notes for people, in provenance.json and checkpoints.

    "classes": {"env": {"class": "MyEnv", "file": "my.py", "sha256": "..."},
                "teacher": {"class": "Theirs", "file": "...", "sha256": "...", "package": "theirs", "version": "1.2"}}

They are text: whatever a folder says here is shown and compared, and nothing is looked for or imported because of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from procurl.errors import RunFolderError

Note = dict[str, str]
Notes = dict[str, Note]  # of "env" and "teacher", where they are not procurl's own

PARTS = ("env", "teacher")
EARLIER = "earlier_sha256"  # of a source that changed before the run was finished, and was used all the same


def noted(where: Any) -> Notes:
    """The notes in a run's provenance or checkpoint; a stranger's may hold anything, and only text is kept."""
    given = where.get("classes") if isinstance(where, dict) else None
    if not isinstance(given, dict):
        return {}
    return {
        part: {str(k): v for k, v in given[part].items() if isinstance(v, str)}
        for part in PARTS
        if isinstance(given.get(part), dict)
    }


def as_provenance(notes: Notes) -> dict[str, Any]:
    """What is written: nothing for a run of procurl's own classes."""
    return {"classes": notes} if notes else {}


def changed(then: Notes, now: Notes) -> list[str]:
    """In words: what has changed since the run was made."""
    said = []
    for part in PARTS:
        old, new = then.get(part, {}), now.get(part, {})
        if old.get("version", "") != new.get("version", "") and old.get("package") == new.get("package"):
            said.append(f"{new['package']} is {new['version']} now, and was {old['version']}")
        elif old.get("sha256") and new.get("sha256") and old["sha256"] != new["sha256"]:
            digests = f"SHA-256 {old['sha256'][:12]} then, {new['sha256'][:12]} now"
            said.append(f"{new.get('file', 'the source')} has changed ({digests})")
    return list(dict.fromkeys(said))


def require_same(folder: Path, then: Notes, now: Notes) -> None:
    """A run belongs to one program: half of it with other classes would be a result of neither."""
    changes = changed(then, now)
    if changes:
        raise RunFolderError(
            f"{folder} was begun with something else: {'; '.join(changes)}. Nothing was changed. Put back what was "
            f"there, start anew in another folder, or go on with what is there now by --changed (the run notes both)"
        )


def going_on(then: Notes, now: Notes) -> Notes:
    """The notes of a run that goes on with the classes of `now`: what they were before stays on record."""
    notes = {part: dict(note) for part, note in now.items()}
    for part, note in notes.items():
        old = then.get(part, {})
        before = [*old.get(EARLIER, "").split(), old.get("sha256", "")]
        earlier = [digest for digest in dict.fromkeys(before) if digest and digest != note.get("sha256")]
        if earlier:
            note[EARLIER] = " ".join(earlier)
    return notes


def how_to_name(part: str, class_name: str, notes: Notes) -> str:
    """The option that names one of a run's own classes, as well as the notes allow."""
    note = notes.get(part, {})
    return f"--{part} {note.get('name') or note.get('file', 'FILE.py') + ':' + class_name}"
