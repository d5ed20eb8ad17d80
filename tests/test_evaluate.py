"""Evaluation against a replay one episode at a time."""

import dataclasses
from argparse import Namespace
from functools import cache
from pathlib import Path

import jax
import numpy as np
import pytest

import procurl
from procurl.bench.evaluate import evaluate_run
from procurl.bench.report import tables
from procurl.cli.train import train_with_progress
from procurl.envs.point_mass import PointMass
from procurl.programs import jit
from procurl.runs import evaluation
from procurl.students import nets

OPTIONS = ("episodes", "deterministic", "fresh_seeds")
evaluate = jit(evaluation.evaluate, static_argnames=OPTIONS)  # in one program
made = cache(procurl.make)


def student(env, bias):
    """Its policy's last layer has this bias."""
    init = jax.jit(lambda key: nets.init_params(key, env.obs_size, env.action, (16,), (16,)))
    params = init(jax.random.key(0))
    params["log_std"] = np.full(env.action.size, 1.0, np.float32)
    params["policy"][-1]["b"] = np.float32(bias)
    return params


def first(tasks, n):
    return jax.tree.map(lambda x: np.asarray(x)[:n], tasks)


def test_a_deterministic_evaluation_equals_a_plain_loop():
    env, space = PointMass(noise=0.0), made("point-mass-1t")[1]
    params = student(env, [0.0, -1.5])  # falls towards the wall
    tasks = first(space.pool, 40)
    scores = evaluate(env, params, tasks, jax.random.key(0), deterministic=True)
    scores = jax.tree.map(np.asarray, scores)
    reset, step = jax.jit(env.reset), jax.jit(lambda *a: env.step(jax.random.key(9), a[0], nets.policy(params, a[1])))
    for i in range(40):
        state, obs = reset(jax.tree.map(lambda x, i=i: x[i], tasks))
        ret, length, done = 0.0, 0, False
        while not done:
            state, outcome = step(state, obs)
            obs, ret, length, done = outcome.obs, ret + float(outcome.reward), length + 1, bool(outcome.terminated)
        assert (float(scores.ret[i]), float(scores.length[i])) == (ret, length)
        assert float(scores.success[i]) == ret
    assert len(np.unique(scores.length)) > 5, "episodes must have ended at different times"


def test_episodes_are_averaged_per_task():
    env, space = made("point-mass-1t")
    tasks, params = first(space.pool, 3), student(env, [0.0, -1.5])
    scores = evaluate(env, params, tasks, jax.random.key(0), episodes=50)
    assert scores.ret.shape == (3,) and scores.length.shape == (3,)
    assert (np.asarray(scores.length) % 1 != 0).any(), "a mean over noisy episodes is no whole number"
    again = evaluate(env, params, tasks, jax.random.key(0), episodes=50)
    np.testing.assert_array_equal(scores.length, again.length)


@pytest.mark.parametrize("fresh", [False, True])
def test_fresh_seeds_vary_the_start_of_the_maze(fresh):
    """Without noise in the maze, a deterministic student repeats itself unless the start varies."""
    env, space = made("maze-plane")
    tasks, params = first(space.pool, 30), student(env, [0.5, 0.5])
    scores = evaluate(env, params, tasks, jax.random.key(0), episodes=20, deterministic=True, fresh_seeds=fresh)
    varies = (np.asarray(scores.length) % 1 != 0).any()
    assert varies == fresh


def test_a_single_seed_has_no_error(capsys):
    """Neither NaN nor a plus and minus before nothing: the mean alone."""
    two = procurl.load_result(Path(__file__).parent / "golden/0.1.0/finished")
    one = dataclasses.replace(
        two, seeds=two.seeds[:1], task_ret=two.task_ret[:1], task_success=two.task_success[:1],
        trace={k: v[:1] for k, v in two.trace.items()}, params={k: v[:1] for k, v in two.params.items()},
    )  # fmt: skip
    for result, has_error in ((one, False), (two, True)):
        plan = {"out": None, "seeds": result.seeds}
        train_with_progress("tiny", Namespace(quiet=True, log=None), lambda result=result, **_: result, **plan)
        said = [capsys.readouterr().out, tables.comparison({"iid": result}), evaluate_run(result, 1, False)]
        assert [("+-" in text, "nan" in text) for text in said] == [(has_error, False)] * 3
    assert "IID, 2 seeds, 1 episodes per task" in said[2] and "(standard error over seeds)" in said[2]
