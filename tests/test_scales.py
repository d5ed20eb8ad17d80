"""Free of scales: contexts in other units and returns in other sizes change no choice, with nothing set by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import fast

import procurl
from procurl.check.teacher import CRITICS, imagined_episodes
from procurl.errors import ConfigError, SpaceError
from procurl.programs import jit
from procurl.teachers.ranged import Range, Ranged, ranged, widened
from procurl.types import Rollouts, Task

UPDATES = 6


def space_of(unit=(1.0, 1.0), shift=(0.0, 0.0), **changed):
    """The same tasks in other units: a context of (2, 10) is (2, 10) x unit + shift."""
    unit, shift = np.array(unit, np.float32), np.array(shift, np.float32)

    def there(context):
        return (np.array(context, np.float32) * unit + shift).tolist()

    pool = np.random.default_rng(0).uniform([0.0, 8.0], [4.0, 12.0], (40, 2)).astype(np.float32)
    arguments = {"pool": there(pool), "n_targets": 6, "n_held_out": 2, "fresh_seeds": False}
    return procurl.task_space(there([0.0, 8.0]), there([4.0, 12.0]), target=there([3.5, 8.5]), **arguments, **changed)


@jit
def taught(teacher, back, scale, shift, keys):
    """Contexts that a teacher proposes over some updates, in units of the first space.

    Values and returns depend on the task alone: the smaller both of its numbers, the better; x `scale` + `shift`.
    """

    class Critic:
        def value(self, tasks):
            x = back(tasks.context)
            return shift + scale * jax.nn.sigmoid(3.0 - x[:, 0] - 0.5 * (x[:, 1] - 8.0))

        def play(self, key, tasks, k, when=True):
            ret = jnp.where(when, self.value(tasks), 0.0)
            return Rollouts(ret, jnp.zeros_like(ret), jnp.int32(k))

    def update(state, key):
        k_pick, k_watch = jax.random.split(key)
        tasks = teacher.propose(state, k_pick, 64)
        episodes = imagined_episodes(key, tasks)
        ret = Critic().value(episodes.task)
        episodes = episodes._replace(
            ret=ret, finished=jnp.ones_like(episodes.finished), success=jnp.zeros_like(episodes.success),
            abs_gae=episodes.abs_gae * scale, gae=episodes.gae * scale,
        )  # fmt: skip
        return teacher.observe(state, k_watch, episodes, Critic()), back(tasks.context)

    return jax.lax.scan(update, teacher.init(keys[0]), keys)[1]


class Back:
    """A hashable tree of numbers, so that one program serves all units."""

    def __init__(self, unit, shift):
        self.unit, self.shift = unit, shift

    def __call__(self, context):
        return (context - self.shift) / self.unit


jax.tree_util.register_pytree_node(Back, lambda b: ((b.unit, b.shift), None), lambda _, children: Back(*children))


def choices(name, unit=(1.0, 1.0), origin=(0.0, 0.0), scale=1.0, shift=0.0, **changed):
    teacher = ranged(procurl.make_teacher(name, space_of(unit, origin), **changed))
    back = Back(np.array(unit, np.float32), np.array(origin, np.float32))
    keys = jax.random.split(jax.random.key(1), UPDATES)
    return np.asarray(taught(teacher, back, np.float32(scale), np.float32(shift), keys))


SMALL = {
    "currot": {"n_particles": 60, "n_candidates": 8, "update_after": 30},
    "gradient": {"n_particles": 40},
    "alp-gmm": {"fit_every": 60, "max_gaussians": 3, "em_rounds": 10},
    "vds": {"updates": 8, "learning_rate": 0.01, "hidden": (16,)},
    "sfl": {"every": 2, "n_tried": 20, "n_kept": 5, "rho": 1.0},
}


@pytest.mark.parametrize("name", fast("procurl-path", "procurl-target", "learning-progress", "plr"))
def test_units_of_contexts_and_returns_change_no_choice(name):
    plain = choices(name, **SMALL.get(name, {}))
    exact = choices(name, unit=(4.0, 0.25), scale=1024.0, **SMALL.get(name, {}))
    np.testing.assert_array_equal(exact, plain, err_msg="powers of two")
    other = choices(name, unit=(100.0, 0.3), origin=(7.0, -2.0), scale=1000.0, shift=-1600.0, **SMALL.get(name, {}))
    same = np.isclose(other, plain, atol=1e-2).all(axis=-1).mean()
    assert same >= 0.9, f"{same:.0%} of the choices are the same"
    if name not in ("iid", "target"):  # and there was something to choose
        first, last = (plain[k].reshape(-1, 2).mean(axis=0) for k in (0, -1))
        assert np.abs(first - last).max() > 0.05


def test_lengths_in_place_of_the_box():
    box, raw, own = (space_of(units=units) for units in ("box", "raw", [2.0, 1.0]))
    assert (box.units, raw.units, own.units) == ((4.0, 4.0), None, (2.0, 1.0))
    context = jnp.array([[4.0, 8.0], [0.0, 12.0]])
    np.testing.assert_allclose(box.scaled(context), [[1.0, 0.0], [0.0, 1.0]])
    np.testing.assert_allclose(own.unscaled(own.scaled(context)), context)
    np.testing.assert_array_equal(raw.scaled(context), context)


@pytest.mark.parametrize("units", ["boxes", [1.0], [1.0, 0.0], [1.0, float("nan")], 3.0, None])
def test_units_that_are_none(units):
    with pytest.raises((SpaceError, ConfigError), match="units"):
        space_of(units=units)


def episodes_of(returns):
    n = len(returns)
    episodes = imagined_episodes(
        jax.random.key(0), Task(jnp.zeros((n, 2)), jnp.zeros(n, jnp.int32), jnp.full(n, -1, jnp.int32))
    )
    ended = jnp.arange(len(episodes.ret)) >= len(episodes.ret) - n
    ret = jnp.zeros(len(episodes.ret)).at[-n:].set(jnp.array(returns, jnp.float32))
    return episodes._replace(ret=ret, finished=ended)


def nothing():
    return Ranged(procurl.IID(space_of())).init(jax.random.key(0)).range


def ends_after(*batches):
    seen, learn = nothing(), jax.jit(widened)
    for batch in batches:
        seen = learn(seen, episodes_of(batch))
    return tuple(float(x) for x in Range(*map(jnp.asarray, seen)).ends)


def test_the_range_is_that_of_the_returns_and_never_shrinks():
    assert ends_after([-3.0, -1.0, -2.0], [-2.0] * 5) == (-3.0, -1.0)
    assert ends_after([-3.0, -1.0, -2.0], [-2.0, 0.5, -2.0]) == (-3.0, 0.5)


def test_one_absurd_return_does_not_spoil_the_range():
    ordinary = np.linspace(-1.0, 1.0, 60).tolist()
    low, high = ends_after(ordinary, [*ordinary, 1e9])
    assert low == -1.0 and 1.0 < high < 10.0


@pytest.mark.parametrize(("returns", "ends"), [([0.0] * 4, (0.0, 1.0)), ([-200.0] * 4, (-200.0, 0.0))])
def test_while_all_returns_are_alike_they_count_as_the_worst(returns, ends):
    assert ends_after(returns) == ends


def test_the_first_success_counts_at_once():
    assert ends_after([0.0] * 60, [0.0] * 59 + [1.0]) == (0.0, 1.0)


def test_returns_that_are_not_finite_are_left_out():
    assert ends_after([1.0, float("nan"), 2.0, float("inf"), -float("inf"), 1.5]) == (1.0, 2.0)


def test_without_a_range_a_teachers_own_method_says_where_it_is_learnt():
    teacher = procurl.ProCuRLUnif(space_of())
    with pytest.raises(ConfigError, match=r"value_range = None: it is learnt in procurl\.train and procurl"):
        teacher.observe(teacher.init(jax.random.key(0)), jax.random.key(0), episodes_of([1.0]), CRITICS["mixed"])


def test_a_given_range_is_not_learnt():
    teacher = procurl.ProCuRLUnif(space_of(value_range=(0.0, 1.0)))
    assert ranged(teacher) is teacher


@pytest.mark.parametrize("name", ["currot", "spdl", "gradient"])
def test_a_threshold_may_be_given_in_units_of_return_or_as_a_share(name):
    space = space_of(value_range=(-100.0, 100.0))
    field = "threshold" if name == "gradient" else "v_lb"
    share = procurl.make_teacher(name, space, **{f"{field}_share": 0.75})
    given = procurl.make_teacher(name, space, **{field: 50.0})
    from procurl.teachers.base import level

    assert level(space, getattr(share, field), getattr(share, f"{field}_share")) == 50.0
    assert level(space, getattr(given, field), getattr(given, f"{field}_share")) == 50.0


def test_what_stands_around_a_strategy_is_ranged_with_it():
    teacher = ranged(procurl.make_teacher("currot", space_of(), on_pool=True, **SMALL["currot"]))
    state = jax.jit(teacher.init)(jax.random.key(0))
    tasks = jax.jit(lambda s, k: teacher.propose(s, k, 8))(state, jax.random.key(1))
    assert (np.asarray(tasks.row) >= 0).all()
    assert dataclasses.is_dataclass(teacher) and teacher.space.value_range is None
