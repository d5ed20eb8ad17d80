"""`procurl check` and its contracts: sound classes pass, and every kind of slip is found and named."""

import dataclasses
from functools import cache, partialmethod

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from host_probe import PaysOnHost
from worlds import State, Walk, walk_space

import procurl
from procurl import cli
from procurl.check import user_code
from procurl.check.env import env_findings
from procurl.check.host import gymnasium_findings, host_findings
from procurl.check.space import space_findings
from procurl.errors import CheckError, ConfigError, SpaceError
from procurl.integrations.gymnasium import TaskEnv
from procurl.targets import Point
from procurl.teachers.base import PoolState


@cache
def walks():
    return walk_space()


def another(**methods):
    """`Walk` with some of its parts exchanged, as a pytree of its own."""
    return jax.tree_util.register_dataclass(type("Another", (Walk,), methods), [], [])()


def outcome(self, key, state, action, **changed):
    state, step = Walk.step(self, key, state, action)
    return state, step._replace(**changed)


def jumps(self, state, action):
    if action[0] > 0:
        return jnp.float32(1)
    return jnp.float32(0)


def test_a_sound_environment_passes_without_a_word():
    assert procurl.check_env(Walk(), walks(), steps=12) == ()


def no_context(self, task):
    return Walk.reset(self, task._replace(context=jnp.ones(2)))


WRONG = {
    "python control flow": ({"moved": jumps}, r"step cannot be compiled.*at test_check.py:\d+ `if action\[0\] > 0:`"),
    "numpy's random numbers": (
        {"moved": lambda self, state, action: jnp.clip(action[0], -1, 1) + float(np.random.normal())},
        "something else the second time.*Python's or NumPy's random numbers",
    ),
    "no context": ({"reset": no_context}, "reset ignores the context"),
    "NaN": (
        {"step": lambda self, k, s, a: outcome(self, k, s, a, reward=jnp.log(jnp.float32(-1)))},
        "step 0: NaN or infinity in reward",
    ),
    "float success": (
        {"step": lambda self, k, s, a: outcome(self, k, s, a, success=jnp.float32(0.5))},
        "success float32.*expected bool",
    ),
    "a state that changes": (
        {"step": lambda self, k, s, a: (s._replace(t=jnp.float32(0)), Walk.step(self, k, s, a)[1])},
        "t is int32.* first and then float32",
    ),
    "no end": (
        {"step": lambda self, k, s, a: outcome(self, k, s, a, terminated=jnp.bool_(False), truncated=jnp.bool_(False))},
        "an episode is longer than max_steps = 12",
    ),
    "truncated against its word": ({"truncates": False}, "was truncated, but the class says truncates = False"),
    "no clipping": ({"moved": lambda self, state, action: action[0]}, r"an action beyond 1 has another effect"),
    "returns beyond the range": (
        {"step": lambda self, k, s, a: outcome(self, k, s, a, reward=jnp.float32(-3))},
        r"discounted return was -\d+\.?\d*, outside value_range = \(0, 1\)",
    ),
    "an observation of another size": ({"obs_size": 4}, r"reset gives observations float32\[16, 3\]: expected .*4\]"),
    "no such field": ({"action": 3}, "action = 3: expected Continuous or Discrete"),
    "no step at all": ({"step": None}, "step cannot be compiled"),
    "an exception": ({"seen": lambda self, state: state.speed}, r"reset\(task\) fails: AttributeError.*test_check.py"),
}


@pytest.mark.parametrize("slip", WRONG)
def test_every_slip_of_an_environment_is_found(slip):
    methods, message = WRONG[slip]
    with pytest.raises(CheckError, match=message):
        procurl.check_env(another(**methods), walks(), steps=12)


def at(t, **changed):
    """Steps as they should be, but for what `changed` says of the step number t, counted from 0."""

    def step(self, key, state, action):
        state, good = Walk.step(self, key, state, action)
        odd = {name: jnp.where(state.t == t + 1, value, getattr(good, name)) for name, value in changed.items()}
        return state, good._replace(**odd)

    return step


LATE = {
    "NaN": ({"step": at(60, reward=jnp.nan)}, "step 60: NaN or infinity in reward"),
    "NaN at the end": ({"step": at(199, obs=jnp.inf)}, "step 199: NaN or infinity in obs"),
    "no end": ({"step": at(199, truncated=False)}, "an episode is longer than max_steps = 200: its last step must be"),
    "truncated against its word": ({"truncates": False}, "step 199 was truncated, but the class says truncates = Fa"),
    "the last reward": ({"step": at(199, reward=99.0)}, r"discounted return was 13\.4, outside value_range"),
}


