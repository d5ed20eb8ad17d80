"""From pass rates to a batch: the scores of ProCuRL-Unif and ProCuRL-Target, and draws without replacement.

    learning potential   Z(c) = p(c) (1 - p(c))
    ProCuRL-Unif         s(c) = Z(c)
    ProCuRL-Target       s(c) = max_t  Z(c) H(t) K(c, t),     K(c, t) = max(cos(c, t), 0)
    weight               exp(b s(c) / max s)

H(t) is the paper's Z(t), but no less than hope (1 - p(t)): a target that nobody can do yet still says where to go. With
the paper's Z(t) alone, all scores are zero while no target is ever passed, and the draw is uniform.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from procurl.prompts.features import F32, F64
from procurl.prompts.products import product

CHUNK, TARGETS_AT_ONCE = 4096, 200  # prompts and targets in one product
# Separate streams of random numbers, so that one does not depend on how much another was used.
CANDIDATES, PROMPTS, TARGETS, DRAW = range(4)


def stream(seed: int, batch: int, purpose: int) -> np.random.Generator:
    """The random numbers of one batch for one purpose: nothing but the number of the batch need be remembered."""
    return np.random.default_rng([seed, batch, purpose])


def potential(p: F64) -> F64:
    """Z: zero for a prompt that is hopeless or solved, largest half-way."""
    return p * (1 - p)


def pull(p: F64, hope: float) -> F64:
    """H: how much a target of pass rate p counts."""
    return np.maximum(potential(p), hope * (1 - p))


def similarity(directions: F32, targets: F32, weights: F64 | None = None) -> F64:
    """max_t H(t) K(c, t) for prompts f32[k, d] and targets f32[m, d]: f64[k]; all H are 1 where none are given."""
    weighted = targets if weights is None else targets * weights[:, None].astype(np.float32)
    found = np.zeros(len(directions), np.float32)
    for first in range(0, len(weighted), TARGETS_AT_ONCE):
        some = np.ascontiguousarray(weighted[first : first + TARGETS_AT_ONCE].T)
        for start in range(0, len(directions), CHUNK):
            here = slice(start, start + CHUNK)
            np.maximum(found[here], product(directions[here], some).max(axis=1), out=found[here])
    return np.minimum(found.astype(np.float64), 1.0)


def log_weights(score: F64, b: float) -> F64:
    """b s / max s; uniform if every score is zero."""
    best = float(score.max())
    return score * (b / best) if best > 0 else np.zeros_like(score)


def pair_log_weights(z: F64, directions: F32, targets: F32, weights: F64, b: float) -> F64:
    """The paper's softmax over pairs: log mean_t exp(b s(c, t) / max s)."""
    best = float((z * similarity(directions, targets, weights)).max())
    if best <= 0:
        return np.zeros_like(z)
    found = np.empty_like(z)
    scaled = np.ascontiguousarray((targets * (weights * (b / best))[:, None]).T, np.float32)
    for first in range(0, len(z), CHUNK):
        here = slice(first, first + CHUNK)
        exponent = np.maximum(product(directions[here], scaled), 0) * z[here, None].astype(np.float32)
        best_pair = exponent.max(axis=1, keepdims=True)  # left out of exp, which overflows beyond 88
        found[here] = best_pair[:, 0] + np.log(np.mean(np.exp(exponent - best_pair), axis=1, dtype=np.float64))
    return found


def draw(log_weight: F64, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """n distinct indices, as n successive draws without replacement would give (the Gumbel-top-k trick)."""
    keys = log_weight + rng.gumbel(size=len(log_weight))
    best = np.argpartition(-keys, n - 1)[:n] if n < len(keys) else np.arange(len(keys))
    return best[np.argsort(-keys[best], kind="stable")]


def softmax(log_weight: F64) -> F64:
    weight = np.exp(log_weight - log_weight.max())
    return weight / weight.sum()


def effective_share(probability: F64) -> float:
    """exp(entropy) / n: 1 for uniform, 0.1 if it is as narrow as uniform over a tenth of the prompts."""
    p = probability[probability > 0]
    return float(np.exp(-np.sum(p * np.log(p))) / len(probability))
