"""PLR, prioritized level replay (Jiang et al. 2021), over the pool: play what is new, then again what surprised.

A task that was never played is new; one that was played has a score (how large the advantages of its last
episode were: how wrong the critic was about it) and a staleness (how many episodes ago it was last started).
The score ranks the tasks, and the staleness makes sure that no score grows too old to be trusted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import jax.numpy as jnp
from jax import Array

from procurl.check.fields import param
from procurl.errors import ConfigError
from procurl.programs import pytree
from procurl.teachers.base import PoolTeacher
from procurl.types import Critic, Episodes

SCORES: dict[str, Callable[[Episodes], Array]] = {
    "abs_gae": lambda episodes: episodes.abs_gae,
    "signed_gae": lambda episodes: episodes.gae,
    "positive_gae": lambda episodes: (episodes.abs_gae + episodes.gae) / 2,  # max(x, 0) = (|x| + x) / 2
}


class PLRState(NamedTuple):
    log_weights: Array  # f32[n]  log P(c), computed from the fields below at the end of every iteration
    seen: Array  # bool[n]  was ever started
    stamps: Array  # i32[n]  the number of the episode that last started the task, counted from 1
    counter: Array  # i32  episodes started so far
    scores: Array  # f32[n]
    scored: Array  # bool[n]
    partial_score: Array  # f32[n]  of the task's latest episode that is still running
    partial_length: Array  # i32[n]  its steps so far; 0: none is running


@pytree
@dataclass(frozen=True, eq=False)
class PLR(PoolTeacher):
    """New tasks while there are any; seen ones by the rank of their score and by their staleness.

    With probability 1 - |seen|/n a new task, all equally likely; otherwise, over the seen tasks,

        P(c)       = (1 - rho) P_score(c) + rho P_stale(c)
        P_score(c) proportional to  rank(c)^(-1/beta),   rank 1 for the highest score
        P_stale(c) proportional to  e + 1 - stamp(c),    e: episodes so far, stamp(c): the last one of c

    A task's score is the mean advantage over the steps of its latest episode. Ranks, staleness and the seen set
    stand still within an iteration; `observe` then applies the episodes in the order in which they started.
    """

    reads_advantages: ClassVar[bool] = True  # a host loop that cannot provide them refuses this teacher
    may_be_uniform: ClassVar[bool] = True  # while there are new tasks

    rho: float = param(0.5, "share of replays that go by staleness, 0 to 1; the others go by score", at_least=0)
    beta: float = param(0.1, "temperature of the ranks; small: the best only, large: all seen tasks alike")
    score: Literal["abs_gae", "signed_gae", "positive_gae"] = param(
        "abs_gae",
        "mean advantage of an episode: 'abs_gae' absolute (PLR), 'signed_gae' as it is (release), 'positive_gae' its "
        "positive part (Robust PLR)",
        static=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.rho, int | float) and not self.rho <= 1:
            raise ConfigError(f"PLR: rho = {self.rho}, expected a share between 0 and 1")
        if isinstance(self.beta, int | float) and not self.beta > 0:
            raise ConfigError(f"PLR: beta = {self.beta}, expected a positive number")
        if self.score not in list(SCORES):  # not `in SCORES`: that raises for what cannot be hashed
            raise ConfigError(f"PLR: score = {self.score!r}, expected {', '.join(map(repr, SCORES))}")

    def init(self, key: Array) -> PLRState:
        zero, none, never = (jnp.zeros(self.space.n_pool, dtype) for dtype in (jnp.float32, jnp.int32, bool))
        return PLRState(zero, never, none, jnp.int32(0), zero, never, zero, none)

    def observe(self, state: PLRState, key: Array, episodes: Episodes, critic: Critic) -> PLRState:
        state = self._score(self._stamp(state, episodes), episodes)
        return state._replace(log_weights=jnp.log(self._probabilities(state)))

    def _probabilities(self, state: PLRState) -> Array:
        """P(c), f32[n]. A new task has (1 - |seen|/n) / |unseen| = 1/n, so that one table serves both cases."""
        n, seen = self.space.n_pool, state.seen
        return jnp.where(seen, jnp.sum(seen) / n * self._replays(state), 1.0 / n)

    def _replays(self, state: PLRState) -> Array:
        """P(c) of a replay, f32[n]."""
        seen = state.seen
        by_score = jnp.where(seen, jnp.exp(-jnp.log(_ranks(state)) / self.beta), 0.0)  # rank 1 has weight 1
        by_staleness = jnp.where(seen, state.counter + 1 - state.stamps, 0).astype(jnp.float32)
        p_score, p_stale = (w / jnp.maximum(jnp.sum(w), 1.0) for w in (by_score, by_staleness))  # 0: nothing seen
        return (1.0 - self.rho) * p_score + self.rho * p_stale

    def _stamp(self, state: PLRState, episodes: Episodes) -> PLRState:
        """Number the episodes that started; a task that started twice keeps the later number."""
        started = episodes.started & self._played(episodes)
        number = state.counter + jnp.cumsum(started, dtype=jnp.int32)  # i32[episodes]
        row = jnp.where(started, episodes.task.row, self.space.n_pool)  # outside: dropped
        return state._replace(
            seen=state.seen.at[row].set(True, mode="drop"),
            stamps=state.stamps.at[row].max(number, mode="drop"),
            counter=state.counter + jnp.sum(started, dtype=jnp.int32),
        )

    def _score(self, state: PLRState, episodes: Episodes) -> PLRState:
        """The mean advantage of the whole episode so far, for every task that was played.

        An episode that began in an earlier iteration is merged with what was kept of it then, weighted by steps.
        The length tells whether what was kept is indeed this episode's: several episodes of one task may run at
        once, and only the latest is kept. A score that is not finite counts as not played.
        """
        advantage = SCORES[self.score](episodes)
        row = jnp.where(self._played(episodes), episodes.task.row, 0)
        earlier = episodes.length - episodes.steps  # i32[episodes]  steps before this iteration
        weight = earlier / jnp.maximum(episodes.length, 1)
        merged = weight * state.partial_score[row] + (1.0 - weight) * advantage
        continued = (earlier > 0) & (state.partial_length[row] == earlier)
        score = jnp.where(continued, merged, advantage)

        valid = self._played(episodes) & jnp.isfinite(score)
        played, last = self._latest(episodes, valid)
        running, last_running = self._latest(episodes, valid & ~episodes.finished)
        return state._replace(
            scores=jnp.where(played, score[last], state.scores),
            scored=state.scored | played,
            partial_score=jnp.where(played, jnp.where(running, score[last_running], 0.0), state.partial_score),
            partial_length=jnp.where(
                played, jnp.where(running, episodes.length[last_running], 0), state.partial_length
            ),
        )

    def _played(self, episodes: Episodes) -> Array:
        """Episodes of pool tasks that advanced in this iteration, bool[episodes]."""
        return (episodes.steps > 0) & self.space.in_pool(episodes.task.row)

    def _latest(self, episodes: Episodes, among: Array) -> tuple[Array, Array]:
        """For each task of the pool: whether it has an episode `among` these, and where the one is that began last.

        Episodes that were already running are in the order of their environments: of those, fewer earlier steps
        mean a later start. All others are in the order in which they started.
        """
        n = self.space.n_pool
        earlier = episodes.length - episodes.steps
        row = jnp.where(among, episodes.task.row, n)
        fewest = jnp.full(n, jnp.iinfo(jnp.int32).max).at[row].min(earlier, mode="drop")
        newest = among & (earlier == fewest.at[row].get(mode="fill", fill_value=-1))
        row = jnp.where(newest, row, n)
        place = jnp.full(n, -1).at[row].max(jnp.arange(row.shape[0]), mode="drop")
        return place >= 0, jnp.maximum(place, 0)


def _ranks(state: PLRState) -> Array:
    """1 for the seen task with the highest score, and so on, f32[n]; then the seen but not scored, last the unseen."""
    unscored = jnp.where(state.seen, jnp.finfo(jnp.float32).max, jnp.inf)
    order = jnp.argsort(jnp.where(state.seen & state.scored, -state.scores, unscored))
    n = order.shape[0]
    return jnp.zeros(n).at[order].set(jnp.arange(1.0, n + 1), unique_indices=True)
