"""`CurriculumVectorEnv`: a curriculum for Gymnasium's vector environments."""

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from probe import member
from test_sb3 import Spy

import procurl
from procurl.errors import ConfigError
from procurl.integrations.gymnasium import TaskEnv, first_observations
from procurl.integrations.vector import CurriculumVectorEnv

MODES = list(AutoresetMode)


@pytest.fixture(scope="module")
def space():
    """Two tasks only: often the same one is played twice at once."""
    pool = [[0.2, 0.3], [0.7, 0.9]]
    return procurl.task_space([0.0, 0.0], [1.0, 1.0], ["a", "b"], target=[1.0, 1.0], pool=pool, fresh_seeds=False)


def play(envs, curriculum, steps, mode, value=None):
    envs.reset(seed=0)
    own_steps = 0
    over = np.zeros(envs.num_envs, bool)
    for t in range(steps):
        if mode is AutoresetMode.DISABLED and over.any():
            envs.reset(options={"reset_mask": over})
        restarts = over if mode is AutoresetMode.NEXT_STEP else np.zeros(envs.num_envs, bool)
        _, _, terminated, truncated, _ = envs.step(envs.action_space.sample())
        over = terminated | truncated
        own_steps += int((~restarts).sum())
        if t % 16 == 15:
            envs.observe(value)
    return own_steps


@pytest.mark.parametrize("mode", MODES, ids=[m.value for m in MODES])
@pytest.mark.parametrize(
    "vector", [SyncVectorEnv, partial(AsyncVectorEnv, context="forkserver")], ids=["sync", "async"]
)
@pytest.mark.filterwarnings("error:.*os.fork.*")
def test_every_episode_is_recorded_under_its_own_context(space, mode, vector):
    curriculum = Spy(procurl.IID(space), every=48, n_envs=3)
    make = partial(member, Box(0.0, 1.0, (2,)))  # not the space, for which a worker would load JAX
    envs = CurriculumVectorEnv(vector([make] * 3, autoreset_mode=mode), curriculum)
    steps = play(envs, curriculum, 160, mode)
    envs.close()
    finished = [(t, o) for t, o in curriculum.recorded if o.get("finished", True)]
    assert len(finished) > 60 and all(np.isclose(o["ret"], t.context.sum()) for t, o in finished)
    # nothing is lost and nothing counted twice: the steps of all episodes are the steps that were played
    running = sum(int(n) for n in envs._length)
    assert sum(o["length"] for _, o in finished) + running == steps
    assert steps // 64 <= curriculum.updates <= steps // 48


def test_our_own_vector_environments_and_values():
    space = procurl.make("point-mass-1t")[1]
    envs = gymnasium.make_vec("procurl/PointMass-v0", num_envs=4, vectorization_mode="vector_entry_point")
    curriculum = procurl.Curriculum(procurl.make_teacher("procurl-target", space), every=200, n_envs=4)
    envs = CurriculumVectorEnv(envs, curriculum)
    play(envs, curriculum, 160, AutoresetMode.NEXT_STEP, value=lambda tasks: tasks.context[:, 1] / 8)
    assert curriculum.updates >= 2


def test_first_observations(space):
    tasks = jax.tree.map(np.asarray, space.pool)
    obs = first_observations(member(space), tasks)
    assert obs.shape == (2, 4) and np.allclose(obs[:, 2:], tasks.context)


CANNOT = {
    "one program for all": (lambda: make_carts("vector_entry_point"), "CartPoleVectorEnv is one program for all"),
    "plain, in this process": (lambda: make_carts("sync"), "the members of this SyncVectorEnv take no tasks"),
    "plain, in others": (
        lambda: make_carts("async", vector_kwargs={"context": "forkserver"}),
        "the members of this AsyncVectorEnv take no tasks",
    ),
}


def make_carts(mode, **options):
    return gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode=mode, **options)


@pytest.mark.parametrize("which", CANNOT)
def test_what_cannot_take_tasks_is_refused_with_what_to_do(space, which):
    make, message = CANNOT[which]
    envs = make()
    with pytest.raises(ConfigError, match=rf"{message}.*TaskEnv: make .*SyncVectorEnv.*wrappers=\[lambda env: TaskEnv"):
        CurriculumVectorEnv(envs, procurl.Curriculum(procurl.IID(space), n_envs=2))
    envs.close()


def test_what_the_message_advises_works_and_so_does_a_wrapper_below(space):
    tasks = make_carts("sync", wrappers=[lambda env: TaskEnv(env, space, lambda env, context: None)])
    curriculum = procurl.Curriculum(procurl.IID(space), n_envs=2)
    envs = CurriculumVectorEnv(RecordEpisodeStatistics(tasks), curriculum)
    envs.reset(seed=0)
    infos = [envs.step(envs.action_space.sample())[-1] for _ in range(60)]
    assert any("episode" in info for info in infos) and curriculum.episodes.finished.sum() > 1


@pytest.mark.slow
def test_the_page_s_workers_raise_no_alarm_about_forks(tmp_path):
    """A fork of a process with JAX's threads can hang: JAX warns of it, and so does Python from 3.12 on."""
    page = (Path(__file__).parent.parent / "docs/integrations/gymnasium.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (script,) = [block for block in blocks if "AsyncVectorEnv(" in block]
    (tmp_path / "workers.py").write_text(script)
    strict = ["-W", "error:.*os.fork:RuntimeWarning", "-W", "error::DeprecationWarning:multiprocessing"]
    forked = tmp_path / "forked.py"
    forked.write_text(script.replace(', context="forkserver"', ""))
    started = [
        subprocess.Popen([sys.executable, *strict, path], stderr=subprocess.PIPE, text=True)
        for path in (tmp_path / "workers.py", forked)
    ]
    said, alarm = (process.communicate(timeout=120)[1] for process in started)
    assert started[0].returncode == 0 and not said, said
    assert "os.fork() was called" in alarm, "the test would notice"


def test_bad_use_is_refused(space):
    envs = SyncVectorEnv([lambda: member(space)] * 2)
    with pytest.raises(ConfigError, match="for 1 environments, this one has 2"):
        CurriculumVectorEnv(envs, procurl.Curriculum(procurl.IID(space)))
    ours = CurriculumVectorEnv(envs, procurl.Curriculum(procurl.IID(space), n_envs=2))
    with pytest.raises(ConfigError, match="the curriculum picks the tasks"):
        ours.reset(options={"context": [0.5, 0.5]})
    ours.reset()
    envs.reset()  # behind its back
    with pytest.raises(ConfigError, match="does somebody else reset it"):
        [ours.step(ours.action_space.sample()) for _ in range(8)]
