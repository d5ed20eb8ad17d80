"""Logs beside a run: what they hold is what the run reported, once each, and they never touch the run."""

import dataclasses
import json
import logging
import os
import struct
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer.record_writer import RecordWriter
from wandb.proto.wandb_internal_pb2 import Record
from worlds import SMALL, Walk, walk_space

import procurl
from procurl import cli
from procurl.errors import ConfigError, MissingExtraError, RunFolderError
from procurl.integrations import tracking
from procurl.integrations.tracking import TensorBoardLog, WandbLog, together
from procurl.runs.log import Progress

NAMES = ("distance", "wind")


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")


def train(callback, steps=2048, out=None, **options):
    teacher = procurl.make_teacher("iid", walk_space())
    return procurl.train(Walk(), teacher, SMALL, seeds=(3, 8), steps=steps, out=out, callback=callback, **options)


@pytest.fixture(scope="module")
def undisturbed():
    return train(None)


def events(folder):
    """What TensorBoard shows of a folder: all tags with their (step, value) pairs."""
    found = EventAccumulator(str(folder))
    found.Reload()
    return {tag: [(e.step, e.value) for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def wandb_rows(folder):
    """All rows of history in the offline folders below, in the order of the folders."""
    rows = []
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for data in log_records(path.read_bytes()):
            record = Record.FromString(data)
            if record.WhichOneof("record_type") == "history":
                rows.append({"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in record.history.item})
    return rows


def log_records(data):
    """LevelDB's log format: blocks of 32 KiB, after seven bytes of W&B's own; a record may be cut into fragments."""
    assert data[:4] == b":W&B"
    at, parts = 7, []
    while at < len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        parts.append(data[at + 7 : at + 7 + length])
        at += 7 + length
        if kind in (1, 4):  # whole, or the last fragment
            yield b"".join(parts)
            parts = []


def test_tensorboard_shows_every_evaluation(tmp_path, undisturbed):
    with TensorBoardLog(tmp_path / "logs", names=NAMES) as log:
        result = train(log, time_teacher=True)
    steps = result.steps[1:].tolist()
    assert steps == [512, 1024, 1536, 2048]
    for row, seed in enumerate((3, 8)):
        seen = events(tmp_path / f"logs/seed-{seed}")
        assert seen["target/return"] == list(zip(steps, result.ret[row, 1:].tolist(), strict=True))
        trained = result.trace["train_return"][row, 1::2]  # the iteration before each evaluation
        assert seen["training/return"] == [(s, x) for s, x in zip(steps, trained.tolist(), strict=True) if x == x]
        losses = result.trace["loss_value"][row, 1::2]
        assert seen["loss/value"] == list(zip(steps, losses.tolist(), strict=True))
        context = np.nanmean(result.trace["task_context"][row, 1::2], axis=1)  # f32[4, 2]
        np.testing.assert_allclose([x for _, x in seen["context/wind"]], context[:, 1], rtol=1e-5)
    mean = events(tmp_path / "logs/mean")
    np.testing.assert_allclose([x for _, x in mean["target/return"]], result.ret[:, 1:].mean(axis=0), rtol=1e-6)
    error = result.ret[:, 1:].std(axis=0, ddof=1) / np.sqrt(2)
    np.testing.assert_allclose([x for _, x in mean["target/return_error"]], error, rtol=1e-5, atol=1e-7)
    assert len(mean["speed/steps_per_second"]) == len(mean["speed/teacher_share"]) == 4
    found = EventAccumulator(str(tmp_path / "logs/mean"))
    found.Reload()
    assert {f"chosen/{name}" for name in NAMES} <= set(found.Tags()["tensors"])
    last = result.trace["task_context"][:, -1, :, 0]  # the histogram's buckets: left, right, count
    buckets = np.array(found.Tensors("chosen/distance")[-1].tensor_proto.double_val)
    if not buckets.size:
        buckets = np.frombuffer(found.Tensors("chosen/distance")[-1].tensor_proto.tensor_content)
    buckets = buckets.reshape(-1, 3)
    assert buckets[:, 2].sum() == np.isfinite(last).sum()
    np.testing.assert_allclose([buckets[0, 0], buckets[-1, 1]], [np.nanmin(last), np.nanmax(last)])
    np.testing.assert_array_equal(result.task_ret, undisturbed.task_ret)


class Crash(Exception):
    pass


def crash_at(step):
    def callback(progress):
        if progress.steps == step:
            raise Crash

    return callback


def cut_and_resumed(make_log, out):
    """A run that is cut right after an evaluation was logged and before it was saved, and then taken up again."""
    with pytest.raises(Crash), make_log() as log:
        train(together(log, crash_at(1536)), out=out, save_share=1.0)
    with make_log() as log:
        return train(log, out=out, save_share=1.0)


def test_a_resumed_run_has_every_point_once_in_tensorboard(tmp_path, undisturbed):
    result = cut_and_resumed(lambda: TensorBoardLog(tmp_path / "logs"), tmp_path / "run")
    files = list((tmp_path / "logs/seed-3").iterdir())
    assert len(files) == 2
    points = list(zip(result.steps[1:].tolist(), result.ret[0, 1:].tolist(), strict=True))
    assert events(tmp_path / "logs/seed-3")["target/return"] == points
    assert [step for step, _ in events(tmp_path / "logs/mean")["target/return"]] == [512, 1024, 1536, 2048]
    np.testing.assert_array_equal(result.task_ret, undisturbed.task_ret)


@pytest.mark.slow  # on a busy machine W&B's own process is at times too late
def test_a_resumed_run_has_every_point_once_in_wandb(tmp_path, undisturbed):
    config = {"seeds": [3, 8], "steps": 2048}

    def log(**changed):
        return WandbLog("a-project", folder=tmp_path, name="runs/a", config={**config, **changed}, names=NAMES)

    result = cut_and_resumed(log, tmp_path / "run")
    rows = wandb_rows(tmp_path)
    assert [row["steps"] for row in rows] == [512, 1024, 1536, 2048] == [row["_step"] for row in rows]
    for row, seed in enumerate((3, 8)):
        np.testing.assert_allclose([r[f"seed-{seed}/target/return"] for r in rows], result.ret[row, 1:], rtol=1e-6)
    np.testing.assert_allclose([r["target/return"] for r in rows], result.ret[:, 1:].mean(axis=0), rtol=1e-6)
    assert all(np.isfinite(r["loss/value"]) and r["chosen/wind/_type"] == "histogram" for r in rows)
    runs = {path.name for path in tmp_path.glob("wandb/offline-run-*/*.wandb")}
    assert len(runs) == 1 and len(list(tmp_path.glob("wandb/offline-run-*"))) == 2  # one id, two sittings
    np.testing.assert_array_equal(result.task_ret, undisturbed.task_ret)
    longer, other = log(steps=9999), log(seeds=[1])
    assert longer._state.position == 2048 and other._state.position == -1  # the same run further; another run
    longer.close(), other.close()


def test_a_full_disk_ends_the_log_and_not_the_run(tmp_path, caplog, undisturbed):
    log = TensorBoardLog(tmp_path / "logs")

    def fill_the_disk(progress):
        if progress.steps == 1024:
            file = log._files["seed-8"]
            file._file.close()
            file._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115 (every write: no space left on device)
            file._records = RecordWriter(file._file)

    with caplog.at_level(logging.WARNING, "procurl"):
        result = train(together(fill_the_disk, log))
        log.close()
    (warning,) = caplog.messages
    assert warning == (
        "the TensorBoard log broke at 1,024 steps (No space left on device); training goes on without it"
    )
    np.testing.assert_array_equal(result.task_ret, undisturbed.task_ret)
    for name, weights in undisturbed.params.items():
        np.testing.assert_array_equal(result.params[name], weights)
    assert [step for step, _ in events(tmp_path / "logs/seed-3")["target/return"]] == [512, 1024]


@pytest.mark.slow  # on a busy machine W&B's own process is at times too late
def test_an_error_of_wandb_ends_the_log_and_not_the_run(tmp_path, caplog, monkeypatch, undisturbed):
    import wandb

    def fail(*args, **kwargs):
        raise wandb.errors.CommError("the server has gone\nand more")

    with WandbLog(folder=tmp_path) as log, caplog.at_level(logging.WARNING, "procurl"):
        monkeypatch.setattr(log._run, "log", fail)
        result = train(log)
    assert [r.getMessage() for r in caplog.records if r.name == "procurl" and r.levelno >= logging.WARNING] == [
        "the Weights & Biases log broke at 512 steps (the server has gone); training goes on without it"
    ]
    np.testing.assert_array_equal(result.task_ret, undisturbed.task_ret)


def report(seed, steps, ret=0.5):
    return Progress(steps, 1000, np.float32([ret]), 100.0, 1.0, None, seeds=(seed,))


@pytest.mark.slow  # on a busy machine W&B's own process is at times too late
def test_seeds_that_are_trained_one_after_the_other(tmp_path):
    """As Stable-Baselines3's are: each begins at step 0 again, and a mean over seeds is not known meanwhile."""
    reports = [report(seed, steps, seed / 10) for seed in (3, 8) for steps in (500, 1000)]
    with TensorBoardLog(tmp_path, seeds=(3, 8)) as board, WandbLog(folder=tmp_path, seeds=(3, 8)) as log:
        for progress in reports:
            together(board, log)(progress)
    for seed in (3, 8):
        points = events(tmp_path / f"seed-{seed}")["target/return"]
        assert [(s, round(x, 6)) for s, x in points] == [(500, seed / 10), (1000, seed / 10)]
    assert not (tmp_path / "mean").exists()
    rows = wandb_rows(tmp_path)
    assert [row["steps"] for row in rows] == [500, 1000, 500, 1000]
    assert ["seed-8/target/return" in row for row in rows] == [False, False, True, True]


def test_what_has_no_value_is_left_out():
    bare = dataclasses.replace(report(0, 1), seeds=())
    assert tracking.per_seed(bare, ()) == [{"target/return": 0.5}]
    assert tracking.seed_means(bare, ()) == {"target/return": 0.5, "speed/steps_per_second": 100.0}
    assert tracking.contexts(bare, ()) == {}


def test_several_callbacks_are_all_called_and_any_can_stop():
    called = []
    first, second = (lambda p: called.append(1)), (lambda p: called.append(2) or False)
    assert together(second, first)(report(0, 1)) is False and called == [2, 1]
    assert together(first, first)(report(0, 1)) is True and together()(report(0, 1)) is True
    assert len(train(together(first, second)).steps) == 2  # step 0, and the first evaluation after it


@pytest.mark.parametrize(("package", "make"), [("tensorboard", TensorBoardLog), ("wandb", WandbLog)])
def test_a_missing_package_names_the_extra(package, make, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"needs the package.*pip install 'procurl\[tracking\]'"):
        make(str(tmp_path / "x"))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow  # on a busy machine W&B's own process is at times too late
def test_logs_that_cannot_begin(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="cannot use .* for TensorBoard"):
        TensorBoardLog(tmp_path / "file" / "logs")
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb/procurl-a.json").write_text("[]")
    with pytest.raises(ConfigError, match="is damaged"):
        WandbLog(folder=tmp_path, name="a")
    monkeypatch.setenv("WANDB_MODE", "nonsense")
    with pytest.raises(ConfigError, match="does not start"):
        WandbLog(folder=tmp_path)


def test_nobody_is_asked_for_an_account(monkeypatch):
    asked = []
    stranger = SimpleNamespace(login=lambda **options: asked.append(options) or False)
    member = SimpleNamespace(login=lambda **options: True)
    assert tracking.wandb_mode(stranger) == "offline" and not asked  # WANDB_MODE says so
    monkeypatch.delenv("WANDB_MODE")
    assert tracking.wandb_mode(stranger) == "offline" and asked == [{"prompt": False, "verify": False}]
    assert tracking.wandb_mode(member) == "online"
    monkeypatch.setenv("WANDB_MODE", "online")
    with pytest.raises(ConfigError, match="nobody is logged in"):
        tracking.wandb_mode(stranger)


def test_where_logs_go(tmp_path):
    from pathlib import Path

    assert tracking.default_folder(Path("runs/a"), "t") == Path("logs/runs/a")
    assert tracking.default_folder(tmp_path / "b", "t") == Path("logs/b")
    assert tracking.default_folder(None, "maze, iid").name.startswith("maze-iid-2")


@pytest.mark.slow
def test_the_command_line(tmp_path, capsys, monkeypatch):
    """Real processes, no account and no terminal; the second one goes on with the first one's run."""
    home = tmp_path / "home"
    home.mkdir()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
    environment |= {"HOME": str(home), "NETRC": str(home / "none")}
    tiny = [
        f"--set={x}" for x in ("ppo.n_steps=256", "n_envs=8", "batch_size=64", "shared=8", "separate=8", "epochs=1")
    ]

    def run(*words):
        done = subprocess.run(
            [sys.executable, "-m", "procurl.cli", *words, "--log", "tensorboard:board", "--log", "wandb:mine"],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done

    done = run("train", "point-mass-1t", "--teacher", "iid", "--steps", "512", "--seeds", "2", "--out", "runs/a",
               "--set=evaluate_every=1", *tiny)  # fmt: skip
    assert "Weights & Biases: " in done.stderr and "steps/s" in done.stderr and "Traceback" not in done.stderr
    run("resume", "runs/a", "--steps", "512")
    assert [step for step, _ in events(tmp_path / "board/mean")["target/return"]] == [256, 512, 768, 1024]
    assert [row["steps"] for row in wandb_rows(tmp_path)] == [256, 512, 768, 1024]
    assert len({p.name for p in tmp_path.glob("wandb/offline-run-*/*.wandb")}) == 1

    monkeypatch.setattr("procurl.devices.use_cores", lambda *a, **k: None)  # JAX is already running here
    assert cli.main(["train", "point-mass-1t", "--log", "tensorbord"]) == 1
    assert "unknown log 'tensorbord'. Did you mean tensorboard" in capsys.readouterr().err
