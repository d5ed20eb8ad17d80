"""SAC inside the compiled loop: against a slow version, cut, failing, alone and in company, and whether it learns."""

import dataclasses
import re
from functools import cache
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_loop import avals
from worlds import assert_same, assert_same_up_to_rounding, fast, only, without

import procurl
from procurl import loop
from procurl.config import SAC, Config
from procurl.errors import ConfigError
from procurl.runs.engine import Engine
from procurl.runs.sweep.points import shapes_program
from procurl.students import nets, regressor, returns, sac
from procurl.students.transitions import as_transitions
from procurl.types import Continuous, Discrete, Episodes, Step, Task

NOBODY = -5  # no task has this seed


class Place(NamedTuple):
    x: jax.Array
    t: jax.Array
    task: Task


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Seek:
    """Ten steps to a place on a line, in a wind that is felt and not seen; whoever goes too far to the left falls.

    The reward is minus the distance. Time runs out at different moments, and one instance of a task can be poisoned.
    """

    poisoned: int = NOBODY
    obs_size: ClassVar[int] = 2
    action: ClassVar[Continuous] = Continuous(1, -1.0, 3.0)  # not SAC's own bounds
    max_steps: ClassVar[int] = 10
    truncates: ClassVar[bool] = True

    def reset(self, task):
        place = Place(jnp.float32(0), jnp.int32(0), task)
        return place, self.seen(place)

    def step(self, key, place, action):
        wind = 0.1 * place.task.context[1]
        moved = 0.5 * (jnp.clip(action[0], -1, 3) - 1) / 2 - wind
        place = place._replace(x=place.x + moved, t=place.t + 1)
        gap = jnp.abs(place.x - place.task.context[0])
        fallen = place.x < -1.5
        late = place.t >= self.max_steps - place.task.seed % 3
        reward = jnp.where(place.task.seed == self.poisoned, jnp.nan, -gap)
        return place, Step(self.seen(place), reward, fallen, late & ~fallen, gap < 0.2)

    def seen(self, place):
        return jnp.stack([place.x, place.task.context[0] - place.x])

    def render(self, place):
        picture = np.zeros((20, 60, 3), np.uint8)
        picture[:, int(np.clip(30 + 10 * place.x, 0, 59))] = 255
        return picture


SMALL = SAC(
    hidden=(8,), batch_size=16, n_steps=64, n_envs=4, every=8, capacity=160, start_steps=64, first_fit=192,
    fit_every=128,
)  # fmt: skip
CONFIG = Config(sac=SMALL, evaluate_every=2)


@cache
def space():
    return procurl.task_space(
        [-1.0, 0.0], [1.0, 1.0], ["goal", "wind"], target=[1.0, 1.0], value_range=(-15.0, 0.0), pool_size=32,
        n_targets=4, n_held_out=3,
    )  # fmt: skip


def run(teacher="plr", seeds=(0, 1), steps=512, config=CONFIG, env=None, **options):
    return procurl.train(
        env or Seek(), procurl.make_teacher(teacher, space()), config, seeds=seeds, steps=steps, **options
    )


@pytest.fixture(scope="module")
def whole():
    return run()


# --- one iteration after the other ------------------------------------------------------------------------------------


def played_by_hand(iterations, seeds=(0, 1)):
    """Before and after each iteration: the carries on the host, and the trace."""
    engine = Engine(Seek(), procurl.make_teacher("plr", space()), CONFIG, seeds)
    carry = engine.begin()
    for t in range(iterations):
        before = jax.tree.map(np.array, engine.seeds.to_host(carry))
        carry, trace = engine.iterate(carry, t)
        yield t, before, jax.tree.map(np.array, engine.seeds.to_host(carry)), engine.seeds.to_host(trace)


@jax.jit
def one_step(key, place, action):
    return Seek().step(key, place, action)


