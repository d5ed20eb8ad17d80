"""Is there a curriculum at all, and where does it go? Numbers, their history, and a warning where it does nothing."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from procurl.errors import IdleError
from procurl.prompts import sampling
from procurl.prompts.features import F64
from procurl.prompts.pass_rates import STRENGTHS

if TYPE_CHECKING:
    from procurl.prompts.curriculum import PromptCurriculum

logger = logging.getLogger("procurl")

SOLVED, HOPELESS = 0.9, 0.1  # pass rates that are believed
SAMPLE = 4096  # prompts, evenly spaced, over which means are taken where there are more
PATIENCE = 20  # records between two looks at whether there is a curriculum
EVEN = 0.95  # effective share from which a draw is as good as uniform
RECENT = 20  # batches and records that "recent" means


class History:
    """A row for every batch and one for every record."""

    def __init__(self) -> None:
        self.batches: list[tuple[float, ...]] = []  # size, believed pass rate, similarity to the nearest target
        self.records: list[tuple[float, ...]] = []  # size, observed pass rate, believed pass rate of the targets

    def dealt(self, size: int, believed: float, similarity: float) -> None:
        self.batches.append((float(size), believed, similarity))

    def recorded(self, size: int, rate: float, targets: float) -> None:
        self.records.append((float(size), rate, targets))


def numbers_of(c: PromptCurriculum) -> dict[str, float]:
    """The numbers of `PromptCurriculum.summary`."""
    rows = _some(c)
    rates = c._posterior(rows).mean
    half_life, strength = c._pass_rates.believed
    batches, records = np.array(c._history.batches[-RECENT:]), np.array(c._history.records[-RECENT:])
    return {
        "prompts": float(c.n),
        "batches": float(c._batches),
        "records": float(c._pass_rates.time),
        "effective_share": share(c),
        "never_played": float(np.mean(c._pass_rates.seen_at < 0)),
        "mean_pass_rate": float(rates.mean()),
        "solved": float(np.mean(rates > SOLVED)),
        "hopeless": float(np.mean(rates < HOPELESS)),
        "target_pass_rate": c._target_rate(),
        "recent_pass_rate": _mean(records, 1),
        "recent_similarity": _mean(batches, 2),
        "pool_similarity": c._mean_similarity(rows),
        "half_life": c._pass_rates.half_lives[half_life],
        "prior_strength": STRENGTHS[strength],
    }


def share(c: PromptCurriculum) -> float:
    """The effective share of the prompts that are not held out, by the means of the posterior; 1 is uniform."""
    rows = _some(c)
    return sampling.effective_share(sampling.softmax(c._weighed(rows[~c._is_held_out[rows]], doubt=False).log_weight))


def _some(c: PromptCurriculum) -> np.ndarray:
    return np.unique(np.linspace(0, c.n - 1, min(c.n, max(SAMPLE, c.candidates if c.is_exact else 0))).astype(np.int64))


def _mean(rows: F64, column: int) -> float:
    """The mean, weighted by size; NaN if there are no rows."""
    return float(np.average(rows[:, column], weights=rows[:, 0])) if len(rows) else float("nan")


class IdleWatch:
    """Warns once, or raises (`strict`), if the draw is as good as uniform although another strategy was asked for."""

    def __init__(self, strict: bool) -> None:
        self.strict, self.has_warned = strict, False

    def look(self, c: PromptCurriculum) -> None:
        if c.strategy == "uniform" or c._pass_rates.time % PATIENCE or (self.has_warned and not self.strict):
            return
        found = share(c)
        if found < EVEN:
            return
        text = (
            f"after {c._pass_rates.time} records, {c.strategy} deals prompts as uniform draws would (effective share "
            f"{found:.2f}). There is no curriculum: {reason(c)}"
        )
        if self.strict:
            raise IdleError(f"{text} The results were recorded.")
        self.has_warned = True
        logger.warning("%s", text)


def reason(c: PromptCurriculum) -> str:
    """Why a draw is as good as uniform, and what to do."""
    if c.b == 0:
        return "b = 0 is uniform. Leave it out."
    observed = _mean(np.array(c._history.records[-RECENT:]), 1)
    if observed <= 0.01:
        return "hardly a sample passes. Put easier prompts into the pool, or give partial rewards."
    if observed >= 0.99:
        return "nearly every sample passes, and there is nothing left to teach. Put harder prompts into the pool."
    if c.strategy == "procurl-target" and c._mean_similarity(_some(c)) < 0.01:
        return "no prompt is similar to any target. Are both embeddings of one and the same encoder?"
    never = float(np.mean(c._pass_rates.seen_at < 0))
    if never > 0.5 and c._embeddings is None:
        return (
            f"{never:.0%} of the prompts were never played, and without embeddings nothing is known of them. Give "
            f"embeddings, or fewer prompts."
        )
    return "all prompts are believed to be about equally hard, so that none stands out. Look at pass_rates()."
