"""Runs as a whole: repeatable, the same alone and in company, honest about what went wrong."""

import dataclasses
import os
import subprocess
import sys
import textwrap
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import SMALL, Walk, assert_same, assert_same_up_to_rounding, fast, only, run, small_setting, walk_space

import procurl
from procurl import loop
from procurl.config import PPO, Config
from procurl.envs.point_mass import PointMass
from procurl.errors import ConfigError, SpaceError
from procurl.runs.engine import Engine
from procurl.runs.seeds import block_size
from procurl.students import nets, rollout
from procurl.types import Task


@pytest.mark.exact
@pytest.mark.parametrize("teacher", fast())
def test_the_same_seed_gives_bitwise_the_same_run(teacher):
    """Among the fast tests, test_checkpoint.py compares a run with one that began anew and was cut besides."""
    assert_same(run(teacher), run(teacher))


def avals(tree):
    """Shapes and types by name. A weak type (of Python numbers alone) is another one to JAX, so it is told, too."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): (x.shape, str(x.dtype), x.weak_type) for path, x in leaves}


VARIANTS = [
    ("procurl-target", {"pairing": "max"}), ("procurl-target", {"resample_targets": True}),
    ("procurl-unif", {"redraw_every": 100}), ("spdl", {"target": "uniform"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("setting", "teacher", "fields"),
    [("walk", teacher, {}) for teacher in sorted(procurl.TEACHERS)]
    + [("walk", teacher, fields) for teacher, fields in VARIANTS]
    + [(setting, "iid", {}) for setting in ("point-mass-1t", "maze-plane", "minigrid")],
)
def test_the_iteration_is_compiled_once(setting, teacher, fields):
    """It returns the types that it is given, all of them strong: the engine compiles it ahead for such."""
    env, space = (Walk(), walk_space()) if setting == "walk" else procurl.make(setting)
    world = env, procurl.make_teacher(teacher, space, **fields)
    key = jax.random.key(0)
    begun = jax.eval_shape(lambda key, world: loop.begin(key, *world, SMALL), key, world)
    after, _ = jax.eval_shape(lambda carry, key, world: loop.iteration(carry, key, 0, *world, SMALL), begun, key, world)
    assert avals(begun) == avals(after)
    assert [name for name, (_, _, is_weak) in avals(begun).items() if is_weak] == []


def test_seeds_differ():
    result = run()
    assert not np.array_equal(result.params["policy.0.w"][0], result.params["policy.0.w"][1])


@pytest.mark.slow
@pytest.mark.parametrize("teacher", sorted(procurl.TEACHERS))
def test_a_seed_alone_equals_the_seed_in_company(teacher):
    """Over two devices in blocks, with padding. Among the fast tests, test_guards.py has one of eleven on a walk."""
    assert_same_up_to_rounding(only(run(teacher, seeds=range(3, 14)), 10), run(teacher, seeds=[13]))


def test_blocks_of_seeds_are_small_and_leave_none_over():
    sizes = {n: block_size(n) for n in range(1, 200)}
    assert all(n % size == 0 for n, size in sizes.items())
    assert all(size <= 7 for n, size in sizes.items() if n % 2 == 0)
    assert [sizes[n] for n in (1, 3, 4, 10, 25, 11)] == [1, 3, 4, 2, 5, 11]


@pytest.mark.slow
def test_paper_sizes_alone_equal_company():
    """The same with the paper's network, batch and pool, for two iterations."""
    env, space = procurl.make("point-mass-1t")
    teacher = procurl.make_teacher("procurl-target", space)
    config = procurl.preset("point-mass-1t")
    together, alone = (procurl.train(env, teacher, config, seeds=s, steps=10_000) for s in ([4, 9, 11], [9]))
    assert_same_up_to_rounding(only(together, 1), alone)


def test_watching_or_not_never_alters_a_run(tmp_path):
    plain = run()
    watched = run(out=tmp_path / "run", callback=lambda progress: None, time_teacher=True)
    assert_same(plain, watched)


def test_steps_are_exact_and_round_up():
    result = run(steps=1500)  # 1500 / 256 -> 6 iterations
    np.testing.assert_array_equal(result.steps, [0, 512, 1024, 1536])
    assert result.trace["started"].shape == (2, 6)
    assert result.ret.shape == (2, 4) and result.task_ret.shape == (2, 4, 6)
    odd = run(steps=1100)
    np.testing.assert_array_equal(odd.steps, [0, 512, 1024, 1280])


