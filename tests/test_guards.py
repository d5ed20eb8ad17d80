"""A seed that goes wrong stops alone: NaN and infinity, wherever they come from, and what is left of them."""

import argparse
import dataclasses
import json
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from host_probe import PaysOnHost
from probe import Probe as ProbeOnHost
from probe import set_level
from test_checkpoint import cut_after, deterministic_files
from test_host import CONFIG as HOST_CONFIG
from test_host import assert_same_run
from worlds import SMALL, Walk, assert_same, assert_same_up_to_rounding, only, small_setting, walk_space

import procurl
from procurl.bench.report import tables
from procurl.bench.stats import summarise
from procurl.check.contracts import check_teacher
from procurl.check.findings import Findings
from procurl.check.teacher import check_state
from procurl.cli.train import train_with_progress
from procurl.errors import CheckError, ConfigError, NonFiniteError, RunFolderError
from procurl.runs.evaluation import Scores
from procurl.runs.log import Log
from procurl.runs.store import failure
from procurl.teachers.base import PoolTeacher, draw, is_distribution

SEEDS, STEPS = 11, 1536  # over two devices in blocks, with padding; six iterations, four evaluations
NOBODY, ALL_SHORT = -5, -6  # no task has these seeds
POISON = {"none": 0.0, "nan": np.nan, "inf": np.inf, "-inf": -np.inf, "huge": 1e30}
KINDS = list(POISON)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Probe(Walk):
    """A walk, except that one instance of a task is poisoned. Poison is data: one program serves all tests."""

    victim: int = NOBODY  # the seed of the task; or ALL_SHORT walks, which none of the targets is
    at: int = 0  # the step of its episode
    reward: int = 0  # added there, see KINDS
    sight: int = 0  # added to what is seen after it

    def reset(self, task):
        state, obs = super().reset(task)
        return (state, task.seed, jnp.int32(0)), obs

    def step(self, key, state, action):
        inner, seed, t = state
        inner, outcome = super().step(key, inner, action)
        short = (self.victim == ALL_SHORT) & (inner.context[0] < 5.0)
        hit = ((seed == self.victim) | short) & (t == self.at)
        poison = jnp.array(list(POISON.values()), jnp.float32)
        outcome = outcome._replace(
            reward=jnp.where(hit, outcome.reward + poison[self.reward], outcome.reward),
            obs=jnp.where(hit, outcome.obs + poison[self.sight], outcome.obs),
        )
        return (inner, seed, t + 1), outcome


class DoubtState(NamedTuple):
    log_weights: Any
    doubts: Any  # bool


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Doubtful(PoolTeacher):
    """IID, except that in some seeds all weights become something else once it has watched."""

    share: float = 0.0  # of the seeds
    weight: int = 0  # their logarithms, see KINDS
    astray: float = 0.0  # how far its contexts lie from where they should

    def propose(self, state, key, n):
        good = super().propose(state, key, n)
        return good._replace(context=good.context + self.astray)

    def init(self, key):
        return DoubtState(jnp.zeros(self.space.n_pool), jax.random.uniform(key) < self.share)

    def observe(self, state, key, episodes, critic):
        other = jnp.array(list(POISON.values()), jnp.float32)[self.weight]
        return state._replace(log_weights=jnp.where(state.doubts, other, state.log_weights))


def fresh_space():
    """Every episode is an instance of its own, so that a task's seed names a place in one training seed alone."""
    return walk_space(pool_size=200, n_targets=10, n_held_out=6)


def teacher_of(name):
    fields = {"n_particles": 16, "update_after": 4, "n_candidates": 5} if name == "currot" else {}
    return procurl.make_teacher(name, fresh_space(), **fields)


def run(teacher=None, seeds=SEEDS, steps=STEPS, out=None, resume="auto", **poison):
    teacher = teacher or Doubtful(fresh_space())
    return procurl.train(Probe(**poison), teacher, SMALL, seeds=seeds, steps=steps, out=out, resume=resume)


