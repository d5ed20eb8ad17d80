"""The examples run, and stay short."""

import importlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import SMALL

import procurl
from procurl.errors import ConfigError, NonFiniteError

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(code: str) -> str:
    setup = f"import sys; sys.path.insert(0, {str(EXAMPLES)!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", setup + code], capture_output=True, text=True, timeout=400,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # tests run side by side, one per core
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["own_loop", "sb3_cartpole", "new_teacher", "new_environment"])
def test_short(name):
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < 60


def test_nothing_is_to_be_said_against_the_new_teacher(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    import new_teacher

    space = procurl.task_space([0.0], [1.0], target=[1.0], pool_size=20)
    assert procurl.check_teacher(new_teacher.HalfMastered(space)) == ()


@pytest.mark.slow
def test_a_new_teacher():
    assert "training success per iteration: [" in run("import new_teacher; new_teacher.main(steps=10_240)")


@pytest.mark.slow
def test_a_new_environment():
    said = run("import new_environment; new_environment.main(steps=10_240)")
    assert "procurl-target: return on the target" in said and "iid: return" in said


def test_levels_that_are_arrays(monkeypatch):
    """Every task, held-out ones too, is played on the map that was made for it."""
    monkeypatch.syspath_prepend(EXAMPLES)
    import level_maps

    space, walls = level_maps.tasks_and_maps(pool_size=12, n_targets=3)
    env = level_maps.Rooms(jnp.asarray(walls))
    assert walls.shape == (18, 9, 9) and len(procurl.check_env(env, space)) == 1, "a note on time"
    for tasks, first in ((space.pool, 0), (space.targets, 12), (space.held_out, 15)):
        maps = np.asarray(jax.vmap(env.reset)(tasks)[0].walls)[:, 1:-1, 1:-1]
        np.testing.assert_array_equal(maps, walls[first : first + len(maps)])
        np.testing.assert_allclose(maps.mean(axis=(1, 2)), tasks.context[:, 0], atol=0.03)
    for name, around in (("currot", {}), ("iid", {"redraw_every": 1000})):
        with pytest.raises(ConfigError, match=r"Rooms looks its tasks up by their number.*invents.*on_pool=True"):
            procurl.train(env, procurl.make_teacher(name, space, **around))


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Inventor(procurl.IID):
    """Its tasks have no numbers, and it does not say so."""

    def propose(self, state, key, n):
        return super().propose(state, key, n)._replace(row=jnp.full(n, -1))


@pytest.mark.slow
def test_a_task_without_a_number_stops_the_seed(monkeypatch):
    """It would be played on the last map."""
    monkeypatch.syspath_prepend(EXAMPLES)
    import level_maps

    space, walls = level_maps.tasks_and_maps(pool_size=12, n_targets=3)
    with pytest.raises(NonFiniteError, match="or a task without a number to an environment with by_number"):
        procurl.train(level_maps.Rooms(jnp.asarray(walls)), Inventor(space), SMALL, seeds=1, steps=256)


@pytest.mark.slow
def test_levels_that_are_arrays_can_be_trained_on():
    said = run("import level_maps; level_maps.main(steps=10_240)")
    assert "robust-plr: success on maps" in said and "target: success" in said


# --- problems that are not the paper's ---

PROBLEMS = sorted(path.stem for path in (EXAMPLES / "your_problem").glob("*.py"))
SHORT = {"numpy_loop": 200_000}  # steps, enough to see that there is a curriculum; the others are slow


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_takes_forty_lines_and_no_hyper_parameter(name):
    text = (EXAMPLES / "your_problem" / f"{name}.py").read_text()
    assert len(text.splitlines()) <= 40
    assert not [word for word in ("value_range", "beta", "units", "v_lb", "length_scale") if word in text]


def taught(name, steps, out):
    """The run of a script, and the chance that its tasks were uniform draws."""
    from procurl.runs.taught import Meter

    where = str(EXAMPLES / "your_problem")
    run(f"import sys; sys.path.insert(0, {where!r}); import {name}; {name}.main(steps={steps}, out={str(out)!r})")
    sys.path.insert(0, where)
    try:
        space = importlib.import_module(name).space
    finally:
        sys.path.remove(where)
    result = procurl.load_result(out)
    tasks = result.trace["task_context"][0], result.trace["task_row"][0]
    return result, Meter(space).chance_of_uniform(*tasks)


@pytest.mark.parametrize("name", [p if p in SHORT else pytest.param(p, marks=pytest.mark.slow) for p in PROBLEMS])
def test_nothing_is_said_but_context_and_target_and_there_is_a_curriculum(name, tmp_path):
    pytest.importorskip("stable_baselines3")
    steps = {"cartpole_ppo": 12_000, "pendulum_sac": 40_000, "mountain_car_sac": 40_000, **SHORT}.get(name, 60_000)
    result, chance = taught(name, steps, tmp_path / "run")
    assert result.status == "finished" and np.isfinite(result.ret).all()
    assert np.nanmean(result.trace["effective_share"]) <= 0.8
    assert chance < 0.001
