"""gymnax and brax: their environments with named parameters as the context. `make test-suites` installs both."""

import json
import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import procurl
from procurl import suites
from procurl.errors import ConfigError

ROOT = Path(__file__).parent.parent
needs_gymnax = pytest.mark.skipif(not find_spec("gymnax"), reason="needs procurl[gymnax]: make test-suites installs it")
needs_brax = pytest.mark.skipif(not find_spec("brax"), reason="needs procurl[brax]: make test-suites installs it")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # of these packages'
SHORT = ["--seeds", "2", "--steps", "2000", "--set", "n_steps=512", "--set", "batch_size=64", "--quiet"]
POLE = ["--context", "length=0.1:3", "--target", "length=3"]


def cart_pole(context=None, target=None, **options):
    from procurl.integrations import gymnax

    return gymnax.make("CartPole-v1", context or {"length": (0.1, 3.0)}, target or {"length": 3.0}, **options)


def pendulum(context, **options):
    from procurl.integrations import brax

    return brax.make("inverted_pendulum", context, {name: high for name, (_, high) in context.items()}, **options)


def first_task(space, **changed):
    return jax.tree.map(lambda x: x[0], space.pool)._replace(**changed)


@pytest.fixture
def refusal(command):
    def said(*words):
        done = command("train", *words)
        assert done.returncode != 0
        return done.stderr

    return said


# --- what is written on the command line: no package is needed


def test_text_and_numbers_are_the_same_thing():
    found = suites.ranges("--context", ["length=0.1:3, g=9", "mass.pole=1e-2:2"])
    assert found == {"length": (0.1, 3.0), "g": (9.0, 9.0), "mass.pole": (0.01, 2.0)}
    assert suites.ranges("--context", [suites.written(found)]) == found
    assert suites.as_ranges("context", {"length": (0.1, 3), "g": 9, "mass.pole": [0.01, 2]}) == found


@pytest.mark.parametrize("text", ["length", "=1:2", "length=a:3", "length=1:", "length=nan", "length=1:inf", "a=1,a=2"])
def test_text_that_means_nothing_is_refused(text):
    with pytest.raises(ConfigError, match="expected"):
        suites.ranges("--context", [text])


@pytest.mark.parametrize(
    ("context", "target", "said"),
    [
        ({}, {}, "needs a context.*length .0.5."),
        ({"lenght": (0, 1)}, {}, "no parameter 'lenght'.*length .0.5."),
        ({"limit": (0, 1)}, {}, "limit cannot be a context: it is the time limit"),
        ({"length": (1, 1)}, {}, "expected a range"),
        ({"length": (2, 1)}, {}, "2 is above 1"),
        ({"length": (1, 2)}, {"length": (3, 3)}, "length=3 lies outside its context, 1:2"),
        ({"length": (1, 2)}, {"length": (2, 1)}, "2 is above 1"),
        ({"length": (1, 2)}, {"g": (2, 2)}, "not in the context, which has length"),
        ({"length": (1, 2)}, {}, "says nothing about length: expected --target length=VALUE"),
    ],
)
def test_wrong_contexts_and_targets_are_refused_in_words(context, target, said):
    def require():
        suites.require_box(context, {"length": "0.5"}, {"limit": "the time limit"}, "gymnax:CartPole-v1")
        suites.require_target(target, context)

    with pytest.raises(ConfigError, match=said):
        require()


def test_commands_say_what_is_missing(refusal):
    assert "expected gymnax:NAME" in refusal("gymnax:", *POLE)
    assert "maze-plane has its tasks already" in refusal("maze-plane", *POLE)


@pytest.mark.parametrize("suite", list(suites.SUITES))
def test_a_missing_package_names_its_extra(suite, refusal, monkeypatch):
    monkeypatch.setitem(sys.modules, suite, None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, f"procurl.integrations.{suite}", raising=False)
    assert f"pip install 'procurl[{suite}]'" in refusal(f"{suite}:anything", *POLE)


# --- gymnax


