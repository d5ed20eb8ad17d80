"""Runs of somebody else's loop in an ordinary run folder: written, read, cut, resumed, reported."""

import json
import subprocess
import sys

import numpy as np
import pytest

import procurl
from procurl.errors import CheckpointError, ConfigError, NonFiniteError, RunFolderError
from procurl.runs.store.join import joined

EVERY = 25


@pytest.fixture(scope="module")
def space():
    return procurl.task_space([0.0, 0.0], [1.0, 10.0], ["a", "b"], target=[1.0, 10.0], pool_size=60, n_held_out=4)


def curriculum_in(space, out, seed=0, **options):
    return procurl.Curriculum(procurl.ProCuRLPath(space), seed, every=EVERY, unit="episodes", out=out, **options)


def play(curriculum, updates, evaluate=True):
    """A student that is the better the longer it has played."""
    for _ in range(updates):
        while not curriculum.due:
            task = curriculum.next()
            easy = task.context.sum() < 2 + curriculum.updates
            curriculum.record(task, ret=float(easy), length=7, success=bool(easy))
        curriculum.observe()
        if evaluate and curriculum.updates % 2 == 0:
            curriculum.evaluated(curriculum.updates * EVERY * 7, np.full(3, curriculum.updates / 10), np.zeros(3))


@pytest.fixture(scope="module")
def whole(space, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    with curriculum_in(space, folder) as curriculum:
        play(curriculum, 6)
    return folder


def test_the_folder_is_a_run_like_any_other(space, whole):
    result = procurl.load_result(whole)
    assert result.status == "finished" and result.seeds.tolist() == [0]
    assert result.steps.tolist() == [2 * 175, 4 * 175, 6 * 175]
    np.testing.assert_allclose(result.ret, [[0.2, 0.4, 0.6]])
    assert result.held_out["context"].shape == (3, 2)
    trace = result.trace
    assert trace["started"].tolist() == [[25] * 6] and trace["task_context"].shape == (1, 6, 16, 2)
    assert np.isfinite(trace["effective_share"]).all() and np.isfinite(trace["box_distance"]).all()
    assert trace["steps"].tolist() == [[175.0 * (k + 1) for k in range(6)]]
    assert result.config["teacher"]["class"] == "ProCuRLPath"
    assert result.config["config"]["loop"] == {"n_steps": EVERY, "unit": "episodes", "n_envs": 1}
    assert result.provenance["engine"] == "a loop of its own"


def test_what_cannot_be_there_is_said(whole):
    assert procurl.load_result(whole).params == {}
    with pytest.raises(ConfigError, match=r"is a run of a loop of its own: it holds no policy of procurl's"):
        procurl.load_policy(whole)


def test_a_cut_run_goes_on_as_if_it_had_not_been(space, whole, tmp_path):
    curriculum = curriculum_in(space, tmp_path / "run", seed=0)
    play(curriculum, 3)
    curriculum.close("interrupted")
    assert procurl.load_result(tmp_path / "run").status == "interrupted"
    again = curriculum_in(space, tmp_path / "run")
    assert again.updates == 3
    play(again, 3)
    again.close()
    one, other = procurl.load_result(whole), procurl.load_result(tmp_path / "run")
    for name, array in one.trace.items():
        np.testing.assert_array_equal(other.trace[name], array, err_msg=name)
    np.testing.assert_array_equal(one.task_ret, other.task_ret)


def test_a_finished_run_can_be_trained_further(space, whole, tmp_path):
    with curriculum_in(space, tmp_path / "run") as curriculum:
        play(curriculum, 2)
    with curriculum_in(space, tmp_path / "run") as curriculum:
        play(curriculum, 4)
    np.testing.assert_array_equal(procurl.load_result(tmp_path / "run").ret, procurl.load_result(whole).ret)


def test_an_earlier_state_takes_back_what_came_after_it(space, tmp_path):
    curriculum = curriculum_in(space, tmp_path / "run")
    play(curriculum, 2)
    earlier = curriculum.state_dict()
    play(curriculum, 2)
    curriculum.load_state_dict(earlier)
    curriculum.close()
    result = procurl.load_result(tmp_path / "run")
    assert result.steps.tolist() == [350] and result.trace["steps"].tolist() == [[175.0, 350.0]]


def test_a_state_beyond_the_record_is_refused(space, tmp_path):
    ahead = curriculum_in(space, None)
    play(ahead, 2, evaluate=False)
    with curriculum_in(space, tmp_path / "run") as curriculum:
        play(curriculum, 1)
        with pytest.raises(
            CheckpointError, match="has had 2 updates, and its folder knows of 1: what happened in between"
        ):
            curriculum.load_state_dict(ahead.state_dict())


def test_a_saved_curriculum_is_never_ahead_of_its_folder(space, whole, tmp_path):
    curriculum = curriculum_in(space, tmp_path / "run")
    play(curriculum, 3)
    curriculum.save(tmp_path / "curriculum.safetensors")
    curriculum._run._open.close()  # as if the process had been killed
    curriculum._run = None
    again = curriculum_in(space, tmp_path / "run")
    again.load(tmp_path / "curriculum.safetensors")
    play(again, 3)
    again.close()
    np.testing.assert_array_equal(procurl.load_result(tmp_path / "run").ret, procurl.load_result(whole).ret)


def test_seeds_become_one_study(space, whole, tmp_path, command):
    with curriculum_in(space, tmp_path / "one", seed=1) as curriculum:
        play(curriculum, 6)
    both = joined([procurl.load_result(whole), procurl.load_result(tmp_path / "one")])
    assert both.seeds.tolist() == [0, 1] and both.trace["steps"].shape == (2, 6)
    done = command("report", str(whole), str(tmp_path / "one"), "-o", str(tmp_path / "report.html"))
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "report.html").read_text()
    assert (
        "ProCuRL-Path" in page and "of the pool (effective share, mean over training); distance to the targets" in page
    )
    assert command("plot", str(whole), str(tmp_path / "one"), "--out", str(tmp_path / "pictures")).returncode == 0
    assert list((tmp_path / "pictures").glob("*.png"))


