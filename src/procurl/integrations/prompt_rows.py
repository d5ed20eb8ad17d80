"""What adapters for language-model trainers share: rows of a dataset by prompts' ids, and rewards as pass rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from procurl.errors import ConfigError
from procurl.prompts import PromptCurriculum

Rates = NDArray[np.float64]


def require_curriculum(given: Any) -> PromptCurriculum:
    if isinstance(given, PromptCurriculum):
        return given
    raise ConfigError(
        f"curriculum is a {type(given).__name__}; expected a procurl.prompts.PromptCurriculum over the dataset's rows, "
        f"e.g. PromptCurriculum(len(dataset))"
    )


def rows_by_id(curriculum: PromptCurriculum, ids: Sequence[Any], source: str) -> dict[Any, int]:
    """Which row of the dataset has which id; curriculum and dataset must hold the same prompts.

    Args:
        ids: of the dataset's rows, in their order.
        source: where they come from, for the errors.
    """
    if len(ids) != curriculum.n:
        raise ConfigError(
            f"the dataset has {len(ids):,} rows and the curriculum {curriculum.n:,} prompts; expected one prompt for "
            f"each row. Make the curriculum after the dataset was filtered: PromptCurriculum(len(dataset))"
        )
    try:
        curriculum.pass_rates(ids)  # names the first id that it does not know
    except ConfigError as error:
        raise ConfigError(f"{source} and the curriculum's ids differ: {error}") from error
    rows = {one: row for row, one in enumerate(ids)}
    if len(rows) < len(ids):
        twice = next(one for row, one in enumerate(ids) if rows[one] != row)
        raise ConfigError(f"{source}: the id {twice!r} occurs twice; expected a different one in every row")
    return rows


def as_pass_rates(rewards: Any, group: int, source: str) -> Rates:
    """Single rewards f[n * group], groups lying together, as f64[n, group]; an error if they are not pass rates."""
    found = np.asarray(rewards, np.float64)
    if found.ndim != 1 or not len(found) or len(found) % group:
        raise ConfigError(f"{source}: {found.shape} rewards do not form groups of {group}. Nothing was recorded.")
    bad = ~((found >= 0) & (found <= 1))
    if bad.any():
        worst = float(found[bad][0])
        raise ConfigError(
            f"{source} gave {'no number (None or NaN)' if np.isnan(worst) else f'{worst:g}'} to {bad.sum()} of "
            f"{len(found)} completions; a curriculum needs a number from 0 (failed) to 1 (passed) for each. "
            f"Nothing was recorded."
        )
    return found.reshape(-1, group)
