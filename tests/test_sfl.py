"""SFL against a slow NumPy version; episodes on demand: what they tell, what they cost, and who cannot play them."""

from dataclasses import dataclass
from functools import cache
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from host_probe import PaysOnHost
from scipy.special import softmax
from test_path import begun, episodes
from test_teachers import small_space
from worlds import SMALL, Walk, assert_same, walk_space

import procurl
from procurl import loop
from procurl.config import SAC, Config
from procurl.errors import ConfigError
from procurl.programs import jit, pytree
from procurl.students import nets
from procurl.students.critic import Overheard, Player, StudentCritic
from procurl.teachers.ranged import ranged
from procurl.teachers.robust_plr import RobustPLR
from procurl.teachers.sfl import SFL
from procurl.types import Rollouts

KEY = jax.random.key(4)


class Tried(NamedTuple):
    """A student whose outcomes on the tasks of the pool are known."""

    ret: np.ndarray
    success: np.ndarray

    def play(self, key, tasks, k, when=True):
        ret, success = (jnp.where(when, x[tasks.row], 0.0) for x in self)
        return Rollouts(ret, success, jnp.where(when, k * len(ret), 0))


@jit
def after(teacher, state, key, played, critic):
    return teacher.observe(state, key, played, critic)


def sfl(**fields):
    return SFL(small_space(), **{"every": 3, "n_tried": 40, "n_kept": 8, **fields})


def nobody_succeeds():
    return episodes(np.ones((4, 2)), np.zeros(4, bool))


def slow_probabilities(tried, p, teacher):
    """Task by task."""
    n = teacher.space.n_pool
    learnability = {row: p[row] * (1 - p[row]) for row in tried}
    best = sorted(tried, key=lambda row: -learnability[row])[: teacher.n_kept]
    kept = [row for row in best if learnability[row] > 0]
    rho = teacher.rho if kept else 0.0
    return np.array([(1 - rho) / n + (rho / len(kept) if row in kept else 0.0) for row in range(n)])


def probabilities(state):
    return softmax(np.asarray(state.log_weights, np.float64))


def outcomes(seed=0, n=40):
    """Shares that all differ, some of them 0 and 1."""
    p = np.clip(np.random.default_rng(seed).permutation(np.linspace(-0.3, 1.31, n)), 0, 1)
    return p.astype(np.float32)


@pytest.mark.parametrize("by", ["success", "return"])
def test_the_most_learnable_of_the_tasks_tried_are_kept(by):
    teacher, p = sfl(rho=0.7), outcomes()
    zero = np.zeros_like(p)
    critic = Tried(zero, p) if by == "success" else Tried(p, zero)
    state = after(teacher, begun(teacher, KEY), KEY, nobody_succeeds(), critic)
    np.testing.assert_allclose(probabilities(state), slow_probabilities(range(40), p, teacher), rtol=1e-5)


def test_once_somebody_succeeds_success_is_what_counts():
    teacher, p = sfl(), outcomes()
    played = episodes(np.ones((4, 2)), np.ones(4, bool))
    state = after(teacher, begun(teacher, KEY), KEY, played, Tried(p, np.zeros_like(p)))
    np.testing.assert_allclose(probabilities(state), 1 / 40, rtol=1e-5)


def test_only_a_sample_is_tried_where_the_pool_is_larger():
    teacher, p = sfl(n_tried=10, n_kept=3), outcomes()
    kept = set()
    for t in range(30):
        state = after(teacher, begun(teacher, KEY), jax.random.fold_in(KEY, t), nobody_succeeds(), Tried(p * 0, p))
        chosen = np.flatnonzero(probabilities(state) > 1.5 / 40)
        assert len(chosen) == 3 or (p[chosen] * (1 - p[chosen]) > 0).all()
        kept |= set(chosen.tolist())
    assert kept > set(np.argsort(p * (1 - p))[-8:].tolist()), "tasks beyond the best eight, when those were not tried"
    assert not any(p[row] in (0, 1) for row in kept)


def test_nothing_is_tried_before_it_is_time_again():
    teacher, p = sfl(), outcomes()
    state, told = begun(teacher, KEY), []
    for t in range(7):
        before = probabilities(state)
        critic = Tried(p * 0, np.roll(p, t))
        state = after(teacher, state, jax.random.fold_in(KEY, t), nobody_succeeds(), critic)
        told.append(not np.array_equal(probabilities(state), before))
    assert told == [True, False, False, True, False, False, True]


def test_where_no_task_is_solved_now_and_then_all_are_alike():
    teacher = sfl()
    for p in (np.zeros(40, np.float32), np.ones(40, np.float32)):
        state = after(teacher, begun(teacher, KEY), KEY, nobody_succeeds(), Tried(p, p))
        np.testing.assert_allclose(probabilities(state), 1 / 40, rtol=1e-5)


def test_what_is_refused():
    for fields, message in (
        ({"rho": 1.5}, "rho = 1.5, expected a share between 0 and 1"),
        ({"n_kept": 50}, "n_kept = 50 of n_tried = 40 tasks, expected no more"),
        ({"n_episodes": 1}, "n_episodes = 1: expected at least 2 and at most 10000"),
        ({"every": 0}, "every = 0: expected at least 1"),
    ):
        with pytest.raises(ConfigError, match=message):
            sfl(**fields)