@jax.jit
def noise_of(key, t):
    """The numbers of one iteration: for actions at random, for the policy's, and the environments' keys."""
    _, k_play, k_learn, _ = loop.iteration_keys(key, t)
    k_act, k_env = jax.random.split(k_play)
    shape = (SMALL.n_steps // SMALL.n_envs, SMALL.n_envs)
    uniform, normal = jax.random.uniform(k_act, (*shape, 1), minval=-1), jax.random.normal(k_act, (*shape, 1))
    return uniform, normal, jax.random.key_data(jax.random.split(k_env, shape)), jax.random.split(k_learn)


@jax.jit
def proposals_of(key, t, state):
    k_pick, *_ = loop.iteration_keys(key, t)
    return procurl.make_teacher("plr", space()).propose(state, k_pick, SMALL.n_steps)


def slow_rows(before, t, seed):
    """What one seed stores in iteration t, one environment and one step at a time; and its finished episodes."""
    key = jax.random.key(seed)
    uniform, normal, keys = map(np.asarray, noise_of(key, t)[:3])
    student, envs = before.student, before.envs
    queue = list(zip(*map(np.asarray, proposals_of(key, t, before.teacher)[:3]), strict=True))
    actor = student.trainee.student.networks.actor
    places = [jax.tree.map(lambda x, i=i: x[i], envs.state) for i in range(SMALL.n_envs)]
    obs, ret = list(envs.obs), list(envs.ret)
    rows, finished = [], []
    for step in range(SMALL.n_steps // SMALL.n_envs):
        for i in range(SMALL.n_envs):
            if t * SMALL.n_steps < SMALL.start_steps:
                action = uniform[step, i]
            else:
                x = obs[i]
                for layer in actor[:-1]:
                    x = np.maximum(x @ layer["w"] + layer["b"], 0)
                mean, log_std = x @ actor[-1]["w"] + actor[-1]["b"]
                action = np.tanh(mean + np.exp(np.clip(log_std, -20, 2)) * normal[step, i])
            places[i], outcome = one_step(jax.random.wrap_key_data(keys[step, i]), places[i], 1 + 2 * action)
            after = jax.tree.map(np.asarray, outcome)
            rows.append([*obs[i], *action, after.reward, *after.obs, float(after.terminated)])
            obs[i], ret[i] = after.obs, ret[i] + after.reward
            if after.terminated or after.truncated:
                finished.append((*np.asarray(places[i].task.context), ret[i]))
                task = queue.pop(0)
                places[i], obs[i], ret[i] = *jax.tree.map(np.asarray, Seek().reset(Task(*task))), 0.0
    return np.array(rows, np.float32), finished


def test_an_iteration_is_what_a_slow_version_does():
    """Actions at random in the first and the policy's in the next; then the updates, with the same keys."""
    for t, before, after, _ in played_by_hand(3):
        for s in (0, 1):
            one, then = (jax.tree.map(lambda x, s=s: x[s], carry) for carry in (before, after))
            rows, finished = slow_rows(one, t, seed=s)
            start = t * SMALL.n_steps
            places = (start + np.arange(SMALL.n_steps)) % SMALL.capacity
            buffer = then.student.trainee.buffer
            np.testing.assert_allclose(buffer.rows[places], rows, atol=1e-5)
            assert buffer.added == start + SMALL.n_steps
            k_update, _ = noise_of(jax.random.key(s), t)[3]
            n = SMALL.n_steps // SMALL.every
            expected, _ = sac.learn(one.student.trainee.student, buffer, n, k_update, SMALL)
            for x, y in zip(*map(jax.tree.leaves, (expected, then.student.trainee.student)), strict=True):
                np.testing.assert_allclose(x, y, atol=1e-5)
            if t < 2:  # the third iteration ends in a fit, which forgets them
                fresh = then.student.returns.recorded - one.student.returns.recorded
                kept = [*then.student.returns.context.T, then.student.returns.ret]
                kept = np.stack(kept, axis=1)[one.student.returns.recorded :][:fresh]
                assert fresh == len(finished) > 3
                np.testing.assert_allclose(sorted(kept.tolist()), sorted(finished), atol=1e-4)
    assert ({*rows[:, -1]}, t) == ({0.0, 1.0}, 2), "both kinds of end must have been seen"


@pytest.mark.parametrize("learn_entropy", [True, False])
def test_the_iteration_is_compiled_once(learn_entropy):
    """It returns the types that it is given, all of them strong: the engine compiles it ahead for such."""
    config = Config(sac=dataclasses.replace(SMALL, learn_entropy=learn_entropy))
    world, key = (Seek(), procurl.make_teacher("iid", space())), jax.random.key(0)
    begun = jax.eval_shape(lambda key, world: loop.begin(key, *world, config), key, world)
    iterated = jax.eval_shape(lambda c, key, world: loop.iteration(c, key, 0, *world, config), begun, key, world)
    assert avals(begun) == avals(iterated[0])
    assert [name for name, (_, _, is_weak) in avals(begun).items() if is_weak] == []


def test_values_are_fitted_when_it_is_time():
    """At 192 and 320 steps, as for environments on the host; the teacher's values follow in the next iteration."""
    known, recorded, lows = [], [], []
    for _, _, after, trace in played_by_hand(6):
        known.append(int(after.student.returns.model.known[0]))
        recorded.append(int(after.student.returns.recorded[0]))
        lows.append(trace.place.value[0] == -15.0)
    assert known == [0, 0, 1, 1, 1, 1] and [n == 0 for n in recorded] == [False, False, True, False, True, False]
    assert lows == [True, True, True, False, False, False], "before the first fit: the smallest return everywhere"
    scored = np.asarray(after.teacher.scored)
    assert scored.any(), "and PLR has its scores from them"


@pytest.mark.parametrize(
    ("first_fit", "fit_every", "expected"),
    [(192, 128, [2, 4, 6, 8]), (1, 1, range(10)), (100, 1000, [1]), (65, 200, [1, 4, 7]), (64, 64, range(10))],
)
def test_fits_are_due_as_on_the_host(first_fit, fit_every, expected):
    config = dataclasses.replace(SMALL, first_fit=first_fit, fit_every=fit_every)
    due = jax.jit(lambda t: returns.is_due(t, config))(np.arange(10))
    assert np.flatnonzero(due).tolist() == list(expected)
    fits, on_host = 0, []
    for t in range(10):
        if (t + 1) * SMALL.n_steps >= first_fit + fits * fit_every:
            fits, on_host = fits + 1, [*on_host, t]
    assert list(expected) == on_host


# --- values from returns ----------------------------------------------------------------------------------------------


def ended(context, ret, finished):
    n = len(ret)
    blank = np.zeros(n, np.float32)
    return Episodes(Task(context, np.zeros(n, np.int32), np.full(n, -1, np.int32)), ret, *[blank] * 6, finished)


def episodes_at_random(n, seed):
    rng = np.random.default_rng(seed)
    context = rng.uniform([-1, 0], [1, 1], (n, 2)).astype(np.float32)
    ret = (-5 * np.abs(context[:, 0]) - context[:, 1]).astype(np.float32)
    return ended(context, ret, rng.random(n) < 0.5)


record, fitted = jax.jit(returns.record), jax.jit(returns.fitted)


@cache
def nothing_known():
    return jax.jit(lambda key: returns.begin(key, space(), SMALL))(jax.random.key(0))


def test_a_fit_on_the_device_is_return_regressors(monkeypatch):
    """From the same weights and in the same order of episodes."""
    given = episodes_at_random(120, seed=0)
    known = record(nothing_known(), given)
    contexts, rets = given.task.context[given.finished], given.ret[given.finished]
    n = len(rets)
    assert int(known.recorded) == n
    np.testing.assert_array_equal(known.context[:n], contexts)

    k_order, k_layers = jax.random.split(jax.random.key(7))
    drawn = np.asarray(jax.random.uniform(k_order, known.ret.shape))
    fresh = nets.init_layers(k_layers, regressor.widths(space()))
    host = procurl.ReturnRegressor(space(), every=None, scale=False)
    for context, ret in zip(contexts, rets, strict=True):
        host.record(context, ret)

    class InThisOrder:
        def permutation(self, size):
            return np.argsort(drawn[:size])

    monkeypatch.setattr(np.random, "default_rng", lambda *a: InThisOrder())
    monkeypatch.setattr(nets, "init_layers", lambda *a: fresh)
    host.fit()
    monkeypatch.undo()
    after = fitted(known, jax.random.key(7))
    tasks = episodes_at_random(200, seed=1).task
    np.testing.assert_allclose(after.model.value(tasks), host(tasks), atol=2e-3)
    error = after.model.value(tasks) - episodes_at_random(200, seed=1).ret
    assert np.std(error) < 0.5 * np.std(episodes_at_random(200, seed=1).ret), "and it has learnt something"
    assert int(after.recorded) == 0 and float(after.model.known) == 1


def test_the_oldest_episodes_make_room():
    assert nothing_known().ret.shape == (
        256,
    )  # no fit can see more than 192 + 64 steps, and a step is an episode at most
    known = nothing_known()._replace(context=np.zeros((16, 2), np.float32), ret=np.zeros(16, np.float32))
    for first in range(0, 60, 12):  # wraps around, within an addition, too
        number = np.arange(first, first + 12, dtype=np.float32)
        given = ended(np.stack([number, -number], axis=1), number, number % 3 > 0)
        known = record(known, given)
    expected = [x for x in range(60) if x % 3][-16:]
    assert sorted(np.asarray(known.ret)) == expected and int(known.recorded) == 40
    np.testing.assert_array_equal(known.context, np.stack([known.ret, -known.ret], axis=1))
    flood = np.arange(100, 140, dtype=np.float32)  # more than there is room for, at once
    known = record(known, ended(np.stack([flood, flood], axis=1), flood, flood < 139))
    assert sorted(np.asarray(known.ret)) == list(range(123, 139))


def test_too_few_episodes_wait_for_the_next_fit():
    given = episodes_at_random(120, seed=0)
    first_four = given.finished & (np.cumsum(given.finished) <= 4)
    known = record(nothing_known(), given._replace(finished=first_four))
    after = fitted(known, jax.random.key(7))
    assert int(after.recorded) == 4 and float(after.model.known) == 0


# --- whole runs -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_seed_alone_equals_the_seed_in_company(whole):
    """Over two devices, with padding."""
    together = run(seeds=(1, 5, 7))
    assert_same_up_to_rounding(only(together, 0), only(whole, 1))


@pytest.mark.slow
def test_it_gets_better():
    """Far enough not to hang on rounding. That a task is learnt to the end takes longer: see the end of this file."""
    eager = dataclasses.replace(SMALL, lr=2e-2, gamma=0.9, tau=0.05, entropy=0.05)
    result = run(steps=64 * 64, config=dataclasses.replace(CONFIG, sac=eager))
    assert (result.ret[:, 0] < -6).all() and (result.ret[:, -1] > -3).all(), result.ret


def test_a_run_that_was_cut_goes_on_as_if_it_had_not_been(whole, tmp_path):
    """After every evaluation, in the middle of episodes: before and after the buffer is full and values are known."""
    for _ in range(4):
        cut = run(out=tmp_path / "run", save_share=1.0, callback=lambda progress: False)
    assert cut.status == "finished" and len(cut.timing["resumed_at_steps"]) == 3
    assert_same(cut, whole)
    assert_same(procurl.load_result(tmp_path / "run"), whole)


def test_a_seed_that_fails_leaves_the_others_alone(whole):
    """One instance of a task, which one seed meets: its reward is NaN."""
    victim = int(whole.trace["task_seed"][1, 4, 0])
    with_poison = run(env=Seek(poisoned=victim))
    assert [(f.seed, f.what, f.iteration) for f in with_poison.failures] == [(1, "reward", 4)]
    assert_same(only(with_poison, 0), only(whole, 0))
    assert np.isnan(with_poison.ret[1, -1])


def test_the_policy_is_evaluated_at_its_best_and_acts_alone(whole, tmp_path):
    """tanh(mean), in the environment's bounds: whoever loads the policy plays what training has played at its end."""
    policy = procurl.load_policy(whole.save(tmp_path / "run"), seed=1)
    assert set(whole.params) >= {"actor.0.w", "actor.1.b", "critics.0.0.w", "critics.1.1.b"}
    for i, expected in enumerate(whole.task_ret[1, -1]):
        task = Task(*(whole.held_out[k][i] for k in ("context", "seed", "row")))
        (place, obs), total, over = Seek().reset(task), 0.0, False
        while not over:
            place, outcome = one_step(jax.random.key(0), place, policy.predict(np.asarray(obs)))
            obs, total = outcome.obs, total + float(outcome.reward)
            over = bool(outcome.terminated | outcome.truncated)
        assert total == pytest.approx(expected, abs=1e-4)
    actions = policy.predict(np.zeros((500, 2), np.float32), deterministic=False)
    assert -1 <= actions.min() < 0 and 2 < actions.max() <= 3


def test_watching_and_precision_change_nothing_on_a_cpu(whole, tmp_path):
    assert_same(run(out=tmp_path / "run", time_teacher=True), whole)
    lowered = jax.jit(lambda s, b, k: sac.update(s, b, k, dataclasses.replace(SMALL, precision="bf16")))
    plain = jax.jit(lambda s, b, k: sac.update(s, b, k, SMALL))
    student = sac.init(jax.random.key(0), 2, 1, SMALL)
    batch = as_transitions(np.random.default_rng(0).normal(size=(16, 7)).astype(np.float32), 2)
    for x, y in zip(*(jax.tree.leaves(f(student, batch, jax.random.key(1))) for f in (lowered, plain)), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(("name", "said"), [("float32", "HIGHEST"), ("tf32", "tf32"), ("bf16", "bf16")])
def test_a_gpu_is_told_the_precision(name, said, monkeypatch):
    """Of the products of an update, and of nothing else. There need be no GPU to ask what it would be told."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    config = dataclasses.replace(SMALL, precision=name)
    student = jax.eval_shape(lambda k: sac.init(k, 2, 1, SMALL), jax.random.key(0))
    batch = as_transitions(np.zeros((16, 7), np.float32), 2)
    update = jax.jit(lambda s, b, k: sac.update(s, b, k, config))
    text = update.trace(student, batch, jax.random.key(1)).lower(lowering_platforms=("cuda",)).as_text()
    products = [line for line in text.splitlines() if "dot_general" in line]
    told = {"HIGHEST": "precision = [HIGHEST, HIGHEST]", "tf32": "= tf32", "bf16": "= bf16"}[said]
    assert len(products) > 10 and all(told in line for line in products)


@pytest.mark.parametrize("teacher", fast("plr", of=without("withholds")))
def test_every_strategy_teaches_it(teacher):
    fields = {"currot": {"n_particles": 16, "n_candidates": 5, "update_after": 4}}.get(teacher, {})
    given = procurl.make_teacher(teacher, space(), **fields)
    result = procurl.train(Seek(), given, CONFIG, seeds=(0, 1), steps=512)
    assert result.status == "finished" and (result.trace["started"] > 0).all()
    assert np.isfinite(result.task_ret).all()


def test_the_buffer_stays_where_it_is():
    """Each iteration writes into the memory of the last: a buffer of gigabytes is never copied."""
    engine = Engine(Seek(), procurl.make_teacher("plr", space()), CONFIG, (0, 1))
    carry, places = engine.begin(), set()
    for t in range(3):
        shards = carry.student.trainee.buffer.rows.addressable_shards
        places.add(tuple(shard.data.unsafe_buffer_pointer() for shard in shards))
        carry, _ = engine.iterate(carry, t)
    assert len(places) == 1


OWN = "from test_sac_loop import CONFIG, Seek, space\n\ndef setting():\n    return Seek(), space(), CONFIG\n"


@pytest.mark.slow
def test_the_command_line_trains_resumes_evaluates_and_draws_it(command, whole, tmp_path):
    from test_checkpoint import cut_after

    file, folder = tmp_path / "own.py", tmp_path / "run"
    file.write_text(OWN)
    own, plan = f"{file}:setting", ("--teacher", "plr", "--seeds", "2", "--steps", "512", "--out", folder, "--quiet")
    with pytest.MonkeyPatch.context() as patch:
        cut_after(patch, 3)
        assert command("train", own, *plan).returncode == 130
    done = command("resume", folder, "--env", own, "--quiet")
    assert done.returncode == 0, done.stderr
    assert_same(procurl.load_result(folder), whole)

    told = command("evaluate", folder, "--env", own, "--episodes", "1").stdout
    assert "deterministic policy" in told
    assert f"mean over tasks: {whole.ret[:, -1].mean():.3f}" in told, "it must play what training has played at its end"
    drawn = command("watch", folder, "--env", own, "--seed", "1", "--out", tmp_path / "film.gif")
    assert drawn.returncode == 0 and f"return {whole.task_ret[1, -1, 0]:.3f}" in drawn.stdout, drawn.stderr
    page = command("report", folder, "-o", tmp_path / "report.html")
    assert page.returncode == 0 and (tmp_path / "report.html").stat().st_size > 10_000, page.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("minigrid --student sac", r"MiniGrid has Discrete\(size=\d\): SAC expects Continuous actions"),
        ("point-mass-1t --student sac --set sac.n_envs=3", "sac.n_steps = 2000 is not divisible by sac.n_envs = 3"),
        ("point-mass-1t --student sac --set ppo.lr=1", "unknown option 'ppo.lr'. Did you mean sac.lr"),
        ("point-mass-1t --student sac --set sac.precision=tf23", "expected a value of type Literal"),
        ("point-mass-1t --student dqn", "invalid choice: 'dqn'"),
    ],
)
def test_the_command_line_names_what_is_wrong(command, arguments, message):
    done = command("train", *arguments.split())
    assert done.returncode in (1, 2) and re.search(message, done.stderr), done.stderr


def test_fields_of_sac_are_swept_with_a_program_for_each_value():
    teacher = procurl.make_teacher("iid", space())
    assert shapes_program("sac.lr", [{"sac.lr": 1e-3}, {"sac.lr": 1e-2}], Seek(), teacher, CONFIG)


# --- bad input --------------------------------------------------------------------------------------------------------


class Choosing(Seek):
    action = Discrete(3)


class Unbounded(Seek):
    action = Continuous(1, -np.inf, np.inf)


@pytest.mark.parametrize(("cls", "given"), [(Choosing, r"Discrete\(size=3\)"), (Unbounded, "low=-inf")])
def test_actions_that_fill_no_box_are_refused(cls, given):
    expected = f"{cls.__name__} has .*{given}.*: SAC expects Continuous actions within finite bounds. Leave Config.sac"
    with pytest.raises(ConfigError, match=expected):
        run(env=cls())


def test_worker_processes_are_refused():
    with pytest.raises(ConfigError, match="without worker processes"):
        run(workers=2)


def test_an_unknown_precision_is_refused():
    with pytest.raises(ConfigError, match="unknown sac.precision 'tf23'. Did you mean tf32"):
        SAC(precision="tf23")


# --- slow -------------------------------------------------------------------------------------------------------------

LEARNS = Config(
    sac=SAC(
        hidden=(32, 32), lr=3e-3, gamma=0.9, tau=0.02, batch_size=128, n_envs=16, n_steps=160, every=2, capacity=2000,
        start_steps=320, entropy=0.1, learn_entropy=True, first_fit=800, fit_every=800,
    ),
    evaluate_every=5,
)  # fmt: skip


@pytest.fixture(scope="module")
def learnt():
    return run("procurl-target", steps=3200, config=LEARNS)


@pytest.mark.exact
@pytest.mark.slow
def test_a_small_task_is_learnt(learnt):
    """Walking at full speed to the goal costs 0.9 or so, standing still in the wind 15."""
    assert (learnt.ret[:, 0] < -6).all() and (learnt.ret[:, -1] > -1.5).all()
    assert (learnt.trace["train_return"][:, -1] > -1.5).all()


@pytest.mark.exact
@pytest.mark.slow
def test_a_run_that_learns_goes_on_after_a_cut_as_if_it_had_not_been(learnt, tmp_path):
    """After every evaluation, in the middle of episodes: before and after the buffer is full and values are known."""
    for _ in range(4):
        cut = run(
            "procurl-target", steps=3200, config=LEARNS, out=tmp_path / "run", save_share=1.0,
            callback=lambda progress: False,
        )  # fmt: skip
    assert cut.status == "finished" and len(cut.timing["resumed_at_steps"]) == 3
    assert_same(cut, learnt)
    assert_same(procurl.load_result(tmp_path / "run"), learnt)
