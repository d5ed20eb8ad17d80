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
from procurl.programs import jit
from procurl.targets import Mixture
from procurl.teachers import nadaraya_watson
from procurl.teachers.base import computed_where
from procurl.teachers.currot import CURROT, candidates, in_ball
from procurl.teachers.nadaraya_watson import estimate, estimate_around, in_random_order
from procurl.teachers.success_buffer import Pairs, absorb, latest, no_pairs, remember, search_samples

N, D, DELTA = 12, 2, 0.6


def pairs(context, ret, capacity=N):
    k, d = np.shape(context)
    out = Pairs(np.zeros((capacity, d), np.float32), np.full(capacity, -np.inf, np.float32), np.int32(k))
    out.context[:k], out.ret[:k] = context, ret
    return out


nothing = jax.jit(lambda: no_pairs(N, D))
absorbed, remembered = jax.jit(absorb), jax.jit(remember)


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
    slow, buffer, reached = SlowBuffer(), nothing(), np.bool_(False)
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
        buffer, reached, refused = absorbed(buffer, pairs(context, ret, N - 1), reached, DELTA, targets)
        assert sorted(contents(buffer)) == sorted(slow.entries)
        assert bool(reached) == slow.reached
        assert contents(pairs(context[np.asarray(refused)[:k]], ret[np.asarray(refused)[:k]])) == fails
        assert int(buffer.size) >= size, "the buffer never shrinks"
        size = int(buffer.size)
    assert rules == {False, True} or binary, "both rules were at work"


def test_fail_buffer_is_first_in_first_out():
    rng = np.random.default_rng(0)
    buffer, slow = nothing(), []
    for _ in range(5):
        new = pairs(rng.uniform(0, 3, (7, D)), rng.uniform(0, 1, 7), N - 1)
        chosen = np.append(rng.random(7) < 0.6, [False] * 4)
        slow = ([e for e, c in zip(contents(new), chosen, strict=False) if c] + slow)[:N]
        buffer = remembered(buffer, new, chosen)
        assert contents(buffer) == slow


def test_latest_takes_the_last_finished_episodes():
    space = small_space()
    play = jax.jit(lambda key: imagined_episodes(key, space.from_pool(key, jnp.arange(30))))
    finished, number = np.random.default_rng(0).random(34) < 0.5, np.arange(34, dtype=np.float32)
    episodes = play(jax.random.key(0))._replace(finished=finished, ret=np.where(number % 5 == 0, np.nan, number))
    for k in (3, 33):
        new = jax.jit(lambda episodes, k=k: latest(episodes, k, -1.0))(episodes)
        rows = np.flatnonzero(finished)[-k:]
        assert int(new.size) == len(rows)
        np.testing.assert_array_equal(np.asarray(new.ret)[: len(rows)], np.where(rows % 5 == 0, -1.0, rows))
        np.testing.assert_array_equal(np.asarray(new.context)[: len(rows)], np.asarray(episodes.task.context)[rows])


def test_search_is_wide_around_failures_and_narrow_around_successes():
    box = (np.zeros(2, np.float32), np.full(2, 3.0, np.float32))

    @jax.jit
    def search(buffer, reached, r_min):
        """As often as there are seeds here."""
        draw = lambda s: search_samples(jax.random.key(s), buffer, reached, 0.6, 0.05, r_min, box)  # noqa: E731
        return jax.vmap(draw)(jnp.arange(300))

    centre = np.full((10, 2), 1.5)
    some = pairs(centre, np.array([1.0] * 5 + [0.0] * 5), 10)
    late = np.asarray(search(some, True, 0.0))  # every entry once, in order
    np.testing.assert_allclose(late[:, :5].std(), 0.005 * 0.05, rtol=0.1)
    assert 0.5 < late[:, 5:].std() < 0.75, "a quarter of the box, cut at its border"
    early = np.asarray(search(some, False, 0.0))
    assert np.abs(early - 1.5).max() < 0.01, "only the better half"
    assert np.isfinite(search(pairs(centre[:1], [0.6], 10), False, 0.6)).all(), "nothing is known"


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


def around_all(both, context, around, h, key):
    return estimate_around(in_random_order(both, key), context, around, h)


