"""Robust PLR: its chances against a sequential version, and a student that learns from replayed tasks alone."""

import dataclasses

import gymnasium
import jax
import numpy as np
import pytest
from stable_baselines3.common.vec_env import DummyVecEnv
from test_plr import Classroom, N, PLRTwin, begin, observe, probabilities, propose
from test_ppo import random_batch
from test_teachers import small_space
from worlds import SMALL, Walk, walk_space

import procurl
from procurl import adam
from procurl.config import SAC, Config
from procurl.errors import ConfigError
from procurl.integrations.gymnasium import TaskEnv
from procurl.integrations.sb3 import CurriculumCallback
from procurl.programs import jit
from procurl.runs.engine import Engine
from procurl.runs.store.state import named
from procurl.students import nets, ppo
from procurl.teachers.robust_plr import RobustPLR
from procurl.types import Continuous

KEY = jax.random.key(4)


def robust(**fields):
    return RobustPLR(small_space(n_pool=N), **fields)


class Twin(PLRTwin):
    """New tasks at a fixed rate."""

    def __init__(self, *args, replay, **fields):
        super().__init__(*args, **fields)
        self.replay = replay

    def probabilities(self):
        p = super().probabilities()
        unseen = [i not in self.seen for i in range(self.n)]
        rate = 1.0 if not self.seen else 1 - self.replay if any(unseen) else 0.0
        for group, share in ((unseen, rate), (np.logical_not(unseen), 1 - rate)):
            if any(group):
                p[group] *= share / p[group].sum()
        return p


def test_equals_the_sequential_version():
    teacher = robust(replay=0.8, rho=0.3, beta=0.7)
    twin = Twin(N, replay=0.8, rho=0.3, beta=0.7)
    classroom = Classroom(n_envs=4, horizon=10, longest=10, rng=np.random.default_rng(0))
    state, kinds = begin(teacher), set()
    for t in range(40):
        np.testing.assert_allclose(probabilities(state), twin.probabilities(), rtol=1e-4, atol=1e-8)
        kinds.add((len(twin.seen) > 0) + (len(twin.seen) == N))
        queue = np.asarray(propose(teacher, state, jax.random.key(t)))
        played, record, before = classroom.play(queue)
        state = observe(teacher, state, played)
        twin.watch(record, before, lambda e: np.maximum(e.advantages[: e.age], 0).mean())
    assert kinds == {0, 1, 2}, "nothing seen, some, all"


def test_new_tasks_are_marked_as_not_to_be_learnt_from():
    teacher = robust()
    state = begin(teacher)
    proposed = jit(lambda teacher, state: teacher.propose(state, KEY, 400))
    assert not np.asarray(proposed(teacher, state).learn).any(), "all are new"
    seen = np.arange(N) % 3 == 0
    state = state._replace(seen=seen)
    tasks = proposed(teacher, state._replace(log_weights=np.zeros(N, np.float32)))
    np.testing.assert_array_equal(tasks.learn, seen[np.asarray(tasks.row)])
    assert 0 < np.asarray(tasks.learn).sum() < 400


# --- the student ------------------------------------------------------------------------------------------------------

CONFIG = dataclasses.replace(SMALL.ppo, lr=1e-2, entropy=0.01)


def a_student():
    params = nets.init_params(jax.random.key(0), 5, Continuous(2, -1.0, 1.0), CONFIG.shared, CONFIG.separate)
    optimiser = adam.init(params)._replace(mean=params)  # with momentum, as in the middle of a training
    return ppo.Student(params, optimiser)


step = jit(lambda student, batch: ppo.gradient_step(student, batch, CONFIG))


def test_ppo_learns_what_it_would_without_them():
    """The gradient step on a batch of which some is to be learnt from is that on this part alone."""
    batch, learn = random_batch(64, 5, 2, seed=1), np.arange(64) % 4 != 0
    whole = batch._replace(learn=learn)
    spoilt = batch._replace(  # what is not learnt from may hold anything
        learn=learn, advantage=np.where(learn, batch.advantage, 1e6), ret=np.where(learn, batch.ret, -1e6)
    )
    part = ppo.Batch(*(x[learn] for x in batch[:5]))
    (expected, losses), marked, ignored = (step(a_student(), b) for b in (part, whole, spoilt))
    for got, its in (marked, ignored):
        for a, b in zip(jax.tree.leaves((got, its)), jax.tree.leaves((expected, losses)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_where_nothing_is_to_be_learnt_the_student_stays_as_it_is():
    student = a_student()
    after, losses = step(student, random_batch(64, 5, 2, seed=1)._replace(learn=np.zeros(64, bool)))
    for a, b in zip(jax.tree.leaves(student), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(a, b)
    assert all(float(x) == 0 for x in losses)


def test_the_first_iteration_is_played_and_not_learnt_from():
    """All tasks are new then. Later ones are replayed, and the student learns."""
    engine = Engine(Walk(), RobustPLR(walk_space()), SMALL, [0])
    weights, carry = [], engine.begin()
    for t in range(3):
        weights.append(named(engine.seeds.to_host(carry.student.params)))
        carry, trace = engine.iterate(carry, t)
        assert int(engine.seeds.to_host(trace).started[0]) > 10
    new, played, replayed = weights
    assert all(np.array_equal(new[name], played[name]) for name in new)
    assert not all(np.array_equal(played[name], replayed[name]) for name in new)


def test_learners_that_learn_from_all_they_play_refuse_it():
    teacher = RobustPLR(walk_space())
    with pytest.raises(ConfigError, match="must not learn from.*but SAC learns from all it plays"):
        procurl.train(Walk(), teacher, Config(sac=SAC()))
    carts = DummyVecEnv([lambda: TaskEnv(gymnasium.make("CartPole-v1"), teacher.space, lambda env, context: None)])
    with pytest.raises(ConfigError, match="but Stable-Baselines3 learns from all it plays"):
        CurriculumCallback(procurl.Curriculum(teacher), carts)
    assert procurl.Curriculum(teacher).next().learn is False, "a loop of one's own is told"


def test_what_is_refused():
    with pytest.raises(ConfigError, match="replay = 1.2, expected a probability"):
        robust(replay=1.2)
    with pytest.raises(ConfigError, match="rho = 2.0, expected a share"):
        robust(rho=2.0)
    with pytest.raises(ConfigError, match="score = 'gae', expected 'abs_gae', 'signed_gae', 'positive_gae'"):
        robust(score="gae")
