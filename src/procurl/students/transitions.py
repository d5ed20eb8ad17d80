"""A step of an environment as a row of numbers. The layout of a row is written here and nowhere else.

Nothing here needs JAX: worker processes write rows that a student on the device reads (`replay.py`).
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Transitions(NamedTuple):
    """Steps of environments, any leading axes; arrays of JAX or NumPy."""

    obs: Any  # f32[..., o]
    action: Any  # f32[..., a]  in [-1, 1]
    reward: Any  # f32[...]
    next_obs: Any  # f32[..., o]  at the end of an episode: its last, not the first of the next one
    terminated: Any  # f32[...]  1: nothing comes after. 0 when time ran out, since the task would have gone on


def row_width(obs_size: int, action_size: int) -> int:
    return 2 * obs_size + action_size + 2


def as_transitions(rows: Any, obs_size: int) -> Transitions:
    """The parts of rows, f32[..., 2 o + a + 2]. Of NumPy rows they are views, and can be written to."""
    o, a = obs_size, rows.shape[-1] - row_width(obs_size, 0)
    return Transitions(
        obs=rows[..., :o],
        action=rows[..., o : o + a],
        reward=rows[..., o + a],
        next_obs=rows[..., o + a + 1 : -1],
        terminated=rows[..., -1],
    )