@pytest.mark.parametrize("slip", LATE)
def test_what_goes_wrong_late_in_an_episode_is_found(slip):
    methods, message = LATE[slip]
    with pytest.raises(CheckError, match=rf"has 1 problem\(s\):\n  - .*{message}"):
        procurl.check_env(another(max_steps=200, **methods), walks())


def test_a_long_episode_is_played_to_its_end():
    far = another(max_steps=20_000, seen=lambda self, state: 1e-3 * Walk.seen(self, state))
    assert procurl.check_env(far, walks()) == ()


def test_all_problems_at_once():
    def step(self, key, state, action):
        return outcome(
            self, key, state, action, reward=jnp.float32(-3), truncated=jnp.bool_(True), success=jnp.int32(1)
        )

    found = env_findings(another(step=step, truncates=False), walks(), steps=12)
    assert len(found.problems) == 3 and not any("fails" in text for text in found.problems), found.problems


def test_notes_are_no_errors():
    def blind(self, state):
        return jnp.stack([state.x * 1e6, state.x, state.x])

    def ends(self, key, state, action):
        state, step = Walk.step(self, key, state, action)
        return state, step._replace(terminated=step.terminated | step.truncated, truncated=jnp.bool_(False))

    notes = "\n".join(procurl.check_env(another(seen=blind, step=ends, truncates=False), walks(), steps=12))
    for part in ("same for every context", "observations reach", "are terminated, not truncated"):
        assert part in notes


def test_a_class_that_is_no_pytree():
    class Plain(Walk):
        pass

    with pytest.raises(CheckError, match="Plain is no pytree"):
        procurl.check_env(Plain(), walks())


def test_weak_types_in_an_environments_state_are_noted():
    """A reset that is made of Python numbers: the distance becomes a float32 with the first step, the time never."""

    def reset(self, task):
        state = State(jnp.full((), 0.0), jnp.full((), 0), task.context)
        return state, self.seen(state)

    moving, waiting = procurl.check_env(another(reset=reset), walks(), steps=12)
    assert moving.startswith("state.x is weakly typed in reset's state, strongly in step's: ")
    assert waiting.startswith("state.t is weakly typed in reset's and step's state: ")
    assert "compiled a second time" in moving and "jnp.float32(x)" in moving and "jnp.int32(x)" in waiting


# --- spaces -----------------------------------------------------------------------------------------------------------


class Odd(Point):
    """A target distribution that draws NaN."""

    def sample(self, key, n):
        task = super().sample(key, n)
        return task._replace(context=task.context * jnp.nan)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (lambda s: {"low": jnp.array([jnp.nan, 0.0])}, "expected finite bounds with low <= high"),
        (lambda s: {"value_range": (1.0, 1.0)}, "expected .V_min, V_max., two numbers with V_min < V_max"),
        (lambda s: {"names": ("a", "a")}, "expected different ones"),
        (lambda s: {"names": ["a", "b"]}, "expected a tuple of names"),
        (lambda s: {"pool": s.pool._replace(row=s.pool.row + 1)}, "a task's row is its place in the pool"),
        (lambda s: {"pool": s.pool._replace(seed=s.pool.seed * 1.0)}, "expected float32, int32, int32"),
        (lambda s: {"target": Odd((9.0, 0.5))}, "target.sample.*expected .64, 2., finite"),
        (lambda s: {"snap": lambda context: context + 1.0}, "project"),
        (lambda s: {"held_out": jax.tree.map(lambda x: x[:0], s.held_out)}, "the held_out is empty"),
    ],
)
def test_every_slip_of_a_space_is_found(changed, message):
    with pytest.raises(SpaceError, match=message):
        procurl.check_space(dataclasses.replace(walks(), **changed(walks())))


def test_what_is_doubtful_about_a_space_is_noted():
    assert procurl.check_space(walks()) == ()
    twice = walk_space(pool=np.tile([1.0, 0.5], (5, 1)), high=[9.0, 0.5], low=[1.0, 0.5], target=[9.0, 0.5])
    doubtful = dataclasses.replace(
        twice, held_out=jax.tree.map(lambda x: x[:2], twice.pool), targets=jax.tree.map(lambda x: x[:2], twice.pool),
        fresh_seeds=False, target=Point((99.0, 0.5)),
    )  # fmt: skip
    notes = "\n".join(space_findings(doubtful).notes) + "\n".join(space_findings(twice).notes)
    for part in ("never varies", "4 of 5 tasks of the pool", "2 of 2 held-out tasks are in the pool",
                 "very tasks of targets", "far outside the space"):  # fmt: skip
        assert part in notes, notes


