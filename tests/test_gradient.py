"""GRADIENT: the geodesic against SciPy, and the rules by which stages end."""

import dataclasses
import functools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from test_teachers import small_space

import procurl
from procurl.errors import ConfigError
from procurl.programs import jit
from procurl.targets import Mixture
from procurl.teachers.gradient import GRADIENT
from procurl.teachers.transport import assign, squared_distances
from procurl.types import Episodes

TWO_MODES = Mixture(((0.5, 0.2), (2.5, 2.5)), ((0.5, 0.8), (2.5, 2.5)), ((0.1, 0.0), (0.05, 0.2)))


def space():
    return dataclasses.replace(small_space(), target=TWO_MODES)


# Compiled once for all tests with as many stages: the teacher is an argument.
begin = jit(lambda teacher, key: teacher.init(key))
propose = jit(lambda teacher, state, key, n: teacher.propose(state, key, n), static_argnums=3)
observe = jit(lambda teacher, state, episodes: teacher.observe(state, None, episodes, None))
particles = jit(lambda teacher, state: teacher.particles(state))


def of_60(**fields):
    return GRADIENT(space(), n_particles=60, **fields)


@functools.cache
def first_state(seed=0):
    """Of `of_60` with any fields: the samples and their assignment know nothing of stages."""
    return begin(of_60(), jax.random.key(seed))


def at_stage(state, stage):
    return state._replace(stage=np.int32(stage))


def wasserstein_2(a, b):
    cost = cdist(np.asarray(a, np.float64), np.asarray(b, np.float64), "sqeuclidean")
    return np.sqrt(cost[linear_sum_assignment(cost)].mean())


def as_multiset(x):
    return sorted(map(tuple, np.asarray(x).tolist()))


def played(task, ret, steps=10, finished=True):
    """A record in which the first len(ret) tasks were played and the others were not."""
    n, k = task.seed.shape[0], len(ret)

    def column(x, dtype):
        out = np.zeros(n, dtype)
        out[:k] = x
        return out

    zero, steps, done = np.zeros(n, np.float32), column(steps, np.int32), column(finished, bool)
    return Episodes(task, column(ret, np.float32), steps, steps, done, zero, zero, steps > 0, done)


@functools.cache
def first_state_and_samples():
    """All in one program: by themselves, samples may differ in the last bit."""

    def samples(key):
        k_source, k_target = jax.random.split(key)
        source = jax.random.uniform(k_source, (60, 2), minval=jnp.zeros(2), maxval=jnp.full(2, 3.0))
        return of_60().init(key), source, space().sample_target(k_target, 60).context

    return jax.jit(samples)(jax.random.key(0))


class TestGeodesic:
    """The list of the specification, section 8.7."""

    @pytest.mark.parametrize("n_stages", [1, 10, 41])  # 41 * (1 / 41) is not 1 in float32
    def test_end_points_are_exact(self, n_stages):
        state, source, target = first_state_and_samples()
        teacher = of_60(n_stages=n_stages)
        np.testing.assert_array_equal(particles(teacher, state), source)
        assert as_multiset(particles(teacher, at_stage(state, n_stages))) == as_multiset(target)

    def test_distance_from_the_source_grows_in_proportion(self):
        teacher, state = of_60(n_stages=5), first_state(1)
        whole = wasserstein_2(state.source, state.target)
        for stage in range(6):
            x = particles(teacher, at_stage(state, stage))
            assert wasserstein_2(x, state.source) == pytest.approx(stage / 5 * whole, rel=1e-4, abs=1e-6)
            assert wasserstein_2(x, state.target) == pytest.approx((1 - stage / 5) * whole, rel=1e-4, abs=1e-6)

    def test_relative_steps_from_the_last_stage_lead_to_the_same_places(self):
        """The paper's schedule 1 / (n_stages - i), each step with an assignment of its own."""
        teacher, state = of_60(n_stages=4), first_state(2)
        x, target = np.asarray(state.source, np.float64), np.asarray(state.target, np.float64)
        for stage in range(1, 5):
            alpha = 1 / (4 - (stage - 1))
            sigma = linear_sum_assignment(cdist(x, target, "sqeuclidean"))[1]
            x = (1 - alpha) * x + alpha * target[sigma]
            np.testing.assert_allclose(particles(teacher, at_stage(state, stage)), x, atol=1e-5)


def test_proposals_are_particles_of_the_stage():
    teacher, state = of_60(n_stages=4), at_stage(first_state(), 2)
    tasks = propose(teacher, state, jax.random.key(1), 12_000)
    places = cdist(np.asarray(tasks.context), np.asarray(particles(teacher, state)))
    assert places.min(axis=1).max() < 1e-6
    assert np.bincount(places.argmin(axis=1), minlength=60).min() > 120, "all alike: 200 each, give or take 14"
    assert (np.asarray(tasks.row) == -1).all()
    assert len(np.unique(tasks.seed)) > 11_990 and np.asarray(tasks.seed).min() >= 0


def test_proposals_are_snapped_into_a_discrete_space():
    teacher = GRADIENT(dataclasses.replace(space(), snap=jnp.round), n_particles=60)
    state = begin(teacher, jax.random.key(0))
    for stage in (0, 3, 10):
        context = np.asarray(propose(teacher, at_stage(state, stage), jax.random.key(1), 100).context)
        assert np.array_equal(context, np.round(context))


@jit
def of_stages(teacher, state, tasks):
    """For each of the eleven stages, whether it claims all tasks."""
    return jax.vmap(lambda stage: teacher._of_stage(state._replace(stage=stage), tasks).all())(jnp.arange(11))


