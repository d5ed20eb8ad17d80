"""Tasks of a few kinds, without distances between them: MiniG's families, and labels of `procurl.categorical_space`.

What was taught is then a matter of shares: how often each kind was chosen. Needs no matplotlib.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from procurl.bench.report.style import FAMILY_COLOURS

# Paul Tol's bright palette; with more labels than colours these come again.
LABEL_COLOURS = ("#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#BBBBBB")


class Kinds(NamedTuple):
    names: list[str]
    colours: list[str]
    number: Callable[[np.ndarray], np.ndarray]  # contexts f[..., d] -> which kind, i[...]

    def shares(self, contexts: np.ndarray, when: np.ndarray, n: int) -> np.ndarray:
        """f64[n, kinds]: the share of each kind among the contexts, f[m, d], of each of n moments; NaN without any."""
        table = np.zeros((n, len(self.names)))
        np.add.at(table, (when, self.number(contexts)), 1)
        total = table.sum(axis=1, keepdims=True)
        return np.divide(table, total, out=np.full_like(table, np.nan), where=total > 0)

    def are_targets(self, held_out: np.ndarray) -> list[bool]:
        """Which kinds are among the held-out contexts, f[n, d]."""
        return np.isin(np.arange(len(self.names)), self.number(held_out)).tolist()


def kinds_of(setting: str | None, space: dict[str, Any] | None) -> Kinds | None:
    """By a run's configuration; None where contexts are quantities."""
    if setting == "minigrid":  # eight bits, six of 256 combinations
        return Kinds([*FAMILY_COLOURS], [*FAMILY_COLOURS.values()], _family)
    names = (space or {}).get("labels")
    if not names:
        return None

    def number(contexts: np.ndarray) -> np.ndarray:
        return np.clip(np.round(contexts[..., 0]), 0, len(names) - 1).astype(int)  # whatever a stranger's file holds

    return Kinds(list(names), [LABEL_COLOURS[k % len(LABEL_COLOURS)] for k in range(len(names))], number)


def _family(contexts: np.ndarray) -> np.ndarray:
    """In the order of the colours."""
    from procurl.envs.minigrid.families import FAMILIES, nearest_family

    order = [[*FAMILY_COLOURS].index(family.name) for family in FAMILIES]
    return np.array(order)[nearest_family(contexts)]  # type: ignore[arg-type]  # as NumPy