@jax.jit
def estimates(both, context, around, h):
    """Of the next test alone, as it is traced with another CONSULTED."""
    return estimate(both, context, h), around_all(both, context, around, h, jax.random.key(0))


@pytest.mark.parametrize("h", [0.02, 0.15, 2.0])
@pytest.mark.parametrize("size", [1, 40, *(pytest.param(s, marks=pytest.mark.slow) for s in (4, 90))])
def test_estimate_equals_the_slow_one(h, size, monkeypatch):
    monkeypatch.setattr(nadaraya_watson, "CONSULTED", 200)
    rng = np.random.default_rng(size)
    known, ret = rng.uniform(0, 3, (size, 3)), rng.uniform(0, 1, size)
    half = size // 2
    both = [pairs(known[:half].reshape(-1, 3), ret[:half], 100), pairs(known[half:], ret[half:], 100)]
    context = rng.uniform(0, 3, (50, 3))
    around = context[:, None] + rng.uniform(-0.2, 0.2, (50, 7, 3))
    here, got = estimates(both, context.astype(np.float32), around.astype(np.float32), h)
    np.testing.assert_allclose(here, slow_estimate(context, known, ret, h), atol=1e-4)
    expected = slow_estimate(around.reshape(-1, 3), known, ret, h)
    wrong = np.abs(np.asarray(got).ravel() - expected) > 1e-3
    assert wrong.mean() < 0.02, "all but where the tenth and the eleventh nearest are equally far"


everywhere, nearby = jax.jit(estimate), jax.jit(around_all)


def test_a_crowd_is_represented_by_a_random_choice():
    rng = np.random.default_rng(0)
    known = rng.uniform(0, 1, (900, 2))
    ret = (known[:, 0] > 0.5).astype(float)
    crowd = [pairs(known, ret, 900)]
    centre = rng.uniform(0.3, 0.7, (40, 2)).astype(np.float32)
    places = centre[:, None] + rng.uniform(-0.3, 0.3, (1, 20, 2)).astype(np.float32)
    all_of_them = np.asarray(everywhere(crowd, places.reshape(-1, 2), 0.1)).reshape(40, 20)
    drawn = [nearby(crowd, centre, places, 0.1, jax.random.key(s)) for s in range(30)]
    error = np.stack(drawn) - all_of_them
    assert np.abs(error).mean() < 0.08
    assert abs(error.mean()) < 0.02, "no bias over many choices"


def test_a_crowd_far_away_is_still_asked():
    """Many pairs on a sphere around the centre, none within 3h of the places: the ten nearest of the choice count."""
    rng = np.random.default_rng(0)
    direction = rng.normal(size=(900, 3))
    known = direction / np.linalg.norm(direction, axis=1, keepdims=True)
    crowd = [pairs(known, np.ones(900), 900)]
    places = rng.uniform(-0.1, 0.1, (4, 9, 3)).astype(np.float32)
    value = nearby(crowd, np.zeros((4, 3), np.float32), places, 0.05, jax.random.key(0))
    np.testing.assert_allclose(value, 1.0)


def test_candidates_stay_in_the_ball_and_look_ahead():
    rng = np.random.default_rng(0)
    particles, aim = rng.uniform(0, 3, (2, 60, 3)).astype(np.float32)
    aim[:5] = particles[:5]  # arrived
    aim[5:15] = particles[5:15] + 0.05
    valid = rng.random(60) < 0.5
    scattered = jax.jit(lambda key, *given: candidates(in_ball(key, 100, 3), *given))
    around = scattered(jax.random.key(0), particles, aim, valid, np.float32(0.3))
    straight = np.asarray(around)[:, 1]
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


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_only_what_is_chosen_is_computed(share):
    chosen = np.random.default_rng(0).random(40) < share
    x = np.arange(80, dtype=np.float32).reshape(40, 2)
    got = computed_in_blocks(chosen, x, np.arange(40, dtype=np.float32))
    np.testing.assert_array_equal(got, np.where(chosen[:, None], x + np.arange(40)[:, None] + 1, x))


computed_in_blocks = jax.jit(
    lambda chosen, x, y: computed_where(chosen, lambda x, y: x + y[:, None] + 1, (x, y), x, 16)
)


