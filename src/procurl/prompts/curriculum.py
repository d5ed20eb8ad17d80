"""A curriculum over prompts: which of them the student should be given next, and what it made of them.

A batch is dealt in four steps: candidates (all prompts, or some drawn uniformly where there are many), their pass rates
drawn from the posterior (so that what is in doubt is tried), their scores, and draws in proportion to exp(b s / max s).
Everything is a function of the seed, the records and the number of batches: identical processes agree on every batch.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from procurl.check import numbers
from procurl.errors import ConfigError
from procurl.prompts import given, sampling, state, summary
from procurl.prompts.features import F32, F64, Features
from procurl.prompts.given import Id
from procurl.prompts.pass_rates import HALF_LIVES, PassRates, Posterior

Strategy = Literal["procurl-target", "procurl-unif", "uniform"]


class Weighed(NamedTuple):
    """Candidates for a batch."""

    rows: NDArray[np.int64]
    log_weight: F64
    posterior: Posterior | None  # None: uniform, which needs none
    directions: F32 | None


class PromptCurriculum:
    """Deals batches of prompts and learns from their pass rates.

    Args:
        prompts: how many (ids are 0 .. n-1), or distinct ids, strings or whole numbers.
        embeddings: f32[n, d], one row for each prompt. Not copied: leave them as they are. None: prompts are strangers
            to one another, and procurl-target cannot be used.
        targets: ids of prompts, or embeddings f32[m, d] of a benchmark's prompts.
        strategy: "procurl-unif": neither too easy nor too hard; "procurl-target": the same, and similar to targets;
            "uniform": no curriculum, for comparison. None: procurl-target where there are embeddings and targets, and
            procurl-unif elsewhere.
        group: samples of a prompt, unless `record` says otherwise.
        seed: of all draws.
        window: a prompt is not dealt again in this many batches after its own.
        hold_out: never deal prompts that are targets (their ids may still be recorded, as an evaluation).
        b: the exponent of the best prompt; 0 is uniform, 10 and more narrow.
        pairing: "max": each prompt with its best target; "pair": the paper's softmax over all pairs.
        hope: how much a target that is never passed counts; one of pass rate 1/2 counts 0.25. 0: as in the paper.
        center: subtract the embeddings' mean first, for embeddings that all point much the same way.
        doubt: "sample": draw pass rates from the posterior; "mean": take its mean.
        half_life: calls of `record` after which a result counts half; None: fitted.
        candidates: with more prompts than this, a batch is drawn from this many of them, chosen uniformly; from four
                times its own size, if that is more.
        strict: raise IdleError where a curriculum does nothing, instead of warning.
    """

    def __init__(
        self,
        prompts: int | Sequence[Id],
        embeddings: Any = None,
        targets: Any = None,
        strategy: Strategy | None = None,
        group: int = 8,
        seed: int = 0,
        *,
        window: int = 0,
        hold_out: bool = False,
        b: float = 5.0,
        pairing: Literal["max", "pair"] = "max",
        hope: float = 0.05,
        center: bool = False,
        doubt: Literal["sample", "mean"] = "sample",
        half_life: float | None = None,
        candidates: int = 4096,
        strict: bool = False,
    ) -> None:
        if strategy is None:
            strategy = "procurl-unif" if embeddings is None or targets is None else "procurl-target"
        self.strategy = given.one_of("strategy", strategy, get_args(Strategy))
        self.group = numbers.whole("group", group, 1, 1_000_000)
        self.seed = numbers.whole("seed", seed, 0, 2**63 - 1)
        self.window = numbers.whole("window", window, 0)
        self.hold_out, self.center = numbers.flag("hold_out", hold_out), numbers.flag("center", center)
        self.strict = numbers.flag("strict", strict)
        self.b = numbers.real("b", b, 0, 100)
        self.pairing = given.one_of("pairing", pairing, ("max", "pair"))
        self.hope = numbers.real("hope", hope, 0, 1)
        self.doubt = given.one_of("doubt", doubt, ("sample", "mean"))
        self.half_life = None if half_life is None else numbers.real("half_life", half_life, 0.1, 1e9)
        self.candidates = numbers.whole("candidates", candidates, 1)
        self._ids = given.Ids(prompts)
        self._embeddings = None if embeddings is None else given.embeddings(embeddings, self.n, center=self.center)
        self._targets = given.targets(targets, self._ids, self._embeddings)
        self._check_targets()
        features = Features(self._embeddings)
        half_lives = HALF_LIVES if self.half_life is None else (self.half_life,)
        self._pass_rates = PassRates(self.n, features, half_lives)
        self._target_features = None
        if self._targets is not None:
            self._target_features = features(self._targets.directions, self._targets.n)
        self._batches = 0
        self._dealt_in: NDArray[np.int64] = np.full(self.n, -1, np.int64)  # the number of a prompt's latest batch
        self._is_held_out = np.zeros(self.n, bool)
        if self.hold_out and self._targets is not None and self._targets.rows is not None:
            self._is_held_out[self._targets.rows] = True
        self._n_free = self.n - int(self._is_held_out.sum())
        self._history = summary.History()
        self._idle = summary.IdleWatch(self.strict)

    @property
    def n(self) -> int:
        """The number of prompts."""
        return self._ids.n

    @property
    def is_exact(self) -> bool:
        """Whether every batch is drawn from all prompts."""
        return self.n <= self.candidates

    def batch(self, n: int) -> list[Id]:
        """Deal n distinct prompts, in the order in which they were drawn."""
        n = numbers.whole("n", n, 1)
        if n * (self.window + 1) > self._n_free:
            raise ConfigError(self._too_many(n))
        found = self._weighed(self._candidates(n))
        if len(found.rows) < n:
            raise ConfigError(self._too_many(n))
        chosen = sampling.draw(found.log_weight, n, self._stream(sampling.DRAW))
        rows = found.rows[chosen]
        believed = float("nan") if found.posterior is None else float(found.posterior.mean[chosen].mean())
        self._history.dealt(n, believed, self._mean_similarity(rows))
        self._dealt_in[rows] = self._batches
        self._batches += 1
        return self._ids.of(rows)

    def record(self, ids: Any, passes: Any = None, group: Any = None, *, rewards: Any = None) -> None:
        """Take in results: one call for one step of training.

        Args:
            ids: of prompts, dealt or not; one may occur several times.
            passes: for each, how many samples passed.
            group: of how many; one number, or one for each. The curriculum's own, if left out.
            rewards: in place of passes: mean rewards f[n], or single rewards f[n, group], from 0 to 1.
        """
        found = given.results(self._ids, ids, passes, group, rewards, self.group)
        rate = float(found.passes.sum() / found.trials.sum())
        self._pass_rates.observe(found.rows, self._features(found.rows), found.passes, found.trials)
        self._history.recorded(len(found.rows), rate, self._target_rate())
        self._idle.look(self)

    def pass_rates(self, ids: Any = None) -> F64:
        """What is believed of prompts (of all, if no ids are given): means of the posterior, f64[n]."""
        rows = np.arange(self.n) if ids is None else self._ids.rows(ids)
        found = np.empty(len(rows))
        for first in range(0, len(rows), 16_384):
            here = rows[first : first + 16_384]
            found[first : first + 16_384] = self._posterior(here).mean
        return found

    def target_pass_rates(self) -> F64:
        """The same for the targets, f64[m]."""
        if self._targets is None:
            raise ConfigError("there are no targets: give them when the curriculum is made")
        return self._target_posterior().mean

    def probabilities(self) -> F64:
        """With what probability each prompt is the first of the next batch, f64[n].

        Given the pass rates that are drawn for that batch. Zero for what is held out or within the window. Only where
        batches are drawn from all prompts (`is_exact`).
        """
        if not self.is_exact:
            raise ConfigError(
                f"with {self.n:,} prompts a batch is drawn from {self.candidates:,} candidates, and a prompt's "
                f"probability is not computed; candidates={self.n} would make it exact, and slower"
            )
        found = self._weighed(self._candidates(1))
        every = np.zeros(self.n)
        every[found.rows] = sampling.softmax(found.log_weight)
        return every

    def summary(self) -> dict[str, float]:
        """What is taught, in a few numbers; docs/prompts.md explains them."""
        return summary.numbers_of(self)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw what was dealt and what is believed; a matplotlib figure, written to `path` if one is given."""
        from procurl.prompts import picture

        return picture.plot(self, path)

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to continue: NumPy arrays and strings."""
        return state.of(self)

    def load_state_dict(self, d: dict[str, Any]) -> None:
        """Continue, bit for bit, where a curriculum of the same prompts and settings was."""
        state.restore(self, d)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the state to one file, whole or not at all."""
        return state.save(path, self.state_dict())

    def load(self, path: str | os.PathLike[str]) -> None:
        """Read what `save` wrote."""
        state.restore(self, state.read(path))

    # ------------------------------------------------------------ the steps of a batch

    def _candidates(self, n: int) -> NDArray[np.int64]:
        """Rows to draw n from: all that are free or, with many prompts, some of them."""
        wanted = max(self.candidates, 4 * n)
        if self.n > wanted:
            drawn = self._stream(sampling.CANDIDATES).choice(self.n, wanted, replace=False, shuffle=False)
            free = np.sort(drawn[self._is_free(drawn)])  # in order, for faster access to memory
            if len(free) >= max(n, wanted // 2):
                return free
        free = np.flatnonzero(self._is_free(slice(None)))
        if len(free) > wanted:
            free = np.sort(self._stream(sampling.CANDIDATES).choice(free, wanted, replace=False, shuffle=False))
        return free

    def _is_free(self, rows: NDArray[np.int64] | slice) -> NDArray[np.bool_]:
        latest = self._dealt_in[rows]
        recent = (latest >= 0) & (latest >= self._batches - self.window)
        return ~(recent | self._is_held_out[rows])

    def _weighed(self, rows: NDArray[np.int64], doubt: bool = True) -> Weighed:
        """Candidates and their weights; `doubt` False: with the posterior's means whatever the setting."""
        if self.strategy == "uniform":
            return Weighed(rows, np.zeros(len(rows)), None, None)
        directions = self._directions(rows)
        posterior = self._posterior(rows, directions)
        z = sampling.potential(self._rates(posterior, sampling.PROMPTS, doubt))
        if self.strategy == "procurl-unif":
            return Weighed(rows, sampling.log_weights(z, self.b), posterior, directions)
        assert self._targets is not None and self._targets.directions is not None and directions is not None
        pull = sampling.pull(self._rates(self._target_posterior(), sampling.TARGETS, doubt), self.hope)
        pair = directions, self._targets.directions, pull
        if self.pairing == "pair":
            log_weight = sampling.pair_log_weights(z, *pair, self.b)
        else:
            log_weight = sampling.log_weights(z * sampling.similarity(*pair), self.b)
        return Weighed(rows, log_weight, posterior, directions)

    def _rates(self, posterior: Posterior, purpose: int, doubt: bool) -> F64:
        return posterior.sample(self._stream(purpose)) if doubt and self.doubt == "sample" else posterior.mean

    def _stream(self, purpose: int) -> np.random.Generator:
        return sampling.stream(self.seed, self._batches, purpose)

    def _posterior(self, rows: NDArray[np.int64], directions: F32 | None = None) -> Posterior:
        return self._pass_rates.posterior(rows, self._features(rows, directions))

    def _target_posterior(self) -> Posterior:
        assert self._targets is not None and self._target_features is not None
        return self._pass_rates.posterior(self._targets.rows, self._target_features)

    def _features(self, rows: NDArray[np.int64], directions: F32 | None = None) -> F64:
        return self._pass_rates.features(self._directions(rows) if directions is None else directions, len(rows))

    def _directions(self, rows: NDArray[np.int64]) -> F32 | None:
        return None if self._embeddings is None else self._embeddings.directions(rows)

    def _mean_similarity(self, rows: NDArray[np.int64]) -> float:
        """The mean over rows of the similarity to the nearest target; NaN without targets or embeddings."""
        if self._targets is None or self._targets.directions is None:
            return float("nan")
        directions = self._directions(rows)
        assert directions is not None
        return float(sampling.similarity(directions, self._targets.directions).mean())

    def _target_rate(self) -> float:
        return float("nan") if self._targets is None else float(self._target_posterior().mean.mean())

    def _check_targets(self) -> None:
        if self.strategy == "procurl-target" and self._targets is None:
            raise ConfigError("procurl-target needs targets: ids of prompts or embeddings; or use procurl-unif")
        if self.strategy == "procurl-target" and self._embeddings is None:
            raise ConfigError(
                "procurl-target needs embeddings, f32[n, d]: without them no prompt is similar to a target. Give "
                "sentence embeddings of the prompts, or use procurl-unif"
            )
        if self.hold_out and (self._targets is None or self._targets.rows is None):
            raise ConfigError("hold_out=True needs targets that are ids of prompts; leave it out")
        if self.hold_out and self._targets is not None and self._targets.n == self.n:
            raise ConfigError("hold_out=True, but every prompt is a target: nothing is left to deal")

    def _too_many(self, n: int) -> str:
        free = f"{self._n_free:,} prompts" + (" that are not held out" if self.hold_out else "")
        if n > self._n_free:
            return f"batch({n}): there are only {free}; expected at most as many, since a batch has distinct prompts"
        return (
            f"batch({n}): with window={self.window}, the prompts of the latest {self.window} batches are not dealt, "
            f"and too few of {free} are left: ask for fewer, or give a smaller window"
        )
