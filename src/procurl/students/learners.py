"""How each kind of student takes part in Algorithm 1: it begins, plays, learns, and answers its teacher.

`loop.py` knows a student by these four verbs alone, as it knows a teacher by three. A learner holds the
hyper-parameters; what changes is an explicit state, as with teachers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from procurl.config import PPO, SAC
from procurl.students import belief, ppo, replay, returns, rollout, sac, trainee
from procurl.students.belief import Belief, Believed
from procurl.students.critic import StudentCritic
from procurl.students.replay import Experience
from procurl.students.returns import Returns
from procurl.students.rollout import Envs, Rollout
from procurl.students.trainee import Trainee
from procurl.students.transitions import Transitions
from procurl.types import Env, Episodes, Step, Task, TaskSpace, Values


class Learner(Protocol):
    """A student's way to play and learn: pure functions of its state, whose `params` are the networks' weights."""

    def begin(self, key: Array, env: Env, space: TaskSpace) -> Any:
        """The state before anything is played."""
        ...

    def play(self, student: Any, env: Env, envs: Envs, tasks: Task, key: Array) -> tuple[Any, Envs, Any, Episodes]:
        """All environments advance; whenever an episode ends, the next of the tasks begins. The student looks on."""
        ...

    def learn(self, student: Any, played: Any, episodes: Episodes, key: Array, t: Array | int) -> tuple[Any, Any]:
        """The state after the update of iteration t, and its losses, a named tuple of numbers."""
        ...

    def critic(self, student: Any, env: Env) -> Values:
        """What the teacher may ask."""
        ...


def learner_of(config: PPO | SAC, space: TaskSpace) -> Learner:
    learns_range = space.value_range is None
    if isinstance(config, SAC):
        return SACLearner(config, learns_range)
    return DoubtedPPO(PPOLearner(config)) if learns_range else PPOLearner(config)


@dataclass(frozen=True)
class PPOLearner:
    """It learns from the steps just played, and its critic sees the context in the observation."""

    config: PPO

    def begin(self, key: Array, env: Env, space: TaskSpace) -> ppo.Student:
        return ppo.init_student(key, env, self.config)

    def play(
        self, student: ppo.Student, env: Env, envs: Envs, tasks: Task, key: Array
    ) -> tuple[ppo.Student, Envs, Rollout, Episodes]:
        return student, *rollout.play(env, student.params, envs, tasks, key, self.config)

    def learn(
        self, student: ppo.Student, played: Rollout, episodes: Episodes, key: Array, t: Array | int
    ) -> tuple[ppo.Student, ppo.Losses]:
        return ppo.update(student, played, key, self.config)

    def critic(self, student: ppo.Student, env: Env) -> Values:
        return StudentCritic(env, student.params)


class DoubtedStudent(NamedTuple):
    student: ppo.Student
    belief: Belief

    @property
    def params(self) -> Any:
        return self.student.params


@dataclass(frozen=True)
class DoubtedPPO:
    """PPO where nobody said what returns to expect: its critic is believed as far as it predicts them."""

    inner: PPOLearner

    def begin(self, key: Array, env: Env, space: TaskSpace) -> DoubtedStudent:
        return DoubtedStudent(self.inner.begin(key, env, space), belief.begin())

    def play(
        self, student: DoubtedStudent, env: Env, envs: Envs, tasks: Task, key: Array
    ) -> tuple[DoubtedStudent, Envs, Rollout, Episodes]:
        """What its critic said of tasks is compared with what comes of them, before an update changes what it says."""
        _, envs, played, episodes = self.inner.play(student.student, env, envs, tasks, key)
        compared = belief.compared(student.belief, played.value, played.slot, episodes)
        return student._replace(belief=compared), envs, played, episodes

    def learn(
        self, student: DoubtedStudent, played: Rollout, episodes: Episodes, key: Array, t: Array | int
    ) -> tuple[DoubtedStudent, ppo.Losses]:
        learnt, losses = self.inner.learn(student.student, played, episodes, key, t)
        return student._replace(student=learnt), losses

    def critic(self, student: DoubtedStudent, env: Env) -> Values:
        return Believed(self.inner.critic(student.student, env), student.belief)


class SACStudent(NamedTuple):
    trainee: Trainee
    returns: Returns  # where its teacher's values come from

    @property
    def params(self) -> dict[str, Any]:
        return self.trainee.student.networks._asdict()


@dataclass(frozen=True)
class SACLearner:
    """It learns from all steps in its buffer. Values of tasks come from returns, so it need not see the context."""

    config: SAC
    learns_range: bool  # of returns

    def begin(self, key: Array, env: Env, space: TaskSpace) -> SACStudent:
        k_networks, k_returns = jax.random.split(key)
        begun = trainee.begin(k_networks, env.obs_size, env.action.size, self.config)
        return SACStudent(begun, returns.begin(k_returns, space, self.config))

    def play(
        self, student: SACStudent, env: Env, envs: Envs, tasks: Task, key: Array
    ) -> tuple[SACStudent, Envs, Experience, Episodes]:
        """With uniform random actions in the first `start_steps`, and then with the policy's own."""
        k_act, k_env = jax.random.split(key)
        at_random = student.trainee.buffer.added < self.config.start_steps
        shape = (*rollout.horizon(envs, tasks), env.action.size)
        noise = jnp.where(at_random, jax.random.uniform(k_act, shape, minval=-1), jax.random.normal(k_act, shape))

        def act(obs: Array, noise: Array) -> Array:
            return jnp.where(at_random, noise, sac.sampled(student.params["actor"], obs, noise))

        envs, steps, episodes = rollout.advance(UnitActions(env), act, noise, envs, tasks, k_env)  # type: ignore[arg-type]  # reset and step
        after = steps.outcome
        seen = Transitions(steps.obs, steps.action, after.reward, after.obs, after.terminated.astype(jnp.float32))
        value = student.returns.model.value(episodes.task)[steps.slot]
        return student, envs, Experience(seen, value, steps.slot), returns.scored(episodes, student.returns)

    def learn(
        self, student: SACStudent, played: Experience, episodes: Episodes, key: Array, t: Array | int
    ) -> tuple[SACStudent, sac.Losses]:
        k_update, k_fit = jax.random.split(key)
        rows = replay.as_rows(played.steps).reshape(self.config.n_steps, -1)
        learnt, losses = trainee.practise(student.trainee, rows, k_update, self.config)
        known = returns.record(student.returns, episodes, self.learns_range)
        due = returns.is_due(t, self.config)
        known = jax.lax.cond(due, lambda: returns.fitted(known, k_fit, self.learns_range), lambda: known)
        return SACStudent(learnt, known), losses

    def critic(self, student: SACStudent, env: Env) -> Values:
        return student.returns.model


class UnitActions(NamedTuple):
    """An environment that takes actions in [-1, 1], as SAC gives and stores them."""

    env: Env

    def reset(self, task: Task) -> tuple[Any, Array]:
        return self.env.reset(task)

    def step(self, key: Array, state: Any, action: Array) -> tuple[Any, Step]:
        return self.env.step(key, state, sac.in_bounds(action, *self.env.action[1:]))
