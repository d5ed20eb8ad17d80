"""CURROT's parts against slow versions in plain Python, and the behaviour of the whole cloud."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from test_teachers import small_space

import procurl
from procurl.check.teacher import imagined_episodes
from procurl.errors import ConfigError
from procurl.targets import Mixture
from procurl.teachers import nadaraya_watson
from procurl.teachers.currot import CURROT, candidates
from procurl.teachers.nadaraya_watson import estimate, estimate_around
from procurl.teachers.success_buffer import Pairs, absorb, latest, no_pairs, remember, search_samples

N, D, DELTA = 12, 2, 0.6


def pairs(context, ret, capacity=N):
    k = len(ret)
    out = no_pairs(capacity, np.shape(context)[1])
    return Pairs(
        out.context.at[:k].set(jnp.array(context, jnp.float32)), out.ret.at[:k].set(jnp.array(ret)), jnp.int32(k)
    )


def contents(buffer):
    size = int(buffer.size)
    return [
        (*c, r)
        for c, r in zip(np.asarray(buffer.context)[:size].tolist(), np.asarray(buffer.ret)[:size].tolist(), strict=True)
    ]


class SlowBuffer:
    """The rules of the specification, section 6.3, on Python lists of (x, y, return)."""

    def __init__(self):
        self.entries, self.reached = [], False

    def update(self, new, targets):
        if self.reached:
            self.entries = self.rule_b(new, targets)
        else:
            self.entries = self.rule_a(new)
        return [e for e in new if e not in self.entries]

    def rule_a(self, new):
        old = self.entries or [(None, None, -np.inf)]
        ascending = sorted(old, key=lambda e: e[-1])
        m = len(old) // 2
        median = ascending[m][-1]
        self.reached = median > DELTA
        accepted = [e for e in new if e[-1] >= median]
        survivors = sorted(old, key=lambda e: -e[-1])[: len(old) - min(len(accepted), m + 1)]
        return sorted(accepted + survivors, key=lambda e: -e[-1])[:N]

    def rule_b(self, new, targets):
        accepted = [e for e in new if e[-1] >= DELTA]
        below = [e for e in self.entries if e[-1] < DELTA]
        if not accepted:
            return self.entries
        if not below and len(self.entries) == N:
            everyone = accepted + self.entries
            cost = [[np.sum((np.array(e[:-1]) - t) ** 2) for e in everyone] for t in targets]
            return [everyone[j] for j in linear_sum_assignment(cost)[1]]
        removed = sorted(below, key=lambda e: e[-1])[: min(len(accepted), len(below))]
        return (accepted + [e for e in self.entries if e not in removed])[:N]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("binary", [False, True])
def test_success_buffer_equals_the_slow_one(seed, binary):
    rng = np.random.default_rng(seed)
    slow, buffer, reached = SlowBuffer(), no_pairs(N, D), jnp.bool_(False)
    size, rules = 0, set()
    for turn in range(12):
        k = rng.integers(1, N)
        context = rng.uniform(0, 3, (k, D)).astype(np.float32)
        ret = rng.uniform(0, 1, k).astype(np.float32) * min(1.0, 0.3 + 0.15 * turn)
        if binary:
            ret = (ret > 0.35).astype(np.float32)
        targets = rng.uniform(0, 3, (N, D)).astype(np.float32)
        rules.add(slow.reached)
        fails = slow.update(contents(pairs(context, ret)), targets)
        buffer, reached, refused = jax.jit(absorb)(
            buffer, pairs(context, ret, N - 1), reached, DELTA, jnp.array(targets)
        )
        assert sorted(contents(buffer)) == sorted(slow.entries)
        assert bool(reached) == slow.reached
        assert contents(pairs(context[np.asarray(refused)[:k]], ret[np.asarray(refused)[:k]])) == fails
        assert int(buffer.size) >= size, "the buffer never shrinks"
        size = int(buffer.size)
    assert rules == {False, True} or binary, "both rules were at work"


def test_fail_buffer_is_first_in_first_out():
    rng = np.random.default_rng(0)
    buffer, slow = no_pairs(N, D), []
    for _ in range(5):
        new = pairs(rng.uniform(0, 3, (7, D)), rng.uniform(0, 1, 7), N - 1)
        chosen = np.append(rng.random(7) < 0.6, [False] * 4)
        slow = ([e for e, c in zip(contents(new), chosen, strict=False) if c] + slow)[:N]
        buffer = remember(buffer, new, jnp.array(chosen))
        assert contents(buffer) == slow


def test_latest_takes_the_last_finished_episodes():
    space = small_space()
    tasks = space.from_pool(jax.random.key(0), jnp.arange(30))
    episodes = imagined_episodes(jax.random.key(1), tasks)
    finished = np.random.default_rng(0).random(34) < 0.5
    episodes = episodes._replace(
        finished=jnp.array(finished), ret=jnp.where(jnp.arange(34) % 5 == 0, jnp.nan, jnp.arange(34.0))
    )
    for k in (3, 33):
        new = latest(episodes, k, -1.0)
        rows = np.flatnonzero(finished)[-k:]
        assert int(new.size) == len(rows)
        np.testing.assert_array_equal(np.asarray(new.ret)[: len(rows)], np.where(rows % 5 == 0, -1.0, rows))
        np.testing.assert_array_equal(np.asarray(new.context)[: len(rows)], np.asarray(episodes.task.context)[rows])


def test_search_is_wide_around_failures_and_narrow_around_successes():
    box = (jnp.zeros(2), jnp.full(2, 3.0))
    centre = np.full((10, 2), 1.5)
    ret = np.array([1.0] * 5 + [0.0] * 5)
    draw = jax.jit(
        lambda key, reached: search_samples(key, pairs(centre, ret, 10), reached, 0.6, 0.05, jnp.float32(0.0), box)
    )
    late = np.stack([draw(jax.random.key(s), True) for s in range(300)])  # every entry once, in order
    np.testing.assert_allclose(late[:, :5].std(), 0.005 * 0.05, rtol=0.1)
    assert 0.5 < late[:, 5:].std() < 0.75, "a quarter of the box, cut at its border"
    early = np.stack([draw(jax.random.key(s), False) for s in range(20)])
    assert np.abs(early - 1.5).max() < 0.01, "only the better half"
    nothing_known = search_samples(
        jax.random.key(0), pairs(centre[:1], [0.6], 10), False, 0.6, 0.05, jnp.float32(0.6), box
    )
    assert np.isfinite(nothing_known).all()


def slow_estimate(context, known, ret, h):
    out = []
    for c in np.asarray(context, np.float64):
        distance = np.sqrt(np.sum((known - c) ** 2, axis=1))
        near = distance <= 3 * h
        if near.any():
            weight = np.exp(-(distance[near] ** 2) / (2 * h**2))
            out.append(weight @ ret[near] / weight.sum())
        else:
            out.append(ret[np.argsort(distance)[:10]].mean())
    return np.array(out)


@pytest.mark.parametrize("h", [0.02, 0.15, 2.0])
@pytest.mark.parametrize("size", [1, 40, *(pytest.param(s, marks=pytest.mark.slow) for s in (4, 90))])
def test_estimate_equals_the_slow_one(h, size, monkeypatch):
    monkeypatch.setattr(nadaraya_watson, "CONSULTED", 200)
    rng = np.random.default_rng(size)
    known, ret = rng.uniform(0, 3, (size, 3)), rng.uniform(0, 1, size)
    half = size // 2
    both = [pairs(known[:half].reshape(-1, 3), ret[:half], 100), pairs(known[half:], ret[half:], 100)]
    context = rng.uniform(0, 3, (50, 3))
    expected = slow_estimate(context, known, ret, h)
    np.testing.assert_allclose(estimate(both, jnp.array(context, jnp.float32), h), expected, atol=1e-4)

    around = context[:, None] + rng.uniform(-0.2, 0.2, (50, 7, 3))
    got = estimate_around(
        both, jnp.array(context, jnp.float32), jnp.array(around, jnp.float32), h, jax.random.key(0), jnp.int32(50)
    )
    expected = slow_estimate(around.reshape(-1, 3), known, ret, h)
    wrong = np.abs(np.asarray(got).ravel() - expected) > 1e-3
    assert wrong.mean() < 0.02, "all but where the tenth and the eleventh nearest are equally far"


def test_a_crowd_is_represented_by_a_random_choice():
    rng = np.random.default_rng(0)
    known = rng.uniform(0, 1, (900, 2))
    ret = (known[:, 0] > 0.5).astype(float)
    crowd = [pairs(known, ret, 900)]
    centre = jnp.array(rng.uniform(0.3, 0.7, (40, 2)), jnp.float32)
    places = centre[:, None] + jnp.array(rng.uniform(-0.3, 0.3, (1, 20, 2)), jnp.float32)
    all_of_them = np.asarray(estimate(crowd, places.reshape(-1, 2), 0.1)).reshape(40, 20)
    draw = jax.jit(lambda key: estimate_around(crowd, centre, places, 0.1, key, jnp.int32(40)))
    error = np.stack([draw(jax.random.key(s)) for s in range(30)]) - all_of_them
    assert np.abs(error).mean() < 0.08
    assert abs(error.mean()) < 0.02, "no bias over many choices"


def test_a_crowd_far_away_is_still_asked():
    """Many pairs on a sphere around the centre, none within 3h of the places: the ten nearest of the choice count."""
    rng = np.random.default_rng(0)
    direction = rng.normal(size=(900, 3))
    known = direction / np.linalg.norm(direction, axis=1, keepdims=True)
    crowd = [pairs(known, np.ones(900), 900)]
    places = jnp.array(rng.uniform(-0.1, 0.1, (4, 9, 3)), jnp.float32)
    value = estimate_around(crowd, jnp.zeros((4, 3)), places, 0.05, jax.random.key(0), jnp.int32(4))
    np.testing.assert_allclose(value, 1.0)


def test_candidates_stay_in_the_ball_and_look_ahead():
    rng = np.random.default_rng(0)
    particles, aim = rng.uniform(0, 3, (2, 60, 3)).astype(np.float32)
    aim[:5] = particles[:5]  # arrived
    aim[5:15] = particles[5:15] + 0.05
    valid = rng.random(60) < 0.5
    straight, around = candidates(
        jax.random.key(0), jnp.array(particles), jnp.array(aim), jnp.array(valid), jnp.float32(0.3), 100
    )
    way = aim - particles
    moved = np.linalg.norm(np.asarray(around) - particles[:, None], axis=-1)
    assert np.isfinite(around).all()
    assert (moved <= np.minimum(0.3, np.linalg.norm(way, axis=1))[:, None] + 1e-5).all()
    ahead = np.sum((np.asarray(around) - particles[:, None]) * way[:, None], axis=-1)
    assert (ahead[valid] >= -1e-6).all() and (ahead[~valid & (np.arange(60) >= 15)].min(axis=1) < 0).all()
    np.testing.assert_array_equal(around[:, 0], particles)
    np.testing.assert_array_equal(straight[:15], aim[:15])
    gap = np.linalg.norm(np.asarray(around) - aim[:, None], axis=-1)
    assert (gap.min(axis=1) >= np.linalg.norm(np.asarray(straight) - aim, axis=1) - 1e-5).all(), "nothing is nearer"


def world(target=None, **fields):
    space = dataclasses.replace(small_space(), target=target or AT_A_POINT)
    return CURROT(space, **{"n_particles": 60, "epsilon": 0.09, "update_after": 1, **fields})


# Compiled once for all tests: the teacher is an argument.
observe = jax.jit(lambda teacher, state, key, episodes: teacher.observe(state, key, episodes, None))
propose = jax.jit(lambda teacher, state, key, n: teacher.propose(state, key, n), static_argnums=3)


def play(teacher, value, turns, key=0, n=40):
    """Episodes whose return is value(context), for some iterations; the states one after the other."""
    state = teacher.init(jax.random.key(key))
    states = [state]
    for turn in range(turns):
        k_pick, k_play, k_watch = jax.random.split(jax.random.fold_in(jax.random.key(key), turn), 3)
        episodes = imagined_episodes(k_play, propose(teacher, state, k_pick, 40))
        finished = (episodes.steps > 0) & (jnp.cumsum(episodes.steps > 0) <= n)  # the same shapes for any n
        ret = jnp.array(value(np.asarray(episodes.task.context), turn), jnp.float32)
        state = observe(teacher, state, k_watch, episodes._replace(ret=ret, finished=finished))
        states.append(state)
    return states


CORNERS = Mixture(low=((0.3, 0.3), (2.7, 0.3)), high=((0.3, 0.3), (2.7, 0.3)), std=((0.1, 0.1), (0.1, 0.1)))
AT_A_POINT = Mixture(low=((1.0, 2.0), (1.0, 2.0)), high=((1.0, 2.0), (1.0, 2.0)), std=((0.0, 0.0), (0.0, 0.0)))


def wasserstein(a, b):
    cost = np.sum((np.asarray(a)[:, None] - np.asarray(b)[None]) ** 2, axis=-1)
    return np.sqrt(cost[linear_sum_assignment(cost)].mean())


@pytest.mark.slow
def test_where_everything_is_solved_the_cloud_reaches_the_target_on_the_shortest_way():
    teacher = world()  # the target is the point (1, 2)
    start = np.asarray(teacher.init(jax.random.key(0)).particles)
    needed = int(np.ceil(np.linalg.norm(start - [1.0, 2.0], axis=1).max() / 0.3))
    states = play(teacher, lambda c, t: np.full(len(c), 0.9), needed + 2)
    assert not np.allclose(states[needed - 1].particles, [1.0, 2.0], atol=1e-5)
    for state in states[needed:]:  # and it stays there, with nothing left to move
        np.testing.assert_allclose(state.particles, np.broadcast_to([1.0, 2.0], (60, 2)), atol=1e-5)


@pytest.mark.slow
def test_distance_to_the_target_falls_to_that_between_two_samples():
    teacher = world(CORNERS)
    feasible = lambda c, t: (c[:, 1] < 2.0).astype(float)  # noqa: E731  # convex, and holds the target
    states = play(teacher, feasible, 40)
    sample = lambda s: teacher.space.sample_target(jax.random.key(s), 60).context  # noqa: E731
    floor = np.mean([wasserstein(sample(s), sample(100 + s)) for s in range(10)])
    distance = [wasserstein(state.particles, sample(200)) for state in (states[0], states[-1])]
    assert distance[0] > 3 * floor and distance[1] < 1.3 * floor


def test_particles_keep_to_the_box_and_the_trust_region_and_buffers_grow():
    teacher = world(CORNERS)
    rng = np.random.default_rng(0)
    states = play(teacher, lambda c, t: (rng.random(len(c)) < 1 / (1 + np.exp(-4 * (c[:, 1] - 1)))).astype(float), 15)
    for before, after in itertools.pairwise(states):
        x = np.asarray(after.particles)
        assert (x >= 0).all() and (x <= 3).all()
        assert int(after.success.size) >= int(before.success.size) and int(after.fail.size) >= int(before.fail.size)
        watched = [after.success, after.fail]
        sound = np.asarray(estimate(watched, before.particles, 0.3 * 0.3)) >= 0.6  # the others were repaired
        step = np.linalg.norm(x - np.asarray(before.particles), axis=1)
        assert (step[sound] <= 0.3 + 1e-5).all()


@pytest.mark.parametrize(
    "value",
    [
        lambda c, t: np.zeros(len(c)),
        lambda c, t: np.ones(len(c)),
        lambda c, t: np.full(len(c), 0.6),
        lambda c, t: np.full(len(c), np.nan),
        lambda c, t: np.where(np.arange(len(c)) % 2, np.inf, -1e30),
    ],
)
@pytest.mark.parametrize("n", [pytest.param(3, marks=pytest.mark.slow), 40])  # three tasks: fewer than ten pairs
def test_everything_stays_finite(value, n):
    for state in play(world(), value, 4, n=n)[1:]:
        assert np.isfinite(state.particles).all()
        for buffer in (state.success, state.fail):
            assert np.isfinite(np.asarray(buffer.ret)[: int(buffer.size)]).all()
            assert np.isfinite(buffer.context).all()


def test_without_a_finished_episode_nothing_changes():
    teacher = world()
    state = teacher.init(jax.random.key(0))
    episodes = imagined_episodes(jax.random.key(1), propose(teacher, state, jax.random.key(2), 40))
    after = observe(teacher, state, jax.random.key(3), episodes._replace(finished=jnp.zeros(44, bool)))
    jax.tree.map(np.testing.assert_array_equal, after, state)


def test_an_update_waits_for_enough_episodes_and_uses_all_of_them():
    states = play(world(update_after=25), lambda c, t: np.linspace(0.1, 0.9, len(c)), 6, n=10)
    waiting = [int(state.waiting.size) for state in states]
    assert waiting == [0, 10, 20, 0, 10, 20, 0]
    for k, (before, after) in enumerate(itertools.pairwise(states)):
        assert np.array_equal(before.particles, after.particles) == (k % 3 != 2)
    assert int(states[2].success.size) == 0 and int(states[3].success.size) == 30


def test_an_update_that_could_never_come_is_refused():
    with pytest.raises(ConfigError, match="update_after = 50, expected at most half of n_particles = 60"):
        world(update_after=50)


def test_waiting_holds_the_particles_until_the_student_is_good_enough():
    value = lambda c, t: np.full(len(c), 0.0 if t < 3 else 1.0)  # noqa: E731
    waiting = play(world(wait_until_threshold=True), value, 12)
    eager = play(world(), value, 1)
    assert not np.array_equal(eager[1].particles, eager[0].particles)
    for state in waiting[:4]:
        np.testing.assert_array_equal(state.particles, waiting[0].particles)
        assert not bool(state.threshold_reached) and int(state.fail.size) == 0
    assert bool(waiting[-1].threshold_reached)
    assert not np.array_equal(waiting[-1].particles, waiting[0].particles)


def test_proposals_are_particles_with_a_little_noise():
    teacher = world()
    state = teacher.init(jax.random.key(0))
    tasks = teacher.propose(state, jax.random.key(1), 500)
    gap = np.abs(np.asarray(tasks.context)[:, None] - np.asarray(state.particles)[None]).max(axis=-1)
    nearest = gap.argmin(axis=1)
    assert gap.min(axis=1).max() <= 3e-3 * 1.01 and len(np.unique(nearest)) > 50
    assert (np.asarray(tasks.row) == -1).all() and len(np.unique(tasks.seed)) > 450


def test_presets():
    space = procurl.make("point-mass-2g")[1]
    assert procurl.make_teacher("currot", space).epsilon == 0.05
    assert procurl.make_teacher("currot", space, variant="release").epsilon == 0.5
    assert procurl.make_teacher("spdl", space, variant="release").target == "uniform"


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"epsilon": 0.0}, "expected a positive number"), ({"n_particles": 1}, "n_particles = 1: expected at least 2")],
)
def test_bad_hyper_parameters_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        CURROT(small_space(), **fields)
