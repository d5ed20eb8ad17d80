"""Gymnasium: our environments in its registry, and anybody's environment with tasks."""

import re
import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest
import stable_baselines3.common.env_checker as sb3_checker
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from probe import make_probe
from stable_baselines3.common.vec_env import DummyVecEnv

import procurl
from procurl.errors import ConfigError
from procurl.integrations.gymnasium import REGISTERED, TaskEnv, ended_tasks
from procurl.integrations.setting_env import to_jax
from procurl.types import Task

MODES = list(AutoresetMode)


# --- three environments of Gymnasium itself, with changed physics


def set_pole(env, context):
    """Length and mass of the pole; CartPole keeps products of these, which must follow."""
    cart = env.unwrapped
    cart.length, cart.masspole = float(context[0]), float(context[1])
    cart.polemass_length, cart.total_mass = cart.masspole * cart.length, cart.masspole + cart.masscart


def set_pendulum(env, context):
    env.unwrapped.g, env.unwrapped.l = float(context[0]), float(context[1])


def set_acrobot(env, context):
    env.unwrapped.LINK_LENGTH_1, env.unwrapped.LINK_MASS_2 = float(context[0]), float(context[1])


THEIRS = {  # id -> (apply, low, high, default)
    "CartPole-v1": (set_pole, [0.1, 0.05], [2.0, 1.0], [0.5, 0.1]),
    "Pendulum-v1": (set_pendulum, [1.0, 0.5], [20.0, 2.0], [10.0, 1.0]),
    "Acrobot-v1": (set_acrobot, [0.5, 0.5], [2.0, 3.0], [1.0, 1.0]),
}


def theirs(env_id, observe=True, **kwargs):
    apply, low, high, default = THEIRS[env_id]
    box = spaces.Box(np.float32(low), np.float32(high))
    return TaskEnv(gymnasium.make(env_id), box, apply, **({"default": default, "observe": observe} | kwargs))


def ours(env_id, **kwargs):
    return gymnasium.make(env_id, **kwargs)


ALL = [(ours, env_id) for env_id in REGISTERED] + [(theirs, env_id) for env_id in THEIRS]


@pytest.mark.parametrize(("make", "env_id"), ALL)
def test_both_checkers_pass(make, env_id):
    env = make(env_id)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(env if make is theirs else env.unwrapped, skip_render_check=make is theirs)  # theirs need pygame
        sb3_checker.check_env(env, skip_render_check=make is theirs)
    expected = ("different from the unwrapped", "symmetric and normalized", "infinity", "not having a spec")
    unexpected = [str(w.message) for w in caught if not any(text in str(w.message) for text in expected)]
    assert not unexpected


# --- every feature of every context matters


def trajectory(env, context, policy, steps=60, seed=3):
    """What happens, without the context that is part of the observation."""
    d = len(context)
    obs, info = env.reset(seed=seed, options={"context": context, "task_seed": 5})
    np.testing.assert_array_equal(obs[-d:], np.float32(context))
    out = [obs[:-d]]
    for t in range(steps):
        obs, reward, terminated, truncated, info = env.step(policy(t))
        np.testing.assert_array_equal(info["context"], np.float32(context))
        out.append(np.array([*obs[:-d], reward, terminated]))
        if terminated or truncated:
            break
    return np.concatenate([np.ravel(o) for o in out])


def differs(a, b):
    return a.shape != b.shape or not np.allclose(a, b, atol=1e-4)


def down(t):
    return np.float32([0.0, -8.0])


def up(t):
    return np.float32([0.0, 1.0])


