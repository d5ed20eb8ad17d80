"""Folders that are complete and unaltered, or refused: how results and checkpoints lie on disk.

A folder holds some files and a `manifest.json` with the SHA-256 of each, written last. A folder of a format that only a
newer procurl knows is left alone.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from procurl import __version__
from procurl.errors import NewerFormatError, RunFolderError
from procurl.runs.store.disk import MANIFEST, MOST_TEXT, from_json, from_npz, from_tensors, read, to_json

FOR_PEOPLE = (".png", ".pdf", ".gif", ".mp4", ".html", ".md")  # of plot, watch and report


class Format(NamedTuple):
    """What a folder is, according to its manifest."""

    name: str
    version: int
    files: tuple[str, ...]


def sealed(contents: dict[str, bytes], form: Format) -> dict[str, bytes]:
    """The files of a folder and, last, their manifest: without it, a folder is incomplete."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    return {**contents, MANIFEST: to_json({"format": form.name, "version": form.version, "sha256": digests})}


def read_folder(folder: Path, form: Format) -> dict[str, Any]:
    """Every file as plain data. A file that matches its digest may still hold nonsense, or a pickle."""
    readers: dict[str, Callable[[bytes], Any]] = {".json": from_json, ".npz": from_npz, ".safetensors": from_tensors}
    data = {}
    for name, content in _verified(folder, form).items():
        try:
            data[name] = readers[Path(name).suffix](content)
        except Exception as error:
            raise RunFolderError(f"{folder / name} cannot be read: {error}") from error
    return data


def _verified(folder: Path, form: Format) -> dict[str, bytes]:
    """The bytes of every file, each checked against the manifest."""
    if not folder.is_dir():
        raise RunFolderError(f"{folder} is not a folder; expected a {form.name} written by procurl")
    if not os.path.lexists(folder / MANIFEST):
        raise RunFolderError(f"{folder} has no {MANIFEST}: it is not a complete {form.name}")
    content = read(folder / MANIFEST, MOST_TEXT)
    try:
        manifest = from_json(content)
        refuse_newer(folder / MANIFEST, manifest, form.name, form.version)  # its manifests may look different
        if to_json(manifest) != content:  # a manifest has no digest of its own, but only one way to be written
            raise ValueError("not as procurl wrote it")
        name, version, digests = manifest["format"], manifest["version"], dict(manifest["sha256"])
    except (ValueError, KeyError, TypeError) as error:
        raise RunFolderError(f"{folder / MANIFEST} is damaged: {error!r}") from error
    if (name, version) != (form.name, form.version):
        raise RunFolderError(
            f"{folder / MANIFEST} says format {name!r} version {version!r}; this procurl reads {form.name!r} version "
            f"{form.version}. Use the procurl that wrote it."
        )
    odd = [*(manifest.keys() - {"format", "version", "sha256"}), *(digests.keys() - set(form.files))]
    if odd:
        raise RunFolderError(f"{folder / MANIFEST} is damaged: it names {min(odd)!r}, which a {form.name} has not")
    contents = {}
    for file in form.files:
        if file not in digests:
            raise RunFolderError(f"{folder / MANIFEST} lacks {file}: it is incomplete")
        if not os.path.lexists(folder / file):
            raise RunFolderError(f"{folder} lacks {file}: it is incomplete")
        contents[file] = read(folder / file)
        if hashlib.sha256(contents[file]).hexdigest() != digests[file]:
            raise RunFolderError(f"{folder / file} is damaged: its content does not match {MANIFEST}")
    return contents


def refuse_newer_folder(folder: Path, form: Format) -> None:
    """Call this before writing to a folder that may already hold something."""
    refuse_newer_file(folder / MANIFEST, form.name, form.version)


def refuse_newer_file(path: Path, name: str, known: int) -> None:
    """The same for a JSON file."""
    try:
        says = from_json(read(path, MOST_TEXT))
    except (RunFolderError, ValueError):
        return  # missing or damaged: reading it will say so
    refuse_newer(path, says, name, known)


def refuse_newer(path: Path, says: Any, name: str, known: int | str) -> None:
    """An error if a file `says` that its format is of a later version than the one that we know."""
    if not isinstance(says, dict) or says.get("format") != name:
        return
    version = str(says.get("version"))
    if re.fullmatch(r"[0-9]{1,9}", version) and int(version) > int(known):
        raise NewerFormatError(
            f"{path} was written by a newer version of procurl{_writer(path, says)}: it is a {name} of version "
            f"{version}, and this procurl ({__version__}) knows versions up to {known}. Nothing was changed. Update "
            f"procurl, or choose another folder."
        )


def _writer(path: Path, says: dict[str, Any]) -> str:
    """The version that wrote it, in parentheses, if the file or one beside the manifest names it."""
    version = says.get("procurl")
    if path.name == MANIFEST:
        with suppress(Exception):  # in a later format all of this may be different
            version = from_json(read(path.with_name("run.json"), MOST_TEXT))["log"]["software"]["procurl"]
        with suppress(Exception):
            version = from_json(read(path.with_name("provenance.json"), MOST_TEXT))["procurl"]
    return f" ({version})" if isinstance(version, str) and re.fullmatch(r"[\w.+-]{1,40}", version, re.ASCII) else ""


def refuse_others(folder: Path, expected: Iterable[str], strict: bool = True) -> None:
    """Refuse any file but these: one that procurl did not write is a sign that something went wrong.

    Unless `strict`, what is not data may be there as well: folders (checkpoints), pictures and pages that our own
    commands make, and hidden files, which file managers leave behind.
    """
    extra = {p.name for p in folder.iterdir() if strict or not _is_no_data(p)} - {*expected, MANIFEST}
    if extra:
        raise RunFolderError(
            f"{folder} holds {', '.join(sorted(extra)[:3])}, which procurl did not write there: take it away"
        )


def _is_no_data(path: Path) -> bool:
    return path.name.startswith(".") or path.suffix in FOR_PEOPLE or (path.is_dir() and not path.is_symlink())
