"""What prompts_grpo.py compares curricula over prompts with: fixed shares, and trying prompts out as SFL does."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np


class Curriculum(Protocol):
    def batch(self, n: int) -> list[Any]: ...
    def record(self, ids: Any, passes: Any) -> None: ...


class Fixed:
    """No curriculum: uniform among some prompts, and a fixed share of every batch among some others."""

    def __init__(self, rows: np.ndarray, seed: int, others: np.ndarray | None = None, share: float = 0.0) -> None:
        self.rows, self.rng = rows, np.random.default_rng(seed)
        self.others, self.share = rows if others is None else others, share

    def batch(self, n: int) -> list[int]:
        k = round(n * self.share)
        parts = [self.rng.choice(self.rows, n - k, replace=False), self.rng.choice(self.others, k, replace=False)]
        return np.concatenate(parts).tolist()

    def record(self, ids: Any, passes: Any) -> None:
        pass


class Learnability:
    """SFL (Rutherford et al. 2024) on prompts: try some out now and then, and train on those solved now and then.

    `try_out` gives the share of samples that passed, and its caller counts them as samples drawn.
    """

    EVERY, TRIED, SAMPLES, KEPT = 10, 200, 4, 128  # batches; prompts, samples of each, and the best of them

    def __init__(self, n: int, try_out: Any, seed: int) -> None:
        self.n, self.try_out, self.rng = n, try_out, np.random.default_rng(seed)
        self.batches, self.kept = 0, np.arange(0)

    def batch(self, n: int) -> list[int]:
        if self.batches % self.EVERY == 0:
            tried = self.rng.choice(self.n, min(self.TRIED, self.n), replace=False)
            p = self.try_out(tried, self.SAMPLES)
            best = np.argsort(-p * (1 - p), kind="stable")[: self.KEPT]
            self.kept = tried[best[(p * (1 - p))[best] > 0]]
        self.batches += 1
        rows = self.rng.permutation(self.kept)[:n]
        others = np.setdiff1d(np.arange(self.n), rows)  # in place of what is missing
        return np.concatenate([rows, self.rng.choice(others, n - len(rows), replace=False)]).tolist()

    def record(self, ids: Any, passes: Any) -> None:
        pass
