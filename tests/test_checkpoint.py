"""A run cut anywhere goes on as if nothing had happened; a damaged checkpoint is named and never taken."""

import dataclasses
import errno
import json
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_teachers import SMALLER
from worlds import SMALL, assert_same, run, small_setting

import procurl
from procurl.errors import CheckpointError, ConfigError, RunFolderError
from procurl.runs import interrupt
from procurl.runs.engine import Engine
from procurl.runs.provenance import describe, rebuilt
from procurl.runs.store import checkpoint, disk

GOLDEN = Path(__file__).parent / "golden"


def cut_after(monkeypatch, iterations):
    """As if Ctrl-C came after so many iterations of the first chunk."""

    class Cut(interrupt.Interruptible):
        left = iterations

        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            if name == "unsaved" and value:  # the loop says so after every iteration
                self.left -= 1
                self.requested = self.left <= 0

    monkeypatch.setattr(interrupt, "Interruptible", Cut)


def deterministic_files(folder):
    names = ("config.json", "provenance.json", "evaluations.npz", "trace.npz", "policy.safetensors")
    return {name: (folder / name).read_bytes() for name in names}


def tiny_world(setting, teacher):
    env, space = small_setting(setting)
    fields = {"update_after": 2} if teacher == "currot" else {}
    return env, procurl.make_teacher(teacher, space, **{**SMALLER.get(teacher, {}), **fields})


IN_JAX = sorted(set(procurl.SETTINGS) - {"bipedal", "bipedal-jax"})  # test_host.py, test_sac_loop.py
PAIRS = [(s, t) for s in IN_JAX for t in sorted(procurl.TEACHERS)]


@pytest.mark.exact
@pytest.mark.slow
@pytest.mark.parametrize(("setting", "teacher"), PAIRS)
def test_a_cut_run_goes_on_bitwise(setting, teacher, tmp_path, monkeypatch):
    """Three seeds on two devices, cut twice, in the middle of a chunk and of many episodes.

    Among the fast tests, test_guards.py has a run of eleven seeds, cut before and after one of them fails.
    """
    env, teacher = tiny_world(setting, teacher)
    config = dataclasses.replace(SMALL, evaluate_every=4)
    train = lambda **options: procurl.train(env, teacher, config, seeds=3, steps=14 * 256, **options)  # noqa: E731
    whole = train()
    for iterations in (3, 1):  # after 3 and 4 of 14, and then of the second chunk
        cut_after(monkeypatch, iterations)
        with pytest.raises(KeyboardInterrupt):
            train(out=tmp_path / "run")
        monkeypatch.undo()
    resumed = train(out=tmp_path / "run")
    assert len(resumed.timing["resumed_at_steps"]) == 2 and resumed.status == "finished"
    assert_same(whole, resumed)
    whole.save(tmp_path / "whole")
    assert deterministic_files(tmp_path / "run") == deterministic_files(tmp_path / "whole")


@pytest.mark.parametrize("name", sorted(procurl.TEACHERS))
def test_every_strategy_is_made_again_from_its_description(name):
    """As `procurl resume` does it. ADR's start and VDS's layers are tuples."""
    env, space = procurl.make("maze-plane")
    described = describe(env, procurl.make_teacher(name, space), SMALL, (0,), 256)
    env, teacher, config = rebuilt(described)
    assert describe(env, teacher, config, (0,), 256) == described and config == SMALL


def train_and_die(folder, teacher, seeds, how, number):
    """In a process of its own, which a real SIGKILL ends; False if it came to its end before."""
    script = textwrap.dedent(
        """
        import os, random, signal, sys, threading
        folder, teacher, seeds, how, number, tests = sys.argv[1:]
        sys.path.insert(0, tests)
        import conftest
        from procurl.runs.store import disk
        from test_checkpoint import LONG
        from worlds import run

        rng = random.Random(number)

        def die(*_):
            os.kill(os.getpid(), signal.SIGKILL)

        if how == "in a save":
            left, real = rng.randrange(1, 13), disk.write

            def write(path, content):
                global left
                left -= 1
                if left == 0:
                    real(path, content[: rng.randrange(len(content) + 1)])
                    die()
                real(path, content)

            disk.write = write

        armed = False

        def callback(progress):
            global armed
            if how == "anywhere" and not armed:
                armed = True
                threading.Timer(rng.uniform(0.0, 0.3), die).start()

        run(teacher, seeds=int(seeds), steps=LONG, out=folder, callback=callback, save_share=1.0)
        """
    )
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder), teacher, str(seeds), how, str(number), str(here)],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


