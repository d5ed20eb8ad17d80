"""A Stable-Baselines3 model as named arrays, without pickle: weights, optimisers, counters, averages, replay buffer.

Stable-Baselines3's own files hold pickled objects, and reading one runs whatever it says. Here a model is made anew by
the script that made it first, and then filled with numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.save_util import recursive_getattr
from stable_baselines3.common.vec_env import unwrap_vec_normalize

from procurl.errors import CheckpointError

COUNTERS = (
    "num_timesteps",
    "_n_updates",
    "_episode_num",
    "_n_calls",
    "_current_progress_remaining",
    "exploration_rate",
)
BUFFER = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")
Arrays = dict[str, NDArray[Any]]


def model_state(model: BaseAlgorithm) -> Arrays:
    """All that a model has learnt and counted."""
    parts: Arrays = {}
    for name, state in model.get_parameters().items():
        if "param_groups" in state:  # an optimiser: its groups are made by the script, its averages are learnt
            for k, averages in state["state"].items():
                parts |= {f"{name}.state.{k}.{key}": _numbers(x) for key, x in averages.items()}
        else:
            parts |= {f"{name}.{key}": _numbers(x) for key, x in state.items()}
    for name in model._get_torch_save_params()[1]:
        parts[f"variable.{name}"] = _numbers(recursive_getattr(model, name))
    for name in COUNTERS:
        if hasattr(model, name):
            parts[f"counter.{name}"] = np.array(getattr(model, name), np.float64)
    normaliser = unwrap_vec_normalize(model.env) if model.env is not None else None
    if normaliser is not None:
        for name, average in _averages(normaliser).items():
            for field in ("mean", "var", "count"):
                parts[f"normalise.{name}.{field}"] = np.asarray(getattr(average, field), np.float64)
    return parts | _buffer_state(getattr(model, "replay_buffer", None))


def load_model(model: BaseAlgorithm, parts: Arrays, where: str) -> None:
    """The inverse of `model_state`, in a model that was made in the same way."""
    _refuse_others(model, parts, where)
    exact = {}
    for name, state in model.get_parameters().items():
        if "param_groups" in state:
            learnt: dict[int, dict[str, torch.Tensor]] = {}
            for full, x in parts.items():
                if full.startswith(f"{name}.state."):
                    k, key = full.removeprefix(f"{name}.state.").split(".", 1)
                    learnt.setdefault(int(k), {})[key] = torch.as_tensor(x.copy())
            exact[name] = {"state": learnt, "param_groups": state["param_groups"]}
        else:
            exact[name] = {key: torch.as_tensor(parts[f"{name}.{key}"].copy()) for key in state}
    model.set_parameters(exact, exact_match=True, device=model.device)  # type: ignore[arg-type]
    for name in model._get_torch_save_params()[1]:
        recursive_getattr(model, name).data = torch.as_tensor(parts[f"variable.{name}"].copy()).to(model.device)
    for name in COUNTERS:
        if hasattr(model, name):
            kind = type(getattr(model, name))
            setattr(model, name, kind(parts[f"counter.{name}"].item()))
    normaliser = unwrap_vec_normalize(model.env) if model.env is not None else None
    if normaliser is not None:
        for name, average in _averages(normaliser).items():
            for field in ("mean", "var", "count"):
                value = parts[f"normalise.{name}.{field}"]
                setattr(average, field, float(value) if field == "count" else value.copy())
    _load_buffer(getattr(model, "replay_buffer", None), parts)


def _refuse_others(model: BaseAlgorithm, parts: Arrays, where: str) -> None:
    """Before anything is changed: the same names and shapes of weights, and the same extras."""
    here = {k: v.shape for k, v in model_state(model).items() if not _grows(k)}
    there = {k: v.shape for k, v in parts.items() if not _grows(k)}
    for name in sorted(here.keys() | there.keys()):
        if here.get(name) != there.get(name):
            raise CheckpointError(
                f"{where} is of another model; nothing was loaded: {name} is {there.get(name, 'missing')} there, "
                f"{here.get(name, 'missing')} here"
            )
    for name in COUNTERS:
        if f"counter.{name}" in parts and not np.isfinite(parts[f"counter.{name}"]):
            raise CheckpointError(f"{where} counts {parts[f'counter.{name}']} as {name}; nothing was loaded")
    _refuse_odd_averages(model, parts, where)
    _refuse_odd_buffer(getattr(model, "replay_buffer", None), parts, where)


def _refuse_odd_averages(model: BaseAlgorithm, parts: Arrays, where: str) -> None:
    """Each of an optimiser's averages must belong to a weight of this model and have its shape, or be a number."""
    for name, state in model.get_parameters().items():
        if "param_groups" not in state:
            continue
        weights = [w for group in recursive_getattr(model, name).param_groups for w in group["params"]]
        shapes = {str(k): tuple(w.shape) for k, w in enumerate(weights)}
        for full in (f for f in parts if f.startswith(f"{name}.state.")):
            k, _, key = full.removeprefix(f"{name}.state.").partition(".")
            if not key or k not in shapes or parts[full].shape not in ((), shapes[k]):
                raise CheckpointError(f"{where} has {full} of shape {parts[full].shape}; nothing was loaded")


