"""PLR against a sequential version in plain Python that knows every step of every episode."""

import dataclasses

import jax
import numpy as np
import pytest
from scipy.special import softmax
from test_teachers import chi_square, small_space

import procurl
from procurl.errors import ConfigError
from procurl.programs import jit
from procurl.teachers.plr import PLR
from procurl.types import Episodes, Task

N, QUEUE = 30, 40  # tasks of the pool, proposals: the same everywhere, as a program is compiled for a shape
LENGTH = 4 + QUEUE  # of a record


def plr(n_pool=N, **fields):
    return PLR(small_space(n_pool=n_pool), **fields)


class PLRTwin:
    """Section 7 of the specification, one episode at a time."""

    def __init__(self, n, rho=0.5, beta=0.1):
        self.n, self.rho, self.beta = n, rho, beta
        self.seen, self.score, self.stamp, self.episode = [], {}, {}, 0

    def start(self, task):
        self.episode += 1
        self.stamp[task] = self.episode
        if task not in self.seen:
            self.seen.append(task)

    def watch(self, played, before, score):
        """Episodes in the order of the record, with their ages before this iteration -> the latest of each task."""
        latest = {}
        for e, b in zip(played, before, strict=True):
            if e.age > b and b == 0:
                self.start(e.task)
            if e.age > b and (e.task not in latest or e.born >= latest[e.task].born):
                latest[e.task] = e
        self.score |= {task: score(e) for task, e in latest.items()}
        return latest

    def probabilities(self):
        p = np.zeros(self.n)
        unseen = [i for i in range(self.n) if i not in self.seen]
        replay = len(self.seen) / self.n
        for i in unseen:
            p[i] = (1 - replay) / len(unseen)
        scored = sorted((i for i in self.seen if i in self.score), key=lambda i: (-self.score[i], i))
        ranked = scored + sorted(i for i in self.seen if i not in self.score)
        by_score = {i: (1 + k) ** (-1 / self.beta) for k, i in enumerate(ranked)}
        by_staleness = {i: self.episode + 1 - self.stamp[i] for i in self.seen}
        for i in self.seen:
            p[i] += replay * (1 - self.rho) * by_score[i] / sum(by_score.values())
            p[i] += replay * self.rho * by_staleness[i] / sum(by_staleness.values())
        return p


@dataclasses.dataclass
class Running:
    """One episode with all its steps, past and to come."""

    task: int
    advantages: np.ndarray
    age: int = 0
    born: int = 0  # when it started

    def score(self, mode):
        past = self.advantages[: self.age]
        return np.mean(np.abs(past) if mode == "abs_gae" else past)


class Classroom:
    """Environments that play a queue of rows as `rollout.play` does, with advantages out of thin air."""

    def __init__(self, n_envs, horizon, longest, rng):
        self.n_envs, self.horizon, self.longest, self.rng = n_envs, horizon, longest, rng
        self.clock = 0
        self.running = []

    def episode(self, task):
        length = self.rng.integers(1, self.longest + 1)
        return Running(int(task), self.rng.normal(size=length))

    def play(self, queue):
        """-> the record that a teacher sees, and the episodes behind it in the order of the record."""
        if not self.running:
            self.running = [self.episode(task) for task in self.rng.choice(queue, self.n_envs)]
        record = list(self.running)
        before = [e.age for e in record]
        waiting = list(queue)
        for _ in range(self.horizon):
            self.clock += 1
            for e in self.running:
                e.born = self.clock if e.age == 0 else e.born
                e.age += 1
            for i, e in enumerate(self.running):
                if e.age == len(e.advantages):
                    self.running[i] = self.episode(waiting.pop(0))
                    record.append(self.running[i])
        before += [0] * (len(record) - self.n_envs)
        part = [e.advantages[b : e.age] for e, b in zip(record, before, strict=True)]
        row = [e.task for e in record] + waiting
        n, k = self.n_envs + len(queue), len(record)
        assert len(row) == n

        def column(x, dtype):
            return np.append(np.array(x, dtype), np.zeros(n - k, dtype))

        steps = [len(p) for p in part]
        row = np.array(row, np.int32)
        episodes = Episodes(
            Task(np.zeros((n, 2), np.float32), row, row),
            ret=np.zeros(n, np.float32),
            length=column([e.age for e in record], np.int32),
            steps=column(steps, np.int32),
            success=np.zeros(n, bool),
            gae=column([p.mean() if len(p) else 0.0 for p in part], np.float32),
            abs_gae=column([np.abs(p).mean() if len(p) else 0.0 for p in part], np.float32),
            started=column([b == 0 and s > 0 for b, s in zip(before, steps, strict=True)], bool),
            finished=column([e.age == len(e.advantages) for e in record], bool),
        )
        return episodes, record, before


