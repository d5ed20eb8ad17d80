"""Every strategy on every setting, killed again and again, ends bitwise as if it had been left alone.

The moments are random, from a seed that is printed: while a process starts and compiles, while it trains, in a save
(files cut anywhere, renamings not done, folders half removed), and while the result is written.
"""

import os
import random
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from test_checkpoint import deterministic_files
from worlds import without

import procurl
from procurl.runs.store import checkpoint

DRIVER = Path(__file__).with_name("killed.py")
SETTINGS = ("point-mass-1t", "point-mass-2g", "maze-plane", "minigrid", "bipedal")
PAIRS = [
    (s, t) for s in SETTINGS for t in (without("plays", "withholds") if s == "bipedal" else sorted(procurl.TEACHERS))
]
FAST = [("minigrid", "plr")]  # in `make test-kill`; the others with `make test-slow`
KILLS = ("save", "anywhere", "save", "start", "result")  # of every pair, the first four in random order
CHANGES = {"save": 40, "result": 14}  # to choose from: six saves or so; seven files written and seven renamed
UNTIL = 3600  # seconds without a word, until something has surely hung


def test_there_are_two_hundred_kills():
    assert len(PAIRS) * len(KILLS) >= 200
    assert {t for _, t in PAIRS} == set(procurl.TEACHERS)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A cache of compiled programs for these tests alone, since a kill may damage it; programs that compile quickly."""
    return {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("programs")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
    }


@pytest.mark.kill
@pytest.mark.parametrize(
    ("setting", "teacher"), [*FAST, *(pytest.param(*p, marks=pytest.mark.slow) for p in PAIRS if p not in FAST)]
)
def test_killed_anywhere_it_ends_with_the_same_files(setting, teacher, environment, tmp_path):
    if setting == "bipedal":
        pytest.importorskip("Box2D", reason="the walker needs the extra [box2d]")
    seed = int(os.environ.get("PROCURL_KILL_SEED", PAIRS.index((setting, teacher))))
    print(f"PROCURL_KILL_SEED={seed}")  # shown if the test fails
    rng = random.Random(seed)
    run = Run(setting, teacher, environment)
    assert run.killed(tmp_path / "whole") is False
    whole = deterministic_files(tmp_path / "whole")

    kills, in_a_save, with_workers, round_ = [], 0, 0, 0
    while len(kills) < len(KILLS):
        round_ += 1  # a second one if the first came to its end before it was killed often enough
        folder = tmp_path / f"run-{round_}"
        for how in order_of(KILLS[len(kills) :], rng):
            before = unfinished_writing(folder)
            if not run.killed(folder, how, rng):
                break
            assert_sound(folder)
            kills.append(how)
            in_a_save += unfinished_writing(folder) not in ({}, before)
            with_workers += run.had_workers
        if not (folder / "manifest.json").exists():
            assert run.killed(folder) is False
        assert deterministic_files(folder) == whole
        assert procurl.load_result(folder).status == "finished"
    print(f"{setting}, {teacher}: {len(kills)} kills, {in_a_save} of them in a save, in {round_} runs")
    assert in_a_save >= 2, "the traps in saves must have sprung"
    assert with_workers or setting != "bipedal"


class Run:
    """One combination, in processes of their own."""

    def __init__(self, setting, teacher, environment):
        self.command = [sys.executable, "-W", "error:could not save", str(DRIVER), setting, teacher]
        self.environment = environment
        self.had_workers = False  # when it was last killed

    def killed(self, folder, how="not at all", rng=None):
        """Go on in a folder until killed (True), or to the end (False). Nobody may be left behind."""
        trap = [how, str(rng.randrange(CHANGES[how]))] if how in CHANGES else []
        with subprocess.Popen(
            [*self.command, str(folder), *trap], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=self.environment, start_new_session=True,
        ) as process:  # fmt: skip
            self.had_workers = False
            watcher = threading.Thread(target=self._watch, args=(process, how, rng))
            watcher.start()
            try:
                # Its workers write to the same pipe: it ends when the last of them has ended.
                said = until_closed(process.stderr)
            finally:
                process.kill()
                watcher.join()
                orphans = [pid for pid in living(process.pid) if not ends(pid)]
                for pid in orphans:
                    os.kill(pid, signal.SIGKILL)
        assert process.returncode in (0, -signal.SIGKILL), said
        assert not orphans, "workers end with their parent"
        return process.returncode != 0

    def _watch(self, process, how, rng):
        """Read what the run prints; kill it at some moment after some line, if that is how."""
        line = {"start": 1, "anywhere": 2 + (rng.randrange(5) if rng else 0)}.get(how)
        for number, _ in enumerate(process.stdout, 1):
            self.had_workers = self.had_workers or len(living(process.pid)) > 2  # itself, Python's tracker
            if number == line:
                threading.Event().wait(rng.uniform(0.0, 2.0 if how == "start" else 0.1))
                process.kill()


def order_of(kills, rng):
    """Random, but the one in the result comes last: there is little left to do after it."""
    return sorted(kills, key=lambda how: (how == "result", rng.random()))


def until_closed(pipe):
    """All that comes out of a pipe until everybody has closed it."""
    parts = []
    while True:
        assert select.select([pipe], [], [], UNTIL)[0], "it hangs, or left processes behind: " + "".join(parts)
        part = os.read(pipe.fileno(), 65536).decode()
        if not part:
            return "".join(parts)
        parts.append(part)


def living(group):
    """The processes of a group that have not ended (the dead may wait for somebody to take note)."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:  # it has just gone
            continue
        if int(its_group) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found


def ends(pid):
    """Whether a process comes to its end soon: one that has closed its pipes may still be on the way."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], 60)[0])
    finally:
        os.close(process)


def unfinished_writing(folder):
    """What a process that dies in a save leaves behind, and when it was begun."""
    places = (folder / ".partial", folder / "checkpoints" / ".partial", folder / "checkpoints" / ".old")
    return {str(p): p.stat().st_mtime_ns for p in places if p.exists()}


def assert_sound(folder):
    """After a kill there is a whole result, or whole checkpoints to go on from, or nothing yet."""
    if (folder / "manifest.json").exists():
        procurl.load_result(folder)
    elif paths := checkpoint.checkpoints(folder):
        for path in paths:
            checkpoint.load_checkpoint(folder, int(path.name))
    else:
        assert not checkpoint.holds_run(folder)
