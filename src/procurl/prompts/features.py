"""Embeddings: their directions, and the features of a prompt that the shared pass-rate model is linear in.

Only directions count, as the similarity of prompts is the cosine. A direction is centred and scaled, shortened by a
random projection if it is long, and joined by random Fourier features (Rahimi and Recht 2007), so that a linear model
can follow a smooth function of it. Without embeddings the only feature is a constant.
"""

from __future__ import annotations

import hashlib
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from procurl.prompts.products import product

F32: TypeAlias = NDArray[np.float32]
F64: TypeAlias = NDArray[np.float64]

MOST_LINEAR = 64  # dimensions of the linear part; longer embeddings are projected
FOURIER = 32  # random features
LENGTH_SCALE = 0.7  # of their kernel, where two prompts are sqrt(2) apart on average
SAMPLE = 4096  # prompts, evenly spaced, that mean and scale are taken from
CONSTANT_VARIANCE, LINEAR_VARIANCE, FOURIER_VARIANCE = 4.0, 4.0, 2.0  # of the weights a priori, in logits


class Embeddings:
    """Rows f32[n, d] as the user gave them, without a copy, and their lengths."""

    def __init__(self, rows: F32, lengths: F32, centre: F32 | None = None) -> None:
        self.rows, self.lengths, self.centre = rows, lengths, centre

    def directions(self, which: NDArray[np.int64] | slice) -> F32:
        """Unit vectors f32[k, d]."""
        rows = self.rows[which]
        if self.centre is not None:
            rows = rows - self.centre
        return rows / self.lengths[which, None]

    def fingerprint(self) -> str:
        """Tells these embeddings from others: a digest of all lengths and of some rows."""
        some = self.rows[np.unique(np.linspace(0, len(self.rows) - 1, min(len(self.rows), 64)).astype(np.int64))]
        return hashlib.sha256(self.lengths.tobytes() + some.tobytes() + str(self.rows.shape).encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.rows)


class Features:
    """What the shared model sees of a prompt: f64[k, size]."""

    def __init__(self, embeddings: Embeddings | None) -> None:
        self.size = 1
        self.prior_variance: F64 = np.full(1, CONSTANT_VARIANCE)
        self._is_constant = embeddings is None
        if embeddings is None:
            return
        n, d = embeddings.rows.shape
        sample = embeddings.directions(np.unique(np.linspace(0, n - 1, min(n, SAMPLE)).astype(np.int64)))
        self._mean = sample.mean(axis=0)
        spread = float(np.sqrt(np.mean(np.sum((sample - self._mean) ** 2, axis=1))))
        self._scale = np.float32(spread if spread > 1e-6 else 1.0)
        rng = np.random.default_rng(d)  # the same features for every seed and on every rank
        short = min(d, MOST_LINEAR)
        self._projection = None if d == short else (rng.normal(size=(d, short)) / np.sqrt(short)).astype(np.float32)
        self._frequencies = (rng.normal(size=(short, FOURIER)) / LENGTH_SCALE).astype(np.float32)
        self._phases = rng.uniform(0, 2 * np.pi, FOURIER).astype(np.float32)
        self.size = 1 + short + FOURIER
        self.prior_variance = np.concatenate(
            [[CONSTANT_VARIANCE], np.full(short, LINEAR_VARIANCE), np.full(FOURIER, FOURIER_VARIANCE)]
        )

    def __call__(self, directions: F32 | None, k: int) -> F64:
        """The features of k prompts with directions f32[k, d]."""
        found = np.ones((k, self.size))
        if self._is_constant or directions is None:
            return found
        x = (directions - self._mean) / self._scale
        if self._projection is not None:
            x = product(x, self._projection)
        found[:, 1 : 1 + x.shape[1]] = x
        found[:, 1 + x.shape[1] :] = np.cos(product(x, self._frequencies) + self._phases) * np.float32(
            np.sqrt(2 / FOURIER)
        )
        return found
