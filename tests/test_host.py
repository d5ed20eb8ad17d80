"""Environments in worker processes: who plays what, values from returns, and runs that are cut or lose a worker."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from host_probe import PaysOnHost
from worlds import without

import procurl
from procurl import cli
from procurl.check.contracts import check_teacher
from procurl.config import SAC, Config
from procurl.errors import ConfigError, NonFiniteError, WorkerError
from procurl.runs.host import member
from procurl.runs.host.engine import HostEngine
from procurl.runs.provenance import describe, rebuilt
from procurl.students import sac

SMALL = SAC(
    hidden=(8,),
    batch_size=16,
    n_steps=64,
    n_envs=4,
    every=8,
    capacity=256,
    start_steps=64,
    first_fit=192,
    fit_every=128,
)
CONFIG = Config(sac=SMALL, evaluate_every=2)


@pytest.fixture(scope="module")
def space():
    return procurl.task_space(
        [0.0, 0.0], [1.0, 2.0], target=[1.0, 2.0], value_range=(0.0, 8.0), pool_size=32, n_held_out=3
    )


def teacher_of(name, space, **fields):
    return procurl.make_teacher(name, space, **fields)


def run(space, steps=512, env=None, teacher="procurl-target", seeds=(0, 1), workers=2, **options):
    given = teacher if not isinstance(teacher, str) else teacher_of(teacher, space)
    return procurl.train(env or PaysOnHost(), given, CONFIG, seeds=seeds, steps=steps, workers=workers, **options)


def assert_same_run(a, b):
    for part in ("steps", "task_ret", "task_success"):
        np.testing.assert_array_equal(getattr(a, part), getattr(b, part), err_msg=part)
    for name in ("trace", "params"):
        for key, x in getattr(a, name).items():
            np.testing.assert_array_equal(x, getattr(b, name)[key], err_msg=key)


@pytest.fixture(scope="module")
def whole(space):
    """For the tests that compare bits."""
    return run(space)


@pytest.fixture(scope="module")
def by_plr(space):
    """For all others, which play with PLR and two seeds: one world compiles."""
    return run(space, teacher="plr")


# --- playing ----------------------------------------------------------------------------------------------------------


def played_by_hand(teacher, seeds, workers, iterations):
    """After each iteration: the carry, and the episodes that the teacher has watched, as NumPy."""
    engine = HostEngine(PaysOnHost(), teacher, CONFIG, seeds, workers=workers)
    seen = []
    watch = engine._program.watch
    engine._program = engine._program._replace(
        watch=lambda keys, given, *rest: seen.append(jax.tree.map(np.asarray, given[1])) or watch(keys, given, *rest)
    )
    carry = engine.begin()
    for t in range(iterations):
        carry, _ = engine.iterate(carry, t)
        yield carry, seen[-1]
    engine.close()


def test_every_return_is_recorded_under_its_own_task(space):
    """`Pays` pays its context in every step and says by its seed how long it lasts: the record must agree."""
    finished = 0
    for _, e in played_by_hand(teacher_of("plr", space), (0, 5), workers=2, iterations=6):
        played = e.steps > 0
        assert (e.steps.sum(axis=1) == SMALL.n_steps).all()
        np.testing.assert_allclose(e.ret[played], (e.task.context[..., 0] * e.length)[played], rtol=1e-5)
        lasts = 3 + e.task.seed % 5
        assert (e.length[e.finished] == lasts[e.finished]).all() and (
            e.length[played & ~e.finished] < lasts[played & ~e.finished]
        ).all()
        assert (e.success[e.finished] == (e.task.seed % 3 == 0)[e.finished]).all()
        assert not (e.started & (e.length > e.steps)).any() and (e.started | (e.length > e.steps) | ~played).all()
        finished += e.finished.sum()
    assert finished > 2 * 6 * SMALL.n_steps / 8


def test_transitions_join_up(space):
    """What the student stores: the next observation is where the next step begins, ends are ends and cuts are not."""
    *_, (carry, _) = played_by_hand(teacher_of("plr", space), (3, 4), workers=1, iterations=3)
    buffer = jax.tree.map(lambda x: np.asarray(x)[0], carry.learner.buffer)
    assert int(buffer.added) == 3 * SMALL.n_steps and not buffer.rows[3 * SMALL.n_steps :].any()
    rows = buffer.rows[: 3 * SMALL.n_steps].reshape(3, SMALL.n_envs, -1, buffer.rows.shape[1])
    rows = np.concatenate(rows, axis=1)  # [members, steps, ...]
    obs, action, reward, following, terminated = np.split(rows, [3, 5, 6, 9], axis=-1)
    over = np.isin(obs[:, 1:, 0], 0)  # the next step is the first of an episode
    np.testing.assert_array_equal(obs[:, 1:][~over], following[:, :-1][~over])
    assert (terminated[:, :-1, 0][~over] == 0).all() and 0 < terminated[:, :-1, 0][over].mean() < 1
    assert (np.abs(action) <= 1).all() and action.min() < -0.5 and action.max() > 0.5
    assert ((reward >= 0) & (reward <= 1)).all()
    # what the environment was given is the action in its own bounds: [-2, 4]
    np.testing.assert_allclose(following[..., 1:], 1 + 3 * action, atol=1e-5)


def test_how_many_workers_play_changes_nothing(space, whole):
    assert_same_run(run(space, workers=1), whole)


def test_the_numpy_policy_is_the_students():
    student = jax.jit(lambda key: sac.init(key, 24, 4, SAC()))(jax.random.key(0))
    actor = jax.tree.map(np.asarray, student.networks.actor)
    rng = np.random.default_rng(0)

    @jax.jit
    def actions(obs, noise):
        most_likely = sac.act(student.networks, obs)
        return most_likely, sac.squashed(*sac._policy(student.networks.actor, obs), noise)[0]

    for _ in range(20):
        obs, noise = rng.normal(size=24).astype(np.float32), rng.normal(size=4).astype(np.float32)
        most_likely, sampled = actions(obs, noise)
        np.testing.assert_allclose(member.most_likely(actor, obs), most_likely, atol=2e-6)
        np.testing.assert_allclose(member.sampled(actor, obs, noise), sampled, atol=2e-6)


def test_evaluation_plays_every_held_out_task(by_plr):
    lasts = 3 + by_plr.held_out["seed"] % 5
    expected = by_plr.held_out["context"][:, 0] * lasts
    np.testing.assert_allclose(by_plr.task_ret, np.broadcast_to(expected, by_plr.task_ret.shape), rtol=1e-5)
    np.testing.assert_array_equal(by_plr.task_success[0, 0], by_plr.held_out["seed"] % 3 == 0)


# --- values from returns ----------------------------------------------------------------------------------------------


def test_values_are_fitted_when_it_is_time_and_score_plr(space):
    fits, before = [], None
    for carry, episodes in played_by_hand(teacher_of("plr", space), (0, 1), workers=1, iterations=6):
        episodes = jax.tree.map(lambda x: x[0], episodes)
        ended = episodes.finished
        assert np.isnan(episodes.gae[~ended]).all()
        if fits and fits[-1]:
            value = before.value(jax.tree.map(lambda x, ended=ended: x[ended], episodes.task))
            np.testing.assert_allclose(episodes.gae[ended], episodes.ret[ended] - value, rtol=1e-4, atol=1e-4)
        else:
            assert np.isnan(episodes.gae).all(), "nobody has an opinion before the first fit"
        fits.append(carry.values[0].fits)
        before = carry.values[0].model
    assert fits == [0, 0, 1, 1, 2, 2]  # at 192 and 320 steps
    assert np.asarray(carry.teacher.scored).any()


@pytest.mark.parametrize(
    "name",
    [
        "plr",  # its programs are here already
        *(
            pytest.param(t, marks=pytest.mark.slow)
            for t in ("currot", "gradient", "iid", "procurl-unif", "spdl", "target")
        ),
    ],
)
def test_other_strategies_train_too(space, name):
    result = run(space, teacher=name, steps=256, workers=1)
    assert result.status == "finished" and (result.trace["started"] > 0).all()


# --- a pool that is drawn anew ----------------------------------------------------------------------------------------


def test_a_redrawn_pool_keeps_the_contract(space):
    check_teacher(teacher_of("procurl-target", space, redraw_every=100))


def test_the_pool_is_redrawn_when_its_time_is_over(space):
    teacher = teacher_of("procurl-unif", space, redraw_every=100, beta=130.0)
    from procurl.check.teacher import CRITICS, imagined_episodes

    @jax.jit
    def iteration(state, t):
        tasks = teacher.propose(state, jax.random.key(t), 8)
        episodes = imagined_episodes(jax.random.key(t), tasks)
        episodes = episodes._replace(steps=jnp.zeros_like(episodes.steps).at[0].set(50))
        state = teacher.observe(state, jax.random.key(10 + t), episodes, CRITICS["mixed"])
        potential = procurl.teachers.procurl.learning_potential(
            CRITICS["mixed"].value(space.pool._replace(context=state.context)), space
        )
        return tasks, state, potential

    state = jax.jit(teacher.init)(jax.random.key(0))
    pools = [np.asarray(state.context)]
    for t in range(4):
        tasks, state, expected = iteration(state, t)
        assert (np.asarray(tasks.row) >= 0).all() == np.array_equal(pools[-1], space.pool.context)
        assert all(any(np.array_equal(c, p) for p in pools[-1]) for c in np.asarray(tasks.context))
        pools.append(np.asarray(state.context))
        np.testing.assert_allclose(state.inner.log_weights, teacher.teacher.beta * expected, rtol=1e-5)
    changed = [not np.array_equal(a, b) for a, b in itertools.pairwise(pools)]
    assert changed == [False, True, False, True]
    assert ((pools[-1] >= space.low) & (pools[-1] <= space.high)).all()


def test_only_strategies_that_forget_may_redraw(space):
    with pytest.raises(ConfigError, match="plr remembers its tasks"):
        teacher_of("plr", space, redraw_every=100)
    with pytest.raises(ConfigError, match="redraw_every = 0: expected at least 1"):
        teacher_of("iid", space, redraw_every=0)


def test_the_setting_is_made_again_from_its_description():
    env, space = procurl.make("bipedal", max_steps=50)
    teacher = procurl.make_teacher("procurl-target", space)
    described = describe(env, teacher, procurl.preset("bipedal"), (0, 1), 2000)
    assert described["teacher"]["class"] == "ProCuRLTarget" and described["teacher"]["redraw_every"] == 2_000_000
    again_env, again_teacher, again_config = rebuilt(described)
    assert describe(again_env, again_teacher, again_config, (0, 1), 2000) == described
    assert again_config == procurl.preset("bipedal")


# --- cut, killed, broken ----------------------------------------------------------------------------------------------


def test_a_run_that_was_cut_goes_on_as_if_it_had_not_been(space, whole, tmp_path):
    """Cut after every evaluation, in the middle of episodes; the number of workers changes on the way."""
    for workers in (1, 2, 2, 1):
        result = run(space, out=tmp_path / "run", workers=workers, save_share=1.0, callback=lambda progress: False)
        assert result.status in ("stopped", "finished")
    assert result.status == "finished" and len(result.timing["resumed_at_steps"]) == 3
    assert_same_run(result, whole)
    again = procurl.load_result(tmp_path / "run")
    assert_same_run(again, whole)


def test_a_worker_that_dies_is_reported_and_nothing_saved_is_lost(space, by_plr, tmp_path):
    with pytest.raises(WorkerError, match=r"worker \d \(process \d+\) was killed by SIGKILL while it played"):
        run(space, env=PaysOnHost(dies_at=90), teacher="plr", out=tmp_path / "run", save_share=1.0)
    from procurl.runs.store.checkpoint import load_checkpoint

    assert 0 < load_checkpoint(tmp_path / "run").steps_done < 512
    assert_same_run(run(space, teacher="plr", out=tmp_path / "run", workers=1), by_plr)


def test_what_goes_wrong_in_a_worker_is_told(space):
    with pytest.raises(WorkerError, match="the floor gave way"):
        run(space, env=PaysOnHost(fails_at=20), teacher="plr", workers=1)


def test_weights_that_are_not_finite_end_the_run(space):
    """Rewards as large as the contexts: their squares, in the loss, are no numbers any more."""
    larger = np.float32([1e25, 1])
    pool = space.pool._replace(context=np.asarray(space.pool.context) * larger)
    huge = dataclasses.replace(space, high=np.asarray(space.high) * larger, pool=pool)
    with pytest.raises(NonFiniteError, match="NaN or infinity in loss at iteration"):
        run(huge, teacher="plr", workers=1)


def test_wrong_pairings_are_refused(space):
    with pytest.raises(ConfigError, match="played on the host, where the student is SAC"):
        procurl.train(PaysOnHost(), teacher_of("iid", space), Config(), steps=64)
    env, its_space = procurl.make("point-mass-1t")
    with pytest.raises(ConfigError, match="without worker processes"):
        procurl.train(env, teacher_of("iid", its_space), Config(), steps=64, workers=2)
    with pytest.raises(ConfigError, match="workers = -1: expected at least 1"):
        run(space, workers=-1)
    with pytest.raises(ConfigError, match="n_steps = 65 is not divisible by sac.n_envs = 4"):
        dataclasses.replace(SMALL, n_steps=65)


# --- the walker itself ------------------------------------------------------------------------------------------------

WALK = [
    "sac.n_steps=200", "sac.n_envs=4", "sac.hidden=8", "sac.batch_size=32", "sac.capacity=2000",
    "sac.start_steps=200", "sac.first_fit=400", "sac.fit_every=400", "env.max_steps=24", "run.evaluate_every=2",
]  # fmt: skip


def command(*arguments):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("procurl.devices.use_cores", lambda *a, **k: None)  # JAX is already running here
        return cli.main([*arguments])


def walk(*options, steps="1200"):
    sets = [part for assignment in WALK for part in ("--set", assignment)]
    return command("train", "bipedal", "--steps", steps, "--quiet", *sets, *options)


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    pytest.importorskip("Box2D", reason="the walker needs the extra [box2d]")
    folder = tmp_path_factory.mktemp("walk") / "run"
    assert walk("--workers", "2", "--out", str(folder)) == 0
    return folder


@pytest.mark.slow
def test_a_walk_in_pieces_is_the_same_walk(walked, tmp_path, monkeypatch):
    """Through the command line, in Box2D: stopped in the middle of episodes, which are then played again."""
    from test_checkpoint import cut_after

    for iterations in (1, 2):
        cut_after(monkeypatch, iterations)
        assert walk("--workers", "1", "--out", str(tmp_path / "run")) == 130
        monkeypatch.undo()
    assert command("resume", str(tmp_path / "run"), "--workers", "2", "--quiet") == 0
    assert_same_run(procurl.load_result(tmp_path / "run"), procurl.load_result(walked))


def test_a_walk_is_evaluated_and_drawn(walked, tmp_path, capsys):
    result = procurl.load_result(walked)
    assert command("evaluate", str(walked), "--episodes", "1") == 0
    told = capsys.readouterr().out
    assert "deterministic policy" in told and told.count("\n") > 100
    assert f"mean over tasks: {result.ret[0, -1]:.3f}" in told, "it must play what training has played at its end"
    pytest.importorskip("matplotlib")
    assert command("plot", str(walked), "--out", str(tmp_path)) == 0
    assert (tmp_path / "bipedal-returns.png").stat().st_size > 10_000


def test_a_walks_policy_acts_alone(walked):
    policy, params = procurl.load_policy(walked), procurl.load_result(walked).params
    actor = [{k: params[f"actor.{i}.{k}"][0] for k in ("w", "b")} for i in range(2)]
    obs = np.random.default_rng(0).normal(size=(5, 24)).astype(np.float32)
    np.testing.assert_allclose(policy.predict(obs), [member.most_likely(actor, x) for x in obs], atol=2e-6)
    first, second = policy.predict(obs, deterministic=False), policy.predict(obs, deterministic=False)
    assert first.shape == (5, 4) and np.abs(first).max() <= 1 and not np.array_equal(first, second)
    with pytest.raises(ConfigError, match="expected \\(24,\\)"):
        policy.predict(np.zeros(7))


@pytest.mark.slow
@pytest.mark.parametrize("name", without("plays", "withholds"))
@pytest.mark.parametrize("variant", ["paper", "release"])
def test_every_strategy_walks(name, variant, tmp_path):
    pytest.importorskip("Box2D", reason="the walker needs the extra [box2d]")
    assert walk("--teacher", name, "--variant", variant, "--out", str(tmp_path / "run"), "--workers", "2") == 0
    result = procurl.load_result(tmp_path / "run")
    assert result.status == "finished" and result.task_ret.shape == (1, 4, 100) and np.isfinite(result.task_ret).all()


def test_stable_baselines3s_engine_refuses_the_walker(capsys):
    pytest.importorskip("stable_baselines3")
    assert command("train", "bipedal", "--engine", "sb3", "--steps", "2000") == 1
    assert "has PPO alone" in capsys.readouterr().err
