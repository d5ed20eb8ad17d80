"""Folders that are complete and unaltered, or refused: how results and checkpoints lie on disk.

A folder holds some files and a `manifest.json` with the SHA-256 of each, written last. JSON, npz and safetensors
only: reading never runs code from a file (no pickle, no eval).
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from procurl.errors import RunFolderError

MANIFEST = "manifest.json"


class Format(NamedTuple):
    """What a folder is, in its manifest."""

    name: str
    version: int
    files: tuple[str, ...]


def write_folder(folder: Path, contents: dict[str, bytes], form: Format) -> None:
    """Write all files durably, the manifest last: without it, a folder is incomplete."""
    for name, content in contents.items():
        write(folder / name, content)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    write(folder / MANIFEST, to_json({"format": form.name, "version": form.version, "sha256": digests}))
    sync_folder(folder)


def read_folder(folder: Path, form: Format) -> dict[str, Any]:
    """Every file as plain data. A file that matches its digest may still hold nonsense, or a pickle."""
    readers: dict[str, Callable[[bytes], Any]] = {".json": json.loads, ".npz": from_npz, ".safetensors": from_tensors}
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
    if not (folder / MANIFEST).is_file():
        raise RunFolderError(f"{folder} has no {MANIFEST}: it is not a complete {form.name}")
    try:
        content = (folder / MANIFEST).read_bytes()
        manifest = json.loads(content)
        if to_json(manifest) != content:  # a manifest has no digest of its own, but only one way to be written
            raise ValueError("not as procurl wrote it")
        name, version, digests = manifest["format"], manifest["version"], dict(manifest["sha256"])
    except OSError as error:
        raise RunFolderError(f"{folder / MANIFEST} cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise RunFolderError(f"{folder / MANIFEST} is damaged: {error!r}") from error
    if (name, version) != (form.name, form.version):
        raise RunFolderError(
            f"{folder} has format {name!r} version {version!r}; this procurl reads {form.name!r} version "
            f"{form.version}. Use the procurl that wrote it."
        )
    contents = {}
    for file in form.files:
        if file not in digests or not (folder / file).is_file():
            raise RunFolderError(f"{folder} lacks {file}: it is incomplete")
        try:
            contents[file] = (folder / file).read_bytes()
        except OSError as error:
            raise RunFolderError(f"{folder / file} cannot be read: {error.strerror or error}") from error
        if hashlib.sha256(contents[file]).hexdigest() != digests[file]:
            raise RunFolderError(f"{folder / file} is damaged: its content does not match {MANIFEST}")
    return contents


def refuse_others(folder: Path, expected: Iterable[str]) -> None:
    """No file but these: one that nobody wrote on purpose is a sign that something went wrong."""
    extra = sorted({p.name for p in folder.iterdir()} - {*expected, MANIFEST})
    if extra:
        raise RunFolderError(f"{folder} holds {', '.join(extra[:3])}, which procurl did not write there: take it away")


def to_json(data: Any) -> bytes:
    return (json.dumps(data, indent=2, allow_nan=False) + "\n").encode()


def to_npz(arrays: dict[str, np.ndarray], compressed: bool = True) -> bytes:
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def from_npz(content: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return dict(arrays)


def to_tensors(arrays: dict[str, np.ndarray], metadata: dict[str, str] | None = None) -> bytes:
    import safetensors.numpy

    return safetensors.numpy.save({k: np.asarray(v, order="C") for k, v in arrays.items()}, metadata)


def from_tensors(content: bytes) -> dict[str, np.ndarray]:
    import safetensors.numpy

    return safetensors.numpy.load(content)


def made_folder(folder: Path) -> Path:
    """A folder for pictures and pages, made where it is not there yet."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(f"cannot write to the folder {folder}: {error.strerror or error}") from error
    return folder


def write(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable; not every platform can open one."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