def test_the_callback_sees_every_chunk_and_may_stop():
    seen = []

    def stop_at_the_second(progress):
        seen.append(progress)
        return len(seen) < 2

    result = run(callback=stop_at_the_second, time_teacher=True)
    assert [p.steps for p in seen] == [512, 1024] and seen[0].total_steps == 1536
    assert result.status == "stopped" and result.steps[-1] == 1024
    assert seen[1].teacher_share > 0 and seen[1].steps_per_second > 0 and seen[1].ret.shape == (2,)


def test_the_teacher_can_watch_after_the_update():
    before, after = run(), run(config=dataclasses.replace(SMALL, watch_after_update=True))
    np.testing.assert_array_equal(before.trace["task_row"][:, :2], after.trace["task_row"][:, :2])
    assert not np.array_equal(before.params["policy.0.w"], after.params["policy.0.w"])


def test_only_the_caller_traces(monkeypatch):
    """JAX's caches do not bear a second thread that traces: it adds to a dictionary that `jax.clear_caches` reads."""
    traced, compiled, step = [], [], PointMass.step

    def watched(self, *args):
        traced.append(threading.current_thread())
        return step(self, *args)

    monkeypatch.setattr(PointMass, "step", watched)
    monkeypatch.setattr(jax.stages.Lowered, "compile", lambda self: compiled.append(threading.current_thread()))
    env, space = small_setting()
    config = dataclasses.replace(SMALL, evaluation_episodes=7)  # of nobody else: nothing of it is traced yet
    engine = Engine(env, procurl.make_teacher("iid", space), config, (0, 1))
    engine.close()
    assert set(traced) == {threading.main_thread()}
    assert len(compiled) == 1 and compiled[0] is not threading.main_thread() and not compiled[0].is_alive()


class TestEpisodes:
    """The record that a rollout hands to the teacher, against a replay one environment at a time."""

    @pytest.fixture(scope="class", name="played")
    @staticmethod
    def _played():
        env, space = small_setting()
        config = PPO(n_steps=2048, n_envs=4, batch_size=64)
        params = nets.init_params(jax.random.key(0), 7, env.action, (16,), (16,))
        params["log_std"] = jnp.full(2, 2.0)  # wild enough to end many episodes
        queue = space.from_pool(jax.random.key(9), jnp.arange(2048) % 200)
        envs = rollout.begin(env, jax.tree.map(lambda x: x[-4:], queue))
        iterations = []
        for t in range(2):
            before = envs
            envs, steps, episodes = jax.jit(lambda e, k: rollout.play(env, params, e, queue, k, config))(
                envs, jax.random.key(t)
            )
            iterations.append((before, steps, episodes, envs))
        return queue, iterations

    def test_tasks_are_taken_in_order(self, played):
        queue, ((_, _, first, after), _) = played
        steps = np.asarray(first.steps)
        n_played = np.flatnonzero(steps).max() + 1
        assert (steps[:n_played] > 0).all() and (steps[n_played:] == 0).all() and n_played > 20
        assert steps.sum() == 2048
        np.testing.assert_array_equal(first.task.row[4:], queue.row)
        assert set(np.asarray(after.task.row)) <= set(np.asarray(first.task.row[: n_played + 4]))

    def test_observations_carry_the_context_of_the_recorded_task(self, played):
        """The off-by-one of the released code, which pairs a return with the next episode's context."""
        for before, steps, episodes, _ in played[1]:
            done_at = np.flatnonzero(np.asarray(episodes.finished))
            contexts = np.asarray(steps.obs)[..., 4:]
            counts = {}
            for t in range(contexts.shape[0]):
                for n in range(4):
                    counts[contexts[t, n].tobytes()] = counts.get(contexts[t, n].tobytes(), 0) + 1
            for i in np.flatnonzero(np.asarray(episodes.steps)):
                counts[np.asarray(episodes.task.context[i]).tobytes()] -= int(episodes.steps[i])
            assert set(counts.values()) == {0}
            assert len(done_at) > 20 and before.ret.shape == (4,)

    def test_running_episodes_go_on_in_the_next_iteration(self, played):
        _, ((_, _, first, between), (_, _, second, _)) = played
        np.testing.assert_array_equal(second.task.row[:4], between.task.row)
        np.testing.assert_array_equal(second.length[:4], between.length + second.steps[:4])
        np.testing.assert_array_equal(second.started[:4], between.length == 0)
        assert int(jnp.sum(first.started)) == int(jnp.sum(first.steps > 0)), "all began in the first iteration"
        assert not bool(jnp.any(first.finished & (first.steps == 0)))

    def test_returns_and_advantages_are_sums_over_the_episode(self, played):
        _, ((_, steps, episodes, _), _) = played
        finished = np.asarray(episodes.finished)
        assert (np.asarray(episodes.ret)[finished] == np.asarray(episodes.success)[finished]).all()
        weight = np.asarray(episodes.steps)
        assert np.sum(np.asarray(episodes.gae) * weight) == pytest.approx(float(jnp.sum(steps.advantage)), abs=1e-2)
        total = float(jnp.sum(jnp.abs(steps.advantage)))
        assert np.sum(np.asarray(episodes.abs_gae) * weight) == pytest.approx(total, rel=1e-4)


