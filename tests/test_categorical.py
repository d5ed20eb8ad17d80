"""Tasks that are names: `procurl.categorical_space`, and who refuses it."""

import dataclasses
import json
import warnings
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import SMALL, Walk, fast

import procurl
from procurl.check.findings import equal
from procurl.envs.categorical import SimilarityTable
from procurl.errors import ConfigError, SpaceError
from procurl.runs.provenance import describe_teacher
from procurl.targets import Point
from procurl.teachers import quantities

LABELS = ("5x5", "6x6", "8x8")
NEAR = [[1.0, 0.5, 0.1], [0.5, 1.0, 0.4], [0.1, 0.4, 1.0]]


def levels(**changed):
    return procurl.categorical_space(**{"labels": LABELS, "target": "8x8", "value_range": (0.0, 1.0), **changed})


def indices(tasks):
    return np.asarray(tasks.context)[:, 0]


def test_one_call_makes_a_sound_space():
    space = levels(pool_size=100, n_targets=7, n_held_out=9, similarity=NEAR, name="doors")
    assert procurl.check_space(space) == ()
    assert (space.dim, space.labels, space.name, space.units) == (1, LABELS, "doors", None)
    assert np.bincount(indices(space.pool).astype(int)).tolist() == [34, 34, 34], "rounded up: all equally often"
    assert len(set(np.asarray(space.pool.seed).tolist())) == 102, "each is an instance of its own"
    assert space.target == Point((2.0,)) and (indices(space.held_out) == 2).all() and len(indices(space.targets)) == 7
    assert jax.jit(space.project)(np.float32([[0.4], [1.6], [9.0]])).ravel().tolist() == [0.0, 2.0, 2.0]
    assert levels(fresh_seeds=False).fresh_seeds is False
    assert [type(label) for label in levels(labels=np.array(LABELS)).labels] == [str] * 3


def test_the_range_of_values_is_handed_on(monkeypatch):
    given = {}

    def spy(*args, **fields):
        given.update(fields)
        return procurl.task_space(*args, **{**fields, "value_range": (0.0, 1.0)})

    monkeypatch.setattr("procurl.envs.categorical.task_space", spy)
    procurl.categorical_space(LABELS, target="8x8")
    assert given["value_range"] is None, "learnt from what is played"


def test_every_kind_of_target():
    two = indices(levels(target=["6x6", "8x8"], n_held_out=2000).held_out)
    assert set(two) == {1.0, 2.0} and abs((two == 1).mean() - 0.5) < 0.05
    weighted = indices(levels(target={"5x5": 0, "6x6": 1, "8x8": 3}, n_held_out=2000).held_out)
    assert set(weighted) == {1.0, 2.0} and abs((weighted == 2).mean() - 0.75) < 0.05


def test_a_label_is_found_by_its_context():
    space = levels()
    contexts = [np.float32([0.0]), 1, jnp.float32(2.0), [0.5], [1.5]]
    assert [space.label(c) for c in contexts] == ["5x5", "6x6", "8x8", "5x5", "6x6"]
    snapped = jax.jit(space.project)(np.float32([[0.5], [1.5], [1.51]])).ravel()
    assert [space.label(x) for x in (0.5, 1.5, 1.51)] == [LABELS[int(x)] for x in snapped], "as contexts are snapped"


@pytest.mark.parametrize("bad", [3, -1, np.nan, [0.0, 1.0], []])
def test_a_context_without_a_label(bad):
    with pytest.raises(ConfigError, match="expected one number from 0 to 2, a label's index"):
        levels().label(bad)


def test_a_space_without_labels_has_none_to_give():
    with pytest.raises(ConfigError, match=r"no labels; make it with procurl\.categorical_space"):
        procurl.task_space([0.0], [1.0], target=[1.0], pool_size=4).label([0.0])


