"""Folders that are complete and unaltered, or refused: how results and checkpoints lie on disk.

A folder holds some files and a `manifest.json` with the SHA-256 of each, written last. JSON, npz and safetensors
only: reading never runs code from a file (no pickle, no eval). Everything that comes from a disk comes through `read`,
`from_json`, `from_npz` and `from_tensors`, which expect the worst of it: see SECURITY.md.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import stat
import zipfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from procurl import __version__
from procurl.errors import NewerFormatError, RunFolderError

MANIFEST = "manifest.json"
FOR_PEOPLE = (".png", ".pdf", ".gif", ".mp4", ".html", ".md")  # of plot, watch and report
MOST_TEXT = 64 * 2**20  # bytes of JSON or TOML; ours have kilobytes
MOST_DEPTH = 32  # lists in lists; Python's own reader gives up somewhere near a thousand, and other code before
# A compressed file may unpack to this many bytes, and to so many for each of its own. Zeros shrink to a thousandth:
# a file of ten megabytes that holds nothing else would fill ten gigabytes of memory.
UNPACKED_BYTES, UNPACKED_RATIO = 256 * 2**20, 100


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
    """To be called before anything is written to a folder that may hold something already."""
    refuse_newer_file(folder / MANIFEST, form.name, form.version)


def refuse_newer_file(path: Path, name: str, known: int) -> None:
    """The same, of a JSON file."""
    try:
        says = from_json(read(path, MOST_TEXT))
    except (RunFolderError, ValueError):
        return  # it is not there, or damaged: whoever reads it says so
    refuse_newer(path, says, name, known)


def refuse_newer(path: Path, says: Any, name: str, known: int | str) -> None:
    """An error if a file `says` that it is of a later version of a format than the one that we know."""
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
    """Which procurl it was, in brackets, where that is written down: in the file, or in those of its manifest."""
    version = says.get("procurl")
    if path.name == MANIFEST:
        with suppress(Exception):  # in a later format all of this may be different
            version = from_json(read(path.with_name("run.json"), MOST_TEXT))["log"]["software"]["procurl"]
        with suppress(Exception):
            version = from_json(read(path.with_name("provenance.json"), MOST_TEXT))["procurl"]
    return f" ({version})" if isinstance(version, str) and re.fullmatch(r"[\w.+-]{1,40}", version, re.ASCII) else ""


def refuse_others(folder: Path, expected: Iterable[str], strict: bool = True) -> None:
    """No file but these: one that nobody wrote on purpose is a sign that something went wrong.

    Unless `strict`, what is no data may be there as well: folders (checkpoints), pictures and pages that our own
    commands make, and hidden files, as file managers leave them behind.
    """
    extra = {p.name for p in folder.iterdir() if strict or not _is_no_data(p)} - {*expected, MANIFEST}
    if extra:
        raise RunFolderError(
            f"{folder} holds {', '.join(sorted(extra)[:3])}, which procurl did not write there: take it away"
        )


def _is_no_data(path: Path) -> bool:
    return path.name.startswith(".") or path.suffix in FOR_PEOPLE or (path.is_dir() and not path.is_symlink())


def to_json(data: Any) -> bytes:
    return (json.dumps(data, indent=2, allow_nan=False) + "\n").encode()


def from_json(content: str | bytes, finite: bool = True) -> Any:
    """Plain data, as `to_json` writes it; ValueError for anything else. Python reads more: NaN, a name twice, 1e999."""
    number: dict[str, Any] = {"parse_constant": _not_a_number, "parse_float": _finite} if finite else {}
    if len(content) > MOST_TEXT:
        raise ValueError(f"{len(content):,} bytes of JSON; expected at most {MOST_TEXT:,}")
    try:
        data = json.loads(content, object_pairs_hook=_once_each, parse_int=_small, **number)
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None
    _require_flat(data, MOST_DEPTH)
    return data


def _not_a_number(text: str) -> float:
    raise ValueError(f"{text} is no number in JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _not_a_number(text[:40])


def _small(text: str) -> int:
    number = int(text)
    if not -(2**63) <= number < 2**64:
        raise ValueError(f"the number {text[:20]}... has more than 64 bits")
    return number


def _require_flat(data: Any, depth: int) -> None:
    if isinstance(data, dict | list):
        if depth == 0:
            raise ValueError("JSON that is nested too deeply")
        for item in data.values() if isinstance(data, dict) else data:
            _require_flat(item, depth - 1)


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        raise ValueError("JSON that names something twice")
    return data


def to_npz(arrays: dict[str, np.ndarray], compressed: bool = True) -> bytes:
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def from_npz(content: bytes) -> dict[str, np.ndarray]:
    """Arrays by name. Sizes are compared before anything is unpacked; objects (pickles) are refused."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = archive.infolist()
        _require_plain_entries(entries, len(content))
        return {
            entry.filename.removesuffix(".npy"): _from_npy(entry.filename, archive.read(entry)) for entry in entries
        }