@needs_gymnax
def test_steps_are_gymnaxs_own():
    """The same states as gymnax's, for a context that is its default; and nothing is reset at the end."""
    import gymnax

    env, space = cart_pole()
    theirs, params = gymnax.make("CartPole-v1")
    task = first_task(space, context=jnp.float32([0.5]), seed=jnp.int32(7))
    state, obs = env.reset(task)
    their_obs, their_state = theirs.reset_env(jax.random.PRNGKey(7), params)
    np.testing.assert_array_equal(obs[:-1], their_obs)
    assert obs[-1] == pytest.approx((0.5 - 0.1) / 2.9)
    step, their_step = jax.jit(env.step), jax.jit(theirs.step_env)
    for t in range(60):  # one action: the pole falls
        state, out = step(jax.random.key(t), state, jnp.int32(1))
        their_obs, their_state, reward, done, _ = their_step(jax.random.PRNGKey(t), their_state, 1, params)
        np.testing.assert_allclose(out.obs[:-1], their_obs, rtol=1e-5)
        assert (out.reward, out.terminated, out.truncated) == (reward, done, False)
        if done:
            break
    assert done and t < 20 and abs(float(out.obs[2])) > params.theta_threshold_radians  # the last observation


@needs_gymnax
def test_the_time_limit_truncates_and_the_fall_terminates():
    env, space = cart_pole(max_steps=3, success_return=3.0)
    state, _ = env.reset(first_task(space, context=jnp.float32([0.5])))
    outs = []
    for t in range(3):
        state, out = env.step(jax.random.key(t), state, jnp.int32(t % 2))
        outs.append(out)
    assert [bool(out.truncated) for out in outs] == [False, False, True]
    assert not any(out.terminated for out in outs)
    assert [bool(out.success) for out in outs] == [False, False, True]


@needs_gymnax
def test_fields_that_are_computed_of_others_follow():
    env, _ = cart_pole({"length": (0.1, 3.0), "masspole": (0.1, 1.0)}, {"length": 3.0, "masspole": 0.1})
    params = env.params(jnp.float32([2.0, 0.5]))
    assert (params.length, params.polemass_length, params.total_mass) == (2.0, 1.0, 1.5)


@needs_gymnax
@pytest.mark.parametrize(
    ("name", "parameter"),
    [("Pendulum-v1", "g"), ("MountainCarContinuous-v0", "power"), ("FourRooms-misc", "fail_prob")],
)
def test_other_environments_keep_the_contract(name, parameter):
    from procurl.integrations import gymnax

    env, space = gymnax.make(name, {parameter: (0.1, 0.5)}, {parameter: (0.4, 0.5)}, max_steps=20)
    procurl.check_env(env, space)


@needs_gymnax
def test_gymnax_refusals(refusal):
    assert "Did you mean CartPole-v1" in refusal("gymnax:CartPol-v1", *POLE)
    said = refusal("gymnax:CartPole-v1", "--context", "lenght=1:2", "--target", "lenght=2")
    assert "no parameter 'lenght'" in said and "length (0.5)" in said
    limit = ["--context", "max_steps_in_episode=1:2", "--target", "max_steps_in_episode=2"]
    assert "it is the time limit" in refusal("gymnax:CartPole-v1", *limit)


@needs_gymnax
def test_a_run_of_the_command_line_goes_on_and_is_shown(tmp_path, command):
    """The folder alone says what the environment was."""
    run = tmp_path / "run"
    assert (
        command("train", "gymnax:CartPole-v1", *POLE, *SHORT, "--set", "env.max_steps=50", "--out", run).returncode == 0
    )
    before = procurl.load_result(run)
    assert before.config["setting"] == "gymnax:CartPole-v1" and before.config["env"]["max_steps"] == 50
    assert command("resume", run, "--steps", "1000", "--quiet").returncode == 0
    after = procurl.load_result(run)
    assert after.steps[-1] > before.steps[-1]
    assert "mean over tasks" in command("evaluate", run).stdout
    assert command("report", run, "--out", tmp_path / "page").returncode == 0
    notes = json.loads((run / "provenance.json").read_text())
    assert notes["classes"]["env"]["package"] == "gymnax"


# --- brax