BAD = [
    ({"labels": "5x5"}, "labels = '5x5': expected a list of names"),
    ({"labels": 3}, "labels = 3: expected a list of names"),
    ({"labels": set(LABELS)}, "labels = {.*}: expected a list of names"),
    ({"labels": []}, r"labels = \[\]: expected a list of names"),
    ({"labels": [5, 6]}, r"labels = \[5, 6\]: expected a list of names.*numbers as str\(number\)"),
    ({"labels": ["a", "b", "a"], "target": "b"}, "'a' is there 2 times: expected different names"),
    ({"target": "7x7"}, "unknown label in target '7x7'. Valid: 5x5, 6x6, 8x8"),
    ({"target": ["8x8", 2]}, "unknown label in target '2'"),
    ({"target": []}, r"target = \[\]: expected a label, a list of labels, or a dictionary"),
    ({"target": 2}, "target = 2: expected a label, a list of labels, or a dictionary"),
    ({"target": {"8x8": 0}}, "with at least one weight above 0"),
    ({"target": {"8x8": -1}}, r"target\['8x8'\], a weight, = -1: expected"),
    ({"target": {"8x8": "much"}}, "a weight, = 'much': expected a number"),
    ({"similarity": np.eye(2)}, r"similarity = a matrix of shape \(2, 2\): expected 3 x 3 numbers"),
    ({"similarity": "near"}, "similarity = 'near': expected 3 x 3 numbers"),
    ({"similarity": lambda a, b: "close"}, "3 x 3 numbers.* or a function of two labels that returns a number"),
    ({"similarity": lambda a, b: np.inf if a + b == "5x58x8" else 0}, "of '5x5' to '8x8' is inf: expected a finite"),
    ({"pool_size": 0}, "pool_size = 0: expected"),
    ({"n_targets": 1.5}, "n_targets = 1.5: expected a whole number"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "message"), BAD, ids=[f"{k}" for k in range(len(BAD))])
def test_what_cannot_be_meant_is_refused(changed, message):
    with pytest.raises((SpaceError, ConfigError), match=message):
        levels(**changed)


def test_a_space_that_contradicts_itself_is_found():
    space = levels()
    for changed, message in (
        ({"labels": ("5x5", "6x6")}, r"2 labels with low = \[0\.\] and high = \[2\.\]: expected \[0\] and \[1\]"),
        ({"labels": ("5x5", "6x6", "6x6")}, "expected different names"),
        ({"similarity": lambda a, b: jnp.zeros(3)}, r"similarity of 5 tasks and 3 targets has shape \(3,\)"),
    ):
        with pytest.raises(SpaceError, match=message):
            procurl.check_space(dataclasses.replace(space, **changed))


# ---------------------------------------------------------------- similarities


def test_a_similarity_is_a_table_that_can_be_looked_up_by():
    def near(task, target):
        return NEAR[LABELS.index(task)][LABELS.index(target)]

    table, same = levels(similarity=NEAR).similarity, levels(similarity=near).similarity
    other = levels(similarity=np.eye(3)).similarity
    assert table == same and hash(table) == hash(same) and repr(table) == repr(same) and table != other
    assert SimilarityTable(np.float32([[0.0]])) == SimilarityTable(np.float32([[-0.0]]))
    assert hash(SimilarityTable(np.float32([[0.0]]))) == hash(SimilarityTable(np.float32([[-0.0]])))
    found = jax.jit(table)(np.float32([[2.0], [0.0]]), np.float32([[0.0], [1.0], [2.0]]))
    np.testing.assert_array_equal(found, np.float32([NEAR[2], NEAR[0]]))


def test_procurl_target_goes_by_the_space_s_similarity_unless_it_has_its_own():
    class Half:
        def value(self, tasks):
            return jnp.full(tasks.seed.shape, 0.5)

    def weights(**fields):
        teacher = procurl.ProCuRLTarget(levels(pool_size=3, similarity=NEAR), beta=16.0, **fields)
        key = jax.random.key(0)
        state = teacher.observe(teacher.init(key), key, None, Half())
        return np.asarray(teacher.log_weights(state))

    expected = np.float32([row[2] for row in NEAR])  # beta Z(c) Z(t) = 1 everywhere; the target is 8x8
    np.testing.assert_allclose(weights(pairing="max"), expected, rtol=1e-6)
    np.testing.assert_allclose(weights() - np.log(100), expected, rtol=1e-5)  # a hundred draws of one target
    own = weights(pairing="max", similarity=lambda c, t: jnp.ones((len(c), len(t))))
    np.testing.assert_allclose(own, 1.0, rtol=1e-6)


