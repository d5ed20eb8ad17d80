"""The run folder: complete, readable without procurl, verified, and never overwritten."""

import errno
import hashlib
import json
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import safetensors.numpy
from worlds import assert_same, run

import procurl
from procurl.errors import ConfigError, RunFolderError
from procurl.runs.store import disk
from procurl.runs.store.result import SaveError


@pytest.fixture(scope="module")
def result():
    return run(seeds=[3, 5])


@pytest.fixture
def folder(result, tmp_path):
    return result.save(tmp_path / "run")


def test_a_saved_run_comes_back_whole(result, folder):
    again = procurl.load_result(folder)
    assert_same(result, again)
    assert again.config == result.config and again.provenance == result.provenance and again.timing == result.timing
    np.testing.assert_array_equal(again.ret, result.ret)
    assert again.status == "finished"


def test_the_folder_is_readable_without_procurl(result, folder):
    names = {"config.json", "provenance.json", "evaluations.npz", "trace.npz", "policy.safetensors", "timing.json"}
    assert {p.name for p in folder.iterdir()} == names | {"manifest.json"}
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["format"] == "procurl-run" and manifest["version"] == 1
    for name in names:
        assert manifest["sha256"][name] == hashlib.sha256((folder / name).read_bytes()).hexdigest()
    evaluations = np.load(folder / "evaluations.npz", allow_pickle=False)
    np.testing.assert_array_equal(evaluations["ret"], result.ret)
    config = json.loads((folder / "config.json").read_text())
    assert config["setting"] == "point-mass-2g" and config["seeds"] == [3, 5]
    assert config["teacher"]["class"] == "ProCuRLTarget" and config["teacher"]["beta"] == 130.0
    assert config["config"]["ppo"]["n_steps"] == 256
    tensors = safetensors.numpy.load_file(folder / "policy.safetensors")
    assert tensors["policy.0.w"].shape == (2, 16, 16)
    provenance = json.loads((folder / "provenance.json").read_text())
    assert provenance["procurl"] == procurl.__version__ and provenance["devices"] == ["cpu:cpu", "cpu:cpu"]


def test_two_saves_of_the_same_run_differ_in_timing_alone(result, folder, tmp_path):
    other = run(seeds=[3, 5]).save(tmp_path / "other")
    for path in folder.iterdir():
        if path.name not in ("timing.json", "manifest.json"):
            assert path.read_bytes() == (other / path.name).read_bytes(), path.name


def test_a_folder_that_holds_anything_is_refused(result, folder, tmp_path):
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    with pytest.raises(RunFolderError, match="already holds a run; nothing was changed"):
        result.save(folder)
    with pytest.raises(RunFolderError, match="already holds a run"):
        run(out=folder, steps=10**9)  # refused before any work is done, or this would never end
    assert before == {p.name: p.read_bytes() for p in folder.iterdir()}
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.tex").write_text("years of work")
    with pytest.raises(RunFolderError, match="is not empty .it holds thesis.tex"):
        result.save(tmp_path / "notes")
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunFolderError, match="cannot use"):
        result.save(tmp_path / "file")


@pytest.mark.parametrize("failing", ["evaluations.npz", "manifest.json"])
def test_a_full_disk_leaves_nothing_half_done(result, tmp_path, monkeypatch, failing):
    real = disk.write

    def full(path, content):
        if path.name == failing:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, content)

    monkeypatch.setattr(disk, "write", full)
    with pytest.raises(SaveError, match="No space left on device. Nothing was overwritten") as caught:
        result.save(tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []
    monkeypatch.undo()
    caught.value.result.save(tmp_path / "run")  # nothing was lost
    assert procurl.load_result(tmp_path / "run").status == "finished"


def test_a_real_limit_on_file_size_is_reported(folder, tmp_path):
    """The operating system itself refuses the write."""
    script = textwrap.dedent(
        """
        import resource, signal, sys
        from procurl.errors import RunFolderError
        from procurl.runs.store.result import load_result
        result = load_result(sys.argv[1])
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            result.save(sys.argv[2])
        except RunFolderError as error:
            print(error)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder), str(tmp_path / "new")], capture_output=True, text=True, timeout=120
    )
    assert "could not write the run" in done.stdout and "Nothing was overwritten" in done.stdout, done.stderr
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.parametrize("name", ["config.json", "evaluations.npz", "trace.npz", "policy.safetensors", "timing.json"])
def test_damage_is_detected_and_named(folder, name):
    path = folder / name
    good = path.read_bytes()
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 1
    for bad in (bytes(flipped), good[:-1], good + b" "):
        path.write_bytes(bad)
        with pytest.raises(RunFolderError, match=f"{name} is damaged"):
            procurl.load_result(folder)
    path.unlink()
    with pytest.raises(RunFolderError, match=f"lacks {name}"):
        procurl.load_result(folder)


def test_other_formats_and_no_run_are_named(folder, tmp_path):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_bytes(disk.to_json({**manifest, "version": 99}))
    with pytest.raises(RunFolderError, match="procurl-run of version 99, and this procurl"):
        procurl.load_result(folder)
    (folder / "manifest.json").write_text("{")
    with pytest.raises(RunFolderError, match=r"manifest.json is damaged"):
        procurl.load_result(folder)
    with pytest.raises(RunFolderError, match="is not a folder"):
        procurl.load_result(tmp_path / "nowhere")
    with pytest.raises(RunFolderError, match=r"has no manifest.json"):
        procurl.load_result(tmp_path)


class Bomb:
    def __reduce__(self):
        return (print, ("a pickle was run",))


def test_a_pickle_inside_an_npz_is_refused(folder):
    """Even with a matching manifest, as a malicious stranger would send it."""
    np.savez(folder / "trace.npz", x=np.array([Bomb()], dtype=object))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["sha256"]["trace.npz"] = hashlib.sha256((folder / "trace.npz").read_bytes()).hexdigest()
    (folder / "manifest.json").write_bytes(disk.to_json(manifest))
    assert pickle.PickleError  # what must not be reached
    with pytest.raises(RunFolderError, match=r"trace.npz cannot be read"):
        procurl.load_result(folder)


def test_a_policy_predicts(result, folder):
    policy = procurl.load_policy(folder, seed=5)
    obs = np.zeros((4, 7), np.float32)
    best = policy.predict(obs)
    assert best.shape == (4, 2)
    np.testing.assert_allclose(best[0], policy.predict(obs[0]), atol=1e-6)
    first, second = policy.predict(obs, deterministic=False), policy.predict(obs, deterministic=False)
    assert not np.array_equal(first, second) and not np.array_equal(first, best)
    hidden = np.maximum(obs @ result.params["shared.0.w"][1] + result.params["shared.0.b"][1], 0)
    hidden = np.maximum(hidden @ result.params["policy.0.w"][1] + result.params["policy.0.b"][1], 0)
    by_hand = hidden @ result.params["policy.1.w"][1] + result.params["policy.1.b"][1]
    np.testing.assert_allclose(best, np.clip(by_hand, -10, 10), atol=1e-5)
    with pytest.raises(ConfigError, match=r"expected \(7,\) or \(n, 7\)"):
        policy.predict(np.zeros(6))
    with pytest.raises(ConfigError, match="NaN or infinity"):
        policy.predict(np.full(7, np.nan))
    with pytest.raises(ConfigError, match=r"seed 4 is not in .*: it holds the seeds \[3, 5\]"):
        procurl.load_policy(folder, seed=4)