def probabilities(state):
    return softmax(np.asarray(state.log_weights, np.float64))


begin = jit(lambda teacher: teacher.init(jax.random.key(0)))
observe = jit(lambda teacher, state, episodes: teacher.observe(state, None, episodes, None))
propose = jit(lambda teacher, state, key, n=QUEUE: teacher.propose(state, key, n).row, static_argnums=3)


def record(*rows, started=True, finished=True, **columns):
    """A record of episodes that played the given rows for four steps each, then unplayed proposals of row 0."""

    def column(x, dtype):
        out = np.zeros(LENGTH, dtype)
        out[: len(rows)] = x
        return out

    row = column(rows, np.int32)
    steps = columns.get("steps", 4)
    length = columns.get("length", steps)
    gae = column(columns.get("gae", 1.0), np.float32)
    return Episodes(
        Task(np.zeros((LENGTH, 2), np.float32), row, row), np.zeros(LENGTH, np.float32), column(length, np.int32),
        column(steps, np.int32), np.zeros(LENGTH, bool), gae, np.abs(gae), column(started, bool),
        column(finished, bool),
    )  # fmt: skip


def after(teacher, *records):
    state = begin(teacher)
    for episodes in records:
        state = observe(teacher, state, episodes)
    return state


@pytest.mark.parametrize("score", ["abs_gae", "signed_gae"])
@pytest.mark.parametrize("rho", [0.5, pytest.param(0.1, marks=pytest.mark.slow)])
def test_equals_the_sequential_version(score, rho):
    """Several environments, episodes across two iterations, the same task many times at once: all in one."""
    teacher, twin = plr(rho=rho, beta=0.7, score=score), PLRTwin(N, rho, beta=0.7)
    classroom = Classroom(n_envs=4, horizon=10, longest=10, rng=np.random.default_rng(0))
    state = begin(teacher)
    spanning = twice = siblings = 0
    for t in range(40):
        queue = np.asarray(propose(teacher, state, jax.random.key(t)))
        episodes, played, before = classroom.play(queue)
        state = observe(teacher, state, episodes)
        latest = twin.watch(played, before, lambda e: e.score(score))

        spanning += sum(e.born <= 10 * t for e in latest.values())
        twice += len(played) - len({e.task for e in played})
        siblings += len(classroom.running) - len({e.task for e in classroom.running})
        np.testing.assert_allclose(probabilities(state), twin.probabilities(), rtol=1e-4, atol=1e-8)
        assert int(state.counter) == twin.episode
        assert set(np.flatnonzero(state.seen)) == set(twin.seen)
        for task, value in twin.score.items():
            assert float(np.asarray(state.scores)[task]) == pytest.approx(value, rel=1e-4, abs=1e-6)
    assert len(twin.seen) == N, "all tasks are seen in the end"
    assert spanning > 20 and twice > 50 and siblings > 5, "the cases that this test is about did happen"


def test_proposals_follow_the_probabilities():
    teacher, twin = plr(beta=1.0), PLRTwin(N, beta=1.0)
    rows, gae = [3, 7, 3, 11, 0, 19, 5], [0.1, -2.0, 0.5, 0.2, 0.05, 0.9, 0.3]
    state = after(teacher, record(*rows, gae=gae))
    for row, score in zip(rows, gae, strict=True):
        twin.start(row)
        twin.score[row] = abs(score)
    drawn = np.asarray(propose(teacher, state, jax.random.key(1), 50_000))
    assert chi_square(drawn, twin.probabilities()) > 1e-3
    replayed = np.isin(drawn, rows).mean()
    assert replayed == pytest.approx(6 / N, abs=0.01), "replays have the share of the tasks seen"
    new = drawn[~np.isin(drawn, rows)]
    assert chi_square(np.searchsorted(np.setdiff1d(np.arange(N), rows), new), np.full(24, 1 / 24)) > 1e-3