CORNERS = Mixture(low=((0.3, 0.3), (2.7, 0.3)), high=((0.3, 0.3), (2.7, 0.3)), std=((0.1, 0.1), (0.1, 0.1)))
A_CORNER_AND_A_POINT = dataclasses.replace(CORNERS, std=((0.1, 0.1), (0.0, 0.0)))
AT_A_POINT = Mixture(low=((1.0, 2.0), (1.0, 2.0)), high=((1.0, 2.0), (1.0, 2.0)), std=((0.0, 0.0), (0.0, 0.0)))


def world(target=A_CORNER_AND_A_POINT, **fields):
    """All fast tests have the same target: another one compiles anew."""
    space = dataclasses.replace(small_space(), target=target)
    return CURROT(space, **{"n_particles": 60, "epsilon": 0.09, "update_after": 1, **fields})


# Compiled once for all tests: the teacher is an argument.
begin = jit(lambda teacher, key: teacher.init(key))
observe = jit(lambda teacher, state, key, episodes: teacher.observe(state, key, episodes, None))


@jit
def turn_of(teacher, state, key, n):
    """Episodes of which n are finished, and a key to watch them with."""
    k_pick, k_play, k_watch = jax.random.split(key, 3)
    episodes = imagined_episodes(k_play, teacher.propose(state, k_pick, 40))
    finished = (episodes.steps > 0) & (jnp.cumsum(episodes.steps > 0) <= n)  # the same shapes for any n
    return episodes._replace(finished=finished), k_watch


def play(teacher, value, turns, key=0, n=40):
    """Episodes whose return is value(context), for some iterations; the states one after the other."""
    states = [begin(teacher, jax.random.key(key))]
    for turn in range(turns):
        episodes, k_watch = turn_of(teacher, states[-1], jax.random.fold_in(jax.random.key(key), turn), n)
        ret = np.asarray(value(np.asarray(episodes.task.context), turn), np.float32)
        states.append(observe(teacher, states[-1], k_watch, episodes._replace(ret=ret)))
    return states


def wasserstein(a, b):
    cost = np.sum((np.asarray(a)[:, None] - np.asarray(b)[None]) ** 2, axis=-1)
    return np.sqrt(cost[linear_sum_assignment(cost)].mean())


@pytest.mark.slow
def test_where_everything_is_solved_the_cloud_reaches_the_target_on_the_shortest_way():
    teacher = world(AT_A_POINT)  # (1, 2)
    start = np.asarray(begin(teacher, jax.random.key(0)).particles)
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
    teacher = world()
    rng = np.random.default_rng(0)
    states = play(teacher, lambda c, t: (rng.random(len(c)) < 1 / (1 + np.exp(-4 * (c[:, 1] - 1)))).astype(float), 15)
    for before, after in itertools.pairwise(states):
        x = np.asarray(after.particles)
        assert (x >= 0).all() and (x <= 3).all()
        assert int(after.success.size) >= int(before.success.size) and int(after.fail.size) >= int(before.fail.size)
        watched = [after.success, after.fail]
        sound = np.asarray(everywhere(watched, before.particles, 0.3 * 0.3)) >= 0.6  # the others were repaired
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
    state = begin(teacher, jax.random.key(0))
    episodes, k_watch = turn_of(teacher, state, jax.random.key(1), 40)
    after = observe(teacher, state, k_watch, episodes._replace(finished=np.zeros(44, bool)))
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
    state = begin(teacher, jax.random.key(0))
    tasks = jit(lambda teacher, state, key: teacher.propose(state, key, 500))(teacher, state, jax.random.key(1))
    gap = np.abs(np.asarray(tasks.context)[:, None] - np.asarray(state.particles)[None]).max(axis=-1)
    nearest = gap.argmin(axis=1)
    assert gap.min(axis=1).max() <= 3e-3 * 1.01 and len(np.unique(nearest)) > 50
    assert (np.asarray(tasks.row) == -1).all() and len(np.unique(tasks.seed)) > 450


def test_presets():
    space = dataclasses.replace(small_space(), name="point-mass-2g")
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