class TestStages:
    def start(self, **fields):
        return of_60(**fields), first_state()

    def proposals(self, teacher, state, n=8):
        return propose(teacher, state, jax.random.key(1), n)

    @pytest.mark.parametrize(("ret", "ends"), [([0.7, 0.8], False), ([0.6, 1.0], True), ([1.0, 1.0], True)])
    def test_threshold(self, ret, ends):
        teacher, state = self.start(threshold=0.8)
        after = observe(teacher, state, played(self.proposals(teacher, state), ret))
        assert (int(after.stage), int(after.steps)) == ((1, 0) if ends else (0, 20))

    def test_budget(self):
        teacher, state = self.start(max_steps_per_stage=50, threshold=2.0)
        seen = []
        for _ in range(7):
            state = observe(teacher, state, played(self.proposals(teacher, state), [0.0, 0.0]))
            seen.append((int(state.stage), int(state.steps)))
        assert seen == [(0, 20), (0, 40), (1, 0), (1, 20), (1, 40), (2, 0), (2, 20)]

    def test_the_last_stage_never_ends(self):
        teacher, state = self.start(n_stages=3, max_steps_per_stage=1, threshold=0.5)
        for stage in (1, 2, 3, 3, 3):
            state = observe(teacher, state, played(self.proposals(teacher, state), [1.0, 1.0]))
            assert int(state.stage) == stage
        np.testing.assert_array_equal(particles(teacher, state), state.target)

    def test_episodes_of_an_older_stage_do_not_count(self):
        """However long they run on; their steps are spent all the same."""
        teacher, state = self.start(threshold=0.8)
        old = self.proposals(teacher, state)
        state = observe(teacher, state, played(old, [1.0]))
        assert int(state.stage) == 1
        for i in range(3):
            state = observe(teacher, state, played(old, [1.0, 1.0]))
            assert (int(state.stage), int(state.steps)) == (1, 20 * (i + 1))
        new = self.proposals(teacher, state)
        both = jax.tree.map(lambda a, b: np.concatenate([a[:1], b[:-1]]), old, new)
        assert int(observe(teacher, state, played(both, [9.0, 0.7])).stage) == 1
        assert int(observe(teacher, state, played(both, [0.0, 0.9])).stage) == 2

    @pytest.mark.parametrize("stage", [0, 1, 10])
    def test_a_task_tells_its_stage(self, stage):
        teacher, state = self.start()
        tasks = self.proposals(teacher, at_stage(state, stage), n=1000)
        assert of_stages(teacher, state, tasks).tolist() == [other == stage for other in range(11)]

    @pytest.mark.parametrize("threshold", [0.0, -1.0, 0.8])
    def test_no_finished_episode_no_verdict(self, threshold):
        teacher, state = self.start(threshold=threshold)
        tasks = self.proposals(teacher, state)
        assert int(observe(teacher, state, played(tasks, [])).stage) == 0
        assert int(observe(teacher, state, played(tasks, [1.0], finished=False)).stage) == 0
        assert int(observe(teacher, state, played(tasks, [np.nan])).stage) == 0


def test_seeds_side_by_side_equal_one_by_one():
    together = jax.jit(lambda seeds: jax.vmap(lambda seed: of_60().init(jax.random.key(seed)))(seeds))(np.arange(3))
    for i in range(3):
        for a, b in zip(together, first_state(i), strict=True):
            np.testing.assert_array_equal(np.asarray(a)[i], b)


def test_assignment_is_scipys():
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(4, n, 3)).astype(np.float32) for n in (12, 15))
    cost = np.asarray(jax.jit(jax.vmap(squared_distances))(a, b))
    expected = [linear_sum_assignment(c)[1] for c in cost]
    np.testing.assert_array_equal(jax.jit(assign)(cost), expected)
    np.testing.assert_array_equal(jax.jit(jax.vmap(assign))(cost), expected)
    np.testing.assert_allclose(cost[0], cdist(a[0], b[0], "sqeuclidean"), rtol=1e-5)


ON_EVERY_DEVICE = """
import procurl
procurl.use_cores(2, device="cpu")
import jax
from procurl.teachers.transport import assign, squared_distances
mesh = jax.make_mesh((2,), ("seeds",), axis_types=(jax.sharding.AxisType.Auto,))
spec = jax.sharding.PartitionSpec("seeds")
points = jax.random.normal(jax.random.key(0), (4, 2, 500, 3))
solve = jax.vmap(lambda p: assign(squared_distances(p[0], p[1])))
solve = jax.jit(jax.shard_map(solve, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))
for _ in range(3):
    solve(points).block_until_ready()
print("done")
"""


@pytest.mark.slow  # test_transport.py has the assignments alone
def test_large_assignments_on_all_devices_at_once_do_not_wait_for_each_other():
    """With `pure_callback` they do, forever. In a process of its own, so that it can be stopped."""
    run = subprocess.run([sys.executable, "-c", ON_EVERY_DEVICE], capture_output=True, text=True, timeout=120)
    assert run.stdout.strip() == "done", run.stderr


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_stages": 0}, "GRADIENT: n_stages = 0: expected at least 1"),
        ({"n_particles": 0}, "n_particles = 0: expected at least 1"),
        ({"max_steps_per_stage": 0}, "max_steps_per_stage = 0: expected at least 1"),
    ],
)
def test_bad_hyper_parameters_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        GRADIENT(space(), **fields)


def test_presets():
    teacher = procurl.make_teacher("gradient", small_space(), setting="point-mass-2g")
    assert (teacher.n_stages, teacher.max_steps_per_stage, teacher.threshold) == (10, 100_000, 0.8)