class TestInvariances:
    """The list of the specification, section 7.6."""

    def random_state(self, **fields):
        rng = np.random.default_rng(3)
        rows = rng.integers(0, N, 25)
        return after(plr(**fields), record(*rows, gae=rng.normal(size=25))), rows

    @pytest.mark.parametrize("beta", [1e-30, 0.1, 1.0, 1e30])
    @pytest.mark.parametrize("rho", [0.0, 0.3, 1.0])
    def test_probabilities_sum_to_one(self, rho, beta):
        weights = np.exp(np.asarray(self.random_state(rho=rho, beta=beta)[0].log_weights, np.float64))
        assert np.isfinite(weights).all() and weights.sum() == pytest.approx(1.0, rel=1e-5)

    def test_large_beta_is_uniform_over_seen(self):
        state, rows = self.random_state(rho=0.0, beta=1e6)
        seen = np.unique(rows)
        np.testing.assert_allclose(probabilities(state)[seen], 1 / 30, rtol=1e-4)  # |seen|/n shared by |seen|

    def test_small_beta_plays_the_best_task_only(self):
        state, rows = self.random_state(rho=0.0, beta=0.01)
        best = int(np.argmax(np.where(state.seen, state.scores, -np.inf)))
        assert probabilities(state)[best] == pytest.approx(len(np.unique(rows)) / 30, rel=1e-4)

    def test_rho_one_is_pure_staleness(self):
        state, rows = self.random_state(rho=1.0)
        last = {row: k for k, row in enumerate(rows, start=1)}
        staleness = np.array([26 - last[i] if i in last else 0 for i in range(30)])
        expected = staleness / staleness.sum() * len(last) / 30
        p = probabilities(state)
        np.testing.assert_allclose(p[np.unique(rows)], expected[np.unique(rows)], rtol=1e-5)

    def test_the_task_that_started_last_has_staleness_one(self):
        state, rows = self.random_state()
        assert int(state.counter) + 1 - int(np.asarray(state.stamps)[rows[-1]]) == 1

    def test_all_tasks_are_seen_as_fast_as_expected(self):
        """|seen| = n (1 - exp(-e/n)) after e episodes, a few at a time."""
        teacher = plr()
        state = begin(teacher)
        for t in range(200):
            state = observe(teacher, state, record(*np.asarray(propose(teacher, state, jax.random.key(t)))[:2]))
            if t == 14:
                assert np.asarray(state.seen).sum() == pytest.approx(N * (1 - np.exp(-1)), abs=5)
        assert np.asarray(state.seen).all()


def test_nobody_has_played():
    state = after(plr(), record(0, 3, started=False, steps=0))
    np.testing.assert_allclose(probabilities(state), 1 / N, rtol=1e-6)


def test_a_pool_of_one():
    teacher = plr(n_pool=1)
    for state in (after(teacher), after(teacher, record(0, gae=-3.0))):
        assert probabilities(state) == pytest.approx([1.0])
        assert (np.asarray(propose(teacher, state, jax.random.key(0))) == 0).all()


def test_the_later_episode_of_a_task_wins():
    teacher = plr()
    state = after(teacher, record(4, 2, 4, gae=[9.0, 1.0, 3.0]))
    assert np.asarray(state.scores)[4] == 3.0 and np.asarray(state.scores)[2] == 1.0
    assert np.asarray(state.stamps)[[4, 2]].tolist() == [3, 2]


def test_an_older_episode_that_ends_later_does_not_win_over_a_younger_one():
    """Running episodes come in the order of environments: their earlier steps tell which began last."""
    teacher = plr()
    first = record(4, 4, gae=[6.0, 2.0], steps=[8, 3], finished=False)
    swapped = record(4, 4, gae=[5.0, 7.0], steps=[1, 1], length=[4, 9], started=False)
    assert np.asarray(after(teacher, first, swapped).scores)[4] == pytest.approx((3 * 2.0 + 1 * 5.0) / 4)


def test_an_episode_over_several_iterations_is_one():
    teacher = plr(score="signed_gae")
    begins = record(6, gae=2.0, steps=10, finished=False)
    goes_on = record(6, gae=-1.0, steps=5, length=15, started=False, finished=False)
    ends = record(6, gae=8.0, steps=5, length=20, started=False)
    states = [after(teacher, *records) for records in ([begins], [begins, goes_on], [begins, goes_on, ends])]
    assert [np.asarray(s.scores)[6] for s in states] == pytest.approx([2.0, 1.0, (20.0 - 5.0 + 40.0) / 20])
    assert [int(np.asarray(s.partial_length)[6]) for s in states] == [10, 15, 0]
    assert [int(s.counter) for s in states] == [1, 1, 1], "it started once"