LONG = 150 * 512  # steps of the run that is killed: more than the kills leave time for


@pytest.mark.kill
@pytest.mark.parametrize(
    ("teacher", "seeds", "kills"),
    [
        ("procurl-target", 2, 6),
        ("plr", 1, 4),
        *(pytest.param(t, s, 7, marks=pytest.mark.slow) for t in sorted(procurl.TEACHERS) for s in (1, 2)),
    ],
)
def test_a_killed_run_goes_on_bitwise(teacher, seeds, kills, tmp_path):
    rng = np.random.default_rng(seeds)
    for kill in range(kills):
        how = "in a save" if kill % 2 else "anywhere"
        assert train_and_die(tmp_path / "run", teacher, seeds, how, rng.integers(2**31)), f"not killed: {how}"
    assert not train_and_die(tmp_path / "run", teacher, seeds, "not at all", 0)
    assert_same(run(teacher, seeds=seeds, steps=LONG), procurl.load_result(tmp_path / "run"))


@pytest.fixture(scope="module")
def cut_run(tmp_path_factory):
    """A folder with two checkpoints, of iterations 2 and 4."""
    folder = tmp_path_factory.mktemp("cut") / "run"
    run(steps=10 * 256, out=folder, save_share=1.0, callback=lambda progress: progress.steps < 4 * 256)
    assert [p.name for p in checkpoint.checkpoints(folder)] == ["0000000002", "0000000004"]
    return folder


@pytest.fixture(scope="module")
def uncut():
    return run(steps=10 * 256)


@pytest.fixture
def folder(cut_run, tmp_path):
    return Path(shutil.copytree(cut_run, tmp_path / "run"))


