"""The state of a prompt curriculum: a flat dictionary, and one file that is whole or refused.

It holds only prompts that were played or dealt, so it is small while those are few. The file is an npz without
objects (no pickle), written next to its place and renamed into it, with a SHA-256 of everything in it.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from procurl.check import numbers
from procurl.errors import CheckpointError, NewerFormatError
from procurl.runs.store import disk, manifest

if TYPE_CHECKING:
    from procurl.prompts.curriculum import PromptCurriculum

FORMAT, VERSION = "procurl-prompts", 1
SETTINGS = (
    "strategy", "group", "seed", "window", "hold_out", "b", "pairing", "hope", "center", "doubt", "half_life",
    "candidates",
)  # fmt: skip
DIGEST = "sha256"


def of(c: PromptCurriculum) -> dict[str, Any]:
    model = c._pass_rates
    played, dealt = np.flatnonzero(model.seen_at >= 0), np.flatnonzero(c._dealt_in >= 0)
    return {
        "format": FORMAT,
        "version": VERSION,
        "settings": disk.to_json(_settings(c)).decode(),
        "time": model.time,
        "batches": c._batches,
        "has_warned": int(c._idle.has_warned),
        "played": played,
        "seen_at": model.seen_at[played],
        "passes": model.passes[:, played],
        "fails": model.fails[:, played],
        "levels": model.levels[:, played],
        "scores": model.scores.copy(),
        "means": model.regressions.mean.copy(),
        "precisions": model.regressions.precision.copy(),
        "dealt": dealt,
        "dealt_in": c._dealt_in[dealt],
        "batch_history": np.array(c._history.batches).reshape(-1, 3),
        "record_history": np.array(c._history.records).reshape(-1, 3),
    }


def restore(c: PromptCurriculum, d: Any) -> None:
    """All of it or, if anything is wrong, nothing."""
    if not isinstance(d, dict) or str(d.get("format")) != FORMAT:
        raise CheckpointError(
            f"expected a state of a PromptCurriculum, as state_dict() gives it; got {type(d).__name__}"
        )
    manifest.refuse_newer(Path("this state"), d, FORMAT, VERSION)
    like = of(c)
    for name in like:
        if name not in d:
            raise CheckpointError(f"the state lacks {name!r}: it is incomplete. Nothing was loaded.")
    _require_same_settings(d["settings"], like["settings"])
    try:
        numbers.whole("version", d["version"], 1, VERSION)
        counts = {name: numbers.whole(name, d[name], 0, 2**62) for name in ("time", "batches", "has_warned")}
        played, dealt = _rows(d["played"], c.n), _rows(d["dealt"], c.n)
        arrays = {
            name: _array(d, name, shape)
            for name, shape in {
                "seen_at": played.shape,
                "passes": (len(c._pass_rates.half_lives), len(played)),
                "fails": (len(c._pass_rates.half_lives), len(played)),
                "levels": (len(c._pass_rates.half_lives), len(played)),
                "scores": c._pass_rates.scores.shape,
                "means": like["means"].shape,
                "precisions": like["precisions"].shape,
                "dealt_in": dealt.shape,
                "batch_history": (None, 3),
                "record_history": (None, 3),
            }.items()
        }
        _require_sense(arrays, counts)
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"the state is damaged: {error}. Nothing was loaded.") from error
    _put(c, counts, played, dealt, arrays)


def _put(c: PromptCurriculum, counts: dict[str, int], played: Any, dealt: Any, arrays: dict[str, Any]) -> None:
    model = c._pass_rates
    model.time, c._batches, c._idle.has_warned = counts["time"], counts["batches"], bool(counts["has_warned"])
    model.seen_at[:], c._dealt_in[:] = -1, -1
    model.passes[:], model.fails[:], model.levels[:] = 0, 0, 0
    model.seen_at[played], c._dealt_in[dealt] = arrays["seen_at"], arrays["dealt_in"]
    model.passes[:, played], model.fails[:, played] = arrays["passes"], arrays["fails"]
    model.levels[:, played] = arrays["levels"]
    model.scores = arrays["scores"]
    model.regressions.put(arrays["means"], arrays["precisions"])
    c._history.batches = [tuple(row) for row in arrays["batch_history"].tolist()]
    c._history.records = [tuple(row) for row in arrays["record_history"].tolist()]


def _rows(given: Any, n: int) -> np.ndarray:
    rows = np.asarray(given)
    if rows.ndim != 1 or rows.dtype.kind != "i" or (len(rows) and not (rows[0] >= 0 and rows[-1] < n)):
        raise ValueError("rows of prompts that are not there")
    if (np.diff(rows) <= 0).any():
        raise ValueError("rows of prompts out of order")
    return rows.astype(np.int64)


def _array(d: dict[str, Any], name: str, shape: tuple[int | None, ...]) -> np.ndarray:
    found = np.asarray(d[name])
    kind = "i" if name in ("seen_at", "dealt_in") else "f"
    fits = found.ndim == len(shape) and all(s in (None, t) for s, t in zip(shape, found.shape, strict=True))
    if found.dtype.kind != kind or not fits:
        raise ValueError(f"{name} is {found.dtype}{list(found.shape)}, expected {list(shape)}")
    if kind == "f" and "history" not in name and not np.isfinite(found).all():
        raise ValueError(f"{name} holds NaN or infinity")
    return found.astype(np.int64 if kind == "i" else np.float64)


def _require_sense(arrays: dict[str, np.ndarray], counts: dict[str, int]) -> None:
    for name, most in (("seen_at", counts["time"]), ("dealt_in", counts["batches"] - 1)):
        if len(arrays[name]) and not (arrays[name].min() >= 0 and arrays[name].max() <= most):
            raise ValueError(f"{name} beyond the present")
    if min(arrays[name].min(initial=0) for name in ("passes", "fails")) < 0:
        raise ValueError("negative counts")
    try:
        np.linalg.cholesky(arrays["precisions"])
    except np.linalg.LinAlgError:
        raise ValueError("precisions that are not positive definite") from None


def _settings(c: PromptCurriculum) -> dict[str, Any]:
    return {
        "prompts": c.n,
        "ids": hashlib.sha256(disk.to_json(c._ids.as_json())).hexdigest(),
        "embeddings": None if c._embeddings is None else c._embeddings.fingerprint(),
        "targets": None if c._targets is None else c._targets.fingerprint(),
        **{name: getattr(c, name) for name in SETTINGS},
    }


def _require_same_settings(theirs: Any, ours: str) -> None:
    try:
        there, here = disk.from_json(theirs), disk.from_json(ours)
        differing = [k for k in {**here, **there} if here.get(k) != there.get(k)]
    except (ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"the state's settings cannot be read: {error}. Nothing was loaded.") from error
    if differing:
        k = differing[0]
        digests = ("ids", "embeddings", "targets")
        how = f"other {k}" if k in digests else f"{k} = {there.get(k)!r}, and here it is {here.get(k)!r}"
        raise CheckpointError(
            f"the state is of another curriculum: it has {how}. Make the curriculum as it was made then. Nothing was "
            f"loaded."
        )


def save(path: str | os.PathLike[str], d: dict[str, Any]) -> Path:
    target = numbers.path("path", path)
    arrays = {name: np.asarray(value) for name, value in d.items()}
    disk.replace(target, disk.to_npz({**arrays, DIGEST: np.asarray(_digest(arrays))}), ". Nothing was overwritten.")
    return target


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What `save` wrote, checked against its digest."""
    content = disk.read(numbers.path("path", path), named_by_user=True)
    try:
        arrays = disk.from_npz(content)
        found = {k: v.item() if v.ndim == 0 else v for k, v in arrays.items() if k != DIGEST}
        manifest.refuse_newer(Path(path), found, FORMAT, VERSION)
        whole = str(arrays[DIGEST].item()) == _digest({k: v for k, v in arrays.items() if k != DIGEST})
    except NewerFormatError:
        raise
    except Exception as error:  # the readers raise errors of many kinds, which all mean this
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if not whole:
        raise CheckpointError(f"{path} is damaged: its content does not match its digest")
    return found


def _digest(arrays: dict[str, np.ndarray]) -> str:
    sha = hashlib.sha256()
    for name in sorted(arrays):
        sha.update(f"{name} {arrays[name].dtype} {arrays[name].shape} ".encode())
        sha.update(np.ascontiguousarray(arrays[name]).tobytes())
    return sha.hexdigest()