# ---------------------------------------------------------------- strategies

FIT = ("iid", "target", "procurl-unif", "plr", "robust-plr", "learning-progress", "sfl", "procurl-target")


@pytest.mark.parametrize("name", [n for n in fast("target") if getattr(n, "values", (n,))[0] in FIT])
def test_strategies_without_distances_keep_their_contract(name):
    teacher = procurl.make_teacher(name, levels(similarity=NEAR))
    assert procurl.check_teacher(teacher) == ()
    curriculum = procurl.Curriculum(teacher, every=50)
    tasks = [curriculum.next() for _ in range(30)]
    assert {teacher.space.label(t.context) for t in tasks} <= set(LABELS)


@pytest.mark.parametrize("name", ["procurl-path", "currot", "gradient", "spdl", "procurl-target"])
def test_strategies_that_need_distances_refuse_labels_and_say_which_do_not(name):
    known = procurl.TEACHERS[name].__name__
    fit = "iid, target, procurl-unif, plr, robust-plr, learning-progress, sfl; and procurl-target"
    message = rf"{known}: .*labels \(5x5, 6x6, 8x8\), which have none.*{fit}"
    with pytest.raises(ConfigError, match=message):
        procurl.make_teacher(name, levels())
    many = procurl.categorical_space([str(k) for k in range(9)], target="8", value_range=(0, 1), pool_size=9)
    with pytest.raises(ConfigError, match=r"\(0, 1, 2, \.\.\.\)"):
        procurl.make_teacher(name, many)


def test_a_name_of_one_s_own_is_no_setting_s():
    assert procurl.make_teacher("procurl-unif", levels(name="doors")).beta is None
    with pytest.raises(ConfigError, match="unknown setting 'doors'"):
        procurl.make_teacher("procurl-unif", levels(), setting="doors")


def test_without_distances_spdl_can_still_go_to_the_whole_pool():
    procurl.SPDL(levels(), target="uniform")


# ---------------------------------------------------------------- ids that pass for quantities


def numbered(name, pool, low=0.0, high=9.0):
    return procurl.task_space([low], [high], [name], target=[high], pool=np.reshape(pool, (-1, 1)))


@pytest.fixture
def told():
    quantities._warn_once.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught
    quantities._warn_once.cache_clear()


@pytest.mark.parametrize("name", ["level", "level_id", "Map", "mapIndex", "task no", "idx", "robot id", "levelID"])
@pytest.mark.parametrize("pool", [[0, 1, 2, 3], [2, 1, 3, 3, 1]])
def test_ids_that_are_used_as_a_distance_are_named_once(told, name, pool):
    space = numbered(name, pool)
    assert not told, "the space alone is fine"
    procurl.IID(space), procurl.ProCuRLUnif(space), procurl.PLR(space)
    procurl.ProCuRLTarget(space, similarity=lambda c, t: jnp.ones((len(c), len(t))))
    assert not told, "nobody has measured a distance"
    teacher = procurl.ProCuRLTarget(space)
    procurl.ProCuRLTarget(space), jax.tree.map(lambda x: x, teacher), dataclasses.replace(teacher, b=3.0)
    (warning,) = told
    first = min(pool)
    assert f"{name!r} looks like an id: {first} and {first + 2} count as farther apart than" in str(warning.message)
    assert "procurl.categorical_space" in str(warning.message) and warning.filename == __file__


@pytest.mark.parametrize("name", ["procurl-path", "currot", "gradient", "spdl"])
def test_every_strategy_with_distances_tells(told, name):
    procurl.make_teacher(name, numbered("level", [0, 1, 2]))
    assert [str(w.message).split()[0] for w in told] == [procurl.TEACHERS[name].__name__]


