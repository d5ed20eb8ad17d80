"""A benchmark killed anywhere, parent or worker, and run again ends with the same files as one that was left alone."""

import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from test_bench import bench, environment, result_files

import procurl

pytestmark = pytest.mark.kill
SUITE = """
[[rows]]
settings = ["point-mass-1t"]
teachers = ["procurl-unif"]
seeds = 3
steps = 300_000
block = 2
"""
KILLS = 6

# The command line, whose workers save themselves at every chance, and which says so when one reports.
DRIVER = """
import sys
from procurl.bench.grid import runner
from procurl.bench.grid.executors import LocalExecutor

LocalExecutor.save_share = 1.0
real = runner._Run.reported

def reported(self, report):
    real(self, report)
    print("reported", report.steps, file=sys.stderr, flush=True)

runner._Run.reported = reported
from procurl.cli import main
sys.exit(main(sys.argv[1:]))
"""


def command(suite, out):
    options = ["--out", str(out), "--device", "cpu", "--workers", "2"]
    return [sys.executable, "-c", DRIVER, "bench", str(suite), *options]


def children(pid):
    """Process ids of the workers of a benchmark."""
    try:
        return [int(p) for task in Path(f"/proc/{pid}/task").iterdir() for p in (task / "children").read_text().split()]
    except OSError:
        return []  # it has just ended


def ended(pids, seconds=60):
    """Wait until these processes are gone: each descriptor becomes readable when its process ends."""
    descriptors = []
    for pid in pids:
        with suppress(ProcessLookupError):  # gone already
            descriptors.append(os.pidfd_open(pid))
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
    """A benchmark that is left alone."""
    out = tmp_path_factory.mktemp("whole") / "out"
    done = subprocess.run(command(suite, out), capture_output=True, text=True, timeout=1800, env=environment())
    assert done.returncode == 0, done.stderr
    return out


def random_moment(rng, process, early):
    """A while after the start (then it imports, or looks around), or after some reports (then it may do anything)."""
    if not early:
        left = rng.randrange(3, 14)
        for line in process.stderr:
            left -= line.startswith("reported")
            if not left:
                break
    threading.Event().wait(rng.uniform(0.0, 3.0 if early else 0.5))


def test_killed_at_random_moments_it_ends_with_the_same_files(suite, undisturbed, tmp_path):
    rng = random.Random(8)
    killed = {"parent": 0, "worker": 0}
    orphans = 0
    for kill in range(KILLS):
        with subprocess.Popen(
            command(suite, tmp_path / "out"), stderr=subprocess.PIPE, text=True, env=environment()
        ) as process:
            random_moment(rng, process, early=kill % 4 == 3)
            workers = children(process.pid)
            if kill % 2 and workers:
                os.kill(rng.choice(workers), signal.SIGKILL)
                killed["worker"] += 1
                random_moment(rng, process, early=True)
                workers = children(process.pid)
            if process.poll() is None:
                process.kill()
                killed["parent"] += 1
                orphans += len(workers)
        assert ended(workers), "workers end with their parent"
    done = subprocess.run(
        command(suite, tmp_path / "out"), capture_output=True, text=True, timeout=1800, env=environment()
    )
    assert done.returncode == 0, done.stderr
    assert result_files(tmp_path / "out") == result_files(undisturbed)
    assert killed["parent"] >= 2 and killed["worker"] >= 1 and orphans >= 1, (killed, orphans)
    cells = list((tmp_path / "out" / "cells").iterdir())
    assert any(procurl.load_result(cell).timing["resumed_at_steps"] for cell in cells), "all began anew"


def test_a_killed_worker_is_tried_again_at_once(suite, undisturbed, tmp_path):
    with subprocess.Popen(
        command(suite, tmp_path / "out"), stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert "started: " in process.stderr.readline()
        os.kill(children(process.pid)[0], signal.SIGKILL)
        said = process.stderr.read()
        assert process.wait(timeout=1800) == 0, said
    assert "lost, will be tried again" in said and "ended by SIGKILL" in said
    assert result_files(tmp_path / "out") == result_files(undisturbed)


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
    assert result_files(tmp_path / "out") == result_files(undisturbed)
