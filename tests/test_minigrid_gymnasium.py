"""MiniG on the public package, for Gymnasium: the same numbers as the JAX setting, and tasks as everywhere."""

import itertools
import subprocess
import sys
import warnings

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import stable_baselines3.common.env_checker as sb3_checker
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3.common.vec_env import DummyVecEnv

import procurl
from procurl.envs.minigrid import MiniGrid
from procurl.envs.minigrid.families import BITS, BLOCKED, DYNAMIC, FAMILIES, nearest_family
from procurl.envs.minigrid.grid import ROW, play
from procurl.envs.minigrid.pool import FAMILY_OF_SEED
from procurl.envs.minigrid.view import observe
from procurl.errors import ConfigError
from procurl.integrations.gymnasium import ended_tasks
from procurl.types import Task

pytest.importorskip("procurl.integrations.minigrid", reason="needs the minigrid package", exc_type=ImportError)
import minigrid_players as players

ID = "procurl/MiniG-v0"
by_family = pytest.mark.parametrize("family", range(6), ids=[f.name for f in FAMILIES])


def test_both_checkers_pass():
    env = gymnasium.make(ID, render_mode="rgb_array")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(env.unwrapped)
        sb3_checker.check_env(env)
    assert not [str(w.message) for w in caught if "different from the unwrapped" not in str(w.message)]


@jax.jit
def follow(state, action, balls):
    """A step of ours; where the balls went is the package's business."""
    moved = jnp.where(state.family == DYNAMIC, state.cells.at[:4].set(balls), state.cells)
    state, outcome = play(state, action, moved)
    return state, observe(state), outcome


reset = jax.jit(MiniGrid().reset)


@by_family
def test_pool_tasks_equal_the_jax_setting_step_for_step(family):
    env, rng, solved, length = gymnasium.make(ID), np.random.default_rng(family), 0, 0
    rows = np.flatnonzero(family == FAMILY_OF_SEED)[[0, 7, -1]]
    for row, player in zip(rows, (players.expert, players.clumsy(players.expert, 0.2), players.mischief), strict=True):
        obs, info = env.reset(options={"context": BITS[family], "task_seed": row, "task_row": row})
        state, expected = reset(Task(BITS[family], np.int32(row), np.int32(row)))
        np.testing.assert_array_equal(obs, expected)
        assert obs.dtype == np.float32 and (info["task_seed"], info["task_row"]) == (row, row)
        mission = env.unwrapped._missions[family]
        for _ in range(FAMILIES[family].max_steps):
            action = player(mission, rng)
            obs, reward, terminated, truncated, info = env.step(action)
            balls = [b.cur_pos[0] + ROW * b.cur_pos[1] for b in getattr(mission, "obstacles", [])] or [0] * 4
            state, expected, outcome = follow(state, action, np.int32(balls))
            expected, outcome = jax.tree.map(np.asarray, (expected, outcome))
            np.testing.assert_array_equal(obs, expected)
            assert (reward, terminated, truncated) == (outcome.success, outcome.terminated, outcome.truncated)
            assert info["is_success"] == outcome.success == (reward == 1.0)
            length += 1
            if terminated or truncated:
                break
        assert terminated or truncated
        solved += reward
    assert solved and length > 20


def test_any_skills_mean_the_nearest_family():
    env, rng = gymnasium.make(ID).unwrapped, np.random.default_rng(0)
    of_jax = jax.jit(nearest_family)
    for context in rng.random((40, 8), np.float32):
        obs, info = env.reset(options={"context": context, "task_seed": 3})
        bits = BITS[int(of_jax(context))]
        np.testing.assert_array_equal(obs[-8:], bits)
        np.testing.assert_array_equal(info["context"], bits)
    every = np.array(np.meshgrid(*[[0.0, 1.0]] * 8)).reshape(8, -1).T.astype(np.float32)
    np.testing.assert_array_equal(nearest_family(every), of_jax(every))  # NumPy as JAX
    with pytest.raises(ConfigError, match="door_unlocking = 2 lies outside"):
        env.reset(options={"context": [1, 0, 0, 0, 0, 2, 0, 0]})
    env.reset(seed=0)
    with pytest.raises(ConfigError, match="action = 7: expected an integer from 0 to 6"):
        env.step(7)


