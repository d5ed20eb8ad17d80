"""Simulated students for prompt curricula: prompts with embeddings, skills that grow with what is played.

A prompt belongs mostly to one of several topics (its embedding is the topic's direction and noise), and has a
difficulty: partly smooth in the embedding, partly its own, which no embedding shows. The student has a skill in every
topic; it passes a prompt with probability sigma(skill - difficulty). A played group of pass rate p teaches in
proportion to p (1 - p), as a policy gradient does on groups of samples, in the topics that the prompt has a part in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]


@dataclass
class Student:
    """Skills f64[topics] and the prompts, their embeddings f32[n, d], parts in topics f64[n, topics], difficulties."""

    embeddings: NDArray[np.float32]
    parts: F64
    difficulty: F64
    skill: F64
    rate: float  # how fast it learns

    def pass_rates(self) -> F64:
        return 1 / (1 + np.exp(-(self.parts @ self.skill - self.difficulty)))

    def play(self, rows: NDArray[np.int64], group: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Passes of a group of samples for each prompt; the student learns from them."""
        p = self.pass_rates()[rows]
        passes = rng.binomial(group, p)
        share = passes / group
        self.skill = self.skill + self.rate * (share * (1 - share)) @ self.parts[rows]
        return passes


def student(
    n: int, rng: np.random.Generator, topics: int = 8, d: int = 32, rate: float = 0.02, own: float = 1.0
) -> Student:
    """One with n prompts, most of them too hard at first; `own`: spread of what embeddings do not show, in logits."""
    directions = rng.normal(size=(topics, d)) / np.sqrt(d)
    topic = rng.integers(topics, size=n)
    parts = 0.2 * rng.dirichlet(np.ones(topics), size=n)
    parts[np.arange(n), topic] += 0.8
    hardness = rng.normal(size=d) / np.sqrt(d)  # the direction in which prompts get harder
    noise = rng.normal(size=(n, d)) / np.sqrt(d)
    difficulty = 2.0 + 1.5 * np.sqrt(d) * (noise @ hardness) + own * rng.normal(size=n)
    return Student((parts @ directions + 0.5 * noise).astype(np.float32), parts, difficulty, np.zeros(topics), rate)