def test_a_finished_episode_is_not_mixed_into_the_next_of_its_task():
    teacher = plr()
    state = after(teacher, record(6, gae=2.0, steps=10), record(6, gae=5.0, steps=10))
    assert np.asarray(state.scores)[6] == 5.0
    meanwhile = record(6, 6, gae=[2.0, 9.0], steps=[10, 3], finished=[False, True])  # the younger one is over
    state = after(teacher, meanwhile, record(6, gae=5.0, steps=10, length=20, started=False))
    assert np.asarray(state.scores)[6] == pytest.approx(3.5)


def test_not_a_number_keeps_the_old_score():
    teacher = plr()
    state = after(teacher, record(1, 2, gae=[2.0, 3.0]), record(1, 3, gae=[np.nan, np.inf]))
    assert np.asarray(state.scores)[1] == 2.0
    assert not np.asarray(state.scored)[3] and np.asarray(state.seen)[3]
    spoilt = record(1, gae=np.nan, steps=4, finished=False)
    state = after(teacher, spoilt, record(1, gae=7.0, steps=4, length=8, started=False))
    assert np.asarray(state.scores)[1] == 7.0
    assert all(np.isfinite(x).all() for x in state)


def test_seen_but_unscored_tasks_rank_last():
    """Their score of 0 would beat every negative one."""
    teacher, twin = plr(rho=0.0, beta=1.0, score="signed_gae"), PLRTwin(N, 0.0, 1.0)
    state = after(teacher, record(1, 2, 3, gae=[-2.0, np.nan, -1.0]))
    for row in (1, 2, 3):
        twin.start(row)
    twin.score = {1: -2.0, 3: -1.0}
    p = probabilities(state)
    np.testing.assert_allclose(p, twin.probabilities(), rtol=1e-5)
    assert p[3] > p[1] > p[2]


def test_unplayed_proposals_and_foreign_tasks_leave_no_trace():
    teacher = plr()
    state = after(teacher, record(5, 8, gae=[1.0, 2.0], finished=[True, False]))
    for nothing in (
        record(3, 5, 8, steps=0, gae=7.0, started=False, finished=False),
        record(3, 5, 8, steps=0, gae=7.0),  # whatever its flags say
        record(-1, -1, gae=7.0),
    ):
        same = observe(teacher, state, nothing)
        assert all(np.array_equal(a, b) for a, b in zip(state, same, strict=True))


def test_score_modes_read_their_own_column():
    modes = {m: after(plr(score=m), record(0, 1, gae=[-3.0, 1.0])) for m in ("abs_gae", "signed_gae")}
    assert np.asarray(modes["abs_gae"].scores)[:2].tolist() == [3.0, 1.0]
    assert np.asarray(modes["signed_gae"].scores)[:2].tolist() == [-3.0, 1.0]


def test_seeds_side_by_side_equal_one_by_one():
    teacher = plr()
    records = [record(*rows, gae=g) for rows, g in (((1, 2, 1), 0.5), ((3, 3, 3), 2.0), ((0, N - 1, 5), -1.0))]
    stacked = jax.tree.map(lambda *x: np.stack(x), *records)
    states = jax.jit(jax.vmap(lambda r: teacher.observe(teacher.init(jax.random.key(0)), None, r, None)))(stacked)
    for i, r in enumerate(records):
        alone = after(teacher, r)
        for a, b in zip(states, alone, strict=True):
            np.testing.assert_allclose(np.asarray(a)[i], b, rtol=1e-6)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rho": -0.1}, "rho = -0.1: expected at least 0"),
        ({"rho": 1.5}, "rho = 1.5, expected a share between 0 and 1"),
        ({"beta": 0.0}, "beta = 0.0, expected a positive number"),
        ({"score": "max_mc"}, "expected 'abs_gae', 'signed_gae', 'positive_gae'"),
    ],
)
def test_bad_hyper_parameters_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        plr(**fields)


def test_presets():
    make = lambda v: procurl.make_teacher("plr", small_space(), setting="point-mass-1t", variant=v)  # noqa: E731
    paper, release = (make(v) for v in ("paper", "release"))
    assert (paper.rho, paper.beta, paper.score) == (0.5, 0.1, "abs_gae")
    assert (release.rho, release.beta, release.score) == (0.5, 0.1, "signed_gae")