# --- episodes on demand -----------------------------------------------------------------------------------------------


def a_student():
    return nets.init_params(jax.random.key(0), Walk.obs_size, Walk.action, SMALL.ppo.shared, SMALL.ppo.separate)


@jit
def played(params, tasks, when):
    return Player(Walk(), params, False).play(KEY, tasks, 5, when)


def test_every_task_is_played_as_often_as_asked_and_every_step_counts():
    """A walk of 12 steps: a goal behind the start is reached at once, one too far away never."""
    pool = walk_space().pool
    distance = np.array([-1.0, 100.0], np.float32)
    tasks = jax.tree.map(lambda x: x[:2], pool)._replace(context=jnp.asarray(np.stack([distance, 0 * distance], 1)))
    rollouts = played(a_student(), tasks, True)
    np.testing.assert_array_equal(rollouts.success, [1, 0])
    np.testing.assert_array_equal(rollouts.ret, [1, 0])
    assert int(rollouts.steps) == 5 * 1 + 5 * 12
    nothing = played(a_student(), tasks, False)
    assert int(nothing.steps) == 0 and not np.asarray(nothing.ret).any() and not np.asarray(nothing.success).any()


def test_steps_that_could_not_be_counted_are_refused():
    tasks, params = walk_space().pool, a_student()

    def asks_inside(params):
        critic = Overheard(StudentCritic(Walk(), params), Player(Walk(), params, False))
        return jax.lax.cond(True, lambda: critic.play(KEY, tasks, 2).ret, lambda: jnp.zeros(len(tasks.seed)))

    with pytest.raises(ConfigError, match="critic.play inside lax.cond.*when="):
        jax.eval_shape(asks_inside, params)


@pytest.mark.parametrize("k", [0, -1, 2.5, None, True, 10**6])
def test_a_number_of_episodes_that_is_none_is_refused(k):
    critic = Overheard(StudentCritic(Walk(), None), Player(Walk(), None, False))
    with pytest.raises(ConfigError, match="critic.play: k = .*expected"):
        critic.play(KEY, walk_space().pool, k)


@pytree
@dataclass(frozen=True, eq=False)
class InSecret(SFL):
    """Does not say that it plays."""

    plays: ClassVar[bool] = False


@pytree
@dataclass(frozen=True, eq=False)
class NoReason(RobustPLR):
    """Does not say that not all of its tasks are to be learnt from."""

    withholds: ClassVar[bool] = False


@pytest.mark.parametrize(("cls", "what"), [(InSecret, "plays"), (NoReason, "withholds")])
@pytest.mark.parametrize("value_range", [(0.0, 1.0), None])
def test_a_teacher_that_plays_or_withholds_must_say_so(cls, what, value_range):
    """Or its steps would be free, and SAC would learn from all it plays. Also inside of another one."""
    world = Walk(), ranged(cls(walk_space(value_range=value_range)))
    with pytest.raises(ConfigError, match=f"must say so: {what}: ClassVar"):
        jax.eval_shape(lambda: loop.iteration(loop.begin(KEY, *world, SMALL), KEY, 0, *world, SMALL))


def walked(steps=2000, **options):
    teacher = SFL(walk_space(), every=2, n_tried=6, n_episodes=3, n_kept=2)
    return procurl.train(Walk(), teacher, SMALL, seeds=3, steps=steps, **options)


@cache
def whole():
    return walked()


def test_a_run_pays_for_the_episodes_that_its_teacher_asks_for():
    result = whole()
    asked, n_steps = result.trace["asked"], SMALL.ppo.n_steps
    assert (asked[:, ::2] > 0).all() and not asked[:, 1::2].any(), "every other iteration, from the first"
    assert (asked <= 6 * 3 * 12).all()
    own = n_steps * np.arange(1, asked.shape[1] + 1)
    np.testing.assert_array_equal(result.trace["steps"], own + np.cumsum(asked, axis=1))
    mean = np.rint(own + np.cumsum(asked, axis=1).mean(axis=0))
    assert set(result.steps[1:].tolist()) <= set(mean.tolist())
    assert result.steps[-1] >= 2000 > mean[-2], "it ends with the first iteration that uses the steps up"
    assert asked.shape[1] < -(-2000 // n_steps), "fewer iterations than without such a teacher"


def test_a_cut_run_goes_on_bitwise(tmp_path):
    for _ in range(6):
        cut = walked(out=tmp_path / "run", save_share=1.0, callback=lambda progress: False)
        if cut.status == "finished":
            break
    assert len(cut.timing["resumed_at_steps"]) >= 2
    assert_same(cut, whole())
    assert_same(procurl.load_result(tmp_path / "run"), whole())


def test_loops_that_cannot_play_for_a_teacher_refuse_it():
    teacher = sfl()
    with pytest.raises(ConfigError, match="episodes for the teacher alone.*procurl-unif or procurl-target"):
        procurl.Curriculum(teacher)
    with pytest.raises(ConfigError, match="episodes for the teacher alone"):
        procurl.train(PaysOnHost(), teacher, Config(sac=SAC()))
