"""The loop for environments in JAX: its functions, compiled once for all seeds (`seeds.py`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding

from procurl import loop
from procurl.check.teacher import imagined_episodes
from procurl.config import PPO, SAC, Config
from procurl.loop import Carry
from procurl.programs import kind
from procurl.runs.evaluation import Scores, evaluate
from procurl.runs.interrupt import CompiledInThread
from procurl.runs.seeds import PER_SEED, Own, Seeds, fastest, over_seeds
from procurl.runs.store.state import arranged, named
from procurl.runs.sweep.points import with_fields
from procurl.runs.trace import Trace, traced
from procurl.students import replay
from procurl.students.critic import Overheard, Player
from procurl.students.learners import SACStudent, learner_of
from procurl.types import Critic, Env, Task, TaskSpace, Teacher


class Engine:
    """begin -> iterate, iterate, ... with `evaluate` at any time."""

    def __init__(
        self,
        env: Env,
        teacher: Teacher,
        config: Config,
        seeds: tuple[int, ...],
        fields: dict[str, np.ndarray] | None = None,
    ) -> None:
        """`fields`: each seed's own values in place of the teacher's and the config's, f32[S] by dotted name."""
        self.seeds, self.capacity = Seeds(seeds), config.sac.capacity if config.sac else 0
        self.own = Own(self.seeds.keys, self.seeds.put(fields or {}))
        # Environment, teacher and pool travel as arguments: as constants they would be compiled in.
        self.world = self.seeds.share((env, teacher))
        shaping = replace(config, evaluate_every=1)  # how often students are evaluated does not shape a program
        self._programs = Programs(*map(CompiledInThread, _programs(shaping, self.seeds.mesh, kind(self.world))))
        self._prepare_iteration()

    def _prepare_iteration(self) -> None:
        """Compile the program that takes longest, while the first state is made and evaluated."""
        with suppress(Exception):  # whatever is wrong, `iterate` will raise it to its caller
            begun = self._programs.begin.eval_shape(self.own, None, 0, self.world)
            spread = NamedSharding(self.seeds.mesh, PER_SEED)
            carry = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=spread), begun)
            self._programs.iterate.prepare(self.own, carry, 0, self.world)

    def begin(self) -> Carry:
        return self._programs.begin(self.own, None, 0, self.world)

    def iterate(self, carry: Carry, t: int) -> tuple[Carry, Trace]:
        """Iteration t. The carry passed in gives up its memory: it must not be used again."""
        return self._programs.iterate(self.own, carry, t, self.world)

    def evaluate(self, carry: Carry, t: int) -> Scores:
        """The students after t iterations on the held-out tasks."""
        return self.seeds.to_host(self._programs.score(self.own, carry.student.params, t, self.world))

    def teacher_seconds(self, carry: Carry, repeats: int = 5) -> float:
        """How long one iteration's teacher calls take for all seeds, compiled alone: the fastest of a few runs."""
        return fastest(lambda: self._programs.only_teach(self.own, carry, 0, self.world), repeats)

    def params(self, carry: Carry) -> Any:
        """The students' weights, on the host."""
        return self.seeds.to_host(carry.student.params)

    def saved(self, carry: Carry) -> dict[str, np.ndarray]:
        """All that a checkpoint needs, as named arrays on the host; of a replay buffer, only the part in use."""
        return named(with_buffer(self.seeds.to_host(carry), replay.trimmed))

    def restored(self, tensors: dict[str, np.ndarray], where: str) -> Carry:
        """The inverse of `saved`. If the tensors do not fit, the error names `where` they come from."""
        begun = self._programs.begin.eval_shape(self.own, None, 0, self.world)
        whole = self.seeds.shapes(begun)
        added = tensors.get("student.trainee.buffer.added", 0)
        found = arranged(tensors, with_buffer(whole, lambda buffer: replay.trimmed_shape(buffer, added)), where)
        carry = self.seeds.put(with_buffer(found, lambda buffer: replay.widened(buffer, self.capacity)))
        # Compile it before the first iteration, as in a new run: until there is something to save, a signal need not
        # wait for the compiler.
        self._programs.score.compile(self.own, carry.student.params, 0, self.world)
        return carry

    def close(self) -> None:
        """Nothing to release."""


class Programs(NamedTuple):
    """Compiled functions (own tree, per-seed tree, t, (env, teacher)) -> per-seed tree."""

    begin: Any  # (...) -> Carry
    iterate: Any  # (...) -> (Carry, Trace)
    score: Any  # (...) -> Scores
    only_teach: Any


@lru_cache(maxsize=8)
def _programs(shared_config: Config, mesh: Mesh, kind: Any) -> Programs:
    """One set of compiled functions per config, devices and kind of world: a second such run compiles nothing.

    Few are kept: a CPU program takes hundreds of memory mappings, and a process may only have so many.
    """

    def begin(own: Own, _: None, t: Array, world: Any) -> Carry:
        env, teacher, config = own_world(own, world, shared_config)
        return loop.begin(own.key, env, teacher, config)

    def iterate(own: Own, carry: Carry, t: Array, world: Any) -> tuple[Carry, Trace]:
        env, teacher, config = own_world(own, world, shared_config)
        after, happened = loop.iteration(carry, own.key, t, env, teacher, config)
        by_number = getattr(env, "by_number", False)
        weights = after.student.params
        return after, traced(teacher.space, *happened, weights=weights, teacher=after.teacher, by_number=by_number)

    def score(own: Own, params: Any, t: Array, world: Any) -> Scores:
        env, teacher = world
        k_eval = loop.evaluation_key(own.key, t)
        space: TaskSpace = teacher.space
        return evaluate(
            env, params, space.held_out, k_eval, shared_config.evaluation_episodes,
            fresh_seeds=space.fresh_seeds, fixed_tests=space.fixed_tests,
        )  # fmt: skip

    def only_teach(own: Own, carry: Carry, t: Array, world: Any) -> Any:
        env, teacher, config = own_world(own, world, shared_config)
        critic = learner_of(config.student, teacher.space).critic(carry.student, env)
        critic = Overheard(critic, Player(env, carry.student.params, teacher.space.fresh_seeds))
        return teach_once(teacher, carry.teacher, critic, own.key, config.student)

    is_small = shared_config.sac is None  # without a replay buffer
    return Programs(
        over_seeds(begin, mesh),
        over_seeds(iterate, mesh, donate=True, blocks=is_small),
        over_seeds(score, mesh, blocks=True),
        over_seeds(only_teach, mesh, blocks=is_small),
    )


def with_buffer(carry: Carry, change: Callable[[replay.Replay], Any]) -> Carry:
    """The same carry with another replay buffer, if the student has one."""
    student = carry.student
    if not isinstance(student, SACStudent):
        return carry
    trainee = student.trainee._replace(buffer=change(student.trainee.buffer))
    return carry._replace(student=student._replace(trainee=trainee))


def own_world(own: Own, world: Any, config: Config) -> tuple[Env, Teacher, Config]:
    """What all seeds share, with this seed's own fields."""
    env, teacher = world
    return env, *with_fields(own.fields, teacher, config)


def teach_once(teacher: Teacher, state: Any, critic: Critic, key: Array, config: PPO | SAC) -> tuple[Task, Any]:
    """The teacher's part of an iteration, on imagined episodes: what is timed as its share."""
    tasks = teacher.propose(state, key, config.n_steps)
    return tasks, teacher.observe(state, key, imagined_episodes(key, tasks, config.n_envs), critic)
