"""Files as procurl reads and writes them: never trusted, never half written.

JSON, npz and safetensors only: reading never runs code from a file (no pickle, no eval). Everything that comes from a
disk comes through `read`, `from_json`, `from_npz` and `from_tensors`, which expect the worst of it: see SECURITY.md.
What is written appears under its name when it is complete (`replace`, `place_folder`, `fill_folder`), and one process
at a time writes to a folder (`locked`). No JAX in here.
"""

from __future__ import annotations

import io
import json
import math
import os
import shutil
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from procurl.errors import RunFolderError

MANIFEST = "manifest.json"
PARTIAL = ".partial"  # the folder in which files are written before they go to their place
MOST_TEXT = 64 * 2**20  # bytes of JSON or TOML; ours have kilobytes
MOST_DEPTH = 32  # levels of nesting; Python's own reader fails near a thousand, other code earlier
# A compressed file may unpack to this many bytes plus this many times its own size. Zeros shrink to a thousandth: a
# file of ten megabytes that holds nothing else would fill ten gigabytes of memory.
UNPACKED_BYTES, UNPACKED_RATIO = 256 * 2**20, 100


def to_json(data: Any) -> bytes:
    return (json.dumps(data, indent=2, allow_nan=False) + "\n").encode()


def from_json(content: str | bytes, finite: bool = True) -> Any:
    """Plain data, as `to_json` writes it; ValueError for anything else. Python takes more: NaN, a name twice, 1e999."""
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

    A link may lead anywhere, a pipe would block for ever, a device may have no end: a folder from a stranger can hold
    any of these. A file that the user named may be a link of their own.
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
    """A folder for pictures and pages, made if it is not there yet."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(f"cannot write to the folder {folder}: {error.strerror or error}") from error
    return folder


def write(path: Path, content: bytes) -> None:
    """Write durably, and never through a link that somebody has put there."""
    with open(path, "wb", opener=_create_plain) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def replace(path: Path, content: bytes, advice: str = "") -> None:
    """Write a file as a whole: if that fails, whatever had its name is still there."""
    with replacing(path, advice) as partial:
        write(partial, content)


@contextmanager
def replacing(path: Path, advice: str = "") -> Iterator[Path]:
    """Where to write a file that is to replace `path`: it gets that name at the end, or is removed."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        yield partial
        os.replace(partial, path)
        sync_folder(path.parent)
    except OSError as error:
        raise RunFolderError(f"could not write {path}: {error.strerror or error}{advice}") from error
    finally:
        with suppress(OSError):  # a read-only disk, or no such folder
            partial.unlink(missing_ok=True)


def place_folder(folder: Path, contents: dict[str, bytes]) -> None:
    """Write a folder of files as a whole: it has its name when it is complete."""
    with _staged(folder.parent, contents) as staging:
        os.replace(staging, folder)


def fill_folder(folder: Path, contents: dict[str, bytes]) -> None:
    """Write files to a folder that may hold others. The manifest arrives last: without it, the rest does not count."""
    with _staged(folder, contents) as staging:
        for name in sorted(contents, key=lambda name: name == MANIFEST):
            os.replace(staging / name, folder / name)
        staging.rmdir()


@contextmanager
def _staged(home: Path, contents: dict[str, bytes]) -> Iterator[Path]:
    """The files in a folder of their own below `home`, to be renamed; it is removed on failure, as it takes up room."""
    staging = home / PARTIAL
    try:
        shutil.rmtree(staging, ignore_errors=True)  # left by a process that was killed while it wrote
        staging.mkdir()
        write_files(staging, contents)
        yield staging
        sync_folder(home)
    except OSError:
        shutil.rmtree(staging, ignore_errors=True)
        raise


def write_files(folder: Path, contents: dict[str, bytes]) -> None:
    """Write all files durably, in the order given."""
    for name, content in contents.items():
        write(folder / name, content)
    sync_folder(folder)


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


@contextmanager
def locked(folder: Path, *, shared: bool = False, wait: bool = False) -> Iterator[bool]:
    """Hold the lock of a folder. Yields False if another process has it, unless told to wait.

    The lock ends with its process, however that ends. Where folders have no locks (Windows), two writers are the user's
    responsibility.
    """
    if os.name != "posix":
        yield True
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
            free = True
        except BlockingIOError:
            free = False
        yield free
    finally:
        os.close(descriptor)
