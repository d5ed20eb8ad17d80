"""Damage is detected, named and never half-loaded; a disk that fails leaves the last good state as it was."""

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from worlds import assert_same, run

import procurl
from procurl import cli
from procurl.bench import report
from procurl.bench.grid.cells import Cell, Group
from procurl.bench.grid.folder import GridFolder
from procurl.errors import CheckpointError, NewerFormatError, RunFolderError
from procurl.runs.store import checkpoint, disk, state
from procurl.runs.store.result import FILES, SaveError

GOLDEN = Path(__file__).parent / "golden"
RESULT_FILES = (*FILES, "manifest.json")
CHECKPOINT_FILES = (*checkpoint.CHECKPOINT.files, "manifest.json")
LATEST = Path("checkpoints") / "0000000004"


@pytest.fixture
def folder(tmp_path):
    """A run that was cut: a result, and the checkpoints of iterations 2 and 4."""
    return Path(shutil.copytree(GOLDEN / "run-1", tmp_path / "run"))


def load_result(folder):
    return procurl.load_result(folder)


def load_checkpoint(folder):
    return checkpoint.load_checkpoint(folder)


PLACES = [
    *(pytest.param(load_result, Path(name), id=name) for name in RESULT_FILES),
    *(pytest.param(load_checkpoint, LATEST / name, id=f"checkpoint-{name}") for name in CHECKPOINT_FILES),
]


def assert_refused(load, folder, file):
    """The file is named; of a checkpoint, the one before is offered, and not taken.

    A single bit can make a manifest's version 9 of its 1. It then says that it is of a newer procurl, and is believed.
    """
    with pytest.raises(RunFolderError) as caught:
        load(folder)
    message = str(caught.value)
    assert file.name in message, message
    if isinstance(caught.value, NewerFormatError):
        assert file.name == "manifest.json" and "Nothing was changed" in message
    elif load is load_checkpoint:
        assert "0000000004" in message and "`procurl resume" in message and "--from 2`" in message, message
        assert "Nothing was loaded" in message


@pytest.mark.parametrize(("load", "file"), PLACES)
def test_every_flipped_byte_is_detected_and_its_file_named(load, file, folder):
    """A hundred for each of eleven files, and every byte of a manifest."""
    path = folder / file
    good = path.read_bytes()
    load(folder)
    rng = np.random.default_rng(len(good))
    everywhere = file.name == "manifest.json"
    for place in range(len(good)) if everywhere else rng.integers(len(good), size=100):
        with open(path, "r+b") as content:
            content.seek(place)
            content.write(bytes([good[place] ^ rng.integers(1, 256)]))
        assert_refused(load, folder, file)
        path.write_bytes(good)
    load(folder)


@pytest.mark.slow
@pytest.mark.parametrize(("load", "file"), PLACES)
def test_every_bit_of_small_files_and_a_thousand_of_others(load, file, folder):
    path = folder / file
    good = path.read_bytes()
    bits = np.random.default_rng(0).permutation(8 * len(good))[:5000]
    for bit in bits[: None if len(good) < 600 else 1000]:
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(bad)
        assert_refused(load, folder, file)