@pytest.mark.slow
def test_pictures_tell_spaces_without_a_name_apart(space, whole, tmp_path, command):
    other = procurl.task_space([0.0, 0.0], [1.0, 10.0], ["a", "b"], target=[0.5, 5.0], pool_size=60, n_held_out=4)
    for seed in (0, 1):
        with curriculum_in(other, tmp_path / f"other-{seed}", seed=seed) as curriculum:
            play(curriculum, 2)
    done = command("plot", str(whole), *(str(tmp_path / f"other-{s}") for s in (0, 1)), "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert {p.name for p in (tmp_path / "out").glob("*-curves.png")} == {"custom-curves.png", "custom-2-curves.png"}


def test_a_report_does_without_success(space, tmp_path, command):
    with curriculum_in(space, tmp_path / "run") as curriculum:
        play(curriculum, 2, evaluate=False)
        curriculum.evaluated(350, [0.5, 1.0])
    assert np.isnan(procurl.load_result(tmp_path / "run").success).all()
    done = command("report", str(tmp_path / "run"), "-o", str(tmp_path / "report.html"))
    assert done.returncode == 0, done.stderr
    assert '"success":null' in (tmp_path / "report.html").read_text()


def test_a_run_that_was_never_evaluated_has_no_return(space, tmp_path):
    with curriculum_in(space, tmp_path / "run") as curriculum:
        play(curriculum, 2, evaluate=False)
    assert np.isnan(procurl.load_result(tmp_path / "run").ret).all()


def test_another_curriculum_in_the_same_folder_is_refused(space, whole):
    with pytest.raises(RunFolderError, match="holds another run; nothing was changed"):
        procurl.Curriculum(procurl.IID(space), every=EVERY, unit="episodes", out=whole)
    assert procurl.load_result(whole).status == "finished"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((10, [1.0] * 5), r"returns of shape \(5,\): expected 1 to 4"),
        ((10, 1.0), r"returns of shape \(\)"),
        ((10, ["a"]), "expected a number for each held-out task"),
        ((10, [1.0], [0.0, 1.0]), r"success of shape \(2,\)"),
        ((-1, [1.0]), "step = -1"),
    ],
)
def test_bad_evaluations_are_refused(space, tmp_path, given, message):
    with curriculum_in(space, tmp_path / "run") as curriculum, pytest.raises(ConfigError, match=message):
        curriculum.evaluated(*given)


def test_other_bad_evaluations(space, tmp_path):
    with curriculum_in(space, tmp_path / "run") as curriculum:
        with pytest.raises(NonFiniteError, match=r"returns\[1\] is not finite"):
            curriculum.evaluated(10, [0.0, float("nan")])
        curriculum.evaluated(10, [0.0, 1.0])
        with pytest.raises(ConfigError, match="expected 2, as before"):
            curriculum.evaluated(20, [0.0])
        with pytest.raises(ConfigError, match="step = 5"):
            curriculum.evaluated(5, [0.0, 1.0])
    with pytest.raises(ConfigError, match="there is no folder to write to"):
        procurl.Curriculum(procurl.IID(space)).evaluated(1, [1.0])


SCRIPT = """
import sys
sys.path.insert(0, "tests")
import procurl
from test_loop_run import curriculum_in, play
space = procurl.task_space([0.0, 0.0], [1.0, 10.0], ["a", "b"], target=[1.0, 10.0], pool_size=60, n_held_out=4)
curriculum = curriculum_in(space, sys.argv[1])
play(curriculum, 2)
"""


@pytest.mark.slow
def test_who_forgets_to_close_has_a_folder_all_the_same(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "run")], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    result = procurl.load_result(tmp_path / "run")
    assert result.status == "interrupted" and result.steps.tolist() == [350]
    assert json.loads((tmp_path / "run" / "config.json").read_text())["steps"] == 350