@pytest.fixture(scope="module", name="healthy")
def _healthy():
    return run()


def victim_of(result, rng):
    """A random episode of a random seed, after the first two iterations: the seed, the iteration, the task's seed."""
    task_seed = result.trace["task_seed"]
    s, i, k = rng.choice(np.argwhere(task_seed[:, 2:] >= 0))
    return int(s), int(i) + 2, int(task_seed[s, i + 2, k])


def rows(result, chosen):
    """Some seeds of a result."""
    cut = lambda arrays: {k: v[chosen] for k, v in arrays.items()}  # noqa: E731
    return dataclasses.replace(
        result, task_ret=result.task_ret[chosen], trace=cut(result.trace), params=cut(result.params)
    )


def assert_others_untouched(poisoned, healthy, failed):
    np.testing.assert_array_equal(poisoned.failed, failed)
    assert_same(rows(poisoned, ~poisoned.failed), rows(healthy, ~poisoned.failed))


def only_seed(s, n=SEEDS):
    return np.arange(n) == s


def assert_stopped(result, s, iteration, n_steps=256):
    """What counts up to there is what it is; after it there is nothing."""
    n = int(np.searchsorted(result.steps, iteration * n_steps, side="right"))
    assert np.isfinite(result.task_ret[s, :n]).all() and np.isnan(result.task_ret[s, n:]).all()
    assert n < len(result.steps) and np.isnan(result.task_success[s, n:]).all()
    for name in ("train_return", "task_context", "target_distance", *(k for k in result.trace if "loss" in k)):
        assert np.isnan(result.trace[name][s, iteration:]).all(), name
    assert all(np.isfinite(v[s, :iteration]).all() for k, v in result.trace.items() if "loss" in k)
    assert (result.trace["started"][s, iteration:] == 0).all() and (result.trace["task_row"][s, iteration:] == -1).all()
    assert not (result.trace["finite"][s, iteration:].all(axis=-1) & result.trace["inside"][s, iteration:]).any()
    assert all(np.isnan(x[s]).all() for x in result.params.values())


# --- one seed among many ----------------------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize(("kind", "number"), [("nan", 1), ("inf", 2), ("-inf", 3)])
def test_a_poisoned_reward_leaves_the_other_seeds_bitwise_as_they_were(healthy, kind, number, caplog):
    s, iteration, victim = victim_of(healthy, np.random.default_rng(number))
    result = run(victim=victim, reward=KINDS.index(kind))
    assert_others_untouched(result, healthy, only_seed(s))
    assert_stopped(result, s, iteration)
    (found,) = result.failures
    assert (found.seed, found.iteration, found.what, result.status) == (s, iteration, "reward", "finished")
    assert f"seed {s}: NaN or infinity in reward at iteration {iteration} (step {found.step} of" in caplog.text
    assert f"This seed stops, {SEEDS - 1} go on" in caplog.text


@pytest.mark.exact
@pytest.mark.parametrize(("poison", "what"), [({"sight": "nan"}, "observation"), ({"reward": "huge"}, "loss")])
def test_so_do_observations_and_what_breaks_the_update(healthy, poison, what):
    s, iteration, victim = victim_of(healthy, np.random.default_rng(7))
    result = run(victim=victim, **{k: KINDS.index(v) for k, v in poison.items()})
    (found,) = result.failures
    assert_others_untouched(result, healthy, only_seed(s))
    assert (found.what, found.step >= 0) == (what, what == "observation")
    assert found.iteration - iteration in (0, 1)  # what is seen after an iteration's last step belongs to the next
    assert_stopped(result, s, found.iteration)