def _require_plain_entries(entries: list[zipfile.ZipInfo], packed: int) -> None:
    if len({entry.filename for entry in entries}) < len(entries):
        raise ValueError("it has two entries of one name")
    for entry in entries:
        name, parts = entry.filename, entry.filename.split("/")
        if not name.endswith(".npy") or "\\" in name or {"", ".", ".."} & set(parts):
            raise ValueError(f"it has an entry {name!r}, which procurl does not write")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{name} is compressed by method {entry.compress_type}, which procurl does not write")
    unpacked = sum(entry.file_size for entry in entries)
    if unpacked > UNPACKED_BYTES + UNPACKED_RATIO * packed:
        raise ValueError(f"{packed:,} bytes would unpack to {unpacked:,}: more than results do")


def _from_npy(name: str, content: bytes) -> np.ndarray:
    """One array, if its header tells the truth about what follows."""
    file = io.BytesIO(content)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(file)
    if version not in readers:
        raise ValueError(f"{name} has version {version}, which procurl does not write")
    shape, in_columns, dtype = readers[version](file)
    if dtype.hasobject:
        raise ValueError(f"{name} holds Python objects; expected numbers: reading it could run code")
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(content) - file.tell():
        raise ValueError(f"{name} announces {dtype}{list(shape)}, and holds {len(content) - file.tell():,} bytes")
    array = np.frombuffer(content, dtype, offset=file.tell())
    return array.reshape(shape, order="F" if in_columns else "C").copy()


def to_tensors(arrays: dict[str, np.ndarray], metadata: dict[str, str] | None = None) -> bytes:
    import safetensors.numpy

    return safetensors.numpy.save({k: np.asarray(v, order="C") for k, v in arrays.items()}, metadata)


def from_tensors(content: bytes) -> dict[str, np.ndarray]:
    import safetensors.numpy

    return safetensors.numpy.load(content)


def read(path: Path, most: int | None = None, named_by_user: bool = False) -> bytes:
    """The content of a plain file, of `most` bytes at most.

    A link may lead anywhere, a pipe would wait for ever, a device may have no end: a stranger's folder can hold all.
    A file that the user named may be a link of theirs.
    """
    try:
        path = Path(os.path.realpath(path)) if named_by_user else path
        kind = os.lstat(path).st_mode
        if not stat.S_ISREG(kind):
            raise RunFolderError(f"{path} is {_kind(kind)}; expected a plain file")
        with open(path, "rb", opener=_open_plain) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise RunFolderError(f"{path} is no plain file any more")
            if most is not None and os.fstat(file.fileno()).st_size > most:
                raise RunFolderError(f"{path} is larger than {most:,} bytes, which is more than procurl expects there")
            return file.read()
    except MemoryError as error:
        raise RunFolderError(f"{path} is too large for this machine's memory") from error
    except OSError as error:
        if isinstance(error, RunFolderError):
            raise
        raise RunFolderError(f"{path} cannot be read: {error.strerror or error}") from error


def _open_plain(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def _kind(mode: int) -> str:
    kinds = {stat.S_IFLNK: "a link", stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def made_folder(folder: Path) -> Path:
    """A folder for pictures and pages, made where it is not there yet."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(f"cannot write to the folder {folder}: {error.strerror or error}") from error
    return folder


def write(path: Path, content: bytes) -> None:
    """Durably, and never through a link that somebody has put there."""
    with open(path, "wb", opener=_create_plain) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _create_plain(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable; not every platform can open one."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
