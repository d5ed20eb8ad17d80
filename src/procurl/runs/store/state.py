"""States on disk: a tree of arrays as named tensors, and one state in one file for a loop of your own."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np

from procurl.errors import CheckpointError, ConfigError, NewerFormatError
from procurl.runs.store import disk, manifest

FORMAT = ("procurl-state", "2")
BEFORE = ("procurl-state", "1")  # its digest covers the tensors but not the notes; still read
UNSIGNED = "0" * 64  # stands in for the digest of a file while that is computed


def save_state(path: str | os.PathLike[str], state: Any, **notes: str) -> Path:
    """Write a tree of arrays, such as (teacher_state, student_state), to a safetensors file, whole or not at all.

    `notes` are strings that travel along, e.g. the setting's name.
    """
    target = Path(path)
    tensors = named(state)
    for name, tensor in tensors.items():
        if tensor.dtype.kind not in "biufV":
            raise ConfigError(
                f"{name} = {tensor.tolist()!r}: expected arrays of numbers in a state; text goes into notes"
            )
    metadata = {**notes, "format": FORMAT[0], "version": FORMAT[1], "sha256": UNSIGNED}
    content = disk.to_tensors(tensors, metadata)
    signed = content.replace(_entry(UNSIGNED), _entry(hashlib.sha256(content).hexdigest()), 1)
    disk.replace(target, signed, ". Nothing was overwritten.")
    return target


def load_state(path: str | os.PathLike[str], like: Any) -> Any:
    """Read what `save_state` wrote, as a tree like `like` (for example a state fresh from `teacher.init`)."""
    tensors, _ = read_state(path)
    return jax.tree.map(jax.numpy.asarray, arranged(tensors, jax.tree.map(jax.numpy.asarray, like), str(path)))


def read_notes(path: str | os.PathLike[str]) -> dict[str, str]:
    """The strings that `save_state` wrote beside a state."""
    return read_state(path)[1]


def read_state(path: str | os.PathLike[str]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The named arrays and the notes of a file, checked against its digest."""
    try:
        content = disk.read(Path(path), named_by_user=True)
        length = int.from_bytes(content[:8], "little")
        metadata = disk.from_json(content[8 : 8 + length]).get("__metadata__", {})
        manifest.refuse_newer(Path(path), metadata, *FORMAT)
        tensors = disk.from_tensors(content)  # which checks the header, too
    except NewerFormatError:
        raise
    except Exception as error:  # the readers raise errors of many kinds, which all mean this
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    form = metadata.get("format"), metadata.get("version")
    if form not in (FORMAT, BEFORE):
        raise CheckpointError(f"{path} is not a {FORMAT[0]} of version {FORMAT[1]}: {metadata.get('format')!r}")
    digest = str(metadata.get("sha256"))
    unsigned = content.replace(_entry(digest), _entry(UNSIGNED), 1)
    if digest != (hashlib.sha256(unsigned).hexdigest() if form == FORMAT else _digest(tensors)):
        raise CheckpointError(f"{path} is damaged: its content does not match its digest")
    return tensors, metadata


def note(path: str | os.PathLike[str], notes: dict[str, str], name: str) -> Any:
    """The content of a note that holds JSON; None if there is no such note."""
    try:
        return disk.from_json(notes.get(name, "null"), finite=False)  # a space may reach to infinity
    except ValueError as error:
        raise CheckpointError(f"{path} has a note {name!r} that cannot be read: {error}") from error


def _entry(digest: str) -> bytes:
    """The digest as it appears in the header. The file is hashed with zeros there: no digest can contain itself."""
    return f'"sha256":"{digest}"'.encode()


def named(tree: Any) -> dict[str, np.ndarray]:
    """A tree's leaves by their path: "teacher.log_weights", "envs.task.context", ..."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {_name(path): np.asarray(raw(leaf)) for path, leaf in paths}


def arranged(tensors: dict[str, np.ndarray], like: Any, where: str) -> Any:
    """Named tensors as a tree of the same structure, shapes and types as `like`; anything else is refused."""
    paths, structure = jax.tree_util.tree_flatten_with_path(like)
    expected = {_name(path): leaf for path, leaf in paths}
    missing, extra = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    if missing or extra:
        what = f"lacks {missing[0]}" if missing else f"holds {extra[0]}, which has no place here"
        raise CheckpointError(f"{where} is of another kind of run: it {what}")
    leaves = []
    for name, leaf in expected.items():
        tensor, plain = tensors[name], jax.eval_shape(raw, leaf)
        if (tensor.shape, tensor.dtype) != (plain.shape, plain.dtype):
            raise CheckpointError(
                f"{where} is of another kind of run: {name} is {tensor.dtype}{list(tensor.shape)} there, expected "
                f"{plain.dtype}{list(plain.shape)}"
            )
        leaves.append(jax.random.wrap_key_data(jax.numpy.asarray(tensor)) if _is_key(leaf) else tensor)
    return jax.tree.unflatten(structure, leaves)


def _name(path: Any) -> str:
    return ".".join(str(getattr(p, "name", getattr(p, "key", getattr(p, "idx", p)))) for p in path) or "state"


def raw(leaf: Any) -> Any:
    """A random key as plain numbers, anything else as it is."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and bool(jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _digest(tensors: dict[str, np.ndarray]) -> str:
    """The digest of version 1."""
    sha = hashlib.sha256()
    for name in sorted(tensors):
        sha.update(f"{name} {tensors[name].dtype} {tensors[name].shape} ".encode())
        sha.update(np.ascontiguousarray(tensors[name]).tobytes())
    return sha.hexdigest()