def snapshot(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("file", ["run.json", "log.npz", "state.safetensors", "manifest.json"])
def test_damage_is_named_and_the_checkpoint_before_is_offered_not_taken(folder, uncut, file):
    path = folder / "checkpoints" / "0000000004" / file
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    damaged = [good[:-1], good[: len(good) // 2], b"", None]
    for _ in range(20):
        flipped = bytearray(good)
        flipped[rng.integers(len(good))] ^= 1 << rng.integers(8)
        damaged.append(bytes(flipped))
    for bad in damaged:
        path.unlink(missing_ok=True)
        if bad is not None:
            path.write_bytes(bad)
        before = snapshot(folder)
        with pytest.raises(CheckpointError, match=r"0000000004.*iteration 2 before it is whole.*--from 2") as caught:
            run(steps=10 * 256, out=folder)
        assert file in str(caught.value) or file == "manifest.json"
        assert snapshot(folder) == before, "nothing was touched"
    result = run(steps=10 * 256, out=folder, resume=2)  # the user says so
    assert_same(uncut, result)
    assert (folder / "checkpoints" / "set-aside-0000000004").is_dir()


def test_what_a_kill_left_of_an_old_checkpoint_is_no_obstacle(folder):
    """Cut off while it removed one that it no longer needs: the next removal must not stumble over the remains."""
    shutil.copytree(folder / "checkpoints" / "0000000002", folder / "checkpoints" / ".old")
    run(steps=10 * 256, out=folder, save_share=1.0)  # a warning is an error here
    assert sorted(p.name for p in (folder / "checkpoints").iterdir()) == ["0000000008", "0000000010"]


def test_an_unfinished_run_is_called_so(folder):
    (folder / "manifest.json").unlink()
    with pytest.raises(RunFolderError, match="holds an unfinished run: `procurl resume .*run` goes on with it"):
        procurl.load_result(folder)


def test_the_page_runs_as_printed(tmp_path, monkeypatch):
    page = (Path(__file__).parent.parent / "docs/checkpoints.md").read_text()
    monkeypatch.chdir(tmp_path)
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], {})
    assert (tmp_path / "state.safetensors").is_file()


def test_an_extra_file_is_named(folder):
    (folder / "checkpoints" / "0000000004" / "virus.bin").write_text("x")
    with pytest.raises(CheckpointError, match=r"holds virus.bin, which procurl did not write there"):
        run(steps=10 * 256, out=folder)


def test_no_whole_checkpoint_is_said(folder):
    for path in checkpoint.checkpoints(folder):
        (path / "log.npz").unlink()
    with pytest.raises(CheckpointError, match=r"lacks log.npz.*There is no earlier one that is whole"):
        run(steps=10 * 256, out=folder)


def test_other_versions_are_named(folder):
    manifest = folder / "checkpoints" / "0000000004" / "manifest.json"
    manifest.write_bytes(disk.to_json({**json.loads(manifest.read_text()), "version": 7}))
    with pytest.raises(CheckpointError, match="procurl-checkpoint of version 7"):
        run(steps=10 * 256, out=folder)


def test_a_second_writer_is_refused(folder):
    with checkpoint.only_writer(folder):
        for resume in ("auto", "never", "extend"):
            with pytest.raises(RunFolderError, match="is being written by another process"):
                run(steps=10 * 256, out=folder, resume=resume)
    assert run(steps=10 * 256, out=folder).status == "finished", "the lock is gone with its holder"


def test_another_configuration_is_refused_with_what_differs(folder):
    before = snapshot(folder)
    other = dataclasses.replace(SMALL, ppo=dataclasses.replace(SMALL.ppo, lr=0.5))
    with pytest.raises(RunFolderError, match=r"config.ppo.lr: 0.0003 there, 0.5 here") as caught:
        run(seeds=[0, 4], steps=10 * 256, out=folder, config=other)
    assert "seeds: [0, 1] there, [0, 4] here" in str(caught.value) and "batch_size" not in str(caught.value)
    with pytest.raises(RunFolderError, match=r"teacher.class: 'ProCuRLTarget' there, 'IID' here"):
        run("iid", steps=10 * 256, out=folder)
    with pytest.raises(RunFolderError, match=r"steps: 2560 there, 5120 here\n.*procurl resume .* --steps MORE"):
        run(steps=20 * 256, out=folder)
    with pytest.raises(ConfigError, match="resume = 'maybe': expected 'auto'"):
        run(out=folder, resume="maybe")
    with pytest.raises(CheckpointError, match="no checkpoint of iteration 3: expected one of 2, 4"):
        run(steps=10 * 256, out=folder, resume=3)
    assert snapshot(folder) == before


@pytest.mark.slow
def test_fresh_moves_the_old_run_aside(folder):
    before = snapshot(folder)
    for aside in ("run.old", "run.old-2"):
        result = run("iid", steps=512, out=folder, resume="never")
        assert result.timing["resumed_at_steps"] == []
        if aside == "run.old":
            assert snapshot(folder.with_name(aside)) == before
        assert procurl.load_result(folder).config["teacher"]["class"] == "IID"
    assert procurl.load_result(folder.with_name("run.old-2")).status == "finished"
    stranger = folder.with_name("thesis")
    stranger.mkdir()
    (stranger / "chapter.tex").write_text("years of work")
    with pytest.raises(RunFolderError, match=r"is not empty .it holds chapter.tex"):
        run(out=stranger, resume="never")


def test_a_finished_run_can_be_trained_further(tmp_path):
    whole = run(steps=12 * 256)
    run(steps=4 * 256, out=tmp_path / "run")
    with pytest.raises(RunFolderError, match="already holds a run, and it is finished"):
        run(steps=4 * 256, out=tmp_path / "run", resume="extend")
    assert_same(whole, run(steps=12 * 256, out=tmp_path / "run", resume="extend"))
    with pytest.raises(ConfigError, match="has already played 3,072; expected more"):
        run(steps=256, out=tmp_path / "run", resume="extend")


def test_a_full_disk_is_reported_and_the_run_goes_on(tmp_path, monkeypatch):
    real = disk.write

    def full(path, content):
        if "checkpoints" in path.parts:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, content)

    monkeypatch.setattr(disk, "write", full)
    with pytest.warns(UserWarning, match="could not save a checkpoint .* No space left on device. The run goes on"):
        result = run(out=tmp_path / "run", save_share=1.0)
    assert_same(result, procurl.load_result(tmp_path / "run"))