@needs_brax
def test_factors_change_what_they_name_and_nothing_else():
    env, _ = pendulum({"gravity": (0.5, 3.0), "mass.pole": (0.5, 4.0)})
    plain, changed = (env.with_context(jnp.float32(c)).sys for c in ([1.0, 1.0], [2.0, 3.0]))
    np.testing.assert_allclose(changed.gravity, 2 * np.asarray(plain.gravity))
    for field in ("mass", "i"):
        mine, theirs = (getattr(s.link.inertia, field) for s in (changed, plain))
        np.testing.assert_allclose(mine[0], theirs[0])
        np.testing.assert_allclose(mine[1], 3 * theirs[1], rtol=1e-6)
    np.testing.assert_allclose(plain.body_subtreemass, env_of("inverted_pendulum").sys.body_subtreemass, rtol=1e-6)
    added = 2 * plain.body_mass[2]
    np.testing.assert_allclose(changed.body_subtreemass - plain.body_subtreemass, [added] * 3, rtol=1e-5)
    np.testing.assert_array_equal(changed.dof.damping, plain.dof.damping)


def env_of(name):
    from brax import envs

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return envs.get_environment(name)


@needs_brax
def test_steps_are_braxs_own_and_the_limit_truncates():
    env, space = pendulum({"gravity": (0.5, 3.0)}, max_steps=4)
    bare = env_of("inverted_pendulum")
    task = first_task(space, context=jnp.float32([1.0]), seed=jnp.int32(3))
    state, obs = jax.jit(env.reset)(task)
    theirs = jax.jit(bare.reset)(jax.random.PRNGKey(3))
    step, their_step = jax.jit(env.step), jax.jit(bare.step)
    ends = []
    for _ in range(4):
        np.testing.assert_allclose(obs[:-1], theirs.obs, rtol=1e-4, atol=1e-5)
        state, out = step(jax.random.key(0), state, jnp.float32([0.1]))
        theirs, obs = their_step(theirs, jnp.float32([0.1])), out.obs
        ends.append((bool(out.terminated), bool(out.truncated)))
    assert ends == [(False, False)] * 3 + [(False, True)]


@needs_brax
def test_brax_refusals(refusal):
    def said(context, name="inverted_pendulum"):
        return refusal(f"brax:{name}", "--context", f"{context}=1:2", "--target", f"{context}=2")

    assert "mass.pole" in said("mass.pol") and "gravity" in said("mass.pol")
    assert "unknown environment of brax 'pendulum'" in said("gravity", "pendulum")
    assert "stiffness cannot be a context" in said("stiffness")
    with pytest.raises(ConfigError, match="unknown backend of brax 'sprung'"):
        pendulum({"gravity": (0.5, 3.0)}, backend="sprung")


@needs_brax
def test_brax_trains_from_the_command_line_and_goes_on(tmp_path, command):
    context = ["--context", "gravity=0.5:3", "--context", "mass.pole=1:2", "--target", "gravity=3,mass.pole=2"]
    run = tmp_path / "run"
    assert (
        command(
            "train", "brax:inverted_pendulum", *context, *SHORT, "--set", "env.max_steps=50", "--out", run
        ).returncode
        == 0
    )
    assert command("resume", run, "--steps", "512", "--quiet").returncode == 0
    assert procurl.load_result(run).config["space"]["names"] == ["gravity", "mass.pole"]


# --- the pages


def blocks(page):
    text = (ROOT / f"docs/integrations/{page}.md").read_text()
    return [part.split("```")[0] for part in text.split("```python\n")[1:]]


@pytest.mark.parametrize("page", [pytest.param("gymnax", marks=needs_gymnax), pytest.param("brax", marks=needs_brax)])
def test_the_python_of_the_pages(page, tmp_path, monkeypatch):  # docs/integrations/gymnax.md, docs/integrations/brax.md
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in blocks(page):
        exec(block, names)


@pytest.mark.skipif(not find_spec("mujoco_playground"), reason="needs Playground: make test-suites installs it")
def test_the_adapter_of_another_suite(tmp_path):  # docs/integrations/other-suites.md
    command = [sys.executable, str(ROOT / "examples/playground_cartpole.py"), "--steps", "5120", "--seeds", "1"]
    said = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert "return on the heaviest pole" in said.stdout, said.stderr[-2000:]