def _refuse_odd_buffer(buffer: Any, parts: Arrays, where: str) -> None:
    """All parts of the transitions must be equally many, of the shapes here, and fit into the buffer."""
    if buffer is None:
        return
    here = {f"buffer.{k}": getattr(buffer, k) for k in BUFFER if getattr(buffer, k, None) is not None}
    place = parts.get("buffer.place", np.zeros(0))
    n = len(parts["buffer.rewards"]) if "buffer.rewards" in parts else 0
    if n > buffer.buffer_size:
        raise CheckpointError(
            f"{where} has {n} transitions per environment; the buffer here takes {buffer.buffer_size}"
        )
    fits = all(name in parts and parts[name].shape == (n, *array.shape[1:]) for name, array in here.items())
    if not fits or place.shape != (2,) or not 0 <= place[0] <= n:
        raise CheckpointError(f"{where} has transitions of another kind than the buffer here; nothing was loaded")


def _grows(name: str) -> bool:
    """What a new model does not have yet: an optimiser's averages, the replay buffer's transitions."""
    return ".state." in name or name.startswith("buffer.")


def _averages(normaliser: Any) -> dict[str, Any]:
    obs = normaliser.obs_rms if normaliser.norm_obs else {}
    named = {f"obs.{k}": v for k, v in obs.items()} if isinstance(obs, dict) else {"obs": obs}
    return {**named, "ret": normaliser.ret_rms}


def _buffer_state(buffer: Any) -> Arrays:
    if buffer is None:
        return {}
    if type(buffer) is not ReplayBuffer:
        raise CheckpointError(
            f"a {type(buffer).__name__} cannot be saved yet: only a plain ReplayBuffer, for Box observations"
        )
    n = buffer.buffer_size if buffer.full else buffer.pos
    kept = {f"buffer.{k}": np.asarray(getattr(buffer, k)[:n]) for k in BUFFER if getattr(buffer, k, None) is not None}
    return {**kept, "buffer.place": np.array([buffer.pos, buffer.full], np.int64)}


def _load_buffer(buffer: Any, parts: Arrays) -> None:
    if buffer is None:
        return
    for k in BUFFER:
        if f"buffer.{k}" in parts:
            getattr(buffer, k)[: len(parts[f"buffer.{k}"])] = parts[f"buffer.{k}"]
    pos, full = parts["buffer.place"]
    buffer.pos, buffer.full = int(pos), bool(full)


def _numbers(x: Any) -> NDArray[Any]:
    return x.detach().cpu().numpy().copy() if isinstance(x, torch.Tensor) else np.asarray(x)
