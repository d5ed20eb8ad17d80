"""A benchmark killed anywhere, parent or worker, and run again ends with the same files as one that was left alone."""

import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from test_bench import bench, environment, result_files

import procurl

pytestmark = pytest.mark.kill
SUITE = """
[[rows]]
settings = ["point-mass-1t"]
teachers = ["iid", "procurl-unif"]
seeds = 3
steps = 200_000
block = 2
"""
KILLS = 8


def command(suite, out):
    options = ["--out", str(out), "--device", "cpu", "--workers", "2"]
    return [sys.executable, "-m", "procurl.cli", "bench", str(suite), *options]


def children(pid):
    """Process ids of the workers of a benchmark."""
    try:
        return [int(p) for task in Path(f"/proc/{pid}/task").iterdir() for p in (task / "children").read_text().split()]
    except OSError:
        return []  # it has just ended


def ended(pids, seconds=60):
    """Wait until these processes are gone: each descriptor becomes readable when its process ends."""
    descriptors = [os.pidfd_open(pid) for pid in pids if Path(f"/proc/{pid}").exists()]
    waiting, until = set(descriptors), time.monotonic() + seconds
    while waiting and (left := until - time.monotonic()) > 0:
        waiting -= set(select.select(list(waiting), [], [], left)[0])
    for descriptor in descriptors:
        os.close(descriptor)
    return not waiting


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "killed.toml"
    path.write_text(SUITE)
    return path


@pytest.fixture(scope="module")
def undisturbed(suite, tmp_path_factory):
    """A benchmark that is left alone, and how long it took: the moments of the kills are drawn from that."""
    out = tmp_path_factory.mktemp("whole") / "out"
    began = time.monotonic()
    done = subprocess.run(command(suite, out), capture_output=True, text=True, timeout=1800, env=environment())
    assert done.returncode == 0, done.stderr
    return out, time.monotonic() - began


def test_killed_at_random_moments_it_ends_with_the_same_files(suite, undisturbed, tmp_path):
    whole, seconds = undisturbed
    rng = random.Random(8)
    killed = {"parent": 0, "worker": 0}
    orphans = 0
    for kill in range(KILLS):
        victim = "worker" if kill % 2 else "parent"
        with open(tmp_path / "stderr", "ab") as log:
            process = subprocess.Popen(command(suite, tmp_path / "out"), stderr=log, env=environment())
        moment = threading.Event()
        timer = threading.Timer(rng.uniform(0.0, 0.7 * seconds), moment.set)
        timer.start()
        moment.wait()  # any moment will do: importing, compiling, playing, saving, joining
        workers = children(process.pid)
        if victim == "worker" and workers:
            os.kill(rng.choice(workers), signal.SIGKILL)
            killed["worker"] += 1
            moment = threading.Event()  # and some time later all of it
            threading.Timer(rng.uniform(0.0, 0.3 * seconds), moment.set).start()
            moment.wait()
            workers = children(process.pid)
        if process.poll() is None:
            process.kill()
            killed["parent"] += 1
            orphans += len(workers)
        process.wait()
        assert ended(workers), "workers end with their parent"
    done = subprocess.run(
        command(suite, tmp_path / "out"), capture_output=True, text=True, timeout=1800, env=environment()
    )
    assert done.returncode == 0, done.stderr
    assert result_files(tmp_path / "out") == result_files(whole)
    assert killed["parent"] >= 2 and killed["worker"] >= 1 and orphans >= 1, (killed, orphans)
    # some cell did not begin anew
    cells = list((tmp_path / "out" / "cells").iterdir())
    assert any(procurl.load_result(cell).timing["resumed_at_steps"] for cell in cells)


def test_a_killed_worker_is_tried_again_at_once(suite, undisturbed, tmp_path):
    with subprocess.Popen(
        command(suite, tmp_path / "out"), stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert "started: " in process.stderr.readline()
        os.kill(children(process.pid)[0], signal.SIGKILL)
        said = process.stderr.read()
        assert process.wait(timeout=1800) == 0, said
    assert "lost, will be tried again" in said and "ended by SIGKILL" in said
    assert result_files(tmp_path / "out") == result_files(undisturbed[0])


def test_two_at_once_do_not_corrupt_the_folder(suite, undisturbed, tmp_path):
    with subprocess.Popen(
        command(suite, tmp_path / "out"), stderr=subprocess.PIPE, text=True, env=environment()
    ) as first:
        assert "started: " in first.stderr.readline()
        status = bench("status", tmp_path / "out").stdout
        second = subprocess.run(command(suite, tmp_path / "out"), capture_output=True, text=True, env=environment())
        assert second.returncode == 1 and "is being written by another process" in second.stderr
        said = first.stderr.read()
        assert first.wait(timeout=1800) == 0, said
    assert "running" in status
    assert result_files(tmp_path / "out") == result_files(undisturbed[0])
