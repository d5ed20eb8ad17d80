"""Files that earlier versions wrote are read, for ever: see tests/golden/README.md and docs/versioning.md."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open

import procurl
from procurl import cli
from procurl.bench.grid import folder
from procurl.bench.report.studies import collect
from procurl.errors import NewerFormatError
from procurl.runs.provenance import rebuilt
from procurl.runs.store import failure, state
from procurl.runs.store.checkpoint import CHECKPOINT, load_checkpoint
from procurl.runs.store.failure import FAILURE
from procurl.runs.store.result import RUN, remove_result

pytestmark = pytest.mark.exact

ACTION = [-0.060429, 0.110801]  # what the golden policy does, when it was written
GOLDEN = Path(__file__).parent / "golden"
FIRST = GOLDEN / "0.1.0"
STATES = [FIRST, GOLDEN / "state-1"]  # each with a curriculum and a state, of format 2 and 1


def curriculum():
    """The one that was saved, before anything was done with it."""
    space = procurl.task_space([0.0], [1.0], target=[1.0], units="raw", value_range=(0.0, 1.0), pool_size=8)
    return procurl.Curriculum(procurl.make_teacher("procurl-target", space, beta=130.0), every=3, unit="episodes")


def used_curriculum():
    """As it was saved: four episodes, of which three were watched."""
    used = curriculum()
    for ret in (0.0, 1.0, 0.5):
        used.record(used.next(), ret=ret, length=4)
    used.observe(value=lambda tasks: tasks.context[:, 0])
    used.record(used.next(), ret=0.25, length=7)
    return used


def plain_state():
    return {"weights": jnp.arange(3, dtype=jnp.float32), "counts": (jnp.int32(5), jnp.bool_(True))}


def formats():
    """All that procurl writes today."""
    return {(f.name, str(f.version)) for f in (RUN, CHECKPOINT, FAILURE)} | {
        (name, str(version)) for name, version in (state.FORMAT, folder.FORMAT)
    }


def formats_of(path):
    if path.name in ("manifest.json", "grid.json"):
        row = json.loads(path.read_text())
        return row["format"], str(row["version"])
    with safe_open(path, "numpy") as file:
        return tuple((file.metadata() or {}).get(key) for key in ("format", "version"))


def test_there_is_one_of_every_format():
    """A new version of a format needs a new file here, written by the release that brings it."""
    files = [p for name in ("manifest.json", "grid.json", "*.safetensors") for p in GOLDEN.rglob(name)]
    assert formats() <= {formats_of(path) for path in files}
    assert ("procurl-state", "1") in {formats_of(path) for path in files}


def test_a_finished_run():
    result = procurl.load_result(FIRST / "finished")
    assert result.status == "finished" and result.provenance["procurl"] == "0.1.0"
    assert result.steps.tolist() == [0, 128, 256] and result.seeds.tolist() == [0, 1]
    assert result.config["setting"] == "point-mass-1t" and result.config["teacher"]["class"] == "IID"
    assert result.trace["task_context"].shape[:2] == (2, 2) and np.isfinite(result.trace["loss_value"]).all()
    policy = procurl.load_policy(FIRST / "finished", seed=1)
    action = policy.predict([0.0, 0.0, 3.0, 0.0, 2.5, 0.5, 0.0], deterministic=True)
    np.testing.assert_allclose(action, ACTION, rtol=1e-4)


def test_its_checkpoint():
    found = load_checkpoint(FIRST / "finished")
    assert found.steps_done == 256 and found.is_evaluated and found.config["config"]["ppo"]["n_envs"] == 4
    assert load_checkpoint(FIRST / "finished", 1).steps_done == 128


@pytest.mark.slow
def test_it_can_be_trained_further(tmp_path):
    run = shutil.copytree(FIRST / "finished", tmp_path / "run")
    command = [sys.executable, "-m", "procurl.cli", "resume", str(run), "--steps", "128", "--quiet", "--device", "cpu"]
    assert subprocess.run(command).returncode == 0
    before, after = procurl.load_result(FIRST / "finished"), procurl.load_result(run)
    assert after.steps.tolist() == [0, 128, 256, 384]
    np.testing.assert_array_equal(after.task_ret[:, :3], before.task_ret)


def test_a_failed_seed():
    found = failure.read(FIRST / "failed/failures/seed-1")
    assert (found.seed, found.iteration, found.what, found.step, found.environment) == (1, 3, "reward", 17, 5)
    assert "seed 1: NaN or infinity in reward at iteration 3" in str(found)
    assert np.isnan(found.place["reward"]) and found.place["action"].tolist() == [0.5, -0.5]


@pytest.mark.parametrize("home", STATES, ids=lambda home: home.name)
def test_a_curriculum(home):
    found = curriculum()
    found.load(home / "curriculum.safetensors")
    assert found.updates == 1
    (row,) = np.flatnonzero(found.episodes.finished)  # the episode after the update
    assert (found.episodes.ret[row], found.episodes.length[row]) == (0.25, 7)
    weights = found.state_dict()["teacher"].log_weights
    np.testing.assert_array_equal(weights, np.zeros(8))  # flat: the values said that the target is mastered


@pytest.mark.parametrize("home", STATES, ids=lambda home: home.name)
def test_a_state(home):
    found = procurl.load_state(home / "state.safetensors", like=plain_state())
    np.testing.assert_array_equal(found["weights"], [0, 1, 2])
    assert int(found["counts"][0]) == 5 and bool(found["counts"][1])
    assert state.read_notes(home / "state.safetensors")["setting"] == "point-mass-1t"


def test_a_benchmark(capsys):
    assert cli.main(["bench", "status", str(FIRST / "grid")]) == 0
    said = capsys.readouterr().out
    assert "1 done" in said and "1 failed" in said and "out of memory" in said


NEWER = (
    r"was written by a newer version of procurl \(9\.8\.7\).* of version 99, and this procurl .* Nothing was changed"
)


def of_the_future(path):
    """A manifest or grid.json of a later format: with more in it, and not as we would write it."""
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 99, "procurl": "9.8.7", "sha256": "?"}))


@pytest.fixture
def later(tmp_path):
    """A run whose result a later procurl has written, beside checkpoints that we know."""
    run = shutil.copytree(FIRST / "finished", tmp_path / "run")
    row = json.loads((run / "provenance.json").read_text())
    (run / "provenance.json").write_text(json.dumps({**row, "procurl": "9.8.7"}))
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "version": 99}))
    return run


def contents(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("resume", ["auto", "extend", "never", 1])
def test_training_leaves_a_newer_result_alone(later, resume):
    before = contents(later.parent)
    config = json.loads((later / "config.json").read_text())
    env, teacher, student = rebuilt(config)
    with pytest.raises(NewerFormatError, match=NEWER):
        procurl.train(env, teacher, student, seeds=config["seeds"], steps=512, out=later, resume=resume)
    assert contents(later.parent) == before


@pytest.mark.parametrize(
    "command",
    ["resume RUN --steps 128", "resume RUN --from 1", "evaluate RUN", "plot RUN --out PICTURES", "watch RUN"],
)
def test_commands_leave_a_newer_result_alone(later, command, monkeypatch, capsys):
    for name in ("use_cores", "use_device"):
        monkeypatch.setattr(procurl.devices, name, lambda *args, **kwargs: None)  # JAX runs already
    before = contents(later.parent)
    words = {"RUN": str(later), "PICTURES": str(later / "pictures")}
    assert cli.main([words.get(word, word) for word in command.split()]) == 1
    assert re.search(NEWER, capsys.readouterr().err)
    assert contents(later.parent) == before


def test_a_report_says_which_results_are_newer(later, tmp_path, capsys):
    shutil.copytree(FIRST / "finished", tmp_path / "known")
    before = contents(later)
    assert cli.main(["report", str(tmp_path), "--out", str(tmp_path / "report.html")]) == 0
    assert re.search(NEWER, capsys.readouterr().err)
    assert contents(later) == before


def test_nothing_newer_is_read(later, tmp_path):
    checkpoint = later / "checkpoints/0000000002"
    (later / "manifest.json").rename(tmp_path / "manifest.json")
    of_the_future(checkpoint / "manifest.json")
    with pytest.raises(NewerFormatError, match=r"newer version of procurl \(0\.1\.0\)"):  # as its run.json says
        load_checkpoint(later)
    (tmp_path / "manifest.json").rename(later / "manifest.json")
    failed = shutil.copytree(FIRST / "failed/failures/seed-1", tmp_path / "seed-1")
    of_the_future(failed / "manifest.json")
    for load in (lambda: procurl.load_result(later), lambda: procurl.load_policy(later), lambda: failure.read(failed)):
        with pytest.raises(NewerFormatError, match=NEWER):
            load()


def test_no_newer_state_is_read(tmp_path):
    path = tmp_path / "state.safetensors"
    path.write_bytes((FIRST / "state.safetensors").read_bytes().replace(b'"version":"2"', b'"version":"3"'))
    for load in (lambda: procurl.load_state(path, like=plain_state()), lambda: curriculum().load(path)):
        with pytest.raises(NewerFormatError, match="a newer version of procurl: it is a procurl-state of version 3"):
            load()


def test_a_newer_benchmark_is_left_alone(later, tmp_path):
    home = shutil.copytree(FIRST / "grid", tmp_path / "grid")
    known = folder.GridFolder.load(home)
    merged = known.merged(known.cells[0].group)
    shutil.copytree(later, merged)
    before = contents(home)
    with pytest.raises(NewerFormatError, match=NEWER):
        known.prepare()
    assert contents(home) == before
    shutil.rmtree(merged)
    of_the_future(home / "grid.json")
    before = contents(home)
    for use in (known.prepare, lambda: folder.GridFolder.load(home), lambda: collect([home])):
        with pytest.raises(NewerFormatError, match=NEWER):
            use()
    assert contents(home) == before


def test_nobody_takes_a_newer_result_away(later):
    shutil.rmtree(later / "checkpoints")
    before = contents(later)
    with pytest.raises(NewerFormatError, match=NEWER):
        remove_result(later)
    assert contents(later) == before