@pytest.mark.parametrize(("load", "file"), PLACES)
def test_truncated_longer_missing_and_extra_files_are_named(load, file, folder):
    path = folder / file
    good = path.read_bytes()
    for bad in (good[:-1], good[: len(good) // 2], good[:1], b"", good + b"\0", good + good):
        path.write_bytes(bad)
        assert_refused(load, folder, file)
    path.unlink()
    with pytest.raises(RunFolderError, match=file.name):
        load(folder)
    path.write_bytes(good)
    path.with_name("model.pkl").write_bytes(b"\x80\x04.")
    with pytest.raises(RunFolderError, match=r"holds model.pkl, which procurl did not write there"):
        load(folder)


def test_a_result_may_have_pages_folders_and_hidden_files_beside_it(folder):
    (folder / "logs").mkdir()
    (folder / ".DS_Store").write_bytes(b"")
    report.write(folder / "report.html", "<p>")
    assert procurl.load_result(folder).status == "stopped"


def test_files_of_two_checkpoints_do_not_mix(folder):
    """Each is undamaged, and yet not of this checkpoint."""
    for name in CHECKPOINT_FILES:
        kept = (folder / LATEST / name).read_bytes()
        shutil.copy(folder / "checkpoints" / "0000000002" / name, folder / LATEST / name)
        with pytest.raises(CheckpointError, match="before it is whole"):
            checkpoint.load_checkpoint(folder)
        (folder / LATEST / name).write_bytes(kept)
    shutil.rmtree(folder / LATEST)
    shutil.copytree(folder / "checkpoints" / "0000000002", folder / LATEST)
    with pytest.raises(CheckpointError, match=r"run.json holds something else: .*it is of iteration 2"):
        checkpoint.load_checkpoint(folder)


def test_every_flipped_byte_of_a_state_file_is_detected(tmp_path):
    """Of weights, header and notes alike."""
    tree = {"w": np.arange(20, dtype=np.float32), "n": np.array([3, 5])}
    path = procurl.save_state(tmp_path / "state.safetensors", tree, setting='a "quoted" name', other="")
    good = path.read_bytes()
    tensors, notes = state.read_state(path)
    np.testing.assert_array_equal(tensors["w"], tree["w"])
    assert notes["setting"] == 'a "quoted" name'
    rng = np.random.default_rng(0)
    for place in range(len(good)):
        bad = bytearray(good)
        bad[place] ^= rng.integers(1, 256)
        path.write_bytes(bad)
        with pytest.raises(CheckpointError, match=r"state.safetensors (is damaged|cannot be read|is not a procurl)"):
            state.read_state(path)


def test_state_files_of_the_first_version_are_read():
    tensors, notes = state.read_state(GOLDEN / "state-1.safetensors")
    assert tensors["w"].tolist() == [0, 1, 2, 3, 4, 5] and tensors["step"] == 4 and notes["setting"] == "mine"


def test_commands_name_the_damage_without_a_traceback(folder, capsys, tmp_path):
    (folder / "trace.npz").write_bytes(b"PK")
    for command in (["evaluate", str(folder)], ["plot", str(folder), "--out", str(tmp_path)], ["report", str(folder)]):
        assert cli.main(command) == 1
        assert "trace.npz is damaged" in capsys.readouterr().err


# --- disks that fail ---


@contextmanager
def mounted(place, *options):
    """A file system of its own; only root can have one, and not in every container."""
    place.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *options, str(place)], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill(folder):
    """Until nothing more fits."""
    with suppress(OSError), open(folder / "filler", "wb", buffering=0) as file:
        while file.write(b"\0" * 4096):
            pass


@pytest.fixture
def small_disk(tmp_path):
    if shutil.which("mount") is None or sys.platform != "linux":
        pytest.skip("no mount")
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=1m", "tmpfs") as place:
        yield place


def snapshot(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_full_disk_leaves_what_is_there(small_disk):
    """Every kind of file that procurl writes, each over an older one of its kind or beside it."""
    result = procurl.load_result(GOLDEN / "run-1")
    kept = procurl.save_state(small_disk / "state.safetensors", {"w": np.zeros(3)})
    page = report.write(small_disk / "report.html", "<p>old</p>")
    grid = GridFolder(small_disk, "mine", [Cell(Group("a", "b", "paper"), (0,), 1, "0")])
    grid.save()
    fill(small_disk)
    before = snapshot(small_disk)
    with pytest.raises(RunFolderError, match=r"state.safetensors: No space left on device. Nothing was overwritten"):
        procurl.save_state(kept, {"w": np.ones(100_000)})
    with pytest.raises(RunFolderError, match=r"could not write .*report.html: No space left on device"):
        report.write(page, "x" * 100_000)
    with pytest.raises(RunFolderError, match=r"grid.json: No space left on device. Finished cells are kept"):
        grid.save()
    with pytest.raises(SaveError, match="No space left on device. Nothing was overwritten"):
        result.save(small_disk / "new")
    (small_disk / "new").rmdir()  # it is empty
    assert snapshot(small_disk) == before


def test_a_disk_that_fills_up_during_a_run(small_disk, tmp_path, monkeypatch):
    """The checkpoint from before is intact, the result is put where there is room, and the message says where."""
    monkeypatch.setattr(checkpoint.tempfile, "gettempdir", lambda: str(tmp_path))

    def callback(progress):
        if progress.steps == 512:
            fill(small_disk)

    with (
        pytest.warns(UserWarning, match="could not save a checkpoint .* No space left on device. The run goes on"),
        pytest.raises(SaveError, match=r"No space left on device.*The result was rescued to .*run.rescued") as caught,
    ):
        run(out=small_disk / "run", callback=callback, save_share=1.0)
    assert_same(procurl.load_result(tmp_path / "run.rescued"), caught.value.result)
    assert not (small_disk / "run.rescued").exists(), "nothing half-written"
    assert sorted(p.name for p in (small_disk / "run").rglob("*")) == ["checkpoints"]
    (small_disk / "filler").unlink()
    assert_same(run(out=small_disk / "run"), caught.value.result)


def test_a_result_is_not_rescued_where_its_checkpoint_is_there(folder, tmp_path, monkeypatch):
    """Nothing is lost then, and no copy is needed."""
    result = procurl.load_result(folder)
    place = checkpoint.RunFolder(folder, result.config, 0.02)
    place._saved_iterations = 4

    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk, "write", full)
    with pytest.raises(SaveError, match=r"No space left on device.*last checkpoint is there: `procurl resume"):
        place.finish([result])
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_a_folder_that_vanishes_during_a_run(tmp_path):
    def callback(progress):
        if progress.steps == 512:
            shutil.rmtree(tmp_path / "run")

    with (
        pytest.warns(UserWarning, match="could not save a checkpoint .* No such file or directory. The run goes on"),
        pytest.raises(SaveError, match=r"No such file or directory.*The result was rescued to .*run.rescued") as caught,
    ):
        run(out=tmp_path / "run", callback=callback, save_share=1.0)
    assert [p.name for p in tmp_path.iterdir()] == ["run.rescued"]
    assert_same(procurl.load_result(tmp_path / "run.rescued"), caught.value.result)


def test_a_read_only_folder_is_refused_before_any_work(folder, tmp_path, capsys):
    if shutil.which("mount") is None or sys.platform != "linux":
        pytest.skip("no mount")
    before = snapshot(folder)
    with mounted(tmp_path / "view", "--bind", "-o", "ro", str(tmp_path)) as view:
        assert procurl.load_result(view / "run").status == "stopped", "it can be read"
        with pytest.raises(RunFolderError, match="cannot go on in .*run: no permission to write there"):
            run(steps=10 * 256, out=view / "run")
        with pytest.raises(RunFolderError, match="cannot use .*new as a run folder: Read-only file system"):
            run(out=view / "new")
        with pytest.raises(RunFolderError, match=r"could not write .*state: Read-only file system"):
            procurl.save_state(view / "state", {"w": np.zeros(3)})
        assert cli.main(["report", str(folder), "-o", str(view / "page.html")]) == 1
        assert "Read-only file system" in capsys.readouterr().err
    assert snapshot(folder) == before


def test_a_disk_that_becomes_read_only_in_the_middle_of_a_result(folder, tmp_path, monkeypatch):
    """Some files have arrived, and cannot be removed again: without a manifest they are no result."""
    result = procurl.load_result(folder)
    real, left = os.replace, [3]

    def replace(source, target):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.EROFS, "Read-only file system")
        real(source, target)

    def unlink(self, missing_ok=False):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(Path, "unlink", unlink)
    with pytest.raises(SaveError, match="Read-only file system"):
        result.save(tmp_path / "new")
    monkeypatch.undo()
    with pytest.raises(RunFolderError, match=r"has no manifest.json"):
        procurl.load_result(tmp_path / "new")
    assert_same(result, procurl.load_result(result.save(tmp_path / "again")))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_the_device_that_is_always_full():
    with pytest.raises(OSError, match="No space left on device"):
        disk.write(Path("/dev/full"), b"x")


def test_a_limit_on_file_size_leaves_the_older_state(tmp_path):
    path = procurl.save_state(tmp_path / "state.safetensors", {"w": np.zeros(3)})
    good = path.read_bytes()
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(RunFolderError, match="File too large. Nothing was overwritten"):
            procurl.save_state(path, {"w": np.ones(5000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert snapshot(tmp_path) == {"state.safetensors": good}


def test_what_a_kill_left_of_an_old_checkpoint_does_not_stop_the_next(folder):
    """`.old` with something in it: a process was killed while it removed a checkpoint."""
    shutil.copytree(folder / LATEST, folder / "checkpoints" / ".old")
    found = checkpoint.load_checkpoint(folder)

    class Log:
        iterations = 6

        def state(self):
            return found.log

    checkpoint.RunFolder(folder, found.config, 0.02)._save(found.state, Log())
    assert sorted(p.name for p in (folder / "checkpoints").iterdir()) == ["0000000004", "0000000006"]
