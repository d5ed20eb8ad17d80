"""Are the numbers of a context quantities, so that a distance between two tasks means something?

Strategies that measure distances ask here. A space of labels (`procurl.categorical_space`) is refused. Numbers that
look like the ids of levels are used as they are, and the user is told once what that means.
"""

from __future__ import annotations

import re
import warnings
from functools import cache

import jax
import numpy as np

from procurl.errors import ConfigError
from procurl.types import TaskSpace

# Things that people number; alone, or followed by a word of NUMBERS, they name an id. Those that are also common
# quantities (stage, difficulty, number of ...) are left out.
THINGS = {
    "category", "class", "env", "environment", "game", "kind", "label", "layout", "level", "map", "maze", "mission",
    "opponent", "room", "scene", "task", "theme", "type", "variant", "world",
}  # fmt: skip
NUMBERS = {"id", "idx", "index", "no", "nr", "number"}
SHOWN = 3  # labels in a message


def require_quantities(owner: str, space: TaskSpace) -> None:
    """Refuse tasks that are labels, and warn once of numbers that are probably ids.

    A dimension is taken for an id if both hold; either alone says little:

    * its name is an id's: its last word is "id", or the whole name is "index", a thing that people number ("level",
      "map"), or such a thing and a number word ("level index", "map_no"), unlike "noise level" or "number of rooms";
    * the pool's contexts have three or more values there, which are 0, 1, 2, ... or 1, 2, 3, ... without a gap.
    """
    if not isinstance(space, TaskSpace):
        return  # JAX also builds instances with placeholders
    if space.labels:
        some = ", ".join(space.labels[:SHOWN]) + ", ..." * (len(space.labels) > SHOWN)
        raise ConfigError(
            f"{owner}: it compares tasks by distance, and this space's tasks are labels ({some}), which have none. "
            f"Strategies that do without: iid, target, procurl-unif, plr, robust-plr, learning-progress, sfl; and "
            f"procurl-target with a similarity: "
            f"categorical_space(..., similarity=a matrix, or a function of two labels)"
        )
    context = space.pool.context
    if isinstance(context, jax.core.Tracer) or not isinstance(context, jax.Array | np.ndarray):
        return  # no values to look at
    for k, name in enumerate(space.names):
        if is_name_of_an_id(name) and (first := _counts_from(np.asarray(context)[..., k])) is not None:
            _warn_once(owner, name, first)


def is_name_of_an_id(name: str) -> bool:
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
    if words and words[-1] in ("id", "ids"):
        return True
    thing, number = words[:1], words[1:]
    return len(words) <= 2 and (
        (set(thing) <= THINGS and set(number) <= NUMBERS and bool(words)) or words in (["index"], ["idx"])
    )


def _counts_from(values: np.ndarray) -> int | None:
    """The first of three or more whole numbers without a gap, if that is 0 or 1."""
    found = np.unique(values)
    first = found[0] if len(found) else np.nan
    is_count = len(found) >= 3 and first in (0.0, 1.0) and np.array_equal(found, first + np.arange(len(found)))
    return int(first) if is_count else None


@cache  # JAX builds the same teacher many times
def _warn_once(owner: str, name: str, first: int) -> None:
    warnings.warn(
        f"{owner} compares tasks by distance, and {name!r} looks like an id: {first} and {first + 2} count as farther "
        f"apart than {first} and {first + 1}. If that is meant (levels in the order of their difficulty), give the "
        f"dimension a quantity's name, e.g. 'difficulty'; if not, use procurl.categorical_space",
        stacklevel=6,  # the line that made the teacher
    )