# --- teachers ---------------------------------------------------------------------------------------------------------


def teacher(**methods):
    return jax.tree_util.register_dataclass(type("Another", (procurl.IID,), methods), ["space"], [])(walks())


def counts(self, state, key, episodes, critic):
    if jnp.sum(episodes.finished) > 0:
        return state
    return state


def divides(self, state, key, episodes, critic):
    mean = jnp.sum(jnp.where(episodes.finished, episodes.ret, 0.0)) / jnp.sum(episodes.finished)
    return PoolState(state.log_weights + mean)


def has_it_played(self, state, key, episodes, critic, k=2):
    return PoolState(state.log_weights + critic.play(key, self.space.pool, k).success)


def plays_by_chance(self, state, key, episodes, critic):
    def played():
        return has_it_played(self, state, key, episodes, critic)

    return jax.lax.cond(jax.random.bernoulli(key), played, lambda: state)


def withholds(self, state, key, n):
    return walks().from_pool(key, jnp.zeros(n, jnp.int32))._replace(learn=jnp.ones(n, bool))


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ({"observe": counts}, r"observe.*only traced, at test_check.py:\d+"),
        ({"observe": divides}, "no finished episode: state.log_weights hold NaN"),
        (
            {"observe": lambda self, state, key, episodes, critic: state.log_weights},
            "observe returns a state of another shape than init",
        ),
        (
            {
                "propose": lambda self, state, key, n: (
                    walks().from_pool(key, jnp.zeros(n, jnp.int32))._replace(row=state)
                )
            },
            r"propose\(64\) gives float32\[64, 2\], int32\[64\], PoolState: expected",
        ),
        ({"init": lambda self, key: PoolState(jnp.full(20, -jnp.inf))}, "hold only -infinity"),
        (
            {"init": lambda self, key: PoolState(jnp.full(20, np.random.rand()))},
            "init gives another state for the same key",
        ),
        ({"propose": None}, "it has no method `propose`"),
        ({"observe": has_it_played}, "calls critic.play must say so: plays: ClassVar"),
        ({"observe": partialmethod(has_it_played, k=0), "plays": True}, "critic.play: k = 0: expected at least 1"),
        ({"observe": plays_by_chance, "plays": True}, "critic.play inside lax.cond"),
        ({"propose": withholds}, "gives tasks with `learn` must say so: withholds: ClassVar"),
    ],
)
def test_every_slip_of_a_teacher_is_found(methods, message):
    with pytest.raises(CheckError, match=message):
        procurl.check_teacher(teacher(**methods))


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ({}, None),
        (
            {"init": lambda self, key: PoolState(jnp.full(20, 0.5))},  # which observe passes on
            "state.log_weights is weakly typed in init's and observe's state: ",
        ),
        (
            {
                "init": lambda self, key: PoolState(jnp.full(20, 0.5)),
                "observe": lambda self, state, *_: PoolState(state.log_weights + jnp.float32(1)),
            },
            "state.log_weights is weakly typed in init's state, strongly in observe's: ",
        ),
        (
            {"observe": lambda self, state, *_: PoolState(jnp.full(20, 0.5))},
            "state.log_weights is weakly typed in observe's state, strongly in init's: ",
        ),
    ],
)
def test_weak_types_in_a_teachers_state_are_noted(methods, message):
    notes = procurl.check_teacher(teacher(**methods))
    assert len(notes) == (message is not None)
    for note in notes:
        assert note.startswith(message) and "is compiled a second time" in note
        assert "jnp.full(n, x, jnp.float32)" in note


# --- Gymnasium, and worker processes ----------------------------------------------------------------------------------


@cache
def poles():
    return procurl.task_space([0.1], [6.0], ["pole length"], target=[6.0], value_range=(0, 100), pool_size=9)


def set_pole(env, context):
    env.unwrapped.length, env.unwrapped.polemass_length = context[0], 0.1 * context[0]


def set_nothing(env, context):
    env.unwrapped.pole = context[0]


def cart_pole(apply=set_pole, **options):
    return TaskEnv(gymnasium.make("CartPole-v1"), poles(), apply, **options)


