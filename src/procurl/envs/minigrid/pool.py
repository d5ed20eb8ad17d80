"""The training pool: the first states of the public package for seeds 0 .. 999, kept in `pool.npz` beside this file.

`tools/minigrid_pool.py` makes that file with the package, and the file says when and with which version. The states
are part of the package's random streams, so our own generators cannot reproduce them; 1000 states of 20 numbers can
simply be kept.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from procurl.envs.minigrid.families import BLOCKED, CROSSING, DYNAMIC, FOUR_ROOMS, PICKUP, UNLOCK

SHARES = ((CROSSING, 250), (DYNAMIC, 250), (FOUR_ROOMS, 250), (UNLOCK, 84), (PICKUP, 83), (BLOCKED, 83))
FAMILY_OF_SEED = np.repeat([family for family, _ in SHARES], [n for _, n in SHARES]).astype(np.int32)  # i32[1000]
FILE = Path(__file__).with_name("pool.npz")


@cache
def first_states() -> dict[str, np.ndarray]:
    """The fields of `grid.State` for the 1000 tasks, row = seed."""
    with np.load(FILE, allow_pickle=False) as data:
        return {name: data[name].astype(np.int32) for name in data.files if name != "provenance"}


def provenance() -> dict[str, Any]:
    """Where `pool.npz` comes from."""
    with np.load(FILE, allow_pickle=False) as data:
        row: dict[str, Any] = json.loads(str(data["provenance"]))
    return row