def test_saving_keeps_to_its_share(tmp_path, monkeypatch):
    """A slow disk: a save is worth fifty times its time before the next."""
    clock, saves = [0.0], []

    class Pace(checkpoint.RunFolder):
        def _save(self, state, log):
            saves.append(clock[0])
            clock[0] += 1.0

    monkeypatch.setattr(checkpoint.time, "perf_counter", lambda: clock[0])
    folder = Pace(tmp_path, {}, save_share=0.02)

    class Seen:
        status, saving_seconds, iterations, failures_of_results = "running", 0.0, 0, [[]]

        def saved(self, seconds):
            self.saving_seconds += seconds

    class Engine:
        def saved(self, carry):
            return {}

    log, engine = Seen(), Engine()
    for _ in range(400):
        clock[0] += 1.0
        log.iterations += 1
        folder.keep(engine, None, log)
    assert saves[0] == 5.0, "the first soon: its cost is a guess"
    assert 0.015 < log.saving_seconds / clock[0] < 0.025
    log.status = "interrupted"
    log.iterations += 1
    folder.keep(engine, None, log)
    assert saves[-1] == clock[0] - 1.0, "at the end whatever it costs"


def test_one_state_in_one_file(tmp_path):
    teacher = procurl.make_teacher("plr", small_setting()[1])
    state = (teacher.init(jax.random.key(0)), {"w": jnp.arange(6.0), "key": jax.random.key(3), "step": jnp.int32(4)})
    path = procurl.save_state(tmp_path / "state.safetensors", state, setting="mine")
    fresh = (teacher.init(jax.random.key(9)), {"w": jnp.zeros(6), "key": jax.random.key(0), "step": jnp.int32(0)})
    again = procurl.load_state(path, like=fresh)
    assert jax.tree.structure(again) == jax.tree.structure(state)
    jax.tree.map(
        lambda a, b: np.testing.assert_array_equal(jax.random.key_data(a), jax.random.key_data(b))
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key) else np.testing.assert_array_equal(a, b),
        again, state,
    )  # fmt: skip
    procurl.save_state(path, fresh)  # replaces, as a whole
    assert [p.name for p in tmp_path.iterdir()] == ["state.safetensors"]
    with pytest.raises(CheckpointError, match=r"1.w is float32\[6\] there, expected float32\[5\]"):
        procurl.load_state(path, like=(fresh[0], {**fresh[1], "w": jnp.zeros(5)}))
    with pytest.raises(CheckpointError, match="lacks 1.momentum"):
        procurl.load_state(path, like=(fresh[0], {**fresh[1], "momentum": jnp.zeros(5)}))
    good = path.read_bytes()
    for bad in (good[:-1], good[:-3] + bytes([good[-3] ^ 1]) + good[-2:], b"nonsense", b""):
        path.write_bytes(bad)
        with pytest.raises(CheckpointError, match=r"state.safetensors (is damaged|cannot be read)"):
            procurl.load_state(path, like=fresh)


def test_files_of_every_format_version_are_read():
    """Written once by the version that introduced the format; see tests/golden/README.md."""
    result = procurl.load_result(GOLDEN / "run-1")
    assert result.status == "stopped" and result.steps.tolist() == [0, 512, 1024]
    found = checkpoint.load_checkpoint(GOLDEN / "run-1")
    assert found.steps_done == 1024 and found.config["teacher"]["class"] == "ProCuRLTarget"
    env, space = small_setting()
    engine = Engine(env, procurl.make_teacher("procurl-target", space), SMALL, (0, 1))
    carry, _ = engine.iterate(engine.restored(found.state, "golden"), 4)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(carry.student))
