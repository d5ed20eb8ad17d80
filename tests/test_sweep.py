"""Sweeps: every point is the run that `train` alone would give, and all of them go on together."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from test_checkpoint import cut_after, deterministic_files
from worlds import SMALL, Walk, assert_same, assert_same_up_to_rounding, walk_space

import procurl
from procurl.bench.report import figures, sweeps
from procurl.bench.report.studies import collect
from procurl.errors import CheckpointError, ConfigError, ProcurlError, RunFolderError
from procurl.runs.store.checkpoint import load_checkpoint
from procurl.runs.sweep.points import name_of

OVER = {"teacher.beta": [0.0, 200.0, 400.0]}
BOTH = {"teacher.beta": [0.0, 200.0], "ppo.lr": [1e-3, 3e-3]}
STEPS = 1024


QUICK = dataclasses.replace(SMALL, ppo=dataclasses.replace(SMALL.ppo, lr=3e-3))


def swept(over=BOTH, seeds=3, steps=STEPS, config=SMALL, **options):
    return procurl.sweep(Walk(), teacher(), config, over=over, seeds=seeds, steps=steps, **options)


def teacher(**fields):
    return procurl.make_teacher("procurl-unif", walk_space(), **fields)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("sweeps") / "whole"
    return swept(out=out), out


def test_points_of_the_teacher_are_what_train_gives():
    """As exactly as a seed in company is what it is alone."""
    done = swept(OVER, config=QUICK)
    assert [p["teacher.beta"] for p in done.points] == OVER["teacher.beta"]
    for point, result in zip(done.points, done.results, strict=True):
        alone = procurl.train(Walk(), teacher(beta=point["teacher.beta"]), QUICK, seeds=3, steps=STEPS)
        assert result.config == alone.config
        assert_same_up_to_rounding(result, alone)
    first, _, last = (result.trace["task_row"] for result in done.results)
    assert not np.array_equal(first, last)  # the values matter


def test_points_of_ppo_are_what_train_gives_up_to_rounding():
    """One update: after many, rounding has grown as it does between two processors."""
    once, alone = swept(steps=256), procurl.train(Walk(), teacher(beta=200.0), QUICK, seeds=3, steps=256)
    point = once[{"teacher.beta": 200.0, "ppo.lr": 3e-3}]
    assert point.config == alone.config
    np.testing.assert_array_equal(point.trace["task_seed"], alone.trace["task_seed"])
    for name in alone.params:
        np.testing.assert_allclose(point.params[name], alone.params[name], atol=3e-5, err_msg=name)
    ends = [r.params["policy.0.w"] for r in swept().results]
    assert not any(np.array_equal(a, b) for i, a in enumerate(ends) for b in ends[:i])  # every point is its own


def test_every_point_is_an_ordinary_result(whole):
    done, out = whole
    assert len(done.results) == 4
    for point, result in zip(done.points, done.results, strict=True):
        stored = procurl.load_result(out / name_of(point))
        assert_same(stored, result)
        assert stored.status == "finished"
        assert stored.config["teacher"]["beta"] == point["teacher.beta"]
        assert stored.config["config"]["ppo"]["lr"] == point["ppo.lr"]
    again = procurl.load_sweep(out)
    assert again.over == BOTH and again.points == done.points
    [study] = collect([out]).studies
    assert len(study.strategies) == 4
    assert procurl.load_policy(out / name_of(done.points[0])).predict(np.zeros(3, np.float32)) is not None


def test_a_cut_sweep_goes_on_bitwise(whole, tmp_path, monkeypatch):
    _, uncut = whole
    out = tmp_path / "cut"
    with monkeypatch.context() as patched:
        cut_after(patched, 3)
        with pytest.raises(KeyboardInterrupt):
            swept(out=out)
    assert procurl.load_sweep(out).results[0].status == "interrupted"
    swept(out=out)
    for folder in (p.parent for p in uncut.glob("*/manifest.json")):
        assert deterministic_files(out / folder.name) == deterministic_files(folder)


def test_a_longer_sweep_is_the_same_as_one_that_was_extended(whole, tmp_path):
    _, uncut = whole
    swept(out=tmp_path / "s", steps=512)
    swept(out=tmp_path / "s", steps=STEPS, resume="extend")
    for folder in (p.parent for p in uncut.glob("*/manifest.json")):
        assert deterministic_files(tmp_path / "s" / folder.name) == deterministic_files(folder)


def test_a_finished_sweep_is_read_and_another_one_refused(whole):
    done, out = whole
    before = {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file() and p.name != "sweep.json"}
    assert_same(swept(out=out).results[1], done.results[1])
    assert all(p.stat().st_mtime_ns == t for p, t in before.items())
    with pytest.raises(RunFolderError, match="another sweep.*\n.*over.teacher.beta"):
        swept({**BOTH, "teacher.beta": [0.0, 100.0]}, out=out)


def test_a_point_does_not_go_on_alone(whole, command):
    done, out = whole
    point = out / name_of(done.points[0])
    with pytest.raises(CheckpointError, match="share one program and cannot go on alone; `procurl resume .*whole`"):
        load_checkpoint(point)
    with pytest.raises(RunFolderError, match="point .*teacher.beta.* of a sweep"):
        procurl.train(Walk(), teacher(beta=0.0), SMALL, seeds=3, steps=2 * STEPS, out=point, resume="extend")
    said = command("resume", point)
    assert said.returncode == 1 and "cannot go on alone" in said.stderr
    with pytest.raises(RunFolderError, match="it is a sweep"):
        procurl.train(Walk(), teacher(), SMALL, out=out)


@pytest.mark.slow
def test_fields_that_shape_a_program_take_one_each(tmp_path, caplog):
    caplog.set_level("INFO", "procurl")
    over = {"ppo.epochs": [1, 2], "teacher.beta": [0.0, 200.0]}
    done = swept(over, seeds=1, steps=256, out=tmp_path / "s")
    assert "2 programs for 4 points: one for every value of ppo.epochs" in caplog.text
    assert [r.config["config"]["ppo"]["epochs"] for r in done.results] == [1, 1, 2, 2]
    assert sorted(p.name for p in (tmp_path / "s" / "programs").iterdir()) == ["0", "1"]


def test_a_point_that_fails_leaves_the_others_alone(tmp_path):
    over = {**BOTH, "ppo.lr": [1e-3, 1e30]}
    done = swept(over, steps=512, out=tmp_path / "s")
    good, bad = done[{"teacher.beta": 0.0, "ppo.lr": 1e-3}], done[{"teacher.beta": 0.0, "ppo.lr": 1e30}]
    assert good.status == "finished" and not good.failures
    assert bad.status == "failed" and len(bad.failures) == 3
    assert (tmp_path / "s" / "teacher.beta=0,ppo.lr=1e+30" / "failures" / "seed-1").is_dir()
    assert "0 of 3" in sweeps.table(done)
    assert_same(swept(over, steps=512, out=tmp_path / "s").results[0], good)


@pytest.mark.parametrize(
    ("over", "says"),
    [
        ({}, "expected values by name"),
        ({"teacher.bta": [1.0]}, "Did you mean teacher.beta"),
        ({"teacher.beta": 3.0}, "expected a list of values"),
        ({"teacher.beta": []}, "is empty"),
        ({"teacher.beta": [1.0, 1]}, "twice"),
        ({"teacher.beta": [-1.0]}, "beta = -1"),
        ({"ppo.lr": [float("nan")]}, "ppo.lr"),
        ({"ppo.n_envs": [7]}, "not divisible"),
        ({"teacher.beta": [object()]}, "expected numbers"),
        ({"teacher.beta": list(range(200)), "ppo.lr": [k / 1000 for k in range(200)]}, "40,000 points"),
    ],
)
def test_bad_values(over, says, tmp_path):
    with pytest.raises(ProcurlError, match=says):
        swept(over, out=tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_table_words_and_map(whole, tmp_path):
    done, _ = whole
    text = sweeps.table(done)
    assert text.count("\n") == 5 and "teacher.beta" in text and "[" in text
    assert "Largest mean return over training: teacher.beta = " in sweeps.best_in_words(done)
    figure = figures.sweep_maps(done)
    assert [axes.get_title() for axes in figure.axes] == list(sweeps.MEASURES.values())
    one_field = procurl.Sweep({"teacher.beta": BOTH["teacher.beta"]}, done.results[::2])
    [one] = figures.save(figures.sweep_maps(one_field), tmp_path / "one.png")
    assert one.stat().st_size > 5000


def test_the_command(tmp_path, command):
    out = tmp_path / "s"
    tiny = [f"--set={x}" for x in ("n_steps=128", "n_envs=8", "batch_size=64", "epochs=1", "shared=8", "separate=8")]
    sweep = ["sweep", "maze-1t", "--teacher", "iid"]
    said = command(*sweep, *tiny, "--over", "lr=1e-4,3e-4", "--seeds", 2, "--steps", 256, "--out", out, "--quiet")
    assert said.returncode == 0, said.stderr
    assert "| ppo.lr" in said.stdout and "Largest mean return" in said.stdout
    assert (out / "table.md").read_text().count("|") > 10
    assert (out / "heat-map.png").stat().st_size > 5000
    assert json.loads((out / "sweep.json").read_text())["over"] == {"ppo.lr": [1e-4, 3e-4]}
    assert command("resume", out, "--steps", 128, "--quiet").returncode == 0
    assert procurl.load_sweep(out).results[1].steps[-1] == 384
    for bad, says in (
        (["--over", "lr=1e-4,x"], "expected a value of type float"),
        (["--over", "shared=8"], "use procurl.sweep"),
        (["--over", "lr"], "expected NAME=VALUE"),
        (["--over", "max_steps=3"], "env"),
        ([], "nothing to sweep over"),
    ):
        said = command(*sweep, *bad)
        assert said.returncode == 1 and says in said.stderr


def test_a_sweep_that_is_damaged(whole, tmp_path):
    _, out = whole
    shutil.copytree(out, tmp_path / "s")
    plan = tmp_path / "s" / "sweep.json"
    for text, says in (
        ("{", "damaged"),
        (json.dumps({**json.loads(plan.read_text()), "points": ["../../x"]}), "lies elsewhere"),
        (json.dumps({**json.loads(plan.read_text()), "version": 2}), "newer version"),
    ):
        plan.write_text(text)
        with pytest.raises(RunFolderError, match=says):
            procurl.load_sweep(tmp_path / "s")


def test_a_config_error_is_one(tmp_path):
    with pytest.raises(ConfigError, match="resume"):
        swept(resume=3)