SENSITIVE = [
    (ours, "procurl/PointMass-v0", down, [0.0, 0.5, 1.0], [1.0, None, 3.0]),
    (ours, "procurl/PointMass-v0", down, [1.0, 0.5, 1.0], [None, 8.0, None]),
    (ours, "procurl/Maze-v0", up, [-6.0, 6.0, 1.1], [6.0, -9.0, 0.05]),
    (theirs, "CartPole-v1", lambda t: t % 2, [0.5, 0.1], [1.5, 0.8]),
    (theirs, "Pendulum-v1", lambda t: np.float32([1.0]), [10.0, 1.0], [5.0, 1.5]),
    (theirs, "Acrobot-v1", lambda t: 2 * (t // 5 % 2), [1.0, 1.0], [1.5, 2.0]),
]


@pytest.mark.parametrize(("make", "env_id", "policy", "base", "changes"), SENSITIVE)
def test_every_context_feature_matters(make, env_id, policy, base, changes):
    env = make(env_id)
    plain = trajectory(env, base, policy)
    assert not differs(plain, trajectory(env, base, policy)), "the same task twice"
    for k, value in enumerate(changes):
        if value is not None:
            changed = [*base[:k], value, *base[k + 1 :]]
            assert differs(plain, trajectory(env, changed, policy)), f"context[{k}] changes nothing"
    assert not differs(plain, trajectory(env, base, policy)), "a task leaves something behind"


def test_all_features_are_in_the_list_above():
    for make, env_id in ALL:
        rows = [changes for m, i, _, _, changes in SENSITIVE if (m, i) == (make, env_id)]
        n = len(make(env_id).reset(seed=0)[1]["context"])
        assert all(any(row[k] is not None for row in rows) for k in range(n)), env_id


def test_a_feature_that_is_not_applied_would_be_noticed():
    env = theirs("Pendulum-v1")
    dead = TaskEnv(env.env, env.context_space, lambda e, c: set_pendulum(e, [c[0], 1.0]), observe=True)
    runs = [trajectory(dead, [10.0, length], lambda t: np.float32([1.0])) for length in (1.0, 1.5)]
    assert not differs(*runs)


# --- our environments equal their JAX originals, and many equal one


@pytest.mark.parametrize("setting", ["point-mass-1t", "maze-plane"])
def test_equals_the_jax_environment_step_for_step(setting):
    env_id = "procurl/PointMass-v0" if setting.startswith("point") else "procurl/Maze-v0"
    env, (original, space) = ours(env_id), procurl.make(setting)
    reset, ends = jax.jit(original.reset), 0
    step = jax.jit(lambda noise, t, state, action: original.step(jax.random.fold_in(noise, t), state, action))
    contexts = np.asarray(space.pool.context)
    for seed in range(3):
        context, task_seed = contexts[seed + 7], 100 + seed
        obs, info = env.reset(seed=seed, options={"context": context, "task_seed": task_seed})
        noise = jax.random.key(seeding.np_random(seed)[0].integers(2**32, dtype=np.uint32))
        state, expected = reset(Task(context, np.int32(task_seed), np.int32(-1)))
        np.testing.assert_array_equal(obs, expected)
        assert (info["task_seed"], info["task_row"]) == (task_seed, -1)
        rng = np.random.default_rng(seed)
        for t in range(env.unwrapped.setting.env.max_steps):
            action = rng.uniform(env.action_space.low, env.action_space.high).astype(np.float32)
            obs, reward, terminated, truncated, info = env.step(action)
            state, outcome = step(noise, t, state, action)
            outcome = jax.tree.map(np.asarray, outcome)
            np.testing.assert_allclose(obs, outcome.obs, rtol=1e-6, atol=1e-6)
            assert (reward, terminated, truncated) == (outcome.reward, outcome.terminated, outcome.truncated)
            assert info["is_success"] == outcome.success
            ends += terminated
            if terminated:
                break
    assert ends == 3


def test_the_noise_comes_from_the_seed_of_reset():
    env = ours("procurl/PointMass-v0")
    task = {"context": [0.0, 8.0, 1.0], "task_seed": 1}

    def play(seed):
        env.reset(seed=seed, options=task)
        return np.array([env.step(down(t))[0] for t in range(5)])

    np.testing.assert_array_equal(play(1), play(1))
    assert differs(play(1), play(2))
    first = play(1)
    env.reset(options=task)  # the next episode of the same seed has noise of its own
    assert differs(first, np.array([env.step(down(t))[0] for t in range(5)]))


@pytest.mark.exact
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "env_id", [i if i == "procurl/Maze-v0" else pytest.param(i, marks=pytest.mark.slow) for i in REGISTERED]
)
def test_many_equal_one_by_one(env_id, mode):
    """The same numbers and the same `info` as Gymnasium's own vectorisation of the single environment."""
    n, fields = 4, {"max_steps": 7}
    fast = gymnasium.make_vec(env_id, num_envs=n, autoreset_mode=mode, **fields)
    slow = SyncVectorEnv([lambda: gymnasium.make(env_id, **fields)] * n, autoreset_mode=mode)
    assert fast.metadata["autoreset_mode"] is mode
    for attribute in ("observation_space", "action_space", "single_observation_space", "single_action_space"):
        assert getattr(fast, attribute) == getattr(slow, attribute)
    rng, pool = np.random.default_rng(0), np.asarray(procurl.make(REGISTERED[env_id][1])[1].pool.context)
    ended, episodes, turn = np.zeros(n, bool), 0, 0
    compare(fast.reset(seed=11), slow.reset(seed=11))
    for turn in range(60):
        if rng.random() < 0.4:  # some episodes get a task in advance, others none
            tasks = [(pool[turn + i], 50 + i, turn + i) if rng.random() < 0.5 else None for i in range(n)]
            fast.set_attr("next_task", tasks)
            slow.set_attr("next_task", tasks)
        if mode is AutoresetMode.DISABLED and ended.any():
            compare(*(e.reset(options={"reset_mask": ended.copy()}) for e in (fast, slow)))
        actions = rng.uniform(fast.action_space.low, fast.action_space.high).astype(np.float32)
        ours_, theirs_ = fast.step(actions), slow.step(actions)
        compare(ours_, theirs_)
        ended = ours_[2] | ours_[3]
        episodes += ended.sum()
    assert episodes > 5 * n


def compare(a, b):
    *values, info = a
    *other_values, other_info = b
    for x, y in zip(values, other_values, strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)
    assert info.keys() == other_info.keys()
    assert data_equivalence({k: info[k] for k in sorted(info)}, {k: other_info[k] for k in sorted(info)}), (info, b[-1])


def test_jax_gets_copies():
    """It may use a NumPy array's memory for as long as it likes, and the vector environment writes into its arrays."""
    context, seed, row = np.zeros((4, 3), np.float32), np.zeros(4, np.int32), np.zeros(4, np.int32)
    for given, kept in zip((context, seed, row), to_jax(context, seed, row)[:3], strict=True):
        assert not np.shares_memory(given, kept)


def test_reset_of_many_with_tasks():
    envs = gymnasium.make_vec("procurl/Maze-v0", num_envs=3)
    contexts = np.float32([[1, 1, 1], [2, 2, 2], [3, 3, 3]])
    _, info = envs.reset(seed=1, options={"context": contexts, "task_seed": [4, 5, 6], "task_row": [7, 8, 9]})
    np.testing.assert_array_equal(info["context"], contexts)
    assert list(info["task_seed"]) == [4, 5, 6] and list(info["task_row"]) == [7, 8, 9]
    obs, info = envs.reset(options={"context": contexts[1], "task_seed": 4})  # one for all
    np.testing.assert_array_equal(info["context"], np.tile(contexts[1], (3, 1)))
    np.testing.assert_array_equal(obs, np.tile(obs[0], (3, 1)))
    obs[:] = 0  # what was given out is not what is kept
    assert envs.step(np.zeros((3, 2), np.float32))[0].any()


def test_tasks_that_nobody_named_come_from_the_chosen_set():
    space = procurl.make("maze-2g")[1]
    for tasks in ("pool", "targets", "held_out"):
        env = ours("procurl/Maze-v0", setting="maze-2g", tasks=tasks)
        infos = [env.reset(seed=1)[1], *(env.reset()[1] for _ in range(30))]
        contexts = np.asarray(getattr(space, tasks).context)
        found = [np.flatnonzero((contexts == i["context"]).all(axis=1)) for i in infos]
        assert all(len(f) for f in found) and len({int(f[0]) for f in found}) > 20
        assert len({i["task_seed"] for i in infos}) == 31, "fresh starts"
        if tasks == "pool":
            assert all(i["task_row"] in f for i, f in zip(infos, found, strict=True))
        assert data_equivalence(infos[0], env.reset(seed=1)[1])


def test_module_name_in_the_id_and_an_import_without_jax():
    code = "import sys, procurl.integrations.gymnasium; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    code = "import gymnasium; print(gymnasium.make('procurl.integrations.gymnasium:procurl/Maze-v0').reset(seed=0)[0])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith("["), done.stderr


def test_without_gymnasium_the_extra_is_named():
    code = "import sys; sys.modules['gymnasium'] = None; import procurl.integrations.gymnasium"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "pip install 'procurl[gymnasium]'" in done.stderr


# --- the episode is recorded under the task it was played with


def vector_of_probes(kind, mode, n):
    if kind is AsyncVectorEnv:  # forking a process that has run JAX is not safe
        return AsyncVectorEnv([make_probe] * n, autoreset_mode=mode, context="forkserver")
    return SyncVectorEnv([make_probe] * n, autoreset_mode=mode)


def play_probes(envs, mode, read, steps=60):
    """Every task has a level of its own. Returns per worker (recorded context, true level), and the tasks given."""
    n, levels = envs.num_envs, iter(range(1, 10_000))
    given, played = [[] for _ in range(n)], [[] for _ in range(n)]

    def pick(i):
        given[i].append(next(levels))
        return np.float32([given[i][-1]]), given[i][-1] + i

    envs.set_attr("next_task", [pick(i) for i in range(n)])
    envs.reset()
    envs.set_attr("next_task", [pick(i) for i in range(n)])
    total, length, ended = np.zeros(n), np.zeros(n, int), np.zeros(n, bool)
    for _ in range(steps):
        restarting = ended & (mode is AutoresetMode.NEXT_STEP)
        _, reward, terminated, truncated, infos = envs.step(np.zeros(n, int))
        total, length, ended = total + reward, length + ~restarting, terminated | truncated
        for i in np.flatnonzero(ended):
            played[i].append((read(ended, infos, i), total[i] / length[i]))
            total[i], length[i] = 0.0, 0
        if mode is AutoresetMode.DISABLED and ended.any():
            envs.reset(options={"reset_mask": ended.copy()})
        envs.set_attr("next_task", [pick(i) if e else None for i, e in enumerate(ended)])
    envs.close()
    assert sum(len(p) for p in played) > 10 * n
    return played, given


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
@pytest.mark.parametrize("mode", MODES)
def test_an_episode_is_recorded_under_the_task_it_was_played_with(kind, mode):
    envs = vector_of_probes(kind, mode, 3)
    played, given = play_probes(envs, mode, lambda ended, infos, i: ended_tasks(ended, infos)[i].context[0])
    for episodes, tasks in zip(played, given, strict=True):
        recorded = [r for r, _ in episodes]
        assert recorded == [truth for _, truth in episodes]
        assert len(set(recorded)) == len(recorded), "each task is played once"
        if mode is AutoresetMode.NEXT_STEP:  # the task given at the end of an episode still replaces the one before
            assert recorded == [tasks[0], *tasks[2 : len(recorded) + 1]]
        else:
            assert recorded == tasks[: len(recorded)], "from the first episode on"


def test_the_test_above_catches_the_off_by_one():
    """At the end of an episode the released code stores the context that the automatic reset has put in its place."""
    mode = AutoresetMode.SAME_STEP
    played, _ = play_probes(vector_of_probes(SyncVectorEnv, mode, 3), mode, lambda _, infos, i: infos["context"][i, 0])
    assert all(recorded != truth for episodes in played for recorded, truth in episodes)


def test_many_of_ours_are_recorded_under_the_right_task():
    """The same for the vectorised environments: the friction that the mass felt is the friction in the record."""
    for mode in MODES:
        envs = gymnasium.make_vec("procurl/PointMass-v0", num_envs=3, autoreset_mode=mode, max_steps=4, noise=0.0)
        frictions, n_episodes = iter(np.linspace(0.1, 4.0, 100)), 0

        def pick(frictions=frictions):
            return np.float32([0.0, 8.0, next(frictions)]), 0, -1

        envs.set_attr("next_task", [pick() for _ in range(3)])
        envs.reset(seed=0)
        envs.set_attr("next_task", [pick() for _ in range(3)])
        for _ in range(30):
            obs, *_, terminated, truncated, infos = envs.step(np.tile(np.float32([5.0, 0.0]), (3, 1)))
            ended = terminated | truncated
            for i, task in ended_tasks(ended, infos).items():
                final = infos["final_obs"][i] if mode is AutoresetMode.SAME_STEP else obs[i]
                speed = 0.0
                for _ in range(40):
                    speed += 0.01 * (7.5 - task.context[2] * speed)
                np.testing.assert_allclose(final[1], speed, rtol=1e-4)
                n_episodes += 1
            if mode is AutoresetMode.DISABLED and ended.any():
                envs.reset(options={"reset_mask": ended})
            envs.set_attr("next_task", [pick() if e else None for e in ended])
        assert n_episodes >= 15


def test_stable_baselines3_vector_environments():
    """They reset within the step, too; the step's own info is the ended episode's."""
    envs = DummyVecEnv([make_probe] * 3)
    for i in range(3):
        envs.env_method("set_next_task", [10.0 * (i + 1)], 3, indices=[i])
    assert list(envs.reset()[:, 0]) == [10, 20, 30]
    for i in range(3):
        envs.env_method("set_next_task", [10.0 * (i + 1) + 1], 3, indices=[i])
    for step in range(4):
        obs, reward, done, infos = envs.step([0, 0, 0])
        assert list(reward) == [10, 20, 30] == [info["context"][0] for info in infos]
        assert done.all() == (step == 3)
    assert list(obs[:, 0]) == [11, 21, 31]
    assert [info["context"][0] for info in envs.reset_infos] == [11, 21, 31]


# --- what TaskEnv does with contexts, seeds and observations


def test_where_the_next_task_comes_from():
    env = make_probe()
    with pytest.raises(ConfigError, match="reset without a task.*default"):
        env.reset()
    tasks = env.get_wrapper_attr("set_next_task")
    tasks([5.0], 7, 3)
    obs, info = env.reset(options={"context": [1.0], "task_seed": 2})  # options first
    assert (obs[0], info["context"], info["task_seed"], info["task_row"]) == (1.0, [1.0], 2, -1)
    obs, info = env.reset()  # then the one that lies ready, with seed and row
    assert (obs[0], info["context"], info["task_seed"], info["task_row"]) == (5.0, [5.0], 7, 3)
    seeds = {env.reset()[1]["task_seed"] for _ in range(20)}  # then the same context, each time another instance
    obs, info = env.reset(seed=9)
    assert len(seeds) == 20 and (obs[0], info["task_seed"], info["task_row"]) == (5.0, 9, -1)
    tasks([6.0])
    assert env.get_wrapper_attr("next_task")[0] == [6.0]
    tasks([8.0])  # the second replaces the first
    _, _, _, _, info = env.step(0)
    assert info["context"] == [5.0], "the running episode keeps its task"
    assert env.reset()[0][0] == 8.0 and env.get_wrapper_attr("next_task") is None


def test_a_task_can_be_replayed_and_the_default_changes_nothing():
    env, bare = theirs("Pendulum-v1", observe=False), gymnasium.make("Pendulum-v1")
    np.testing.assert_array_equal(env.reset(seed=42)[0], bare.reset(seed=42)[0])
    _, info = env.reset()
    first, _ = env.reset(options={"context": info["context"], "task_seed": info["task_seed"]})
    env.reset(seed=1)
    again, _ = env.reset(seed=2, options={"context": info["context"], "task_seed": info["task_seed"]})
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("env_id", THEIRS)
def test_setting_the_next_task_leaves_the_running_episode_alone(env_id):
    def play(disturbed):
        env = theirs(env_id)
        out = [env.reset(seed=4)[0]]
        for t in range(8):
            if disturbed and t == 3:
                env.set_next_task(THEIRS[env_id][2], 1)
            out.append(env.step(env.action_space.high * 0 if env_id == "Pendulum-v1" else t % 2)[0])
        return np.array(out)

    np.testing.assert_array_equal(play(False), play(True))


def test_a_procurl_task_and_a_task_space_are_understood():
    space = procurl.make("point-mass-1t")[1]
    env = TaskEnv(ours("procurl/PointMass-v0"), space)  # it takes contexts itself: no apply
    task = jax.tree.map(lambda x: x[3], space.pool)
    env.next_task = task
    obs, info = env.reset(seed=0)
    np.testing.assert_array_equal(obs[4:], task.context)
    assert (info["task_seed"], info["task_row"]) == (int(task.seed), 3)
    with pytest.raises(ConfigError, match="gate_width = 9 lies outside"):
        env.reset(options={"context": [0.0, 9.0, 1.0]})


PICTURES = [
    spaces.Box(0, 255, (4, 4, 3), np.uint8),
    spaces.Box(0, 255, (4, 5), np.uint8),
    spaces.Box(0, 1, (3, 4, 4), np.float32),
    spaces.Box(0, 255, (2, 4, 4, 3), np.uint8),
]


@pytest.mark.parametrize(
    ("inner", "observe", "shape", "dtype"),
    [
        (spaces.Box(-1, 1, (2,), np.float64), True, (4,), np.float64),
        (spaces.Box(-1, 1, (2,), np.float64), "flat", (4,), np.float64),
        (spaces.Box(-1, 1, (2, 3)), True, (8,), np.float32),  # a matrix of numbers is no picture
        (PICTURES[0], "flat", (50,), np.float32),
    ],
)
def test_the_context_is_appended_to_a_box(inner, observe, shape, dtype):
    env = TaskEnv(Shows(inner), spaces.Box(np.float32([0, 0]), np.float32([5, 5])), lambda e, c: None, observe=observe)
    obs, _ = env.reset(options={"context": [1.5, 2.5]})
    assert obs in env.observation_space and obs.shape == shape and obs.dtype == dtype == env.observation_space.dtype
    assert list(obs[-2:]) == [1.5, 2.5] == list(env.step(0)[0][-2:])


@pytest.mark.parametrize("inner", [*PICTURES, spaces.Box(-1, 1, (2,), np.float64), spaces.Discrete(3)])
def test_the_context_beside_an_observation_that_stays_as_it_is(inner):
    box = spaces.Box(np.float32([0]), np.float32([5]))
    env = TaskEnv(Shows(inner), box, lambda e, c: None, observe="dict", default=[2])
    assert env.observation_space == spaces.Dict({"observation": inner, "context": box})
    for obs in (env.reset()[0], env.step(0)[0]):
        assert obs in env.observation_space and obs["context"] == [2]


@pytest.mark.parametrize("inner", PICTURES)
def test_a_context_is_not_appended_to_a_picture_unless_that_is_said(inner):
    with pytest.raises(ConfigError, match=r"is a picture, Box.*observe='dict', which keeps.*MultiInputPolicy.*'flat'"):
        TaskEnv(Shows(inner), spaces.Box(np.float32([0]), np.float32([5])), observe=True)


def test_the_context_in_a_dict_and_where_it_cannot_be_shown():
    box = spaces.Box(np.float32([0]), np.float32([5]))
    env = TaskEnv(Shows(spaces.Dict(a=spaces.Discrete(3))), box, lambda e, c: None, observe=True, default=[2])
    obs, _ = env.reset()
    assert obs in env.observation_space and obs["context"] == [2]
    inside = TaskEnv(Shows(spaces.Dict(a=spaces.Discrete(3))), box, observe="dict")
    assert inside.observation_space == env.observation_space, "a Dict gets no other around it"
    with pytest.raises(ConfigError, match="already has a key 'context': leave out observe=True"):
        TaskEnv(env, box, observe=True)
    with pytest.raises(ConfigError, match="observe = 'vector': expected False, True, 'dict' or 'flat'"):
        TaskEnv(Shows(spaces.Discrete(3)), box, observe="vector")
    with pytest.raises(ConfigError, match="Box or a Dict, not Discrete.*FlattenObservation"):
        TaskEnv(Shows(spaces.Discrete(3)), box, observe=True)


class Shows(gymnasium.Env):
    """Observations from any space."""

    action_space = spaces.Discrete(2)

    def __init__(self, observation_space):
        self.observation_space = observation_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {"options": options}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


WRONG = [
    ({"context": [0.0, 1.0]}, "shape (2,): expected (3,), which is (gate_position, gate_width, friction)"),
    ({"context": [[0.0, 1.0, 1.0]] * 4}, "shape (4, 3): expected"),
    ({"context": [0.0, np.nan, 1.0]}, "gate_width = nan lies outside [0.5, 8]"),
    ({"context": [0.0, 1.0, np.inf]}, "friction = inf lies outside"),
    ({"context": [0.0, 0.4, 1.0]}, "gate_width = 0.4 lies outside [0.5, 8]"),
    ({"context": ["a", 1.0, 1.0]}, "expected 3 numbers"),
    ({"contxt": [0.0, 1.0, 1.0]}, "unknown option of reset 'contxt'. Did you mean context?"),
    ({"task_seed": 3}, "options name task_seed but no context"),
    ({"context": [0.0, 1.0, 1.0], "task_seed": 1.5}, "task_seed = 1.5: expected an integer"),
    ({"context": [0.0, 1.0, 1.0], "task_seed": -3}, "task_seed = -3: expected an integer from 0"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_wrong_tasks_are_refused_with_a_clear_message(options, message):
    single = ours("procurl/PointMass-v0")
    wrapped = TaskEnv(single, procurl.make("point-mass-1t")[1])
    for env in (single, wrapped):
        with pytest.raises(ConfigError) as error:
            env.reset(options=options)
        assert message in str(error.value)
    many = gymnasium.make_vec("procurl/PointMass-v0", num_envs=2)
    with pytest.raises(ConfigError):
        many.reset(options=options)
    if "context" in options and "expected 3" not in message:
        with pytest.raises(ConfigError):
            wrapped.set_next_task(*options.values())


def test_rounding_is_not_an_error_and_stays_in_the_observation_space():
    env = ours("procurl/PointMass-v0")
    obs, info = env.reset(options={"context": [4.00001, 0.49999, 0.0]})
    assert obs in env.observation_space and list(info["context"]) == [4.0, 0.5, 0.0]


def test_other_mistakes_have_clear_messages():
    box = spaces.Box(np.float32([0, 0]), np.float32([1, 1]))
    with pytest.raises(ConfigError, match="expected 2, one per dimension"):
        TaskEnv(Shows(box), box, names=["one"])
    with pytest.raises(ConfigError, match="outside"):
        TaskEnv(Shows(box), box, default=[0, 2])
    passes = TaskEnv(Shows(box), box, lambda e, c: None, default=[0, 1], pass_options=["low"])
    assert passes.reset(options={"low": 3})[1]["options"] == {"low": 3}
    with pytest.raises(ConfigError, match="unknown setting 'maze-1t'.*point-mass-1t"):
        ours("procurl/PointMass-v0", setting="maze-1t")
    with pytest.raises(ConfigError, match="unknown option of PointMass 'nois'. Did you mean noise"):
        ours("procurl/PointMass-v0", nois=0.0)
    with pytest.raises(ConfigError, match="unknown set of tasks"):
        ours("procurl/PointMass-v0", tasks="hard")
    env = ours("procurl/PointMass-v0")
    env.reset(seed=0)
    for action, message in [([1.0], "shape"), (np.float32([np.nan, 0.0]), "finite")]:
        with pytest.raises(ConfigError, match=message):
            env.unwrapped.step(action)
    many = gymnasium.make_vec("procurl/PointMass-v0", num_envs=2, autoreset_mode=AutoresetMode.DISABLED, max_steps=1)
    still = np.zeros((2, 2), np.float32)
    with pytest.raises(gymnasium.error.ResetNeeded):
        many.step(still)
    many.reset(seed=[1, None])
    many.step(still)
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"\[0 1\]"):
        many.step(still)
    for wrong in ({"seed": [1, 2, 3]}, {"options": {"reset_mask": np.zeros(2, bool)}}):
        with pytest.raises(ConfigError, match=r"expected"):
            many.reset(**wrong)
    with pytest.raises(ConfigError, match="3 tasks for 2"):
        many.set_next_tasks([None] * 3)
    with pytest.raises(ConfigError, match="only 'next_task'"):
        many.set_attr("noise", [1, 2])


# --- pictures


def test_pictures_show_the_task_and_the_path():
    env = ours("procurl/PointMass-v0", render_mode="rgb_array")
    env.reset(seed=0, options={"context": [2.0, 1.0, 0.0]})
    first = env.render()
    assert first.shape == (400, 400, 3) and first.dtype == np.uint8

    def brightness(x, y, frame=first, extent=4.3):
        return frame[int((extent - y) * 200 / extent), int((x + extent) * 200 / extent)].mean()

    assert brightness(0.0, 0.0) < 80 < 200 < brightness(2.0, 0.0), "wall and gate"
    red, green, _ = first[int(7.3 * 200 / 4.3), 200].astype(int)
    assert green > red, "the goal"
    for _ in range(4):
        env.step(np.float32([9.0, -3.0]))
    moved = env.render()
    assert np.abs(moved.astype(int) - first).sum() > 0
    pictures = [moved]
    for context in ([1.0, 1.0, 0.0], [2.0, 2.0, 0.0], [2.0, 1.0, 3.0]):
        env.reset(seed=0, options={"context": context})
        pictures.append(env.render())
    assert all((a != b).any() for i, a in enumerate(pictures) for b in pictures[:i])


def test_pictures_of_many():
    envs = gymnasium.make_vec("procurl/Maze-v0", num_envs=2, render_mode="rgb_array")
    singles = [ours("procurl/Maze-v0", render_mode="rgb_array") for _ in range(2)]
    task = {"context": [6.0, 6.0, 0.05]}
    envs.reset(seed=5, options=task)
    for i, env in enumerate(singles):
        env.reset(seed=5 + i, options=task)
    for t in range(3):
        action = np.float32([[1, t], [0, 1]])
        envs.step(action)
        for env, a in zip(singles, action, strict=True):
            env.step(a)
    for frame, env in zip(envs.render(), singles, strict=True):
        np.testing.assert_array_equal(frame, env.render())
    with pytest.raises(ConfigError, match="expected None or rgb_array"):
        gymnasium.make_vec("procurl/Maze-v0", render_mode="human")


def test_the_page_runs_as_printed():
    page = (Path(__file__).parent.parent / "docs/integrations/gymnasium.md").read_text()
    snippets = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(snippets) >= 4
    for snippet in snippets:
        exec(snippet, {})