@pytest.mark.exact
@pytest.mark.parametrize(("kind", "what"), [("nan", "teacher"), ("-inf", "context")])
def test_so_do_weights_that_are_no_distribution(healthy, kind, what):
    """NaN is seen when the teacher has watched; all weights 0 when it draws from them."""
    result = run(Doubtful(fresh_space(), share=0.4, weight=KINDS.index(kind)))
    assert 0 < result.failed.sum() < SEEDS, "some and not all must doubt"
    assert_others_untouched(result, healthy, result.failed)
    assert {f.what for f in result.failures} == {what}
    for found in result.failures:
        assert found.iteration == 0 if what == "teacher" else found.iteration > 0  # when the first of them begins
        assert_stopped(result, found.seed, found.iteration)


@pytest.mark.exact  # where its programs, those of `healthy`, are compiled anyway
@pytest.mark.parametrize(
    ("teacher", "poison", "message"),
    [
        ({"share": 1.0, "weight": KINDS.index("-inf")}, {}, r"Doubtful proposed a context outside the task space.*"),
        ({"astray": 40.0}, {}, r"Doubtful proposed a context outside the task space.*"),
        ({}, {"victim": ALL_SHORT, "reward": KINDS.index("nan")}, r"seed \d+: NaN or infinity in reward"),
    ],
)
def test_without_any_seed_left_the_run_fails(teacher, poison, message, tmp_path):
    with pytest.raises(NonFiniteError, match=rf"{message} at iteration \d"):
        run(Doubtful(fresh_space(), **teacher), out=tmp_path / "run", **poison)
    kept = procurl.load_result(tmp_path / "run")
    assert kept.status == "failed" and kept.failed.all() and len(kept.failures) == SEEDS
    with pytest.raises(ConfigError, match="It left no policy; so are all others"):
        procurl.load_policy(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("teacher", sorted(procurl.TEACHERS))
def test_no_strategy_carries_poison_over(teacher):
    """Calls to the host (assignments) among them: they see all seeds at once."""
    made = teacher_of(teacher)
    healthy = run(made)
    for number, (what, kind) in enumerate([("reward", "nan"), ("sight", "nan"), ("sight", "inf"), ("reward", "huge")]):
        s, _, victim = victim_of(healthy, np.random.default_rng(number))
        result = run(made, victim=victim, **{what: KINDS.index(kind)})
        assert_others_untouched(result, healthy, only_seed(s))


@pytest.mark.exact
@pytest.mark.slow
def test_a_seed_in_company_is_as_it_was_alone(healthy):
    s, _, victim = victim_of(healthy, np.random.default_rng(4))
    other = (s + 3) % SEEDS
    result = run(victim=victim, reward=KINDS.index("nan"))
    assert_same_up_to_rounding(only(result, other), run(seeds=[other]))


@pytest.mark.exact
def test_the_walk_is_learnt(healthy):
    """Here, since its programs are compiled already: PPO with continuous actions, for as long as it takes."""
    result = run(steps=120 * 256)
    assert healthy.ret[:, 0].max() == 0.0 and result.ret[:, -1].mean() > 0.5, result.ret


# --- what is left of it -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", name="poisoned")
def _poisoned(healthy, tmp_path_factory):
    """The run folder of a poisoned run, and where the poison was."""
    folder = tmp_path_factory.mktemp("guards") / "run"
    s, iteration, victim = victim_of(healthy, np.random.default_rng(11))
    return folder, run(victim=victim, at=0, reward=1, out=folder), (s, iteration, victim)


@pytest.mark.exact
def test_the_bundle_shows_the_place(poisoned, healthy):
    folder, result, (s, iteration, victim) = poisoned
    found = failure.read(folder / "failures" / f"seed-{s}")
    assert (found.seed, found.iteration, found.what) == (s, iteration, "reward")
    assert 0 <= found.step < 32 and 0 <= found.environment < 8
    place = found.place
    assert int(place["task_seed"]) == victim and np.isnan(place["reward"]) and np.isfinite(place["value"])
    first = int(np.flatnonzero(healthy.trace["task_seed"][s, iteration] == victim)[0])
    np.testing.assert_array_equal(place["task_context"], healthy.trace["task_context"][s, iteration, first])
    np.testing.assert_array_equal(place["observation"][1:], place["task_context"], "the task's own first observation")
    assert place["action"].shape == (1,) and np.isfinite(place["action"]).all() and "loss_policy" in place
    told = json.loads((folder / "failures" / f"seed-{s}" / "failure.json").read_text())
    assert told["reproduce"] == {"seeds": [s], "steps": (iteration + 1) * 256} and told["message"] == str(found)

    again = procurl.load_result(folder)
    assert_same(again, result)
    (read,) = again.failures
    assert str(read) == str(found) and read.place.keys() == place.keys()
    assert "failures" not in again.provenance and not any(k.startswith("failure") for k in again.trace)


@pytest.mark.exact
def test_a_damaged_bundle_is_refused(poisoned, tmp_path):
    folder, _, (s, *_) = poisoned
    result = procurl.load_result(folder)
    bundle = result.save(tmp_path / "copy") / "failures" / f"seed-{s}"
    content = bytearray((bundle / "place.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (bundle / "place.npz").write_bytes(content)
    with pytest.raises(RunFolderError, match=r"place.npz is damaged"):
        procurl.load_result(tmp_path / "copy")
    (bundle / "place.npz").unlink()
    with pytest.raises(RunFolderError, match=r"lacks place.npz"):
        procurl.load_result(tmp_path / "copy")
    (tmp_path / "copy" / "failures" / "seed-99").mkdir()
    with pytest.raises(RunFolderError, match=r"holds seed-99, which procurl did not write"):
        procurl.load_result(tmp_path / "copy")


def asked_after(iterations):
    """How often the loop has asked for signals by then: after every iteration, and once more every second one."""
    return iterations + (iterations - 1) // 2


@pytest.mark.exact
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_cut_run_with_a_failed_seed_ends_as_if_it_had_not_been_cut(poisoned, tmp_path, monkeypatch, when):
    folder, result, (s, iteration, victim) = poisoned
    again = tmp_path / "again"
    with monkeypatch.context() as patched:
        cut_after(patched, asked_after(1 if when == "before" else iteration + 1))
        with pytest.raises(KeyboardInterrupt):
            run(victim=victim, reward=1, out=again)
    assert procurl.load_result(again).failed.any() == (when == "after")
    resumed = run(victim=victim, reward=1, out=again)
    assert_same(resumed, result)
    assert deterministic_files(again) == deterministic_files(folder)
    for name in ("failure.json", "place.npz", "manifest.json"):
        place = f"failures/seed-{s}/{name}"
        assert (again / place).read_bytes() == (folder / place).read_bytes()


@pytest.mark.exact
def test_readers_count_it_as_failed(poisoned):
    folder, result, (s, *_) = poisoned
    summary = summarise(result.steps, result.ret, threshold=0.5)
    assert (summary.n_seeds, summary.n_failed) == (SEEDS, 1)
    assert summary.mean == pytest.approx(result.ret[~only_seed(s), -1].mean())
    assert f"iid (1 of {SEEDS} seeds failed)" in tables.comparison({"iid": result})
    with pytest.raises(ConfigError, match=rf"seed {s}: NaN or infinity in reward.* It left no policy; the sound ones"):
        procurl.load_policy(folder, seed=s)
    assert procurl.load_policy(folder).predict(np.zeros(3)).shape == (1,)


@pytest.mark.exact
def test_the_command_line_says_so_and_ends_with_status_1(poisoned, capsys):
    folder, result, (s, iteration, _) = poisoned
    args = argparse.Namespace(quiet=True, log=[])
    status = train_with_progress("probe", args, lambda **plan: result, out=folder, seeds=range(SEEDS))
    said = capsys.readouterr()
    assert status == 1 and f"({SEEDS - 1} of {SEEDS} seeds)" in said.out and "nan" not in said.out
    assert f"seed {s}: NaN or infinity in reward at iteration {iteration}" in said.err
    assert f"see {folder / 'failures' / f'seed-{s}'}" in said.err


def test_an_evaluation_that_is_not_finite_fails_its_seed():
    env, space = small_setting()
    log = Log(env, procurl.IID(space), SMALL, (3, 4, 5), 4)
    ones = np.ones((3, 6), np.float32)
    ret = ones.copy()
    ret[1, 2] = np.inf
    log.evaluated(Scores(ret, ones, ones))
    (found,) = log.failures.values()
    assert (found.seed, found.what, log.status) == (4, "evaluation", "running")
    np.testing.assert_array_equal(found.place["task_context"], space.held_out.context[2])
    np.testing.assert_array_equal(np.isnan(log._evaluations[-1][1].ret).all(axis=1), [False, True, False])


# --- environments in worker processes ---------------------------------------------------------------------------------


def host_run(space, teacher="iid", **options):
    env = PaysOnHost(**{k: options.pop(k) for k in ("victim", "poison") if k in options})
    made = procurl.make_teacher(teacher, space)
    return procurl.train(env, made, HOST_CONFIG, seeds=3, steps=512, workers=1, **options)


@pytest.fixture(scope="module", name="host_space")
def _host_space():
    space = procurl.task_space(
        [0.0, 0.0], [1.0, 2.0], target=[1.0, 2.0], value_range=(0.0, 8.0), pool_size=32, n_held_out=3
    )
    return dataclasses.replace(space, fresh_seeds=True)


@pytest.fixture(scope="module", name="host_healthy")
def _host_healthy(host_space):
    return host_run(host_space)


@pytest.mark.slow
@pytest.mark.parametrize(("poison", "what"), [("reward", "reward"), ("sight", "observation")])
def test_on_the_host_a_seed_stops_alone(host_space, host_healthy, poison, what, tmp_path, monkeypatch):
    """`Pays` refuses actions that are NaN: a failed seed must not be played on, nor brought back after a cut."""
    s, iteration, victim = victim_of(host_healthy, np.random.default_rng(5))
    options = {"victim": victim, "poison": poison}
    whole = host_run(host_space, **options)
    (found,) = whole.failures
    assert (found.seed, found.iteration, found.what) == (s, iteration, what)
    assert int(found.place["task_seed"]) == victim
    assert_others_untouched(whole, host_healthy, only_seed(s, 3))
    assert_stopped(whole, s, iteration, n_steps=64)

    cut_after(monkeypatch, asked_after(iteration + 1))
    with pytest.raises(KeyboardInterrupt):
        host_run(host_space, **options, out=tmp_path / "run")
    monkeypatch.undo()
    resumed = host_run(host_space, **options, out=tmp_path / "run")
    assert_same_run(resumed, whole)
    assert [str(f) for f in resumed.failures] == [str(found)]


# --- borders ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "weights", [[0.2, np.nan, 0.3], [0.5, -0.1, 0.6], [0.0, 0.0, 0.0], [0.2, np.inf, 0.1], [-0.5, 1.0, 0.5]]
)
def test_nothing_is_drawn_from_what_is_no_distribution(weights):
    cdf = jnp.cumsum(jnp.array(weights, jnp.float32))
    assert not is_distribution(cdf)
    rows_drawn = draw(jax.random.key(0), cdf, 5)
    np.testing.assert_array_equal(rows_drawn, -1)
    proposed = fresh_space().from_pool(jax.random.key(1), rows_drawn)
    assert np.isnan(proposed.context).all() and (np.asarray(proposed.row) == -1).all()


def test_rounding_is_not_mistaken_for_a_negative_weight():
    weights = jax.random.uniform(jax.random.key(0), (1_000_000,)) ** 8
    assert is_distribution(jnp.cumsum(weights / weights.sum()))
    assert is_distribution(jnp.array([0.0, 0.0, 1e-30]))


@dataclasses.dataclass(frozen=True, eq=False)
class Telling(Doubtful):
    """It also tells its probabilities."""

    p: float = 0.0  # of every task

    def probabilities(self, state):
        return jnp.full(self.space.n_pool, self.p)


jax.tree_util.register_dataclass(Telling, ["space", "share", "weight", "astray", "p"], [])


def test_check_teacher_finds_what_is_no_distribution():
    space = fresh_space()
    n = space.n_pool
    with pytest.raises(CheckError, match="NaN in the state") as caught:
        check_teacher(Telling(space, share=1.0, weight=KINDS.index("nan"), p=2 / n))
    assert "proposed contexts that are NaN: its weights over the pool are no distribution" in str(caught.value)
    assert "with sum 2: expected none below 0, and a sum of 1" in str(caught.value)
    check_teacher(Telling(space, p=1 / n))
    state = DoubtState(jnp.zeros(n), jnp.bool_(False))
    for p in (-1 / n, 0.0, np.nan):
        found = Findings()
        check_state(found, "now", Telling(space, p=p), state)
        (problem,) = found.problems
        assert f"now: probabilities from {p:g} to {p:g}" in problem


def test_a_curriculum_on_the_host_refuses_what_is_not_finite():
    space = fresh_space()
    curriculum = procurl.Curriculum(procurl.make_teacher("procurl-unif", space), every=4)
    task = curriculum.next()
    for bad in ({"ret": np.nan}, {"ret": -np.inf}, {"ret": 1e300}, {"ret": 1.0, "advantage": np.nan}):
        with pytest.raises(NonFiniteError, match=r"(ret|advantage) = \S+ of an episode with context \["):
            curriculum.record(task, length=4, **bad)
    curriculum.record(task, ret=1.0, length=4)
    with pytest.raises(NonFiniteError, match=r"value returned nan for the context \[.*\] \(200 of 200 tasks\)"):
        curriculum.observe(value=lambda tasks: np.full(len(tasks.seed), np.nan))
    assert curriculum.updates == 0, "the teacher has not watched"
    curriculum.observe(value=lambda tasks: np.ones(len(tasks.seed)))

    doubtful = procurl.Curriculum(Doubtful(space, share=1.0, weight=KINDS.index("-inf")), every=4)
    doubtful.record(doubtful.next(), ret=1.0, length=4)
    with pytest.raises(NonFiniteError, match="Doubtful proposed contexts that are NaN after 1 updates"):
        doubtful.observe()


class PaysNaN(gymnasium.RewardWrapper):
    def reward(self, reward):
        return float("nan")


def test_vector_environments_and_stable_baselines_are_told_by_the_curriculum():
    """An episode ends with a return that is NaN: the error names it, whoever plays."""
    from stable_baselines3 import DQN

    from procurl.integrations.gymnasium import TaskEnv
    from procurl.integrations.sb3 import CurriculumCallback
    from procurl.integrations.vector import CurriculumVectorEnv

    space = procurl.task_space([0.0], [100.0], ["level"], target=[100.0], pool_size=8)

    def member():
        return TaskEnv(PaysNaN(ProbeOnHost()), space, set_level)

    curriculum = procurl.Curriculum(procurl.IID(space), n_envs=2)
    envs = CurriculumVectorEnv(gymnasium.vector.SyncVectorEnv([member] * 2), curriculum)
    envs.reset(seed=0)
    with pytest.raises(NonFiniteError, match=r"ret = nan of an episode with context \["):
        list(map(envs.step, [envs.action_space.sample()] * 8))
    model = DQN("MlpPolicy", member(), learning_starts=100, seed=0)
    with pytest.raises(NonFiniteError, match=r"ret = nan of an episode with context \["):
        model.learn(20, callback=CurriculumCallback(procurl.Curriculum(procurl.IID(space)), model.get_env()))