def test_a_gymnasium_environment_that_takes_tasks_passes():
    found = gymnasium_findings(cart_pole(observe=True), poles(), steps=500)
    assert found.problems == [] and not any("same for every context" in text for text in found.notes), found.notes
    assert any("same for every context" in text for text in gymnasium_findings(cart_pole(), None, 500).notes)


def test_a_context_without_effect_is_found():
    found = gymnasium_findings(cart_pole(set_nothing, observe=False), poles(), steps=500)
    assert any("the context has no effect" in text for text in found.problems)


def test_a_plain_environment_is_told_about_task_env():
    found = gymnasium_findings(gymnasium.make("CartPole-v1"), poles(), steps=500)
    assert found.problems == [] and any("wrap it in procurl.integrations.gymnasium.TaskEnv" in t for t in found.notes)


class Faulty(gymnasium.Env):
    """Wrong in every respect that can be seen from outside."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    noise = np.random.default_rng(0)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.noise.uniform(-1, 1, 1).astype(np.float32), {}

    def step(self, action):
        return np.full(1, np.nan, np.float32), float("nan"), False, False, {"is_success": 3.0}


def test_a_faulty_gymnasium_environment_has_all_its_faults_named():
    found = "\n".join(gymnasium_findings(Faulty(), None, steps=50).problems)
    for part in ("Gymnasium's checker refuses it", "the reward is nan", "NaN or infinity in the observation",
                 "info['is_success'] = 3.0", "another episode the second time"):  # fmt: skip
        assert part in found, found


def test_environments_for_worker_processes():
    space = procurl.task_space([0.0], [1.0], target=[1.0], value_range=(0, 8), pool_size=9)
    found = host_findings(PaysOnHost(), space, steps=100)
    assert not any("maker" in text or "space" in text for text in found.problems), found.problems

    class Unsendable(PaysOnHost):
        obs_size = 4

        def maker(self):
            make = super().maker()
            return lambda: make()

    problems = "\n".join(host_findings(Unsendable(), space, steps=100).problems)
    assert "cannot be sent to worker processes" in problems and "expected (4,), as obs_size says" in problems


# --- the command ------------------------------------------------------------------------------------------------------

USER_FILE = """
import procurl
from procurl.teachers.iid import IID
from test_check import walks, Walk, another, jumps
space = walks()
bad = another(moved=jumps)
def both(): return Walk(), walks()
def needs(x): return x
number = 3
"""


@pytest.fixture
def user_file(tmp_path):
    path = tmp_path / "written_by_a_user.py"
    path.write_text(USER_FILE)
    return path


def test_the_command_finds_recognises_and_reports(user_file, monkeypatch, capsys):
    monkeypatch.setattr("procurl.devices.use_cores", lambda *args, **kwargs: None)  # JAX is running already
    assert cli.main(["check", f"{user_file}:both"]) == 0
    assert "both, an environment in JAX: ok" in capsys.readouterr().out
    assert cli.main(["check", f"{user_file}:bad"]) == 1
    printed = capsys.readouterr().out
    assert "its task space: ok" in printed and "problem: step cannot be compiled" in printed
    assert cli.main(["check", f"{user_file}:space"]) == 0
    assert cli.main(["check", f"{user_file}:IID"]) == 0
    assert "IID, a teacher: ok" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("{}", "expected MODULE:NAME.*there is .*both"),
        ("{}:boht", "Did you mean both"),
        ("{}:needs", "needs x: expected an object, or a class or function that works without arguments"),
        ("{}:number", "number is int, and not recognised"),
        ("nowhere.py:x", "there is no such file"),
        ("no.such.module:x", "there is no such module"),
    ],
)
def test_what_cannot_be_checked_is_said_plainly(user_file, target, message):
    with pytest.raises(ConfigError, match=message):
        user_code.check(target.format(user_file))


@pytest.mark.parametrize(
    ("source", "message"),
    [("import sys; sys.exit(0)", "if __name__ == '__main__'"), ("1 / 0", "cannot be imported: ZeroDivisionError")],
)
def test_a_file_that_cannot_be_imported(tmp_path, source, message):
    path = tmp_path / "fails.py"
    path.write_text(source)
    with pytest.raises(ConfigError, match=message):
        user_code.check(f"{path}:x")


def test_an_environment_without_tasks_asks_for_them(tmp_path):
    path = tmp_path / "lonely.py"
    path.write_text("from test_check import Walk")
    with pytest.raises(ConfigError, match="give --space MODULE:NAME or a setting"):
        user_code.check(f"{path}:Walk")
