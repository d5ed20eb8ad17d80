"""The host shell offers what the engine offers, keeps its books, and comes back from a file as it was."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_teachers import SMALLER
from worlds import SMALL, fast, small_setting, without

import procurl
from procurl import loop
from procurl.errors import CheckpointError, ConfigError
from procurl.students import ppo, rollout
from procurl.students.critic import StudentCritic

CONFIG = dataclasses.replace(SMALL, ppo=dataclasses.replace(SMALL.ppo, n_envs=1))


def assert_trees_close(a, b):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), a, b)


@pytest.mark.parametrize(
    "name",
    fast("procurl-target", of=without("plays")),
)
def test_it_proposes_what_the_engine_proposes(name):
    """Algorithm 1 with its parts in plain sight; every episode is also recorded in a curriculum of the same seed."""
    env, space = small_setting()
    fields = {**SMALLER.get(name, {}), **({"update_after": 2} if name == "currot" else {})}
    teacher = procurl.make_teacher(name, space, **fields)
    key = jax.random.key(7)
    propose = jax.jit(lambda state, k: teacher.propose(state, k, CONFIG.ppo.n_steps))
    play = jax.jit(lambda s, e, t, k: rollout.play(env, s.params, e, t, k, CONFIG.ppo))
    watch = jax.jit(lambda state, k, episodes, p: teacher.observe(state, k, episodes, StudentCritic(env, p)))
    update = jax.jit(lambda s, played, k: ppo.update(s, played, k, CONFIG.ppo)[0])
    value = jax.jit(lambda params, tasks: StudentCritic(env, params).value(tasks))

    state, student, envs = jax.jit(lambda k: loop.begin(k, env, teacher, CONFIG))(key)
    curriculum = procurl.Curriculum(teacher, 7, every=CONFIG.ppo.n_steps)
    task = curriculum.next()
    for t in range(4):
        k_pick, k_play, k_learn, k_watch = jax.random.split(jax.random.fold_in(key, 2 * t + 1), 4)
        proposals = propose(state, k_pick)
        envs, played, episodes = play(student, envs, proposals, k_play)
        seen = jax.tree.map(np.asarray, episodes)
        for i in np.flatnonzero(seen.steps > 0):
            np.testing.assert_array_equal(task.context, seen.task.context[i])
            assert (task.seed, task.row) == (seen.task.seed[i], seen.task.row[i])
            curriculum.record(
                task, ret=seen.ret[i], length=seen.length[i], success=seen.success[i], advantage=seen.gae[i],
                abs_advantage=seen.abs_gae[i], finished=seen.finished[i],
            )  # fmt: skip
            if seen.finished[i]:
                task = curriculum.next()
        assert curriculum.due
        curriculum.observe(value=lambda tasks, params=student.params: value(params, jax.tree.map(jnp.asarray, tasks)))
        state = watch(state, k_watch, episodes, student.params)
        assert_trees_close(state, curriculum.state_dict()["teacher"])
        student = update(student, played, k_learn)


def small_curriculum(name="procurl-target", **options):
    return procurl.Curriculum(
        procurl.make_teacher(name, small_setting()[1]), **{"every": 6, "unit": "episodes", **options}
    )


def advance(curriculum, periods=1):
    """A student that is good at narrow gates; the tasks that it was given."""
    given = []
    for _ in range(periods):
        while not curriculum.due:
            task = curriculum.next()
            given.append(task)
            curriculum.record(
                task, ret=float(task.context[1] < 4), length=10 + len(given) % 5, advantage=task.context[0]
            )
        curriculum.observe(value=lambda tasks: np.clip(tasks.context[:, 1] / 8, 0, 1))
    return given


def assert_same_tasks(a, b):
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x.context, y.context)
        assert x[1:] == y[1:]


@pytest.mark.parametrize("name", ["procurl-target", "plr", "gradient"])
def test_a_loaded_curriculum_goes_on_exactly(name, tmp_path):
    whole = small_curriculum(name)
    advance(whole, 2)
    task = whole.next()  # cut in the middle of an episode
    path = whole.save(tmp_path / "curriculum.safetensors")
    again = small_curriculum(name)
    again.load(path)
    for curriculum in (whole, again):
        curriculum.record(task, ret=0.5, length=9, advantage=0.1)
    assert_same_tasks(advance(whole, 3), advance(again, 3))


def test_a_curriculum_of_something_else_is_refused(tmp_path):
    path = small_curriculum().save(tmp_path / "c.safetensors")
    before = advance(small_curriculum("plr"), 2)
    other = small_curriculum("plr")
    with pytest.raises(CheckpointError, match=r"teacher.class: 'ProCuRLTarget' there, 'PLR' here"):
        other.load(path)
    assert_same_tasks(advance(other, 2), before)
    with pytest.raises(CheckpointError, match="seed: 0 there, 3 here"):
        small_curriculum(seed=3).load(path)
    smaller = procurl.make_teacher("procurl-target", small_setting(n_pool=150)[1])
    with pytest.raises(CheckpointError, match="space.n_pool: 200 there, 150 here"):
        procurl.Curriculum(smaller, every=6, unit="episodes").load(path)
    procurl.save_state(path, {"x": jnp.zeros(3)})
    with pytest.raises(CheckpointError, match="holds no curriculum"):
        small_curriculum().load(path)


def test_the_teacher_is_used_from_the_first_episode_and_learns():
    curriculum = small_curriculum("target")
    targets = np.asarray(small_setting()[1].targets.context)
    assert np.abs(targets - curriculum.next().context)[:, :2].min() < 0.3
    watched = small_curriculum("procurl-unif", every=64)
    widths = [np.mean([t.context[1] for t in advance(watched)]) for _ in range(3)]
    value = lambda width: width / 8  # noqa: E731  # of `advance`'s critic: the best tasks are those of width 4
    spread = np.std([value(t.context[1]) for t in advance(watched)])
    assert spread < 0.2 and abs(widths[-1] - 4) < 1


def test_mistakes_are_named():
    curriculum = small_curriculum()
    task = curriculum.next()
    with pytest.raises(ConfigError, match="is no task that next"):
        curriculum.record(task._replace(context=task.context + 1), ret=0.0, length=3)
    with pytest.raises(ConfigError, match="length = 0: expected the number of steps"):
        curriculum.record(task, ret=0.0, length=0)
    curriculum.record(task, ret=0.0, length=3)
    with pytest.raises(ConfigError, match="still being played"):
        curriculum.record(task, ret=0.0, length=3)
    with pytest.raises(ConfigError, match="ProCuRLTarget asks for the student's values"):
        curriculum.observe()
    with pytest.raises(Exception, match=r"value returned shape \(3,\) for 200 tasks"):
        curriculum.observe(value=lambda tasks: np.zeros(3))
    for _ in range(8):  # a queue of 6 + 2, of which the first task stood before it
        curriculum.next()
    with pytest.raises(ConfigError, match="8 tasks were handed out since the last update, as many as can"):
        curriculum.next()
    with pytest.raises(ConfigError, match="unit = 'hours'"):
        small_curriculum(unit="hours")


@pytest.mark.exact
@pytest.mark.slow
def test_the_example_runs_and_the_curriculum_helps():
    script = Path(__file__).parent.parent / "examples" / "own_loop.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    value = {line.split()[0]: float(line.split()[-1]) for line in done.stdout.splitlines()}
    assert value["procurl-target"] > value["target"] and len(script.read_text().splitlines()) <= 60


def test_the_page_runs_as_printed():
    page = (Path(__file__).parent.parent / "docs" / "integrations" / "own-loop.md").read_text()
    names = {}
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], names)
    assert names["curriculum"].updates == 5


def test_a_teacher_whose_questions_depend_on_answers_is_refused():
    """On the host all values are asked for at once; anything else would take them for the wrong tasks in silence."""
    import jax

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True, eq=False)
    class Greedy(procurl.IID):
        def observe(self, state, key, episodes, critic):
            order = jax.numpy.argsort(critic.value(self.space.pool))
            again = critic.value(jax.tree.map(lambda x: x[order], self.space.pool))
            return state._replace(log_weights=state.log_weights + again)

    space = procurl.task_space([0.0], [1.0], target=[1.0], pool_size=8)
    curriculum = procurl.Curriculum(Greedy(space), every=1, unit="episodes")
    curriculum.record(curriculum.next(), ret=0.0, length=1)
    assert curriculum.asks_for_values
    with pytest.raises(ConfigError, match="ask for all of them at once"):
        curriculum.observe(value=lambda tasks: -tasks.context[:, 0])


def test_the_same_task_played_twice_at_once_is_counted_once_each():
    """A pool of one task: only the object that was handed out tells one episode from the other."""
    space = procurl.task_space([0.0], [1.0], target=[1.0], pool_size=1, fresh_seeds=False)
    curriculum = procurl.Curriculum(procurl.IID(space), every=20, n_envs=2)
    a, b, waiting = curriculum.next(), curriculum.next(), curriculum.next()
    curriculum.record(a, ret=0.0, length=15, finished=False)
    curriculum.record(b, ret=0.0, length=5, finished=False)
    curriculum.withdraw(waiting)
    assert curriculum.due
    curriculum.observe()
    curriculum.record(b, ret=1.0, length=8)
    curriculum.record(a, ret=1.0, length=16)
    e = curriculum.episodes
    assert sorted(e.steps[e.steps > 0].tolist()) == [1, 3]
    assert sorted(zip(e.length[e.finished].tolist(), e.steps[e.finished].tolist(), strict=True)) == [(8, 3), (16, 1)]