def test_tasks_that_nobody_named():
    env = gymnasium.make(ID)
    infos = [env.reset(seed=1)[1], *(env.reset()[1] for _ in range(40))]
    assert all(FAMILY_OF_SEED[i["task_row"]] == np.flatnonzero((i["context"] == BITS).all(axis=1)) for i in infos)
    assert all(i["task_seed"] == i["task_row"] for i in infos) and len({i["task_row"] for i in infos}) > 35
    assert env.reset(seed=1)[1]["task_row"] == infos[0]["task_row"]
    env = gymnasium.make(ID, tasks="targets")
    infos = [env.reset(seed=1)[1], *(env.reset()[1] for _ in range(10))]
    assert all((i["context"] == BITS[BLOCKED]).all() for i in infos) and len({i["task_seed"] for i in infos}) == 11


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_an_episode_is_recorded_under_the_task_it_was_played_with(mode):
    """Walking into a wall ends Dynamic Obstacles at once; the other members' episodes go on."""
    envs = SyncVectorEnv([lambda: gymnasium.make(ID)] * 3, autoreset_mode=mode)
    queue = iter(range(250, 500))

    def pick():
        row = next(queue)
        return BITS[DYNAMIC], row, row

    envs.set_attr("next_task", [pick() for _ in range(3)])
    first, _ = envs.reset(seed=0)
    envs.set_attr("next_task", [pick() for _ in range(3)])
    episode, recorded = [[o] for o in first], 0
    for t in range(60):
        actions = np.array([players.LEFT if t % 4 == i else players.FORWARD for i in range(3)])
        obs, _, terminated, truncated, infos = envs.step(actions)
        ended = terminated | truncated
        for i, task in ended_tasks(ended, infos).items():
            _, expected = reset(Task(task.context, np.int32(task.seed), np.int32(task.row)))
            np.testing.assert_array_equal(episode[i][0], expected)  # the ended episode began with this task
            recorded += 1
        if mode is AutoresetMode.DISABLED and ended.any():
            obs, _ = envs.reset(options={"reset_mask": ended})
        for i in range(3):
            begins = ended[i] if mode is not AutoresetMode.NEXT_STEP else False
            episode[i] = [obs[i]] if begins else [*episode[i], obs[i]]
            if mode is AutoresetMode.NEXT_STEP and ended[i]:
                episode[i] = []  # its first observation comes with the next step
        envs.set_attr("next_task", [pick() if e else None for e in ended])
    assert recorded > 15


def test_stable_baselines3_vector_environments():
    envs = DummyVecEnv([lambda: gymnasium.make(ID)] * 2)
    envs.env_method("set_next_task", BITS[DYNAMIC], 250, indices=[0])
    envs.env_method("set_next_task", BITS[BLOCKED], 917, indices=[1])
    np.testing.assert_array_equal(envs.reset()[:, -8:], BITS[[DYNAMIC, BLOCKED]])
    envs.env_method("set_next_task", BITS[BLOCKED], 918, indices=[0])
    envs.step([players.LEFT] * 2)  # now both look at a wall
    obs, _, done, infos = envs.step([players.FORWARD] * 2)
    assert list(done) == [True, False] and [i["task_seed"] for i in infos] == [250, 917]
    np.testing.assert_array_equal(obs[:, -8:], BITS[[BLOCKED, BLOCKED]])


def test_pictures():
    env = gymnasium.make(ID, render_mode="rgb_array")
    env.reset(options={"context": BITS[BLOCKED], "task_seed": 917})
    frame = env.render()
    assert frame.dtype == np.uint8 and frame.ndim == 3 and frame.std() > 10


WITHOUT_MINIGRID = """
import sys
class Absent:
    def find_spec(name, path, target=None):
        if name == "minigrid":
            raise ModuleNotFoundError("No module named 'minigrid'", name=name)
sys.meta_path.insert(0, Absent)
"""


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def test_imports_are_late_and_a_missing_package_names_its_extra():
    done = run("import sys, procurl.integrations.gymnasium; assert not {'jax', 'minigrid'} & set(sys.modules)")
    assert done.returncode == 0, done.stderr
    done = run(f"{WITHOUT_MINIGRID}\nimport gymnasium, procurl.integrations.gymnasium\ngymnasium.make('{ID}')")
    assert done.returncode == 1 and "MissingExtraError" in done.stderr
    assert "pip install 'procurl[minigrid]'" in done.stderr


def test_every_skill_but_navigation_matters():
    """Some context becomes another mission when one skill is asked for or not. Navigation is asked for everywhere."""
    project = jax.jit(procurl.make("minigrid")[1].project)
    contexts = np.array(list(itertools.product([0, 1], repeat=8)), np.float32)  # f32[256, 8]
    missions = np.asarray(project(contexts))
    for k in range(1, 8):
        flipped = contexts.copy()
        flipped[:, k] = 1 - flipped[:, k]
        assert (np.asarray(project(flipped)) != missions).any(), f"skill {k}"