def moved(task: Task, k: int, value: float) -> Task:
    return task._replace(context=task.context.at[3, k].set(value))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: {"pool": moved(s.pool, 1, 99.0)}, r"pool task 3: gate_width = 99 lies outside \[0.5, 8\]"),
        (lambda s: {"targets": moved(s.targets, 0, -5.0)}, "targets task 3: gate_position = -5 lies outside"),
        (lambda s: {"held_out": moved(s.held_out, 2, jnp.nan)}, "held_out task 3: friction = nan lies outside"),
        (lambda s: {"pool": jax.tree.map(lambda x: x[:0], s.pool)}, "the pool is empty"),
        (lambda s: {"value_range": (1.0, 1.0)}, "expected .V_min, V_max., two numbers with V_min < V_max"),
        (lambda s: {"names": ("a", "b")}, "as there are names"),
        (lambda s: {"low": s.high, "high": s.low}, "expected finite bounds with low <= high"),
    ],
)
def test_a_contradictory_space_is_refused(change, message):
    env, space = small_setting()
    with pytest.raises(SpaceError, match=message):
        procurl.train(env, procurl.IID(dataclasses.replace(space, **change(space))), SMALL, seeds=1, steps=10)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PPO(n_steps=5120, n_envs=17), "not divisible by ppo.n_envs = 17"),
        (lambda: PPO(n_steps=5120, batch_size=100), "not divisible by ppo.batch_size = 100"),
        (lambda: PPO(epochs=0), "ppo.epochs = 0: expected at least 1"),
        (lambda: PPO(lr=float("nan")), "ppo.lr = nan"),
        (lambda: Config(evaluate_every=0), "evaluate_every = 0: expected at least 1"),
        (lambda: run(seeds=[]), "expected at least one seed"),
        (lambda: run(seeds=[1, 1]), "all different"),
        (lambda: run(seeds=[-1]), "seed = -1: expected at least 0"),
        (lambda: run(steps=0), "steps = 0: expected at least 1"),
        (lambda: procurl.preset("point-mass-9t"), "Did you mean"),
        (lambda: procurl.make("point-mass-1t", nois=0.0), "Did you mean noise"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.slow  # test_cli.py has a fast one
def test_ctrl_c_keeps_what_was_done(tmp_path):
    """A real SIGINT to a real process in the middle of training."""
    script = textwrap.dedent(
        """
        import os, signal, sys
        import procurl
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits "ignore"
        env, space = procurl.make("point-mass-1t")
        count = 0
        def interrupt_third(progress):
            global count
            count += 1
            if count == 3:
                os.kill(os.getpid(), signal.SIGINT)
        config = procurl.Config(ppo=procurl.PPO(n_steps=256, n_envs=8, batch_size=64, epochs=1), evaluate_every=1)
        try:
            procurl.train(env, procurl.IID(space), config, steps=10**9, out=sys.argv[1], callback=interrupt_third)
        except KeyboardInterrupt:
            print("interrupted")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "the handler is put back"
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "run")], capture_output=True, text=True, timeout=300,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert done.stdout.strip() == "interrupted" and done.returncode == 0, done.stderr
    result = procurl.load_result(tmp_path / "run")
    assert result.status == "interrupted" and len(result.steps) == 4
    assert result.trace["started"].shape[1] == 4