def test_an_id_beside_a_quantity_is_named(told):
    space = procurl.task_space([0, 1], [1, 5], ["wind", "level"], target=[1, 5], values={"level": range(1, 6)})
    procurl.GRADIENT(space)
    assert "'level' looks like an id: 1 and 3 count" in str(told[0].message) and len(told) == 1


@pytest.mark.parametrize(
    ("name", "pool"),
    [
        ("level", [0.0, 0.5, 1.0]),  # between two levels there is another: a quantity
        ("level", [0, 1]),  # there are no three to compare
        ("level", [0, 1, 3]),
        ("level", [3, 4, 5]),
        ("level", [0, 2, 4]),
        ("difficulty", [0, 1, 2]),
        ("noise level", [0, 1, 2]),
        ("number of rooms", [1, 2, 3]),
        ("rooms", [1, 2, 3]),
        ("refractive index", [1, 2, 3]),
        ("grid", [0, 1, 2]),
        ("width", [0, 1, 2]),
        ("c0", [0, 1, 2]),
        ("", [0, 1, 2]),
    ],
)
def test_quantities_raise_no_alarm(told, name, pool):
    space = dataclasses.replace(numbered("x", pool), names=(name,))
    procurl.ProCuRLTarget(space), procurl.ProCuRLPath(space)
    assert not told


# ---------------------------------------------------------------- values, runs, records


def test_a_regressor_learns_labels_apart_that_no_line_joins():
    labels = [str(k) for k in range(8)]
    space = procurl.categorical_space(labels, target="7", value_range=(0.0, 1.0), pool_size=8)
    value = procurl.ReturnRegressor(space, every=None, hidden=(16,), epochs=60)
    returns = np.float32([0, 1, 0, 1, 1, 0, 0, 1])
    for _ in range(20):
        for label, ret in enumerate(returns):
            value.record([label], float(ret))
    value.fit()
    np.testing.assert_allclose(value(space.pool), returns, atol=0.1)
    again = procurl.ReturnRegressor(space, every=None, hidden=(16,), epochs=60)
    again.load_state_dict(value.state_dict())
    assert equal(again(space.pool), value(space.pool))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class NamedWalks(Walk):
    """The context is a label's index: how far to walk is looked up, and the student sees it."""

    distances: ClassVar[tuple[float, ...]] = (2.0, 4.0, 8.0)

    def reset(self, task):
        distance = jnp.array(self.distances)[task.context[0].astype(jnp.int32)]
        return super().reset(task._replace(context=jnp.stack([distance, 0.0 * distance])))


@pytest.fixture(scope="module")
def result():
    space = levels(pool_size=6, n_targets=4, n_held_out=4, similarity=NEAR)
    assert procurl.check_env(NamedWalks(), space) == ()
    return procurl.train(NamedWalks(), procurl.ProCuRLTarget(space), SMALL, seeds=2, steps=1500)


@pytest.mark.slow
def test_a_jax_environment_trains_on_labels(result, tmp_path):
    assert np.isfinite(result.ret).all()
    chosen = result.trace["task_context"]
    assert set(chosen[np.isfinite(chosen)]) == {0.0, 1.0, 2.0}
    space = result.config["space"]
    assert space["labels"] == list(LABELS) and space["similarity"].startswith("SimilarityTable(3 labels, sha256 ")
    again = procurl.load_result(result.save(tmp_path / "run"))
    assert again.config == json.loads(json.dumps(result.config))


def test_only_spaces_with_labels_are_described_by_them():
    plain = describe_teacher(procurl.IID(procurl.task_space([0.0], [1.0], target=[1.0], pool_size=4)))
    assert "labels" not in plain["space"] and "similarity" not in plain["space"]
    assert "similarity" not in describe_teacher(procurl.IID(levels()))["space"]


def test_a_curriculum_of_another_similarity_is_refused(tmp_path):
    def made(table):
        return procurl.Curriculum(procurl.ProCuRLTarget(levels(pool_size=3, similarity=table)), every=20)

    path = made(NEAR).save(tmp_path / "c.safetensors")
    made(NEAR).load(path)
    with pytest.raises(procurl.errors.CheckpointError, match="similarity"):
        made(np.eye(3)).load(path)
